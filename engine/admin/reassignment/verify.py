"""Reads the progress of a plan, in states and bytes, once or until the end, and then removes its throttles."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.reassignment.access import read_partitions, reassignment_reader, running_moves
from engine.admin.reassignment.log_dirs import LogDirs, read_log_dirs, with_log_dirs
from engine.admin.reassignment.moves import (
    PartitionStatus,
    ProgressMeter,
    ProgressWatcher,
    ReassignmentState,
    status_of,
)
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.throttles import ClearedThrottles, clear_throttles
from engine.admin.topics.access import topic_reader
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot

POLL_MIN_S = 0.2
POLL_MAX_S = 2.0
DEAD_LIMIT_S = 300.0
"""How long to wait for brokers that have died, if nothing else moves."""

HELD_UP = "waits for dead"

SETTLE_S = 1.0
"""How long brokers may take to read a change before it counts as not made."""


@dataclass(frozen=True, slots=True)
class VerifiedReassignment:
    """How far each partition of a plan is, by name, and which throttles were removed."""

    statuses: Sequence[PartitionStatus]
    cleared: ClearedThrottles = field(default_factory=ClearedThrottles)


async def verify_reassignment(
    cluster: Cluster,
    plan: Sequence[PartitionMove] | None,
    *,
    watcher: ProgressWatcher | None = None,
    limit_s: float | None = None,
    keeps_throttles: bool = False,
) -> VerifiedReassignment:
    """Check how far a plan is, and remove klamm's throttles once none of it moves any more.

    Without a plan it checks everything that is under way, and removes throttles that no move needs. With a ``watcher``
    it first follows the plan until nothing moves or ``limit_s`` is over (None: for as long as it takes). A snapshot or
    a read-only profile keeps its throttles.
    """
    async with asyncio.timeout(cluster.timeout_s):
        moves = await running_moves(cluster) if plan is None else plan
    if watcher is not None:
        statuses = await follow_reassignment(cluster, moves, watcher, limit_s=limit_s)
    else:
        async with asyncio.timeout(cluster.timeout_s):
            statuses = await read_statuses(cluster, moves)
    if keeps_throttles or not cluster.target.may_be_changed:
        return VerifiedReassignment(statuses)
    async with asyncio.timeout(cluster.timeout_s):
        if plan is None:
            moving = (await (await reassignment_reader(cluster)).running()).names
            return VerifiedReassignment(statuses, await clear_throttles(cluster, moving, None, names_foreign=True))
        return VerifiedReassignment(statuses, await clear_finished(cluster, plan, statuses))


async def preview_unneeded_throttles(cluster: Cluster) -> ClearedThrottles:
    """Return which throttles ``verify_reassignment`` without a plan would remove now. Changes nothing."""
    moving = (await (await reassignment_reader(cluster)).running()).names
    return await clear_throttles(cluster, moving, None, is_preview=True, names_foreign=True)


async def read_statuses(cluster: Cluster, plan: Sequence[PartitionMove]) -> list[PartitionStatus]:
    """Return how far each partition of a plan is, by name. Changes nothing.

    Bytes are what brokers still have to copy, according to their log dirs; None if a broker does not answer. If the
    answer may not include the plan yet, check again for a moment what looks failed.
    """
    may_be_late = (await reassignment_reader(cluster)).may_be_late
    deadline = time.monotonic() + SETTLE_S
    while True:
        statuses = await _look(cluster, plan)
        is_settled = not any(status.state is ReassignmentState.FAILED for status in statuses)
        if is_settled or not may_be_late or time.monotonic() >= deadline:
            return statuses
        await asyncio.sleep(POLL_MIN_S)


async def _look(cluster: Cluster, plan: Sequence[PartitionMove]) -> list[PartitionStatus]:
    listed = (await (await reassignment_reader(cluster)).running()).listed
    partitions = await read_partitions(cluster, {move.name.topic for move in plan})
    statuses = [status_of(move, partitions.get(move.name), is_listed=move.name in listed) for move in plan]
    wanted = {
        move.name: set(move.replicas) | set(status.replicas)
        for move, status in zip(plan, statuses, strict=True)
        if status.state is ReassignmentState.IN_PROGRESS
        or (move.wanted_dirs and status.state is ReassignmentState.COMPLETE)
    }
    if not wanted:
        return statuses
    # Asked again at each look: connections to brokers may know nothing of who has died since they were opened.
    live = await (await topic_reader(cluster)).live_brokers()
    brokers = {broker for replicas in wanted.values() for broker in replicas} & live
    try:
        # If klamm reaches none at all, that says nothing about those that a partition waits for.
        await (await cluster.wire()).nodes()
        dirs = await read_log_dirs(cluster, brokers, wanted)
    except AdminError as error:
        cluster.observe(f"no sizes: {error}")
        return [held_up(status, partitions, live) for status in statuses]
    return [
        _measured(
            held_up(with_log_dirs(status, move, dirs), partitions, live, dirs.silent, dirs.failed_for(move.name)),
            move,
            partitions,
            dirs,
        )
        for move, status in zip(plan, statuses, strict=True)
    ]


async def follow_reassignment(
    cluster: Cluster,
    plan: Sequence[PartitionMove],
    watcher: ProgressWatcher,
    *,
    limit_s: float | None = None,
    dead_limit_s: float = DEAD_LIMIT_S,
) -> list[PartitionStatus]:
    """Check until none of the plan is in progress or the time is up; return the last look.

    The watcher gets every look, and learns when there are no more, whatever the reason.

    Args:
        limit_s: how long it may take; a look that starts at the end still gets a moment.
        dead_limit_s: the time is also up when everything left has waited this long for dead brokers.

    Raises:
        TimeoutError: a look takes longer than the cluster's time-out, or than is left.
    """
    standstill = _Standstill(dead_limit_s)
    deadline = None if limit_s is None else time.monotonic() + limit_s
    pause, meter = POLL_MIN_S, ProgressMeter()
    try:
        while True:
            left_s = cluster.timeout_s if deadline is None else deadline - time.monotonic()
            async with asyncio.timeout(max(left_s, POLL_MAX_S)):
                statuses = await read_statuses(cluster, plan)
            now = time.monotonic()
            watcher.show(meter.update(statuses, now))
            if not any(status.state is ReassignmentState.IN_PROGRESS for status in statuses):
                return statuses
            if standstill.is_over(statuses, now) or (deadline is not None and now >= deadline):
                return statuses
            await asyncio.sleep(pause if deadline is None else max(0.0, min(pause, deadline - now)))
            pause = min(pause * 1.5, POLL_MAX_S)
    finally:
        watcher.end()


class _Standstill:
    """Notices when everything left has waited this long for dead brokers without progress."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since_s = 0.0
        self._left: dict[TopicPartition, int | None] = {}

    def is_over(self, statuses: Sequence[PartitionStatus], now_s: float) -> bool:
        """Take a look at ``now_s`` into account."""
        going = [status for status in statuses if status.state is ReassignmentState.IN_PROGRESS]
        left = {status.name: status.remaining_bytes for status in going}
        is_held_up = all(status.reason is not None and status.reason.startswith(HELD_UP) for status in going)
        if not is_held_up or left != self._left:
            self._left, self._since_s = left, now_s
            return False
        return now_s - self._since_s >= self._limit_s


