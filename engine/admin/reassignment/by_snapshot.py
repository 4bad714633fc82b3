"""Reassignments as a snapshot file has them. Nothing can be changed there, so only dry runs ask it."""

from __future__ import annotations

from engine.admin.cluster.errors import BadRequest
from engine.admin.reassignment.values import Refusal, RunningReassignments, Targets
from engine.common.model import TopicPartition
from engine.common.snapshot import ClusterSnapshot


class SnapshotReassignments:
    """Those that were under way when the snapshot was taken."""

    may_be_late = False
    is_live = False
    is_znode = False

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    async def running(self) -> RunningReassignments:
        running = {
            TopicPartition(topic.name, p.partition): p.assignment
            for topic in self._snapshot.topics
            for p in topic.partitions
            if p.assignment.is_being_reassigned
        }
        return RunningReassignments(running, {})

    async def configured_brokers(self) -> set[int]:
        return set()

    async def orders_wait(self) -> bool:
        return False

    async def check(self, targets: Targets) -> None:
        """A snapshot cannot tell whether a live cluster could do it."""

    async def alter(self, targets: Targets) -> list[Refusal]:
        raise BadRequest("a snapshot cannot be changed")
