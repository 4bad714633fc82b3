"""The checks of a cluster's health. Pure: facts in, findings out; each finding is a line that names its thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from engine.admin.health.report import Check, HealthFacts, HealthReport, report_of
from engine.admin.reassignment.throttle_settings import RATES, REPLICA_LISTS, is_mark_alone
from engine.admin.topics.values import DEFAULT_MIN_ISR
from engine.common.model import NO_CONTROLLER, NO_LEADER, TopicPartition
from engine.common.snapshot import PartitionSnapshot

IMBALANCE_PERCENT_MAX = 10
"""Kafka's default of leader.imbalance.per.broker.percentage."""
DELETION_STUCK_MS = 60_000
ZOOKEEPER_SLOW_MS = 100.0


def assess(facts: HealthFacts) -> HealthReport:
    """Return what is wrong with a cluster."""
    return report_of(
        [
            *_controller(facts),
            (Check.MISSING_BROKERS, _missing_brokers(facts)),
            (Check.SILENT_BROKERS, [f"broker {b}: {why}" for b, why in sorted(facts.silent_brokers.items())]),
            (Check.UNREADABLE_TOPICS, list(facts.unreadable_topics)),
            (Check.UNKNOWN_SETTINGS, [f"topic {t.name}" for t in facts.snapshot.topics if t.configs is None]),
            *_partitions(facts),
            (Check.OFFLINE_LOG_DIRS, _log_dirs(facts)),
            (Check.PREFERRED_LEADER_IMBALANCE, _imbalance(facts)),
            (Check.RUNNING_REASSIGNMENTS, _running(facts)),
            (Check.LEAKED_THROTTLES, _throttles(facts)),
            (Check.DELETION_STUCK, _deletions(facts)),
            (Check.ZOOKEEPER_SLOW, _zookeeper(facts)),
        ]
    )


def _controller(facts: HealthFacts) -> Iterator[tuple[Check, list[str]]]:
    snapshot = facts.snapshot
    if snapshot.controller_id == NO_CONTROLLER:
        yield Check.NO_CONTROLLER, ["no broker is the controller"]
    elif snapshot.controller_id not in snapshot.live_broker_ids:
        yield Check.NO_CONTROLLER, [f"broker {snapshot.controller_id} is the controller, but is not alive"]
    if facts.is_kraft:
        return
    seen = {controller for controller in facts.seen_controllers.values() if controller is not None}
    if snapshot.controller_id != NO_CONTROLLER:
        seen.add(snapshot.controller_id)
    if len(seen) > 1:
        told = sorted(facts.seen_controllers.items())
        yield Check.SEVERAL_CONTROLLERS, [f"broker {broker} takes broker {who} for it" for broker, who in told]


def _missing_brokers(facts: HealthFacts) -> list[str]:
    live = facts.snapshot.live_broker_ids
    counts = Counter(broker for _, p in _all(facts) for broker in p.replicas if broker not in live)
    return [f"broker {broker}: {count} replica{'' if count == 1 else 's'}" for broker, count in sorted(counts.items())]


def _partitions(facts: HealthFacts) -> Iterator[tuple[Check, list[str]]]:
    live = facts.snapshot.live_broker_ids
    found: dict[Check, list[str]] = {
        check: []
        for check in (
            Check.OFFLINE_PARTITIONS,
            Check.UNDER_MIN_ISR,
            Check.MIN_ISR_ABOVE_FACTOR,
            Check.UNDER_REPLICATED_DEAD_BROKER,
            Check.UNDER_REPLICATED_LAGGING,
            Check.UNDER_REPLICATED_MOVING,
        )
    }
    for name, partition in _all(facts):
        if partition.leader not in live:
            found[Check.OFFLINE_PARTITIONS].append(f"{name} (leader {_leader(partition)}, replicas {_ids(partition)})")
        else:
            min_isr = facts.min_isr.get(name.topic, DEFAULT_MIN_ISR)
            in_sync, replicas = len(partition.isr), len(partition.replicas)
            if in_sync < (min(min_isr, replicas) if facts.caps_min_isr else min_isr):
                found[Check.UNDER_MIN_ISR].append(f"{name} ({in_sync} in sync, {min_isr} wanted)")
            elif replicas < min_isr:
                found[Check.MIN_ISR_ABOVE_FACTOR].append(f"{name} ({replicas} replicas, {min_isr} wanted in sync)")
        if partition.is_under_replicated:
            cause, who = _cause(partition, live)
            found[cause].append(f"{name} (broker {', '.join(map(str, who))} not in sync)")
    yield from found.items()


