"""Measures how far behind Spark queries are, from their own history and what the cluster says. One sample is enough.

The query says where the log ended when a batch was planned, or klamm asks the brokers by time. So it judges a query by
what it has done lately, not by what it does while somebody watches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from engine.admin.cluster.asking import FAILURES
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.values import CommittedOffset
from engine.admin.lag.group_lag import (
    GroupLag,
    PartitionLag,
    QueryLag,
    QueryPartitionLag,
    group_lag,
    place_of_newest,
    place_of_unread,
)
from engine.admin.lag.history import POINTS_MAX
from engine.admin.lag.pace import Commit, is_batch_late
from engine.admin.lag.sampling import GroupSample, IsWanted, PartitionSample, why_unknown
from engine.admin.lag.spark_positions import Position, Query, ReaderKind
from engine.admin.lag.unread import Place, Times, UnreadRecord, read_times
from engine.admin.lag.verdicts import LagStatus, Point, Rhythm, Verdict, without_position
from engine.admin.offsets.listing import Offsets, end_offsets, offsets_at, start_offsets
from engine.common.model import IsolationLevel, TopicPartition

_PATIENCE_S = 2.0
_PARTITIONS_MAX = 1_000
"""The past is looked up for this many lagging partitions; for others, only what the query itself reports."""

_Key = tuple[int, TopicPartition]
"""A source of a query, by its place in the list, and a partition."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One row: a source of a query, with what the cluster says about its partitions."""

    query: Query
    source: str
    positions: Mapping[TopicPartition, Position]
    sample: GroupSample
    is_placed: bool = True
    """Whether the query's files say where it is."""


async def measure_queries(
    wire: WireCluster, queries: Sequence[Query], is_wanted: IsWanted, isolation: IsolationLevel, *, with_times: bool
) -> list[QueryLag]:
    """Return a row for each Kafka source of each query.

    Raises:
        AdminError: the cluster does not answer at all.
    """
    positions = [
        (
            query,
            source,
            {_name(position): position for position in of_source if is_wanted(position.topic)},
            bool(of_source),
        )
        for query in queries
        for source, of_source in _by_source(query).items()
    ]
    names = {name for _, _, of_source, _ in positions for name in of_source}
    ends, starts = await _bounds(wire, names, isolation)
    now_ms = time.time_ns() // 1_000_000
    sources = [
        _Source(query, source, of_source, _sample(query, of_source, ends, starts), is_placed)
        for query, source, of_source, is_placed in positions
    ]
    series = {
        (index, name): _series(source, name, now_ms)
        for index, source in enumerate(sources)
        for name in source.sample.partitions
    }
    times: Times = {}
    if with_times:
        series = await _with_past_ends(wire, sources, series)
        times = await _times(wire, sources)
    return [
        _row(source, {name: series[index, name] for name in source.sample.partitions}, times, now_ms)
        for index, source in enumerate(sources)
    ]


def _by_source(query: Query) -> dict[str, list[Position]]:
    """Return the positions by source; a query of which none is known counts as one source without a name."""
    by_source: dict[str, list[Position]] = {source: [] for source in query.kafka_sources}
    for position in query.positions():
        by_source[position.source].append(position)
    return by_source or {"": []}


def _name(position: Position) -> TopicPartition:
    return TopicPartition(position.topic, position.partition)


async def _bounds(
    wire: WireCluster, names: Iterable[TopicPartition], isolation: IsolationLevel
) -> tuple[Offsets, Offsets]:
    wanted = sorted(names)
    if not wanted:
        return {}, {}
    # A broker that is down leaves its partitions unknown; it is an error if no broker answers.
    await wire.metadata([])
    ends = await end_offsets(wire, wanted, isolation=isolation)
    starts = await start_offsets(wire, [name for name in wanted if isinstance(ends[name], int)])
    return ends, starts


def _sample(query: Query, positions: Mapping[TopicPartition, Position], ends: Offsets, starts: Offsets) -> GroupSample:
    partitions = {}
    for name, position in positions.items():
        end, start = ends.get(name), starts.get(name)
        committed = None if position.committed is None else CommittedOffset(position.committed)
        why, error = why_unknown(committed, end)
        partitions[name] = PartitionSample(
            position.committed,
            end if isinstance(end, int) else None,
            start if isinstance(start, int) else None,
            None,
            None,
            why,
            error,
        )
    return GroupSample(query.job, None, None, partitions, query.error)


def _series(source: _Source, name: TopicPartition, now_ms: int) -> list[Point]:
    sample = source.sample.partitions[name]
    points = source.query.points(source.source, name)[-(POINTS_MAX - 1) :]
    return [*points, Point(now_ms, sample.committed, sample.end)]


