"""Consumer groups: whether they fall behind or catch up, and when they will have read all. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.admin.watch.frame import Frame
from tui.presenters.slope import slope_of
from tui.state.history import History

WINDOW_MS = 5 * 60 * 1000
STEADY_PER_S = 0.5
"""A lag that changes by less than so many records a second stands still."""


class Direction(StrEnum):
    """Where a lag is going."""

    GROWING = "growing"
    SHRINKING = "shrinking"
    STEADY = "steady"
    CAUGHT_UP = "caught up"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LagTrend:
    """One group. ``per_s`` is how fast its lag grows; ``clear_in_s`` is None where it does not shrink."""

    group: str
    lag: int | None
    direction: Direction
    per_s: float | None
    clear_in_s: float | None


def lag_trends(frame: Frame, history: History) -> list[LagTrend]:
    """Return all groups, those that fall behind fastest first."""
    found = [_trend(group.name, group.lag.lag, history) for group in frame.groups]
    return sorted(found, key=lambda one: (-(one.per_s or 0.0), -(one.lag or 0), one.group))


def _trend(name: str, lag: int | None, history: History) -> LagTrend:
    slope = slope_of(history.lag.of(name), WINDOW_MS)
    if lag is None:
        return LagTrend(name, None, Direction.UNKNOWN, None, None)
    if slope is None:
        return LagTrend(name, lag, Direction.CAUGHT_UP if lag == 0 else Direction.UNKNOWN, None, None)
    if slope.is_rising and slope.per_s > STEADY_PER_S:
        return LagTrend(name, lag, Direction.GROWING, slope.per_s, None)
    if slope.is_falling and slope.per_s < -STEADY_PER_S:
        return LagTrend(name, lag, Direction.SHRINKING, slope.per_s, lag / -slope.per_s)
    return LagTrend(name, lag, Direction.CAUGHT_UP if lag == 0 else Direction.STEADY, slope.per_s, None)
