"""What the next flush writes to the disk, and when it is due, after the log has rolled, moved or been cut."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_folders import data_batch, open_log

from engine.broker.log.log import Log
from engine.kafka.config.log_config import LogConfig


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the names of what a flush writes to the disk."""
    names: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: names.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))
        yield names


def appended(log: Log, count: int) -> Log:
    for _ in range(count):
        log.append_as_leader(data_batch(b"x"), 0)
    log.update_high_watermark(log.log_end_offset)
    return log


def log_of(folder: Path, count: int, flush_messages: int = 3) -> Log:
    return appended(open_log(folder, LogConfig(flush_messages=flush_messages)), count)


def test_the_indexes_of_a_rolled_segment_go_along_though_its_records_are_there(
    tmp_path: Path, synced: list[str]
) -> None:
    log = log_of(tmp_path / "t-0", 2)
    for base_offset in (0, 2):
        log.flush()
        assert f"{base_offset:020d}.index" not in synced
        log.roll()
        log.flush()
        assert {f"{base_offset:020d}.index", f"{base_offset:020d}.timeindex"} <= set(synced)
        appended(log, 1)


def test_a_snapshot_is_brought_to_the_disk_again_after_a_rename(tmp_path: Path, synced: list[str]) -> None:
    log = log_of(tmp_path / "t-0", 2)
    log.roll()
    log.flush()
    assert f"{2:020d}.snapshot" in synced
    synced.clear()
    log.rename_dir("t-1")
    log.flush()
    assert {f"{2:020d}.snapshot", "t-1", tmp_path.name} <= set(synced)


def test_the_end_of_a_log_that_was_cut_is_flushed_until_a_flush_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[str]
) -> None:
    log = log_of(tmp_path / "t-0", 3)
    log.flush()
    log.truncate_to(2)
    assert log.unflushed_records == 0
    job = log.begin_flush()
    assert job is not None

    def no_descriptor(fd: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_descriptor)
        job.run()
    job.finish()
    synced.clear()
    log.flush()
    assert f"{0:020d}.log" in synced


def test_flush_messages_count_from_a_start_that_moved(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 2)
    log.increment_log_start_offset(2)
    assert not appended(log, 2).is_flush_due
    assert appended(log, 1).is_flush_due


def test_flush_messages_count_from_a_cut(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 4)
    log.flush()
    log.truncate_to(1)
    assert not appended(log, 2).is_flush_due
    assert appended(log, 1).is_flush_due


def test_flush_messages_count_from_where_a_log_begins_anew(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 2)
    log.truncate_fully_and_start_at(100)
    assert log.recovery_point == 100
    assert not appended(log, 2).is_flush_due
    assert appended(log, 1).is_flush_due
