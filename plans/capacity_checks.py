"""Whether brokers and log dirs have the room that a policy wants when a plan is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from engine.common.model import TopicPartition
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot
from plans.building import copy_size
from plans.findings import Check, Finding, Lack, cannot_tell
from plans.lines import PlanLines
from plans.plan_file import ANY_LOG_DIR, PlanFile
from plans.policy import Policy

NO_SIZES = "sizes are not known: take the snapshot with sizes"


def check_capacities(plan: PlanFile, snapshot: ClusterSnapshot, policy: Policy, lines: PlanLines) -> Iterator[Finding]:
    """Return the capacities that would be exceeded, and those of which nobody can tell."""
    yield from _brokers(plan, snapshot, policy, lines)
    if policy.log_dir_capacities:
        yield from _log_dirs(policy.log_dir_capacities, _held_after(plan, snapshot), lines.of_key("score"))


def _brokers(plan: PlanFile, snapshot: ClusterSnapshot, policy: Policy, lines: PlanLines) -> Iterator[Finding]:
    if not policy.capacities:
        return
    sizes = sizes_of(snapshot)
    after = {entry.name: entry.replicas for entry in plan.partitions}
    held: Counter[int] = Counter()
    unknown = False
    for name, partition in partitions_of(snapshot).items():
        unknown = unknown or name not in sizes
        for broker in after.get(name, partition.assignment.target_replicas):
            held[broker] += sizes.get(name, 0)
    line = lines.of_key("score")
    for broker, capacity in sorted(policy.capacities.items()):
        rule = f"brokers.capacity.{broker}"
        if unknown:
            yield cannot_tell(Check.CAPACITY, rule, NO_SIZES, line)
        elif held[broker] > capacity:
            above = held[broker] - capacity
            told = f"broker {broker} would hold {held[broker]:,} bytes, {above:,} above its capacity of {capacity:,}"
            yield Finding(Check.CAPACITY, told, line, rule=rule)


@dataclass(slots=True)
class _Held:
    """What is where when the plan is done."""

    dirs: dict[int, set[str]] = field(default_factory=dict)
    """The log dirs of each broker that tells them."""
    bytes: Counter[tuple[int, str]] = field(default_factory=Counter)
    chosen: Counter[int] = field(default_factory=Counter)
    """Bytes that come to a broker, for which it chooses the log dir."""
    unknown: set[int] = field(default_factory=set)
    """Brokers with a replica whose size or log dir is not known."""


def _held_after(plan: PlanFile, snapshot: ClusterSnapshot) -> _Held:
    """What stays, stays in its log dir; what comes goes where the plan says, or where the broker chooses."""
    held = _Held()
    planned = {entry.name: entry for entry in plan.partitions}
    for one in snapshot.log_dirs:
        held.dirs.setdefault(one.broker, set()).add(one.log_dir)
    for name, partition in partitions_of(snapshot).items():
        entry, before = planned.get(name), partition.assignment.target_replicas
        replicas = before if entry is None else entry.replicas
        named = {} if entry is None else dict(zip(entry.replicas, entry.log_dirs, strict=True))
        sizes = {log.broker: log.size_bytes for log in partition.replica_logs if not log.is_future}
        # A log that moves to another disk counts as moved.
        places = {log.broker: log.log_dir for log in sorted(partition.replica_logs, key=lambda each: each.is_future)}
        for log in partition.replica_logs:
            held.dirs.setdefault(log.broker, set()).add(log.log_dir)
        for broker in replicas:
            path = named.get(broker, ANY_LOG_DIR)
            path = places.get(broker, ANY_LOG_DIR) if path == ANY_LOG_DIR else path
            size = sizes.get(broker, copy_size(partition))
            if size is None or (path == ANY_LOG_DIR and broker in before):
                held.unknown.add(broker)
            elif path == ANY_LOG_DIR:
                held.chosen[broker] += size
            else:
                held.bytes[broker, path] += size
    return held


def _log_dirs(capacities: Mapping[tuple[int, str], int], held: _Held, line: int) -> Iterator[Finding]:
    for (broker, path), capacity in sorted(capacities.items()):
        rule, size = f"log_dirs.capacity.{broker}:{path}", held.bytes[broker, path]
        dirs = held.dirs.get(broker, set())
        if broker in held.unknown or not dirs:
            why = f"sizes and log dirs of broker {broker} are not known: take the snapshot with sizes"
            yield cannot_tell(Check.CAPACITY, rule, why, line)
        elif path not in dirs:
            told = f"broker {broker} has no log dir {path}; it has {', '.join(sorted(dirs))}"
            yield Finding(Check.CAPACITY, told, line, rule=rule, lacks=Lack.LOG_DIR)
        elif size > capacity:
            above = size - capacity
            told = f"{path} of broker {broker} would hold {size:,} bytes, {above:,} above its capacity of {capacity:,}"
            yield Finding(Check.CAPACITY, told, line, rule=rule)
        elif size + held.chosen[broker] > capacity:
            yield _chosen(capacities, held, broker, path, line)


def _chosen(capacities: Mapping[tuple[int, str], int], held: _Held, broker: int, path: str, line: int) -> Finding:
    """A broker chooses the log dirs of what comes: an error only if it does not fit, wherever it goes."""
    rule, size = f"log_dirs.capacity.{broker}:{path}", held.chosen[broker]
    told = f"broker {broker} gets {size:,} bytes and chooses their log dirs itself"
    rooms = [capacities.get((broker, one), 1 << 62) - held.bytes[broker, one] for one in held.dirs[broker]]
    room = sum(max(0, each) for each in rooms)
    if size > room:
        return Finding(Check.CAPACITY, f"{told}; {size - room:,} more than all of them have room for", line, rule=rule)
    room = capacities[broker, path] - held.bytes[broker, path]
    return Finding(Check.CAPACITY, f"{told}; {path} has room for {room:,}", line, is_error=False, rule=rule)


def partitions_of(snapshot: ClusterSnapshot) -> dict[TopicPartition, PartitionSnapshot]:
    """Return the partitions of a cluster, but for those that are being deleted."""
    return {
        TopicPartition(topic.name, partition.partition): partition
        for topic in snapshot.topics
        if not topic.is_marked_for_deletion
        for partition in topic.partitions
    }


def sizes_of(snapshot: ClusterSnapshot) -> dict[TopicPartition, int]:
    """Return what a copy of each partition takes, where that is known."""
    sizes = {name: copy_size(partition) for name, partition in partitions_of(snapshot).items()}
    return {name: size for name, size in sizes.items() if size is not None}
