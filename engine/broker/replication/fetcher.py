"""A follower's fetcher: one task and one connection that copy partitions from one leader.

It fetches, appends the answer, cuts the log where it diverges from the leader's, and fetches again. A partition that
fails is set aside or paused; the others go on. The manager decides which partitions belong here.
Source: AbstractFetcherThread and ReplicaFetcherThread of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator

from engine.broker.replication.fetch_cuts import LogCutter
from engine.broker.replication.fetch_table import FetchState, FetchTable, FollowerHost, InitialFetchState, continued
from engine.broker.replication.follower import append_fetched, hosted_log
from engine.broker.replication.follower_fetch_session import FetchPlan
from engine.broker.replication.leader_endpoint import LeaderEndpoint
from engine.common.errors import ErrorCode, KafkaError, KlammError, error_code
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.fetch import FetchResponse, PartitionData
from engine.kafka.protocol.records.header import iter_batches
from engine.runtime.turns import Breather, carry_out

logger = logging.getLogger("kafka.server.ReplicaFetcherThread")

_WORTH_ANOTHER_TRY = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})
_NOT_THERE_YET = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
_EXPECTED = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER})
_SESSION_ERRORS = frozenset(
    {ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)


class ReplicaFetcher:
    """Copies its partitions from one leader until it is cancelled."""

    def __init__(
        self, leader: LeaderEndpoint, fetcher_id: int, host: FollowerHost, failed: set[TopicPartition]
    ) -> None:
        self.leader = leader
        self.fetcher_id = fetcher_id
        self.requests_total = 0
        self.fetched_bytes_total = 0
        self._host = host
        self._who = (
            f"[ReplicaFetcher replicaId={host.settings.broker_id}, leaderId={leader.node.id}, fetcherId={fetcher_id}]"
        )
        self._table = FetchTable(host, failed, self._who, truncates_on_fetch=leader.truncates_on_fetch)
        self._changed = asyncio.Event()
        self._cutter = LogCutter(leader, host, self._table, self._changed.set)
        self._unflushed: dict[TopicPartition, FetchState] = {}
        """Partitions that have to be flushed (``flush.messages``) before a request confirms their records."""

    @property
    def partitions(self) -> Collection[TopicPartition]:
        return self._table.states.keys()

    def lag(self, topic_partition: TopicPartition) -> int | None:
        """Return how many records a partition is behind the leader's high watermark; None if that is not known."""
        state = self._table.states.get(topic_partition)
        return None if state is None else state.lag

    def lags(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield every partition whose lag is known, with it."""
        return ((tp, state.lag) for tp, state in self._table.states.items() if state.lag is not None)

    def max_lag(self) -> int:
        return max((state.lag or 0 for state in self._table.states.values()), default=0)

    def add(self, topic_partition: TopicPartition, initial: InitialFetchState) -> None:
        """Fetch a partition from the next request on."""
        self._table.add(topic_partition, initial)
        self._note_unflushed(self._table.states[topic_partition])
        self._changed.set()

    def remove(self, topic_partition: TopicPartition) -> InitialFetchState | None:
        """Stop fetching a partition; return how it continues elsewhere, or None if it was not fetched here."""
        state = self._table.remove(topic_partition)
        return None if state is None else continued(state, self.leader.node)

    def update_topic_id(self, topic_partition: TopicPartition, topic_id: bytes) -> None:
        """Name the topic by another id from the next request on; the zero id means by name."""
        self._table.update_topic_id(topic_partition, topic_id)

    async def run(self) -> None:
        """Fetch until cancelled."""
        name = f"[ReplicaFetcherThread-{self.fetcher_id}-{self.leader.node.id}]"
        logger.info("%s: Starting", name)
        try:
            while True:
                try:
                    await self._turn()
                except Exception:
                    logger.exception("%s A turn failed unexpectedly; all its partitions pause.", self._who)
                    self._pause_all()
        finally:
            await self._cutter.close()
            await self.leader.close()
            logger.info("%s: Stopped", name)

    async def _turn(self) -> None:
        self._changed.clear()
        if self._table.delayed:
            await carry_out(self._table.end_delays())
        if self._table.truncating:
            await self._cutter.cut_before_fetching()
        await self._cutter.settle()
        if self._host.follower_quota.has_throttled or self._table.leaves_out:
            self._table.throttle()
        if self._unflushed:
            await self._flush()
            return
        if self._table.session.is_empty:
            await self._wait_for_work()
            return
        plan = self._table.session.plan()
        self.requests_total += 1
        try:
            response, version = await self.leader.fetch(plan, self._host.broker_epoch)
        except KlammError as error:
            self._fetch_failed(error)
            return
        for state in await self._use(response, plan, version):
            await self._cutter.begin_in_range(state)

    async def _wait_for_work(self) -> None:
        if self._table.truncating:
            return
        try:
            async with asyncio.timeout(self._table.next_turn_ms() / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    def _fetch_failed(self, error: KlammError) -> None:
        if self._table.states:
            logger.info(
                "%s Error sending fetch request %s to node %d: %s",
                self._who,
                self._table.session.describe(),
                self.leader.node.id,
                error,
            )
        self._pause_all()

    def _pause_all(self) -> None:
        self._table.session.restart()
        self._table.delay_all()

    async def _use(self, response: FetchResponse, plan: FetchPlan, api_version: int) -> list[FetchState]:
        """Use an answer, in turns with other work; return the partitions whose offset the leader does not have."""
        answered = self._table.session.handle_response(response, plan, api_version)
        if answered is None:
            if response.error_code not in _SESSION_ERRORS:
                self._table.delay_all()
            return []
        out_of_range, breather = [], Breather()
        for topic_partition, data in answered:
            await breather.give_way()
            state = self._table.states.get(topic_partition)
            sent = plan.partitions[topic_partition]
            if (
                state is None
                or not state.is_ready
                or sent.asker is not state
                or sent.fetch_offset != state.fetch_offset
            ):
                # Removed, added again (for a new topic of the same name too) or cut while the answer was on its way.
                continue
            if data.error_code == ErrorCode.NONE:
                self._take(state, data)
            elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                out_of_range.append(state)
            else:
                self._refused(state, error_code(data.error_code))
        return out_of_range

    def _take(self, state: FetchState, data: PartitionData) -> None:
        if data.diverging_epoch is not None:
            # The leader's offsets do not count before the log is cut: the next answer brings them again.
            self._cutter.cut(state, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return
        try:
            self._append(state, data)
        except KafkaError as error:
            if error.code not in _WORTH_ANOTHER_TRY:
                self._table.give_up(state, f"Error while processing data at offset {state.fetch_offset}", error)
                return
            logger.error(
                "%s Found invalid messages during fetch for partition %s offset %d: %s",
                self._who,
                state.topic_partition,
                state.fetch_offset,
                error,
            )
            self._table.delay([state])
        except Exception as error:
            self._table.give_up(state, f"Unexpected error while processing data at offset {state.fetch_offset}", error)

    def _append(self, state: FetchState, data: PartitionData) -> None:
        partition = self._host.hosted_partition(state.topic_partition)
        log = hosted_log(partition)
        assert partition is not None
        size_bytes = 0 if data.records is None else len(data.records)
        fetched_from = state.fetch_offset
        state.fetch_offset = append_fetched(partition, fetched_from, state.leader_epoch, data)
        state.lag = max(0, data.high_watermark - state.fetch_offset)
        if size_bytes:
            state.last_fetched_epoch = log.leader_epochs.latest_epoch
            self.fetched_bytes_total += size_bytes
            topics = partition.environment.topics
            topics.replication_bytes_in += size_bytes
            if self._host.settings.broker_id in partition.assignment.adding_replicas:
                topics.reassignment_bytes_in += size_bytes
            quota = self._host.follower_quota
            if quota.has_throttled and quota.is_throttled(state.topic_partition):
                quota.record(size_bytes)
        if data.records and state.fetch_offset == fetched_from:
            self._took_nothing(state, data.records)
            return
        state.failures = 0
        self._table.want(state, is_last=size_bytes > 0)
        if log.is_flush_due:
            self._unflushed[state.topic_partition] = state

    def _note_unflushed(self, state: FetchState) -> None:
        partition = self._host.hosted_partition(state.topic_partition)
        if partition is not None and partition.log is not None and partition.log.is_flush_due:
            self._unflushed[state.topic_partition] = state

    async def _flush(self) -> None:
        """Bring to the disk what the next request will confirm: the leader then counts it as replicated."""
        unflushed, self._unflushed = self._unflushed, {}
        await asyncio.gather(*(self._flush_one(state) for state in unflushed.values()))

    async def _flush_one(self, state: FetchState) -> None:
        partition = self._host.hosted_partition(state.topic_partition)
        if partition is None or partition.log is None or not self._table.is_current(state):
            return
        try:
            await self._host.flushes.flush(partition.log)
        except Exception as error:
            if self._table.is_current(state):
                self._table.give_up(state, f"Error while flushing up to offset {state.fetch_offset}", error)

    def _took_nothing(self, state: FetchState, records: memoryview) -> None:
        """Report a first batch that came incomplete: before Fetch 3, leaders cut it off (KIP-74).

        A whole one belongs to a later leader epoch, about which this replica will hear from the controller.
        """
        if next(iter_batches(records), None) is None:
            logger.error(
                "%s Replication is failing due to a message that is greater than replica.fetch.max.bytes for partition "
                "%s. Raise replica.fetch.max.bytes above the largest max.message.bytes of broker and topics.",
                self._who,
                state.topic_partition,
            )
        self._table.delay([state])

    def _refused(self, state: FetchState, error: ErrorCode) -> None:
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._table.fenced(state)
            return
        if error in _NOT_THERE_YET:
            logger.warning(
                "%s Received %s from the leader for partition %s. This error may be returned transiently when the "
                "partition is being created or deleted, but it is not expected to persist.",
                self._who,
                error.name,
                state.topic_partition,
            )
        elif error not in _EXPECTED:
            logger.error(
                "%s Error for partition %s at offset %d: %s",
                self._who,
                state.topic_partition,
                state.fetch_offset,
                error.name,
            )
        self._table.delay([state])
