"""What a performance test measured. Pure. A MB is 2^20 bytes, as in Kafka's tools."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from engine.admin.perf.latencies import LatencyTally

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
    """Return the time of day."""
    return datetime.now(UTC)
