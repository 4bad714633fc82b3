"""Counters, meters and histograms as Kafka shows them. They are plain values: hot paths add to a number, and a tick on
the event loop makes rates and percentiles of it.

Sources: Yammer Metrics 2.2 (``Meter``, ``Histogram`` with a biased sample) and Kafka 3.9's own metrics (``Rate``).
"""

from __future__ import annotations

import math
import random
import time
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from engine.common.windowed_rate import METRICS_WINDOW, Window

TICK_S: Final = 5
"""Seconds between two looks at the counters. Yammer's meters have the same."""

_WEIGHTS: Final = tuple(1 - math.exp(-TICK_S / 60 / minutes) for minutes in (1, 5, 15))
_SAMPLE_SIZE: Final = 1028
_CUT_FROM: Final = _SAMPLE_SIZE * 3 // 2
"""A sample this large is cut to its size: to keep it there at each value would cost more."""
_ALPHA: Final = 0.015
"""Yammer's: the sample is mostly of the last five minutes."""

RECENT_MAX: Final = 128
"""As many of the newest values does a tick put into a histogram; the others only count."""

RATE_POINTS_MAX: Final = 100
"""As many totals does a rate remember, however long its window is."""

_RESCALE_S: Final = 3600.0

PERCENTILES: Final = (
    ("50thPercentile", 0.5),
    ("75thPercentile", 0.75),
    ("95thPercentile", 0.95),
    ("98thPercentile", 0.98),
    ("99thPercentile", 0.99),
    ("999thPercentile", 0.999),
)

Attributes = Mapping[str, object]


class Meter:
    """Counts events; each tick brings its rates over 1, 5 and 15 minutes up to date. Add to ``count`` freely."""

    __slots__ = ("_rates", "_seen", "_ticks", "count", "event_type", "rate_unit", "since_s")

    def __init__(self, event_type: str, since_s: float, ticks: int = 0, *, rate_unit: str = "SECONDS") -> None:
        """``since_s`` is the present monotonic time; ``ticks`` the number of ticks so far."""
        self.count = 0
        self.event_type = event_type
        self.rate_unit = rate_unit
        self.since_s = since_s
        self._seen = 0
        self._ticks = ticks
        self._rates: tuple[float, ...] | None = None

    def tick(self, ticks: int) -> None:
        """Take in what was counted since the tick before. ``ticks`` is the number of ticks with this one."""
        if self.count == self._seen:
            return
        self._decay(ticks - 1)
        rate = (self.count - self._seen) / TICK_S
        if self._rates is None:
            self._rates = (rate, rate, rate)
        else:
            self._rates = tuple(old + weight * (rate - old) for old, weight in zip(self._rates, _WEIGHTS, strict=True))
        self._seen = self.count
        self._ticks = ticks

    def _decay(self, ticks: int) -> None:
        """Take in the ticks in which nothing happened."""
        idle = ticks - self._ticks
        if idle > 0:
            rates = self._rates or (0.0, 0.0, 0.0)
            self._rates = tuple(old * (1 - weight) ** idle for old, weight in zip(rates, _WEIGHTS, strict=True))
            self._ticks = ticks

    def attributes(self, now_s: float, ticks: int) -> dict[str, object]:
        if self.count == self._seen:
            self._decay(ticks)
        one, five, fifteen = self._rates or (0.0, 0.0, 0.0)
        elapsed_s = now_s - self.since_s
        return {
            "Count": self.count,
            "EventType": self.event_type,
            "FifteenMinuteRate": fifteen,
            "FiveMinuteRate": five,
            "MeanRate": self.count / elapsed_s if self.count and elapsed_s > 0 else 0.0,
            "OneMinuteRate": one,
            "RateUnit": self.rate_unit,
        }


