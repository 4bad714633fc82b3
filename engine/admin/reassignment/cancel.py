"""``reassign cancel``: partitions go back to the replicas they had. By the wire only (KIP-455).

Kafka takes the new replicas away whatever becomes of the old ones (KAFKA-14424): whether those are alive and in sync is
looked at here, beforehand.
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
from engine.admin.reassignment.running import (
    alter_reassignments,
    check_can_alter,
    partitions_of,
    read_running,
    read_topics,
)
from engine.admin.topics.access import topic_reader
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot

POLL_PAUSE_S = 0.1


class CancelResult(StrEnum):
    """What became of one partition."""

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


async def running_of(
    cluster: Cluster, names: Collection[TopicPartition] | None
) -> dict[TopicPartition, PartitionSnapshot]:
    """Return the partitions that are being reassigned, of those that are named or (None) of all."""
    running = await read_running(cluster)
    wanted = [name for name in sorted(running.names) if names is None or name in names]
    found = partitions_of(await read_topics(cluster, {name.topic for name in wanted}))
    return {name: found[name] for name in wanted if name in found}


async def check_cancel(cluster: Cluster, running: dict[TopicPartition, PartitionSnapshot], *, is_forced: bool) -> None:
    """Check that cancelling leaves every partition somebody who can lead it.

    Raises:
        BadRequest: it would not, and ``is_forced`` is not set; or only ZooKeeper may be used.
    """
    await check_can_alter(cluster, dict.fromkeys(running))
    live = await (await topic_reader(cluster)).live_brokers()
    stranded = [name for name, partition in running.items() if not _survivors(partition, live)]
    if stranded and not is_forced:
        shown = ", ".join(map(str, stranded[:5])) + (", …" if len(stranded) > 5 else "")
        hint = Phrase("bring the old replicas back first, or let it finish; ", Parameter.FORCE, " cancels all the same")
        raise BadRequest("no old replica is alive and in sync, so nobody could lead afterwards", where=shown, hint=hint)


async def cancel_reassignments(
    cluster: Cluster, names: Sequence[TopicPartition], running: dict[TopicPartition, PartitionSnapshot]
) -> list[CancelledPartition]:
    """Cancel what is running of the named partitions and wait until the new replicas are gone from the assignment."""
    refusals = {refusal.name: refusal for refusal in await alter_reassignments(cluster, dict.fromkeys(running))}
    await _wait(cluster, {name: found for name, found in running.items() if name not in refusals})
    found = partitions_of(await read_topics(cluster, {name.topic for name in names}))
    results = []
    for name in names:
        partition, refusal = found.get(name), refusals.get(name)
        replicas = () if partition is None else partition.replicas
        if name not in running or (refusal and refusal.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
            results.append(CancelledPartition(*name, CancelResult.NOT_ACTIVE, replicas))
        elif refusal is not None:
            error = f"{refusal.code.name}: {refusal.message}" if refusal.message else refusal.code.name
            results.append(CancelledPartition(*name, CancelResult.FAILED, replicas, error))
        elif partition is not None and partition.assignment.is_being_reassigned:
            results.append(CancelledPartition(*name, CancelResult.UNDER_WAY, replicas))
        else:
            results.append(CancelledPartition(*name, CancelResult.CANCELLED, replicas))
    return results


def would_be_cancelled(
    names: Sequence[TopicPartition], running: dict[TopicPartition, PartitionSnapshot]
) -> list[CancelledPartition]:
    """Return what a dry run tells."""
    return [
        CancelledPartition(*name, CancelResult.WOULD_BE_CANCELLED, running[name].assignment.origin_replicas)
        if name in running
        else CancelledPartition(*name, CancelResult.NOT_ACTIVE, ())
        for name in names
    ]


async def _wait(cluster: Cluster, cancelled: Mapping[TopicPartition, PartitionSnapshot]) -> None:
    deadline = time.monotonic() + cluster.timeout_s * 0.5
    waiting = dict(cancelled)
    while waiting and time.monotonic() < deadline:
        now = partitions_of(await read_topics(cluster, {name.topic for name in waiting}))
        waiting = {name: was for name, was in waiting.items() if name in now and not _is_back(was, now[name])}
        if waiting:
            await asyncio.sleep(POLL_PAUSE_S)


def _is_back(was: PartitionSnapshot, now: PartitionSnapshot) -> bool:
    """Whether a partition has its old replicas only; a broker may tell the new ones for a moment longer."""
    return not now.assignment.is_being_reassigned and set(now.replicas) <= set(was.assignment.origin_replicas)


def _survivors(partition: PartitionSnapshot, live: Set[int]) -> list[int]:
    return [r for r in partition.assignment.origin_replicas if r in live and r in partition.isr]
