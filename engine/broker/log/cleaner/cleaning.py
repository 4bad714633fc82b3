"""One cleaning of a log, from its plan to the last ``.cleaned`` file. Runs in the cleaning process.

First it maps the keys of the dirty part to their last offsets, until the memory is full. Then it copies the segments up
to that point, group by group, and leaves out each record that a later one with the same key replaces. It does not touch
the log itself. Source: Cleaner.doClean of Kafka 3.9.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.broker.log.batch_scan import parse_batch
from engine.broker.log.cleaner.batch_cleaner import UNPACKED_BYTES_MAX, BatchCleaner, not_records
from engine.broker.log.cleaner.key_map import KeyMap, known_key
from engine.broker.log.cleaner.messages import (
    CleaningLimits,
    CleaningPlan,
    Finished,
    GroupCleaned,
    Indexed,
    Progress,
    Report,
    SegmentToClean,
)
from engine.broker.log.cleaner.record_scan import NotRecordsError, index_records, skip_records
from engine.broker.log.cleaner.stats import CleaningStats
from engine.broker.log.cleaner.transactions import CleanedTransactions
from engine.broker.log.file_range import write_fully
from engine.broker.log.segment import LogSegment
from engine.broker.log.segment_split import first_offset_of
from engine.broker.log.segment_swap import NewSegment
from engine.broker.log.small_files import sync_path
from engine.common.errors import CorruptFileError
from engine.kafka.formats.index_entries import AbortedTransaction
from engine.kafka.formats.log_dir_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    SegmentPaths,
)
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.decode import iter_batch_records, record_section
from engine.kafka.protocol.records.header import BatchHeader, read_batch_header
from engine.kafka.protocol.records.layout import BATCH_OVERHEAD

LOOK_BYTES = 1024 * 1024
PAUSE_S_MAX = 0.3
PROGRESS_INTERVAL_S = 0.5
SAVED_S_MAX = 1.0


def read_segment(
    path: Path, offsets: range, buffer_bytes: int, pace: Pace, *, checked: range = range(0)
) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Yield a buffer, the position in it where a whole batch begins, and the batch's header.

    The buffer has ``buffer_bytes``, or more for a batch that is larger. The segment may have ``offsets``. The checksums
    of batches with the offsets ``checked`` are not checked again.

    Raises:
        CorruptFileError: bytes that are not a batch, a wrong checksum, or an offset that does not ascend, with file and
            position.
        OSError: the disk fails.
    """
    last_offset = offsets.start - 1
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(fd).st_size
        position = start = 0
        buffer = b""
        while position < size_bytes:
            index = position - start
            if index + BATCH_OVERHEAD > len(buffer):
                buffer, start, index = _read(fd, buffer_bytes, position, pace), position, 0
            header = parse_batch(buffer, index)
            if header is None or position + header.size_bytes > size_bytes:
                raise _damaged(path, position, "the bytes there are no batch")
            # Two batches of one offset would have the same places. Offsets have no checksum.
            if not last_offset < header.base_offset <= header.last_offset < offsets.stop:
                raise _damaged(path, position, f"offset {header.base_offset} cannot follow offset {last_offset}")
            last_offset = header.last_offset
            if index + header.size_bytes > len(buffer):
                wanted = max(buffer_bytes, header.size_bytes)
                buffer, start, index = _read(fd, wanted, position, pace), position, 0
            if header.base_offset not in checked and not verify_crc(buffer, index, header.size_bytes):
                raise _damaged(path, position, f"the batch at offset {header.base_offset} has a wrong checksum")
            yield buffer, index, header
            position += header.size_bytes
    finally:
        os.close(fd)


def _read(fd: int, size_bytes: int, position: int, pace: Pace) -> bytes:
    data = os.pread(fd, size_bytes, position)
    pace.spend(len(data))
    # A message of the old formats may be shorter than the expected header.
    return data if len(data) >= BATCH_OVERHEAD else data + bytes(BATCH_OVERHEAD - len(data))


def _damaged(path: Path, position: int, what: str) -> CorruptFileError:
    return CorruptFileError(f"Log segment {path} is damaged at position {position}: {what}", path=str(path))


