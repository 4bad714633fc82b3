"""ElectLeaders (43): v0–v2.

Behaviour
* Elects the preferred replica, or (unclean) any live one. The answer comes when this broker's metadata shows the new
  leaders, or after the request's time-out (REQUEST_TIMED_OUT for the missing ones).
* Partitions null means all; that answer leaves out partitions that need no election.

Version notes
* v0 preferred only, no error for the whole   * v1 unclean elections   * v2 flexible
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.broker.controller.events import ApiError, ElectionType, ElectLeaders
from engine.broker.handlers.answer_lists import ByTopic, each_once, is_large
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import in_lists
from engine.broker.handlers.registry import handles
from engine.broker.replication.metadata_cache import MetadataCache
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult
from engine.runtime.turns import Breather, carry_out


@handles(ApiKey.ELECT_LEADERS, requires=["Alter Cluster"])
async def elect_leaders(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    error = ErrorCode.NONE if request.election_type in set(ElectionType) else ErrorCode.UNKNOWN_SERVER_ERROR
    if error and request.topic_partitions is None:
        return ElectLeadersResponse(error_code=error)
    cache = context.broker.metadata_cache
    topics = await carry_out(
        ByTopic.of(
            context,
            ElectLeadersResponse,
            "replica_election_results.partition_result",
            "topic",
            lambda: (topic.topic for topic in request.topic_partitions or ()),
        )
    )
    election = _Election(context, request, topics, error)
    wanted: list[TopicPartition] = []
    breather = Breather()
    for batch in in_lists(await carry_out(each_once(context, lambda: _named(request, cache)))):
        wanted += [partition for partition, _ in batch if partition is not None]
        await breather.give_way()
        if is_large(context):
            # As objects, all of them would take many times the memory of the request.
            await election.ask(wanted)
            wanted = []
    if wanted or not is_large(context):
        await election.ask(wanted)
    await election.wait_until_seen()
    return ElectLeadersResponse(error_code=error, replica_election_results=topics.topics())


def _named(
    request: ElectLeadersRequest, cache: MetadataCache
) -> Iterator[tuple[TopicPartition, None] | tuple[None, None]]:
    """Yield the partitions that a request names, and None for each topic: very many may have no partition."""
    if request.topic_partitions is None:
        for topic in sorted(cache.topics):
            yield None, None
            yield from ((TopicPartition(topic, index), None) for index in cache.partitions(topic))
        return
    for asked in request.topic_partitions:
        yield None, None
        yield from ((TopicPartition(asked.topic, index), None) for index in asked.partitions)


class _Election:
    """One request under way."""

    def __init__(
        self, context: RequestContext, request: ElectLeadersRequest, topics: ByTopic, error: ErrorCode
    ) -> None:
        self._broker, self._request, self._topics, self._error = context.broker, request, topics, error
        self._left_out = ErrorCode.ELECTION_NOT_NEEDED if request.topic_partitions is None else None
        self._elected: dict[TopicPartition, tuple[int, PartitionResult]] = {}
        """The new leaders, with the parts of the answer that depend on whether they are seen."""
        self._breather = Breather()

    async def ask(self, partitions: list[TopicPartition]) -> None:
        """Let the controller elect leaders, and note the outcome of each partition."""
        answer: dict[TopicPartition, int | ApiError] | ApiError = ApiError(self._error)
        if not self._error:
            election_type = ElectionType(self._request.election_type)
            answer = await self._broker.controller.ask(ElectLeaders(tuple(partitions), election_type))
        for partition in partitions:
            await self._breather.give_way()
            result = answer if isinstance(answer, ApiError) else answer[partition]
            if isinstance(result, int):
                entry = PartitionResult(partition_id=partition.partition)
                self._elected[partition] = result, self._topics.add(partition.topic, entry, may_change=True)
            elif result.code is not self._left_out:
                entry = PartitionResult(
                    partition_id=partition.partition, error_code=result.code, error_message=result.message
                )
                self._topics.add(partition.topic, entry)

    async def wait_until_seen(self) -> None:
        """Wait until this broker's metadata shows the new leaders; those that it does not have timed out."""
        elections = self._broker.topic_admin.elections
        await elections.wait(lambda: all(map(self._is_seen, self._elected)), self._request.timeout_ms)
        for partition, (_, entry) in self._elected.items():
            await self._breather.give_way()
            if not self._is_seen(partition):
                entry.error_code = ErrorCode.REQUEST_TIMED_OUT

    def _is_seen(self, partition: TopicPartition) -> bool:
        known = self._broker.metadata_cache.partition_info(partition)
        return known is not None and known.leader == self._elected[partition][0]
