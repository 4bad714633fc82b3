"""Cuts state-change logs so that each piece of time can be merged by itself, and checks whether that is sound.

A boundary is a time. In each log the cut is the entry that a binary search finds for it. Logs are nearly in order, so a
piece reads a little more on both sides and takes the entries of its own time. A count afterwards shows whether all
entries were taken.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from engine.admin.state_changes.merge import MergePlan
from engine.admin.state_changes.selection import ORDER_SLACK
from engine.admin.state_changes.zones import UtcClock, shifted
from engine.kafka.formats.state_change_lines import is_start, start_of

SLACK_BYTES = 32 * 1024
"""An entry near a cut may be this far from its place."""

_SAMPLE_BYTES_MAX = 4 * 1024 * 1024
_SAMPLES_PER_PIECE = 16
_LOOK_BYTES = 16 * 1024
_LOOK_BYTES_MAX = 16 * 1024 * 1024
_BLOCK_BYTES = 64 * 1024
_LOGS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes ``begin`` to ``end`` - 1 of the log with this number in the plan: whole entries."""

    number: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """All entries from ``start`` to before ``stop``; None means no bound."""

    start: bytes | None
    stop: bytes | None
    segments: tuple[Segment, ...]


def cut(plan: MergePlan, paths: Sequence[Path], piece_bytes: int) -> list[Piece]:
    """Return pieces of about ``piece_bytes``, in the order of time. ``paths`` are the plan's logs, uncompressed."""
    logs = [_Log(path, plan.clock_of(file)) for path, file in zip(paths, plan.files, strict=True)]
    distance = min(max(piece_bytes // _SAMPLES_PER_PIECE, 1), _SAMPLE_BYTES_MAX)
    try:
        # In stores each read is a request, so logs are searched in parallel.
        with ThreadPoolExecutor(_LOGS_AT_ONCE) as pool:
            bounds = _boundaries(list(pool.map(lambda log: log.samples(distance), logs)), piece_bytes)
            edges = list(pool.map(lambda log: [0, *map(log.cut_at, bounds), log.size], logs))
        leads = [plan.lead_start(number) for number in range(len(logs))]
        times: list[bytes | None] = [None, *bounds, None]
        return [
            Piece(start, stop, tuple(_segments(logs, leads, edges, index, start, stop)))
            for index, (start, stop) in enumerate(pairwise(times))
        ]
    finally:
        for log in logs:
            log.close()


def _segments(
    logs: Sequence[_Log],
    leads: Sequence[bytes],
    edges: Sequence[Sequence[int]],
    index: int,
    start: bytes | None,
    stop: bytes | None,
) -> Iterator[Segment]:
    """Yield what a piece reads: a part of a log, or lines without a time at a log's beginning that belong there.

    If two cuts coincide, single entries around them may still be of that time.
    """
    for number, (log, lead) in enumerate(zip(logs, leads, strict=True)):
        low, high = edges[number][index], edges[number][index + 1]
        has_lead = (start is None or start <= lead) and (stop is None or lead < stop)
        if low < high or has_lead or log.may_have_around(low, start, stop):
            yield Segment(number, log.entry_before(low), log.entry_after(high))


def expected_bytes(path: Path) -> int:
    """Return the size of all entries of a log, each with a line feed."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return size + (file.read(1) != b"\n")


def is_nearly_in_order(path: Path) -> bool:
    """Whether the local merge can sort the log: no entry is too far from its place.

    The earliest time of each block must not be before that of the previous block. Then the local merge, which looks
    further ahead than a block, meets no entry too late, and its result has the same order as that of the pieces.
    """
    earliest = rest = b""
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_BLOCK_BYTES):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            starts = [start_of(line) for line in lines if is_start(line)]
            if starts:
                least = min(starts)
                if least < earliest:
                    return False
                earliest = least
    return not is_start(rest) or start_of(rest) >= earliest


def is_in_order_near_cuts(path: Path) -> bool:
    """Whether each entry is within ``SLACK_BYTES`` of its place, and no more than an hour out of order.

    Then pieces miss nothing, and neither they nor the local merge meet an entry too late, whatever the filters are.
    """
    greatest = settled = b""
    recent: deque[tuple[int, bytes]] = deque()
    position = 0
    with path.open("rb") as file:
        for line in file:
            if b"\0" in line:
                return False
            if is_start(line):
                start = start_of(line)
                while recent and recent[0][0] <= position - SLACK_BYTES:
                    settled = recent.popleft()[1]
                if start >= greatest:
                    greatest = start
                    recent.append((position, start))
                elif start < settled or shifted(start, ORDER_SLACK) < greatest:
                    return False
            position += len(line)
    return True


class _Log:
    """One log, open for reads at single places."""

    def __init__(self, path: Path, clock: UtcClock | None) -> None:
        self._file = path.open("rb", buffering=0)
        self._clock = clock
        self.size = self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        self._file.close()

    def may_have_around(self, cut: int, start: bytes | None, stop: bytes | None) -> bool:
        """Whether entries around a cut may be from ``start`` to before ``stop``."""
        if cut == 0:
            return stop is None or self._head_times[0] < stop
        return cut < self.size or start is None or self._tail_times[1] >= start

    @cached_property
    def _head_times(self) -> tuple[bytes, bytes]:
        return self._times_between(0, 2 * SLACK_BYTES)

    @cached_property
    def _tail_times(self) -> tuple[bytes, bytes]:
        return self._times_between(max(0, self.size - 2 * SLACK_BYTES), self.size)

    def _times_between(self, begin: int, end: int) -> tuple[bytes, bytes]:
        """Return the first and the last time in some bytes of the log."""
        self._file.seek(begin)
        starts = [start_of(line) for line in self._file.read(end - begin).split(b"\n") if is_start(line)]
        if not starts:
            return b"\xff", b""
        ends = [min(starts), max(starts)]
        first, last = ends if self._clock is None else self._clock.starts(ends)
        return first, last

    def samples(self, distance: int) -> list[tuple[bytes, int]]:
        """Return times at even distances, each with the bytes up to the next one."""
        sampled = []
        for position in range(0, self.size, distance):
            entry = self._entry_from(position)
            if entry is not None:
                sampled.append((entry[1], min(distance, self.size - position)))
        return sampled

    def cut_at(self, bound: bytes) -> int:
        """Return where the first entry at or after a time begins, as far as the log is in order."""
        low, high = 0, self.size
        while high - low > _LOOK_BYTES:
            middle = (low + high) // 2
            entry = self._entry_from(middle)
            if entry is None or entry[0] >= high:
                high = middle
            elif entry[1] < bound:
                low = entry[0]
            else:
                high = middle
        position = low
        while (entry := self._entry_from(position)) is not None:
            if entry[1] >= bound:
                return entry[0]
            position = entry[0] + 1
        return self.size

    def entry_before(self, position: int) -> int:
        """Return the start of an entry a little before a cut; the log's own beginning stays."""
        entry = self._entry_from(position - SLACK_BYTES) if position > SLACK_BYTES else None
        return 0 if position <= SLACK_BYTES else position if entry is None else min(entry[0], position)

    def entry_after(self, position: int) -> int:
        """Return the start of an entry a little after a cut, or the log's end if there is none."""
        entry = self._entry_from(position + SLACK_BYTES)
        return self.size if entry is None else entry[0]

    def _entry_from(self, position: int) -> tuple[int, bytes] | None:
        """Return position and time of the first entry that begins at a position or after it."""
        begin = max(0, position - 1)
        look = _LOOK_BYTES
        while True:
            self._file.seek(begin)
            text = self._file.read(look)
            at = 0 if position <= 0 and is_start(text) else text.find(b"\n[") + 1
            while at and not is_start(text[at : at + 25]):
                at = text.find(b"\n[", at) + 1
            if at or (position <= 0 and is_start(text)):
                start = start_of(text[at:])
                return begin + at, start if self._clock is None else self._clock.starts([start])[0]
            if len(text) < look or look >= _LOOK_BYTES_MAX:
                return None
            look *= 4


def _boundaries(samples: Sequence[Sequence[tuple[bytes, int]]], piece_bytes: int) -> list[bytes]:
    """Return the times that divide all logs together into pieces of ``piece_bytes``."""
    bounds: list[bytes] = []
    passed = 0
    for start, size in sorted(sample for log in samples for sample in log):
        if passed >= piece_bytes and (not bounds or start > bounds[-1]):
            bounds.append(start)
            passed = 0
        passed += size
    return bounds
