"""Reads the partitions of one Fetch request, and decides whether the result is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from engine.broker.fetch.session_cache import FetchContext, FetchPartition, FetchSession
from engine.broker.log.log import Log
from engine.broker.replication.isr import FollowerState
from engine.broker.replication.partition import Partition
from engine.broker.replication.partition_read import PartitionRead
from engine.common.errors import NO_ERROR, ErrorCode, KafkaError
from engine.common.model import READ_COMMITTED, IsolationLevel

if TYPE_CHECKING:
    from engine.broker.fetch.session_cache import FetchSessionCache
    from engine.broker.replication.metadata_cache import MetadataCache
    from engine.broker.replication.replica_manager import ReplicaManager
    from engine.common.clock import Clock
    from engine.runtime.offload import Offloader


End = tuple[Partition | None, int, int]
"""A partition with its readable end and leader epoch at the time of a read."""


class SteadyRead:
    """The result of a read to the end, and the signs that another read would find the same."""

    __slots__ = (
        "_counted",
        "_session",
        "_wanted",
        "end",
        "follower",
        "isr_state",
        "leader_epoch",
        "log",
        "partition",
        "read",
    )

    def __init__(self, partition: Partition, log: Log, follower: FollowerState, read: PartitionRead) -> None:
        self.partition = partition
        self.log = log
        self.follower = follower
        self.leader_epoch = partition.leader_epoch
        self.isr_state = partition.isr_state
        self.read = read
        self.end: End = (partition, log.log_end_offset, partition.leader_epoch)
        self._session: FetchSession | None = None
        """While it is settled."""
        self._wanted: FetchPartition | None = None
        self._counted = 0
        """How many requests of the session are counted, or came before it settled."""

    def renewed(self, fetch_offset: int, now_ms: int | None) -> PartitionRead | None:
        """Return the read with current watermarks if it still holds; None if the partition must be read.

        It also notes and counts the fetch, unless that has happened already (``now_ms`` is None).
        """
        log, read = self.log, self.read
        if not self._stands(fetch_offset):
            return None
        if read.high_watermark != log.high_watermark:
            read.high_watermark, read.last_stable_offset = log.high_watermark, log.last_stable_offset
        read.log_start_offset = log.log_start_offset
        if now_ms is not None:
            self.follower.note_fetch_from_end(now_ms)
            self.partition.counts.reads.append(None)
        return read

    def settle(self, session: FetchSession, wanted: FetchPartition) -> None:
        """Skip the partition until it changes, if the follower knows everything about it."""
        log = self.log
        if (
            wanted.sent_high_watermark != log.high_watermark
            or wanted.sent_log_start_offset != log.log_start_offset
            or not self._stands(wanted.fetch_offset)
        ):
            return
        self._session, self._wanted = session, wanted
        session.settle(wanted)
        self._counted = session.last_fetch.fetches
        self.partition.settle(self)
        self.follower.join_session(session.last_fetch)

    def wake(self) -> None:
        """Look at the partition in the session's next request, or now if one is waiting."""
        session, wanted = self._session, self._wanted
        assert session is not None and wanted is not None
        self.count()
        self._session = None
        self.follower.leave_session(session.last_fetch)
        session.wake(wanted)
        self.partition.environment.wakeups.mark(session)

    def count(self) -> None:
        """Count the requests that have left the partition out."""
        assert self._session is not None
        fetches = self._session.last_fetch.fetches
        self.partition.counts.skipped.append(fetches - self._counted)
        self._counted = fetches

    def release(self) -> None:
        """Forget the session: it is over, or asks for something else."""
        if self._session is not None:
            self.count()
            self.partition.unsettle(self)
            self.follower.leave_session(self._session.last_fetch)

    def _stands(self, fetch_offset: int) -> bool:
        partition = self.partition
        return (
            partition.leader_log is self.log
            and self.log.log_end_offset == fetch_offset
            and partition.leader_epoch == self.leader_epoch
            and partition.isr_state is self.isr_state
        )


def steady_read(partition: Partition, replica_id: int, fetch_offset: int, read: PartitionRead) -> SteadyRead | None:
    """Return the state that makes the next read needless: the follower is in sync and at the leader's end."""
    log = partition.leader_log
    if log is None or read.records is not None or log.log_end_offset != fetch_offset:
        return None
    follower = partition.followers.get(replica_id)
    if follower is None or replica_id not in partition.isr_state.committed:
        return None
    return SteadyRead(partition, log, follower, read)


FETCH_FROM_FOLLOWER_VERSION = 11
"""From this version on a consumer may read from a follower (KIP-392)."""

