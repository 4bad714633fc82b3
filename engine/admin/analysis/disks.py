"""Log dirs: how full they are, how fast they fill, and when there is no room left. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.admin.analysis.history import History, Sample
from engine.admin.analysis.slope import slope_of
from engine.admin.health.checks import ALMOST_FULL_PERCENT
from engine.admin.health.report import used_percent
from engine.admin.watch.frame import Frame

WINDOW_MS = 30 * 60 * 1000
RECENT_MS = 5 * 60 * 1000
"""A log dir that no longer fills in this time has no date at which it is full."""
REST_MS = 30 * 1000
"""What fills in bursts is over once it rests for so long, and for as long as it has filled in ``RECENT_MS``."""
_FORESIGHT = 12
"""What was seen for less than ``RECENT_MS`` tells so many times its length ahead: a burst of seconds is no trend."""
_OTHERS = 0.1
FILLS_SOON_S = 86_400
"""A log dir that has room for less than this is a problem, and for less than ``NO_ROOM_SOON_S`` a grave one."""
NO_ROOM_SOON_S = 3_600


@dataclass(frozen=True, slots=True)
class DirTrend:
    """One log dir. What is not known is None.

    Attributes:
        used_percent: of its volume, whoever filled it.
        bytes_per_s: how fast it fills over the last half hour; None: fewer than three readings.
        full_in_s: in how many seconds there is no room left at this rate, or at that of the last minutes if it is
            lower; None: it does not fill, or is not known.
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
        """Whether somebody has to make room: it is almost full, or will be soon."""
        is_soon = self.full_in_s is not None and self.full_in_s < FILLS_SOON_S
        return is_soon or (self.used_percent is not None and self.used_percent >= ALMOST_FULL_PERCENT)


def dir_trends(frame: Frame, history: History) -> list[DirTrend]:
    """Return all log dirs: those with errors first, then those that will be full soonest, then the fullest."""
    found = []
    for log_dir in frame.log_dirs:
        samples = () if log_dir.log_dir is None else history.used_bytes.of((log_dir.broker, log_dir.log_dir))
        slope = slope_of(samples, WINDOW_MS)
        found.append(
            DirTrend(
                log_dir.broker,
                log_dir.log_dir,
                log_dir.size_bytes,
                used_percent(log_dir.total_bytes, log_dir.usable_bytes),
                None if slope is None else slope.per_s,
                _full_in_s(log_dir.usable_bytes, samples),
                log_dir.error or "",
            )
        )
    return sorted(found, key=_urgency)


def _full_in_s(usable_bytes: int | None, samples: Sequence[Sample]) -> float | None:
    """Return None if the samples do not even show that it fills and goes on to fill."""
    slopes = [slope_of(samples, window_ms) for window_ms in (WINDOW_MS, RECENT_MS)]
    rates = [slope.per_s for slope in slopes if slope is not None and slope.is_rising]
    if usable_bytes is None or len(rates) < len(slopes) or _rests(samples):
        return None
    full_in_s = usable_bytes / min(rates)
    seen_ms = samples[-1].at_ms - samples[0].at_ms
    return full_in_s if seen_ms >= RECENT_MS or full_in_s * 1000 <= _FORESIGHT * seen_ms else None


def _rests(samples: Sequence[Sample]) -> bool:
    """Whether the last growth is over. A tenth of the pace is none: others write to the volume, too."""
    recent = [sample for sample in samples if sample.at_ms >= samples[-1].at_ms - RECENT_MS]
    first, last = recent[0], recent[-1]
    pace = (last.value - first.value) / (last.at_ms - first.at_ms)
    grown = [
        (before.at_ms, after.at_ms)
        for before, after in pairwise(recent)
        if after.value - before.value > _OTHERS * pace * (after.at_ms - before.at_ms)
    ]
    began_ms, ended_ms = grown[0][0], grown[-1][1]
    return last.at_ms - ended_ms >= max(REST_MS, ended_ms - began_ms)


def _urgency(one: DirTrend) -> tuple[bool, float, float, int, str]:
    full_in_s = float("inf") if one.full_in_s is None else one.full_in_s
    return not one.error, full_in_s, -(one.used_percent or 0.0), one.broker, one.log_dir or ""
