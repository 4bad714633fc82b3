"""How often groups commit, and which have stopped: earlier than verdicts and rates can tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from engine.admin.groups.values import GroupType
from engine.admin.lag.group_lag import GroupLag
from engine.admin.lag.spark_positions import ReaderKind
from engine.admin.lag.verdicts import TELLING_SPAN_MS

_MOVES_MIN = 2
"""One move says nothing of how often a group commits."""


class _Pace(NamedTuple):
    """A group's offsets as one sum, since when it has stood still although the group is behind, and its pace before."""

    lag: GroupLag
    committed: int
    since_ms: int
    seen_ms: int
    behind: int
    """Its lag at ``since_ms``."""
    longest_ms: int = 0
    """The longest time between two moves."""
    moves: int = 0
    stopped: GroupLag | None = None
    """Its lag without what it read before, if it has stopped."""

    @property
    def still_ms(self) -> int | None:
        """For how long it has committed nothing though it is behind; None if that may be its pace."""
        still_ms = self.seen_ms - self.since_ms
        return (
            still_ms
            if not _has_read_all(self.lag) and still_ms >= TELLING_SPAN_MS and still_ms > self.longest_ms
            else None
        )

    @property
    def is_late(self) -> bool:
        """Whether its pace is known, and it has committed nothing for longer while records came."""
        return self.still_ms is not None and self.moves >= _MOVES_MIN and (self.lag.lag or 0) > self.behind

    def after(self, lag: GroupLag, now_ms: int) -> _Pace:
        """Return its pace once its offsets were read again."""
        committed = _committed(lag)
        if committed != self.committed:
            longest_ms = max(self.longest_ms, now_ms - self.since_ms)
            return _Pace(lag, committed, now_ms, now_ms, lag.lag or 0, longest_ms, self.moves + 1)
        if _has_read_all(self.lag):
            # It had nothing to read until now.
            return _Pace(lag, committed, now_ms, now_ms, lag.lag or 0, self.longest_ms, self.moves)
        pace = self._replace(lag=lag, seen_ms=now_ms)
        return pace._replace(stopped=None if pace.still_ms is None else _stopped(lag))


class Paces:
    """The paces of groups whose lag is measured repeatedly."""

    def __init__(self) -> None:
        self._paces: dict[tuple[str, GroupType | None], _Pace] = {}
        self._at_ms = 0

    def take(self, lags: Iterable[GroupLag], at_ms: int) -> tuple[GroupLag, ...]:
        """Take what was measured by now, and return it without what groups that have stopped read before.

        A time before the last one (a seek in a recording) starts afresh. Queries of Spark pass as they are.
        """
        if at_ms < self._at_ms:
            self._paces.clear()
        self._at_ms = at_ms
        before, self._paces = self._paces, {}
        measured = []
        for lag in lags:
            if lag.kind is ReaderKind.GROUP:
                pace = _pace_of(lag, before.get((lag.group, lag.type)), at_ms)
                self._paces[lag.group, lag.type] = pace
                lag = pace.stopped or lag
            measured.append(lag)
        return tuple(measured)

    def still_s(self, lag: GroupLag) -> float | None:
        """Return for how long a group that is behind has committed nothing; None if that may be its pace."""
        pace = self._paces.get((lag.group, lag.type))
        return None if pace is None or pace.still_ms is None else pace.still_ms / 1000

    def is_late(self, lag: GroupLag) -> bool:
        """Whether a group has committed nothing for longer than it ever took, while records came."""
        pace = self._paces.get((lag.group, lag.type))
        return pace is not None and pace.is_late


def _pace_of(lag: GroupLag, before: _Pace | None, now_ms: int) -> _Pace:
    if before is None:
        return _Pace(lag, _committed(lag), now_ms, now_ms, lag.lag or 0)
    if before.lag is lag:
        return before
    if before.lag.partitions is lag.partitions:
        # Only its state was read again.
        return before._replace(lag=lag, stopped=None if before.stopped is None else _stopped(lag))
    return before.after(lag, now_ms)


def _has_read_all(lag: GroupLag) -> bool:
    """Whether nothing is unread but markers, gaps or aborted records, as far as is known."""
    return not lag.lag or not any(partition.is_behind for partition in lag.partitions)


def _stopped(lag: GroupLag) -> GroupLag:
    partitions = tuple(replace(partition, out_per_sec=0.0, clear_in_ms=None) for partition in lag.partitions)
    return replace(lag, partitions=partitions, out_per_sec=0.0, clear_in_ms=None)


def _committed(lag: GroupLag) -> int:
    return sum(partition.committed_offset or 0 for partition in lag.partitions)
