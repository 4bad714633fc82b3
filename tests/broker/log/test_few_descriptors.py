"""A process with no file descriptor left: calls that need one fail now and work later, and no log dir fails."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from log_folders import (
    NOW_MS,
    TOPIC_ID,
    ManagedLogs,
    data_batch,
    open_files_in,
    open_log,
    values_of,
    write_checkpoints,
)

from engine.broker.log.disk_jobs import run_jobs
from engine.broker.log.log import Log
from engine.common.errors import ErrorCode, KafkaError, StorageError
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import HIGH_WATERMARK_CHECKPOINT
from engine.runtime import descriptors
from engine.runtime.descriptors import DescriptorReserve, descriptors_for_sockets, open_file

TP = TopicPartition("t", 0)


class Shortage:
    """Replaces ``os.open``: during the shortage only ``left`` more files can be opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1 << 30
        self._real = os.open
        monkeypatch.setattr(os, "open", self._open)

    def _open(self, *arguments: Any, **options: Any) -> int:
        if self.left <= 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.left -= 1
        return self._real(*arguments, **options)


@pytest.fixture
def shortage(monkeypatch: pytest.MonkeyPatch) -> Shortage:
    return Shortage(monkeypatch)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ManagedLogs]:
    made = ManagedLogs(tmp_path / "d", config=LogConfig(segment_bytes=400, index_interval_bytes=0)).loaded()
    yield made
    made.logs.release()


def refused(what: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as caught:
        what()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def write(log: Log, count: int = 1, leader_epoch: int = 0) -> None:
    for _ in range(count):
        log.append_as_leader(data_batch(b"v" * 50, timestamp_ms=NOW_MS), leader_epoch)


@pytest.mark.parametrize("left", range(8))
def test_whatever_an_append_has_no_file_for_it_is_refused_whole_or_done(
    broker: ManagedLogs, shortage: Shortage, left: int
) -> None:
    """New leader epochs, indexes, rolls: wherever the shortage begins, the next append works as usual."""
    broker.create(TP)
    log = broker.logs.logs[TP]
    written = 1
    for round_number in range(6):
        broker.logs.close_files()
        shortage.left = left
        for _ in range(3):
            try:
                write(log, leader_epoch=round_number)
                written += 1
            except KafkaError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        shortage.left = 1 << 30
        write(log, leader_epoch=round_number)
        written += 1
    assert broker.failed == []
    assert log.log_end_offset == written
    assert [offset for offset, _ in values_of(log)] == list(range(written))
    assert log.leader_epochs.latest_epoch == 5
    expected = (log.leader_epochs.entries, values_of(log))
    broker.logs.release()
    again = open_log(log.dir, clean=False)
    assert (again.leader_epochs.entries, values_of(again)) == expected


def test_a_flush_that_had_no_file_is_refused_and_succeeds_later(broker: ManagedLogs, shortage: Shortage) -> None:
    broker.create(TP)
    log = broker.logs.logs[TP]
    job = log.begin_flush()
    assert job is not None
    shortage.left = 0
    job.run()
    job.finish()
    refused(job.raise_error)
    assert (log.recovery_point, log.leader_epochs.is_unsynced) == (0, True)
    shortage.left = 1 << 30
    log.flush()
    assert log.recovery_point == 1
    assert broker.failed == []


@pytest.mark.parametrize("left", range(6))
def test_of_the_snapshots_whose_flush_had_no_file_only_the_newest_is_needed(
    tmp_path: Path, shortage: Shortage, left: int
) -> None:
    """Only the newest is sure to reach the disk after such a flush.

    If a power failure takes one of the others, the start notices, and reads the log instead.
    """
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=400))
    for n in range(10):
        log.append_as_leader(data_batch(b"v" * 50, timestamp_ms=NOW_MS, producer=(1, 0, n)), 0)
    shortage.left = left
    with pytest.raises(KafkaError):
        log.flush()
    shortage.left = 1 << 30
    log.flush()
    assert log.recovery_point == 10
    *older, newest = sorted(log.dir.glob("*.snapshot"))
    assert older and newest.stat().st_size
    for path in older:
        path.write_bytes(b"")
    again = open_log(log.dir, LogConfig(segment_bytes=400), clean=False)
    again.truncate_to(4)
    refused_with = []
    for sequence in (9, 5):
        with pytest.raises(KafkaError) as caught:
            again.append_as_leader(data_batch(b"x", timestamp_ms=NOW_MS, producer=(1, 0, sequence)), 0)
        refused_with.append(caught.value.code)
    assert refused_with == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2
    assert again.append_as_leader(data_batch(b"x", timestamp_ms=NOW_MS, producer=(1, 0, 4)), 0).last_offset == 4
    again.close()
    log.close()