def _is_lagging(sample: PartitionSample) -> bool:
    return sample.committed is not None and sample.end is not None and sample.committed < sample.end


async def _with_past_ends(
    wire: WireCluster, sources: Sequence[_Source], series: dict[_Key, list[Point]]
) -> dict[_Key, list[Point]]:
    """Look up where logs ended when batches were planned, for lagging partitions if the query does not say."""
    lagging = [
        key
        for key, points in series.items()
        if _is_lagging(sources[key[0]].sample.partitions[key[1]]) and len(points) > 1
    ][:_PARTITIONS_MAX]
    extended = dict(series)
    # A request asks for one time of a partition.
    asked = [(key, index) for key in lagging for index, point in enumerate(extended[key][:-1]) if point.end is None]
    while asked:
        turn = {key[1]: (key, index) for key, index in asked}
        await _look_up(wire, extended, list(turn.values()))
        done = set(turn.values())
        asked = [name for name in asked if name not in done]
    return extended


async def _look_up(wire: WireCluster, series: dict[_Key, list[Point]], turn: Sequence[tuple[_Key, int]]) -> None:
    moments = {key[1]: series[key][index].time_ms for key, index in turn}
    try:
        offsets = await offsets_at(wire, moments, patience_s=_PATIENCE_S)
    except FAILURES:
        return
    for key, index in turn:
        points, offset = series[key], offsets[key[1]]
        if isinstance(offset, int):
            series[key] = [*points[:index], _ended(points, index, offset), *points[index + 1 :]]


def _ended(points: Sequence[Point], index: int, offset: int) -> Point:
    """Return a point with the end that was found; -1 means that no record came since. Timestamps may be anything."""
    _, after, _ = points[index + 1]
    now = points[-1].end
    end = now if offset < 0 else offset
    if end is None or now is None:
        return points[index]
    # The batch planned at that time read no further than the end.
    return points[index]._replace(end=max(points[index].committed or 0, after or 0, min(end, now)))


async def _times(wire: WireCluster, sources: Sequence[_Source]) -> Times:
    places: set[Place] = set()
    for source in sources:
        for name, sample in source.sample.partitions.items():
            if not _is_lagging(sample):
                continue
            places |= {
                place for find in (place_of_unread, place_of_newest) if (place := find(name, sample)) is not None
            }
            if source.query.in_flight is None:
                places |= {
                    Place(name, commit.offset) for commit in _commits(source, name) if commit.offset < (sample.end or 0)
                }
    try:
        return await read_times(wire, sorted(places), patience_s=_PATIENCE_S) if places else {}
    except FAILURES:
        return {}


def _commits(source: _Source, name: TopicPartition) -> list[Commit]:
    finished = source.query.finished
    return [
        Commit(batch.committed_ms, batch.ends[source.source][name])
        for batch in finished
        if batch.committed_ms is not None and name in batch.ends.get(source.source, {})
    ]


def _row(source: _Source, series: Mapping[TopicPartition, list[Point]], times: Times, now_ms: int) -> QueryLag:
    rhythms = {name: _rhythm(source, name, times, now_ms) for name in source.sample.partitions}
    group = group_lag(source.sample, series, times, now_ms, rhythms=rhythms)
    partitions = tuple(_partition(source, lag) for lag in group.partitions)
    in_flight = [
        partition.planned - partition.committed
        for partition in partitions
        if partition.planned is not None and partition.committed is not None
    ]
    last, running = source.query.last_batch, source.query.in_flight
    planned_ms = None if running is None else running.planned_ms
    given = {field.name: getattr(group, field.name) for field in fields(GroupLag)}
    if not source.is_placed:
        given["status"], given["reason"] = verdict_without_position(source.query, now_ms)
    return QueryLag(
        **given
        | {
            "kind": source.query.kind,
            "partitions": partitions,
            "query_id": source.query.query_id,
            "run_id": source.query.run_id,
            "batch_id": None if last is None else last.batch_id,
            "source": source.source,
            "path": source.query.path,
            "in_flight": sum(in_flight) if in_flight else None,
            "in_flight_since": None if planned_ms is None else datetime.fromtimestamp(planned_ms / 1000, UTC),
        }
    )


def _partition(source: _Source, lag: PartitionLag) -> QueryPartitionLag:
    name = TopicPartition(lag.topic, lag.partition)
    position, sample = source.positions[name], source.sample.partitions[name]
    is_known = sample.end is not None and position.planned <= sample.end
    given = {field.name: getattr(lag, field.name) for field in fields(PartitionLag)}
    return QueryPartitionLag(
        **given,
        planned=position.planned,
        committed=position.committed,
        end=sample.end,
        start=sample.start,
        planned_lag=sample.end - position.planned if is_known and sample.end is not None else None,
    )