class Histogram:
    """A distribution: count, mean and extremes of all values, percentiles of a sample that prefers new ones.

    A broker has hundreds, so the sample is two arrays: as tuples in a heap they took 60 MB, once all APIs were in use.
    """

    __slots__ = (
        "_kept_squares", "_kept_values", "_priorities", "_start_s", "_values", "count", "max", "min", "total"
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.max = 0.0
        self.min = math.inf
        self._priorities, self._values = array("d"), array("d")
        self._start_s: float | None = None
        self._kept_values = 0
        self._kept_squares = 0.0

    def add(self, value: float, now_s: float) -> None:
        self.count += 1
        self.total += value
        self.take((value,), now_s)

    def take(self, values: Iterable[float], now_s: float) -> None:
        """Put values into the sample; who calls this has counted and added them up."""
        if self._start_s is None or now_s - self._start_s > _RESCALE_S:
            self._rescale(now_s)
        assert self._start_s is not None
        weight = math.exp(_ALPHA * (now_s - self._start_s))
        for value in values:
            self.max = max(self.max, value)
            self.min = min(self.min, value)
            self._kept_values += 1
            self._kept_squares += value * value
            self._priorities.append(weight / (1 - random.random()))
            self._values.append(value)
        if len(self._priorities) >= _CUT_FROM:
            self._cut()

    def _cut(self) -> None:
        """Keep the values of the highest priority."""
        if len(self._priorities) > _SAMPLE_SIZE:
            least = sorted(self._priorities)[-_SAMPLE_SIZE]
            kept = [place for place, priority in enumerate(self._priorities) if priority >= least]
            self._values = array("d", [self._values[place] for place in kept])
            self._priorities = array("d", [self._priorities[place] for place in kept])

    def _rescale(self, now_s: float) -> None:
        """Start the weights again, or they would grow without end."""
        if self._start_s is not None:
            factor = math.exp(-_ALPHA * (now_s - self._start_s))
            # After a day without values all would be 0, and none more than another.
            kept = [place for place, priority in enumerate(self._priorities) if priority * factor > 0]
            self._values = array("d", [self._values[place] for place in kept])
            self._priorities = array("d", [self._priorities[place] * factor for place in kept])
        self._start_s = now_s

    def hold(self, *parts: Histogram) -> None:
        """Show the samples of others together, which stay their own."""
        self._values = array("d")
        for part in parts:
            part._cut()
            self._values += part._values
        self._kept_values = sum(part._kept_values for part in parts)
        self._kept_squares = sum(part._kept_squares for part in parts)
        self.max = max((part.max for part in parts), default=0.0)
        self.min = min((part.min for part in parts), default=math.inf)

    def attributes(self) -> dict[str, object]:
        self._cut()
        values = sorted(self._values)
        mean = self.total / self.count if self.count else 0.0
        return {
            **{name: percentile(values, share) for name, share in PERCENTILES},
            "Count": self.count,
            "Max": self.max,
            "Mean": mean,
            "Min": self.min if values else 0.0,
            "StdDev": self._deviation(),
        }

    def _deviation(self) -> float:
        """Return the standard deviation of the values that were taken into the sample at some time."""
        count = self._kept_values
        if count < 2:
            return 0.0
        mean = self.total / self.count if self.count else 0.0
        return math.sqrt(max(0.0, (self._kept_squares - count * mean * mean) / (count - 1)))


def percentile(values: list[float], share: float) -> float:
    """Return a percentile of sorted values, between two of them where it falls between; 0.0 of none."""
    if not values:
        return 0.0
    position = share * (len(values) + 1)
    if position < 1:
        return values[0]
    if position >= len(values):
        return values[-1]
    lower, upper = values[int(position) - 1], values[int(position)]
    return lower + (position - int(position)) * (upper - lower)


class Occasional:
    """A value that some of many requests have: how often, the sum, and the newest. Reading ``recent`` empties it."""

    __slots__ = ("count", "recent", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.recent: deque[float] = deque(maxlen=RECENT_MAX)

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.recent.append(value)


class Timer:
    """How often something was done and how long each took, in milliseconds."""

    __slots__ = ("_meter", "_times")

    def __init__(self, since_s: float, ticks: int = 0) -> None:
        self._meter = Meter("calls", since_s, ticks)
        self._times = Histogram()

    def add(self, took_ms: float, now_s: float) -> None:
        self._meter.count += 1
        self._times.add(took_ms, now_s)

    def tick(self, ticks: int) -> None:
        self._meter.tick(ticks)

    def attributes(self, now_s: float, ticks: int) -> dict[str, object]:
        return {
            **self._times.attributes(),
            **self._meter.attributes(now_s, ticks),
            "EventType": "calls",
            "LatencyUnit": "MILLISECONDS",
        }


class Rate:
    """The growth per second of a total that others count, over Kafka's window of metrics.

    It is told the total on each tick and whenever it is read, perhaps after an hour: between two looks, the growth
    counts as even. Kafka counts each event when it happens.
    """

    __slots__ = ("_least_s", "_points", "_span_s", "_step_s", "total")

    def __init__(self, window: Window, now_s: float) -> None:
        self.total = 0.0
        self._span_s = window.whole_ms / 1000
        self._least_s = max((window.samples - 1) * window.sample_ms / 1000, 0.001)
        self._step_s = self._span_s / RATE_POINTS_MAX
        self._points: deque[tuple[float, float]] = deque([(now_s, 0.0)])

    def note(self, now_s: float, total: float) -> None:
        """Take in what the total is now."""
        self.total = total
        points = self._points
        if now_s - points[-1][0] >= self._step_s:
            points.append((now_s, total))
        while len(points) > 1 and points[1][0] <= now_s - self._span_s:
            points.popleft()

    def per_second(self, now_s: float) -> float:
        """Return the rate. As in Kafka, the time counts as all samples but one at least."""
        then_s, then = self._points[0]
        return (self.total - then) / max(now_s - then_s, self._least_s)


class Ledger:
    """Meters and rates, by name, of totals that others count. Add 1 to ``ticks`` and call ``tick`` every ``TICK_S``."""

    def __init__(self, window: Window = METRICS_WINDOW) -> None:
        self.since_s = self.now_s
        self.ticks = 0
        self.window = window
        self._meters: dict[str, Meter] = {}
        self._rates: dict[str, Rate] = {}

    @property
    def now_s(self) -> float:
        """The monotonic time of all figures."""
        return time.monotonic()

    def tick(self) -> None:
        """Bring the meters up to date."""
        for meter in self._meters.values():
            meter.tick(self.ticks)

    def meter(self, name: str, event_type: str, count: int, *, unit: str = "SECONDS") -> Attributes:
        """Return the attributes of a meter that has counted ``count`` until now."""
        meter = self._meters.get(name)
        if meter is None:
            meter = self._meters[name] = Meter(event_type, self.since_s, self.ticks, rate_unit=unit)
        meter.count = count
        return meter.attributes(self.now_s, self.ticks)

    def rate(self, name: str, now_s: float, total: float) -> float:
        """Note what a total is now; return its growth per second over the window."""
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = Rate(self.window, now_s)
        rate.note(now_s, total)
        return rate.per_second(now_s)

    def rate_of(self, name: str, now_s: float) -> float:
        """Return the growth per second of a total that was noted before."""
        return self._rates[name].per_second(now_s)
