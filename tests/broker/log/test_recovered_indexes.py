"""A segment's indexes after a recovery hold no old entry and no spare room, and reach the disk."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from log_folders import data_batch, folder_content, open_log

from engine.broker.log.log import Log
from engine.broker.log.segment_swap import swap_in
from engine.kafka.config.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=80, segment_index_bytes=240)
FIRST = f"{0:020d}"


def batch(number: int) -> memoryview:
    return data_batch(b"%03d" % number + b"x" * 40, timestamp_ms=1000 + number // 2)


def filled(folder: Path, config: LogConfig = CONFIG) -> Log:
    """Make a log of several segments whose files are as a clean shutdown leaves them."""
    log = open_log(folder, config)
    for n in range(30):
        log.append_as_leader(batch(n), 0)
    assert len(log.segments) > 3
    log.flush()
    log.close()
    return log


def rolled_indexes(log: Log) -> dict[str, bytes]:
    """Return the index files of all segments but the active one. Each is trimmed to its entries."""
    active = f"{log.segments[-1].base_offset:020d}"
    return {name: data for name, data in folder_content(log.dir, "index").items() if not name.startswith(active)}


@pytest.mark.parametrize("interval_bytes", [80, len(batch(0)), 4096])
def test_no_entry_of_an_index_outlives_the_recovery_of_its_segment(tmp_path: Path, interval_bytes: int) -> None:
    """A crash may leave anything in them: here they hold entries of records that are not in the log."""
    config = replace(CONFIG, index_interval_bytes=interval_bytes)
    log = filled(tmp_path / "t-0", config)
    expected = rolled_indexes(log)
    (log.dir / f"{FIRST}.timeindex").write_bytes(struct.pack(">qi", 900_000, 1) + struct.pack(">qi", 900_001, 2))
    (log.dir / f"{FIRST}.index").write_bytes(struct.pack(">ii", 1, 3) + struct.pack(">ii", 3, 77))
    again = open_log(log.dir, config, clean=False)
    assert rolled_indexes(again) == expected
    assert again.segments[0].time_index.last_entry.timestamp_ms == 1000 + (again.segments[1].base_offset - 1) // 2


def test_a_recovered_segment_has_room_for_more(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", CONFIG)
    log.append_as_leader(data_batch(b"a"), 0)
    log.abandon()
    again = open_log(log.dir, CONFIG, clean=False)
    again.append_as_leader(data_batch(b"b"), 0)
    assert len(again.segments) == 1


@pytest.mark.parametrize("lost", ["index", "txnindex"])
def test_indexes_that_were_rebuilt_after_an_orderly_stop_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """All records are on the disk, so no crash would cause the indexes to be rebuilt."""
    log = filled(tmp_path / "t-0")
    if lost == "index":
        (log.dir / f"{FIRST}.index").unlink()
    else:
        # The index ends before the segment does.
        (log.dir / f"{FIRST}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 0, -1, 0))
    again = open_log(log.dir, CONFIG, recovery_point=log.log_end_offset)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))
    again.flush()
    assert {f"{FIRST}.index", f"{FIRST}.timeindex"} <= set(synced)


def test_segments_that_were_replaced_hold_no_descriptor(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    old = log.segments[0]
    old.file()
    paths = swap_in([], [old])
    links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert [link for link in links if link.startswith(str(tmp_path))] == []
    assert all(path.name.endswith(".deleted") for path in paths)
