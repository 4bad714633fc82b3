"""How groups commit, and which have stopped: a verdict on a standstill takes longer, and so do rates. Pure.

A group whose pace is known and that commits nothing while records arrive is WARN at once, whatever its last minute was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from engine.admin.lag.results import GroupLag
from engine.admin.lag.verdicts import TELLING_SPAN_MS, LagStatus, Reason
from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.frame import Frame, WatchedGroup
from engine.common.quantities import span_text

_MOVES = (Reason.KEEPS_UP, Reason.LAG_FELL, Reason.LAG_NEVER_FELL)
"""Verdicts on a reader that reads, which hold as long as its last minute has a move in it."""
_MOVES_MIN = 2
"""One move says nothing of how often a group commits."""


class _Pace(NamedTuple):
    """A group's offsets as one sum, since when that is the same though it is behind, and what was seen before."""

    lag: GroupLag
    committed: int
    since_ms: int
    seen_ms: int
    behind: int
    """Its lag at ``since_ms``."""
    longest_ms: int = 0
    """The longest time between two moves."""
    moves: int = 0
    told: GroupLag | None = None
    """Its lag without what it read before, if it has stopped."""

    @property
    def still_ms(self) -> int | None:
        """For how long it has committed nothing though it is behind; None if that may be its pace."""
        still_ms = self.seen_ms - self.since_ms
        return still_ms if self.lag.lag and still_ms >= TELLING_SPAN_MS and still_ms > self.longest_ms else None

    @property
    def is_stalled(self) -> bool:
        return self.told is not None and self.told.reason is Reason.STANDS_STILL

    def after(self, lag: GroupLag, now_ms: int) -> _Pace:
        """Return its pace once its offsets were read again."""
        committed = _committed(lag)
        if committed != self.committed:
            longest_ms = max(self.longest_ms, now_ms - self.since_ms)
            return _Pace(lag, committed, now_ms, now_ms, lag.lag or 0, longest_ms, self.moves + 1)
        if self.lag.lag == 0:
            # It had nothing to read until now.
            return _Pace(lag, committed, now_ms, now_ms, lag.lag or 0, self.longest_ms, self.moves)
        pace = self._replace(lag=lag, seen_ms=now_ms)
        if pace.still_ms is None:
            return pace._replace(told=None)
        is_late = self.moves >= _MOVES_MIN and (lag.lag or 0) > self.behind
        return pace._replace(told=_stopped(lag, is_stalled=is_late or not lag.status.is_fine))


class Paces:
    """The paces of the groups of a feed's frames."""

    def __init__(self) -> None:
        self._paces: dict[str, _Pace] = {}
        self._at_ms = 0

    def take(self, frame: Frame) -> Frame:
        """Take a newer frame, and return it without what groups that have stopped read before.

        It also tells which of them have stopped since the last one, and which read again.
        A frame from another time (a seek in a recording) starts afresh.
        """
        if frame.at_ms < self._at_ms:
            self._paces.clear()
        self._at_ms = frame.at_ms
        before = self._paces
        self._paces = {group.name: self._pace_of(group, frame.at_ms) for group in frame.groups}
        events = tuple(
            event
            for name, pace in self._paces.items()
            if name in before and (event := _change(name, before[name], pace)) is not None
        )
        stopped = {name: pace.told for name, pace in self._paces.items() if pace.told is not None}
        if not stopped and not events:
            return frame
        groups = tuple(replace(group, lag=stopped.get(group.name, group.lag)) for group in frame.groups)
        return replace(frame, groups=groups, events=(*frame.events, *events))

    def still_s(self, group: str) -> float | None:
        """Return for how long a group that is behind has committed nothing; None if that may be its pace."""
        pace = self._paces.get(group)
        return None if pace is None or pace.still_ms is None else pace.still_ms / 1000

    def _pace_of(self, group: WatchedGroup, now_ms: int) -> _Pace:
        pace = self._paces.get(group.name)
        if pace is None:
            return _Pace(group.lag, _committed(group.lag), now_ms, now_ms, group.lag.lag or 0)
        return pace if pace.lag is group.lag else pace.after(group.lag, now_ms)


def _change(group: str, before: _Pace, after: _Pace) -> Event | None:
    if before.is_stalled == after.is_stalled:
        return None
    within_ms = after.seen_ms - before.seen_ms
    if after.is_stalled:
        why = f"no commit for {span_text((after.still_ms or 0) // 1000)}"
        return Event(after.seen_ms, EventKind.GROUP_STALLED, f"group {group}", within_ms=within_ms, reason=why)
    if after.committed == before.committed:
        return None
    why = f"no commit for {span_text((before.still_ms or 0) // 1000)} before"
    return Event(after.seen_ms, EventKind.GROUP_READS_AGAIN, f"group {group}", within_ms=within_ms, reason=why)


def _stopped(lag: GroupLag, *, is_stalled: bool) -> GroupLag:
    """Return the lag of a group that commits nothing now; ``is_stalled``: that is not its pace."""
    partitions = tuple(replace(one, out_per_sec=0.0, clear_in_ms=None) for one in lag.partitions)
    told = replace(lag, partitions=partitions, out_per_sec=0.0, clear_in_ms=None)
    if not is_stalled or lag.reason not in _MOVES:
        return told
    partitions = tuple(
        replace(one, status=LagStatus.WARN, reason=Reason.STANDS_STILL) if one.lag and one.reason in _MOVES else one
        for one in partitions
    )
    return replace(told, partitions=partitions, status=LagStatus.WARN, reason=Reason.STANDS_STILL)


def _committed(lag: GroupLag) -> int:
    return sum(one.committed_offset or 0 for one in lag.partitions)