BATCHES_VERSION = 4
"""From this version on a reader understands format 2; before, the broker converts records for it."""

WHOLE_BATCHES_VERSION = 3
"""From this version on the first batch of an answer is whole.

Before, a reader got part of a batch that exceeded its limit, and asked again with more room (KIP-74).
"""

ZSTD_VERSION = 10
"""From this version on a reader understands zstd (KIP-110)."""


_NOT_READ = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""Errors of partitions that do not exist, at least for this reader. They hasten no answer: the reader would ask again
at once, as often as it can, for as long as it names the partition."""

ANSWER_BYTES = 16
PARTITION_BYTES = 60
"""An answer without records, and a partition of it, with its part of the topic's name or id."""


class FetchBroker(Protocol):
    """The parts of a broker that a Fetch uses."""

    @property
    def clock(self) -> Clock: ...
    @property
    def replica_manager(self) -> ReplicaManager: ...
    @property
    def metadata_cache(self) -> MetadataCache: ...
    @property
    def fetch_sessions(self) -> FetchSessionCache: ...
    @property
    def offloader(self) -> Offloader: ...


@dataclass(slots=True)
class FetchParameters:
    """Parameters for all partitions of one request. Sizes are in bytes. Not frozen: that takes four times as long to
    make.
    """

    api_version: int
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: IsolationLevel
    rack_id: str
    listener_name: str
    may_exceed: bool = True
    """Whether to return the first batch whole, however large: not if the request already has data from other
    partitions.
    """

    is_follower: bool = field(init=False)
    leader_only: bool = field(init=False)
    """Whether to read from the leader only, as followers do, and consumers too old for a redirect."""

    def __post_init__(self) -> None:
        is_old = self.api_version < FETCH_FROM_FOLLOWER_VERSION
        self.is_follower = self.replica_id >= 0
        self.leader_only = self.is_follower or is_old


_Before = tuple[list[PartitionRead], list[End]]


