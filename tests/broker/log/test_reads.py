"""Reads: which bytes they return, how few system calls they need, and offsets by time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from log_folders import StandIn, data_batch, open_files_in, open_log, read_all, recorded_copy, values_of
from time_lookups import offset_for_timestamp, offset_of_max_timestamp

from engine.broker.log.active_segment import POSITIONS_MAX, ActiveSegment
from engine.broker.log.file_range import read_fully
from engine.broker.log.log import Log
from engine.broker.log.log_times import earliest_offset, segment_offsets_before, step_by_time
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.header import iter_batches

SIZE = len(data_batch(b"x" * 50))


def filled(folder: Path, count: int = 10, per_segment: int = 4) -> Log:
    log = open_log(folder, LogConfig(segment_bytes=per_segment * SIZE, index_interval_bytes=SIZE))
    for n in range(count):
        log.append_as_leader(data_batch(b"%02d" % n + b"x" * 48, timestamp_ms=1000 + 10 * n), 0)
    log.update_high_watermark(count)
    return log


def test_a_read_goes_to_the_end_of_a_segment_or_to_the_limit(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    for offset, limit, count in ((0, 10, 4), (2, 10, 2), (4, 10, 4), (9, 10, 1), (0, 3, 3), (5, 6, 1), (8, 10, 2)):
        read = log.read(offset, 10_000, limit_offset=limit, min_one_batch=True)
        assert read.size_bytes == count * SIZE, (offset, limit)
        assert read.position == log.position_of(offset)
        assert read.records is not None
        assert next(iter_batches(read.records.read()))[1].base_offset == offset
    for offset, limit in ((10, 10), (5, 5), (7, 3)):
        assert log.read(offset, 10_000, limit_offset=limit, min_one_batch=True).records is None


def test_max_bytes_cuts_within_a_batch_but_the_first_comes_whole_if_wanted(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    assert log.read(0, SIZE + 10, limit_offset=10, min_one_batch=True).size_bytes == SIZE + 10
    whole = log.read(0, 10, limit_offset=10, min_one_batch=True)
    assert (whole.size_bytes, whole.is_first_batch_incomplete) == (SIZE, False)
    part = log.read(0, 10, limit_offset=10, min_one_batch=False)
    assert (part.size_bytes, part.is_first_batch_incomplete) == (10, True)
    assert log.read(0, 0, limit_offset=10, min_one_batch=False).records is None
    assert log.read(0, 0, limit_offset=10, min_one_batch=True).size_bytes == SIZE


def test_an_offset_within_a_batch_reads_the_whole_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"a", b"b", b"c"), 0)
    log.append_as_leader(data_batch(b"d"), 0)
    read = log.read(2, 10_000, limit_offset=4, min_one_batch=True)
    assert read.position.position == 0
    assert values_of(log, 2) == [(2, b"c"), (3, b"d")]


def test_where_an_offset_is(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    assert log.position_of(10) == (8, 2 * SIZE)
    with pytest.raises(KafkaError) as caught:
        log.position_of(11)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_that_keeps_up_costs_no_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path / "t-0", count=1, per_segment=1000)
    log.read(0, 10_000, limit_offset=1, min_one_batch=True)
    calls: list[str] = []
    for name in ("pread", "open", "stat"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, real=real, name=name, **kw: calls.append(name) or real(*args, **kw))
    for end in range(1, 20):
        for _ in range(3):
            log.append_as_leader(data_batch(b"x" * 50), 0)
        first = 1 + 3 * (end - 1)
        assert log.read(first, 10_000, limit_offset=first + 3, min_one_batch=True).size_bytes == 3 * SIZE
        assert log.read(first + 3, 10_000, limit_offset=first + 3, min_one_batch=True).records is None
    # A second reader stays at the high watermark, behind replicas that fetch up to the end.
    assert log.read(4, 10_000, limit_offset=7, min_one_batch=True).size_bytes == 3 * SIZE
    assert calls == []


def test_idle_files_are_closed_and_opened_again(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0", count=40)
    read_all(log)
    assert open_files_in(tmp_path) == 10
    log.release_idle_files()
    assert open_files_in(tmp_path) == 10, "used since the last call"
    log.release_idle_files()
    assert open_files_in(tmp_path) == 0
    assert [offset for offset, _ in values_of(log)] == list(range(40))
    log.append_as_leader(data_batch(b"after"), 0)
    assert values_of(log, 40) == [(40, b"after")]


def test_a_range_outlives_truncation_of_what_follows(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    read = log.read(8, SIZE, limit_offset=10, min_one_batch=True)
    assert read.records is not None
    expected = read.records.read()
    log.truncate_to(9)
    assert read.records.read() == expected


def test_offsets_by_time(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    for timestamp_ms, offset in ((0, 0), (1000, 0), (1001, 1), (1035, 4), (1090, 9)):
        offset_found = offset_for_timestamp(log, timestamp_ms)
        assert offset_found is not None
        assert (offset_found.offset, offset_found.timestamp_ms, offset_found.leader_epoch) == (
            offset,
            1000 + 10 * offset,
            0,
        )
    assert offset_for_timestamp(log, 1091) is None
    log.increment_log_start_offset(6)
    offset_found = offset_for_timestamp(log, 0)
    assert offset_found is not None
    assert offset_found.offset == 6
    assert earliest_offset(log) == (6, -1, 0)
    assert offset_of_max_timestamp(log) == (9, 1090, 0)


def test_the_first_record_of_a_time_within_a_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"a", b"b", b"c", timestamp_ms=100), 4)
    assert offset_for_timestamp(log, 101) == (1, 101, 4)
    assert offset_of_max_timestamp(log) == (2, 102, 4)


def test_a_long_search_goes_on_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many older records follow the newest one, so no index entry tells where a time in between begins."""
    monkeypatch.setattr("engine.broker.log.log_times.HEADERS_AT_ONCE_MAX", 3)
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=20 * SIZE))
    for timestamp_ms in (100, *range(1, 30), 150, *range(30, 50), 120):
        log.append_as_leader(data_batch(b"x" * 50, timestamp_ms=timestamp_ms), 0)
    assert offset_for_timestamp(log, 110) == (30, 150, 0)
    assert offset_for_timestamp(log, 151) is None
    step = step_by_time(log, 110, 0)
    assert step is not None
    assert step.batch is None


