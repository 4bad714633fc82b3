"""Starts after a crash: torn tails, lost and damaged indexes, interrupted cleaning, and what a flush promises."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forgetful_disk import MIXED, Disk, Stopped, write_image
from log_folders import NOW_MS, StandIn, data_batch, folder_content, marker_batch, open_log, recorded_copy, values_of
from time_lookups import offset_of_max_timestamp

from engine.broker.log import batch_scan, segment_recovery
from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.environment import LoadingStopped
from engine.broker.log.log import Log
from engine.kafka.config.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=80, segment_index_bytes=240)


COMPACTED = replace(CONFIG, cleanup_policy=("compact",))


def filled(folder: Path, count: int = 12, environment: StandIn | None = None) -> Log:
    log = open_log(folder, CONFIG, environment)
    for n in range(count):
        log.append_as_leader(data_batch(b"%03d" % n + b"x" * 40, timestamp_ms=1000 + n), n // 5)
    return log


def crashed(log: Log, *, recovery_point: int = 0, log_start_offset: int = 0) -> Log:
    log.abandon()
    return open_log(log.dir, log.config, recovery_point=recovery_point, log_start_offset=log_start_offset, clean=False)


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    expected = values_of(log)
    files = folder_content(log.dir, ".log")
    again = crashed(log)
    assert values_of(again) == expected
    assert folder_content(log.dir, ".log") == files
    assert again.leader_epochs.entries == ((0, 0), (1, 5), (2, 10))
    assert offset_of_max_timestamp(again) == (11, 1011, 2)


@pytest.mark.parametrize("producer_id", [0, 1000])
def test_after_a_crash_a_producers_last_five_batches_are_known(tmp_path: Path, producer_id: int) -> None:
    """A snapshot keeps only the last one, and a producer resends all that were not answered."""
    log = open_log(tmp_path / "orders-0")
    for sequence in range(7):
        log.append_as_leader(data_batch(b"v", producer=(producer_id, 0, sequence), timestamp_ms=NOW_MS), 0)
    again = crashed(log)
    for sequence in range(2, 7):
        result = again.append_as_leader(data_batch(b"v", producer=(producer_id, 0, sequence), timestamp_ms=NOW_MS), 0)
        assert (result.is_duplicate, result.first_offset) == (True, sequence)
    assert (
        again.append_as_leader(data_batch(b"v", producer=(producer_id, 0, 7), timestamp_ms=NOW_MS), 0).first_offset == 7
    )
    assert again.last_stable_offset == again.high_watermark


def test_after_a_crash_a_finished_transaction_holds_nothing_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    log.append_as_leader(data_batch(b"v", producer=(1000, 0, 0), timestamp_ms=NOW_MS, transactional=True), 0)
    log.append_as_leader(marker_batch(1000, 0, commit=True, timestamp_ms=NOW_MS), 0, origin=AppendOrigin.COORDINATOR)
    again = crashed(log)
    assert again.producers.first_unstable_offset is None
    again.update_high_watermark(again.log_end_offset)
    assert again.last_stable_offset == 2


class Ending(StandIn):
    """A broker that must stop once this many batches are recovered."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self._batches = batches

    @property
    def is_stopping(self) -> bool:
        self._batches -= 1
        return self._batches < 0

    @is_stopping.setter
    def is_stopping(self, _: bool) -> None:
        """The initial value of the stand-in does not matter."""


