"""Log dirs: how full they are, how fast they fill, and when there is no room left. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.analysis.history import History
from engine.admin.analysis.slope import Slope, slope_of
from engine.admin.watch.frame import Frame

WINDOW_MS = 30 * 60 * 1000
FILLS_SOON_S = 86_400
"""A log dir that has room for less than this is a problem, and for less than ``NO_ROOM_SOON_S`` a grave one."""
NO_ROOM_SOON_S = 3_600
ALMOST_FULL_PERCENT = 95.0
"""So is one that is this full, however slowly it fills."""


@dataclass(frozen=True, slots=True)
class DirTrend:
    """One log dir. What is not known is None.

    Attributes:
        used_percent: of its volume, whoever filled it.
        bytes_per_s: how fast it fills over the last half hour; None: fewer than three readings.
        full_in_s: in how many seconds there is no room left at this rate; None: it does not fill, or is not known.
        error: why nothing is known of it, for example after a disk failure.
    """

    broker: int
    log_dir: str | None
    size_bytes: int
    used_percent: float | None
    bytes_per_s: float | None
    full_in_s: float | None
    error: str = ""

    @property
    def is_filling(self) -> bool:
        """Whether somebody has to make room."""
        is_soon = self.full_in_s is not None and self.full_in_s < FILLS_SOON_S
        return is_soon or (self.used_percent is not None and self.used_percent >= ALMOST_FULL_PERCENT)


def dir_trends(frame: Frame, history: History) -> list[DirTrend]:
    """Return all log dirs: those with errors first, then those that will be full soonest, then the fullest."""
    found = []
    for log_dir in frame.log_dirs:
        slope = (
            None
            if log_dir.log_dir is None
            else slope_of(history.used_bytes.of((log_dir.broker, log_dir.log_dir)), WINDOW_MS)
        )
        percent = None
        if log_dir.total_bytes and log_dir.usable_bytes is not None:
            percent = 100 * (log_dir.total_bytes - log_dir.usable_bytes) / log_dir.total_bytes
        found.append(
            DirTrend(
                log_dir.broker,
                log_dir.log_dir,
                log_dir.size_bytes,
                percent,
                None if slope is None else slope.per_s,
                _full_in_s(log_dir.usable_bytes, slope),
                log_dir.error or "",
            )
        )
    return sorted(found, key=_urgency)


def _full_in_s(usable_bytes: int | None, slope: Slope | None) -> float | None:
    """Return None if the samples do not even show that it fills."""
    if usable_bytes is None or slope is None or not slope.is_rising:
        return None
    return usable_bytes / slope.per_s


def _urgency(one: DirTrend) -> tuple[bool, float, float, int, str]:
    full_in_s = float("inf") if one.full_in_s is None else one.full_in_s
    return not one.error, full_in_s, -(one.used_percent or 0.0), one.broker, one.log_dir or ""
