"""The meters and rates that a reader makes of totals which other parts of a broker count."""

from __future__ import annotations

import time

from engine.broker.metrics.measures import Attributes, Meter, Rate


class Ledger:
    """Meters and rates by name. Add one to ``ticks`` and call ``tick`` every ``TICK_S``."""

    def __init__(self) -> None:
        self.since_s = self.now_s
        self.ticks = 0
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
        """Note what a total is now; return its growth per second over the last minute."""
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = Rate(now_s)
        rate.note(now_s, total)
        return rate.per_second(now_s)

    def rate_of(self, name: str, now_s: float) -> float:
        """Return the growth per second of a total that was noted before."""
        return self._rates[name].per_second(now_s)
