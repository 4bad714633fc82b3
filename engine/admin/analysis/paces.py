"""How groups commit, and which have stopped: a verdict on a standstill takes longer, and so do rates. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from engine.admin.lag.results import GroupLag
from engine.admin.lag.verdicts import TELLING_SPAN_MS
from engine.admin.watch.frame import Frame, WatchedGroup


class _Pace(NamedTuple):
    """A group's offsets as one sum, since when that is the same, and what was seen before."""

    lag: GroupLag
    committed: int
    since_ms: int
    seen_ms: int
    longest_ms: int = 0
    """The longest time between two moves."""
    told: GroupLag | None = None
    """Its lag without what it read before, if it has stopped."""

    @property
    def still_ms(self) -> int | None:
        """For how long it has committed nothing though it is behind; None if that may be its pace."""
        still_ms = self.seen_ms - self.since_ms
        return still_ms if self.lag.lag and still_ms >= TELLING_SPAN_MS and still_ms > self.longest_ms else None

    def after(self, lag: GroupLag, now_ms: int) -> _Pace:
        """Return its pace once its offsets were read again."""
        committed = _committed(lag)
        if committed != self.committed:
            return _Pace(lag, committed, now_ms, now_ms, longest_ms=max(self.longest_ms, now_ms - self.since_ms))
        pace = self._replace(lag=lag, seen_ms=now_ms)
        return pace._replace(told=None if pace.still_ms is None else _stopped(lag))


class Paces:
    """The paces of the groups of a feed's frames."""

    def __init__(self) -> None:
        self._paces: dict[str, _Pace] = {}
        self._at_ms = 0

    def take(self, frame: Frame) -> Frame:
        """Take a newer frame, and return it without what groups that have stopped read before.

        A frame from another time (a seek in a recording) starts afresh.
        """
        if frame.at_ms < self._at_ms:
            self._paces.clear()
        self._at_ms = frame.at_ms
        self._paces = {group.name: self._pace_of(group, frame.at_ms) for group in frame.groups}
        stopped = {name: pace.told for name, pace in self._paces.items() if pace.told is not None}
        if not stopped:
            return frame
        return replace(
            frame, groups=tuple(replace(group, lag=stopped.get(group.name, group.lag)) for group in frame.groups)
        )

    def still_s(self, group: str) -> float | None:
        """Return for how long a group that is behind has committed nothing; None if that may be its pace."""
        pace = self._paces.get(group)
        return None if pace is None or pace.still_ms is None else pace.still_ms / 1000

    def _pace_of(self, group: WatchedGroup, now_ms: int) -> _Pace:
        pace = self._paces.get(group.name)
        if pace is None:
            return _Pace(group.lag, _committed(group.lag), now_ms, now_ms)
        return pace if pace.lag is group.lag else pace.after(group.lag, now_ms)


def _stopped(lag: GroupLag) -> GroupLag:
    partitions = tuple(replace(one, out_per_sec=0.0, clear_in_ms=None) for one in lag.partitions)
    return replace(lag, partitions=partitions, out_per_sec=0.0, clear_in_ms=None)


def _committed(lag: GroupLag) -> int:
    return sum(one.committed_offset or 0 for one in lag.partitions)
