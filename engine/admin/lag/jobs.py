"""Spark queries as a list, and how each is doing: by its lag if a cluster is at hand, else by its files alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from engine.admin.lag.positions import Query, ReaderKind
from engine.admin.lag.queries import rhythm_of_batches, verdict_without_position
from engine.admin.lag.results import QueryLag
from engine.admin.lag.rules import LagStatus


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
        max((row.status for row in rows), key=lambda one: one.rank) if rows else _by_files(query, now_ms),
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
    return LagStatus.STUCK if rhythm.is_stuck else LagStatus.RUNNING
