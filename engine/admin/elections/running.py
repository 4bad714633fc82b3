"""Elections of a cluster: what an election would do, and carrying it out. ``access`` chooses whom to ask.

It then reads each partition again until the expected leader leads or the time is up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.target import Side
from engine.admin.elections.scope_and_result import (
    ElectionPreview,
    ElectionResult,
    ElectionScope,
    ElectionType,
    PartitionElection,
    preview,
    read_scope,
)
from engine.admin.topics.access import TopicReader, topic_reader
from engine.admin.topics.values import partitions_of
from engine.common.errors import ErrorCode
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.snapshot import PartitionSnapshot

POLL_PAUSE_S = 0.1
_SHARE_OF_TIMEOUT = 0.8
"""Waiting ends before the command's own deadline, so that every partition's state can still be reported."""


def check_election(cluster: Cluster, election: ElectionType) -> None:
    """Raise BadRequest if the cluster's side has no such election; call it before anybody has to confirm one."""
    elector_of(cluster).check(election)


async def preview_election(cluster: Cluster, election: ElectionType, scope: ElectionScope) -> list[ElectionPreview]:
    """Return what an election would do to each partition in scope. Changes nothing.

    Raises:
        NotFound: a named topic or partition does not exist.
    """
    # A named topic must be reported or refused; among all topics a damaged one does not hide the others.
    complain = cluster.complain if scope.is_all else None
    reader = await topic_reader(cluster, on_unreadable=complain, on_unknown_settings=cluster.observe)
    return preview(election, await read_scope(reader, scope), await reader.live_brokers())


async def run_election(
    cluster: Cluster, election: ElectionType, previews: Sequence[ElectionPreview]
) -> list[PartitionElection]:
    """Elect, wait, and return the result for each partition in the given order.

    Raises:
        BadRequest: only ZooKeeper may be used, which has no unclean elections.
        AdminError: the cluster as a whole rejects it.
    """
    deadline = time.monotonic() + cluster.timeout_s * _SHARE_OF_TIMEOUT
    reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
    elector = elector_of(cluster)
    elector.check(election)
    wanted = [each for each in previews if each.is_needed]
    errors: Mapping[TopicPartition, str | None] = {}
    if wanted:
        await elector.find()
        cluster.accepted(Phrase("the controller is electing; check with: ", Operation.DESCRIBE_TOPICS))
        errors = await elector.elect(election, [each.name for each in wanted], deadline)
    after = await _wait(reader, [each for each in wanted if errors.get(each.name) is None], deadline)
    live = await reader.live_brokers()
    return [_result(election, each, after.get(each.name), errors.get(each.name), live) for each in previews]


async def _wait(
    reader: TopicReader, wanted: Sequence[ElectionPreview], deadline: float
) -> dict[TopicPartition, PartitionSnapshot]:
    """Check until all have the expected leaders; return the leaders at that time.

    This does not wait for what cannot be elected: it has been tried, and waiting will not change its state.
    """
    waiting = {each.name: each.after for each in wanted if each.obstacle is None}
    while True:
        partitions = partitions_of(await reader.topics(sorted({each.name.topic for each in wanted})))
        late = [name for name, leader in waiting.items() if name in partitions and partitions[name].leader != leader]
        if not late or time.monotonic() >= deadline:
            return partitions
        await asyncio.sleep(POLL_PAUSE_S)


def _result(
    election: ElectionType,
    before: ElectionPreview,
    after: PartitionSnapshot | None,
    error: str | None,
    live: frozenset[int],
) -> PartitionElection:
    leader = before.before if after is None else after.leader

    def outcome(result: ElectionResult, why: str | None = None) -> PartitionElection:
        return PartitionElection(*before.name, before.before, leader, before.preferred, result, why)

    if not before.is_needed:
        return outcome(ElectionResult.NOT_NEEDED)
    if error is not None:
        is_fine = error.startswith(ErrorCode.ELECTION_NOT_NEEDED.name)
        return (
            outcome(ElectionResult.NOT_NEEDED) if is_fine else outcome(ElectionResult.FAILED, _explained(before, error))
        )
    if after is None:
        return outcome(ElectionResult.FAILED, "the partition is gone")
    now = preview(election, {before.name: after}, live)[0]
    if not now.is_needed:
        return outcome(ElectionResult.ELECTED)
    if now.obstacle is not None:
        return outcome(ElectionResult.FAILED, now.obstacle)
    return outcome(
        ElectionResult.UNDER_WAY, f"leader is {leader if leader != NO_LEADER else 'none'} when the time was up"
    )


def _explained(before: ElectionPreview, error: str) -> str:
    """Return why it failed: the obstacle seen beforehand says more than Kafka's text."""
    return error if before.obstacle is None else f"{before.obstacle} ({error.partition(':')[0]})"


# The interface for carrying out elections, and the only place that chooses its implementation.


class Elector(Protocol):
    """Has leaders elected in one cluster."""

    def check(self, election: ElectionType) -> None:
        """Raise BadRequest if this way does not support the election."""

    async def find(self) -> None:
        """Find who carries it out, so that the next request reaches them.

        Raises:
            Unreachable: no broker can be asked. Nothing was sent.
        """

    async def elect(
        self, election: ElectionType, names: Sequence[TopicPartition], deadline: float
    ) -> Mapping[TopicPartition, str | None]:
        """Ask for leaders, and wait until ``deadline`` (monotonic seconds) for the controller to have tried.

        Returns:
            The error of each reported partition, or None.

        Raises:
            AdminError: the cluster as a whole rejects it.
        """


def elector_of(cluster: Cluster) -> Elector:
    """Return who carries out the elections of this cluster."""
    if cluster.changes_by is Side.ZOOKEEPER:
        from engine.admin.elections.by_znode import ZnodeElector

        return ZnodeElector(cluster)
    from engine.admin.elections.by_wire import WireElector

    return WireElector(cluster)
