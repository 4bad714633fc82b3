"""Cancelling: partitions go back to the replicas they had. Over the wire only (KIP-455).

Kafka removes the new replicas whatever state the old ones are in (KAFKA-14424), so this checks first that those are
alive and in sync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Parameter, Phrase
from engine.admin.reassignment.access import read_partitions, reassignment_changer, reassignment_reader
from engine.admin.reassignment.log_dirs import Replica, stop_log_dir_moves
from engine.admin.reassignment.moves import Refusal
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.throttles import ClearedThrottles, clear_throttles
from engine.admin.topics.access import topic_reader
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot

POLL_PAUSE_S = 0.1


class CancelResult(StrEnum):
    """The outcome for one partition."""

    CANCELLED = "cancelled"
    NOT_ACTIVE = "not_active"
    FAILED = "failed"
    UNDER_WAY = "under_way"
    WOULD_BE_CANCELLED = "would_be_cancelled"


@dataclass(frozen=True, slots=True)
class CancelledPartition:
    """The result for one partition; ``replicas`` are those it has afterwards."""

    topic: str
    partition: int
    result: CancelResult
    replicas: tuple[int, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedCancellation:
    """What to cancel, checked against the current cluster.

    Attributes:
        plan: the file's partitions; empty means everything that is under way.
        names: the partitions to report, moving or not.
        running: those of them that are under way.
    """

    plan: tuple[PartitionMove, ...]
    names: tuple[TopicPartition, ...]
    running: Mapping[TopicPartition, PartitionSnapshot]

    @property
    def preview(self) -> list[CancelledPartition]:
        """What a dry run reports."""
        return [
            CancelledPartition(*name, CancelResult.WOULD_BE_CANCELLED, self.running[name].assignment.origin_replicas)
            if name in self.running
            else CancelledPartition(*name, CancelResult.NOT_ACTIVE, ())
            for name in self.names
        ]


@dataclass(frozen=True, slots=True)
class CancelledReassignments:
    """What a cancellation has done; ``kept_dirs`` are the replicas that stay in the log dir that they were leaving."""

    results: list[CancelledPartition]
    kept_dirs: list[Replica]
    cleared: ClearedThrottles


async def prepare_cancellation(
    cluster: Cluster, plan: Sequence[PartitionMove] | None, *, is_forced: bool = False
) -> PreparedCancellation:
    """Find out what is under way, of a plan or (None) at all, and check that it can be cancelled. Changes nothing.

    Raises:
        BadRequest: it would leave a partition without a replica that can lead, and ``is_forced`` is not set; or only
        ZooKeeper may be used.
        Refused: the cluster is older than the wire's reassignments.
    """
    running = await _running_of(cluster, None if plan is None else {move.name for move in plan})
    names = sorted(running) if plan is None else [move.name for move in plan]
    if running:
        await _check(cluster, running, is_forced=is_forced)
    return PreparedCancellation(tuple(plan or ()), tuple(names), running)


async def cancel_reassignments(
    cluster: Cluster, prepared: PreparedCancellation, *, goes_on: str, keeps_throttles: bool = False
) -> CancelledReassignments:
    """Cancel what was prepared, stop the moves between log dirs, then remove klamm's throttles.

    Args:
        goes_on: what ``cluster.accepted`` gets when cancelling begins.

    Raises:
        Refused: nothing was cancelled.
    """
    cluster.check_may_change()
    results = prepared.preview
    if prepared.running:
        cluster.accepted(goes_on)
        results = await _cancel(cluster, prepared.names, prepared.running)
    kept_dirs = await stop_log_dir_moves(cluster, prepared.plan)
    cleared = ClearedThrottles()
    if not keeps_throttles:
        moving = await (await reassignment_reader(cluster)).running()
        cleared = await clear_throttles(cluster, moving.names, None)
    return CancelledReassignments(results, kept_dirs, cleared)


async def _running_of(
    cluster: Cluster, names: Collection[TopicPartition] | None
) -> dict[TopicPartition, PartitionSnapshot]:
    """Return the partitions that are being reassigned, of the named ones or (None) of all."""
    running = await (await reassignment_reader(cluster)).running()
    wanted = [name for name in sorted(running.names) if names is None or name in names]
    partitions = await read_partitions(cluster, {name.topic for name in wanted})
    return {name: partitions[name] for name in wanted if name in partitions}


async def _check(cluster: Cluster, running: Mapping[TopicPartition, PartitionSnapshot], *, is_forced: bool) -> None:
    """Check that cancelling leaves every partition a replica that can lead it."""
    await (await reassignment_changer(cluster)).check(dict.fromkeys(running))
    live = await (await topic_reader(cluster)).live_brokers()
    stranded = [name for name, partition in running.items() if not _survivors(partition, live)]
    if stranded and not is_forced:
        shown = ", ".join(map(str, stranded[:5])) + (", …" if len(stranded) > 5 else "")
        hint = Phrase("bring the old replicas back first, or let it finish; ", Parameter.FORCE, " cancels all the same")
        raise BadRequest(
            "no old replica is alive and in sync, so no replica could lead afterwards", where=shown, hint=hint
        )


async def _cancel(
    cluster: Cluster, names: Sequence[TopicPartition], running: Mapping[TopicPartition, PartitionSnapshot]
) -> list[CancelledPartition]:
    """Cancel what is running of the named partitions and wait until the new replicas are gone from the assignment."""
    refused = await (await reassignment_changer(cluster)).alter(dict.fromkeys(running))
    refusals = {refusal.name: refusal for refusal in refused}
    await _wait(cluster, {name: partitions for name, partitions in running.items() if name not in refusals})
    partitions = await read_partitions(cluster, {name.topic for name in names})
    return [_result(name, partitions.get(name), refusals.get(name), was_running=name in running) for name in names]


def _result(
    name: TopicPartition, partition: PartitionSnapshot | None, refusal: Refusal | None, *, was_running: bool
) -> CancelledPartition:
    replicas = () if partition is None else partition.replicas
    if not was_running or (refusal and refusal.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
        return CancelledPartition(*name, CancelResult.NOT_ACTIVE, replicas)
    if refusal is not None:
        error = f"{refusal.code.name}: {refusal.message}" if refusal.message else refusal.code.name
        return CancelledPartition(*name, CancelResult.FAILED, replicas, error)
    if partition is not None and partition.assignment.is_being_reassigned:
        return CancelledPartition(*name, CancelResult.UNDER_WAY, replicas)
    return CancelledPartition(*name, CancelResult.CANCELLED, replicas)


async def _wait(cluster: Cluster, cancelled: Mapping[TopicPartition, PartitionSnapshot]) -> None:
    deadline = time.monotonic() + cluster.timeout_s * 0.5
    waiting = dict(cancelled)
    while waiting and time.monotonic() < deadline:
        now = await read_partitions(cluster, {name.topic for name in waiting})
        waiting = {name: was for name, was in waiting.items() if name in now and not _is_back(was, now[name])}
        if waiting:
            await asyncio.sleep(POLL_PAUSE_S)


def _is_back(was: PartitionSnapshot, now: PartitionSnapshot) -> bool:
    """Whether a partition has only its old replicas; a broker may report the new ones for a moment longer."""
    return not now.assignment.is_being_reassigned and set(now.replicas) <= set(was.assignment.origin_replicas)


def _survivors(partition: PartitionSnapshot, live: Set[int]) -> list[int]:
    return [r for r in partition.assignment.origin_replicas if r in live and r in partition.isr]