class FetchReads:
    """The partitions of a request, with the last read of each."""

    __slots__ = (
        "_broker",
        "_has_failed",
        "_session",
        "_size_bytes",
        "_unfit_bytes",
        "ends",
        "parameters",
        "partitions",
        "reads",
        "unread",
    )

    def __init__(self, broker: FetchBroker, parameters: FetchParameters, opened: FetchContext) -> None:
        self._broker = broker
        self._session = opened.session
        self.parameters = parameters
        self.partitions = opened.partitions
        self.reads: list[PartitionRead] = []
        self.ends: list[End] = []
        self._size_bytes = 0
        self._unfit_bytes = 0
        """The limits of partitions whose next batch does not fit: not read, but counted towards ``min_bytes``."""
        self._has_failed = False
        self.unread = 0
        """Partitions that do not exist, at least for this reader."""

    def read_all(self) -> None:
        """Read every partition in order, within the limits of the answer; the first that has data may exceed them."""
        if self._session is not None:
            self._session.last_fetch.at_ms = self._broker.clock.monotonic_ms()
        self._read_in_order(None, records_follower_state=True)

    def read_again(self) -> None:
        """Read again, but skip partitions that had no data and cannot have any yet; only renew their watermarks."""
        self.join_awoken()
        self._read_in_order((self.reads, self.ends), records_follower_state=False)

    def join_awoken(self) -> Sequence[FetchPartition]:
        """Add and return partitions that were settled when the request came and have changed since."""
        session = self._session
        if session is None or not session.awoken:
            return ()
        awoken, session.awoken = session.awoken, []
        known = list(zip(self.partitions, self.reads, self.ends, strict=True))
        known += [(wanted, wanted.steady.read, wanted.steady.end) for wanted in awoken if wanted.steady is not None]
        known.sort(key=lambda place: place[0].turn)
        self.partitions, self.reads, self.ends = (list(column) for column in zip(*known, strict=True))
        return awoken

    def settle(self) -> None:
        """Once the answer is built, skip the partitions without further news until they change."""
        if self._session is not None and self.parameters.is_follower:
            for wanted in self.partitions:
                if isinstance(wanted.steady, SteadyRead):
                    wanted.steady.settle(self._session, wanted)

    def _read_in_order(self, before: _Before | None, *, records_follower_state: bool) -> None:
        parameters = self.parameters
        remaining = parameters.max_bytes
        min_one_batch = parameters.may_exceed and parameters.api_version >= WHOLE_BATCHES_VERSION
        self.reads = []
        self.ends = []
        self._size_bytes = self._unfit_bytes = 0
        self._has_failed = False
        self.unread = 0
        quota = self._broker.replica_manager.leader_quota
        may_be_steady = parameters.is_follower and not quota.has_throttled
        now_ms = self._broker.clock.monotonic_ms() if may_be_steady and records_follower_state else None
        for index, wanted in enumerate(self.partitions):
            steady = wanted.steady
            if steady is not None and may_be_steady and (renewed := steady.renewed(wanted.fetch_offset, now_ms)):
                self.reads.append(renewed)
                self.ends.append(steady.end)
                continue
            known = None if before is None else self._unchanged(before, index)
            partition, read = known or self._read(wanted, remaining, min_one_batch, records_follower_state)
            self.reads.append(read)
            size_bytes = read.size_bytes
            if size_bytes:
                min_one_batch = False
                self._size_bytes += size_bytes
            elif read.is_cut_off:
                self._unfit_bytes += wanted.max_bytes
            remaining = max(0, remaining - size_bytes)
            if read.error is not NO_ERROR:
                if read.error in _NOT_READ:
                    self.unread += 1
                else:
                    self._has_failed = True
            elif read.diverging_epoch is not None or read.preferred_read_replica >= 0:
                self._has_failed = True
            elif partition is not None and may_be_steady:
                wanted.steady = steady_read(partition, parameters.replica_id, wanted.fetch_offset, read)
            epoch = -1 if partition is None else partition.leader_epoch
            self.ends.append((partition, self._readable_end(partition), epoch))

    def _unchanged(self, before: _Before, index: int) -> tuple[Partition, PartitionRead] | None:
        """Return a partition's last read, renewed, if it was empty and nothing can have arrived; else None."""
        reads, ends = before
        read, (partition, end_offset, leader_epoch) = reads[index], ends[index]
        if partition is None or read.size_bytes or read.is_cut_off or read.error is not NO_ERROR:
            return None
        if self._readable_end(partition) != end_offset or partition.leader_epoch != leader_epoch:
            return None
        log = partition.log
        if log is None or (self.parameters.is_follower and self._is_throttled(partition)):
            return None
        read.high_watermark = log.high_watermark
        read.last_stable_offset = log.last_stable_offset
        read.log_start_offset = log.log_start_offset
        return partition, read

    def _is_throttled(self, partition: Partition) -> bool:
        quota = self._broker.replica_manager.leader_quota
        return quota.has_throttled and quota.is_throttled(partition.topic_partition)

    @property
    def answer_bytes(self) -> int:
        """The size of the answer as quotas count it: what was read, and roughly what says so."""
        return ANSWER_BYTES + PARTITION_BYTES * sum(read.size_bytes > 0 for read in self.reads) + self._size_bytes

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def found_bytes(self) -> int:
        """The bytes to compare with ``min_bytes``: those read, and the limits of partitions whose next batch is larger.

        As in Kafka's DelayedFetch, case G.
        """
        return self._size_bytes + self._unfit_bytes

    @property
    def tells_at_once(self) -> bool:
        """Whether there is news that must not wait for more bytes."""
        return self._has_failed or (self.found_bytes > 0 and self._is_in_older_segment())

    def is_satisfied(self) -> bool:
        """Whether the answer must not wait: there are enough bytes, or other news."""
        parameters = self.parameters
        return (
            self.found_bytes >= parameters.min_bytes
            or parameters.max_wait_ms <= 0
            or self.tells_at_once
            or self.unread == len(self.partitions if self._session is None else self._session.partitions)
        )

    def _is_in_older_segment(self) -> bool:
        """Whether a read ends with its segment although later ones have more: no wait would add to it."""
        for wanted, read, (partition, end_offset, _) in zip(self.partitions, self.reads, self.ends, strict=True):
            log = None if partition is None else partition.log
            if log is None or not (read.size_bytes or read.is_cut_off):
                continue
            if log.segment_of(end_offset - 1).base_offset > wanted.fetch_offset:
                return True
        return False

    def may_have_grown(self) -> bool:
        """Return whether a new read could differ from the last one; takes a few comparisons per partition."""
        if self.parameters.is_follower:
            return self._may_have_grown_for_follower()
        for partition, end_offset, leader_epoch in self.ends:
            if partition is None:
                continue
            if self._readable_end(partition) != end_offset or partition.leader_epoch != leader_epoch:
                return True
        return False

    def _may_have_grown_for_follower(self) -> bool:
        for partition, end_offset, leader_epoch in self.ends:
            if partition is None:
                continue
            log = partition.leader_log
            if (-1 if log is None else log.log_end_offset) != end_offset or partition.leader_epoch != leader_epoch:
                return True
        return False

    def _readable_end(self, partition: Partition | None) -> int:
        """Return the offset up to which this reader may read now; -1 if it may not read at all."""
        if partition is None:
            return -1
        log = partition.leader_log if self.parameters.leader_only else partition.log
        if log is None:
            return -1
        if self.parameters.is_follower:
            return log.log_end_offset
        if self.parameters.isolation is READ_COMMITTED:
            return log.last_stable_offset
        return log.high_watermark

    def _read(
        self, wanted: FetchPartition, remaining: int, min_one_batch: bool, records_follower_state: bool
    ) -> tuple[Partition | None, PartitionRead]:
        if wanted.topic is None:
            is_by_id = self.parameters.api_version >= 13
            return None, PartitionRead(ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        parameters = self.parameters
        try:
            self._broker.metadata_cache.check_has(wanted.topic, wanted.key.partition)
            partition = self._broker.replica_manager.partition(wanted.topic, wanted.key.partition)
        except KafkaError as error:
            return None, PartitionRead(error.code)
        if parameters.api_version >= 13 and partition.topic_id != wanted.key.topic_id:
            return partition, PartitionRead(ErrorCode.INCONSISTENT_TOPIC_ID)
        if records_follower_state:
            # A Fetch that waits reads again, and counts once.
            partition.counts.reads.append(None)
        log = partition.log
        manager = self._broker.replica_manager
        if log is not None and parameters.api_version < ZSTD_VERSION:
            if log.config.compression_type == "zstd":
                return partition, PartitionRead(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if parameters.api_version < BATCHES_VERSION and not log.config.message_downconversion_enable:
                return partition, PartitionRead(ErrorCode.UNSUPPORTED_VERSION)
        if not parameters.is_follower and parameters.api_version >= FETCH_FROM_FOLLOWER_VERSION:
            elsewhere = self._sent_elsewhere(partition, wanted)
            if elsewhere is not None:
                return partition, elsewhere
        if parameters.is_follower and manager.should_leader_throttle(partition, parameters.replica_id):
            # The follower gets watermarks and its fetch counts, but it gets no bytes now.
            remaining, min_one_batch = 0, False
        return partition, partition.read_records(
            wanted.fetch_offset,
            min(wanted.max_bytes, remaining),
            replica_id=parameters.replica_id,
            isolation=parameters.isolation,
            current_leader_epoch=wanted.current_leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
            min_one_batch=min_one_batch,
            may_cut_batch=parameters.api_version < WHOLE_BATCHES_VERSION,
            leader_only=parameters.leader_only,
            follower_log_start_offset=wanted.log_start_offset,
            follower_broker_epoch=parameters.replica_epoch,
            records_follower_state=records_follower_state,
        )

    def _sent_elsewhere(self, partition: Partition, wanted: FetchPartition) -> PartitionRead | None:
        """Return what names a nearer replica instead of records, if a selector wants that (KIP-392); else None.

        As in Kafka the log is not read. So a consumer may still get records that only the leader has deleted.
        """
        parameters = self.parameters
        preferred = self._broker.replica_manager.preferred_read_replica(
            partition,
            rack=parameters.rack_id,
            replica_id=parameters.replica_id,
            fetch_offset=wanted.fetch_offset,
            listener_name=parameters.listener_name,
        )
        log = partition.log
        if preferred < 0 or log is None:
            return None
        error = partition.log_error(wanted.current_leader_epoch, leader_only=False)
        if error is not NO_ERROR:
            return PartitionRead(error)
        return PartitionRead(
            NO_ERROR,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            log.log_end_offset,
            preferred_read_replica=preferred,
        )


class GuardedReads(FetchReads):
    """Reads of somebody who may not read every topic, asked at each read: that may change while the request waits."""

    __slots__ = ("_may_read",)

    def __init__(
        self, may_read: Callable[[str], bool], broker: FetchBroker, parameters: FetchParameters, opened: FetchContext
    ) -> None:
        super().__init__(broker, parameters, opened)
        self._may_read = may_read

    def _read(
        self, wanted: FetchPartition, remaining: int, min_one_batch: bool, records_follower_state: bool
    ) -> tuple[Partition | None, PartitionRead]:
        if wanted.topic is not None and not self._may_read(wanted.topic):
            return None, PartitionRead(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return super()._read(wanted, remaining, min_one_batch, records_follower_state)


MakeReads = Callable[[FetchBroker, FetchParameters, FetchContext], FetchReads]
