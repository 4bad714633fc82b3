"""Fetch (1): v0–v17.

Behaviour
* Consumers read below the high watermark (read_committed: below the last stable offset), followers to the log's end.
* It is answered at once if ``min_bytes`` are there, a partition has an error or a diverging epoch, or it names no
  partitions; and if it has records of a segment while later segments have more, for no wait would add to them.
  Otherwise it waits for its partitions, but no longer than ``max_wait_ms``. If a batch does not fit into its
  partition's limit, the limit counts towards ``min_bytes``. A partition that is unknown, or that the reader may not
  read, does not hasten the answer, unless all are such.
* A read_committed consumer beyond the last stable offset waits like others. Kafka answers it at once, so that it asks
  again and again until the transaction ends.
* A session handles one request at a time: if the next one comes while one waits, the waiting one is answered first
  with what there is. If that is too late (its records are being converted), it gets INVALID_FETCH_SESSION_EPOCH.
* A Fetch of more than 10,000 partitions takes turns with other requests. It waits half a second at most, and
  until then no other request can use its session (FETCH_SESSION_ID_NOT_FOUND).
* Records travel as ranges of the log's files. Only for Fetch 0–3 does a thread convert them to magic 0 or 1, in
  portions.
* A follower's fetch offset is its acknowledgement; ``engine.broker.replication`` takes note of it.

Version notes
* v3 ``max_bytes`` of the answer, and a batch larger than that is given whole   * v4 isolation level, v2 batches
* v5 log start offsets   * v7 fetch sessions   * v9 leader epoch fencing   * v10 zstd   * v11 rack of the consumer
* v12 flexible, diverging epochs   * v13 topic ids, no names   * v15 replica state   * v16 addresses of new leaders
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Final

from engine.broker.fetch.answer import build_response, session_error, throttled_response
from engine.broker.fetch.conversion import needs_conversion
from engine.broker.fetch.large_fetch import FETCHED_AT_ONCE_MAX, converted_response, fetch_in_turns, resolve_topic_ids
from engine.broker.fetch.reads import FetchParameters, FetchReads, MakeReads
from engine.broker.fetch.session_cache import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchContext,
    FetchPartition,
    PartitionKey,
    named_once,
)
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import pieces
from engine.broker.handlers.registry import handles, handles_large
from engine.broker.network.request import Deferred, DelayedAnswer, LargeAnswer
from engine.common.errors import ErrorCode
from engine.common.model import NO_PARTITION_LEADER_EPOCH, IsolationLevel, TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from engine.runtime.turns import Breather

logger = logging.getLogger(__name__)

INT_MAX = 2**31 - 1

WAITING_WEIGHT: Final = 16
"""A waiting Fetch keeps 2 kB, and a client needs one per connection: of 128 answers that wait, it counts for 16."""


@handles(ApiKey.FETCH, requires=["ClusterAction Cluster", "Read Topic"])
def fetch(
    context: RequestContext, request: FetchRequest, make_reads: MakeReads = FetchReads
) -> FetchResponse | Deferred | Coroutine[Any, Any, Any]:
    """Read the requested partitions now, or once there are enough bytes."""
    parameters = _parameters(context, request)
    opened = _open_session(context, request, parameters)
    if isinstance(opened, ErrorCode):
        return session_error(opened)
    if len(opened.partitions) > FETCHED_AT_ONCE_MAX:
        if opened.session is not None:
            context.broker.fetch_sessions.take(opened.session)
        return _fetch_in_turns(context, parameters, opened, make_reads)
    resolve_topic_ids(context.broker, context.api_version, opened.partitions)
    reads = make_reads(context.broker, parameters, opened)
    reads.read_all()
    if reads.is_satisfied():
        return _answer(context, opened, reads)
    operation = DelayedFetch(context, opened, reads, parameters.max_wait_ms)
    # It has just been checked, and nothing can have changed since.
    delayed_fetch = context.broker.replica_manager.delayed_fetch
    if opened.session is None:
        delayed_fetch.watch(operation, _watched(opened.partitions))
    else:
        # Settled partitions wake the whole session.
        delayed_fetch.watch(operation, (opened.session, *_watched(opened.partitions)))
        opened.session.answer_waiting = operation.force_complete
    return operation.deferred


@handles_large(ApiKey.FETCH)
async def fetch_of_very_many(
    context: RequestContext, request: FetchRequest, make_reads: MakeReads = FetchReads
) -> object:
    """Read very many partitions, in turns with other requests."""
    if len(request.topics) + len(request.forgotten_topics_data) <= FETCHED_AT_ONCE_MAX and (
        sum(len(topic.partitions) for topic in request.topics)
        + sum(len(topic.partitions) for topic in request.forgotten_topics_data)
        <= FETCHED_AT_ONCE_MAX
    ):
        answer = fetch(context, request, make_reads)
        return await answer if isinstance(answer, Coroutine) else answer
    parameters = _parameters(context, request)
    opened = await _open_session_in_turns(context, request, parameters)
    if isinstance(opened, ErrorCode):
        return session_error(opened)
    return await _fetch_in_turns(context, parameters, opened, make_reads)


def _watched(partitions: Iterable[FetchPartition]) -> Iterator[TopicPartition]:
    for partition in partitions:
        if partition.topic is not None:
            if partition.topic_partition is None:
                partition.topic_partition = TopicPartition(partition.topic, partition.key.partition)
            yield partition.topic_partition


class DelayedFetch(DelayedAnswer):
    """A Fetch that waits for bytes."""

    __slots__ = ("_context", "_fetch", "_reads")

    def __init__(self, context: RequestContext, opened: FetchContext, reads: FetchReads, delay_ms: int) -> None:
        super().__init__(delay_ms, weight=WAITING_WEIGHT)
        self._context = context
        self._fetch = opened
        self._reads = reads

    def try_complete(self) -> bool:
        """Complete when there is enough to read, or the answer would now be an error."""
        awoken = self._reads.join_awoken()
        if awoken:
            self._context.broker.replica_manager.delayed_fetch.watch_also(self, _watched(awoken))
        if not self._reads.may_have_grown():
            return False
        self._reads.read_again()
        return self._reads.is_satisfied() and self.force_complete()

    def on_complete(self) -> None:
        """Answer with what there is; after the deadline that may be nothing."""
        self._reads.read_again()
        answer = _answer(self._context, self._fetch, self._reads)
        if isinstance(answer, Coroutine):
            self._context.broker.supervisor.start(self._convert(answer), "down-conversion")
        else:
            self.deferred.complete(answer)

    def on_expiration(self) -> None:
        """Count the followers' apart from the consumers', as Kafka does."""
        if self._reads.parameters.is_follower:
            self._context.broker.fetch_sessions.follower_expirations_total += 1

    def cancel(self) -> None:
        """Release the session too: it would keep what was read until its next request."""
        super().cancel()
        if self._fetch.session is not None:
            self._fetch.session.answer_waiting = None

    async def _convert(self, converting: Coroutine[Any, Any, FetchResponse]) -> None:
        try:
            response = await converting
        except Exception:
            logger.exception("Cannot convert records for an old reader request=%r", self._context)
            response = session_error(ErrorCode.UNKNOWN_SERVER_ERROR)
        self.deferred.complete(response)


def _answer(
    context: RequestContext, opened: FetchContext, reads: FetchReads
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Answer with what was read, unless the consumer has used more than its share; then with nothing."""
    throttle_ms = _throttle_ms(context, [reads])
    if throttle_ms > 0:
        if opened.session is not None and not opened.is_incremental:
            context.broker.fetch_sessions.end(opened.session.id)
        return throttled_response(opened, throttle_ms)
    if needs_conversion(context.api_version, reads):
        return converted_response(context.broker, opened, reads)
    return build_response(context.broker, opened, reads)


