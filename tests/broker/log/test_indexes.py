"""Index files against plain lists: appended, searched, cut, trimmed, read again."""

from __future__ import annotations

import random
from bisect import bisect_right
from pathlib import Path

import pytest

from engine.broker.log import indexes
from engine.broker.log.indexes import OffsetIndex, TimeIndex, TransactionIndex
from engine.common.errors import StorageError
from engine.kafka.formats.index_entries import AbortedTransaction, iter_offset_index, iter_time_index
from engine.kafka.formats.log_dir_names import SegmentPaths

BASE = 1_000_000_000_000


@pytest.mark.parametrize("seed", range(6))
def test_an_offset_index_is_a_sorted_list(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "BLOCK_ENTRIES", 8)
    monkeypatch.setattr(indexes, "WRITE_BEHIND_BYTES", 40)
    chance = random.Random(seed)
    paths = SegmentPaths(tmp_path, BASE)
    index, entries = OffsetIndex(paths, 100_000), []
    index.preallocate()
    offset, position = BASE, 0
    for _ in range(300):
        action = chance.random()
        if action < 0.7:
            offset += chance.randint(1, 50)
            position += chance.randint(1, 5000)
            index.append(offset, position)
            entries.append((offset, position))
        elif action < 0.74:
            cut = chance.randint(BASE, offset + 10)
            index.truncate_to(cut)
            entries = [entry for entry in entries if entry[0] < cut]
            offset, position = entries[-1] if entries else (BASE, 0)
        elif action < 0.77:
            index.trim()
            index = OffsetIndex.load(paths, 100_000)
        target = chance.randint(BASE - 5, offset + 10)
        number = bisect_right(entries, target, key=lambda entry: entry[0])
        assert index.lookup(target) == (entries[number - 1] if number else (BASE, 0))
        after = chance.randint(0, position + 10)
        assert index.first_offset_after(after) == next((entry for entry, at in entries if at > after), None)
        assert (index.count, index.last_offset) == (len(entries), entries[-1][0] if entries else BASE)
    index.trim()
    assert list(iter_offset_index(paths.path(".index").read_bytes(), BASE)) == entries


@pytest.mark.parametrize("seed", range(6))
def test_a_time_index_is_a_sorted_list(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "BLOCK_ENTRIES", 8)
    monkeypatch.setattr(indexes, "WRITE_BEHIND_BYTES", 40)
    chance = random.Random(seed)
    paths = SegmentPaths(tmp_path, BASE)
    index, entries = TimeIndex(paths, 100_000), []
    index.preallocate()
    offset, timestamp_ms = BASE, 1_000
    for _ in range(300):
        action = chance.random()
        if action < 0.7:
            offset += chance.randint(1, 50)
            timestamp_ms += chance.randint(-20, 100)
            index.maybe_append(timestamp_ms, offset)
            if not entries or timestamp_ms > entries[-1][0]:
                entries.append((timestamp_ms, offset))
        elif action < 0.74:
            cut = chance.randint(BASE, offset + 10)
            index.truncate_to(cut)
            entries = [entry for entry in entries if entry[1] < cut]
        elif action < 0.77:
            index.trim()
            index = TimeIndex.load(paths, 100_000)
        target = chance.randint(900, timestamp_ms + 10)
        number = bisect_right(entries, target, key=lambda entry: entry[0])
        assert index.lookup(target) == (entries[number - 1] if number else (-1, BASE))
        assert index.last_entry == (entries[-1] if entries else (-1, BASE))
    index.trim()
    assert list(iter_time_index(paths.path(".timeindex").read_bytes(), BASE)) == entries


def test_files_are_as_large_as_they_may_become_until_they_are_trimmed(tmp_path: Path) -> None:
    paths = SegmentPaths(tmp_path, 0)
    offsets, times = OffsetIndex(paths, 1024), TimeIndex(paths, 1024)
    offsets.preallocate()
    times.preallocate()
    offsets.append(3, 100)
    times.maybe_append(5, 3)
    sizes = [paths.path(kind).stat().st_size for kind in (".index", ".timeindex")]
    assert sizes == [1024, 1020]
    offsets.trim()
    times.trim()
    assert [paths.path(kind).stat().st_size for kind in (".index", ".timeindex")] == [8, 12]


def test_indexes_know_when_they_are_full(tmp_path: Path) -> None:
    paths = SegmentPaths(tmp_path, 0)
    offsets, times = OffsetIndex(paths, 20), TimeIndex(paths, 36)
    fullness = []
    for n in range(3):
        fullness.append((offsets.is_full, times.is_full))
        offsets.append(n, 100 * n + 1)
        times.maybe_append(n, n)
    # Two offset entries fit. Of three time entries one is reserved for the roll.
    assert fullness == [(False, False), (False, False), (True, True)]


def test_offsets_must_ascend(tmp_path: Path) -> None:
    index = OffsetIndex(SegmentPaths(tmp_path, 10), 1024)
    index.append(15, 100)
    for offset in (14, 15):
        with pytest.raises(StorageError, match="no larger than the last offset appended"):
            index.append(offset, 200)


def test_aborted_transactions(tmp_path: Path) -> None:
    paths = SegmentPaths(tmp_path, 0)
    index = TransactionIndex(paths, exists=False)
    assert index.entries() == []
    assert not paths.path(".txnindex").exists()
    first, second, third = (
        AbortedTransaction(1, 0, 5, 11),
        AbortedTransaction(2, 3, 12, 13),
        AbortedTransaction(3, 14, 20, 30),
    )
    for aborted in (first, second, third):
        index.append(aborted)
    for again in (index, TransactionIndex(paths, exists=True)):
        assert again.collect(0, 40) == ([first, second, third], False)
        assert again.collect(0, 12) == ([first, second], True)
        assert again.collect(6, 12) == ([second], True)
        assert again.collect(21, 40) == ([], False)
    with pytest.raises(StorageError, match="must increase"):
        index.append(AbortedTransaction(4, 1, 20, 30))
    index.release()
    index.truncate_to(20)
    assert index.entries() == [first, second]
    index.reset()
    assert index.entries() == []
    assert paths.path(".txnindex").stat().st_size == 0
