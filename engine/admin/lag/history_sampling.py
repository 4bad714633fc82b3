"""Takes one sample of some groups and queries, and writes it to their history. Runs anywhere, even in Spark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.target import ClusterTarget
from engine.admin.groups.scope import FoundGroups, GroupScope, find_groups
from engine.admin.lag.group_lag import (
    Followed,
    GroupLag,
    QueryLag,
    QueryPartitionLag,
    doubtful_places,
    group_lag,
    place_of_unread,
)
from engine.admin.lag.history_folder import CLUSTER_KIND, COLUMNS, Lake, LakePoints, Rows, chunk_of
from engine.admin.lag.sampling import Sample, take_sample
from engine.admin.lag.spark_queries import measure_queries
from engine.admin.lag.spark_traces import QueryTraces
from engine.admin.lag.stores import OtherStore
from engine.admin.lag.unread import Behind, Times, look_behind, read_times
from engine.admin.lag.verdicts import LagStatus, Point
from engine.common.acl import AclOperation
from engine.common.collection import collector_paused
from engine.common.model import IsolationLevel

_TIMEOUT_S = 30.0
_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Watched:
    """A cluster, and where the queries that read from it leave their traces."""

    target: ClusterTarget
    checkpoints: tuple[str, ...] = ()
    event_logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """What one cluster has in one chunk."""

    watched: Watched
    groups: FoundGroups | None
    """None if the cluster could not be asked."""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """One file to write."""

    out: str
    time_ms: int
    sample: int
    chunk: int
    parts: tuple[Part, ...]
    with_times: bool = False


@dataclass(frozen=True, slots=True)
class ChunkDone:
    """The result of a task; ``failures`` are sentences."""

    row_count: int
    group_count: int
    failures: tuple[str, ...]


def plan_chunks(
    clusters: Sequence[Watched], out: str, time_ms: int, sample: int, chunks: int, *, with_times: bool
) -> tuple[list[ChunkTask], list[str]]:
    """Find the clusters' groups and divide them into tasks; return these, and which clusters could not be asked."""
    parts: list[list[Part]] = [[] for _ in range(chunks)]
    failures = []
    for watched in clusters:
        try:
            groups = asyncio.run(_find(watched.target))
        except AdminError as error:
            failures.append(f"{watched.target.name}: {error}")
            for chunk in range(chunks):
                parts[chunk].append(Part(_of_chunk(watched, chunk, chunks), None, str(error)))
            continue
        for chunk in range(chunks):
            parts[chunk].append(Part(_of_chunk(watched, chunk, chunks), _groups_of_chunk(groups, chunk, chunks)))
        failures += [f"{watched.target.name}: {failure}" for failure in groups.failures]
    return [
        ChunkTask(out, time_ms, sample, chunk, tuple(parts[chunk]), with_times) for chunk in range(chunks)
    ], failures


def sample_chunk(task: ChunkTask, others: OtherStore | None = None) -> ChunkDone:
    """Take the sample and write the file, even if it is empty, so that no older one stays.

    ``others`` provides file systems that only Spark knows.
    """
    with collector_paused():
        return _sample_chunk(task, others)


def _sample_chunk(task: ChunkTask, others: OtherStore | None) -> ChunkDone:
    lake = Lake(task.out)
    rows: Rows = {name: [] for name in COLUMNS}
    failures: list[str] = []
    group_count = 0
    for part in task.parts:
        if part.groups is None:
            _add_unknown(rows, task, lake, part.watched.target.name, part.failure)
            continue
        try:
            answers, sampled_ms = asyncio.run(_measure(task, part, part.groups, lake, failures, others))
        except AdminError as error:
            failures.append(f"{part.watched.target.name}: {error}")
            _add_unknown(rows, task, lake, part.watched.target.name, str(error))
            continue
        group_count += len(answers)
        for answer in answers:
            _add(rows, task, part.watched.target.name, answer, sampled_ms)
    lake.write(task.time_ms, task.sample, task.chunk, rows)
    return ChunkDone(len(rows["sample"]), group_count, tuple(failures))


async def _find(target: ClusterTarget) -> FoundGroups:
    async with Cluster(target, timeout_s=_TIMEOUT_S) as cluster:
        return await find_groups(cluster, GroupScope())


def _of_chunk(watched: Watched, chunk: int, chunks: int) -> Watched:
    """Event logs belong together: a query may be in several."""
    mine = tuple(place for place in watched.checkpoints if chunk_of(place, chunks) == chunk)
    return Watched(watched.target, mine, watched.event_logs if chunk == 0 else ())


def _groups_of_chunk(groups: FoundGroups, chunk: int, chunks: int) -> FoundGroups:
    brokers = tuple(name for name in groups.brokers if chunk_of(name, chunks) == chunk)
    old = tuple(name for name in groups.zookeeper if chunk_of(name, chunks) == chunk)
    coordinators = {name: groups.coordinators[name] for name in brokers if name in groups.coordinators}
    return replace(groups, brokers=brokers, zookeeper=old, described={}, coordinators=coordinators, failures=())