class CleanedSegments:
    """Takes batches in order, and writes them to as many segments as needed, usually one."""

    def __init__(self, folder: Path, base_offset: int, limits: CleaningLimits, pace: Pace) -> None:
        self._folder = folder
        self._limits = limits
        self._pace = pace
        self._current = _CleanedSegment(folder, base_offset, limits, pace)
        self._segments = [self._current]

    def add(self, batch: bytes) -> None:
        """Append a batch.

        Raises:
            OSError: the disk fails.
        """
        header = read_batch_header(batch)
        if not self._current.takes(header.last_offset):
            self._current = _CleanedSegment(self._folder, first_offset_of(batch, header), self._limits, self._pace)
            self._segments.append(self._current)
        self._current.add(batch, header)

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker is the batch that was added last."""
        self._current.add_aborted(transaction)

    def finish(self, modified_ns: int) -> tuple[NewSegment, ...]:
        """Flush everything to the disk, and give the files the time at which their newest source was written."""
        return tuple(segment.finish(modified_ns) for segment in self._segments)


class _CleanedSegment:
    """One cleaned segment, with its indexes."""

    def __init__(self, folder: Path, base_offset: int, limits: CleaningLimits, pace: Pace) -> None:
        """Create the files, and replace those that an earlier cleaning left."""
        paths = SegmentPaths(folder, base_offset, CLEANED_SUFFIX)
        for kind in (LOG_SUFFIX, *INDEX_SUFFIXES):
            paths.path(kind).unlink(missing_ok=True)
        self._segment = LogSegment(
            paths,
            0,
            index_capacity_bytes=limits.segment_index_bytes,
            index_interval_bytes=limits.index_interval_bytes,
            roll_jitter_ms=0,
            created_ms=0,
            has_transaction_index=False,
        )
        self._segment.create_files()
        self._pace = pace
        self._buffer = bytearray()
        self._buffer_bytes_max = limits.io_buffer_bytes
        self._size_bytes = 0
        self._has_transaction_index = False
        self.base_offset = base_offset
        self.takes = self._segment.takes

    def add(self, batch: bytes, header: BatchHeader) -> None:
        """Append a batch whose offset fits this segment."""
        segment = self._segment
        last_offset, max_timestamp = header.last_offset, header.max_timestamp
        if max_timestamp > segment.max_timestamp_ms:
            segment.max_timestamp_ms, segment.max_timestamp_offset = max_timestamp, last_offset
        if segment.bytes_since_index_entry > segment.index_interval_bytes and not segment.is_index_full:
            segment.add_index_entries(last_offset, self._size_bytes)
            segment.bytes_since_index_entry = 0
        segment.bytes_since_index_entry += len(batch)
        self._buffer += batch
        self._size_bytes += len(batch)
        if len(self._buffer) >= self._buffer_bytes_max:
            self._write()

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker is in this segment."""
        self._segment.add_aborted(transaction)
        self._has_transaction_index = True

    def finish(self, modified_ns: int) -> NewSegment:
        """Flush the segment and its indexes to the disk."""
        self._write()
        self._segment.become_inactive()
        for path in self._segment.file_paths():
            if path.exists():
                sync_path(path)
                os.utime(path, ns=(modified_ns, modified_ns))
        self._segment.close_file()
        return NewSegment(self.base_offset, self._size_bytes, self._has_transaction_index)

    def _write(self) -> None:
        if self._buffer:
            write_fully(self._segment.file().fd, self._buffer, self._segment.size_bytes)
            self._pace.spend(len(self._buffer))
            self._segment.size_bytes = self._size_bytes
            self._buffer = bytearray()


GROUP_SEGMENTS_MAX = 32
"""How many segments are replaced at once: more renames would block the broker's event loop for too long."""

_OFFSETS_MAX = 2**31 - 1


def clean(plan: CleaningPlan, report: Callable[[Report], None]) -> None:
    """Clean a log as planned, and report each step.

    Raises:
        CorruptFileError, KafkaError: the log has content that cannot be cleaned.
        OSError: the disk fails.
    """
    _Cleaning(plan, report).run()