def test_a_recovery_ends_when_the_broker_is_to_end_and_the_next_one_finds_everything(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    expected, files = values_of(log), folder_content(log.dir, ".log")
    log.abandon()
    for batches in (0, 3, 11):
        with pytest.raises(LoadingStopped, match="t-0"):
            open_log(log.dir, log.config, Ending(batches), clean=False)
        assert folder_content(log.dir, ".log") == files
    assert values_of(open_log(log.dir, log.config, clean=False)) == expected


@pytest.mark.parametrize("lost_bytes", [1, 60, 104, 105, 150])
def test_a_torn_tail_is_cut(tmp_path: Path, lost_bytes: int) -> None:
    log = filled(tmp_path / "t-0", count=3)
    path = log.segments[-1].path
    path.write_bytes(path.read_bytes()[:-lost_bytes])
    again = crashed(log)
    left = 3 - -(-lost_bytes // (log.size_bytes // 3))
    assert again.log_end_offset == left
    assert path.stat().st_size == again.size_bytes
    assert again.append_as_leader(data_batch(b"next"), 7).first_offset == left


@pytest.mark.parametrize("chunk_bytes", [61, 100, 333, 500, 2000])
@pytest.mark.parametrize("damaged", [None, 0, 2, 3, 5])
def test_batches_that_lie_in_several_chunks_are_checked_as_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, damaged: int | None
) -> None:
    """A batch may begin in one chunk and end in the next, or be larger than a chunk."""
    monkeypatch.setattr(batch_scan, "CHECK_CHUNK_BYTES", chunk_bytes)
    log = open_log(tmp_path / "t-0")
    ends = []
    for size in (10, 700, 20, 1500, 30, 900):
        log.append_as_leader(data_batch(b"x" * size), 0)
        ends.append(log.size_bytes)
    expected, path = values_of(log), log.segments[0].path
    if damaged is not None:
        data = bytearray(path.read_bytes())
        data[ends[damaged] - 2] ^= 1
        path.write_bytes(data)
    assert values_of(crashed(log)) == expected[:damaged]
    assert path.stat().st_size == (ends[-1] if damaged is None else [0, *ends][damaged])


@pytest.mark.parametrize("tail", [bytes(40), bytes(5000), b"garbage" * 30, b"\xff" * 200])
def test_what_follows_the_last_batch_is_cut(tmp_path: Path, tail: bytes) -> None:
    log = filled(tmp_path / "t-0", count=3)
    path = log.segments[-1].path
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + tail)
    assert crashed(log).log_end_offset == 3
    assert path.stat().st_size == size


@pytest.mark.parametrize("base_offset", [0, 2, 3])
def test_a_batch_whose_offset_does_not_ascend_is_cut(tmp_path: Path, base_offset: int) -> None:
    """Offsets have no checksum. The same offset would name two different records."""
    log = open_log(tmp_path / "t-0")
    for values in ((b"0", b"1"), (b"2", b"3"), (b"4", b"5"), (b"6",)):
        log.append_as_leader(data_batch(*values), 0)
    expected, path = values_of(log)[:4], log.segments[0].path
    log.abandon()
    _set_base_offset(path, log.size_bytes - _size_of(b"4", b"5") - _size_of(b"6"), base_offset)
    again = open_log(log.dir, clean=False)
    assert (values_of(again), again.log_end_offset) == (expected, 4)
    assert again.append_as_leader(data_batch(b"next"), 0).first_offset == 4


@pytest.mark.parametrize(("base_offset", "left"), [(4, 6), (5, 6), (6, 8), (7, 9)])
def test_a_segment_holds_nothing_below_its_base_offset(tmp_path: Path, base_offset: int, left: int) -> None:
    """Above it there may be a gap that a cleaning left."""
    log = open_log(tmp_path / "t-0")
    log.truncate_fully_and_start_at(6)
    log.append_as_leader(data_batch(b"6", b"7"), 0)
    log.abandon()
    _set_base_offset(log.segments[0].path, 0, base_offset)
    again = open_log(log.dir, clean=False, log_start_offset=6)
    assert again.log_end_offset == left


def _size_of(*values: bytes) -> int:
    return len(data_batch(*values))


def _set_base_offset(path: Path, position: int, base_offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + 8] = base_offset.to_bytes(8, "big")
    path.write_bytes(data)