def _fetch_in_turns(
    context: RequestContext, parameters: FetchParameters, opened: FetchContext, make_reads: MakeReads
) -> Coroutine[Any, Any, LargeAnswer]:
    return fetch_in_turns(context.broker, parameters, opened, make_reads, lambda pieces: _throttle_ms(context, pieces))


def _throttle_ms(context: RequestContext, pieces: Iterable[FetchReads]) -> int:
    """Return how long a consumer has to wait, now that so much was read for it; 0: not at all."""
    quotas = context.broker.quotas
    if not quotas.is_on or any(piece.parameters.is_follower for piece in pieces):
        return 0
    return quotas.throttle_fetch(context, sum(piece.answer_bytes for piece in pieces))


def _parameters(context: RequestContext, request: FetchRequest) -> FetchParameters:
    state = request.replica_state
    replica_id = request.replica_id if context.api_version < 15 or state is None else state.replica_id
    context.session.is_follower = replica_id >= 0
    max_bytes = request.max_bytes if context.api_version >= 3 else INT_MAX
    max_bytes = min(max_bytes, context.broker.config.fetch_max_bytes)
    if replica_id < 0 and context.broker.quotas.is_on:
        max_bytes = min(max_bytes, context.broker.quotas.fetch_bytes_max(context))
    return FetchParameters(
        api_version=context.api_version,
        replica_id=replica_id,
        replica_epoch=-1 if state is None else state.replica_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation=IsolationLevel.READ_COMMITTED if request.isolation_level == 1 else IsolationLevel.READ_UNCOMMITTED,
        rack_id=request.rack_id,
        listener_name=context.session.listener_name,
    )


