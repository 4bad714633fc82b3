"""Merges many logs into one order: by time, then by broker, and never changing the order within one log.

Each log is read a block at a time, and only while it is its turn, so memory depends on how many logs overlap, not on
their size. A block is held back until the next one of its log is read, so lines that are out of order by less than that
are sorted. Lines that are further out come as soon as they are read, and are counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic

from engine.admin.state_changes.entry_reader import Block, EntryReader, Tag, line_count
from engine.admin.state_changes.problems import ProblemCounter, ProblemKind

_AFTER_ALL = b"\xff"


@dataclass(slots=True)
class Batch(Generic[Tag]):
    """Entries in their final order."""

    starts: list[bytes]
    tags: list[Tag]
    entries: list[bytes]
    has_continuations: bool
    """Some entry has more than one line."""


@dataclass(frozen=True, slots=True)
class Source(Generic[Tag]):
    """A log that is waiting for its turn. ``first_start`` must not be later than its first entry's time."""

    first_start: bytes
    open: Callable[[], EntryReader[Tag]]
    problems: ProblemCounter


@dataclass(slots=True)
class _Open(Generic[Tag]):
    """A log that is being read. ``number`` is its place among those of the same millisecond."""

    number: int
    reader: EntryReader[Tag]
    problems: ProblemCounter
    starts: list[bytes] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    has_continuations: bool = False
    safe_to: bytes = b""
    """No unread entry is expected to be earlier."""


class Merge(Generic[Tag]):
    """Merges ``sources``, whose order applies to entries of the same millisecond. Iterate over it once."""

    def __init__(self, sources: Sequence[Source[Tag]]) -> None:
        waiting = sorted(enumerate(sources), key=lambda numbered: numbered[1].first_start, reverse=True)
        self._waiting: list[tuple[int, Source[Tag]]] = waiting
        self._open: list[_Open[Tag]] = []
        self._emitted_to = b""
        self._closed_bytes = 0

    @property
    def consumed_bytes(self) -> int:
        """How many bytes of the files were read so far."""
        return self._closed_bytes + sum(log.reader.consumed_bytes for log in self._open)

    def __iter__(self) -> Iterator[Batch[Tag]]:
        try:
            while self._waiting or self._open:
                limit = min((log.safe_to for log in self._open), default=b"")
                if self._waiting and (not self._open or self._waiting[-1][1].first_start <= limit):
                    self._begin(*self._waiting.pop())
                    continue
                batch = self._take_before(limit)
                if batch is not None:
                    yield batch
                self._read_on(limit)
        finally:
            for log in self._open:
                log.reader.close()

    def _begin(self, number: int, source: Source[Tag]) -> None:
        try:
            reader = source.open()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            source.problems.tell(ProblemKind.UNREADABLE, f"cannot be read: {reason}")
            return
        log = _Open(number, reader, source.problems, safe_to=source.first_start)
        self._open.append(log)
        self._open.sort(key=lambda each: each.number)

    def _read_on(self, limit: bytes) -> None:
        """Read the next block of the logs that the others wait for."""
        for log in [log for log in self._open if log.safe_to == limit]:
            if limit == _AFTER_ALL:
                self._closed_bytes += log.reader.consumed_bytes
                self._open.remove(log)
                continue
            block = log.reader.read()
            if block is None:
                log.safe_to = _AFTER_ALL
            else:
                self._add(log, block)

    def _add(self, log: _Open[Tag], block: Block[Tag]) -> None:
        late = bisect_left(block.starts, self._emitted_to)
        log.problems.count(ProblemKind.LATE, sum(map(line_count, block.entries[:late])))
        is_behind = bool(log.starts) and bool(block.starts) and block.starts[0] < log.starts[-1]
        log.starts += block.starts
        log.tags += block.tags
        log.entries += block.entries
        log.has_continuations = log.has_continuations or block.has_continuations
        log.safe_to = max(log.safe_to, block.begins_at)
        if is_behind:
            log.problems.count(ProblemKind.REORDERED)
            whole = Block(log.safe_to, log.starts, log.tags, log.entries)
            whole.put_in_order()
            log.starts, log.tags, log.entries = whole.starts, whole.tags, whole.entries

    def _take_before(self, limit: bytes) -> Batch[Tag] | None:
        """Take what is earlier than ``limit`` from every log."""
        batch: Batch[Tag] = Batch([], [], [], False)
        taken = 0
        for log in self._open:
            count = bisect_left(log.starts, limit)
            if not count:
                continue
            taken += 1
            batch.starts += log.starts[:count]
            batch.tags += log.tags[:count]
            batch.entries += log.entries[:count]
            batch.has_continuations = batch.has_continuations or log.has_continuations
            del log.starts[:count], log.tags[:count], log.entries[:count]
            log.has_continuations = log.has_continuations and bool(log.starts)
        self._emitted_to = max(self._emitted_to, limit)
        if not taken:
            return None
        if taken > 1:
            # The sort keeps each log's order within a millisecond; the logs' places order them among each other.
            block = Block(limit, batch.starts, batch.tags, batch.entries)
            block.put_in_order()
            batch.starts, batch.tags, batch.entries = block.starts, block.tags, block.entries
        return batch
