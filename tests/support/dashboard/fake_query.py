"""A made-up query of Spark for ``FakeCluster``: it reads in batches, and its lag is judged like a real one's."""

from __future__ import annotations

from collections.abc import Mapping

from engine.admin.lag import spark_queries
from engine.admin.lag.spark_positions import Batch, Query, ReaderKind
from engine.admin.lag.spark_queries import QueryLag, jobs_of
from engine.admin.lag.unread import Place, Times, UnreadRecord
from engine.admin.watch.frame import PartitionOffsets, WatchedQuery
from engine.common.model import TopicPartition

_BATCHES_MAX = 20
_EVERY_MS = 10_000
_SOURCE = "0"


class FakeQuery:
    """One query with one source, whose checkpoint is read. It plans a batch every ten seconds.

    Args:
        starts_at: where it began, by partition.
        reads: records of each partition that it reads in a second at most.
        rate: records that come to each partition in a second.
        took_ms: how long a batch takes.
    """

    def __init__(
        self,
        name: str,
        starts_at: Mapping[TopicPartition, int],
        *,
        reads: float,
        rate: float,
        took_ms: int = 2_000,
        now_ms: int,
    ) -> None:
        self.name = name
        self.is_stuck = False
        """The running batch no longer ends."""
        self._starts_at = dict(starts_at)
        self._reads, self._rate, self._took_ms = reads, max(rate, 1.0), took_ms
        self._batches: list[Batch] = []
        self._batch_id = -1
        self._now_ms = now_ms

    def read(self, ends: Mapping[TopicPartition, PartitionOffsets], now_ms: int) -> None:
        """Go on up to this time: end the batch that runs, plan the next."""
        self._now_ms = now_ms
        last = self._batches[-1] if self._batches else None
        if last is not None and last.committed_ms is None and last.planned_ms is not None:
            ends_ms = last.planned_ms + self._took_ms
            if self.is_stuck or now_ms < ends_ms:
                return
            self._batches[-1] = Batch(last.batch_id, last.planned_ms, ends_ms, last.ends, last.latest)
        if last is None or last.planned_ms is None or now_ms - last.planned_ms >= _EVERY_MS:
            self._plan(ends)

    def _plan(self, ends: Mapping[TopicPartition, PartitionOffsets]) -> None:
        latest = {name: ends[name].end for name in self._starts_at if name in ends}
        most = round(self._reads * _EVERY_MS / 1_000)
        before = self._batches[-1].ends[_SOURCE] if self._batches else self._starts_at
        planned = {name: min(end, before[name] + most) for name, end in latest.items()}
        self._batch_id += 1
        batch = Batch(self._batch_id, self._now_ms, None, {_SOURCE: planned}, {_SOURCE: latest})
        self._batches = [*self._batches, batch][-_BATCHES_MAX:]

    def watched(self, ends: Mapping[TopicPartition, PartitionOffsets]) -> WatchedQuery:
        """Return the query as a frame has it."""
        query = Query(
            ReaderKind.CHECKPOINT,
            f"/srv/spark/{self.name}/checkpoint",
            f"00000000-0000-0000-0000-{sum(map(ord, self.name)):012}",
            self.name,
            tuple(self._batches),
            (_SOURCE,),
            {_SOURCE: self._starts_at},
        )
        known = {name: ends[name].end for name in self._starts_at if name in ends}
        rows = [_row(query, known, self._times(query, known), self._now_ms)]
        (job,) = jobs_of([query], rows, now_ms=self._now_ms)
        return WatchedQuery(job, tuple(rows))

    def _times(self, query: Query, ends: Mapping[TopicPartition, int]) -> Times:
        """When the unread records came, at the cluster's rate."""
        return {
            Place(name, offset): UnreadRecord(offset, self._now_ms - round((ends[name] - offset) / self._rate * 1_000))
            for name, offset in query.committed(_SOURCE).items()
            if name in ends and offset < ends[name]
        }


def _row(query: Query, ends: Mapping[TopicPartition, int], times: Times, now_ms: int) -> QueryLag:
    """Return the row of the query's only source, from what is known already."""
    positions = {spark_queries._name(position): position for position in spark_queries._by_source(query)[_SOURCE]}
    sample = spark_queries._sample(query, positions, {**ends}, dict.fromkeys(ends, 0))
    source = spark_queries._Source(query, _SOURCE, positions, sample, bool(positions))
    series = {name: spark_queries._series(source, name, now_ms) for name in positions}
    return spark_queries._row(source, series, times, now_ms)
