"""Totals of log dirs, brokers and topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.admin.log_dirs.describing import DirReplica, LogDir
from engine.common.metric import Metric, metrics_of


@dataclass(frozen=True, slots=True)
class DirTotals:
    """The totals of a log dir, a broker or a topic. What does not apply is None."""

    broker: int | None
    log_dir: str | None
    topic: str | None
    replica_count: int
    future_count: int
    size_bytes: int
    largest_bytes: int
    offset_lag_max: int | None
    total_bytes: int | None
    usable_bytes: int | None
    error: str | None

    @property
    def used_percent(self) -> int | None:
        """How full the volume is, other programs' files included."""
        if not self.total_bytes or self.usable_bytes is None:
            return None
        return round(100 * (self.total_bytes - self.usable_bytes) / self.total_bytes)


def totals_by_dir(dirs: Sequence[LogDir]) -> list[DirTotals]:
    """Return one line per log dir."""
    return [_totals([log_dir], log_dir.replicas, broker=log_dir.broker, log_dir=log_dir.log_dir) for log_dir in dirs]


def totals_by_broker(dirs: Sequence[LogDir]) -> list[DirTotals]:
    """Return one line per broker. A volume counts once for each log dir on it."""
    grouped: dict[int, list[LogDir]] = {}
    for log_dir in dirs:
        grouped.setdefault(log_dir.broker, []).append(log_dir)
    return [
        _totals(group, [replica for log_dir in group for replica in log_dir.replicas], broker=broker)
        for broker, group in sorted(grouped.items())
    ]


def totals_by_topic(dirs: Sequence[LogDir]) -> list[DirTotals]:
    """Return one line per topic, over all its replicas."""
    grouped: dict[str, list[DirReplica]] = {}
    for log_dir in dirs:
        for replica in log_dir.replicas:
            grouped.setdefault(replica.topic, []).append(replica)
    return [_totals([], replicas, topic=topic) for topic, replicas in sorted(grouped.items())]


def _totals(
    dirs: Sequence[LogDir],
    replicas: Sequence[DirReplica],
    *,
    broker: int | None = None,
    log_dir: str | None = None,
    topic: str | None = None,
) -> DirTotals:
    errors = [each.error if each.log_dir is None else f"{each.log_dir}: {each.error}" for each in dirs if each.error]
    if log_dir is not None:
        errors = [each.error for each in dirs if each.error]
    return DirTotals(
        broker,
        log_dir,
        topic,
        len(replicas),
        sum(replica.is_future for replica in replicas),
        sum(replica.size_bytes for replica in replicas),
        max((replica.size_bytes for replica in replicas), default=0),
        max((replica.offset_lag for replica in replicas if replica.offset_lag is not None), default=None),
        _sum_known(each.total_bytes for each in dirs),
        _sum_known(each.usable_bytes for each in dirs),
        "; ".join(errors) or None,
    )


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


DIR_FIGURES = (
    ("size_bytes", "size_bytes", "Bytes that the replicas take."),
    ("replica_count", "replicas", "How many replicas there are."),
    ("total_bytes", "total_bytes", "How large the volume is."),
    ("usable_bytes", "usable_bytes", "How much of the volume is free."),
)
"""What a log dir has, as metrics: attribute, end of the name, help."""
_LAG = ("offset_lag_max", "offset_lag_max", "How far the slowest replica is behind.")


def log_dir_metrics(totals: Sequence[DirTotals]) -> list[Metric]:
    """Return the totals as gauges, labelled by what they are about."""
    subjects = [
        {name: str(value) for name in ("broker", "log_dir", "topic") if (value := getattr(total, name)) is not None}
        for total in totals
    ]
    return metrics_of(zip(subjects, totals, strict=True), "klamm_log_dir_", (*DIR_FIGURES, _LAG))
