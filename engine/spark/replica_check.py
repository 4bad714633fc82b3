"""Verifies replicas as a Spark job: one task compares all replicas of a partition in a range of offsets.

``engine.admin.replicas`` decides what is compared, and how. This module distributes ranges and merges the verdicts, so
that the answer is that of the local command.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Unknown
from engine.admin.cluster.target import ClusterTarget
from engine.admin.cluster.wire import WireCluster
from engine.admin.offsets.listing import end_offsets, start_offsets
from engine.admin.replicas.verification import (
    PartitionVerification,
    PartitionVerifier,
    ReplicaVerdict,
    compacted_topics,
)
from engine.admin.topics.access import topic_reader
from engine.admin.topics.describing import read_selected
from engine.admin.topics.selection import TopicSelection
from engine.admin.topics.values import partitions_of
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot
from engine.spark.sent_files import properties_here
from engine.spark.workers import run_in_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RANGES_PER_CORE = 4
_RANGE_OFFSETS_MIN = 50_000
"""A shorter range costs more to start than to compare."""


@dataclass(frozen=True, slots=True)
class RangeTask:
    """Offsets of one partition, and everything needed to reach its replicas."""

    target: ClusterTarget
    bootstrap: tuple[tuple[str, int], ...]
    timeout_s: float
    name: TopicPartition
    partition: PartitionSnapshot
    live: frozenset[int]
    is_compacted: bool
    offsets: range


async def plan_verification(cluster: Cluster, selection: TopicSelection, parallelism: int) -> list[RangeTask]:
    """Return the ranges to compare, about four for each core.

    Raises:
        NotFound: a named topic does not exist.
    """
    reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
    topics = await read_selected(reader, selection, if_exists=False)
    compacted = await compacted_topics(cluster, topics)
    partitions = partitions_of(topics)
    wire = await cluster.wire()
    nodes = await wire.nodes()
    starts, ends = await asyncio.gather(start_offsets(wire, partitions), end_offsets(wire, partitions))
    spans = {name: _span(starts[name], ends[name]) for name in partitions}
    size = max(_RANGE_OFFSETS_MIN, math.ceil(sum(map(len, spans.values())) / (parallelism * _RANGES_PER_CORE)))
    return [
        RangeTask(
            cluster.target,
            tuple((node.host, node.port) for node in nodes.values()),
            cluster.timeout_s,
            name,
            partition,
            frozenset(nodes),
            name.topic in compacted,
            offsets,
        )
        for name, partition in sorted(partitions.items())
        for offsets in _cut(spans[name], size)
    ]


def verify_ranges(spark: SparkSession, tasks: Sequence[RangeTask]) -> list[PartitionVerification]:
    """Compare all ranges; return the verdicts by partition."""
    return together(run_in_workers(spark, verify_range, tasks))


def verify_range(task: RangeTask) -> PartitionVerification:
    async def run() -> PartitionVerification:
        wire = WireCluster(
            task.bootstrap,
            properties=properties_here(task.target.client_properties),
            connect_timeout_s=task.timeout_s * 0.8,
            request_timeout_s=task.timeout_s,
        )
        try:
            return await PartitionVerifier(
                wire, task.name, task.partition, task.live, task.is_compacted, lambda _: None, within=task.offsets
            ).run()
        finally:
            await wire.close()

    return asyncio.run(run())


def together(parts: Iterable[PartitionVerification]) -> list[PartitionVerification]:
    """Merge the verdicts on the ranges of each partition, which come in order."""
    joined: dict[TopicPartition, PartitionVerification] = {}
    for part in parts:
        name = TopicPartition(part.topic, part.partition)
        before = joined.get(name)
        joined[name] = part if before is None else _joined(before, part)
    return [joined[name] for name in sorted(joined)]


def _joined(first: PartitionVerification, then: PartitionVerification) -> PartitionVerification:
    by_broker = {replica.broker: replica for replica in then.replicas}
    # If a replica's log begins later than the leader's, the first ranges have nothing that all replicas have.
    is_empty = first.from_offset is None or first.from_offset == first.to_offset
    return replace(
        first,
        from_offset=then.from_offset if is_empty else first.from_offset,
        to_offset=first.to_offset if then.to_offset is None else then.to_offset,
        replicas=tuple(_worse(replica, by_broker[replica.broker]) for replica in first.replicas),
        first_difference=first.first_difference or then.first_difference,
    )


def _worse(first: ReplicaVerdict, then: ReplicaVerdict) -> ReplicaVerdict:
    """A replica that differs in one range differs; one that could not be read in one is not known to agree."""
    lags = [status.lag for status in (first, then) if status.lag is not None]
    error = first.error or then.error
    differs = first.agrees is False or then.agrees is False
    return ReplicaVerdict(
        first.broker,
        first.log_end_offset if then.log_end_offset is None else then.log_end_offset,
        max(lags, default=None),
        False if differs else None if error is not None else True,
        None if differs else error,
    )


def _span(start: int | Unknown, end: int | Unknown) -> range:
    """Return the offsets; unknown ones give one empty range, whose task says why."""
    return range(0) if isinstance(start, Unknown) or isinstance(end, Unknown) else range(start, max(start, end))


def _cut(span: range, size: int) -> list[range]:
    if not span:
        return [span]
    return [range(low, min(low + size, span.stop)) for low in range(span.start, span.stop, size)]
