"""Checks whether a plan still fits its cluster and obeys a policy. Pure: plan, snapshot and rules in, findings out.

Figures are recounted from the plan's partitions, because a file that was edited by hand still has the old ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.common.model import NO_LEADER, TopicPartition
from engine.common.quantities import counted, plural
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot
from plans.digest import input_digest
from plans.findings import Check, Finding, Lack, PlanLines, cannot_tell
from plans.plan_file import ANY_LOG_DIR, PlanEntry, PlanFile
from plans.policy import Policy
from plans.problem_building import copy_size

NO_SIZES = "sizes are not known: take the snapshot with sizes"


def check_capacities(plan: PlanFile, snapshot: ClusterSnapshot, policy: Policy, lines: PlanLines) -> Iterator[Finding]:
    """Return the capacities that would be exceeded, and those that cannot be judged."""
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
            message = f"broker {broker} would hold {held[broker]:,} bytes, {above:,} above its capacity of {capacity:,}"
            yield Finding(Check.CAPACITY, message, line, rule=rule)


@dataclass(slots=True)
class _Held:
    """What is where when the plan is done."""

    dirs: dict[int, set[str]] = field(default_factory=dict)
    """The log dirs of each broker that reports them."""
    bytes: Counter[tuple[int, str]] = field(default_factory=Counter)
    chosen: Counter[int] = field(default_factory=Counter)
    """Bytes that come to a broker, for which it chooses the log dir."""
    unknown: set[int] = field(default_factory=set)
    """Brokers with a replica whose size or log dir is not known."""


def _held_after(plan: PlanFile, snapshot: ClusterSnapshot) -> _Held:
    """What stays, stays in its log dir; what comes goes where the plan says, or where the broker chooses."""
    held = _Held()
    planned = {entry.name: entry for entry in plan.partitions}
    for log_dir in snapshot.log_dirs:
        held.dirs.setdefault(log_dir.broker, set()).add(log_dir.log_dir)
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
            message = f"broker {broker} has no log dir {path}; it has {', '.join(sorted(dirs))}"
            yield Finding(Check.CAPACITY, message, line, rule=rule, lacks=Lack.LOG_DIR)
        elif size > capacity:
            above = size - capacity
            message = (
                f"{path} of broker {broker} would hold {size:,} bytes, {above:,} above its capacity of {capacity:,}"
            )
            yield Finding(Check.CAPACITY, message, line, rule=rule)
        elif size + held.chosen[broker] > capacity:
            yield _chosen(capacities, held, broker, path, line)


def _chosen(capacities: Mapping[tuple[int, str], int], held: _Held, broker: int, path: str, line: int) -> Finding:
    """A broker chooses the log dirs of what comes: an error only if it does not fit, wherever it goes."""
    rule, size = f"log_dirs.capacity.{broker}:{path}", held.chosen[broker]
    message = f"broker {broker} gets {size:,} bytes and chooses their log dirs itself"
    rooms = [capacities.get((broker, log_dir), 1 << 62) - held.bytes[broker, log_dir] for log_dir in held.dirs[broker]]
    room = sum(max(0, each) for each in rooms)
    if size > room:
        return Finding(
            Check.CAPACITY, f"{message}; {size - room:,} more than all of them have room for", line, rule=rule
        )
    room = capacities[broker, path] - held.bytes[broker, path]
    return Finding(Check.CAPACITY, f"{message}; {path} has room for {room:,}", line, is_error=False, rule=rule)


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


_CHANGES_MAX = 8


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """What a plan costs, counted from its partitions. Bytes and time are None if sizes are unknown."""

    moves: int
    leader_changes: int
    bytes: int | None
    time_s: float | None


def check_plan(
    plan: PlanFile, snapshot: ClusterSnapshot, policy: Policy | None = None, lines: PlanLines | None = None
) -> list[Finding]:
    """Return all findings: first those of the cluster, then those of the policy."""
    lines = lines or PlanLines()
    findings = [*check_drift(plan, snapshot, lines), *_figures_differ(plan, lines)]
    if is_carried_out(plan, snapshot):
        message = f"the plan is carried out already ({counted(len(plan.partitions), 'partition')})"
        findings = [finding for finding in findings if finding.check not in (Check.DRIFT, Check.TARGETS, Check.DIGEST)]
        findings.insert(0, Finding(Check.DRIFT, message, is_error=False))
    if policy is not None:
        if policy.is_unchanged:
            rule = "cluster.unchanged"
            findings = [
                replace(finding, is_error=True, rule=rule) if finding.check is Check.DIGEST else finding
                for finding in findings
            ]
        findings += _against_policy(plan, snapshot, policy, lines)
    return findings


def check_drift(plan: PlanFile, snapshot: ClusterSnapshot, lines: PlanLines | None = None) -> list[Finding]:
    """Return how the cluster differs from the one that the plan was made for.

    A change that touches neither the plan's partitions nor their brokers is reported, but not as an error.
    """
    lines = lines or PlanLines()
    if plan.klamm.cluster_id != snapshot.cluster_id:
        message = f"this plan is for cluster {plan.klamm.cluster_id}, not for {snapshot.cluster_id}"
        return [Finding(Check.CLUSTER, message, lines.of_key("cluster_id"))]
    findings = [
        *_drifted(plan, snapshot, lines),
        *_missing_targets(plan, snapshot, lines),
        *_missing_log_dirs(plan, snapshot, lines),
    ]
    notes = list(_leaderless(plan, snapshot, lines))
    if input_digest(snapshot) != plan.klamm.input_digest:
        message = "brokers, racks, topics or replicas have changed since the plan was made"
        is_touched = bool(findings) or _are_its_brokers_changed(plan, snapshot)
        if not any(finding.check is Check.DRIFT for finding in findings):
            message += "; its own partitions have not: it can be applied, but may not be the smallest any more"
        changes = _changes_of_brokers(plan, snapshot)
        if changes:
            message += f" ({'; '.join(changes)})"
        findings.append(Finding(Check.DIGEST, message, lines.of_key("input_digest"), is_error=is_touched))
    return findings + notes


def is_carried_out(plan: PlanFile, snapshot: ClusterSnapshot) -> bool:
    """Whether every partition of the plan is as planned and nothing moves. Log dirs need a snapshot with sizes."""
    present = partitions_of(snapshot)
    pairs = [(entry, present.get(entry.name)) for entry in plan.partitions]
    is_same_cluster = plan.klamm.cluster_id == snapshot.cluster_id
    return is_same_cluster and bool(pairs) and all(current and _stands(entry, current) for entry, current in pairs)


def _stands(entry: PlanEntry, partition: PartitionSnapshot) -> bool:
    """Whether a partition has its planned replicas, in their log dirs if the plan names them."""
    logs = partition.replica_logs
    dirs = {log.broker: log.log_dir for log in logs if not log.is_future}
    wanted = zip(entry.replicas, entry.log_dirs, strict=True)
    return (
        partition.replicas == entry.replicas
        and not partition.assignment.is_being_reassigned
        and not any(log.is_future for log in logs)
        and all(path == ANY_LOG_DIR or dirs.get(broker) == path for broker, path in wanted)
    )


def what_stops(findings: Iterable[Finding], *, is_fresh: bool) -> list[Finding]:
    """Return the findings of ``check_drift`` that stop a plan.

    A plan that has begun (not ``is_fresh``) has changed the cluster itself: only another cluster stops it.
    """
    stops = (Check.CLUSTER, Check.DRIFT, Check.TARGETS) if is_fresh else (Check.CLUSTER,)
    return [finding for finding in findings if finding.check in stops and finding.is_error]


def figures_of(plan: PlanFile, snapshot: ClusterSnapshot) -> PlanFigures:
    """Count what the plan costs in this cluster."""
    sizes = sizes_of(snapshot)
    before = {entry.name: entry for entry in plan.klamm.rollback}
    moves = leader_changes = 0
    size: int | None = 0
    through: Counter[tuple[int, bool]] = Counter()
    for entry in plan.partitions:
        old = before[entry.name].replicas
        new = [broker for broker in entry.replicas if broker not in old]
        inside = _moved_inside(before[entry.name], entry)
        moves += len(new) + inside
        leader_changes += old[0] != entry.replicas[0]
        each = sizes.get(entry.name)
        if new or inside:
            size = None if each is None or size is None else size + each * (len(new) + inside)
        for broker in new:
            through[broker, True] += each or 0
            through[old[0], False] += each or 0
    if size is None:
        size = plan.klamm.score.bytes
        return PlanFigures(moves, leader_changes, size, plan.klamm.score.makespan_s)
    rate = plan.klamm.throttle
    time_s = max(through.values(), default=0) / rate if rate else plan.klamm.score.makespan_s
    return PlanFigures(moves, leader_changes, size, 0.0 if not moves else time_s)


def _are_its_brokers_changed(plan: PlanFile, snapshot: ClusterSnapshot) -> bool:
    """Whether a broker that the plan's partitions are on, or go to, is gone or in another rack.

    A file without a score card of brokers has no racks; then they are unknown.
    """
    before = {row.broker: row.rack for row in plan.klamm.score.brokers if row.alive}
    live = {broker.id: broker.rack for broker in snapshot.brokers}
    used = {broker for entry in (*plan.partitions, *plan.klamm.rollback) for broker in entry.replicas}
    was_dead = {row.broker for row in plan.klamm.score.brokers if not row.alive}
    return any(
        broker not in before or broker not in live or before[broker] != live[broker] for broker in used - was_dead
    )


def _changes_of_brokers(plan: PlanFile, snapshot: ClusterSnapshot) -> list[str]:
    """Return how brokers differ from the score card, which says where each was and what it held at planning time."""
    before = {row.broker: row for row in plan.klamm.score.brokers}
    live = {broker.id: broker.rack for broker in snapshot.brokers}
    held = Counter(b for partition in partitions_of(snapshot).values() for b in partition.assignment.target_replicas)
    changes = []
    for broker in sorted(before.keys() | live.keys() if before else ()):
        row = before.get(broker)
        if row is None or (broker in live and not row.alive):
            changes.append(f"broker {broker} is new")
        elif row.alive and broker not in live:
            changes.append(f"broker {broker} is gone")
        elif broker in live and row.rack != live[broker]:
            changes.append(f"broker {broker} was in rack {row.rack} and is in {live[broker]}")
        if row is not None and row.replicas_before != held[broker]:
            changes.append(f"broker {broker} had {row.replicas_before} replicas and has {held[broker]}")
    more = len(changes) - _CHANGES_MAX
    return [*changes[:_CHANGES_MAX], f"{more} more changes"] if more > 0 else changes


def _drifted(plan: PlanFile, snapshot: ClusterSnapshot, lines: PlanLines) -> Iterator[Finding]:
    present = partitions_of(snapshot)
    targets = {entry.name: entry.replicas for entry in plan.partitions}
    for entry in plan.klamm.rollback:
        partition = present.get(entry.name)
        line = lines.of_partition(entry.name)
        if partition is None:
            yield Finding(Check.DRIFT, f"{entry.name} does not exist any more", line, partition=entry.name)
            continue
        now = partition.assignment.target_replicas
        if now == entry.replicas:
            continue
        message = f"{entry.name} was planned from {_listed(entry.replicas)} and has {_listed(now)} now"
        if now == targets[entry.name]:
            message = f"{entry.name} has the replicas of the plan already: {_listed(now)}"
        if partition.assignment.is_being_reassigned:
            message += " (being reassigned)"
        yield Finding(Check.DRIFT, message, line, partition=entry.name)


def _missing_targets(plan: PlanFile, snapshot: ClusterSnapshot, lines: PlanLines) -> Iterator[Finding]:
    live = snapshot.live_broker_ids
    before = {entry.name: entry.replicas for entry in plan.klamm.rollback}
    for entry in plan.partitions:
        for broker in entry.replicas:
            if broker not in live and broker not in before[entry.name]:
                message = f"{entry.name} is to go to broker {broker}, which is not alive"
                yield Finding(Check.TARGETS, message, lines.of_partition(entry.name), partition=entry.name)


def _missing_log_dirs(plan: PlanFile, snapshot: ClusterSnapshot, lines: PlanLines) -> Iterator[Finding]:
    """Find log dirs of the plan that their broker does not have; of brokers that reported theirs."""
    present: dict[int, set[str]] = {}
    for log_dir in snapshot.log_dirs:
        present.setdefault(log_dir.broker, set()).add(log_dir.log_dir)
    failed = {(log_dir.broker, log_dir.log_dir) for log_dir in snapshot.failed_log_dirs or ()}
    for entry in plan.partitions:
        for broker, path in zip(entry.replicas, entry.log_dirs, strict=True):
            if path == ANY_LOG_DIR or path in present.get(broker, {path}):
                continue
            why = "which has failed" if (broker, path) in failed else "which it does not have"
            message = f"{entry.name} is to go to log dir {path} of broker {broker}, {why}"
            yield Finding(Check.TARGETS, message, lines.of_partition(entry.name), partition=entry.name)


def _leaderless(plan: PlanFile, snapshot: ClusterSnapshot, lines: PlanLines) -> Iterator[Finding]:
    """Note the partitions without a leader: their wave does not begin, but those before it do."""
    present = partitions_of(snapshot)
    for entry in plan.partitions:
        partition = present.get(entry.name)
        if partition is not None and partition.leader == NO_LEADER:
            message = f"{entry.name} has no leader to copy from: its wave cannot begin"
            line = lines.of_partition(entry.name)
            yield Finding(Check.TARGETS, message, line, is_error=False, partition=entry.name)


def _figures_differ(plan: PlanFile, lines: PlanLines) -> Iterator[Finding]:
    """Find a file that was edited: the score card has other figures than the partitions."""
    before = {entry.name: entry for entry in plan.klamm.rollback}
    pairs = [(before[entry.name], entry) for entry in plan.partitions]
    leader_changes = sum(old.replicas[0] != new.replicas[0] for old, new in pairs)
    copied = sum(broker not in old.replicas for old, new in pairs for broker in new.replicas)
    copied += sum(_moved_inside(old, new) for old, new in pairs)
    score = plan.klamm.score
    if (leader_changes, copied) != (score.leader_changes, score.moves):
        message = (
            f"the score card has {score.moves} moves and {score.leader_changes} leader changes, the partitions make "
            f"{copied} and {leader_changes}: the file was edited by hand"
        )
        yield Finding(Check.FIGURES, message, lines.of_key("score"))


def _moved_inside(old: PlanEntry, new: PlanEntry) -> int:
    """Return how many replicas stay on their broker and go to another of its log dirs."""
    dirs = dict(zip(old.replicas, old.log_dirs, strict=True))
    wanted = zip(new.replicas, new.log_dirs, strict=True)
    return sum(path != ANY_LOG_DIR and broker in dirs and dirs[broker] != path for broker, path in wanted)


def _against_policy(plan: PlanFile, snapshot: ClusterSnapshot, policy: Policy, lines: PlanLines) -> Iterator[Finding]:
    yield from _limits(plan, snapshot, policy, lines)
    yield from _placement(plan, snapshot, policy, lines)
    yield from _forbidden(plan, policy, lines)
    yield from check_capacities(plan, snapshot, policy, lines)


def _limits(plan: PlanFile, snapshot: ClusterSnapshot, policy: Policy, lines: PlanLines) -> Iterator[Finding]:
    figures = figures_of(plan, snapshot)
    line = lines.of_key("score")
    limits: tuple[tuple[Check, str, float | None, float | None, Callable[[float], str]], ...] = (
        (Check.MOVES, "limits.moves", policy.moves, figures.moves, lambda n: f"{n:,} {plural('move', n)}"),
        (Check.BYTES, "limits.bytes", policy.bytes, figures.bytes, lambda n: f"{n:,} bytes"),
        (
            Check.LEADER_CHANGES, "limits.leader_changes", policy.leader_changes, figures.leader_changes,
            lambda n: f"{n:,} {plural('leader change', n)}",
        ),
        (Check.TIME, "limits.time", policy.time_s, figures.time_s, lambda n: f"{n:,.0f} s"),
    )  # fmt: skip
    for check, rule, limit, value, spelled in limits:
        if limit is None:
            continue
        if value is None:
            if check is Check.TIME and figures.bytes is not None:
                why = "the plan has no throttle: plan with --throttle"
                yield cannot_tell(check, rule, why, line, Lack.THROTTLE)
            else:
                yield cannot_tell(check, rule, NO_SIZES, line)
        elif value > limit:
            yield Finding(check, f"{spelled(value)}, the policy allows {spelled(limit)}", line, rule=rule)


def _placement(plan: PlanFile, snapshot: ClusterSnapshot, policy: Policy, lines: PlanLines) -> Iterator[Finding]:
    least, most = policy.replication_factor_min, policy.replication_factor_max
    for entry in plan.partitions:
        factor, line = len(entry.replicas), lines.of_partition(entry.name)
        if least is not None and factor < least:
            message = f"{entry.name} gets {counted(factor, 'replica')}, the policy wants at least {least}"
            rule = "placement.replication_factor_min"
            yield Finding(Check.FACTOR, message, line, partition=entry.name, rule=rule)
        if most is not None and factor > most:
            message = f"{entry.name} gets {counted(factor, 'replica')}, the policy wants at most {most}"
            rule = "placement.replication_factor_max"
            yield Finding(Check.FACTOR, message, line, partition=entry.name, rule=rule)
    if policy.rack_violations is None:
        return
    racks = {broker.id: broker.rack for broker in snapshot.brokers}
    violations = [entry for entry in plan.partitions if racks_missed(entry.replicas, racks)]
    if len(violations) > policy.rack_violations:
        for entry in violations:
            message = (
                f"{entry.name} would be in {counted(racks_missed(entry.replicas, racks), 'rack')} fewer than it could"
            )
            line, listed = lines.of_partition(entry.name), _listed(entry.replicas)
            rule = "placement.rack_violations"
            yield Finding(Check.RACKS, f"{message}: {listed}", line, partition=entry.name, rule=rule)


def racks_missed(replicas: Sequence[int], racks: Mapping[int, str | None]) -> int:
    """Return how many more racks a partition could be in.

    A broker without a rack, or one that is not alive, is a rack of its own; if no broker has a rack, there are none.
    """
    known = {rack for rack in racks.values() if rack is not None}
    if not known:
        return 0
    taken = {racks.get(broker) or f"broker {broker}" for broker in replicas}
    return max(0, min(len(replicas), len(known)) - len(taken))


def _forbidden(plan: PlanFile, policy: Policy, lines: PlanLines) -> Iterator[Finding]:
    before = {entry.name: entry.replicas for entry in plan.klamm.rollback}
    patterns = [re.compile(forbidden_topic) for forbidden_topic in policy.forbidden_topics]
    for entry in plan.partitions:
        line = lines.of_partition(entry.name)
        for broker in entry.replicas:
            if broker in policy.forbidden_brokers and broker not in before[entry.name]:
                message = f"{entry.name} is to go to broker {broker}, which the policy forbids"
                yield Finding(Check.BROKERS, message, line, partition=entry.name, rule="brokers.forbidden")
        for pattern in patterns:
            if pattern.fullmatch(entry.topic):
                message = f"the plan changes {entry.name}, but the policy forbids topics {pattern.pattern}"
                yield Finding(Check.TOPICS, message, line, partition=entry.name, rule="topics.forbidden")


def _listed(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))
