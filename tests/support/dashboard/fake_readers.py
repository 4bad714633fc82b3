"""Made-up consumer groups and queries of Spark for ``FakeCluster``. Their lag is judged like that of real ones."""

from __future__ import annotations

from collections.abc import Mapping

from engine.admin.groups.values import GroupMember, GroupState, GroupType
from engine.admin.lag import spark_queries
from engine.admin.lag.group_lag import group_lag
from engine.admin.lag.sampling import GroupSample, PartitionSample
from engine.admin.lag.spark_positions import Batch, Query, ReaderKind
from engine.admin.lag.spark_queries import QueryLag, jobs_of
from engine.admin.lag.unread import Place, Times, UnreadRecord
from engine.admin.lag.verdicts import Point, Reason
from engine.admin.offsets.listing import NO_LEADER_TEXT
from engine.admin.watch.frame import PartitionOffsets, WatchedGroup, WatchedQuery
from engine.common.model import TopicPartition

_POINTS_MAX = 10


class FakeGroup:
    """One group of consumers of one topic.

    Args:
        reads: records of each partition in a second.
        rate: records that come to each partition in a second.
        members: how many consumers there are; none makes the group empty, and it reads nothing.
    """

    def __init__(self, name: str, topic: str, *, reads: float, rate: float, members: int, now_ms: int) -> None:
        self.name, self.topic = name, topic
        self.committed: dict[TopicPartition, int] = {}
        self.reads = reads if members else 0.0
        self.stuck: set[TopicPartition] = set()
        """Where one record holds its reader up."""
        self._rate = max(rate, 1.0)
        self._member_ids = [f"{name}-{number}" for number in range(1, members + 1)]
        self._points: dict[TopicPartition, list[Point]] = {}
        self._since_ms = self._now_ms = now_ms

    def read(self, seconds: float, ends: Mapping[TopicPartition, PartitionOffsets], now_ms: int) -> None:
        """Read for this long, and commit. A partition without an end has no leader."""
        self._now_ms = now_ms
        for name, offset in self.committed.items():
            end = ends[name].end if name in ends else None
            if end is not None and name not in self.stuck:
                self.committed[name] = min(end, offset + round(self.reads * seconds))
            self._points[name] = [*self._points.get(name, ()), Point(now_ms, self.committed[name], end)][-_POINTS_MAX:]

    def leave(self) -> None:
        """Have all members leave."""
        self.reads, self._member_ids = 0.0, []

    def watched(self, ends: Mapping[TopicPartition, PartitionOffsets], coordinator: int | None) -> WatchedGroup:
        """Return the group as a frame has it."""
        owners = dict(zip(self.committed, self._member_ids * len(self.committed), strict=False))
        state = GroupState.STABLE if self._member_ids else GroupState.EMPTY
        partitions = {
            name: PartitionSample(offset, ends[name].end, 0, name in owners, owners.get(name))
            if name in ends
            else PartitionSample(offset, None, None, name in owners, owners.get(name), Reason.NO_LEADER, NO_LEADER_TEXT)
            for name, offset in self.committed.items()
        }
        series = {
            name: self._points.get(name) or [Point(self._now_ms, partition.committed, partition.end)]
            for name, partition in partitions.items()
        }
        sample = GroupSample(self.name, GroupType.CLASSIC, state, partitions)
        lag = group_lag(sample, series, self._times(partitions), self._now_ms)
        members = tuple(
            GroupMember(
                member, None, self.name, f"/10.0.0.{number}", tuple(n for n, who in owners.items() if who == member)
            )
            for number, member in enumerate(self._member_ids, 1)
        )
        return WatchedGroup(lag, members, coordinator, "range" if members else "", self._since_ms)

    def _times(self, partitions: Mapping[TopicPartition, PartitionSample]) -> Times:
        """When the unread records came, at the cluster's rate."""
        times: Times = {}
        for name, partition in partitions.items():
            if partition.committed is not None and partition.end is not None and partition.committed < partition.end:
                at_ms = self._now_ms - round((partition.end - partition.committed) / self._rate * 1_000)
                times[Place(name, partition.committed)] = UnreadRecord(partition.committed, at_ms)
        return times


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
