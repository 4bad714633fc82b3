"""Cuts a follower's log where the leader says so, and finds a fetch offset that the leader has.

Source: AbstractFetcherThread of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from engine.broker.log.log import Gap, Log
from engine.broker.replication.fetch_table import FetchState, FetchTable, FollowerHost
from engine.broker.replication.follower import hosted_log, truncate
from engine.broker.replication.leader_endpoint import EpochAnswer, LeaderEndpoint
from engine.broker.replication.truncation import UNDEFINED_EPOCH, Truncation, truncation_for
from engine.common.errors import ErrorCode, KafkaError, KlammError
from engine.common.model import TopicPartition
from engine.runtime.turns import Breather

logger = logging.getLogger("kafka.server.ReplicaFetcherThread")


class LogCutter:
    """Works on the states of one fetcher's table."""

    def __init__(
        self, leader: LeaderEndpoint, host: FollowerHost, table: FetchTable, on_ready: Callable[[], None]
    ) -> None:
        """``on_ready`` is called when a partition that was held back can be fetched again."""
        self._leader = leader
        self._host = host
        self._table = table
        self._cut_logs: dict[TopicPartition, Log] = {}
        """Logs that were cut, while the cut is not on disk yet."""
        self._on_ready = on_ready
        self._replay = asyncio.Lock()
        """One replay at a time: each keeps a processor busy."""
        self._replays: set[asyncio.Task[None]] = set()

    async def settle(self) -> None:
        """Bring all cuts to the disk before more is fetched. Raises KafkaError KAFKA_STORAGE_ERROR."""
        if self._cut_logs:
            logs, self._cut_logs = self._cut_logs, {}
            await self._host.settle_cuts([log for log in logs.values() if log.has_unsettled_cut])

    def _note_cut(self, log: Log) -> None:
        if log.has_unsettled_cut:
            self._cut_logs[log.topic_partition] = log

    async def close(self) -> None:
        """End the wait for producer states; their threads end with their work."""
        for task in self._replays:
            task.cancel()
        await asyncio.gather(*self._replays, return_exceptions=True)

    def _go_on(self, state: FetchState, log: Log) -> None:
        """Fetch a partition again, once a thread has built its producer state if that takes long."""
        if not log.has_stale_producers:
            self._table.truncated(state)
            return
        self._table.hold(state)
        task = asyncio.create_task(self._go_on_later(state, log), name="producer state")
        self._replays.add(task)
        task.add_done_callback(self._replays.discard)

    async def _go_on_later(self, state: FetchState, log: Log) -> None:
        try:
            async with self._replay:
                if self._table.is_current(state):
                    await self._host.settle_cuts([log])
        except Exception as error:
            if self._table.is_current(state):
                self._table.give_up(state, "Failed to read the producers' batches", error)
            return
        if self._table.is_current(state):
            self._table.truncated(state)
            self._on_ready()

    async def cut_before_fetching(self) -> None:
        """Cut all partitions that wait for it: by leader epoch, or at the high watermark if there are no epochs."""
        by_epoch: dict[TopicPartition, tuple[FetchState, int]] = {}
        breather = Breather()
        for topic_partition, state in list(self._table.truncating.items()):
            await breather.give_way()
            if self._table.truncating.get(topic_partition) is not state:
                continue
            epoch = self._table.last_epoch(topic_partition)
            if epoch != UNDEFINED_EPOCH and self._leader.knows_epochs:
                by_epoch[topic_partition] = (state, epoch)
            else:
                self._cut_to_high_watermark(state)
        if not by_epoch:
            return
        try:
            answers = await self._leader.epoch_end_offsets(
                {tp: (state.leader_epoch, epoch) for tp, (state, epoch) in by_epoch.items()}
            )
        except KlammError as error:
            logger.warning("%s Error when sending leader epoch request: %s", self._table.who, error)
            self._table.delay([state for state, _ in by_epoch.values()])
            return
        for topic_partition, (state, _) in by_epoch.items():
            await breather.give_way()
            if self._table.truncating.get(topic_partition) is state:
                self._use_answer(state, answers.get(topic_partition))

    def cut(self, state: FetchState, leader_epoch: int, end_offset: int) -> None:
        """Cut by the leader's answer about an epoch."""
        topic_partition = state.topic_partition
        try:
            log = hosted_log(self._host.hosted_partition(topic_partition))
        except KafkaError as error:
            self._table.give_up(state, "Failed to truncate", error)
            return
        truncation = truncation_for(
            leader_epoch,
            end_offset,
            fallback_offset=log.high_watermark,
            log_end_offset=log.log_end_offset,
            end_offset_for_epoch=lambda epoch: log.leader_epochs.end_offset_for(epoch, log.log_end_offset),
        )
        logger.info(
            "%s Truncating partition %s with %s due to leader epoch and offset EpochEndOffset(errorCode=0, "
            "partition=%d, leaderEpoch=%d, endOffset=%d)",
            self._table.who,
            topic_partition,
            truncation,
            topic_partition.partition,
            leader_epoch,
            end_offset,
        )
        self._apply(state, truncation)

    async def begin_in_range(self, state: FetchState) -> None:
        """Find an offset that the leader has: after an unclean election, or when it deleted what this replica lacks."""
        offset_before = state.fetch_offset
        try:
            offset = await self._offset_in_range(state)
        except KlammError as error:
            if self._table.is_current(state):
                self._no_offset(state, error)
            return
        if offset is None:
            return
        state.fetch_offset = offset
        state.last_fetched_epoch = self._table.last_epoch(state.topic_partition)
        self._go_on(state, hosted_log(self._host.hosted_partition(state.topic_partition)))
        logger.info(
            "%s Current offset %d for partition %s is out of range, which typically implies a leader change. Reset "
            "fetch offset to %d",
            self._table.who,
            offset_before,
            state.topic_partition,
            offset,
        )

    def _no_offset(self, state: FetchState, error: KlammError) -> None:
        code = error.code if isinstance(error, KafkaError) else None
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            self._table.fenced(state)
        elif code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._table.give_up(state, "Failed to cut the log", error)
        else:
            logger.info(
                "%s Could not fetch offset for %s due to error: %s", self._table.who, state.topic_partition, error
            )
            self._table.delay([state])

    async def _offset_in_range(self, state: FetchState) -> int | None:
        """Return the offset to go on from; None if the partition is no longer fetched here."""
        topic_partition = state.topic_partition
        leader_end = await self._leader.latest_offset(topic_partition, state.leader_epoch)
        partition = self._host.hosted_partition(topic_partition)
        if not self._table.is_current(state) or partition is None:
            return None
        log = hosted_log(partition)
        if leader_end < log.log_end_offset:
            logger.warning(
                "%s Reset fetch offset for partition %s from %d to current leader's latest offset %d",
                self._table.who,
                topic_partition,
                log.log_end_offset,
                leader_end,
            )
            truncate(partition, Truncation(leader_end, True), self._table.who)
            self._note_cut(log)
            state.lag = 0
            return leader_end
        leader_start = await self._leader.earliest_offset(topic_partition, state.leader_epoch)
        if not self._table.is_current(state):
            return None
        log = hosted_log(partition)
        if leader_start > log.log_end_offset:
            logger.warning(
                "%s Truncate fully and reset fetch offset for partition %s from %d to the current leader's start "
                "offset %d because the local replica's end offset is smaller than the current leader's start offsets.",
                self._table.who,
                topic_partition,
                log.log_end_offset,
                leader_start,
            )
            log.truncate_fully_and_start_at(leader_start)
            self._note_cut(log)
        state.lag = max(0, leader_end - log.log_end_offset)
        return log.log_end_offset

    def _use_answer(self, state: FetchState, answer: EpochAnswer | None) -> None:
        if answer is not None and answer.error is ErrorCode.NONE:
            self.cut(state, answer.leader_epoch, answer.end_offset)
        elif answer is not None and answer.error is ErrorCode.FENCED_LEADER_EPOCH:
            self._table.fenced(state)
        else:
            logger.info(
                "%s Retrying leaderEpoch request for partition %s as the leader reported an error: %s",
                self._table.who,
                state.topic_partition,
                "no answer" if answer is None else answer.error.name,
            )
            self._table.delay([state])

    def _cut_to_high_watermark(self, state: FetchState) -> None:
        truncation = Truncation(state.fetch_offset, True)
        logger.info(
            "%s Truncating partition %s with %s due to local high watermark %d",
            self._table.who,
            state.topic_partition,
            truncation,
            state.fetch_offset,
        )
        self._apply(state, truncation)

    def _before_gap(self, log: Log, gap: Gap, truncation: Truncation) -> Truncation:
        """Cut at the gap too: a fetch continues where the log ends, and the leader never sends what is missing."""
        log.gap = None
        if gap.offset >= truncation.offset:
            return truncation
        logger.warning(
            "%s A crash has taken records of %s from offset %d on, and not those after them: all of them are fetched "
            "again",
            self._table.who,
            log.topic_partition,
            gap.offset,
        )
        return Truncation(gap.offset, truncation.is_complete)

    def _apply(self, state: FetchState, truncation: Truncation) -> None:
        topic_partition = state.topic_partition
        try:
            partition = self._host.hosted_partition(topic_partition)
            log = hosted_log(partition)
            assert partition is not None
            if log.gap is not None:
                truncation = self._before_gap(log, log.gap, truncation)
            truncate(partition, truncation, self._table.who)
            self._note_cut(log)
            state.fetch_offset = log.log_end_offset
        except Exception as error:
            self._table.give_up(state, f"Failed to truncate at offset {truncation.offset}", error)
            return
        state.last_fetched_epoch = self._table.last_epoch(topic_partition)
        if truncation.is_complete or self._leader.truncates_on_fetch:
            self._go_on(state, log)
