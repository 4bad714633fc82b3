"""The segments that a cleaning writes: their indexes, files, times, and where a second one begins."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.log.cleaner import cleaning
from engine.broker.log.cleaner.cleaning import CleanedSegments, Pace
from engine.broker.log.cleaner.messages import CleaningLimits
from engine.broker.log.indexes import TransactionIndex
from engine.broker.log.segment import LogSegment
from engine.kafka.formats.index_entries import RELATIVE_OFFSET_MAX, AbortedTransaction
from engine.kafka.formats.log_dir_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    SegmentPaths,
)
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

LIMITS = CleaningLimits(1 << 20, 4096, 200, 5000, 1 << 20, 1 << 16, float("inf"))
NEWEST_NS = 1_700_000_000_000_000_000


class Spent(Pace):
    """Notes what was written, and when."""

    def __init__(self) -> None:
        super().__init__(float("inf"), lambda _: None)
        self.sizes: list[int] = []

    def spend(self, size_bytes: int) -> None:
        self.sizes.append(size_bytes)


def batch_at(offset: int, timestamp_ms: int = 1, *, size: int = 50) -> bytes:
    return encode_batch([Record(key=b"k", value=b"v" * size, timestamp_ms=timestamp_ms)], base_offset=offset)


def written(folder: Path, batches: list[bytes], limits: CleaningLimits = LIMITS) -> tuple[list[LogSegment], Spent]:
    """Write the batches, and open the files on the disk."""
    pace = Spent()
    cleaned = CleanedSegments(folder, 10, limits, pace)
    for batch in batches:
        cleaned.add(batch)
    return [
        LogSegment(
            SegmentPaths(folder, segment.base_offset, CLEANED_SUFFIX),
            segment.size_bytes,
            index_capacity_bytes=limits.segment_index_bytes,
            index_interval_bytes=limits.index_interval_bytes,
            roll_jitter_ms=0,
            created_ms=0,
            has_transaction_index=segment.has_transaction_index,
        )
        for segment in cleaned.finish(NEWEST_NS)
    ], pace


def test_the_files_hold_the_batches_and_have_the_time_of_the_newest_source(tmp_path: Path) -> None:
    batches = [batch_at(offset) for offset in range(10, 20)]
    (segment,), _ = written(tmp_path, batches)
    assert segment.path.read_bytes() == b"".join(batches)
    assert segment.size_bytes == len(b"".join(batches))
    paths = [path for path in segment.file_paths() if path.exists()]
    assert len(paths) == 3, "log, offset index, time index; no transaction was aborted"
    assert {path.stat().st_mtime_ns for path in paths} == {NEWEST_NS}


def test_the_first_offset_of_the_segment_may_be_the_first_batch_s_and_the_last_too(tmp_path: Path) -> None:
    segments, _ = written(tmp_path, [batch_at(10)])
    assert [segment.base_offset for segment in segments] == [10]
    last = 10 + RELATIVE_OFFSET_MAX
    segments, _ = written(tmp_path, [batch_at(last)])
    assert [segment.base_offset for segment in segments] == [10]


def test_a_batch_too_far_for_the_indexes_begins_another_segment(tmp_path: Path) -> None:
    far = 10 + RELATIVE_OFFSET_MAX + 1
    segments, _ = written(tmp_path, [batch_at(10), batch_at(far), batch_at(far + 1)])
    assert [segment.base_offset for segment in segments] == [10, far]
    assert [segment.path.read_bytes() for segment in segments] == [batch_at(10), batch_at(far) + batch_at(far + 1)]


def test_files_of_an_earlier_cleaning_are_replaced(tmp_path: Path) -> None:
    paths = SegmentPaths(tmp_path, 10, CLEANED_SUFFIX)
    for kind in (LOG_SUFFIX, *INDEX_SUFFIXES):
        paths.path(kind).write_bytes(b"left over" * 100)
    (segment,), _ = written(tmp_path, [batch_at(10)])
    assert segment.path.read_bytes() == batch_at(10)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in segment.file_paths() if "txn" not in path.name
    ), "an aborted transaction of then would hide records of now"


def test_an_index_entry_after_more_bytes_than_the_interval(tmp_path: Path) -> None:
    size = len(batch_at(10))
    limits = replace(LIMITS, index_interval_bytes=2 * size)
    (segment,), _ = written(tmp_path, [batch_at(10 + n, 100 + n) for n in range(8)], limits=limits)
    offsets = segment.paths.path(OFFSET_INDEX_SUFFIX).read_bytes()
    entries = [(10 + delta, position) for delta, position in struct.iter_unpack(">ii", offsets)]
    assert entries == [(13, 3 * size), (16, 6 * size)], "three batches are more than two are long"
    times = segment.paths.path(TIME_INDEX_SUFFIX).read_bytes()
    assert [(ms, 10 + delta) for ms, delta in struct.iter_unpack(">qi", times)] == [(103, 13), (106, 16), (107, 17)]


def test_a_full_index_takes_no_more(tmp_path: Path) -> None:
    limits = replace(LIMITS, index_interval_bytes=0, segment_index_bytes=4 * 8)
    batches = [batch_at(10 + n, 100 + n) for n in range(20)]
    (segment,), _ = written(tmp_path, batches, limits=limits)
    assert segment.path.read_bytes() == b"".join(batches)
    assert segment.find(29) == len(batches[0]) * 19


def test_the_first_batch_with_the_largest_time_is_noted(tmp_path: Path) -> None:
    batches = [batch_at(10, 5), batch_at(11, 9), batch_at(12, 9), batch_at(13, 7)]
    (segment,), _ = written(tmp_path, batches)
    assert segment.load_max_timestamp() == (9, 11)


def test_an_aborted_transaction_is_noted_in_the_segment_of_its_marker(tmp_path: Path) -> None:
    far = 10 + RELATIVE_OFFSET_MAX + 1
    cleaned = CleanedSegments(tmp_path, 10, LIMITS, Spent())
    cleaned.add(batch_at(10))
    cleaned.add(batch_at(far))
    cleaned.add_aborted(AbortedTransaction(7, 10, far, far + 1))
    assert [segment.has_transaction_index for segment in cleaned.finish(NEWEST_NS)] == [False, True]
    paths = SegmentPaths(tmp_path, far, CLEANED_SUFFIX)
    assert TransactionIndex(paths, exists=True).entries() == [AbortedTransaction(7, 10, far, far + 1)]


def test_a_full_buffer_is_written_and_paid_for(tmp_path: Path) -> None:
    batches = [batch_at(offset) for offset in range(10, 15)]
    size = len(batches[0])
    (segment,), pace = written(tmp_path, batches, limits=replace(LIMITS, io_buffer_bytes=2 * size))
    assert pace.sizes == [2 * size, 2 * size, size]
    assert segment.path.read_bytes() == b"".join(batches)


def test_every_file_is_on_the_disk_before_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[Path, bytes] = {}
    monkeypatch.setattr(cleaning, "sync_path", lambda path: synced.update({path: path.read_bytes()}))
    (segment,), _ = written(tmp_path, [batch_at(10)])
    assert synced == {path: path.read_bytes() for path in segment.file_paths() if path.exists()}
    assert len(synced) == 3


def test_no_file_stays_open(tmp_path: Path) -> None:
    cleaned = CleanedSegments(tmp_path, 10, LIMITS, Spent())
    cleaned.add(batch_at(10))
    cleaned.finish(NEWEST_NS)
    held = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert not [path for path in held if path.startswith(str(tmp_path))]
