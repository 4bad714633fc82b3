"""The ``.snapshot`` files of a folder: their list, the order of their entries, and where a late one is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.broker.log.producer_snapshots import ProducerSnapshots
from engine.kafka.formats.producer_snapshot import ProducerSnapshotEntry, decode_producer_snapshot


def entries_of(*producer_ids: int) -> list[ProducerSnapshotEntry]:
    return [ProducerSnapshotEntry(producer_id, 0, 0, 0, 0, 0, -1, -1) for producer_id in producer_ids]


def written_order(folder: Path, *producer_ids: int) -> list[int]:
    snapshots = ProducerSnapshots(folder, ())
    snapshots.add(5, lambda: entries_of(*producer_ids))
    snapshots.write_pending()
    return [entry.producer_id for entry in decode_producer_snapshot((folder / f"{5:020d}.snapshot").read_bytes())]


@pytest.mark.parametrize(
    ("count", "far", "place"), [(12, 16, 1), (13, 16, 12), (13, 32, 1), (24, 32, 1), (25, 32, 24), (25, 64, 1)]
)
def test_entries_are_in_the_order_of_javas_map(tmp_path: Path, count: int, far: int, place: int) -> None:
    """A map of 16 buckets doubles when it is more than three quarters full. ``far`` may share a bucket with 0."""
    near = list(range(count - 1))
    expected = [*near[:place], far, *near[place:]]
    assert written_order(tmp_path, *near, far) == expected


@pytest.mark.parametrize("folded", [1 << 32, 1 << 16])
def test_high_bits_of_a_producer_id_count_in_javas_hash(tmp_path: Path, folded: int) -> None:
    assert written_order(tmp_path, folded, 0) == [0, folded]


def test_a_snapshot_that_is_taken_again_is_there_once(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(tmp_path, (3,))
    snapshots.add(5, lambda: entries_of(1))
    snapshots.add(5, lambda: entries_of(2))
    assert snapshots.offsets == (3, 5)
    snapshots.write_pending()
    assert [entry.producer_id for entry in snapshots.read(5)] == [2]


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    written_order(tmp_path, 1)
    links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert [link for link in links if link.startswith(str(tmp_path))] == []


def test_a_late_snapshot_follows_its_folder(tmp_path: Path) -> None:
    """The old name may be in use again by then."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    snapshots = ProducerSnapshots(old, ())
    snapshots.add(5, lambda: entries_of(1))
    old.rename(new)
    snapshots.move_to(new)
    old.mkdir()
    snapshots.write_pending()
    assert list(old.iterdir()) == []
    assert (new / f"{5:020d}.snapshot").exists()


@pytest.mark.parametrize("is_written", [True, False])
def test_a_snapshot_that_is_to_be_deleted_is_no_longer_there(tmp_path: Path, is_written: bool) -> None:
    snapshots = ProducerSnapshots(tmp_path, (3,))
    snapshots.add(5, lambda: entries_of(1))
    if is_written:
        snapshots.write_pending()
    marked = snapshots.mark_deleted(5)
    assert snapshots.offsets == (3,)
    assert snapshots.pending == ()
    assert marked == (tmp_path / f"{5:020d}.snapshot.deleted" if is_written else None)
    snapshots.write_pending()
    assert not (tmp_path / f"{5:020d}.snapshot").exists()


@pytest.mark.parametrize(
    ("offsets", "left"), [((2, 3), ()), ((2, 9), (9,)), ((0, 2, 5), (0, 5)), ((2, 8, 9), (9,)), ((5, 6), (5, 6))]
)
def test_of_snapshots_of_no_segment_only_the_newest_may_stay(
    tmp_path: Path, offsets: tuple[int, ...], left: tuple[int, ...]
) -> None:
    """It stays beyond all segments: a clean shutdown wrote it at the log's end."""
    snapshots = ProducerSnapshots(tmp_path, offsets)
    snapshots.remove_stray((0, 5))
    assert snapshots.offsets == left


def test_a_snapshot_that_was_removed_is_not_brought_to_the_disk(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(tmp_path, (3, 5))
    snapshots.nothing_is_synced()
    snapshots.delete(5)
    assert snapshots.take_unsynced() == []
    snapshots.nothing_is_synced()
    assert snapshots.take_unsynced() == [tmp_path / f"{3:020d}.snapshot"]
