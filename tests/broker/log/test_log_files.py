"""The files of a log's segments: earlier files, open files, and when the folder needs a flush."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from log_folders import data_batch, open_log

from engine.broker.log.log import Log
from engine.broker.log.segment_swap import NewSegment
from engine.common.errors import KafkaError, StorageError
from engine.kafka.config.log_config import LogConfig


def log_of(folder: Path, config: LogConfig | None = None) -> Log:
    """Return a log of three segments with one record each, all flushed to the disk."""
    log = open_log(folder, config or LogConfig(retention_ms=-1))
    for n in range(3):
        log.append_as_leader(data_batch(b"v%d" % n), 0)
        if n < 2:
            log.roll()
    log.update_high_watermark(3)
    log.flush()
    assert not log.folder.is_unsynced
    return log


def open_files(folder: Path) -> list[str]:
    links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists()]
    return [link for link in links if link.startswith(str(folder))]


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "txnindex"])
def test_a_new_segment_has_nothing_of_files_that_were_there(tmp_path: Path, suffix: str) -> None:
    log = log_of(tmp_path / "t-0")
    leftover = log.dir / f"{3:020d}.{suffix}"
    leftover.write_bytes(b"\1" * 68)
    log.roll()
    assert not leftover.exists() or b"\1" not in leftover.read_bytes()
    assert log.active_segment.path.stat().st_size == 0
    assert log.collect_aborted_transactions(0, 9) == []


def test_a_folder_needs_a_flush_after_each_change_of_its_names(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0")
    log.roll()
    assert log.folder.is_unsynced
    log.flush()
    log.increment_log_start_offset(1)
    assert not log.folder.is_unsynced
    assert log.delete_old_segments(0) == 1
    assert log.folder.is_unsynced


def test_what_leaves_a_log_holds_no_descriptor(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0")
    segments = log.segments
    for segment in segments:
        segment.file()
    assert len(open_files(tmp_path)) == 3
    log.increment_log_start_offset(2)
    assert log.delete_old_segments(0) == 2
    assert open_files(tmp_path) == [str(log.active_segment.path)]
    log.abandon()
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("size_bytes", [None, 1])
def test_a_cleaned_segment_that_is_not_what_was_reported_is_not_taken(tmp_path: Path, size_bytes: int | None) -> None:
    log = log_of(tmp_path / "t-0")
    first = log.segments[0]
    cleaned = log.dir / f"{0:020d}.log.cleaned"
    if size_bytes is not None:
        cleaned.write_bytes(bytes(size_bytes))
    with pytest.raises((KafkaError, StorageError)):
        log.replace_segments([first], [NewSegment(0, first.size_bytes, has_transaction_index=False)])
    assert log.segments[0] is first
    assert first.path.exists()


def test_a_folder_needs_a_flush_after_a_swap(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0")
    first = log.segments[0]
    (log.dir / f"{0:020d}.log.cleaned").write_bytes(first.path.read_bytes())
    log.replace_segments([first], [NewSegment(0, first.size_bytes, has_transaction_index=False)])
    assert log.folder.is_unsynced


def test_a_log_that_is_closed_keeps_no_room_and_no_descriptor(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", LogConfig(segment_index_bytes=240, preallocate=True, segment_bytes=4096))
    log.close()
    sizes = {path.name: path.stat().st_size for path in log.dir.iterdir() if path.suffix in (".log", ".index")}
    assert sizes[f"{2:020d}.log"] == log.active_segment.size_bytes
    assert sizes[f"{2:020d}.index"] == 0
    assert open_files(tmp_path) == []


def test_nothing_is_replaced_in_a_failed_log_dir(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0")
    first = log.segments[0]
    (log.dir / f"{0:020d}.log.cleaned").write_bytes(first.path.read_bytes())
    log.folder.is_offline = True
    with pytest.raises(KafkaError):
        log.replace_segments([first], [NewSegment(0, first.size_bytes, has_transaction_index=False)])
    assert log.segments[0] is first