async def _measure(
    task: ChunkTask, part: Part, groups: FoundGroups, lake: Lake, failures: list[str], others: OtherStore | None
) -> tuple[list[GroupLag], int]:
    target = part.watched.target
    isolation = IsolationLevel.READ_UNCOMMITTED
    async with Cluster(target, timeout_s=_TIMEOUT_S) as cluster:
        sample = await take_sample(cluster, groups, lambda _: True, isolation)
        failures += [f"{target.name}: {failure}" for failure in sample.failures]
        times: Times = {}
        if task.with_times:
            times = await _times(cluster, sample)
        followed = _followed(sample, _points(task, lake, target.name, sample))
        behind = Behind()
        if ends := doubtful_places(followed, times):
            behind = await look_behind(await cluster.wire(), ends, times, isolation, patience_s=_PATIENCE_S)
        now_ms = time.time_ns() // 1_000_000
        answers = [group_lag(group, series, times, now_ms, behind=behind) for group, series, _ in followed]
        traces = QueryTraces(part.watched.checkpoints, part.watched.event_logs, others)
        if not traces.is_empty:
            queries, unreadable = await asyncio.to_thread(traces.read)
            failures += [f"{target.name}: {failure}" for failure in unreadable]
            wire = await cluster.wire()
            answers += await measure_queries(wire, queries, lambda _: True, isolation, with_times=task.with_times)
        # The job's driver does not see what was denied here.
        who = cluster.principal or "this login"
        failures += [
            f"{target.name}: how long records have waited is not known: {who} lacks {right}"
            for right in cluster.denied
            # Without times, records are read only where a reader may have none left.
            if task.with_times and right.operation is AclOperation.READ
        ]
    return answers, sample.time_ms


async def _times(cluster: Cluster, sample: Sample) -> Times:
    places = {
        place
        for group in sample.groups.values()
        for name, partition in group.partitions.items()
        if (place := place_of_unread(name, partition)) is not None
    }
    return await read_times(await cluster.wire(), sorted(places), patience_s=_PATIENCE_S) if places else {}


def _points(task: ChunkTask, lake: Lake, cluster: str, sample: Sample) -> LakePoints:
    """Return the past of the groups that lag; it makes no difference for the others."""
    lagging = sorted({
        group.group
        for group in sample.groups.values()
        if any(place.committed is not None and place.committed != place.end for place in group.partitions.values())
    })  # fmt: skip
    return lake.points_before(task.time_ms, task.chunk, cluster, lagging) if lagging else {}


def _followed(sample: Sample, points: LakePoints) -> list[Followed]:
    followed: list[Followed] = []
    for (name, kind), group in sample.groups.items():
        past = {} if kind is None else points.get((name, kind), {})
        series = {
            partition: [*past.get(partition, ()), Point(sample.time_ms, latest.committed, latest.end)]
            for partition, latest in group.partitions.items()
        }
        followed.append((group, series, ()))
    return followed


def _add(rows: Rows, task: ChunkTask, cluster: str, answer: GroupLag, sampled_ms: int) -> None:
    """Add a row per partition; one without a partition for a group that has none."""
    query = answer if isinstance(answer, QueryLag) else None
    shared = {
        "sample": task.sample,
        "chunk": task.chunk,
        "time": task.time_ms,
        "sampled_at": sampled_ms,
        "cluster": cluster,
        "kind": answer.kind.value,
        "group": answer.group,
        "type": None if answer.type is None else answer.type.value,
        "state": None if answer.state is None else answer.state.value,
        "query_id": None if query is None else query.query_id,
        "source": None if query is None else query.source,
        "path": None if query is None else query.path,
        "group_status": answer.status.value,
    }
    count = max(1, len(answer.partitions))
    for name, value in shared.items():
        rows[name] += [value] * count
    if not answer.partitions:
        for name in COLUMNS.keys() - shared.keys():
            rows[name].append(answer.error if name == "error" else None)
        return
    for partition in answer.partitions:
        rows["topic"].append(partition.topic)
        rows["partition"].append(partition.partition)
        rows["status"].append(partition.status.value)
        rows["reason"].append(partition.reason.value)
        rows["committed"].append(partition.committed_offset)
        rows["end"].append(partition.log_end_offset)
        rows["start"].append(partition.start if isinstance(partition, QueryPartitionLag) else None)
        rows["lag"].append(partition.lag)
        rows["time_lag_ms"].append(partition.time_lag_ms)
        rows["planned"].append(partition.planned if isinstance(partition, QueryPartitionLag) else None)
        rows["planned_lag"].append(partition.planned_lag if isinstance(partition, QueryPartitionLag) else None)
        rows["error"].append(partition.error)


def _add_unknown(rows: Rows, task: ChunkTask, lake: Lake, cluster: str, error: str) -> None:
    """Add a row for each reader that the cluster had before; for the cluster itself if none was ever seen."""
    known = lake.readers_before(task.time_ms, task.chunk, cluster)
    if not known and task.chunk == 0 and not lake.readers_before(task.time_ms, None, cluster):
        known = [{"kind": CLUSTER_KIND, "group": cluster}]
    for reader in known:
        row = reader | {
            "sample": task.sample,
            "chunk": task.chunk,
            "time": task.time_ms,
            "sampled_at": task.time_ms,
            "cluster": cluster,
            "group_status": LagStatus.UNKNOWN.value,
            "error": error,
        }
        for name in COLUMNS:
            rows[name].append(row.get(name))