def test_later_segments_go_with_a_damaged_one(tmp_path: Path) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment=environment)
    middle, expected = log.segments[1], values_of(log)
    data = bytearray(middle.path.read_bytes())
    data[-10] ^= 1
    middle.path.write_bytes(data)
    log.abandon()
    again = open_log(log.dir, CONFIG, environment, clean=False)
    assert [segment.base_offset for segment in again.segments] == [0, middle.base_offset]
    assert again.log_end_offset < 12
    assert values_of(again) == expected[: again.log_end_offset]
    assert again.leader_epochs.latest_epoch == (again.log_end_offset - 1) // 5
    assert len(environment.deletions[0][1]) >= 8, "they are kept until the delay is over"


@pytest.mark.parametrize("changes", range(32))
def test_what_goes_with_a_damaged_segment_goes_for_good(tmp_path: Path, changes: int) -> None:
    """The cut was on the disk before the segments after it were gone. A power failure brought them back, and nothing
    showed any more that there was something missing before them."""
    root = tmp_path / "disk"
    log = filled(root / "t-0")
    expected = values_of(log)
    middle, last = log.segments[1:3]
    log.abandon()
    middle.path.write_bytes(middle.path.read_bytes()[:-5])
    disk = Disk(root)
    disk.stop_in(changes)
    with disk.watched(), contextlib.suppress(Stopped):
        open_log(root / "t-0", COMPACTED, clean=False)
    for seed in range(16):
        image = write_image(disk.image(MIXED, random.Random(seed)), tmp_path / f"start-{seed}")
        recovered = open_log(image / "t-0", COMPACTED, clean=False)
        assert recovered.log_end_offset < last.base_offset, "what is behind the damage is gone"
        assert values_of(recovered) == expected[: recovered.log_end_offset]
        recovered.abandon()


COPY = f"t-0.{'a' * 32}-future"


@pytest.mark.parametrize(
    ("name", "config", "options", "is_cut", "is_of_crash"),
    [
        ("t-0", CONFIG, {}, False, True),
        ("t-0", CONFIG, {"is_cleaned": True}, False, False),
        ("t-0", COMPACTED, {}, False, False),
        ("t-0", CONFIG, {"recovery_point": 12}, False, None),
        ("t-0", CONFIG, {"clean": True}, False, None),
        (COPY, CONFIG, {}, True, None),
        (COPY, COMPACTED, {}, True, None),
    ],
)
def test_what_follows_a_gap_goes_from_a_copy_for_another_dir(
    tmp_path: Path,
    name: str,
    config: LogConfig,
    options: dict[str, Any],
    is_cut: bool,
    is_of_crash: bool | None,
) -> None:
    """A power failure took the end of a segment, and not the one after it. The copy would go on where its log ends,
    and replace the original without what is missing. Any other log only knows where it lacks something."""
    log = filled(tmp_path / name)
    first = log.segments[0]
    *_, last = first.iter_batches()
    log.abandon()
    first.path.write_bytes(first.path.read_bytes()[: last[0]])
    recovered = open_log(tmp_path / name, config, **({"clean": False} | options))
    missing = last[1].base_offset
    assert recovered.log_end_offset == (missing if is_cut else 12)
    assert recovered.gap == (None if is_of_crash is None else (missing, is_of_crash))
    recovered.abandon()