async def clear_finished(
    cluster: Cluster,
    plan: Sequence[PartitionMove],
    statuses: Sequence[PartitionStatus],
    own_rates: Mapping[str, str] | None = None,
) -> ClearedThrottles:
    """Remove klamm's throttles from what no longer moves, once none of the plan does.

    ``own_rates`` are those that the caller has set on brokers.
    """
    if any(status.state is ReassignmentState.IN_PROGRESS for status in statuses):
        return ClearedThrottles()
    running = await (await reassignment_reader(cluster)).running()
    is_gone = any(status.state is ReassignmentState.NOT_FOUND for status in statuses)
    # A deleted topic took its mark with it; the others show whose the brokers' rates are.
    topics = None if is_gone else sorted({move.name.topic for move in plan})
    return await clear_throttles(cluster, running.names, topics, own_rates)


def held_up(
    status: PartitionStatus,
    partitions: Mapping[TopicPartition, PartitionSnapshot],
    live: Collection[int],
    silent: Collection[int] = (),
    failed: Mapping[int, Sequence[str]] = MappingProxyType({}),
) -> PartitionStatus:
    """Say which brokers a partition waits for: its move does not end until they are back.

    They are dead, or ``silent``, or have no replica of it and log dirs that have ``failed``. Kafka ends no move before
    all its targets are in sync, even those that hold a replica already.
    """
    partition = partitions.get(status.name)
    if status.state is not ReassignmentState.IN_PROGRESS or status.reason is not None or partition is None:
        return status
    coming = _coming(partition)
    dead = [
        replica
        for replica in partition.assignment.target_replicas
        if replica not in partition.isr and replica not in live
    ]
    if dead:
        return replace(status, reason=f"{HELD_UP} {_brokers(dead)}")
    wanted = dict.fromkeys((partition.leader, *coming))
    hanging = [broker for broker in wanted if broker in silent]
    if hanging:
        verb = "does" if len(hanging) == 1 else "do"
        return replace(status, reason=f"waits for {_brokers(hanging)}, which {verb} not answer")
    full = [broker for broker in coming if failed.get(broker)]
    if full:
        paths = ", ".join(path for broker in full for path in failed[broker])
        return replace(status, reason=f"waits for {_brokers(full)}: log dir failed or full: {paths}")
    return status