def verdict_without_position(query: Query, now_ms: int) -> Verdict:
    """Return the verdict on a query whose files do not say where it is."""
    return without_position(query.started_ms, now_ms, has_batches=bool(query.batches))


def rhythm_of_batches(query: Query, now_ms: int) -> Rhythm:
    """Return what a query's batches show, without its records."""
    taken = [
        batch.committed_ms - batch.planned_ms
        for batch in query.finished
        # Copied files have other times.
        if batch.committed_ms is not None and batch.planned_ms is not None and batch.committed_ms >= batch.planned_ms
    ]
    batch_ms = round(statistics.median(taken)) if taken else None
    running = query.in_flight
    if running is None:
        return Rhythm(None, batch_ms, has_ended=query.has_ended)
    # Without a time, assume that it began just now.
    in_flight_ms = 0 if running.planned_ms is None else max(0, now_ms - running.planned_ms)
    return Rhythm(in_flight_ms, batch_ms, has_ended=query.has_ended)


def _rhythm(source: _Source, name: TopicPartition, times: Times, now_ms: int) -> Rhythm:
    rhythm = rhythm_of_batches(source.query, now_ms)
    if rhythm.in_flight_ms is not None:
        return rhythm
    commits = _commits(source, name)
    committed = source.sample.partitions[name].committed
    came_ms = {
        offset: record.timestamp_ms
        for offset in {commit.offset for commit in commits}
        if isinstance(record := times.get(Place(name, offset)), UnreadRecord) and record.timestamp_ms is not None
    }
    is_late = None if committed is None else is_batch_late(commits, committed, came_ms, now_ms)
    return rhythm._replace(is_late=is_late)


# Spark queries as a list, and how each is doing: by its lag if a cluster is at hand, else by its files alone.


@dataclass(frozen=True, slots=True)
class JobSource:
    """One Kafka source of a query."""

    source: str
    topics: tuple[str, ...]
    partition_count: int


@dataclass(frozen=True, slots=True)
class Job:
    """One query. ``last_batch`` was planned last, ``last_commit`` is when a batch was finished last."""

    path: str
    query_id: str
    name: str | None
    sources: tuple[JobSource, ...]
    last_batch: int | None
    last_commit: datetime | None
    status: LagStatus
    kind: ReaderKind
    run_id: str | None
    other_source_count: int
    lag: int | None


def jobs_of(queries: Sequence[Query], rows: Sequence[QueryLag] | None, *, now_ms: int | None = None) -> list[Job]:
    """Return a job for each query; ``rows`` are the lags, None if no cluster was asked. Without a time it is now."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    by_query: dict[tuple[ReaderKind, str, str], list[QueryLag]] = {}
    for row in rows or ():
        by_query.setdefault((row.kind, row.path, row.query_id), []).append(row)
    return [_job(query, by_query.get((query.kind, query.path, query.query_id)), now_ms) for query in queries]


def _job(query: Query, rows: list[QueryLag] | None, now_ms: int) -> Job:
    last, finished = query.last_batch, query.finished
    committed_ms = finished[-1].committed_ms if finished else None
    lags = [row.lag for row in rows or () if row.lag is not None]
    return Job(
        query.path,
        query.query_id,
        query.name,
        tuple(_source(query, source) for source in query.kafka_sources),
        None if last is None else last.batch_id,
        None if committed_ms is None else datetime.fromtimestamp(committed_ms / 1000, UTC),
        max((row.status for row in rows), key=lambda status: status.rank) if rows else _by_files(query, now_ms),
        query.kind,
        query.run_id,
        len(query.source_ids) - len(query.kafka_sources),
        sum(lags) if lags else None,
    )


def _source(query: Query, source: str) -> JobSource:
    names = query.batches[-1].ends.get(source, {})
    return JobSource(source, tuple(sorted({name.topic for name in names})), len(names))


def _by_files(query: Query, now_ms: int) -> LagStatus:
    """Files show that a batch is running; only a cluster can show whether a query is behind."""
    if not query.batches:
        return verdict_without_position(query, now_ms).status
    rhythm = rhythm_of_batches(query, now_ms)
    if rhythm.in_flight_ms is None:
        return LagStatus.UNKNOWN
    if rhythm.has_ended:
        return LagStatus.STOP
    return LagStatus.STUCK if rhythm.is_stuck else LagStatus.RUNNING
