"""What a log reads from its files and its log dir's checkpoints when it is opened, and which files stay open."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from log_folders import NOW_MS, StandIn, data_batch, folder_content, marker_batch, open_log, values_of

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.log import Log
from engine.common.errors import CorruptFileError
from engine.kafka.config.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=80, segment_index_bytes=240)
FAR = 2**31


def filled(folder: Path, count: int = 12) -> Log:
    """Write segments of three batches and two leader epochs, and close them cleanly."""
    log = open_log(folder, CONFIG)
    for n in range(count):
        log.append_as_leader(data_batch(b"%03d" % n + b"x" * 40, timestamp_ms=1000 + n), 2 * (n // 6))
    log.flush()
    log.close()
    return log


def open_files(folder: Path) -> list[str]:
    links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists()]
    return [link for link in links if link.startswith(str(folder))]


@pytest.mark.parametrize("clean", [True, False])
def test_no_file_stays_open(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path / "t-0").abandon()
    log = open_log(tmp_path / "t-0", CONFIG, clean=clean)
    assert open_files(tmp_path) == []
    assert len(values_of(log)) == 12


@pytest.mark.parametrize(("clean", "recovery_point"), [(True, 12), (False, 4)])
def test_only_an_orderly_stop_says_that_all_is_on_the_disk(tmp_path: Path, clean: bool, recovery_point: int) -> None:
    log = filled(tmp_path / "t-0")
    again = open_log(log.dir, CONFIG, recovery_point=4, clean=clean)
    assert again.recovery_point == recovery_point
    assert (again.begin_flush() is None) is clean


def test_no_leader_epoch_begins_before_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    assert open_log(log.dir, CONFIG, log_start_offset=4).leader_epochs.entries == ((0, 4), (2, 6))
    assert open_log(log.dir, CONFIG, log_start_offset=7).leader_epochs.entries == ((2, 7),)


def test_after_a_crash_epochs_without_batches_are_kept(tmp_path: Path) -> None:
    """Compaction may have removed all batches of an epoch."""
    log = filled(tmp_path / "t-0")
    (log.dir / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 3\n2 6\n")
    assert open_log(log.dir, CONFIG, clean=False).leader_epochs.entries == ((0, 0), (1, 3), (2, 6))


def test_after_a_crash_all_epochs_are_found_again_though_an_index_is_lost_too(tmp_path: Path) -> None:
    """The segment without an index is recovered first, and its recovery notes a later epoch."""
    log = filled(tmp_path / "t-0")
    (log.dir / "leader-epoch-checkpoint").write_bytes(b"")
    (log.dir / f"{log.segments[2].base_offset:020d}.index").unlink()
    again = open_log(log.dir, CONFIG, recovery_point=log.log_end_offset, clean=False)
    assert again.leader_epochs.entries == ((0, 0), (2, 6))


def test_after_a_crash_producers_of_segments_that_were_flushed_are_known(tmp_path: Path) -> None:
    """Only the last segment is recovered; a snapshot has the producers of earlier segments."""
    log = open_log(tmp_path / "t-0", CONFIG)
    log.append_as_leader(data_batch(b"a", producer=(7, 0, 0), timestamp_ms=NOW_MS), 0)
    log.append_as_leader(data_batch(b"b", producer=(8, 0, 0), timestamp_ms=NOW_MS, transactional=True), 0)
    log.roll()
    log.flush()
    log.append_as_leader(data_batch(b"c", producer=(9, 0, 0), timestamp_ms=NOW_MS), 0)
    log.append_as_leader(marker_batch(8, 0, commit=False, timestamp_ms=NOW_MS), 0, origin=AppendOrigin.COORDINATOR)
    log.abandon()
    again = open_log(log.dir, CONFIG, recovery_point=2, clean=False)
    assert again.append_as_leader(data_batch(b"a", producer=(7, 0, 0), timestamp_ms=NOW_MS), 0).is_duplicate
    assert [
        (transaction.producer_id, transaction.first_offset) for transaction in again.collect_aborted_transactions(0, 4)
    ] == [(8, 1)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_whose_records_were_all_deleted_keeps_its_segments(tmp_path: Path, clean: bool) -> None:
    log = filled(tmp_path / "t-0")
    again = open_log(log.dir, CONFIG, log_start_offset=12, recovery_point=12, clean=clean)
    assert (again.log_start_offset, again.log_end_offset, len(again.segments)) == (12, 12, len(log.segments))


def test_a_log_that_ends_before_its_start_begins_there_with_nothing(tmp_path: Path) -> None:
    """Somebody has deleted files by hand."""
    log = open_log(tmp_path / "t-0", CONFIG)
    for sequence in range(12):
        log.append_as_leader(data_batch(b"v" * 40, producer=(7, 0, sequence), timestamp_ms=NOW_MS), 3)
    log.flush()
    log.close()
    again = open_log(log.dir, CONFIG, log_start_offset=50, recovery_point=50)
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (50, 50, 50)
    assert [segment.base_offset for segment in again.segments] == [50]
    assert again.leader_epochs.entries == ()
    assert again.producers.producers == {}
    assert [path.name for path in log.dir.glob("*.snapshot")] == [f"{50:020d}.snapshot"]
    assert again.append_as_leader(data_batch(b"next"), 4).first_offset == 50


def test_after_a_crash_snapshots_of_no_segment_are_removed(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    for offset in (4, 99):
        (log.dir / f"{offset:020d}.snapshot").write_bytes((log.dir / f"{12:020d}.snapshot").read_bytes())
    again = open_log(log.dir, CONFIG, recovery_point=9, clean=False)
    assert again.producers.snapshots.latest == 12
    left = {path.name for path in log.dir.glob("*.snapshot")}
    assert left.isdisjoint({f"{4:020d}.snapshot", f"{99:020d}.snapshot"})


def test_after_a_crash_a_producer_that_was_silent_for_long_is_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", CONFIG)
    for producer_id, timestamp_ms in ((7, NOW_MS - 86_400_001), (8, NOW_MS)):
        log.append_as_leader(data_batch(b"a", producer=(producer_id, 0, 0), timestamp_ms=timestamp_ms), 0)
    log.abandon()
    assert list(open_log(log.dir, CONFIG, clean=False).producers.producers) == [8]


def test_a_log_that_contradicts_older_checkpoints_is_recovered_from_its_start(tmp_path: Path) -> None:
    """The checkpoints belong to a deleted topic of the same name.

    So does the recovery point, which says nothing about this log.
    """
    log = filled(tmp_path / "t-0")
    log.assign_topic_id(b"a topic's id: 16")
    log.abandon()
    first = log.dir / f"{0:020d}.log"
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    noted = tmp_path / "log-start-offset-checkpoint"
    noted.write_text("0\n1\nt 0 50\n")
    os.utime(noted, (1, 1))
    again = open_log(log.dir, CONFIG, log_start_offset=50, recovery_point=50, clean=False)
    assert (again.log_start_offset, again.log_end_offset) == (0, 2)


def test_a_damaged_topic_id_is_an_error_after_an_orderly_stop_only(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    (log.dir / "partition.metadata").write_text("no topic id")
    with pytest.raises(CorruptFileError):
        open_log(log.dir, CONFIG)
    assert open_log(log.dir, CONFIG, clean=False).topic_id is None


@pytest.mark.parametrize("has_records", [True, False])
def test_a_folder_that_waits_for_its_removal_is_not_read(tmp_path: Path, has_records: bool) -> None:
    log = filled(tmp_path / "t-0")
    doomed = tmp_path / f"t-0.{'a' * 32}-delete"
    log.dir.rename(doomed)
    for path in doomed.iterdir():
        if not has_records:
            path.unlink()
        elif path.suffix == ".log":
            path.write_bytes(b"no batch")
    before = folder_content(doomed, ".log")
    again = open_log(doomed, CONFIG, clean=False)
    assert (again.log_end_offset, again.recovery_point) == (0, 0)
    assert again.first_segment_base_offset == 0
    if has_records:
        assert folder_content(doomed, ".log") == before
    else:
        assert list(folder_content(doomed, ".log").values()) == [b""]


def test_a_split_reaches_the_disk_before_the_log_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    batches = [bytearray(data_batch(b"a")), bytearray(data_batch(b"b"))]
    struct.pack_into(">q", batches[1], 0, FAR)
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(os.readlink(f"/proc/self/fd/{fd}"))))
    assert len(open_log(folder, clean=False).segments) == 2
    assert folder in synced


def test_after_a_crash_a_lost_index_of_a_segment_just_before_the_recovery_point_is_rebuilt(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    index = log.dir / f"{0:020d}.index"
    expected = index.read_bytes()
    index.unlink()
    open_log(log.dir, CONFIG, recovery_point=log.segments[1].base_offset, clean=False)
    assert index.read_bytes() == expected


def test_a_lost_time_index_is_there_again(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    path = log.dir / f"{0:020d}.timeindex"
    path.unlink()
    open_log(log.dir, CONFIG)
    assert path.exists()


def test_what_a_recovery_drops_is_renamed_first_and_deleted_later(tmp_path: Path) -> None:
    """The producer snapshots go with the records: a start in between must pick up neither."""
    log = filled(tmp_path / "t-0")
    bases = [segment.base_offset for segment in log.segments]
    first = log.dir / f"{0:020d}.log"
    first.write_bytes(first.read_bytes()[:-1])
    environment = StandIn()
    again = open_log(log.dir, CONFIG, environment, clean=False)
    assert [segment.base_offset for segment in again.segments] == [0]
    assert open_files(tmp_path) == []
    ((log_dir, paths, _),) = environment.deletions
    dropped = {path.name for path in log.dir.iterdir() if path.name.endswith(".deleted")}
    assert log_dir == tmp_path
    assert {f"{base:020d}.{kind}.deleted" for base in bases[1:] for kind in ("log", "index", "timeindex")} <= dropped
    assert dropped <= {path.name for path in paths}
    assert {path.name for path in log.dir.glob("*.log")} == {first.name}
    assert [path.name for path in log.dir.glob("*.snapshot")] == [f"{2:020d}.snapshot"]


@pytest.mark.parametrize("preallocate", [True, False])
def test_a_new_log_takes_the_room_that_its_settings_give_it(tmp_path: Path, preallocate: bool) -> None:
    config = LogConfig(segment_bytes=4096, segment_index_bytes=240, preallocate=preallocate)
    for _ in range(2):
        log = open_log(tmp_path / "t-0", config)
        assert (log.dir / f"{0:020d}.index").stat().st_size == 240
        log.close()
    sizes = [open_log(tmp_path / f"t-{n}", config).active_segment.path.stat().st_size for n in (1, 2)]
    assert sizes == [4096 if preallocate else 0] * 2


def test_the_umask_alone_says_who_may_write_the_files(tmp_path: Path) -> None:
    """Apache Kafka may run as another user of the same group, and takes over the folder."""
    before = os.umask(0o002)
    try:
        log = open_log(tmp_path / "t-0")
        log.append_as_leader(data_batch(b"x", producer=(1, 0, 0)), 3)
        log.roll()
        log.flush()
        log.close()
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "t-0").iterdir()} == {0o664}
    assert (tmp_path / "t-0").stat().st_mode & 0o777 == 0o775
