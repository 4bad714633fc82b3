"""ElectLeaders (43): v0–v2.

Behaviour
* Elects the preferred replica, or (unclean) any live one. The answer comes when this broker's metadata shows the new
  leaders, or after the request's time-out (REQUEST_TIMED_OUT for the missing ones).
* Partitions null means all; that answer leaves out partitions that need no election.

Version notes
* v0 preferred only, no error for the whole   * v1 unclean elections   * v2 flexible
"""

from __future__ import annotations

from engine.broker.controller.events import NO_ERROR, ApiError, ElectionType, ElectLeaders
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import pieces
from engine.broker.handlers.registry import handles
from engine.broker.replication.metadata_cache import MetadataCache
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from engine.runtime.turns import Breather


@handles(ApiKey.ELECT_LEADERS, requires=["Alter Cluster"])
async def elect_leaders(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect leaders and wait until this broker knows about them."""
    broker = context.broker
    if request.election_type not in set(ElectionType):
        named = () if request.topic_partitions is None else await _wanted(request, broker.metadata_cache)
        refusal = await _response(dict.fromkeys(named, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)), None)
        refusal.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return refusal
    partitions = await _wanted(request, broker.metadata_cache)
    answer: dict[TopicPartition, int | ApiError] | ApiError = await broker.controller.ask(
        ElectLeaders(partitions, ElectionType(request.election_type))
    )
    breather = Breather()
    leaders: dict[TopicPartition, int] = {}
    errors: dict[TopicPartition, ApiError] = {}
    for partition in partitions:
        await breather.give_way()
        result = answer if isinstance(answer, ApiError) else answer[partition]
        if isinstance(result, int):
            leaders[partition] = result
        else:
            errors[partition] = result

    def is_seen(partition: TopicPartition) -> bool:
        known = broker.metadata_cache.partition_info(partition)
        return known is not None and known.leader == leaders[partition]

    await broker.topic_admin.elections.wait(lambda: all(map(is_seen, leaders)), request.timeout_ms)
    for partition in leaders:
        await breather.give_way()
        errors[partition] = NO_ERROR if is_seen(partition) else ApiError(ErrorCode.REQUEST_TIMED_OUT)
    return await _response(errors, ErrorCode.ELECTION_NOT_NEEDED if request.topic_partitions is None else None)


async def _wanted(request: ElectLeadersRequest, cache: MetadataCache) -> tuple[TopicPartition, ...]:
    wanted: list[TopicPartition] = []
    breather = Breather()
    if request.topic_partitions is None:
        for topic in sorted(cache.topics):
            wanted += [TopicPartition(topic, p) for p in cache.partitions(topic)]
            await breather.give_way()
    else:
        for asked in pieces(request.topic_partitions, "partitions"):
            wanted += [TopicPartition(asked.topic, p) for p in asked.partitions]
            await breather.give_way()
    return tuple(wanted)


async def _response(errors: dict[TopicPartition, ApiError], left_out: ErrorCode | None) -> ElectLeadersResponse:
    """Return each partition's outcome, except for those with the ``left_out`` error."""
    topics: dict[str, ReplicaElectionResult] = {}
    breather = Breather()
    for partition, error in errors.items():
        await breather.give_way()
        if error.code is left_out:
            continue
        topic = topics.setdefault(partition.topic, ReplicaElectionResult(topic=partition.topic))
        topic.partition_result.append(
            PartitionResult(partition_id=partition.partition, error_code=error.code, error_message=error.message)
        )
    return ElectLeadersResponse(replica_election_results=list(topics.values()))
