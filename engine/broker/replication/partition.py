"""One replica hosted by this broker: its role, and the records that pass through it.

A partition belongs to the broker's event loop; nothing here waits. Other modules create logs, fetch from leaders and
answer requests; changes of role are in ``roles``, changes of the ISR in ``isr_proposals``. Source of the rules:
Kafka 3.9.
"""

from __future__ import annotations

from typing import Protocol

from engine.broker.log.append_origin import AppendOrigin, OwnBatch
from engine.broker.log.log import Log
from engine.broker.log.log_append import AppendResult
from engine.broker.log.log_read import LogRead
from engine.broker.log.preparation import Preparation
from engine.broker.replication import isr_proposals
from engine.broker.replication.isr import FollowerState, IsrState, high_watermark_candidate
from engine.broker.replication.partition_environment import PartitionEnvironment
from engine.broker.replication.partition_read import PartitionRead
from engine.broker.replication.state_change_log import ids_text
from engine.common.errors import NO_ERROR, ErrorCode, KafkaError
from engine.common.model import (
    ACKS_ALL,
    CONSUMER_REPLICA_ID,
    NO_PARTITION_LEADER_EPOCH,
    READ_COMMITTED,
    IsolationLevel,
    ReplicaAssignment,
    TopicPartition,
)
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.formats.index_entries import AbortedTransaction
from engine.kafka.protocol.records.append_rules import RefusedAppend

_KNOWN_REFUSALS = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_OUT_OF_RANGE,
)
"""What a client or a failed disk causes; Kafka counts a failed request for anything else."""


class SettledReader(Protocol):
    """A fetch session that has sent all news about a partition."""

    def wake(self) -> None:
        """Look at the partition again: there is news. Called once."""

    def count(self) -> None:
        """Count its requests since the last time, or since it settled, in ``counts.skipped``."""


