"""One life of a partition, from creation to deletion, as its clients know it, and what its log must hold.

The lives on one broker's disks (``lives``) and on three brokers (``cluster_lives``) share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Pair = tuple[bytes, bytes]
"""Key and value. No two records of a history have the same value."""


@dataclass
class Life:
    """What the partition's clients know."""

    number: int
    is_keyed: bool
    topic_id: bytes
    records: dict[int, Pair] = field(default_factory=dict)
    """Key and value of acknowledged records that were not cut since, by offset."""
    ever: dict[int, set[Pair]] = field(default_factory=dict)
    """What was at an offset since the last flush, even if cut: a power failure may bring it back."""
    maybe: set[Pair] = field(default_factory=set)
    """What was sent and never answered: it may be where nothing is acknowledged."""
    start: int = 0
    """Nobody has asked to delete records from this offset on."""
    end: int = 0
    promised: int = 0
    """A client was told that everything before this offset is on the disk."""
    leader_epoch: int = 0
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """First offset, base sequence and count of the idempotent batches."""

    def note(self, offset: int, pairs: list[Pair]) -> None:
        for n, pair in enumerate(pairs):
            self.records[offset + n] = pair
            self.ever.setdefault(offset + n, set()).add(pair)
        self.end = offset + len(pairs)

    def cut(self, offset: int) -> None:
        self.records = {at: pair for at, pair in self.records.items() if at < offset}
        self.batches = [batch for batch in self.batches if batch[0] < offset]
        self.end, self.promised = offset, min(self.promised, offset)

    def promise(self) -> None:
        self.promised = self.end
        self.ever = {at: {pair} for at, pair in self.records.items()}


class Seen(NamedTuple):
    """What is in one replica's log from its start on."""

    start: int
    end: int
    records: Mapping[int, Pair]


def check_records(name: object, seen: Seen, life: Life, later: Life | None = None, least: int | None = None) -> None:
    """Check that a log has what its life says, and nothing else.

    Args:
        later: the life after the operation under way is done.
        least: from here on, whatever was ever there may be back, or be missing; None if nothing may.
    """
    later = later or life
    now = seen.records
    for at, pair in now.items():
        known = {life.records.get(at), later.records.get(at)}
        if least is not None and at >= least:
            known |= life.ever.get(at, set()) | later.ever.get(at, set())
        is_unanswered = at not in life.records and pair in life.maybe
        assert is_unanswered or pair in known, f"{name} has {pair!r} at {at}, which should be {known}"
    twice = _twice(pair[1] for pair in now.values())
    assert not twice, f"{name} has {twice} more than once"
    end = seen.end if least is None else min(least, seen.end)
    missing = _missing(seen, life, end)
    assert not missing, f"{name} has lost {missing}, it has {seen.start} to {seen.end}"


def _missing(seen: Seen, life: Life, end: int) -> list[int]:
    now = seen.records
    if not life.is_keyed:
        # Behind the last flush a power failure may leave a hole, if the segment after it was recorded first.
        return [at for at in life.records if seen.start <= at < end and at not in now]
    newest = {pair[0]: at for at, pair in sorted(life.records.items()) if at < end}
    gone = [at for at in newest.values() if at >= seen.start and at not in now]
    last = {pair[0]: at for at, pair in sorted(now.items())}
    return [at for at in gone if last.get(life.records[at][0], -1) <= at]


def _twice(values: Iterable[bytes]) -> set[bytes]:
    seen: set[bytes] = set()
    return {value for value in values if value in seen or seen.add(value)}  # type: ignore[func-returns-value]
