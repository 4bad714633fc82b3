"""Each health check on two clusters made by hand: one that it must report, and its near miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.admin.health.checks import assess
from engine.admin.health.report import Check, HealthFacts, HealthStatus, HoldingTransaction, Severity
from engine.common.model import BrokerInfo, ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, SnapshotSource, TopicSnapshot

THROTTLED = {"leader.replication.throttled.replicas": "0:0"}
MOVING = ReplicaAssignment((2, 0, 1), (2,), (1,))


def of(
    *partitions: PartitionSnapshot,
    live: tuple[int, ...] = (0, 1, 2),
    racks: tuple[str | None, ...] = (),
    controller_id: int = 0,
    configs: dict[str, str] | None = {},  # noqa: B006 - nobody changes it
    **more: object,
) -> HealthFacts:
    """Return the facts of a cluster whose only topic has these partitions; ``more`` holds other facts."""
    brokers = tuple(BrokerInfo(broker, (), racks[broker] if racks else None) for broker in live)
    numbered = tuple(replace(partition, partition=index) for index, partition in enumerate(partitions))
    topic = TopicSnapshot("t", numbered, configs=configs)
    snapshot = ClusterSnapshot(brokers, (topic,), SnapshotSource.WIRE, 0, None, controller_id)
    return HealthFacts(snapshot, **more)  # type: ignore[arg-type]


def led(replicas: tuple[int, ...], isr: tuple[int, ...] | None = None, leader: int | None = None) -> PartitionSnapshot:
    """Return a partition, led by its first replica and all in sync unless said otherwise."""
    first = replicas[0] if leader is None else leader
    return PartitionSnapshot(0, ReplicaAssignment(replicas), first, replicas if isr is None else isr)


WELL = led((0, 1))
ELSEWHERE = led((0, 1), leader=1)
CLUSTERS: dict[Check, tuple[HealthFacts, HealthFacts]] = {
    Check.NO_CONTROLLER: (of(WELL, controller_id=7), of(WELL, controller_id=2)),
    Check.SEVERAL_CONTROLLERS: (of(WELL, seen_controllers={0: 0, 1: 1}), of(WELL, seen_controllers={0: 0, 1: None})),
    Check.MISSING_BROKERS: (of(led((0, 3), (0,))), of(WELL, live=(0, 1))),
    Check.SILENT_BROKERS: (of(WELL, silent_brokers={2: "no answer within 5 s"}), of(WELL, silent_brokers={})),
    Check.UNREADABLE_TOPICS: (of(WELL, unreadable_topics=("cannot understand it",)), of()),
    Check.UNKNOWN_SETTINGS: (of(WELL, configs=None), of(WELL, configs={})),
    Check.OFFLINE_PARTITIONS: (of(led((0, 1), (0,), -1)), of(led((0, 1), (0,), 0))),
    Check.UNDER_MIN_ISR: (of(led((0, 1), (0,)), min_isr={"t": 2}), of(led((0, 1, 2), (0, 1)), min_isr={"t": 2})),
    Check.MIN_ISR_ABOVE_FACTOR: (
        of(WELL, min_isr={"t": 3}, caps_min_isr=True),
        of(WELL, min_isr={"t": 2}, caps_min_isr=True),
    ),
    Check.UNDER_REPLICATED_DEAD_BROKER: (of(led((0, 3), (0,))), of(led((0, 1), (0,)))),
    # The followers of a dead leader have nobody to follow: their disks are not to blame.
    Check.UNDER_REPLICATED_LAGGING: (of(led((0, 1), (0,))), of(led((3, 0), (3,), -1))),
    Check.UNDER_REPLICATED_MOVING: (
        of(PartitionSnapshot(0, MOVING, 0, (0,))),
        of(PartitionSnapshot(0, MOVING, 0, (0, 1))),
    ),
    Check.OFFLINE_LOG_DIRS: (of(WELL, offline_log_dirs={1: ("/d1",)}), of(WELL, offline_log_dirs={})),
    Check.FULL_LOG_DIRS: (of(WELL, used_percents={1: {"/d1": 95.0}}), of(WELL, used_percents={1: {"/d1": 94.9}})),
    Check.HANGING_TRANSACTIONS: (
        of(WELL, holding=(HoldingTransaction("t-0", 7, 4001, 60_000, True),)),
        of(WELL, holding=(HoldingTransaction("t-0", 7, 4001, 59_999, True),)),
    ),
    Check.LONG_TRANSACTIONS: (
        of(WELL, holding=(HoldingTransaction("t-0", 7, 4001, 60_000, False, "pay-1", "PrepareCommit"),)),
        of(WELL, holding=(HoldingTransaction("t-0", 7, 4001, 299_999, False, "pay-1", "Ongoing"),)),
    ),
    Check.RACK_VIOLATIONS: (of(WELL, racks=("a", "a", "b")), of(WELL, racks=("a", "b", "b"))),
    Check.BROKERS_WITHOUT_RACK: (of(WELL, racks=("a", None, "b")), of(WELL, racks=("a", None, "b"), is_kraft=True)),
    Check.PREFERRED_LEADER_IMBALANCE: (of(*[WELL] * 8, *[ELSEWHERE] * 2), of(*[WELL] * 9, ELSEWHERE)),
    Check.RUNNING_REASSIGNMENTS: (of(PartitionSnapshot(0, MOVING, 0, (0, 1))), of(led((2, 0), (2, 0)))),
    Check.LEAKED_THROTTLES: (
        of(WELL, configs=THROTTLED),
        of(PartitionSnapshot(0, MOVING, 0, (0, 1)), configs=THROTTLED),
    ),
    Check.DELETION_STUCK: (of(WELL, deletion_ages_ms={"old": 90_000}), of(WELL, deletion_ages_ms={"new": 2_000})),
    Check.BROKER_CLOCKS: (
        of(WELL, clocks_apart_ms={1: 7_000}),
        of(WELL, clocks_apart_ms={1: 1_900, 2: -29_000}),  # Broker 2 may just have started slowly.
    ),
    Check.EXPIRING_CERTIFICATES: (of(WELL, certificates_left_ms={1: 3 * 86_400_000}), of(WELL)),
    Check.ZOOKEEPER_UNREACHABLE: (of(WELL, zookeeper_trouble="it does not answer"), of(WELL, zookeeper_trouble=None)),
    Check.ZOOKEEPER_SERVERS_DOWN: (
        of(WELL, zookeepers_down=("zk2:2181 refuses connections; 2 of 3 servers serve",)),
        of(WELL, zookeepers_down=()),
    ),
    Check.ZOOKEEPER_SLOW: (of(WELL, zookeeper_ms=250.0), of(WELL, zookeeper_ms=2.0)),
}


def test_every_check_has_its_clusters() -> None:
    assert set(CLUSTERS) == set(Check)


@pytest.mark.parametrize("check", Check)
def test_a_check_finds_what_is_wrong_and_nothing_in_its_near_miss(check: Check) -> None:
    wrong, right = CLUSTERS[check]
    reasons = {reason.check: reason for reason in assess(wrong).reasons}
    assert check in reasons, sorted(reasons)
    assert reasons[check].severity is check.severity
    assert check.advice, "a person is told what to do"
    is_critical = any(reason.severity is Severity.CRITICAL for reason in reasons.values())
    assert assess(wrong).status is (HealthStatus.CRITICAL if is_critical else HealthStatus.WARNING)
    assert check not in {reason.check for reason in assess(right).reasons}


def test_more_in_sync_wanted_than_there_are_replicas_is_critical_where_writes_are_refused() -> None:
    """Brokers older than 3.7, and those of an unknown release, refuse every write with acks=all."""
    wanted = of(WELL, min_isr={"t": 3})
    (reason,) = assess(wanted).reasons
    assert (reason.check, reason.severity) == (Check.UNDER_MIN_ISR, Severity.CRITICAL)
    (reason,) = assess(replace(wanted, caps_min_isr=True)).reasons
    assert (reason.check, reason.severity) == (Check.MIN_ISR_ABOVE_FACTOR, Severity.WARNING)
    assert "no more in-sync replicas than exist" in str(reason.check.advice)


def test_a_broker_that_knows_no_controller_is_told_so() -> None:
    report = assess(of(WELL, seen_controllers={0: 0, 1: 1, 2: None}))
    (reason,) = [reason for reason in report.reasons if reason.check is Check.SEVERAL_CONTROLLERS]
    assert reason.examples[-1] == "broker 2 does not name a controller"


def test_who_holds_readers_up_the_longest_is_named_first() -> None:
    holding = (
        HoldingTransaction("t-0", 7, 4001, 300_000, False, "pay-1", "Ongoing"),
        HoldingTransaction("t-1", 9, 4002, 7_200_000, False, "pay-2", "Ongoing"),
        HoldingTransaction("t-2", 0, 4003, None, True),
    )
    hanging, late = assess(of(WELL, holding=holding)).reasons
    assert (hanging.check, hanging.severity, late.severity) == (
        Check.HANGING_TRANSACTIONS,
        Severity.CRITICAL,
        Severity.WARNING,
    )
    assert hanging.examples == (
        "t-2 (producer 4003, an unknown time without a record: nothing from offset 0 on is read, "
        "and no coordinator will end it)",
    )
    assert late.examples == (
        "t-1 (producer 4002 of transactional id 'pay-2', Ongoing for 120 min: nothing from offset 9 on is read)",
        "t-0 (producer 4001 of transactional id 'pay-1', Ongoing for 5 min: nothing from offset 7 on is read)",
    )