def test_checkpoints_removals_and_new_logs_wait_for_descriptors(broker: ManagedLogs, shortage: Shortage) -> None:
    broker.create(TP)
    write_checkpoints(broker.logs)
    shortage.left = 0
    broker.logs.delete(TP)
    forgetting = broker.logs.forgetting_jobs([TP])
    run_jobs(forgetting)
    assert [job.error is None for job in forgetting] == [False] * len(forgetting) != []
    refused(lambda: broker.logs.get_or_create(TP, topic_id=TOPIC_ID, is_new=True))
    run_jobs(broker.logs.checkpoint_jobs(HIGH_WATERMARK_CHECKPOINT))
    shortage.left = 1 << 30
    broker.create(TP)
    assert broker.logs.logs[TP].log_end_offset == 1
    assert broker.failed == []


def test_a_stop_that_cannot_close_a_log_is_not_called_clean(
    broker: ManagedLogs, shortage: Shortage, tmp_path: Path
) -> None:
    """The next start recovers the log: the disk may have only a part of it."""
    broker.create(TP)
    shortage.left = 0
    broker.logs.shutdown()
    assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists()


def test_records_are_stored_while_their_indexes_cannot_be_written(tmp_path: Path, shortage: Shortage) -> None:
    """Entries that are missing only make a search longer. Entries wait in memory, about a hundred of them."""
    log = open_log(tmp_path / "t-0", LogConfig(index_interval_bytes=0))
    write(log)
    shortage.left = 0
    for number in range(300):
        log.append_as_leader(data_batch(b"v", timestamp_ms=NOW_MS + number), 0)
    shortage.left = 1 << 30
    write(log)
    log.close()
    again = open_log(log.dir, log.config)
    assert [offset for offset, _ in values_of(again)] == list(range(302))
    assert [values_of(again, offset)[0][0] for offset in (90, 150, 300, 301)] == [90, 150, 300, 301]
    again.close()


def test_closed_files_make_room_for_others(broker: ManagedLogs, tmp_path: Path) -> None:
    broker.create(TP)
    assert open_files_in(tmp_path) > 1
    broker.logs.close_files()
    assert open_files_in(tmp_path) == 1, "the lock"
    assert values_of(broker.logs.logs[TP]) == [(0, b"0")]


def test_the_spares_are_there_for_a_new_log_too(
    monkeypatch: pytest.MonkeyPatch, broker: ManagedLogs, tmp_path: Path
) -> None:
    reserve = DescriptorReserve()
    monkeypatch.setattr(descriptors, "RESERVE", reserve)
    reserve.start(broker.logs.close_files)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(tmp_path, os.O_RDONLY)
    os.close(lowest_free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        broker.create(TP)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        reserve.stop()
    assert values_of(broker.logs.logs[TP]) == [(0, b"0")]


def test_too_few_descriptors_to_open_the_logs_end_the_start(
    broker: ManagedLogs, shortage: Shortage, tmp_path: Path
) -> None:
    """A dir whose logs could not be opened must not count as empty."""
    broker.create(TP)
    broker.logs.shutdown()
    again = ManagedLogs(tmp_path / "d")
    (tmp_path / "d" / ".kafka_cleanshutdown").unlink()
    shortage.left = 0
    with pytest.raises(StorageError, match="Too few file descriptors"):
        again.logs.load()
    shortage.left = 1 << 30
    again.logs.release()


def test_a_spare_or_a_file_that_nobody_reads_makes_room(
    monkeypatch: pytest.MonkeyPatch, shortage: Shortage, tmp_path: Path
) -> None:
    relieved: list[int] = []

    def relieve() -> None:
        relieved.append(shortage.left)
        shortage.left += 1

    reserve = DescriptorReserve()
    monkeypatch.setattr(descriptors, "RESERVE", reserve)
    reserve.start(relieve)
    real_close = os.close

    def close(fd: int) -> None:
        real_close(fd)
        shortage.left += 1

    monkeypatch.setattr(os, "close", close)
    shortage.left = 0
    path = tmp_path / "f"
    flags = os.O_RDWR | os.O_CREAT
    opened = [open_file(path, flags) for _ in range(descriptors.SPARES)]
    assert relieved == []
    opened.append(open_file(path, flags))
    assert relieved == [0]
    in_thread: list[int] = []
    thread = threading.Thread(target=lambda: in_thread.append(open_file(path, flags)))
    thread.start()
    real_close(opened.pop())
    shortage.left = 1
    thread.join(20)
    assert relieved == [0] and len(in_thread) == 1
    reserve.stop()
    for fd in [*opened, *in_thread]:
        real_close(fd)


def test_half_of_a_small_limit_is_for_files() -> None:
    assert [descriptors_for_sockets(limit) for limit in (200, 1024, 4096, 1 << 20)] == [100, 768, 3072, 786_432]