def _coming(partition: PartitionSnapshot) -> list[int]:
    """Return the brokers whose new replica is not in sync yet."""
    return [broker for broker in partition.assignment.adding_replicas if broker not in partition.isr]


def seen_as_begun(partition: PartitionSnapshot, target: Sequence[int]) -> PartitionSnapshot:
    """Return a partition as it will be when the controller begins its move, if it is only listed for one so far."""
    now = partition.assignment
    if now.is_being_reassigned:
        return partition
    adding = tuple(broker for broker in target if broker not in now.replicas)
    removing = tuple(broker for broker in now.replicas if broker not in target)
    return replace(partition, assignment=ReplicaAssignment((*now.replicas, *adding), adding, removing))


def _brokers(ids: Sequence[int]) -> str:
    return f"{'broker' if len(ids) == 1 else 'brokers'} {', '.join(map(str, ids))}"


def _measured(
    status: PartitionStatus, move: PartitionMove, partitions: Mapping[TopicPartition, PartitionSnapshot], dirs: LogDirs
) -> PartitionStatus:
    """Add the bytes that go to other brokers and to other log dirs."""
    partition = partitions.get(status.name)
    if status.state is not ReassignmentState.IN_PROGRESS or partition is None:
        return status
    partition = seen_as_begun(partition, move.replicas)
    remaining = remaining_bytes(status.name, partition, dirs)
    between = [
        place
        for broker, path in move.wanted_dirs.items()
        if (place := dirs.places.get((move.name, broker))) is not None and place.future_dir == path
    ]
    inside = sum(max(0, place.size_bytes - place.future_bytes) for place in between)
    copies = len(partition.assignment.adding_replicas)
    total = copies * _full_size(status.name, partition, dirs) + sum(place.size_bytes for place in between)
    return replace(
        status,
        remaining_bytes=None if remaining is None else remaining + inside,
        total_bytes=total or None if remaining is None else total,
    )


def _full_size(name: TopicPartition, partition: PartitionSnapshot, dirs: LogDirs) -> int:
    """Return the size of the largest replica that was there before; 0 if none is known."""
    known = (dirs.places.get((name, broker)) for broker in partition.assignment.origin_replicas)
    return max((place.size_bytes for place in known if place is not None), default=0)


def remaining_bytes(name: TopicPartition, partition: PartitionSnapshot, dirs: LogDirs) -> int | None:
    """Return how many bytes the new replicas still have to copy.

    None if the size of no present replica is known, or the broker of a new one did not answer.
    """
    assignment = partition.assignment
    sizes = [
        place.size_bytes
        for broker in assignment.origin_replicas
        if (place := dirs.places.get((name, broker))) is not None
    ]
    coming = _coming(partition)
    if not sizes or any(broker not in dirs.dirs for broker in coming):
        return None
    full = max(sizes)
    copied = [place.size_bytes if (place := dirs.places.get((name, broker))) else 0 for broker in coming]
    return sum(max(0, full - size) for size in copied)