def test_what_follows_a_gap_is_recovered_too(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    first, _, damaged, *others = log.segments
    assert others
    *_, (position, _) = first.iter_batches()
    log.abandon()
    first.path.write_bytes(first.path.read_bytes()[:position])
    data = bytearray(damaged.path.read_bytes())
    data[-10] ^= 1
    damaged.path.write_bytes(data)
    recovered = open_log(tmp_path / "t-0", CONFIG, clean=False)
    assert recovered.gap is not None
    assert damaged.base_offset <= recovered.log_end_offset < others[0].base_offset
    recovered.abandon()


def test_a_copy_for_another_dir_keeps_segments_without_a_gap(tmp_path: Path) -> None:
    log = filled(tmp_path / f"t-0.{'a' * 32}-future")
    assert len(log.segments) > 1
    recovered = crashed(log)
    assert (recovered.log_end_offset, len(recovered.segments)) == (12, len(log.segments))


def test_what_was_flushed_is_not_read_again(tmp_path: Path) -> None:
    """As in Kafka, a start does not look for damage before the recovery point."""
    log = filled(tmp_path / "t-0")
    log.flush()
    first = log.segments[0].path
    first.write_bytes(b"\xff" * first.stat().st_size)
    assert crashed(log, recovery_point=12).log_end_offset == 12


def test_only_segments_that_were_not_flushed_whole_are_read_again(tmp_path: Path) -> None:
    """A start after a crash takes as long as the data that was not flushed demands, whatever the log holds."""
    log = filled(tmp_path / "t-0")
    *_, flushed, last = log.segments
    flushed.path.write_bytes(b"\xff" * flushed.path.stat().st_size)
    recovered = crashed(log, recovery_point=last.base_offset + 1)
    assert (recovered.log_end_offset, len(recovered.segments)) == (12, len(log.segments))


def test_after_an_orderly_stop_nothing_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path / "t-0")
    log.flush()
    log.close()
    monkeypatch.setattr(segment_recovery, "check_batches", None)
    assert open_log(log.dir, CONFIG).log_end_offset == 12


@pytest.mark.parametrize("clean", [True, False])
def test_lost_indexes_are_built_anew(tmp_path: Path, clean: bool) -> None:
    log = filled(tmp_path / "t-0")
    log.flush()
    log.close()
    expected = folder_content(log.dir, "index")
    for suffix in ("index", "timeindex"):
        for path in log.dir.glob(f"*.{suffix}"):
            path.unlink()
    again = open_log(log.dir, CONFIG, clean=clean)
    assert values_of(again) == values_of(log)
    again.flush()
    again.close()
    assert folder_content(log.dir, "index") == expected


def test_preallocated_indexes_of_a_copied_folder_are_understood(tmp_path: Path) -> None:
    """The folder of a running broker, with a clean-shutdown mark that should not be there."""
    folder = recorded_copy("running", tmp_path / "data") / "segments-0"
    log = open_log(folder, LogConfig(segment_bytes=2000, index_interval_bytes=200, segment_index_bytes=1024))
    assert log.log_end_offset == 120
    assert log.segments[-1].offset_index.count == 1
    assert log.append_as_leader(data_batch(b"x"), 0).first_offset == 120


