"""A partition's log: its start and end, appends, reads, cuts and flushes.

It consists of parts that each keep their own state: the folder, the files of the segments, the active segment, the
flush state, the append checks, leader epochs and producers. ``log_times`` and ``retention`` are functions on it.

The short path of an append takes one version 2 batch of a client as it is: it checks header and checksum, stamps offset
and leader epoch into the received buffer, and writes that with one call. It looks at no record. A batch that this
broker's coordinator has made needs no check either. The short path of a read uses positions that the active segment
remembers: consumers and followers that keep up need no search.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from engine.broker.log import retention
from engine.broker.log.active_segment import ActiveSegment
from engine.broker.log.append_origin import AppendOrigin, OwnBatch
from engine.broker.log.cleaning_state import CleaningState
from engine.broker.log.disk_jobs import FlushJob
from engine.broker.log.environment import LogEnvironment
from engine.broker.log.file_range import FileRange
from engine.broker.log.flush_state import FlushState
from engine.broker.log.leader_epoch_cache import LeaderEpochCache
from engine.broker.log.log_append import NO_OFFSET, AppendChecks, AppendResult, CheckedProducers
from engine.broker.log.log_files import LogFiles
from engine.broker.log.log_read import LogPosition, LogRead, SegmentSearch
from engine.broker.log.partition_folder import PartitionFolder
from engine.broker.log.placed_batches import (
    NO_APPEND_TIME,
    STAMP,
    PlacedBatches,
    PositionedHeader,
    replicated,
    segment_runs,
    stamp_append_time,
)
from engine.broker.log.preparation import Preparation
from engine.broker.log.producer_replay import ReplayJob, bytes_to_replay, rebuild_producer_state
from engine.broker.log.producer_sequences import SEQUENCE_MODULUS, BatchMetadata, CompletedTransaction
from engine.broker.log.producer_state import ProducerStateManager
from engine.broker.log.segment import LogSegment
from engine.broker.log.segment_list import SegmentList
from engine.broker.log.segment_swap import NewSegment
from engine.common.errors import ErrorCode, KafkaError, StorageError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.index_entries import AbortedTransaction
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.layout import (
    ATTRIBUTES,
    BATCH_HEADER,
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
)

logger = logging.getLogger(__name__)

REPLAY_BYTES_MAX = 65_536
REPLAY_PRODUCERS_MAX = 1000
"""A cut that leaves no more to replay does it at once: about a millisecond's work."""

# Bound once for the hot path.
_COORDINATOR = AppendOrigin.COORDINATOR
_unpack_header = BATCH_HEADER.unpack_from
_stamp = STAMP.pack_into


class Gap(NamedTuple):
    """Between two segments of a log, offsets from ``offset`` on are missing."""

    offset: int
    is_of_crash: bool
    """Only a crash makes gaps in a log that has never been compacted."""


