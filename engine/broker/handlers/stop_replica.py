"""StopReplica (5): v0–v4.

Behaviour
* Stops replicas, and deletes them if the controller says so. STALE_BROKER_EPOCH and STALE_CONTROLLER_EPOCH refuse the
  whole request, and the answer has no partitions.
* Without deletion the fetcher stops and the replica stays. With deletion the broker renames the log's folder at once
  and removes it after ``file.delete.delay.ms``; it also removes a folder that belongs to no known partition. The answer
  waits until no checkpoint on disk names the log.
* It does not check leader epochs -2 (topic is deleted) and -1 (not sent). An older epoch is FENCED_LEADER_EPOCH; the
  same or a newer one is applied (as since 3.4).

Version notes
* v0–v2 one deletion flag for all   * v1 grouped by topic, broker epoch   * v3 leader epoch and deletion per partition
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_lists
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.preconditions import is_stale
from engine.broker.handlers.registry import handles
from engine.broker.replication.stop_replica_change import stop_replicas
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.stop_replica import StopReplicaRequest, StopReplicaResponse


@handles(ApiKey.STOP_REPLICA, requires=["ClusterAction Cluster"])
async def stop_replica(context: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
    if is_stale(context.broker, request.broker_epoch):
        return StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    lists = answer_lists(context, StopReplicaResponse, "partition_errors")
    return await stop_replicas(
        context.broker.replica_manager, request, correlation_id=context.correlation_id, lists=lists
    )