def _cause(partition: PartitionSnapshot, live: Set[int]) -> tuple[Check, list[int]]:
    """Return why a partition has fewer replicas in sync than wanted, and which are not.

    Replicas that a reassignment adds are not missing yet; those that it takes away are not missed any more.
    """
    assignment = partition.assignment
    out = [replica for replica in partition.osr if replica not in assignment.adding_replicas]
    dead = [replica for replica in out if replica not in live]
    if dead:
        return Check.UNDER_REPLICATED_DEAD_BROKER, dead
    if assignment.is_being_reassigned and all(replica in assignment.removing_replicas for replica in out):
        return Check.UNDER_REPLICATED_MOVING, out
    return Check.UNDER_REPLICATED_LAGGING, out


def _log_dirs(facts: HealthFacts) -> list[str]:
    return [f"broker {broker}: {path}" for broker, paths in sorted(facts.offline_log_dirs.items()) for path in paths]


def _imbalance(facts: HealthFacts) -> list[str]:
    """Return the brokers that lead too few of the partitions they are preferred for; dead ones cannot lead."""
    live = facts.snapshot.live_broker_ids
    preferred: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    for _, partition in _all(facts):
        if partition.preferred_leader in live and not partition.assignment.is_being_reassigned:
            preferred[partition.preferred_leader] += 1
            elsewhere[partition.preferred_leader] += partition.leader != partition.preferred_leader
    return [
        f"broker {broker} does not lead {count} of the {preferred[broker]} partitions it is preferred for"
        for broker, count in sorted(elsewhere.items())
        if count * 100 > preferred[broker] * IMBALANCE_PERCENT_MAX
    ]


def _running(facts: HealthFacts) -> list[str]:
    moving = {
        str(name): _held_up(partition, facts.snapshot.live_broker_ids)
        for name, partition in _all(facts)
        if partition.assignment.is_being_reassigned
    }
    # Those that get no further stand first, for only some are shown.
    told = [f"{name}{why}" for name, why in sorted(moving.items(), key=lambda item: not item[1])]
    return told + [name for name in facts.listed_reassignments if name not in moving]


def _held_up(partition: PartitionSnapshot, live: Set[int]) -> str:
    assignment = partition.assignment
    dead = [str(b) for b in assignment.adding_replicas if b not in partition.isr and b not in live]
    return f" (waits for {', '.join(dead)}, dead)" if dead else ""


def _throttles(facts: HealthFacts) -> list[str]:
    """Return throttles that serve no reassignment: of topics that do not move; of brokers where nothing moves.

    While something moves, a topic may keep the mark alone of a rate that brokers still have.
    """
    moving = {name.topic for name, partition in _all(facts) if partition.assignment.is_being_reassigned}
    is_anything_moving = bool(moving or facts.listed_reassignments)
    found = [
        f"topic {topic.name}: {key}={topic.configs[key]}"
        for topic in facts.snapshot.topics
        if topic.name not in moving and topic.configs is not None
        for key in REPLICA_LISTS
        if topic.configs.get(key)
        if not is_anything_moving or not is_mark_alone(topic.configs[key])
    ]
    if is_anything_moving:
        return found
    for broker, configs in sorted(facts.snapshot.broker_configs.items(), key=lambda item: item[0] or -1):
        whose = "all brokers" if broker is None else f"broker {broker}"
        found += [f"{whose}: {key}={configs[key]}" for key in RATES if key in configs]
    return found


def _deletions(facts: HealthFacts) -> list[str]:
    ages = sorted(facts.deletion_ages_ms.items())
    return [f"topic {topic}, for {age_ms // 1000} s" for topic, age_ms in ages if age_ms > DELETION_STUCK_MS]


def _zookeeper(facts: HealthFacts) -> list[str]:
    slow = facts.zookeeper_ms is not None and facts.zookeeper_ms > ZOOKEEPER_SLOW_MS
    return [f"a read takes {facts.zookeeper_ms:.0f} ms"] if slow else []


def _all(facts: HealthFacts) -> Iterator[tuple[TopicPartition, PartitionSnapshot]]:
    """Give all partitions but those of topics that are being deleted."""
    for topic in facts.snapshot.topics:
        if not topic.is_marked_for_deletion:
            for partition in topic.partitions:
                yield TopicPartition(topic.name, partition.partition), partition


def _leader(partition: PartitionSnapshot) -> str:
    return "none" if partition.leader == NO_LEADER else f"{partition.leader}, dead"


def _ids(partition: PartitionSnapshot) -> str:
    return ",".join(map(str, partition.replicas))
