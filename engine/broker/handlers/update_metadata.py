"""UpdateMetadata (6): v0–v8.

Behaviour
* The controller sends a broker what clients should know about the cluster. STALE_BROKER_EPOCH and
  STALE_CONTROLLER_EPOCH refuse the whole request.
* The broker applies a large update in turns with other requests. The next update waits for it, and readers see none
  of it until it is complete.
* It replaces the live brokers and merges the partitions; leader -2 removes a partition from the cache. Requests that
  wait for a topic's leaders check again.

Version notes
* v0 one host and port per broker   * v1 endpoints   * v3 listener names   * v4 offline replicas
* v5 grouped by topic, broker epoch   * v7 topic ids   * v8 KRaft flag and type, which mean nothing here
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.preconditions import is_stale
from engine.broker.handlers.registry import handles
from engine.broker.replication.metadata_cache import names_many
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


@handles(ApiKey.UPDATE_METADATA, requires=["ClusterAction Cluster"])
def update_metadata(
    context: RequestContext, request: UpdateMetadataRequest
) -> UpdateMetadataResponse | Coroutine[Any, Any, UpdateMetadataResponse]:
    if is_stale(context.broker, request.broker_epoch):
        return UpdateMetadataResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    manager = context.broker.replica_manager
    if manager.is_updating_metadata or names_many(request, manager.metadata_cache.alive_brokers):
        return _update_in_turns(context, request)
    try:
        deleted = manager.update_metadata(request, correlation_id=context.correlation_id)
    except KafkaError as error:
        return UpdateMetadataResponse(error_code=error.code)
    return _drop(context, deleted) if deleted else UpdateMetadataResponse()


async def _update_in_turns(context: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    manager = context.broker.replica_manager
    try:
        deleted = await manager.update_metadata_in_turns(request, correlation_id=context.correlation_id)
    except KafkaError as error:
        return UpdateMetadataResponse(error_code=error.code)
    return await _drop(context, deleted) if deleted else UpdateMetadataResponse()


async def _drop(context: RequestContext, deleted: list[TopicPartition]) -> UpdateMetadataResponse:
    """Forget what belongs to deleted partitions: offsets and settings."""
    await context.broker.group_coordinator.offsets.partitions_deleted(deleted)
    for topic in {topic_partition.topic for topic_partition in deleted}:
        if topic not in context.broker.metadata_cache.topics:
            # A new topic of the same name must not inherit this one's settings.
            context.broker.dynamic_configs.forget_topic(topic)
    return UpdateMetadataResponse()