def test_epochs_that_the_cache_misses_come_from_the_batches(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    (log.dir / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert crashed(log).leader_epochs.entries == ((0, 0), (1, 5), (2, 10))
    (log.dir / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n9 900\n")
    assert crashed(log).leader_epochs.entries[0] == (0, 0)


def test_an_empty_folder_is_an_empty_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", CONFIG, clean=False, recovery_point=77, log_start_offset=5)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (5, 5, 5)


def test_a_finished_swap_is_completed_and_an_unfinished_cleaning_thrown_away(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    log.flush()
    log.close()
    expected = values_of(log)
    first, second = log.segments[0].base_offset, log.segments[1].base_offset
    merged = log.segments[0].path.read_bytes() + log.segments[1].path.read_bytes()
    swap = log.dir / f"{first:020d}.log.swap"
    swap.write_bytes(merged)
    for kind in ("index", "timeindex"):
        shutil.copy(log.dir / f"{first:020d}.{kind}", log.dir / f"{first:020d}.{kind}.swap")
    (log.dir / f"{log.segments[2].base_offset:020d}.log.cleaned").write_bytes(b"half")
    again = open_log(log.dir, CONFIG, clean=False)
    assert second not in [segment.base_offset for segment in again.segments]
    assert values_of(again) == expected
    assert folder_content(log.dir, ".swap", ".cleaned") == {}


def test_a_swap_beyond_an_unfinished_cleaning_is_thrown_away(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    log.flush()
    log.close()
    expected = values_of(log)
    (log.dir / f"{0:020d}.log.cleaned").write_bytes(b"half")
    (log.dir / f"{log.segments[1].base_offset:020d}.log.swap").write_bytes(b"part of a split")
    again = open_log(log.dir, CONFIG, clean=False)
    assert values_of(again) == expected


def test_a_long_recovery_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(tmp_path / "t-0", count=4)
    monkeypatch.setattr(segment_recovery, "_BATCHES_BETWEEN_LOOKS", 1)
    monkeypatch.setattr(segment_recovery, "PROGRESS_INTERVAL_MS", 0)
    with caplog.at_level(logging.INFO):
        crashed(log)
    lines = [record.getMessage() for record in caplog.records if "Still recovering" in record.getMessage()]
    assert len(lines) == 4
    assert "done_percent=33" in lines[0]
    assert "00000000000000000000.log" in lines[0]


def test_a_flush_reaches_no_further_than_asked(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    log.flush(log.segments[1].base_offset)
    assert log.recovery_point == log.segments[1].base_offset
    log.flush()
    assert (log.recovery_point, log.unflushed_records) == (12, 0)
    assert log.begin_flush() is None


def test_a_flush_brings_every_file_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path / "t-0", count=5)
    log.assign_topic_id(bytes(range(16)))
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))
    job = log.begin_flush()
    assert job is not None
    log.append_as_leader(data_batch(b"later"), 0)
    job.run()
    job.finish()
    first, second = (f"{segment.base_offset:020d}" for segment in log.segments)
    assert set(synced) == {
        *(f"{first}.{kind}" for kind in ("log", "index", "timeindex")),
        f"{second}.log",
        f"{second}.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "t-0",
        tmp_path.name,
    }
    assert log.recovery_point == 5
    synced.clear()
    log.flush()
    assert synced == [f"{second}.log"]


def test_indexes_reach_the_disk_when_their_segment_is_rolled_or_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then they are rebuilt after a crash. All records may be on the disk by then."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))
    log = open_log(tmp_path / "t-0", LogConfig(index_interval_bytes=0))
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(data_batch(value), 0)
        log.flush()
    assert f"{0:020d}.index" not in synced
    log.roll()
    synced.clear()
    log.flush(3)
    assert {f"{0:020d}.index", f"{0:020d}.timeindex"} <= set(synced)
    synced.clear()
    log.append_as_leader(data_batch(b"d"), 0)
    log.flush()
    assert synced.count(f"{3:020d}.log") == 1
    assert f"{0:020d}.index" not in synced
    synced.clear()
    log.close()
    job = log.begin_flush(is_closing=True)
    assert job is not None
    job.run()
    job.finish()
    assert set(synced) == {f"{3:020d}.index", f"{3:020d}.timeindex", f"{4:020d}.snapshot", "t-0"}
    assert log.begin_flush(is_closing=True) is None


def test_a_truncation_during_a_flush_keeps_the_recovery_point_back(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    job = log.begin_flush()
    assert job is not None
    job.run()
    log.truncate_to(4)
    log.append_as_leader(data_batch(b"other"), 9)
    job.finish()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 5


def test_a_flush_is_due_after_flush_messages(tmp_path: Path) -> None:
    """Whoever appends must flush: nothing waits for the next check for due work."""
    environment = StandIn()
    log = open_log(tmp_path / "t-0", LogConfig(flush_messages=3), environment)
    log.append_as_leader(data_batch(b"a", b"b"), 0)
    assert not log.is_flush_due
    log.append_as_leader(data_batch(b"c"), 0)
    assert log.is_flush_due
    log.flush(3)
    assert not log.is_flush_due
    log.append_as_follower(memoryview(_at(data_batch(b"d", b"e", b"f"), 3)))
    assert log.is_flush_due
    assert environment.flushes == []


def _at(batch: memoryview, base_offset: int) -> bytes:
    batch[0:8] = base_offset.to_bytes(8, "big")
    batch[12:16] = bytes(4)
    return bytes(batch)


def test_a_roll_asks_for_a_flush_of_what_is_done(tmp_path: Path) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", count=7, environment=environment)
    assert environment.flushes == [(log, segment.base_offset) for segment in log.segments[1:]]


@pytest.mark.parametrize("content", [b"", b"\0" * 40], ids=["empty", "zeros"])
def test_small_files_whose_content_was_lost_with_the_machine(tmp_path: Path, content: bytes) -> None:
    """A rename may reach the disk before the content of the file. That is no damage, and loses nothing."""
    log = filled(tmp_path / "t-0")
    log.assign_topic_id(b"a topic's id: 16")
    log.flush()
    log.abandon()
    expected = log.leader_epochs.entries
    assert len(expected) == 3
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        (log.dir / name).write_bytes(content)
    again = open_log(log.dir, CONFIG, recovery_point=12, clean=False)
    assert again.leader_epochs.entries == expected
    assert again.topic_id is None
    again.assign_topic_id(b"a topic's id: 16")
    again.flush()
    again.close()
    closed = open_log(log.dir, CONFIG)
    assert (closed.topic_id, closed.leader_epochs.entries) == (b"a topic's id: 16", expected)


@pytest.mark.parametrize(("name", "searched"), [("v1-segments-0", False), ("v2-none-0", True)])
def test_a_log_of_the_old_formats_is_not_searched_for_epochs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, searched: bool
) -> None:
    """Their epoch file always stays empty, and the logs may be large."""
    folder = recorded_copy("formats-mixed", tmp_path / "data") / name
    (folder / "leader-epoch-checkpoint").write_bytes(b"")
    open_log(folder, clean=False, recovery_point=10**6)
    assert ("The leader epochs of a partition were lost" in caplog.text) == searched


@pytest.mark.parametrize("kind", ["index", "txnindex"])
def test_an_index_that_is_lost_after_an_orderly_stop_takes_nothing_else_along(tmp_path: Path, kind: str) -> None:
    """Recovering its segment deletes the producer snapshots behind it."""
    log = open_log(tmp_path / "t-0", CONFIG)
    for n in range(12):
        log.append_as_leader(data_batch(b"%03d" % n + b"x" * 40, producer=(7, 0, n), timestamp_ms=NOW_MS), 0)
    log.flush()
    log.close()
    expected, snapshots = values_of(log), folder_content(log.dir, ".snapshot")
    assert len(snapshots) > 2
    base_offset = log.segments[1].base_offset
    if kind == "index":
        (log.dir / f"{base_offset:020d}.index").unlink()
    else:
        (log.dir / f"{base_offset:020d}.txnindex").write_bytes(bytes(34))
    again = open_log(log.dir, CONFIG)
    assert values_of(again) == expected
    assert again.append_as_leader(data_batch(b"x", producer=(7, 0, 11)), 0).is_duplicate
    again.flush()
    again.close()
    assert values_of(open_log(log.dir, CONFIG)) == expected


@pytest.mark.parametrize("tail", [b"garbage" * 30, bytes(100), b"torn"])
def test_bytes_behind_the_last_batch_are_cut_even_after_an_orderly_stop(tmp_path: Path, tail: bytes) -> None:
    """A copy of a running broker's folder may have such bytes. Nobody could read anything appended behind them."""
    log = open_log(tmp_path / "t-0")
    for n in range(3):
        log.append_as_leader(data_batch(b"%d" % n), 0)
    log.flush()
    log.close()
    expected = values_of(log)
    path = log.segments[-1].path
    path.write_bytes(path.read_bytes() + tail)
    again = open_log(log.dir)
    again.append_as_leader(data_batch(b"next"), 0)
    again.flush()
    again.close()
    assert values_of(open_log(log.dir)) == [*expected, (3, b"next")]