class _Cleaning:
    def __init__(self, plan: CleaningPlan, report: Callable[[Report], None]) -> None:
        self._plan = plan
        self._report = report
        self._folder = Path(plan.folder)
        self._stats = CleaningStats()
        self._keys = KeyMap(plan.limits.map_bytes, plan.first_dirty_offset)
        self._pace = Pace(plan.limits.io_bytes_per_second, lambda size: report(Progress(size)))
        self._cleaner = BatchCleaner(plan, self._keys, self._stats)

    def run(self) -> None:
        started_s, started_cpu_s = time.monotonic(), time.process_time()
        remove_leftovers(self._folder)
        self._index()
        self._stats.index_s = time.monotonic() - started_s
        self._stats.map_utilization = self._keys.utilization
        end_offset = self._keys.latest_offset + 1
        self._report(Indexed(end_offset, len(self._keys.places)))
        legacy_horizon_ns = self._legacy_horizon_ns()
        for group in self._groups(end_offset):
            self._report(self._clean_group(group, legacy_horizon_ns))
        self._stats.elapsed_s = time.monotonic() - started_s
        self._stats.cpu_s = time.process_time() - started_cpu_s
        self._report(Finished(end_offset, self._stats))

    def _batches(
        self, segment: SegmentToClean, *, checked: range = range(0)
    ) -> Iterator[tuple[bytes, int, BatchHeader]]:
        path = SegmentPaths(self._folder, segment.base_offset).path(LOG_SUFFIX)
        offsets = range(segment.base_offset, segment.end_offset)
        return read_segment(path, offsets, self._plan.limits.io_buffer_bytes, self._pace, checked=checked)

    # --- keys

    def _index(self) -> None:
        keys = self._keys
        transactions = CleanedTransactions(
            aborted for aborted in self._plan.aborted if aborted.last_offset >= self._plan.first_dirty_offset
        )
        keys.latest_offset = self._plan.first_dirty_offset - 1
        for segment in self._plan.segments:
            if segment.end_offset <= self._plan.first_dirty_offset:
                continue
            for data, position, header in self._batches(segment):
                if keys.is_full():
                    keys.seal()
                    return
                self._index_batch(data, position, header, transactions)
                keys.latest_offset = max(keys.latest_offset, header.last_offset)
                self._stats.map_bytes_read += header.size_bytes
            keys.latest_offset = max(keys.latest_offset, segment.end_offset - 1)
        keys.seal()

    def _index_batch(self, data: bytes, position: int, header: BatchHeader, transactions: CleanedTransactions) -> None:
        stats, first_dirty_offset = self._stats, self._plan.first_dirty_offset
        if header.is_control:
            transactions.on_control(data, position, header)
            return
        stats.map_messages_read += max(header.record_count, 1)
        if transactions.on_data(header) or header.record_count == 0 or header.last_offset < first_dirty_offset:
            return
        places, first_place = self._keys.places, self._keys.first_place(header.base_offset)
        if header.magic < 2:
            messages = iter_batch_records(data, position, header, size_max=UNPACKED_BYTES_MAX)
            for place, record in enumerate(messages, first_place):
                if record.offset < first_dirty_offset:
                    continue
                if record.key is None:
                    stats.invalid_messages_read += 1
                else:
                    places[known_key(record.key)] = place
            return
        start, end = position + BATCH_OVERHEAD, position + header.size_bytes
        if header.is_compressed:
            data = record_section(data, position, header, UNPACKED_BYTES_MAX)
            start, end = 0, len(data)
        count = header.record_count
        try:
            if header.base_offset < first_dirty_offset:
                section_start = start
                start, clean_count = skip_records(data, start, end, first_dirty_offset - header.base_offset)
                first_place, count = first_place + start - section_start, count - clean_count
            stats.invalid_messages_read += index_records(data, start, end, count, first_place, places)
        except NotRecordsError:
            raise not_records(header) from None

    # --- segments

    def _groups(self, end_offset: int) -> Iterator[list[SegmentToClean]]:
        """Yield groups of neighbouring segments, each small enough to become one segment."""
        limits = self._plan.limits
        bounds = (limits.segment_bytes, limits.segment_index_bytes, limits.segment_index_bytes)
        group: list[SegmentToClean] = []
        sizes = (0, 0, 0)
        for segment in self._plan.segments:
            if segment.base_offset >= end_offset:
                break
            own = self._sizes(segment)
            together = tuple(total + other for total, other in zip(sizes, own, strict=True))
            if group and (
                len(group) >= GROUP_SEGMENTS_MAX
                or any(size > bound for size, bound in zip(together, bounds, strict=True))
                or (own[0] and segment.end_offset - 1 - group[0].base_offset > _OFFSETS_MAX)
            ):
                yield group
                group, together = [], own
            group.append(segment)
            sizes = (together[0], together[1], together[2])
        if group:
            yield group

    def _sizes(self, segment: SegmentToClean) -> tuple[int, int, int]:
        paths = SegmentPaths(self._folder, segment.base_offset)
        files = (paths.path(kind) for kind in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        log_bytes, index_bytes, time_index_bytes = (file.stat().st_size if file.exists() else 0 for file in files)
        return log_bytes, index_bytes, time_index_bytes

    def _clean_group(self, group: list[SegmentToClean], legacy_horizon_ns: int) -> GroupCleaned:
        cleaned = CleanedSegments(self._folder, group[0].base_offset, self._plan.limits, self._pace)
        modified_ns = 0
        for segment in group:
            modified_ns = self._modified_ns(segment)
            self._clean_segment(segment, cleaned, keeps_legacy_deletes=modified_ns > legacy_horizon_ns)
        new = cleaned.finish(modified_ns)
        self._stats.bytes_written += sum(segment.size_bytes for segment in new)
        return GroupCleaned(tuple(segment.base_offset for segment in group), new)

    def _clean_segment(self, segment: SegmentToClean, cleaned: CleanedSegments, *, keeps_legacy_deletes: bool) -> None:
        clean_batch, kept_transactions = self._cleaner.clean, self._cleaner.transactions.kept
        mapped = range(self._plan.first_dirty_offset, self._keys.latest_offset + 1)
        for data, position, header in self._batches(segment, checked=mapped):
            kept = clean_batch(data, position, header, keeps_legacy_deletes=keeps_legacy_deletes)
            self._stats.bytes_read += header.size_bytes
            if kept:
                cleaned.add(kept)
            if kept_transactions:
                for transaction in kept_transactions:
                    cleaned.add_aborted(transaction)
                kept_transactions.clear()

    def _modified_ns(self, segment: SegmentToClean) -> int:
        return SegmentPaths(self._folder, segment.base_offset).path(LOG_SUFFIX).stat().st_mtime_ns

    def _legacy_horizon_ns(self) -> int:
        """Segments of the old formats lose their tombstones if they were last written before this time."""
        clean = [segment for segment in self._plan.segments if segment.base_offset < self._plan.first_dirty_offset]
        if not clean:
            return 0
        return self._modified_ns(clean[-1]) - self._plan.limits.delete_retention_ms * 1_000_000


def remove_leftovers(folder: Path) -> None:
    """Remove the files of an interrupted cleaning: they would mislead the next start after a crash."""
    for path in folder.glob(f"*{CLEANED_SUFFIX}"):
        path.unlink(missing_ok=True)


class Pace:
    """Keeps reads and writes below ``log.cleaner.io.max.bytes.per.second``, and calls ``on_progress`` now and then.

    It accounts for every read and write, and sleeps if they are too fast.
    """

    def __init__(self, bytes_per_second: float, on_progress: Callable[[int], None]) -> None:
        self._rate = bytes_per_second
        self._on_progress = on_progress
        self._total_bytes = 0
        self._unseen_bytes = 0
        self._paid_until_s = self._told_s = time.monotonic()

    def spend(self, size_bytes: int) -> None:
        """Account for bytes that were read or written."""
        self._unseen_bytes += size_bytes
        if self._unseen_bytes >= min(LOOK_BYTES, self._rate * PAUSE_S_MAX):
            self._look()

    def _look(self) -> None:
        self._total_bytes += self._unseen_bytes
        # Only the last second's unused budget is saved up: no long burst may follow a pause.
        begin_s = max(self._paid_until_s, time.monotonic() - SAVED_S_MAX)
        self._paid_until_s = begin_s + self._unseen_bytes / self._rate
        self._unseen_bytes = 0
        while True:
            now_s = time.monotonic()
            if now_s - self._told_s >= PROGRESS_INTERVAL_S:
                self._told_s = now_s
                self._on_progress(self._total_bytes)
            if now_s >= self._paid_until_s:
                return
            time.sleep(min(self._paid_until_s - now_s, PAUSE_S_MAX))
