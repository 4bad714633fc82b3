"""AlterReplicaLogDirs (34): v0–v2.

Behaviour
* Starts to move replicas to other log dirs of this broker. The answer does not wait for them; DescribeLogDirs shows
  their progress.
* If the replica is not here yet, the broker remembers the dir until it comes, and answers REPLICA_NOT_AVAILABLE, or
  UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist.
* A request that names a replica's current dir ends its move. A dir that is not in ``log.dirs`` is LOG_DIR_NOT_FOUND.
  A failed dir, or a new move while any dir has failed, is KAFKA_STORAGE_ERROR.

Version notes
* v1 as v0   * v2 flexible
"""

from __future__ import annotations

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import pieces
from engine.broker.handlers.registry import handles
from engine.broker.replication.alter_log_dirs_change import alter_log_dirs
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from engine.runtime.turns import Breather


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS, requires=["Alter Cluster"])
async def alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Start to move replicas; if a replica is named twice, the last dir counts."""
    breather = Breather()
    wanted: dict[TopicPartition, str] = {}
    for log_dir in request.dirs:
        await breather.give_way()
        for topic in pieces(log_dir.topics, "partitions"):
            wanted.update((TopicPartition(topic.name, index), log_dir.path) for index in topic.partitions)
            await breather.give_way()
    outcomes = await alter_log_dirs(context.broker.replica_manager, wanted)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (topic_name, index), code in outcomes.items():
        result = results.setdefault(topic_name, AlterReplicaLogDirTopicResult(topic_name=topic_name, partitions=[]))
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
        await breather.give_way()
    return AlterReplicaLogDirsResponse(results=list(results.values()))
