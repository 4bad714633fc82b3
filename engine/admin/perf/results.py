"""What a performance test measured. Pure. A MB is 2^20 bytes, as in Kafka's tools."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

MB = 1024 * 1024


class Span(StrEnum):
    """What a row of figures is about."""

    WINDOW = "window"
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class SendFigures:
    """What was sent and acknowledged in a span of time. Bytes are those of the values, before compression."""

    kind: Span
    start_time: datetime
    end_time: datetime
    records_sent: int
    sent_bytes: int
    records_per_sec: float
    mb_per_sec: float
    avg_latency_ms: float | None
    max_latency_ms: float | None
    p50_latency_ms: float | None
    p95_latency_ms: float | None
    p99_latency_ms: float | None
    p999_latency_ms: float | None


@dataclass(frozen=True, slots=True)
class SendMetrics:
    """How it was sent. ``wire_bytes`` are those of the batches, compressed."""

    request_count: int
    batch_count: int
    wire_bytes: int
    retried_batch_count: int
    batch_size_avg_bytes: float | None
    records_per_request_avg: float | None
    compression_rate_avg: float | None


@dataclass(frozen=True, slots=True)
class ConsumeFigures:
    """What was consumed in a span of time; a window's counts are those since the start, as in Kafka's tool."""

    kind: Span
    start_time: datetime
    end_time: datetime
    consumed_mb: float
    mb_per_sec: float
    consumed_records: int
    records_per_sec: float
    rebalance_time_ms: int
    fetch_time_ms: int
    fetch_mb_per_sec: float
    fetch_records_per_sec: float


class SendMeter:
    """Counts what is acknowledged from a moment on."""

    def __init__(self, start_s: float, start_time: datetime) -> None:
        self.start_s = start_s
        self.latencies = LatencyTally()
        self.sent_bytes = 0
        self._start_time = start_time

    def add(self, least_ms: float, most_ms: float, count: int, size_bytes: int) -> None:
        """Count a batch whose last and first record waited this long."""
        self.latencies.add_spread(least_ms, most_ms, count)
        self.sent_bytes += size_bytes

    def figures(self, kind: Span, now_s: float) -> SendFigures:
        """Return what has been counted so far."""
        elapsed_s = max(now_s - self.start_s, 1e-6)
        summary = self.latencies.summary()
        return SendFigures(
            kind,
            self._start_time,
            self._start_time + timedelta(seconds=elapsed_s),
            self.latencies.count,
            self.sent_bytes,
            self.latencies.count / elapsed_s,
            self.sent_bytes / MB / elapsed_s,
            summary.avg_ms,
            summary.max_ms,
            summary.p50_ms,
            summary.p95_ms,
            summary.p99_ms,
            summary.p999_ms,
        )


def wall_time() -> datetime:
    return datetime.now(UTC)


# Latencies of very many records in little memory, and their summary.
#
# Counted in steps of a tenth of a millisecond; average and maximum are exact.

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
        return LatencySummary(
            self.avg_ms,
            self.max_ms if self.count else None,
            *(self.percentile(share) for share in (0.5, 0.95, 0.99, 0.999)),
        )
