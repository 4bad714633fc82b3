"""A made-up consumer group for ``FakeCluster``: it reads at one speed, and its lag is judged like a real one's."""

from __future__ import annotations

from collections.abc import Mapping

from engine.admin.groups.values import GroupMember, GroupState, GroupType
from engine.admin.lag.results import group_lag
from engine.admin.lag.sampling import GroupSample, PartitionSample
from engine.admin.lag.unread import Place, Times, UnreadRecord
from engine.admin.lag.verdicts import Point, Reason
from engine.admin.offsets.listing import NO_LEADER_TEXT
from engine.admin.watch.frame import PartitionOffsets, WatchedGroup
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