def _open_session(
    context: RequestContext, request: FetchRequest, parameters: FetchParameters
) -> FetchContext | ErrorCode:
    by_id = context.api_version >= 13
    partitions = _named(request.topics, by_id)
    if context.api_version < 7:
        return FetchContext(named_once(partitions))
    return context.broker.fetch_sessions.open(
        request.session_id,
        request.session_epoch,
        named_once(partitions),
        _forgotten(request.forgotten_topics_data, by_id),
        is_follower=parameters.replica_id >= 0,
        uses_topic_ids=by_id,
        now_ms=context.broker.clock.monotonic_ms(),
    )


async def _open_session_in_turns(
    context: RequestContext, request: FetchRequest, parameters: FetchParameters
) -> FetchContext | ErrorCode:
    by_id = context.api_version >= 13
    breather = Breather()
    partitions: dict[PartitionKey, FetchPartition] = {}
    for topic in pieces(request.topics, "partitions"):
        partitions.update((partition.key, partition) for partition in _named([topic], by_id))
        await breather.give_way()
    if context.api_version < 7:
        return FetchContext(list(partitions.values()))
    forgotten: list[PartitionKey] = []
    continues = request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
    for left in pieces(request.forgotten_topics_data, "partitions") if continues else ():
        forgotten += _forgotten([left], by_id)
        await breather.give_way()
    steps = context.broker.fetch_sessions.open_in_steps(
        request.session_id,
        request.session_epoch,
        list(partitions.values()),
        forgotten,
        is_follower=parameters.replica_id >= 0,
        uses_topic_ids=by_id,
        now_ms=context.broker.clock.monotonic_ms(),
    )
    while True:
        try:
            next(steps)
        except StopIteration as done:
            opened: FetchContext | ErrorCode = done.value
            return opened
        await breather.give_way()


def _named(topics: Iterable[FetchTopic], by_id: bool) -> list[FetchPartition]:
    return [
        FetchPartition(
            PartitionKey("" if by_id else topic.topic, topic.topic_id, p.partition),
            fetch_offset=p.fetch_offset,
            max_bytes=p.partition_max_bytes,
            # Kafka takes any negative epoch of a Fetch for none.
            current_leader_epoch=max(p.current_leader_epoch, NO_PARTITION_LEADER_EPOCH),
            last_fetched_epoch=max(p.last_fetched_epoch, NO_PARTITION_LEADER_EPOCH),
            log_start_offset=p.log_start_offset,
        )
        for topic in topics
        for p in topic.partitions
    ]


def _forgotten(topics: Iterable[ForgottenTopic], by_id: bool) -> list[PartitionKey]:
    return [
        PartitionKey("" if by_id else topic.topic, topic.topic_id, partition)
        for topic in topics
        for partition in topic.partitions
    ]
