"""Latencies of very many records in little memory, and their summary. Pure.

Counted in steps of a tenth of a millisecond; average and maximum are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

_STEPS_PER_MS = 10


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Latencies in milliseconds; None if nothing was measured."""

    avg_ms: float | None
    max_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p999_ms: float | None


class LatencyTally:
    """Collects latencies: one for many records at a time, or many spread evenly between two."""

    __slots__ = ("_steps", "_total_ms", "count", "max_ms")

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}
        self._total_ms = 0.0
        self.count = 0
        self.max_ms = 0.0

    def add(self, latency_ms: float, count: int = 1) -> None:
        """Count this many records of the same latency."""
        step = int(latency_ms * _STEPS_PER_MS)
        self._steps[step] = self._steps.get(step, 0) + count
        self._total_ms += latency_ms * count
        self.count += count
        self.max_ms = max(self.max_ms, latency_ms)

    def add_spread(self, least_ms: float, most_ms: float, count: int) -> None:
        """Count one batch's records, from last to first: made evenly over time, acknowledged at once."""
        groups = min(count, int((most_ms - least_ms) * _STEPS_PER_MS) + 1)
        width_ms = (most_ms - least_ms) / groups
        for index in range(groups):
            # Groups differ by one record at most, and together cover all.
            size = count * (index + 1) // groups - count * index // groups
            self.add(least_ms + width_ms * (index + 0.5), size)
        self.max_ms = max(self.max_ms, most_ms)

    @property
    def avg_ms(self) -> float | None:
        return self._total_ms / self.count if self.count else None

    def percentile(self, share: float) -> float | None:
        """Return the latency that ``share`` of the records do not exceed, to a tenth of a millisecond."""
        wanted, passed = min(int(share * self.count), self.count - 1), 0
        for step, count in sorted(self._steps.items()):
            passed += count
            if passed > wanted:
                return min((step + 0.5) / _STEPS_PER_MS, self.max_ms)
        return None

    def summary(self) -> LatencySummary:
        """Return their summary."""
        return LatencySummary(
            self.avg_ms,
            self.max_ms if self.count else None,
            *(self.percentile(share) for share in (0.5, 0.95, 0.99, 0.999)),
        )
