"""Disks that are full or broken: no half-written record is served, the log dir goes offline, the others continue."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from log_folders import StandIn, data_batch, marker_batch, open_log, read_all, values_of
from time_lookups import offset_for_timestamp, offset_of_max_timestamp

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.log import Log
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig


class FullDisk:
    """Replaces ``os.pwrite``: accepts ``room`` more bytes, cuts the last write short, then raises ENOSPC."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._real = os.pwrite

    def __call__(self, fd: int, data: bytes, position: int) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = memoryview(data)[: self.room]
        self.room -= len(taken)
        return self._real(fd, taken, position)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Log, StandIn]]:
    environment = StandIn()
    yield open_log(tmp_path / "t-0", LogConfig(index_interval_bytes=0), environment), environment


@pytest.mark.parametrize("room", [0, 1, 60, 100])
def test_a_full_disk_leaves_no_half_batch(
    opened: tuple[Log, StandIn], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    log, environment = opened
    log.append_as_leader(data_batch(b"kept"), 0)
    before = read_all(log)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", FullDisk(room))
        with pytest.raises(KafkaError) as caught:
            log.append_as_leader(data_batch(b"x" * 100), 0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "No space left on device" in str(caught.value)
    assert [path for path, _ in environment.failures] == [log.log_dir]
    assert (log.log_end_offset, log.segments[0].path.read_bytes()) == (1, before)
    assert values_of(open_log(log.dir, clean=False)) == [(0, b"kept")]


def test_a_short_write_that_goes_on_is_a_write(opened: tuple[Log, StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    log, environment = opened
    real, sizes = os.pwrite, iter([7, 13, 1])
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, memoryview(data)[: next(sizes, None)], at))
    log.append_as_leader(data_batch(b"whole"), 0)
    assert values_of(log) == [(0, b"whole")]
    assert environment.failures == []


def test_a_disk_that_breaks_in_a_followers_append(opened: tuple[Log, StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    log, environment = opened
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", FullDisk(100))
        with pytest.raises(KafkaError) as caught:
            log.append_as_follower(data_batch(b"x" * 100))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.segments[0].path.stat().st_size == 0
    assert environment.failures


def test_a_folder_that_vanishes(opened: tuple[Log, StandIn]) -> None:
    """Whatever needs a new file fails with an error. What needs only the open file still works, as with any file."""
    log, environment = opened
    log.append_as_leader(data_batch(b"a"), 0)
    log.dir.rename(log.dir.with_name("elsewhere"))
    for attempt in (log.roll, lambda: log.append_as_leader(data_batch(b"b"), 1), log.close):
        with pytest.raises(KafkaError) as caught:
            attempt()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(environment.failures) == 3


def test_an_aborted_transaction_that_cannot_be_noted(
    opened: tuple[Log, StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, environment = opened
    log.append_as_leader(data_batch(b"a", producer=(1, 0, 0), transactional=True), 0)
    marker = marker_batch(1, 0, commit=False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", FullDisk(len(marker)))
        with pytest.raises(KafkaError) as caught:
            log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert environment.failures


def test_a_flush_that_fails_does_not_move_the_recovery_point(
    opened: tuple[Log, StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, environment = opened
    log.append_as_leader(data_batch(b"a"), 0)
    job = log.begin_flush()
    assert job is not None

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        job.run()
    assert environment.failures == []
    job.finish()
    assert log.recovery_point == 0
    assert "Input/output error" in environment.failures[0][1]


def test_of_two_flushes_at_once_both_fail(opened: tuple[Log, StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reports the error to only one of them."""
    log, environment = opened
    log.append_as_leader(data_batch(b"a"), 0)
    first, second = log.begin_flush(), log.begin_flush()
    assert first is not None and second is not None
    errors = iter([OSError(errno.EIO, os.strerror(errno.EIO))])

    def broken_once(fd: int) -> None:
        for error in errors:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken_once)
        first.run()
        second.run()
    second.finish()
    first.finish()
    assert log.recovery_point == 0
    assert len(environment.failures) == 2
    with pytest.raises(KafkaError) as caught:
        second.raise_error()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert str(caught.value).endswith(f"in dir {log.log_dir}: Input/output error")


def test_an_offline_log_refuses_all_that_needs_the_disk(opened: tuple[Log, StandIn]) -> None:
    log, _ = opened
    log.append_as_leader(data_batch(b"a"), 0)
    log.update_high_watermark(1)
    log.abandon()
    attempts = [
        lambda: log.append_as_leader(data_batch(b"b"), 0),
        lambda: log.append_as_follower(data_batch(b"b")),
        lambda: log.position_of(0),
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(0),
        lambda: log.increment_log_start_offset(1),
        lambda: log.delete_old_segments(0),
        lambda: offset_for_timestamp(log, 0),
        lambda: offset_of_max_timestamp(log),
        lambda: log.begin_flush(),
        lambda: log.close(),
    ]
    log._active.replace(log.active_segment)
    for attempt in attempts:
        with pytest.raises(KafkaError) as caught:
            attempt()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def _position(opened: Log) -> object:
    return opened.position_of(0)


def _whole_segment(opened: Log) -> object:
    return opened.read(0, 10_000, limit_offset=1, min_one_batch=True)


def _end_of_the_log(opened: Log) -> object:
    return opened.read(2, 10_000, limit_offset=3, min_one_batch=True)


def _part_of_a_batch(opened: Log) -> object:
    return opened.read(2, 10, limit_offset=3, min_one_batch=True)


def _aborted_transactions(opened: Log) -> object:
    return opened.collect_aborted_transactions(0, 3)


@pytest.mark.parametrize("read", [_position, _whole_segment, _end_of_the_log, _part_of_a_batch, _aborted_transactions])
def test_a_log_that_cannot_open_its_files_takes_the_log_dir_offline(
    opened: tuple[Log, StandIn], monkeypatch: pytest.MonkeyPatch, read: Callable[[Log], object]
) -> None:
    """Files that nobody has used for a while are closed. A broker that cannot open them again must not stay leader."""
    log, environment = opened
    log.append_as_leader(data_batch(b"a", producer=(1, 0, 0), transactional=True), 0)
    log.append_as_leader(marker_batch(1, 0, commit=False), 0, origin=AppendOrigin.COORDINATOR)
    log.append_as_leader(data_batch(b"b" * 100), 0)
    for _ in range(2):
        log.release_idle_files()

    def broken(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", broken)
        patch.setattr(Path, "read_bytes", broken)
        with pytest.raises(KafkaError) as caught:
            read(log)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [path for path, _ in environment.failures] == [log.log_dir]
    read(log)
