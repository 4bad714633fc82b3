"""What the health checks find in made-up facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.framework.remedies import spelled
from engine.admin.health.checks import Throttle, assess, has_throttles
from engine.admin.health.report import Check, HealthFacts, HealthStatus, Severity
from engine.common.model import NO_LEADER, BrokerInfo, ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, SnapshotSource, TopicSnapshot


def partition(
    replicas: tuple[int, ...], isr: tuple[int, ...] | None = None, leader: int | None = None, index: int = 0
) -> PartitionSnapshot:
    return PartitionSnapshot(
        index, ReplicaAssignment(replicas), replicas[0] if leader is None else leader, replicas if isr is None else isr
    )


def facts(*partitions: PartitionSnapshot, live: tuple[int, ...] = (0, 1, 2), **more: object) -> HealthFacts:
    numbered = tuple(replace(partition, partition=index) for index, partition in enumerate(partitions))
    brokers = tuple(BrokerInfo(broker, ()) for broker in live)
    snapshot = ClusterSnapshot(brokers, (TopicSnapshot("t", numbered),), SnapshotSource.ZOOKEEPER, 0, None, 0)
    return HealthFacts(snapshot, **more)  # type: ignore[arg-type]


def found(facts: HealthFacts) -> dict[Check, tuple[str, ...]]:
    return {reason.check: reason.examples for reason in assess(facts).reasons}


def test_a_healthy_cluster() -> None:
    report = assess(facts(partition((0, 1)), seen_controllers={0: 0, 1: 0, 2: None}, zookeeper_ms=2.0))
    assert (report.status, report.reasons) == (HealthStatus.OK, ())


def test_partitions_that_are_offline_or_too_thin() -> None:
    seen = found(facts(partition((0, 1), (0,), -1), partition((1, 2), (1,)), min_isr={"t": 2}))
    assert seen[Check.OFFLINE_PARTITIONS] == (
        "t-0 (leader none, replicas 0,1; the controller has not elected 0, in sync)",
    )
    assert seen[Check.UNDER_MIN_ISR] == ("t-1 (1 in sync, 2 wanted)",)
    dead_leader = found(facts(partition((0, 3), (0, 3), 3)))
    assert Check.UNDER_REPLICATED_LAGGING not in found(facts(partition((3, 0), (3,), -1)))
    assert dead_leader[Check.OFFLINE_PARTITIONS] == (
        "t-0 (leader 3, dead, replicas 0,3; the controller has not elected 0, in sync)",
    )


@pytest.mark.parametrize(("min_isr", "isr"), [(1, (0,)), (2, (0, 1)), (2, (0, 1, 2)), (3, (0, 1, 2))])
def test_a_partition_with_as_many_in_sync_as_wanted_takes_all_writes(min_isr: int, isr: tuple[int, ...]) -> None:
    """Writes with acks=all are refused below min.insync.replicas, not at it."""
    thin = facts(partition((0, 1, 2), isr), min_isr={"t": min_isr})
    assert Check.UNDER_MIN_ISR not in found(thin)
    wanted_more = replace(thin, min_isr={"t": len(isr) + 1})
    assert found(wanted_more)[Check.UNDER_MIN_ISR] == (f"t-0 ({len(isr)} in sync, {len(isr) + 1} wanted)",)


def test_under_replication_has_a_cause() -> None:
    moving = PartitionSnapshot(0, ReplicaAssignment((2, 0, 1), (2,), (1,)), 0, (0,))
    behind = PartitionSnapshot(0, ReplicaAssignment((2, 0, 1), (2,), (1,)), 1, (1,))
    seen = found(facts(partition((0, 3), (0,)), partition((0, 1), (0,)), moving, behind))
    assert seen[Check.UNDER_REPLICATED_DEAD_BROKER] == ("t-0 (broker 3 not in sync)",)
    assert seen[Check.UNDER_REPLICATED_LAGGING] == ("t-1 (broker 1 not in sync)", "t-3 (broker 0 not in sync)")
    assert seen[Check.UNDER_REPLICATED_MOVING] == ("t-2 (broker 1 not in sync)",)
    assert seen[Check.MISSING_BROKERS] == ("broker 3: 1 replica",)


@pytest.mark.parametrize(
    ("isr", "told"),
    [
        ((3,), "leader none, replicas 0,3,4; start broker 3, last in sync"),
        ((3, 4), "leader none, replicas 0,3,4; start broker 3, 4, last in sync"),
        ((0, 3), "leader none, replicas 0,3,4; the controller has not elected 0, in sync"),
        ((), "leader none, replicas 0,3,4"),
    ],
)
def test_an_offline_partition_names_the_broker_that_can_bring_it_back(isr: tuple[int, ...], told: str) -> None:
    assert found(facts(partition((0, 3, 4), isr, -1)))[Check.OFFLINE_PARTITIONS] == (f"t-0 ({told})",)


def test_what_a_broker_had_on_a_failed_log_dir_waits_for_no_election() -> None:
    lost = replace(facts(partition((0, 3), (0,), -1)), offline_log_dirs={0: ("/d",)}, awaits_leaders=True)
    example = "t-0 (leader none, replicas 0,3; a log dir of broker 0, last in sync, has failed)"
    assert found(lost)[Check.OFFLINE_PARTITIONS] == (example,)
    assert Check.OFFLINE_PARTITIONS not in found(replace(lost, offline_log_dirs={}))


def test_what_is_offline_with_a_log_dir_is_not_brought_back_by_an_election() -> None:
    """Kafka 3.9.1 answers an unclean election of such a partition with ELIGIBLE_LEADERS_NOT_AVAILABLE."""
    dirs: dict[int, tuple[str, ...]] = {0: ("/d",)}

    def told(*partitions: PartitionSnapshot) -> str:
        reasons = assess(replace(facts(*partitions), offline_log_dirs=dirs)).reasons
        return spelled(next(reason for reason in reasons if reason.check is Check.OFFLINE_PARTITIONS).advice)

    alone, other = partition((0,), (0,), -1), partition((3, 1), (3,), -1)
    mend = "repair the failed log dir of broker 0, then restart it"
    last = "klamm elect unclean --topic TOPIC --partition N"
    assert told(alone) == mend
    start, resort = "start a broker that has a replica", "as a last resort, where another replica is up"
    assert told(alone, other) == f"{start}; or {mend}; {resort}, {last}"
    assert told(partition((0, 1), (0,), -1)) == f"{mend}; {resort}, {last}"
    assert told(other) == spelled(Check.OFFLINE_PARTITIONS.advice) == f"{start}; {resort}, {last}"
    assert told(partition((3,), (3,), -1)) == start, "no election can choose a dead replica"
    assert told(alone, partition((3,), (3,), -1)) == f"{start}; or {mend}"


def test_a_broker_whose_process_hangs_is_to_be_continued_rather_than_started() -> None:
    wrong = facts(partition((3,), (3,), -1), partition((0, 3), (0,), 0))
    for hung, verb in ((("10.0.0.3:9092",), "continue or start"), ((), "start")):
        reasons = {reason.check: reason for reason in assess(replace(wrong, hung_addresses=hung)).reasons}
        offline = reasons[Check.OFFLINE_PARTITIONS]
        assert offline.examples == (f"t-0 (leader none, replicas 3, all down; {verb} broker 3, last in sync)",)
        assert spelled(offline.advice) == f"{verb} a broker that has a replica"
        assert spelled(reasons[Check.UNDER_REPLICATED_DEAD_BROKER].advice) == f"{verb} each dead broker again"


def test_nobody_can_be_elected_among_replicas_that_are_all_down() -> None:
    seen = found(facts(partition((3,), (3,), -1), partition((3, 4), (), -1)))
    assert seen[Check.OFFLINE_PARTITIONS] == (
        "t-0 (leader none, replicas 3, all down; start broker 3, last in sync)",
        "t-1 (leader none, replicas 3,4, all down)",
    )


@pytest.mark.parametrize(
    ("racks", "replicas", "is_violated"),
    [
        (("a", "b", "c"), (0, 1), False),
        (("a", "a", "b"), (0, 1), True),
        (("a", "a", "b"), (0, 1, 2), False),
        (("a", "a", "a"), (0, 1), False),
        ((None, "a", "a"), (1, 2), False),
        (("a", "a", "b"), (0, 7), False),
    ],
    ids=[
        "apart",
        "together",
        "more replicas than racks",
        "one rack",
        "a rack unknown",
        "a dead replica's rack unknown",
    ],
)
def test_replicas_that_share_a_rack_without_need(
    racks: tuple[str | None, ...], replicas: tuple[int, ...], is_violated: bool
) -> None:
    plain = facts(partition(replicas))
    brokers = tuple(BrokerInfo(broker, (), rack) for broker, rack in enumerate(racks))
    report = assess(replace(plain, snapshot=replace(plain.snapshot, brokers=brokers)))
    reasons = {reason.check: reason for reason in report.reasons}
    assert (Check.RACK_VIOLATIONS in reasons) is is_violated
    if is_violated:
        assert reasons[Check.RACK_VIOLATIONS].examples == ("t-0 (replicas 0 in a, 1 in a)",)
        assert reasons[Check.RACK_VIOLATIONS].severity is Severity.WARNING


def test_as_many_cases_are_named_as_wanted() -> None:
    many = facts(*[partition((0, 1), (0,), -1) for _ in range(12)], live=(1,))
    named = {limit: {r.check: r.examples for r in assess(many, limit).reasons} for limit in (5, 10, None)}
    counts = {limit: len(examples[Check.OFFLINE_PARTITIONS]) for limit, examples in named.items()}
    assert counts == {5: 5, 10: 10, None: 12}


def test_a_move_that_goes_well_is_a_warning_only() -> None:
    report = assess(facts(PartitionSnapshot(0, ReplicaAssignment((2, 0, 1), (2,), (1,)), 0, (0, 1))))
    assert report.status is HealthStatus.WARNING
    assert [reason.check for reason in report.reasons] == [Check.RUNNING_REASSIGNMENTS]


@pytest.mark.parametrize(
    ("controller_id", "seen", "check"),
    [
        (-1, {}, Check.NO_CONTROLLER),
        (7, {}, Check.NO_CONTROLLER),
        (0, {0: 0, 1: 1}, Check.SEVERAL_CONTROLLERS),
    ],
)
def test_controllers(controller_id: int, seen: dict[int, int | None], check: Check) -> None:
    healthy = facts(partition((0, 1)))
    changed = replace(healthy, snapshot=replace(healthy.snapshot, controller_id=controller_id), seen_controllers=seen)
    assert list(found(changed)) == [check]
    assert assess(changed).status is HealthStatus.CRITICAL


@pytest.mark.parametrize("cluster_id", [None, "4L6g3nShT-eMCtK--X86sw"])
def test_a_zookeeper_that_lost_its_data_is_named_as_the_cause(cluster_id: str | None) -> None:
    healthy = facts(live=())
    lost = replace(healthy.snapshot, topics=(), controller_id=-1, cluster_id=cluster_id)
    example = "no broker is the controller"
    if cluster_id is None:
        example += ": no cluster is in this ZooKeeper, or not under this chroot (it has no /cluster/id)"
    assert found(replace(healthy, snapshot=lost)) == {Check.NO_CONTROLLER: (example,)}
    by_wire = replace(lost, source=SnapshotSource.WIRE)
    assert found(replace(healthy, snapshot=by_wire))[Check.NO_CONTROLLER] == ("no broker is the controller",)


@pytest.mark.parametrize("isr", [(0, 1), (0,)])
def test_more_in_sync_wanted_than_there_are_replicas(isr: tuple[int, ...]) -> None:
    """From Kafka 3.7 on a partition then needs all its replicas (KIP-966).

    Before, or if the release is unknown, it refuses writes.
    """
    wanted = facts(partition((0, 1), isr), min_isr={"t": 3})
    assert Check.UNDER_MIN_ISR in found(wanted)
    assert Check.MIN_ISR_ABOVE_FACTOR not in found(wanted)
    newer = found(replace(wanted, caps_min_isr=True))
    if isr == (0, 1):
        assert newer == {Check.MIN_ISR_ABOVE_FACTOR: ("t-0 (2 replicas, 3 wanted in sync)",)}
        assert assess(replace(wanted, caps_min_isr=True)).status is HealthStatus.WARNING
    else:
        assert newer[Check.UNDER_MIN_ISR] == ("t-0 (1 in sync, 3 wanted)",)


def test_brokers_of_kraft_each_name_some_controller() -> None:
    healthy = replace(facts(partition((0, 1))), seen_controllers={0: 0, 1: 2, 2: 1})
    assert list(found(healthy)) == [Check.SEVERAL_CONTROLLERS]
    assert found(replace(healthy, is_kraft=True)) == {}


def test_a_mark_alone_is_left_behind_only_once_nothing_moves() -> None:
    idle = facts(partition((0, 1)))
    marked = replace(idle.snapshot.topics[0], configs={"leader.replication.throttled.replicas": "5000:2147483647"})
    alone = replace(idle, snapshot=replace(idle.snapshot, topics=(marked,)))
    assert Check.LEAKED_THROTTLES in found(alone)
    assert Check.LEAKED_THROTTLES not in found(replace(alone, listed_reassignments=("u-0",)))


def test_no_throttle_is_left_behind_while_nobody_knows_what_moves() -> None:
    idle = facts(partition((0, 1)))
    throttled = replace(idle.snapshot.topics[0], configs={"follower.replication.throttled.replicas": "0:1"})
    rates = {0: {"leader.replication.throttled.rate": "300000"}}
    left = replace(idle, snapshot=replace(idle.snapshot, topics=(throttled,), broker_configs=rates))
    assert len(found(left)[Check.LEAKED_THROTTLES]) == 2
    assert found(replace(left, are_moves_known=False)) == {}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("0:1,5000:2147483647,0:0,1:2", "0:1,0:0,1:2 (set by klamm)"),
        ("5000:2147483647", "no replica (set by klamm)"),
        ("0:1", "0:1"),
    ],
)
def test_a_throttled_list_is_told_without_klamms_marks(value: str, told: str) -> None:
    key = "leader.replication.throttled.replicas"
    assert str(Throttle(key, value, topic="t")) == f"topic t: {key}={told}"


def test_leaders_that_are_not_the_preferred_ones() -> None:
    one_of_ten = [partition((0, 1))] * 9 + [partition((0, 1), leader=1)]
    assert found(facts(*one_of_ten)) == {}
    two_of_ten = [partition((0, 1))] * 8 + [partition((0, 1), leader=1)] * 2
    assert found(facts(*two_of_ten))[Check.PREFERRED_LEADER_IMBALANCE] == (
        "broker 0 does not lead 2 of the 10 partitions it is preferred for",
    )
    behind = [partition((0, 1))] * 8 + [partition((0, 1), isr=(1,), leader=1)] * 2
    assert Check.PREFERRED_LEADER_IMBALANCE not in found(facts(*behind)), "an election would be refused"
    nobody = [partition((0,), leader=NO_LEADER) for _ in range(4)]
    failed = facts(*nobody, offline_log_dirs={0: ("/full",)})
    assert Check.PREFERRED_LEADER_IMBALANCE not in found(failed), "its log dir failed: no election brings it back"


def test_throttles_that_serve_nothing() -> None:
    idle = facts(partition((0, 1)))
    throttled = replace(idle.snapshot.topics[0], configs={"leader.replication.throttled.replicas": "0:0"})
    rates = {1: {"leader.replication.throttled.rate": "5000"}}
    leaked = replace(idle, snapshot=replace(idle.snapshot, topics=(throttled,), broker_configs=rates))
    assert found(leaked)[Check.LEAKED_THROTTLES] == (
        "topic t: leader.replication.throttled.replicas=0:0",
        "broker 1: leader.replication.throttled.rate=5000",
    )
    moving = replace(throttled, partitions=(PartitionSnapshot(0, ReplicaAssignment((2, 0), (2,)), 0, (0,)),))
    running = replace(leaked, snapshot=replace(leaked.snapshot, topics=(moving,)))
    assert Check.LEAKED_THROTTLES not in found(running)


def test_replicas_that_went_with_a_log_dir_say_so() -> None:
    behind = facts(partition((0, 1), (0,)), partition((0, 2), (0,)))

    def told(**dirs: tuple[str, ...]) -> str:
        failed = {int(broker[1:]): paths for broker, paths in dirs.items()}
        reasons = assess(replace(behind, offline_log_dirs=failed)).reasons
        (reason,) = (reason for reason in reasons if reason.check is Check.UNDER_REPLICATED_LAGGING)
        return str(reason.advice)

    usual = Check.UNDER_REPLICATED_LAGGING.advice
    assert told() == told(b0=("/d0",)) == usual
    went = "a failed log dir took its replicas with it (broker 1: /d1"
    assert told(b1=("/d1",)) == f"{went}): fix that first; for other brokers: {usual}"
    assert told(b1=("/d1",), b2=("/d2", "/d3")) == f"{went}; broker 2: /d2, /d3): fix that first"


def test_a_throttle_comes_with_what_removes_it() -> None:
    idle = facts(partition((0, 1)))
    mark = {"leader.replication.throttled.replicas": "5000:2147483647,0:0"}
    theirs = dict.fromkeys(("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"), "0:1")
    topics = (
        replace(idle.snapshot.topics[0], configs=mark),
        replace(idle.snapshot.topics[0], name="u", configs=theirs),
    )
    rates: dict[int | None, dict[str, str]] = {
        None: {"follower.replication.throttled.rate": "7000"},
        0: {"leader.replication.throttled.rate": "5000"},
        1: {"leader.replication.throttled.rate": "6000", "follower.replication.throttled.rate": "6000"},
        8: {"leader.replication.throttled.rate": "6000"},
    }

    def told(topics: tuple[TopicSnapshot, ...], rates: dict[int | None, dict[str, str]]) -> str:
        leaked = replace(idle, snapshot=replace(idle.snapshot, topics=topics, broker_configs=rates))
        (reason,) = (reason for reason in assess(leaked).reasons if reason.check is Check.LEAKED_THROTTLES)
        return spelled(reason.advice, lambda command: f"{command} --cluster c")

    own = "klamm reassign verify --all --cluster c removes klamm's"
    alter = "klamm configs alter"
    assert told(topics, rates).split("; ") == [
        own,
        f"{alter} --topic u --cluster c --delete-config {','.join(theirs)}",
        f"{alter} --broker-defaults --cluster c --delete-config follower.replication.throttled.rate",
        f"{alter} --broker 1 --cluster c "
        "--delete-config leader.replication.throttled.rate,follower.replication.throttled.rate",
        f"{alter} --broker 8 --cluster c --delete-config leader.replication.throttled.rate --via zookeeper",
    ]
    assert told(topics[:1], {0: rates[0]}) == own
    many = dict.fromkeys(range(1, 9), rates[1])
    assert told((), many).endswith("; and so on, for 3 more")
    dead = replace(idle, snapshot=replace(idle.snapshot, broker_configs={8: rates[8]}))
    assert found(dead)[Check.LEAKED_THROTTLES] == ("broker 8, dead: leader.replication.throttled.rate=6000",)


def test_a_plan_that_runs_holds_its_throttle_between_two_waves() -> None:
    idle = facts(partition((0, 1)))
    throttled = replace(idle.snapshot.topics[0], configs={"leader.replication.throttled.replicas": "0:0"})
    rates = {1: {"leader.replication.throttled.rate": "5000"}}
    between = replace(idle, snapshot=replace(idle.snapshot, topics=(throttled,), broker_configs=rates))
    assert has_throttles(between.snapshot)
    assert not has_throttles(idle.snapshot)
    assert Check.LEAKED_THROTTLES in found(between)
    seen = found(replace(between, plan="bo@here since then: apply plan.json"))
    assert Check.LEAKED_THROTTLES not in seen
    assert seen[Check.RUNNING_REASSIGNMENTS] == (
        "a plan, which holds the throttle until it ends: bo@here since then: apply plan.json",
    )


def test_a_plan_is_named_first_and_not_counted_among_its_moves() -> None:
    moving = [PartitionSnapshot(0, ReplicaAssignment((2, 0, 1), (2,), (1,)), 0, (0, 1)) for _ in range(6)]
    report = assess(replace(facts(*moving), plan="bo@here since then: apply plan.json"))
    (running,) = [reason for reason in report.reasons if reason.check is Check.RUNNING_REASSIGNMENTS]
    assert running.count == 6
    assert running.examples == (
        "t-0; under a plan, which holds the throttle until it ends: bo@here since then: apply plan.json",
        *("t-1", "t-2", "t-3", "t-4"),
    )


def test_what_brokers_and_zookeeper_say() -> None:
    seen = assess(
        facts(
            partition((0, 1)),
            offline_log_dirs={1: ("/d1",)},
            silent_brokers={2: "no answer within 5 s"},
            deletion_ages_ms={"old": 90_000, "new": 2_000},
            listed_reassignments=("t-0",),
            zookeeper_ms=250.0,
        )
    )
    assert {(r.check, r.severity, r.count) for r in seen.reasons} == {
        (Check.OFFLINE_LOG_DIRS, Severity.CRITICAL, 1),
        (Check.SILENT_BROKERS, Severity.CRITICAL, 1),
        (Check.DELETION_STUCK, Severity.WARNING, 1),
        (Check.RUNNING_REASSIGNMENTS, Severity.WARNING, 1),
        (Check.ZOOKEEPER_SLOW, Severity.WARNING, 1),
    }
    assert [reason.severity for reason in seen.reasons][:2] == [Severity.CRITICAL] * 2


def test_the_clocks_that_are_furthest_apart_come_first() -> None:
    clocks = {0: 2_500, 1: -300_000, 2: 3}
    assert found(facts(clocks_apart_ms=clocks))[Check.BROKER_CLOCKS] == (
        "broker 1 (300.0 s behind ZooKeeper's when it registered)",
        "broker 0 (2.5 s ahead of ZooKeeper's when it registered)",
    )


def test_of_a_silent_broker_it_is_told_how_much_it_leads() -> None:
    silent = {0: "no answer within 5 s", 2: "no answer within 5 s"}
    led = facts(partition((0, 1)), partition((0, 1)), partition((1, 0)), silent_brokers=silent)
    assert found(led)[Check.SILENT_BROKERS] == (
        "broker 0: no answer within 5 s; it leads 2 partitions",
        "broker 2: no answer within 5 s; it leads 0 partitions",
    )


def test_a_broker_that_refuses_the_login_is_not_sent_to_look_for_a_dead_process() -> None:
    silent, helps = {0: "the certificate has expired", 2: "no answer within 5 s"}, {0: "the broker needs a new one"}
    (reason,) = assess(facts(partition((0, 1)), silent_brokers={0: silent[0]}, refusals=helps)).reasons
    assert reason.advice == "the broker needs a new one"
    (reason,) = assess(facts(partition((0, 1)), silent_brokers=silent, refusals=helps)).reasons
    assert reason.advice == f"the broker needs a new one; for others: {Check.SILENT_BROKERS.advice}"


def test_a_move_to_a_dead_broker_is_told_first() -> None:
    going = PartitionSnapshot(0, ReplicaAssignment((2, 0, 1), (2,), (1,)), 0, (0, 1))
    stuck = PartitionSnapshot(0, ReplicaAssignment((7, 0, 1), (7,), (1,)), 0, (0, 1))
    assert found(facts(going, stuck))[Check.RUNNING_REASSIGNMENTS] == ("t-1 (waits for 7, dead)", "t-0")


def test_topics_that_cannot_be_read_are_critical() -> None:
    report = assess(facts(partition((0, 1)), unreadable_topics=("cannot understand the content of /brokers/topics/x",)))
    assert (report.status, report.reasons[0].check) == (HealthStatus.CRITICAL, Check.UNREADABLE_TOPICS)


def test_the_worst_cases_come_first() -> None:
    thin = [partition((0, 1, 2), isr=isr) for isr in ((0, 1), (0,), (0, 1))]
    (examples,) = (found(replace(facts(*thin), min_isr={"t": 3}))[Check.UNDER_MIN_ISR],)
    assert [line.split()[1] for line in examples] == ["(1", "(2", "(2"]
    lost = [partition((3, 4)), partition((4, 0))]
    assert found(facts(*lost))[Check.MISSING_BROKERS] == ("broker 4: 2 replicas", "broker 3: 1 replica")
    led_by_others = [partition((0, 1), leader=1), *(partition((1, 0), leader=0) for _ in range(2))]
    assert [line[:8] for line in found(facts(*led_by_others))[Check.PREFERRED_LEADER_IMBALANCE]] == [
        "broker 1",
        "broker 0",
    ]
    stuck = replace(facts(), deletion_ages_ms={"a": 61_000, "b": 99_000})
    assert found(stuck)[Check.DELETION_STUCK] == ("topic b, for 99 s", "topic a, for 61 s")


@pytest.mark.parametrize(
    ("live", "who"), [((0, 1, 2), ""), ((0, 2), ": it waits for broker 1"), ((0,), ": it waits for brokers 1, 2")]
)
def test_a_deletion_that_is_stuck_names_the_dead_brokers_it_waits_for(live: tuple[int, ...], who: str) -> None:
    stuck = facts(partition((2, 1)), partition((1, 0)), live=live, deletion_ages_ms={"t": 61_000})
    assert found(stuck)[Check.DELETION_STUCK] == (f"topic t, for 61 s{who}",)