def test_an_empty_log_has_no_times(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    assert offset_for_timestamp(log, 0) is None
    assert offset_of_max_timestamp(log) is None
    assert earliest_offset(log) == (0, -1, None)
    assert segment_offsets_before(log, -1, 10, now_ms=0) == [0]


def test_where_no_record_has_a_time_the_first_one_has_the_largest(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(2):
        log.append_as_leader(data_batch(b"x", timestamp_ms=-1), 0)
    assert offset_of_max_timestamp(log) == (0, -1, 0)


def test_times_of_kafkas_old_formats(tmp_path: Path) -> None:
    """Messages of v0 have none; those of v1 do, even inside a compressed wrapper."""
    log_dir = recorded_copy("formats-mixed", tmp_path / "data")
    old = open_log(log_dir / "v0-lz4-0")
    assert offset_of_max_timestamp(old) is None
    for name in ("v1-none-0", "v1-gzip-0", "v1-snappy-0"):
        log = open_log(log_dir / name)
        newest = offset_of_max_timestamp(log)
        assert newest is not None
        assert offset_for_timestamp(log, newest.timestamp_ms) == newest


def test_segment_offsets_for_the_first_version_of_list_offsets(tmp_path: Path) -> None:
    environment = StandIn()
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=4 * SIZE), environment)
    for n in range(10):
        log.append_as_leader(data_batch(b"x" * 50, timestamp_ms=n), 0)
    now_ms = environment.clock.now_ms()
    for index, segment in enumerate(log.segments):
        os.utime(segment.path, ns=(0, (1_000 + 1_000 * index) * 1_000_000))
    assert segment_offsets_before(log, -1, 10, now_ms) == [10, 8, 4, 0]
    assert segment_offsets_before(log, -1, 2, now_ms) == [10, 8]
    assert segment_offsets_before(log, -2, 10, now_ms) == [0]
    assert segment_offsets_before(log, 2_500, 10, now_ms) == [4, 0]
    assert segment_offsets_before(log, 2_500, 1, now_ms) == [4]
    assert segment_offsets_before(log, 999, 10, now_ms) == []
    assert segment_offsets_before(log, -1, 0, now_ms) == []


def test_positions_are_remembered_for_a_bounded_number_of_offsets(tmp_path: Path) -> None:
    active = ActiveSegment(open_log(tmp_path / "t-0").active_segment, LogConfig())
    offsets = range(POSITIONS_MAX + 1)
    for offset in offsets:
        active.remember(offset, offset * 100)
    known = [offset for offset in offsets if active.known_position(offset) >= 0]
    assert known[-1] == POSITIONS_MAX
    assert len(known) <= POSITIONS_MAX
    assert all(active.known_position(offset) == offset * 100 for offset in known)


def test_a_range_is_read_whole_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may return less than was asked for. If the file ends early, only this partition is refused."""
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(100)))
    with path.open("rb") as file:
        pread, sizes = os.pread, iter([7, 1, 30])
        monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, next(sizes, size)), at))
        assert read_fully(file.fileno(), 10, 60) == bytes(range(10, 70))
        with pytest.raises(KafkaError, match="ends 20 bytes before the end of a range") as caught:
            read_fully(file.fileno(), 60, 60)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_an_index_that_was_cut_by_somebody_refuses_only_its_own_partition(tmp_path: Path) -> None:
    """An error without a code would fail the Fetch of all its partitions."""
    log = filled(tmp_path / "t-0", count=40, per_segment=1000)
    log.close()
    log = open_log(tmp_path / "t-0", log.config)
    os.truncate(log.segments[0].path.with_suffix(".index"), 8)
    with pytest.raises(KafkaError) as caught:
        log.position_of(20)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
