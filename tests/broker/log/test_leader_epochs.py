"""The leader epoch cache: assignments, ends of epochs (KIP-101, KIP-279), truncation from both sides, its file."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from engine.broker.log import leader_epoch_cache
from engine.broker.log.leader_epoch_cache import LeaderEpochCache
from engine.common.errors import CorruptFileError
from engine.kafka.formats.checkpoints import EpochEntry


@pytest.fixture
def cache(tmp_path: Path) -> LeaderEpochCache:
    return LeaderEpochCache.load(tmp_path)


def filled(cache: LeaderEpochCache, *entries: tuple[int, int]) -> LeaderEpochCache:
    for leader_epoch, start_offset in entries:
        cache.assign(leader_epoch, start_offset)
    assert cache.entries == tuple(EpochEntry(*entry) for entry in entries)
    return cache


def test_every_change_is_in_the_file(cache: LeaderEpochCache) -> None:
    changes = [
        lambda: cache.assign(2, 0),
        lambda: cache.assign(4, 11),
        lambda: cache.assign(7, 30),
        lambda: cache.truncate_from_end(20),
        lambda: cache.truncate_from_start(5),
        lambda: cache.clear(),
    ]
    for change in changes:
        cache.is_unsynced = False
        change()
        assert cache.is_unsynced
        assert LeaderEpochCache.load(cache.folder).entries == cache.entries


def test_what_changes_nothing_writes_nothing(cache: LeaderEpochCache) -> None:
    """Each write costs the next flush of the partition an fsync."""
    filled(cache, (2, 6), (3, 8))
    cache.is_unsynced = False
    for keeps in (
        lambda: cache.assign(3, 8),
        lambda: cache.assign(3, 9),
        lambda: cache.truncate_from_end(9),
        lambda: cache.truncate_from_start(6),
        lambda: cache.truncate_from_start(5),
    ):
        keeps()
        assert cache.entries == ((2, 6), (3, 8))
        assert not cache.is_unsynced


def test_an_epoch_that_could_not_be_written_is_not_known(
    cache: LeaderEpochCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next append of that epoch would not write it either, and a crash would lose where it began."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "I/O error")

    filled(cache, (2, 6))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="I/O"):
        patch.setattr(leader_epoch_cache, "replace_file", fails)
        cache.assign(3, 8)
    assert (cache.entries, cache.latest_epoch) == (((2, 6),), 2)
    cache.assign(3, 8)
    assert LeaderEpochCache.load(cache.folder).entries == ((2, 6), (3, 8))


def test_an_epoch_keeps_its_first_start(cache: LeaderEpochCache) -> None:
    filled(cache, (2, 6))
    cache.assign(2, 7)
    assert cache.entries == ((2, 6),)
    assert cache.latest_epoch == 2
    cache.assign(3, 9)
    assert cache.latest_epoch == 3


def test_an_epoch_that_begins_earlier_than_was_known_takes_over_what_follows(cache: LeaderEpochCache) -> None:
    """A log's first batches may be found after its later ones. A stale entry would make a follower cut too little."""
    filled(cache, (0, 0), (2, 6), (3, 8))
    cache.assign(3, 7)
    assert cache.entries == ((0, 0), (2, 6), (3, 7))
    cache.assign(3, 6)
    assert cache.entries == ((0, 0), (3, 6))
    assert LeaderEpochCache.load(cache.folder).entries == cache.entries


def test_contradicting_entries_go(cache: LeaderEpochCache) -> None:
    filled(cache, (2, 6), (3, 8), (5, 10))
    cache.assign(4, 9)
    assert cache.entries == ((2, 6), (3, 8), (4, 9))
    cache.assign(6, 8)
    assert cache.entries == ((2, 6), (6, 8))
    cache.assign(2, 7)
    assert cache.entries == ((2, 7),), "an epoch has one entry"
    cache.assign(1, 20)
    assert cache.entries == ((1, 20),)
    cache.assign(7, 0)
    assert cache.entries == ((7, 0),)
    for wrong in ((-1, 5), (5, -1)):
        with pytest.raises(ValueError, match="invalid"):
            cache.assign(*wrong)


def test_where_epochs_end(cache: LeaderEpochCache) -> None:
    assert cache.end_offset_for(0, 50) == (-1, -1)
    filled(cache, (2, 10), (4, 20), (7, 30))
    assert cache.end_offset_for(-1, 50) == (-1, -1)
    assert cache.end_offset_for(1, 50) == (1, 10), "before all that is known: where the first known one begins"
    assert cache.end_offset_for(2, 50) == (2, 20)
    assert cache.end_offset_for(3, 50) == (2, 20), "never heard of: the largest before it"
    assert cache.end_offset_for(4, 50) == (4, 30)
    assert cache.end_offset_for(6, 50) == (4, 30)
    assert cache.end_offset_for(7, 50) == (7, 50), "the latest ends where the log does"
    assert cache.end_offset_for(8, 50) == (-1, -1)


def test_truncation_from_the_end(cache: LeaderEpochCache) -> None:
    filled(cache, (2, 6), (3, 8), (4, 11))
    cache.truncate_from_end(12)
    assert len(cache.entries) == 3
    cache.truncate_from_end(9)
    assert cache.entries == ((2, 6), (3, 8))
    assert cache.latest_epoch == 3
    assert cache.end_offset_for(3, 9) == (3, 9), "it is the latest now, and ends where the log does"
    cache.truncate_from_end(8)
    assert cache.entries == ((2, 6),)
    cache.truncate_from_end(6)
    assert cache.entries == ()
    assert cache.latest_epoch == -1


def test_truncation_from_the_start(cache: LeaderEpochCache) -> None:
    cache.truncate_from_start(5)
    assert cache.entries == ()
    filled(cache, (2, 6), (3, 8), (4, 11))
    cache.truncate_from_start(5)
    assert cache.entries == ((2, 6), (3, 8), (4, 11))
    cache.truncate_from_start(6)
    assert cache.entries == ((2, 6), (3, 8), (4, 11))
    cache.truncate_from_start(7)
    assert cache.entries == ((2, 7), (3, 8), (4, 11))
    cache.truncate_from_start(8)
    assert cache.entries == ((3, 8), (4, 11))
    cache.truncate_from_start(20)
    assert cache.entries == ((4, 20),)
    assert cache.earliest_entry == cache.latest_entry == (4, 20)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n5 x\n")
    with pytest.raises(CorruptFileError, match="5 x"):
        LeaderEpochCache.load(tmp_path)


@pytest.mark.parametrize("text", ["0\n1\n5 x\n", "", "\0\0\0"], ids=["damaged", "empty", "zeros"])
def test_after_a_crash_of_the_machine_a_file_without_its_content_counts_as_lost(tmp_path: Path, text: str) -> None:
    """Recovery then looks into all batches."""
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    cache = LeaderEpochCache.load(tmp_path, may_be_lost=True)
    assert (cache.entries, cache.was_blank, cache.is_unsynced) == ((), True, False)


def test_a_new_partition_gets_a_file_and_has_lost_nothing(tmp_path: Path) -> None:
    cache = LeaderEpochCache.load(tmp_path)
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b""
    assert (cache.entries, cache.was_blank, cache.is_unsynced) == ((), False, False)


def test_what_was_read_need_not_be_written(cache: LeaderEpochCache) -> None:
    filled(cache, (2, 6))
    read = LeaderEpochCache.load(cache.folder)
    assert (read.entries, read.was_blank, read.is_unsynced) == (cache.entries, False, False)
