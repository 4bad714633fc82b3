"""How fast records arrive and are read, and when a reader will have caught up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.admin.lag.rules import KnownPoint, went_back


class Trend(NamedTuple):
    """Records a second that arrive and are read, over the samples; None if unknown."""

    in_per_sec: float | None
    out_per_sec: float | None

    def clear_in_ms(self, lag: int | None) -> int | None:
        """Return in how many milliseconds the lag will be gone at this rate; None: unknown, or never."""
        if lag is None or lag < 0:
            return None
        if lag == 0:
            return 0
        if self.in_per_sec is None or self.out_per_sec is None or self.out_per_sec <= self.in_per_sec:
            return None
        return round(lag / (self.out_per_sec - self.in_per_sec) * 1000)


UNKNOWN_TREND = Trend(None, None)


def trend_of(points: Sequence[KnownPoint]) -> Trend:
    """Return the trend over the points; a reader that went back has no rate of reading."""
    if len(points) < 2 or points[-1].time_ms <= points[0].time_ms:
        return UNKNOWN_TREND
    first, last = points[0], points[-1]
    seconds = (last.time_ms - first.time_ms) / 1000
    has_gone_back = went_back(points) or last.committed < first.committed
    reading = None if has_gone_back else (last.committed - first.committed) / seconds
    return Trend((last.end - first.end) / seconds, reading)


def sum_of_trends(trends: Iterable[Trend]) -> Trend:
    """Return the sums of the rates that are known; None if none is."""
    known = list(trends)
    return Trend(_sum(one.in_per_sec for one in known), _sum(one.out_per_sec for one in known))


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