class Partition:
    """A hosted replica. ``leader_log`` is set exactly while this broker leads; ``log`` as soon as the log exists."""

    __slots__ = (
        "_appends",
        "_settled",
        "assignment",
        "controller_epoch",
        "counts",
        "environment",
        "followers",
        "future_log",
        "isr_state",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "leader_log",
        "log",
        "partition_epoch",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, environment: PartitionEnvironment) -> None:
        self.topic_partition = topic_partition
        self.environment = environment
        self.counts = environment.topics.of(topic_partition.topic)
        """The topic's, which its other partitions here share."""
        self._appends = self.counts.appends
        self.log: Log | None = None
        self.leader_log: Log | None = None
        self.future_log: Log | None = None
        """The copy in another log dir that will replace ``log``."""
        self.leader_id: int | None = None
        self.leader_epoch = -1
        self.leader_epoch_start_offset: int | None = None
        self.partition_epoch = 0
        self.controller_epoch = 0
        self.assignment = ReplicaAssignment(())
        self.followers: dict[int, FollowerState] = {}
        self.isr_state = IsrState()
        self._settled: dict[SettledReader, None] = {}

    # -- queries

    @property
    def is_leader(self) -> bool:
        return self.leader_log is not None

    @property
    def topic_id(self) -> bytes:
        """The topic's id in the log; the zero id if there is none."""
        return ZERO_TOPIC_ID if self.log is None or self.log.topic_id is None else self.log.topic_id

    @property
    def isr(self) -> tuple[int, ...]:
        """The committed ISR while this broker leads; empty on a follower."""
        return self.isr_state.committed

    @property
    def is_under_min_isr(self) -> bool:
        log = self.leader_log
        return log is not None and len(self.isr_state.committed) < self._min_isr(log)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset among the leader, its live followers and its copy in another log dir.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        lowest = self.led_log().log_start_offset
        for follower in self.followers.values():
            if follower.log_start_offset < lowest and self.environment.is_alive(follower.broker_id):
                lowest = follower.log_start_offset
        return lowest if self.future_log is None else min(lowest, self.future_log.log_start_offset)

    def led_log(self) -> Log:
        """Return the log if this broker leads the partition.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        if self.leader_log is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Leader not local for partition {self.topic_partition} on broker {self.environment.broker_id}",
            )
        return self.leader_log

    def log_error(self, current_leader_epoch: int, *, leader_only: bool) -> ErrorCode:
        """Return why a reader with this leader epoch may not use the log; NONE if it may.

        The epoch -1 is not checked.
        """
        if current_leader_epoch != NO_PARTITION_LEADER_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.leader_log is None and (leader_only or self.log is None):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return NO_ERROR

    def checked_log(self, current_leader_epoch: int, *, leader_only: bool) -> Log:
        """Return the log if ``log_error`` finds nothing wrong.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        error = self.log_error(current_leader_epoch, leader_only=leader_only)
        if error is not NO_ERROR or self.log is None:
            raise KafkaError(
                error,
                f"Failed to find {'leader' if leader_only else ''} log for partition {self.topic_partition} with "
                f"leader epoch {current_leader_epoch}. The current leader is {self.leader_id} and the current epoch "
                f"{self.leader_epoch}",
            )
        return self.log

    def replace_log(self, log: Log) -> None:
        """Continue with ``log``, which has all records of the current one: the replica has moved to another log dir."""
        self.log = log
        self.future_log = None
        if self.leader_log is not None:
            self.leader_log = log
        self.changed()

    # -- news

    def settle(self, reader: SettledReader) -> None:
        """Let a reader that has all news skip the partition until ``changed``. Only while this broker leads."""
        self._settled[reader] = None
        self.led_log().on_start_moved = self.changed

    def unsettle(self, reader: SettledReader) -> None:
        """Stop telling the reader; harmless if it was told already."""
        self._settled.pop(reader, None)

    def count_skipped(self) -> None:
        """Count the requests that have left this partition out until now."""
        for reader in self._settled:
            reader.count()

    def changed(self) -> None:
        """Wake whatever waits, in the loop's next turn: an offset, the ISR, an epoch, the role or the log has changed.

        Code that changes one of these calls this in the same turn of the loop.
        """
        if self._settled:
            settled, self._settled = self._settled, {}
            for reader in settled:
                reader.wake()
        self.environment.wakeups.mark(self.topic_partition)

    # -- records

    def append_records_to_leader(
        self,
        records: memoryview,
        required_acks: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        may_prepare: bool = False,
        prepared: Preparation | None = None,
    ) -> AppendResult:
        """Append a producer's batches. Whatever waits for the partition wakes in the event loop's next turn.

        For ``may_prepare`` and ``prepared`` see ``Log.append_as_leader``.

        Raises:
            PreparationNeeded: only with ``may_prepare``.
            KafkaError: NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS (acks=all below min.insync.replicas, nothing is
                written); what the log finds wrong with the batches; KAFKA_STORAGE_ERROR.
        """
        try:
            log = self.leader_log
            if log is None:
                log = self.led_log()
            followers = self.followers
            if followers and required_acks == ACKS_ALL:
                self._check_min_isr(log)
            result = log.append_as_leader(
                records, self.leader_epoch, origin=origin, may_prepare=may_prepare, prepared=prepared
            )
            if followers:
                self.advance_high_watermark()
            else:
                log.update_high_watermark(log.log_end_offset)
        except KafkaError as refused:
            self.count_refusal(refused, len(records))
            raise
        appends = self._appends
        # Python calls a list's own ``append`` in half the time that it needs for one kept in a variable.
        appends.append(result.size_bytes)
        appends.append(result.record_count)
        if self._settled:
            self.changed()
        else:
            self.environment.wakeups.mark(self.topic_partition)
        return result

    def append_own(self, records: memoryview, own: OwnBatch) -> int:
        """Append what this broker's coordinator has just made, for all in-sync replicas; return its offset.

        Raises what ``append_records_to_leader`` raises.
        """
        size_bytes = len(records)
        try:
            log = self.leader_log
            if log is None:
                log = self.led_log()
            if self.followers:
                self._check_min_isr(log)
                offset = log.append_own(records, own, self.leader_epoch)
                self.advance_high_watermark()
            else:
                offset = log.append_own(records, own, self.leader_epoch)
                log.update_high_watermark(log.log_end_offset)
        except KafkaError as refused:
            self.count_refusal(refused, size_bytes)
            raise
        appends = self._appends
        appends.append(size_bytes)
        appends.append(own.record_count)
        if self._settled:
            self.changed()
        else:
            self.environment.wakeups.mark(self.topic_partition)
        return offset

    def _check_min_isr(self, log: Log) -> None:
        if len(self.isr_state.committed) < self._min_isr(log):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {ids_text(self.isr_state.committed)} is insufficient to satisfy "
                f"the min.isr requirement of {self._min_isr(log)} for partition {self.topic_partition}",
            )

    def count_refusal(self, refused: KafkaError, size_bytes: int) -> None:
        """Count what Kafka counts of refused records: errors that a producer expects are no failures."""
        counts, topics, error = self.counts, self.environment.topics, refused.code
        counts.produces += 1
        topics.not_produced += 1
        if isinstance(refused, RefusedAppend):
            topics.count_refused(refused.counted)
        if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            counts.bytes_rejected += size_bytes
        elif error not in _KNOWN_REFUSALS:
            counts.failed_produces += 1

    def read_records(
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        replica_id: int = CONSUMER_REPLICA_ID,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        current_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        last_fetched_epoch: int = NO_PARTITION_LEADER_EPOCH,
        min_one_batch: bool = True,
        may_cut_batch: bool = False,
        leader_only: bool = True,
        follower_log_start_offset: int = -1,
        follower_broker_epoch: int = -1,
        records_follower_state: bool = True,
    ) -> PartitionRead:
        """Read for a Fetch request; a wrong request raises nothing, ``error`` says what is wrong.

        Consumers read below the high watermark (read_committed: below the last stable offset), followers
        (``replica_id`` >= 0) to the log's end. A follower's fetch offset is also its acknowledgement; a second read for
        the same request (after it waited) passes ``records_follower_state=False``. If the first batch is larger than
        ``max_bytes``, a part of it is read only with ``may_cut_batch``.
        """
        error = self.log_error(current_leader_epoch, leader_only=leader_only)
        log = self.log
        if error is not NO_ERROR or log is None:
            return PartitionRead(error)
        follower = None
        if replica_id >= 0:
            follower = self.followers.get(replica_id)
            if follower is None:
                # A reassignment may not have reached this broker yet: a follower that sent an epoch asks again.
                has_epoch = current_leader_epoch != NO_PARTITION_LEADER_EPOCH
                return PartitionRead(ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # The end before the read: records appended later must not make a follower look behind.
        read = PartitionRead(
            NO_ERROR, log.high_watermark, log.last_stable_offset, log.log_start_offset, log.log_end_offset
        )
        try:
            if last_fetched_epoch != NO_PARTITION_LEADER_EPOCH:
                read.diverging_epoch = _diverging_epoch(log, last_fetched_epoch, fetch_offset)
                if read.diverging_epoch is not None:
                    return read
            if replica_id >= 0:
                limit_offset = read.log_end_offset
            elif isolation is READ_COMMITTED:
                limit_offset = read.last_stable_offset
            else:
                limit_offset = read.high_watermark
            log_read = log.read(fetch_offset, max_bytes, limit_offset=limit_offset, min_one_batch=min_one_batch)
            if log_read.is_first_batch_incomplete and not may_cut_batch:
                read.is_cut_off = True
            else:
                read.records = log_read.records
                if isolation is READ_COMMITTED and replica_id < 0:
                    read.aborted = _aborted(log, fetch_offset, log_read)
        except KafkaError as refused:
            self.counts.failed_fetches += refused.code not in _KNOWN_REFUSALS
            return PartitionRead(refused.code)
        if follower is not None and records_follower_state:
            self._record_follower_fetch(
                follower, fetch_offset, follower_log_start_offset, read.log_end_offset, follower_broker_epoch
            )
        return read

    def check_enough_replicas_reach_offset(self, required_offset: int) -> tuple[bool, ErrorCode]:
        """Return whether a write with acks=all that ends at ``required_offset`` is done, and how.

        (False, NONE) means: wait. The ISR may have shrunk below min.insync.replicas since the append; then the records
        are written anyway, and NOT_ENOUGH_REPLICAS_AFTER_APPEND says so.
        """
        log = self.leader_log
        if log is None:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if log.high_watermark < required_offset:
            return False, NO_ERROR
        if not self.followers or self._min_isr(log) <= len(self.isr_state.maximal):
            return True, NO_ERROR
        return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def advance_high_watermark(self) -> bool:
        """Raise the high watermark as far as the followers allow; return whether it moved. It never falls."""
        log = self.leader_log
        if log is None or len(self.isr_state.committed) < self._min_isr(log):
            return False
        environment = self.environment
        candidate = high_watermark_candidate(
            log.log_end_offset,
            self.followers.values(),
            self.isr_state.maximal,
            now_ms=environment.clock.monotonic_ms(),
            lag_ms_max=environment.replica_lag_time_max_ms,
            is_eligible=environment.is_alive,
        )
        if candidate <= log.high_watermark:
            return False
        log.update_high_watermark(candidate)
        return True

    def _record_follower_fetch(
        self,
        follower: FollowerState,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        broker_epoch: int,
    ) -> None:
        has_moved = follower.log_end_offset != fetch_offset or follower.log_start_offset != log_start_offset
        follower.record_fetch(
            fetch_offset, log_start_offset, self.environment.clock.monotonic_ms(), leader_end_offset, broker_epoch
        )
        if follower.broker_id not in self.isr_state.committed:
            isr_proposals.maybe_expand(self, follower)
        if has_moved:
            self.advance_high_watermark()
            self.changed()

    def _min_isr(self, log: Log) -> int:
        """min.insync.replicas, but at most the number of replicas."""
        return min(log.config.min_insync_replicas, len(self.followers) + 1)

    def __repr__(self) -> str:
        return (
            f"Partition({self.topic_partition}, leader_id={self.leader_id}, leader_epoch={self.leader_epoch}, "
            f"partition_epoch={self.partition_epoch}, isr={self.isr}, replicas={self.assignment.replicas})"
        )


def _aborted(log: Log, fetch_offset: int, read: LogRead) -> list[AbortedTransaction]:
    """Return the aborted transactions within what was read; none if nothing was read."""
    if read.records is None:
        return []
    return log.collect_aborted_transactions(fetch_offset, log.upper_bound_offset(read))


def _diverging_epoch(log: Log, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
    """Return (epoch, end offset) where this log and the follower's diverge; None if the follower's is a prefix.

    Raises:
        KafkaError: OFFSET_OUT_OF_RANGE if that is unknown, or the log begins after the offset.
    """
    if (
        last_fetched_epoch == log.leader_epochs.latest_epoch
        and log.log_start_offset <= fetch_offset <= log.log_end_offset
    ):
        return None
    epoch, end_offset = log.leader_epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
    if epoch == NO_PARTITION_LEADER_EPOCH or end_offset == -1 or fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return epoch, end_offset
    return None