class Log:
    """The records of one replica: append, read, truncate, retain.

    ``log_loader.load_log`` or the log manager creates it. Every method runs on the broker's event loop; disk jobs that
    methods return run anywhere. Its offsets: ``log_start_offset``, ``high_watermark``, ``last_stable_offset``,
    ``log_end_offset`` (the next record's), ``recovery_point`` (everything before it is on disk).

    An OSError of the disk is reported to the environment, which takes the whole log dir offline, and raised as
    KafkaError KAFKA_STORAGE_ERROR; from then on the log refuses everything that needs the disk.
    """

    __slots__ = (
        "__weakref__",
        "_active",
        "_checks",
        "_environment",
        "_files",
        "_lowest_cut",
        "_producers",
        "_replay_from",
        "_search",
        "_segments",
        "cleaning",
        "config",
        "first_unstable_offset",
        "flush_state",
        "folder",
        "gap",
        "has_stale_producers",
        "has_unsettled_cut",
        "high_watermark",
        "is_retired",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "on_start_moved",
        "topic_partition",
    )

    def __init__(
        self,
        folder: PartitionFolder,
        config: LogConfig,
        environment: LogEnvironment,
        segments: SegmentList,
        leader_epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self.topic_partition = folder.topic_partition
        self.folder = folder
        self.config = config
        self.leader_epochs = leader_epochs
        self._producers = producers
        self.log_start_offset = max(log_start_offset, segments.first.base_offset)
        self.log_end_offset = log_end_offset
        self.high_watermark = self.log_start_offset
        self.first_unstable_offset: int | None = None
        self.on_start_moved: Callable[[], None] | None = None
        """Called when the log's start has moved; the partition's leader sets it."""
        self.is_retired = False
        """Deleted, or replaced by a copy in another log dir that has all its records."""
        self.has_unsettled_cut = False
        """It was cut below its recovery point. ``LogManager.settling_jobs`` come before the next append."""
        self.has_stale_producers = False
        """It was cut, and its producer state is still to be built: by ``replay_job``, or when somebody needs it."""
        self._replay_from = 0
        """The log's start when it was cut: what is deleted meanwhile still says what its producers sent."""
        self.gap: Gap | None = None
        """What a recovery found missing. A follower cuts its log there and fetches the rest again."""
        self.cleaning = CleaningState()
        self._lowest_cut: int | None = None
        self._environment = environment
        self._segments = segments
        self._files = LogFiles(folder, segments, producers.snapshots, config, environment)
        self._active = ActiveSegment(segments.last, config)
        self._search = SegmentSearch(folder, segments, self._active)
        self._checks = AppendChecks(folder.topic_partition, config, producers, environment)
        self.flush_state = FlushState(
            folder,
            segments,
            leader_epochs,
            producers.snapshots,
            environment,
            config,
            max(recovery_point, self.log_start_offset),
        )
        self._refresh_first_unstable()

    def __repr__(self) -> str:
        return (
            f"Log(dir={self.dir}, high_watermark={self.high_watermark}, last_stable_offset={self.last_stable_offset}, "
            f"log_start_offset={self.log_start_offset}, log_end_offset={self.log_end_offset})"
        )

    # --- properties

    @property
    def dir(self) -> Path:
        """The partition's folder."""
        return self.folder.path

    @property
    def log_dir(self) -> Path:
        """The log dir that the folder is in."""
        return self.folder.log_dir

    @property
    def topic_id(self) -> bytes | None:
        return self.folder.topic_id

    @property
    def is_offline(self) -> bool:
        """Whether the log dir has failed."""
        return self.folder.is_offline

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments by base offset; the last is the active one."""
        return tuple(self._segments)

    @property
    def active_segment(self) -> LogSegment:
        """The segment that is appended to."""
        return self._active.segment

    def segments_between(self, start: int, end: int) -> list[LogSegment]:
        """Return the segment of offset ``start`` and the following ones that begin before ``end``."""
        return self._segments.between(start, end)

    def segment_of(self, offset: int) -> LogSegment:
        """Return the segment that ``offset`` belongs to; the first one if the offset is before all."""
        return self._segments.floor(offset) or self._segments.first

    @property
    def first_segment_base_offset(self) -> int:
        return self._segments.first.base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return self._segments.size_bytes

    @property
    def figures(self) -> tuple[int, int, int, int, int]:
        """For metrics, in one read: end offset, start offset, number of segments, bytes, known producers."""
        count, size_bytes = self._segments.count_and_bytes()
        return self.log_end_offset, self.log_start_offset, count, size_bytes, len(self._producers.producers)

    @property
    def producers(self) -> ProducerStateManager:
        """The producer state. After a cut it may have to be built first, which takes long; ``replay_job`` does it."""
        if self.has_stale_producers:
            self.build_producers()
        return self._producers

    def has_late_transaction(self, now_ms: int, transaction_max_timeout_ms: int) -> bool:
        """Whether its oldest open transaction has been silent for longer than any may last, and some minutes."""
        return self._producers.has_late_transaction(now_ms, transaction_max_timeout_ms)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that were silent for too long; a state that is still to be built will not have them."""
        if not self.has_stale_producers:
            self._producers.expire(now_ms)

    def update_producer_expiration(self, expiration_ms: int) -> None:
        """Apply a changed ``producer.id.expiration.ms``."""
        self._producers.expiration_ms = expiration_ms

    @property
    def is_unsettled(self) -> bool:
        """Whether a cut leaves something to do before the next append: ``ReplicaManager.settle_cuts`` does it."""
        return self.has_unsettled_cut or self.has_stale_producers

    @property
    def last_stable_offset(self) -> int:
        """Records before it belong to no open transaction, and are replicated."""
        unstable = self.first_unstable_offset
        return unstable if unstable is not None and unstable < self.high_watermark else self.high_watermark

    def update_config(self, config: LogConfig) -> None:
        self.config = self._files.config = config
        self._active.update_config(config)
        self._checks.update_config(config)
        self.flush_state.update_config(config)
        is_kept = config.record_magic >= 2
        if self.leader_epochs.is_kept is not is_kept and not self.is_offline:
            # If the disk fails, the log dir has gone offline, and the settings of other logs still follow.
            with suppress(KafkaError), self.folder.reporting("beginning or ending the file of leader epochs"):
                self.leader_epochs.keep(is_kept=is_kept)

    # --- appends

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        may_prepare: bool = False,
        prepared: Preparation | None = None,
    ) -> AppendResult:
        """Append the batches of a producer or coordinator at the log's end.

        It stamps offsets, leader epoch and, with LogAppendTime, timestamps into ``records``. The answer to a duplicate
        batch has its old offsets.

        Raises:
            PreparationNeeded: only with ``may_prepare``: a thread should do long work first, for ``prepared``.
            KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE (one batch),
                RECORD_LIST_TOO_LARGE (all together), OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
                INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED; KAFKA_STORAGE_ERROR when the disk fails.
        """
        size_bytes, terms = len(records), self._checks.terms
        if not BATCH_OVERHEAD <= size_bytes <= terms.in_place_bytes_max or records.readonly:
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        base, size, _, magic, crc, attributes, delta, base_ms, max_ms, producer_id, producer_epoch, sequence, count = (
            _unpack_header(records)
        )
        if magic != 2 or size != size_bytes - LOG_OVERHEAD or base != 0 or delta < 0 or count != delta + 1:
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        if self.folder.is_offline or self.has_stale_producers or max_ms < base_ms or max_ms < 0:
            # Clients do not usually send such timestamps: the records say what the largest one really is.
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        producer = None
        is_transactional = False
        if attributes not in (terms.coordinators_attributes if origin is _COORDINATOR else terms.in_place_attributes):
            producer = self._producers.producers.get(producer_id)
            is_transactional = True
            if producer is None:
                return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
            if origin is _COORDINATOR:
                if attributes ^ TRANSACTIONAL_BIT not in terms.coordinators_attributes or not producer.takes_offsets(
                    producer_epoch,
                    sequence,
                    self._producers.verifications.get(producer_id),
                    must_verify=self._environment.verifies_transactions,
                ):
                    return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
            elif (
                attributes ^ TRANSACTIONAL_BIT not in terms.in_place_attributes
                or not producer.is_continued_in_transaction(
                    producer_epoch,
                    sequence,
                    self._producers.verifications.get(producer_id),
                    must_verify=self._environment.verifies_transactions,
                )
            ):
                return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        elif producer_id >= 0:
            producer = self._producers.producers.get(producer_id)
            if producer is None or not producer.is_continued_by(producer_epoch, sequence):
                return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        if crc32c(records[ATTRIBUTES:]) != crc:
            raise self._checks.corrupt(crc)
        append_time_ms = NO_APPEND_TIME
        if terms.stamps_append_time:
            append_time_ms = max_ms = self._environment.clock.now_ms()
            stamp_append_time(records, 0, size_bytes, attributes, max_ms)
        offset = self._write_at_end(records, size_bytes, delta, max_ms, leader_epoch)
        last_offset = offset + delta
        if producer is not None:
            changeable = self._producers.changeable(producer) if producer.is_frozen else producer
            changeable.add_batch((sequence + delta) % SEQUENCE_MODULUS, last_offset, delta, max_ms)
            if is_transactional:
                self._producers.begin_transaction(changeable, offset)
                if self.first_unstable_offset is None:
                    self.first_unstable_offset = offset
        return AppendResult(offset, last_offset, append_time_ms, self.log_start_offset, count, size_bytes, leader_epoch)

    def append_own(self, records: memoryview, own: OwnBatch, leader_epoch: int) -> int:
        """Append what this broker's coordinator has just made, without inspecting it; return its offset.

        The log is the same as after ``append_as_leader``, which also says what it raises.
        """
        commit, producer, terms = own.commit, None, self._checks.terms
        if commit is None:
            is_plain = own.attributes in terms.coordinators_attributes
        else:
            producer = self._producers.producers.get(commit.producer_id)
            is_plain = producer is not None and producer.is_committed_by(commit)
        size_bytes = len(records)
        if not is_plain or size_bytes > terms.own_bytes_max or self.folder.is_offline or self.has_stale_producers:
            return self.append_as_leader(records, leader_epoch, origin=_COORDINATOR).first_offset
        offset = self._write_at_end(records, size_bytes, own.record_count - 1, own.timestamp_ms, leader_epoch)
        if producer is not None and commit is not None:
            changeable = self._producers.changeable(producer) if producer.is_frozen else producer
            # It stays unstable until the marker is replicated, so the first unstable offset stays too.
            self._producers.commit_transaction(changeable, commit.coordinator_epoch, offset, own.timestamp_ms)
        return offset

    def _write_at_end(
        self, records: memoryview, size_bytes: int, last_offset_delta: int, max_timestamp_ms: int, leader_epoch: int
    ) -> int:
        """Stamp and write one batch that is already in its stored form; return its offset."""
        offset = self.log_end_offset
        last_offset = offset + last_offset_delta
        active = self._active
        segment = active.segment
        position = segment.size_bytes
        if (
            position + size_bytes > active.size_bytes_max
            or max_timestamp_ms > active.roll_after_ms
            or segment.is_index_full
            or last_offset > active.last_offset_max
        ) and active.must_roll(size_bytes, max_timestamp_ms, last_offset, self._environment.clock.now_ms()):
            segment, position = self.roll(), 0
        _stamp(records, 0, offset, size_bytes - LOG_OVERHEAD, leader_epoch)
        try:
            if leader_epoch != self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(leader_epoch, offset)
            segment.append(records, size_bytes, last_offset, max_timestamp_ms, last_offset)
        except OSError as error:
            raise self._append_failed(segment, position, error) from error
        active.note_append(offset, position)
        self.log_end_offset = self._producers.map_end_offset = last_offset + 1
        return offset

    def _append_the_long_way(
        self,
        records: memoryview,
        leader_epoch: int,
        origin: AppendOrigin,
        may_prepare: bool,
        prepared: Preparation | None,
    ) -> AppendResult:
        self.folder.check_online()
        self.build_producers()
        batches = self._checks.place(
            records, self.log_end_offset, leader_epoch, origin=origin, may_prepare=may_prepare, prepared=prepared
        )
        if batches is None:
            return self._nothing(leader_epoch)
        if leader_epoch != self.leader_epochs.latest_epoch:
            self.assign_leader_epoch(leader_epoch, batches.first_offset)
        self._roll_for(batches)
        checked = self._checks.check_producers(batches, origin)
        if checked.duplicate is not None:
            return self._duplicate(checked.duplicate, len(records), leader_epoch)
        self._write(batches, checked)
        return AppendResult(
            batches.first_offset,
            batches.last_offset,
            batches.log_append_time_ms,
            self.log_start_offset,
            batches.last_offset + 1 - batches.first_offset,
            len(records),
            leader_epoch,
        )

    def build_producers(self) -> None:
        """Build the producer state here and now, unless it is built. Raises KafkaError KAFKA_STORAGE_ERROR."""
        if self.has_stale_producers:
            self.folder.check_online()
            with self.folder.reporting("reading the producers' batches"):
                self._build_producers()

    def _duplicate(self, batch: BatchMetadata, size_bytes: int, leader_epoch: int) -> AppendResult:
        _, last_offset, delta, timestamp_ms = batch
        return AppendResult(
            last_offset - delta,
            last_offset,
            timestamp_ms,
            self.log_start_offset,
            delta + 1,
            size_bytes,
            leader_epoch,
            is_duplicate=True,
        )

    def append_as_follower(self, records: memoryview, leader_epoch: int | None = None) -> AppendResult:
        """Append the leader's batches as they are, with their offsets and leader epochs.

        It takes messages of v0 and v1 too; they clear the epoch cache. It ignores an incomplete batch at the end, and
        from the first batch on that is newer than ``leader_epoch`` (None: any). Such a batch comes from a leader that
        has become a follower and cut its log while it sent an answer (KAFKA-18723, Kafka 3.9.1).

        Raises:
            UnexpectedAppendOffset: they begin before the log's end.
            OffsetsOutOfOrder: they do not ascend.
            KafkaError: CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR when the disk fails.
        """
        self.folder.check_online()
        self.build_producers()
        headers = self._checks.up_to_epoch(list(iter_batches(records)), leader_epoch)
        if not headers:
            return self._nothing(-1)
        self._checks.check_replicated(records, headers, self.log_start_offset, self.log_end_offset)
        appended_bytes = 0
        for run in segment_runs(headers, self.config.segment_bytes):
            self._follow_epochs(run)
            batches = replicated(records, run)
            self._roll_for(batches)
            self._write(batches, self._checks.check_producers(batches, AppendOrigin.REPLICATION))
            appended_bytes += len(batches.records)
        first, last = headers[0][1], headers[-1][1]
        count = sum(max(header.record_count, 0) for _, header in headers)
        return AppendResult(
            first.base_offset,
            last.last_offset,
            NO_APPEND_TIME,
            self.log_start_offset,
            count,
            appended_bytes,
            last.partition_leader_epoch,
        )

    def _follow_epochs(self, headers: list[PositionedHeader]) -> None:
        latest_epoch = self.leader_epochs.latest_epoch
        for _, header in headers:
            if header.magic < 2:
                self.clear_leader_epochs()
            elif header.partition_leader_epoch >= 0 and header.partition_leader_epoch != latest_epoch:
                self.assign_leader_epoch(header.partition_leader_epoch, header.base_offset)
            else:
                continue
            latest_epoch = self.leader_epochs.latest_epoch

    def _roll_for(self, batches: PlacedBatches) -> None:
        """Begin a new segment if the batches need one. As in Kafka, a duplicate or a refused batch does that too."""
        size_bytes, now_ms = len(batches.records), self._environment.clock.now_ms()
        if self._active.must_roll(size_bytes, batches.max_timestamp_ms, batches.last_offset, now_ms):
            self.roll(batches.lowest_offset)

    def _write(self, batches: PlacedBatches, checked: CheckedProducers) -> None:
        """Write placed batches to the active segment, and update the state accordingly."""
        size_bytes = len(batches.records)
        segment = self._active.segment
        position = segment.size_bytes
        try:
            if len(batches.headers) > 1:
                segment.append_batches(batches.records, size_bytes, batches.headers)
            else:
                segment.append(
                    batches.records,
                    size_bytes,
                    batches.last_offset,
                    batches.max_timestamp_ms,
                    batches.max_timestamp_offset,
                )
            self.log_end_offset = batches.last_offset + 1
            self.producers.apply_all(checked.appends.values())
            for completed in checked.completed:
                self._complete_transaction(segment, completed)
        except OSError as error:
            raise self._append_failed(segment, position, error) from error
        self._active.note_append(batches.first_offset, position)
        self.producers.map_end_offset = self.log_end_offset
        if checked.appends:
            self._refresh_first_unstable()

    def _complete_transaction(self, segment: LogSegment, completed: CompletedTransaction) -> None:
        if completed.is_aborted:
            segment.add_aborted(self.producers.aborted(completed))
        self.producers.complete(completed)

    def _append_failed(self, segment: LogSegment, position: int, error: OSError) -> KafkaError:
        """Cut off what was written, so that no half batch is served, and report the log dir."""
        segment.size_bytes = position
        try:
            segment.cut_back(position)
        except OSError as second:
            error.add_note(f"What was written could not be cut off either: {second}")
        return self.folder.failed("appending records", error)

    def _nothing(self, leader_epoch: int) -> AppendResult:
        return AppendResult(NO_OFFSET, NO_OFFSET, NO_APPEND_TIME, self.log_start_offset, 0, 0, leader_epoch)

    # --- leader epochs

    def assign_leader_epoch(self, leader_epoch: int, offset: int) -> None:
        """Note that a leader epoch begins at ``offset``. Raises KafkaError KAFKA_STORAGE_ERROR."""
        with self.folder.reporting("noting a leader epoch"):
            self.leader_epochs.assign(leader_epoch, offset)

    def clear_leader_epochs(self) -> None:
        """Forget all epochs: messages of v0 and v1 have none. Raises KafkaError KAFKA_STORAGE_ERROR."""
        if self.leader_epochs.entries:
            with self.folder.reporting("clearing the leader epochs"):
                self.leader_epochs.clear()

    # --- reads

    def read(self, offset: int, max_bytes: int, *, limit_offset: int, min_one_batch: bool) -> LogRead:
        """Return the batches from ``offset`` to below ``limit_offset``, at most ``max_bytes`` of one segment.

        ``limit_offset`` is the high watermark, the last stable offset or the log's end. With ``min_one_batch`` the
        first batch comes whole, even if it is larger. The range may end within a batch.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE; UNKNOWN_SERVER_ERROR if there is something to read and ``max_bytes`` is
                less than 0; KAFKA_STORAGE_ERROR when the disk fails.
        """
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise self._out_of_range(offset)
        if limit_offset > end_offset:
            limit_offset = end_offset
        if offset >= limit_offset:
            return LogRead(None, self._search.position_of(offset, end_offset))
        active = self._active
        position = active.known_position(offset)
        if position < 0:
            return self._search.read(
                offset, max_bytes, limit_offset=limit_offset, end_offset=end_offset, min_one_batch=min_one_batch
            )
        segment = active.segment
        if limit_offset == end_offset:
            limit = segment.size_bytes
        else:
            limit = active.known_position(limit_offset)
            if limit < 0:
                limit = self._search.position_of(limit_offset, end_offset).position
        size_bytes = limit - position
        if not 0 < size_bytes <= max_bytes:
            return self._search.read_part(segment, position, limit, max_bytes, min_one_batch=min_one_batch)
        active.remember(limit_offset, limit)
        try:
            return LogRead(FileRange(segment.file(), position, size_bytes), LogPosition(segment.base_offset, position))
        except OSError as error:
            # Nobody has used the file for a while, and now it cannot be opened again.
            raise self.folder.failed("opening a segment", error) from error

    def position_of(self, offset: int) -> LogPosition:
        """Return where the batch that holds ``offset`` begins, or where it will; the log's end for the end offset.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE beyond the log's end; KAFKA_STORAGE_ERROR when the disk fails.
        """
        if offset > self.log_end_offset:
            raise self._out_of_range(offset)
        return self._search.position_of(offset, self.log_end_offset)

    def collect_aborted_transactions(self, start_offset: int, limit_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that a read of ``[start_offset, limit_offset)`` must hide.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        return self._search.collect_aborted_transactions(start_offset, limit_offset)

    def upper_bound_offset(self, read: LogRead) -> int:
        """Return an offset beyond everything in ``read``: up to there aborted transactions matter."""
        return self._search.upper_bound_offset(read, self.log_end_offset)

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Received request for offset {offset} for partition {self.topic_partition}, but we only have log segments "
            f"in the range {self.log_start_offset} to {self.log_end_offset}.",
        )

    # --- offsets, retention

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, limited to the log, and return it."""
        bounded = self.log_end_offset
        if offset < bounded:
            bounded = max(offset, self.log_start_offset)
        self.high_watermark = bounded
        if self._producers.unreplicated and self._producers.on_high_watermark(bounded):
            self._refresh_first_unstable()
        return bounded

    def _refresh_first_unstable(self) -> None:
        unstable = self._producers.first_unstable_offset
        self.first_unstable_offset = None if unstable is None else max(unstable, self.log_start_offset)

    def increment_log_start_offset(self, offset: int) -> bool:
        """Move the log's start to ``offset``; return whether it moved. The next retention drops the segments before it.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE beyond the high watermark; KAFKA_STORAGE_ERROR when the disk fails.
        """
        self.folder.check_online()
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.topic_partition} since it is "
                f"larger than the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.flush_state.on_start(offset)
        with self.folder.reporting("moving the log's start"):
            self.leader_epochs.truncate_from_start(offset)
        self._producers.on_log_start_offset(offset)
        self._refresh_first_unstable()
        if self.on_start_moved is not None:
            self.on_start_moved()
        logger.info("Incremented log start offset partition=%s offset=%d", self.topic_partition, offset)
        return True

    def delete_old_segments(self, now_ms: int) -> int:
        """Drop segments that are before the log's start, too old, or beyond the size limit; return how many.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        self.folder.check_online()
        with self.folder.reporting("deleting segments"):
            return retention.delete_old_segments(self, now_ms)

    def drop_first_segments(self, count: int, why: str) -> None:
        """Remove the first segments from the log, which then starts after them. Raises OSError and KafkaError."""
        dropped = self.segments[:count]
        if count == len(self._segments):
            self.roll()
        following = self._segments.after(dropped[-1])
        if following is not None:
            self.increment_log_start_offset(following.base_offset)
        for segment in dropped:
            logger.info("Deleting a segment because %s partition=%s segment=%r", why, self.topic_partition, segment)
        self._files.remove(dropped)

    # --- segments

    def roll(self, next_offset: int | None = None) -> LogSegment:
        """Begin a new active segment at the log's end, or at ``next_offset`` if that is later.

        An empty active segment that begins there already stays. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        base_offset = max(self.log_end_offset, next_offset or 0)
        active = self._active.segment
        if active.size_bytes == 0 and active.base_offset == base_offset:
            return active
        if base_offset <= active.base_offset:
            raise StorageError(
                f"Trying to roll a new segment of {self.topic_partition} with start offset {base_offset}, which is not "
                f"beyond the active segment's {active.base_offset}",
                path=str(self.dir),
            )
        with self.folder.reporting("rolling a segment"):
            active.become_inactive()
            segment = self._files.add(base_offset)
            self.producers.map_end_offset = base_offset
            self.producers.take_snapshot(is_written_later=True)
        self.flush_state.on_roll(active)
        self._active.replace(segment)
        logger.info("Rolled a new segment partition=%s base_offset=%d", self.topic_partition, base_offset)
        self._environment.flush_soon(self, base_offset)
        return segment

    def replace_segments(self, replaced: list[LogSegment], new: Sequence[NewSegment]) -> list[LogSegment]:
        """Replace neighbouring segments by the ``.cleaned`` files that were made from them.

        The next start repairs a crash at any point: it discards the files until all of them are ``.swap``, and puts
        them in place from then on. Return the new segments; the first has the first old base offset.

        Raises:
            StorageError: the files are not there; nothing is changed.
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        self.folder.check_online()
        with self.folder.reporting("putting a cleaned segment in place"):
            return self._files.replace(replaced, new)

    # --- cuts

    @property
    def truncation_count(self) -> int:
        """How often the log was cut: data read before a cut may belong to another history."""
        return self.flush_state.cuts

    def take_lowest_cut(self) -> int | None:
        """Return the lowest offset to which the log was cut since the last call, None if it was not cut.

        A copy of the log is valid up to there. A log that started over was cut to 0.
        """
        lowest, self._lowest_cut = self._lowest_cut, None
        return lowest

    def truncate_to(self, offset: int) -> bool:
        """Drop all records from ``offset`` on; return whether there were any.

        It drops epochs that begin at the end in any case: they may belong to a leadership that wrote nothing.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        if offset < 0:
            raise ValueError(f"Cannot truncate partition {self.topic_partition} to a negative offset ({offset}).")
        self.folder.check_online()
        end_offset = self.log_end_offset
        with self.folder.reporting(f"truncating to offset {offset}"):
            if offset >= end_offset:
                self.leader_epochs.truncate_from_end(end_offset)
                return False
            logger.info(
                "Truncating partition=%s to_offset=%d log_end_offset=%d", self.topic_partition, offset, end_offset
            )
            if self._segments.first.base_offset > offset:
                self.truncate_fully_and_start_at(offset)
            else:
                self._truncate_within(offset)
        return True

    def _truncate_within(self, offset: int) -> None:
        self._note_cut(offset)
        self._files.remove([segment for segment in self._segments if segment.base_offset > offset])
        self._segments.last.truncate_to(offset, self._environment.clock.now_ms())
        self._active.replace(self._segments.last)
        self.leader_epochs.truncate_from_end(offset)
        self._end_at(offset, min(offset, self.log_start_offset))

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop all records and continue at ``offset``.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        self.folder.check_online()
        with self.folder.reporting(f"starting again at offset {offset}"):
            self._note_cut(0)
            self._files.remove(self.segments)
            self._active.replace(self._files.add(offset))
            self.leader_epochs.clear()
            self._producers.truncate_fully_and_start_at(offset)
            self.has_stale_producers = False
            self._end_at(offset, offset if log_start_offset is None else log_start_offset)
            self.flush_state.begin_anew(offset)
            self.update_high_watermark(offset)

    def _note_cut(self, offset: int) -> None:
        if offset < self.recovery_point:
            # A recovery that used the old one would skip what is written from here on.
            self.has_unsettled_cut = True
            self._environment.checkpoint_soon(self.log_dir)
        self.flush_state.on_cut()
        self.cleaning.on_cut(self.segment_of(offset).base_offset if offset else self.log_start_offset)
        self._lowest_cut = offset if self._lowest_cut is None else min(offset, self._lowest_cut)

    def _end_at(self, offset: int, log_start_offset: int) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.flush_state.on_end(offset)
        is_committed_cut = self.high_watermark > offset
        producers = self._producers
        if producers.map_end_offset != offset or self.has_stale_producers:
            producers.drop_snapshots_outside(log_start_offset, offset)
            if self._is_long_replay():
                self.has_stale_producers = True
                self._replay_from = log_start_offset
                producers.hold_stable(log_start_offset, offset, is_committed_cut=is_committed_cut)
        if is_committed_cut:
            self.update_high_watermark(offset)
        if self.has_stale_producers:
            self._refresh_first_unstable()
        else:
            self._build_producers()

    def _is_long_replay(self) -> bool:
        producers = self._producers
        if not self.has_stale_producers and producers.is_empty:
            return False
        size_bytes = bytes_to_replay(producers, self._segments, self.log_start_offset, self.log_end_offset)
        return size_bytes > REPLAY_BYTES_MAX or len(producers.producers) > REPLAY_PRODUCERS_MAX

    def _build_producers(self) -> None:
        """Bring the producer state to the log's end, here and now."""
        is_stale, now_ms = self.has_stale_producers, self._environment.clock.now_ms()
        built = self._producers.detached() if is_stale else self._producers
        start_offset = self._replay_from if is_stale else self.log_start_offset
        rebuild_producer_state(
            built, self._segments, start_offset, self.log_end_offset, now_ms=now_ms, is_written_later=is_stale
        )
        self._take_producers(built)

    def _take_producers(self, built: ProducerStateManager) -> None:
        if self.has_stale_producers:
            self.has_stale_producers = False
            self._producers.take_over(built)
        self._producers.on_high_watermark(self.high_watermark)
        self._refresh_first_unstable()

    def replay_job(self) -> ReplayJob | None:
        """Return the job that builds the producer state after a cut; None if it is built.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        if not self.has_stale_producers:
            return None
        cuts = self.truncation_count

        def take(built: ProducerStateManager) -> None:
            if self.has_stale_producers and self.truncation_count == cuts and not self.is_retired:
                self._take_producers(built)

        self.folder.check_online()
        with self.folder.reporting("reading the producers' batches"):
            now_ms = self._environment.clock.now_ms()
            return ReplayJob(self._producers, self._segments, self._replay_from, self.log_end_offset, now_ms, take)

    # --- flush

    @property
    def recovery_point(self) -> int:
        """All records before it are on disk."""
        return self.flush_state.recovery_point

    @property
    def last_flush_ms(self) -> int:
        return self.flush_state.last_flush_ms

    @property
    def unflushed_records(self) -> int:
        """Offsets that a crash of the machine may lose."""
        return self.log_end_offset - self.flush_state.recovery_point

    @property
    def is_flush_due(self) -> bool:
        """Whether ``flush.messages`` is reached: an append is then answered only after a flush."""
        return self.log_end_offset >= self.flush_state.due_at_offset

    def begin_flush(self, offset: int | None = None, *, is_closing: bool = False) -> FlushJob | None:
        """Prepare to bring everything before ``offset`` (default: the log's end) to the disk; None if it is there.

        A retired log has nothing left to flush.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        if self.is_retired:
            return None
        self.folder.check_online()
        target = self.log_end_offset if offset is None else min(offset, self.log_end_offset)
        with self.folder.reporting("flushing"):
            return self.flush_state.begin(target, is_closing=is_closing)

    def flush(self, offset: int | None = None) -> None:
        """Bring everything before ``offset`` (the log's end by default) to the disk, synchronously.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        job = self.begin_flush(offset)
        if job is not None:
            job.run()
            job.finish()
            job.raise_error()

    # --- topic id, folder, end

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Give the log its topic id if it has none, and note it in its folder; not before IBP 2.8.

        Raises:
            KafkaError: INCONSISTENT_TOPIC_ID if it has another one; KAFKA_STORAGE_ERROR when the disk fails.
        """
        if self.topic_id == topic_id or not self._environment.keeps_topic_ids:
            return
        if self.topic_id is not None:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"Tried to assign topic ID {topic_id.hex()} to log for topic partition {self.topic_partition}, but log "
                f"already contained topic ID {self.topic_id.hex()}",
            )
        with self.folder.reporting("writing partition metadata"):
            self.folder.write_topic_id(topic_id)

    def rename_dir(self, name: str) -> None:
        """Rename the partition's folder within its log dir.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        with self.folder.reporting(f"renaming its folder to {name}"):
            self.folder.rename(name)
        self.flush_state.nothing_is_synced()
        self._files.follow_rename()
        self.leader_epochs.folder = self.dir
        self._producers.move_to(self.dir)

    def release_idle_files(self) -> None:
        """Close files that were not used since the last call."""
        self._files.release_idle()

    def close(self) -> None:
        """Prepare everything for the next start: a snapshot at the end, indexes complete and trimmed.

        Flush afterwards, so that this reaches the disk too. Raises KafkaError KAFKA_STORAGE_ERROR when the disk fails.
        """
        self.folder.check_online()
        with self.folder.reporting("closing"):
            self.producers.take_snapshot()
            self._files.close()

    def abandon(self) -> None:
        """Close all files as they are: the log dir has failed, or the log's folder will be removed."""
        self.folder.is_offline = True
        self._files.abandon()
