"""``reassign verify`` and waiting: how far a plan is, in states and bytes, and its throttles taken off at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.target import Side
from engine.admin.reassignment.log_dirs import LogDirs, read_log_dirs, with_log_dirs
from engine.admin.reassignment.moves import PartitionStatus, ReassignmentState, status_of
from engine.admin.reassignment.plan_file import PartitionMove
from engine.admin.reassignment.running import partitions_of, read_running, read_topics
from engine.admin.reassignment.throttles import ClearedThrottles, clear_throttles
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot

OnStatus = Callable[[Sequence[PartitionStatus], float], None]
"""Is told the state of all partitions, and the time in monotonic seconds."""

POLL_MIN_S = 0.2
POLL_MAX_S = 2.0
SETTLE_S = 1.0
"""So long brokers may take to hear of a change before it counts as not made."""


async def verify_reassignment(cluster: Cluster, plan: Sequence[PartitionMove]) -> list[PartitionStatus]:
    """Return how far each partition of a plan is, by name. Changes nothing.

    Bytes are those that brokers still have to copy, as their log dirs tell; None where a broker does not answer. By the
    wire the controller tells what is under way, and any broker what there is: whoever is asked may not have heard of it
    yet, so what looks failed is looked at again for a moment.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        statuses = await _look(cluster, plan)
        is_settled = not any(status.state is ReassignmentState.FAILED for status in statuses)
        if is_settled or cluster.reads_from is not Side.WIRE or time.monotonic() >= deadline:
            return statuses
        await asyncio.sleep(POLL_MIN_S)


async def _look(cluster: Cluster, plan: Sequence[PartitionMove]) -> list[PartitionStatus]:
    listed = (await read_running(cluster)).listed
    found = partitions_of(await read_topics(cluster, {move.name.topic for move in plan}))
    statuses = [status_of(move, found.get(move.name), is_listed=move.name in listed) for move in plan]
    wanted = {
        move.name: set(move.replicas) | set(status.replicas)
        for move, status in zip(plan, statuses, strict=True)
        if status.state is ReassignmentState.IN_PROGRESS
        or (move.wanted_dirs and status.state is ReassignmentState.COMPLETE)
    }
    if not wanted:
        return statuses
    try:
        live = await (await cluster.wire()).nodes()
        brokers = {broker for replicas in wanted.values() for broker in replicas} & set(live)
        dirs = await read_log_dirs(cluster, brokers, wanted)
    except AdminError as error:
        cluster.observe(f"no sizes: {error}")
        return statuses
    return [
        _measured(held_up(with_log_dirs(status, move, dirs), found, live), found, dirs)
        for move, status in zip(plan, statuses, strict=True)
    ]


async def wait_for_reassignment(
    cluster: Cluster, plan: Sequence[PartitionMove], *, timeout_s: float | None, on_status: OnStatus
) -> list[PartitionStatus]:
    """Look until nothing of the plan is in progress or the time is over; return the last look."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    pause = POLL_MIN_S
    while True:
        statuses = await verify_reassignment(cluster, plan)
        now = time.monotonic()
        on_status(statuses, now)
        if not any(status.state is ReassignmentState.IN_PROGRESS for status in statuses):
            return statuses
        if deadline is not None and now >= deadline:
            return statuses
        await asyncio.sleep(pause if deadline is None else max(0.0, min(pause, deadline - now)))
        pause = min(pause * 1.5, POLL_MAX_S)


async def clear_finished(
    cluster: Cluster,
    plan: Sequence[PartitionMove],
    statuses: Sequence[PartitionStatus],
    own_rates: Mapping[str, str] | None = None,
) -> ClearedThrottles:
    """Take klamm's throttles off what does not move any more, once nothing of the plan does.

    ``own_rates`` are those that the caller has set on brokers.
    """
    if any(status.state is ReassignmentState.IN_PROGRESS for status in statuses):
        return ClearedThrottles()
    running = await read_running(cluster)
    is_gone = any(status.state is ReassignmentState.NOT_FOUND for status in statuses)
    # A topic that was deleted took its mark with it; the others tell whose the rates of the brokers are.
    topics = None if is_gone else sorted({move.name.topic for move in plan})
    return await clear_throttles(cluster, running.names, topics, own_rates)


def held_up(
    status: PartitionStatus, found: Mapping[TopicPartition, PartitionSnapshot], live: Collection[int]
) -> PartitionStatus:
    """Say which brokers a partition waits for that are dead: until they come back it gets no further."""
    partition = found.get(status.name)
    if status.state is not ReassignmentState.IN_PROGRESS or status.reason is not None or partition is None:
        return status
    adding = partition.assignment.adding_replicas
    dead = [broker for broker in adding if broker not in partition.isr and broker not in live]
    if not dead:
        return status
    who = "broker" if len(dead) == 1 else "brokers"
    return replace(status, reason=f"waits for dead {who} {', '.join(map(str, dead))}")


def _measured(
    status: PartitionStatus, found: Mapping[TopicPartition, PartitionSnapshot], dirs: LogDirs
) -> PartitionStatus:
    if status.state is not ReassignmentState.IN_PROGRESS:
        return status
    partition = found.get(status.name)
    return replace(status, remaining_bytes=None if partition is None else remaining_bytes(status.name, partition, dirs))


def remaining_bytes(name: TopicPartition, partition: PartitionSnapshot, dirs: LogDirs) -> int | None:
    """Return how many bytes the replicas that come still have to copy; None where no present replica told its size."""
    assignment = partition.assignment
    sizes = [
        place.size_bytes
        for broker in assignment.origin_replicas
        if (place := dirs.places.get((name, broker))) is not None
    ]
    if not sizes:
        return None
    full = max(sizes)
    coming = [broker for broker in assignment.adding_replicas if broker not in partition.isr]
    there = [place.size_bytes if (place := dirs.places.get((name, broker))) else 0 for broker in coming]
    return sum(max(0, full - size) for size in there)
