"""Lag as metrics, under the names that several lag exporters share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from engine.admin.lag.group_lag import GroupLag, QueryLag
from engine.admin.lag.verdicts import LagStatus
from engine.common.metric import Metric

_GROUP: Final = "kafka_consumergroup_group_"
_QUERY: Final = "klamm_spark_query_"


def lag_metrics(groups: Sequence[GroupLag], *, has_partitions: bool = True) -> list[Metric]:
    """Return what is known, under the names that several lag exporters share."""
    rows = [(_labels(group), group) for group in groups]
    by_partition = [
        (labels | {"topic": part.topic, "partition": str(part.partition)}, part)
        for labels, group in rows
        for part in (group.partitions if has_partitions else ())
    ]
    by_topic: dict[tuple[int, str], int] = {}
    for index, (_, group) in enumerate(rows):
        for part in group.partitions:
            if part.lag is not None:
                by_topic[index, part.topic] = by_topic.get((index, part.topic), 0) + part.lag
    figures: list[tuple[str, str, Iterable[tuple[dict[str, str], float | None]]]] = [
        (
            f"{_GROUP}offset",
            "Next offset to read.",
            [(at, partition.committed_offset) for at, partition in by_partition],
        ),
        (
            f"{_GROUP}lag",
            "Offsets between the one committed and the end.",
            [(at, partition.lag) for at, partition in by_partition],
        ),
        (
            f"{_GROUP}lag_seconds",
            "For how long the oldest unread record has waited.",
            [(at, _seconds(partition.time_lag_ms)) for at, partition in by_partition],
        ),
        (
            f"{_GROUP}topic_sum_lag",
            "Lag over the partitions of a topic whose lag is known.",
            [(rows[index][0] | {"topic": topic}, lag) for (index, topic), lag in by_topic.items()],
        ),
        (f"{_GROUP}sum_lag", "Lag over the partitions whose lag is known.", [(at, group.lag) for at, group in rows]),
        (
            f"{_GROUP}max_lag_seconds",
            "The longest wait over the partitions whose wait is known.",
            [(at, _seconds(group.time_lag_ms)) for at, group in rows],
        ),
        (
            f"{_GROUP}status",
            "1 for the current status.",
            [(at | {"status": str(status)}, status is group.status) for at, group in rows for status in LagStatus],
        ),
    ]
    if queries := [(at, query) for at, query in rows if isinstance(query, QueryLag)]:
        figures += [
            (f"{_QUERY}batch_id", "The last batch that was planned.", [(at, query.batch_id) for at, query in queries]),
            (f"{_QUERY}in_flight", "Offsets of the batch that runs.", [(at, query.in_flight) for at, query in queries]),
        ]
    return [
        Metric(name, text, [(at, float(value)) for at, value in samples if value is not None])
        for name, text, samples in figures
    ]


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _labels(group: GroupLag) -> dict[str, str]:
    labels = {"group": group.group, "source": group.type or group.kind}
    return labels | {"path": group.path, "spark_source": group.source} if isinstance(group, QueryLag) else labels
