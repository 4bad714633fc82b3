"""What the traces of Spark's queries tell a feed, with what brokers say about their topics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from engine.admin.cluster.asking import FAILURES
from engine.admin.cluster.background import in_daemon_thread
from engine.admin.cluster.errors import AdminError, Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.admin.lag.results import QueryLag
from engine.admin.lag.spark_positions import Query, ReaderKind
from engine.admin.lag.spark_queries import jobs_of, measure_queries
from engine.admin.lag.spark_traces import QueryTraces
from engine.admin.watch.frame import WatchedQuery
from engine.common.model import IsolationLevel

READ_LIMIT_S = 20.0
"""A store that has not answered by then is reported as hanging. Its late answer still counts."""

_Found = tuple[list[Query], list[AdminError]]


@dataclass(frozen=True, slots=True)
class ReadQueries:
    """The result of one reading; ``missing`` has a line for each missing thing. ``requests`` went to brokers."""

    queries: tuple[WatchedQuery, ...]
    missing: tuple[str, ...]
    requests: int


class QueryReader:
    """Reads the traces repeatedly, and asks brokers how far behind the queries are."""

    def __init__(self, traces: QueryTraces, *, limit_s: float = READ_LIMIT_S) -> None:
        self._traces = traces
        self._limit_s = limit_s
        self._reading: asyncio.Future[_Found] | None = None

    async def read(self, wire: WireCluster | None) -> ReadQueries:
        """Return the queries by path; without their lags if there is no ``wire`` or no broker answers.

        Raises:
            AdminError: nothing could be read, or the store hangs.
        """
        queries, failures = await self._read_traces()
        if failures and not queries:
            raise failures[0]
        missing = [f"{error}: {error.where}" if error.where else str(error) for error in failures]
        rows: list[QueryLag] | None = None
        requests = 0
        if wire is not None and queries:
            try:
                # A query is judged by its own history, so one sample is enough.
                rows = await measure_queries(
                    wire, queries, lambda topic: True, IsolationLevel.READ_UNCOMMITTED, with_times=True
                )
                requests = 2 * len(await wire.nodes())
            except FAILURES as error:
                missing.append(f"how far behind queries are is not known: {error}")
        return ReadQueries(_watched(queries, rows), tuple(missing), requests)

    async def _read_traces(self) -> _Found:
        if self._reading is None:
            self._reading = in_daemon_thread(self._traces.read, "watch-spark")
        done, _ = await asyncio.wait({self._reading}, timeout=self._limit_s)
        if not done:
            raise Unreachable(f"the checkpoints and event logs could not be read within {self._limit_s:g} s")
        reading, self._reading = self._reading, None
        return reading.result()


def _watched(queries: list[Query], rows: list[QueryLag] | None) -> tuple[WatchedQuery, ...]:
    by_query: dict[tuple[ReaderKind, str, str], list[QueryLag]] = {}
    for row in rows or ():
        by_query.setdefault((row.kind, row.path, row.query_id), []).append(row)
    watched = [
        WatchedQuery(job, tuple(by_query.get((job.kind, job.path, job.query_id), ()))) for job in jobs_of(queries, rows)
    ]
    return tuple(sorted(watched, key=lambda query: (query.job.path, query.job.query_id)))
