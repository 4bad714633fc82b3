"""Whether a plan still fits: drift partition by partition, and every rule of a policy both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from plan_files import plan_of
from small_clusters import cluster as small_cluster

from engine.common.model import BrokerInfo, ReplicaAssignment, TopicPartition
from engine.common.snapshot import (
    ClusterSnapshot,
    FailedLogDir,
    LogDirSnapshot,
    PartitionSnapshot,
    ReplicaLog,
    SnapshotSource,
    TopicSnapshot,
)
from plans.checking import check_drift, check_plan, racks_missed, what_stops
from plans.comparing import compare_plans
from plans.findings import Check, Finding, Lack, plan_lines
from plans.options import Minimise, PlanOptions, Strategy
from plans.plan_file import PlanFile, encode_plan
from plans.planning import make_plan
from plans.policy import parse_policy

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def partition(number: int, *replicas: int, size: int | None = 100) -> PartitionSnapshot:
    logs = () if size is None else tuple(ReplicaLog(broker, "/d", size) for broker in replicas)
    return PartitionSnapshot(number, ReplicaAssignment(replicas), replicas[0], replicas, replica_logs=logs)


def cluster(*, size: int | None = 100) -> ClusterSnapshot:
    """Brokers 0 to 3 in racks a, b, c, a."""
    return ClusterSnapshot(
        brokers=tuple(BrokerInfo(broker, (), rack) for broker, rack in enumerate("abca")),
        topics=(
            TopicSnapshot("t", (partition(0, 0, 1, size=size), partition(1, 1, 0, size=size)), b"1" * 16),
            TopicSnapshot("u", (partition(0, 0, 1, size=size),), b"2" * 16),
        ),
        source=SnapshotSource.ZOOKEEPER,
        taken_at_ms=1,
        cluster_id="c",
    )


PLAN = plan_of(cluster(), {T0: (0, 2), T1: (2, 0)}, throttle=50)


def with_topic(change: Callable[[TopicSnapshot], TopicSnapshot | None]) -> ClusterSnapshot:
    """Return the cluster with its topic t changed, or (None) without it."""
    topics = [change(topic) if topic.name == "t" else topic for topic in cluster().topics]
    return replace(cluster(), topics=tuple(topic for topic in topics if topic is not None))


def told(findings: list[Finding]) -> list[tuple[Check, str]]:
    return [(finding.check, finding.message) for finding in findings]


def test_a_plan_fits_the_cluster_that_it_was_made_for() -> None:
    assert check_plan(PLAN, cluster(), parse_policy("")) == []


def test_sizes_leaders_and_times_may_drift() -> None:
    later = with_topic(lambda t: replace(t, partitions=(partition(0, 0, 1, size=9), partition(1, 1, 0, size=9))))
    assert check_plan(PLAN, replace(later, taken_at_ms=99, controller_id=3)) == []


def test_another_cluster_is_all_that_is_told() -> None:
    findings = check_drift(PLAN, replace(cluster(), cluster_id="d", topics=()))
    assert told(findings) == [(Check.CLUSTER, "this plan is for cluster c, not for d")]


@pytest.mark.parametrize(
    ("snapshot", "drifted"),
    [
        (with_topic(lambda t: None), ["t-0 does not exist any more", "t-1 does not exist any more"]),
        (
            with_topic(lambda t: replace(t, partitions=(t.partitions[0], partition(1, 1, 3)))),
            ["t-1 was planned from 1,0 and has 1,3 now"],
        ),
        (
            with_topic(lambda t: replace(t, partitions=(t.partitions[0], partition(1, 2, 0)))),
            ["t-1 has the replicas of the plan already: 2,0"],
        ),
        (
            with_topic(
                lambda t: replace(
                    t,
                    partitions=(PartitionSnapshot(0, ReplicaAssignment((0, 1, 3), (3,), (1,))), t.partitions[1]),
                )
            ),
            ["t-0 was planned from 0,1 and has 0,3 now (being reassigned)"],
        ),
        (with_topic(lambda t: replace(t, partitions=(*t.partitions, partition(2, 0, 1)))), []),
    ],
)  # fmt: skip
def test_drift_is_named_partition_by_partition(snapshot: ClusterSnapshot, drifted: list[str]) -> None:
    findings = check_drift(PLAN, snapshot)
    assert [finding.message for finding in findings if finding.check is Check.DRIFT] == drifted
    (digest,) = [finding.message for finding in findings if finding.check is Check.DIGEST]
    assert ("its own partitions have not" in digest) is (not drifted)


CARRIED_OUT = with_topic(lambda t: replace(t, partitions=(partition(0, 0, 2), partition(1, 2, 0))))
DONE_TOLD = (Check.DRIFT, "the plan is carried out already (2 partitions)")


def test_a_plan_that_is_carried_out_is_one_note() -> None:
    findings = check_plan(PLAN, CARRIED_OUT, parse_policy("[cluster]\nunchanged = true\n"))
    assert [(told([finding]), finding.is_error) for finding in findings] == [([DONE_TOLD], False)]
    without_target = replace(CARRIED_OUT, brokers=CARRIED_OUT.brokers[:2])
    assert told(check_plan(PLAN, without_target)) == [DONE_TOLD]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: replace(t, partitions=(partition(0, 0, 2), partition(1, 0, 2))),
        lambda t: replace(t, partitions=(partition(0, 0, 2),)),
        lambda t: replace(
            t, partitions=(partition(0, 0, 2), PartitionSnapshot(1, ReplicaAssignment((2, 0, 1), (1,), ()), 2, (2, 0)))
        ),
        lambda t: replace(
            t, partitions=(partition(0, 0, 2), PartitionSnapshot(1, ReplicaAssignment((2, 0), (), (0,)), 2, (2, 0)))
        ),
        lambda t: None,
    ],
    ids=["another order", "a partition is missing", "one comes", "one goes", "the topic is gone"],
)
def test_a_plan_is_not_carried_out_while_any_partition_differs(
    change: Callable[[TopicSnapshot], TopicSnapshot | None],
) -> None:
    findings = check_plan(PLAN, with_topic(change))
    assert DONE_TOLD not in told(findings) and any(finding.is_error for finding in findings)
    assert DONE_TOLD not in told(check_plan(PLAN, replace(CARRIED_OUT, cluster_id="d")))


def test_log_dirs_count_where_the_plan_names_them() -> None:
    first, *others = PLAN.partitions
    plan = replace(PLAN, partitions=(replace(first, log_dirs=("any", "/d")), *others))
    assert told(check_plan(plan, CARRIED_OUT))[0] == DONE_TOLD
    elsewhere = replace(plan, partitions=(replace(first, log_dirs=("any", "/e")), *others))
    assert DONE_TOLD not in told(check_plan(elsewhere, CARRIED_OUT))


def test_a_topic_that_is_being_deleted_counts_as_gone() -> None:
    findings = check_drift(PLAN, with_topic(lambda t: replace(t, is_marked_for_deletion=True)))
    assert told(findings)[0] == (Check.DRIFT, "t-0 does not exist any more")


def test_a_dead_target_is_named() -> None:
    findings = check_drift(PLAN, replace(cluster(), brokers=cluster().brokers[:2] + cluster().brokers[3:]))
    told_of = [finding.message for finding in findings if finding.check is Check.TARGETS]
    assert told_of == [
        "t-0 is to go to broker 2, which is not alive",
        "t-1 is to go to broker 2, which is not alive",
    ]


def test_a_log_dir_that_a_broker_does_not_have_is_named() -> None:
    first, second = PLAN.partitions
    plan = replace(
        PLAN, partitions=(replace(first, log_dirs=("/d", "/e")), replace(second, log_dirs=("/d", "/nowhere")))
    )

    def targets(snapshot: ClusterSnapshot) -> list[str]:
        findings = check_drift(plan, snapshot)
        assert all(finding.is_error for finding in findings if finding.check is Check.TARGETS)
        return [finding.message for finding in findings if finding.check is Check.TARGETS]

    assert targets(cluster()) == [], "nobody reported log dirs"
    dirs = tuple(LogDirSnapshot(broker, path) for broker in (0, 1, 2) for path in ("/d", "/e"))
    assert targets(replace(cluster(), log_dirs=dirs)) == [
        "t-1 is to go to log dir /nowhere of broker 0, which it does not have"
    ]
    failed = replace(cluster(), log_dirs=dirs[:-1], failed_log_dirs=(FailedLogDir(2, "/e", "KAFKA_STORAGE_ERROR"),))
    assert targets(failed)[0] == "t-0 is to go to log dir /e of broker 2, which has failed"
    assert len(what_stops(check_drift(plan, failed), is_fresh=True)) == 2


def test_a_partition_that_nobody_leads_is_noted_and_stops_no_wave_before_its_own() -> None:
    first = partition(0, *cluster().topics[0].partitions[0].replicas)
    lost = with_topic(lambda t: replace(t, partitions=(replace(first, leader=-1, isr=()), *t.partitions[1:])))
    (note,) = (finding for finding in check_drift(PLAN, lost) if finding.check is Check.TARGETS)
    assert (note.message, note.is_error) == ("t-0 has no leader to copy from: its wave cannot begin", False)
    assert note not in what_stops(check_drift(PLAN, lost), is_fresh=True)
    assert not any(finding.check is Check.TARGETS for finding in check_drift(PLAN, cluster()))


def test_a_dead_broker_may_keep_what_it_has() -> None:
    findings = check_drift(PLAN, replace(cluster(), brokers=cluster().brokers[1:]))
    assert {finding.check for finding in findings} == {Check.DIGEST}


def test_a_change_beside_the_plan_is_a_note_unless_a_policy_forbids_it() -> None:
    options = PlanOptions(topics=("t",), brokers=(1, 2), minimise=Minimise.MOVES)
    plan = make_plan(cluster(), Strategy.MOVE, options).plan
    assert {broker for entry in plan.partitions for broker in entry.replicas} == {1, 2}
    more = replace(cluster(), topics=(*cluster().topics, TopicSnapshot("v", (partition(0, 3, 2),))))
    beside = [more, replace(cluster(), brokers=cluster().brokers[:3]), with_rack(3, "z")]
    for snapshot in beside:
        (finding,) = check_plan(plan, snapshot, parse_policy("[cluster]\nunchanged = false"))
        assert (finding.check, finding.is_error) == (Check.DIGEST, False)
        (finding,) = check_plan(plan, snapshot, parse_policy("[cluster]\nunchanged = true"))
        assert (finding.check, finding.is_error, finding.rule) == (Check.DIGEST, True, "cluster.unchanged")
    for snapshot in (with_rack(2, "z"), replace(cluster(), brokers=cluster().brokers[1:])):
        (finding,) = check_plan(plan, snapshot)
        assert (finding.check, finding.is_error) == (Check.DIGEST, True)


def test_a_change_is_an_error_where_the_file_does_not_tell_of_brokers() -> None:
    (finding,) = check_drift(PLAN, with_rack(3, "z"))
    assert (finding.check, finding.is_error) == (Check.DIGEST, True)


def with_rack(broker: int, rack: str) -> ClusterSnapshot:
    brokers = (replace(each, rack=rack) if each.id == broker else each for each in cluster().brokers)
    return replace(cluster(), brokers=tuple(brokers))


def test_a_file_that_was_edited_by_hand_is_known_by_its_figures() -> None:
    edited = replace(PLAN, partitions=(replace(PLAN.partitions[0], replicas=(2, 3)), PLAN.partitions[1]))
    (finding,) = check_plan(edited, cluster())
    assert (finding.check, "edited by hand" in finding.message) == (Check.FIGURES, True)


RULES = [
    ("[limits]\nmoves = {}", 2, "limits.moves", Check.MOVES),
    ("[limits]\nbytes = {}", 200, "limits.bytes", Check.BYTES),
    ("[limits]\nleader_changes = {}", 1, "limits.leader_changes", Check.LEADER_CHANGES),
    # Broker 2 receives 200 bytes at 50 a second.
    ("[limits]\ntime = {}", 4, "limits.time", Check.TIME),
    ("[placement]\nreplication_factor_max = {}", 2, "placement.replication_factor_max", Check.FACTOR),
    ("[brokers.capacity]\n0 = {}", 300, "brokers.capacity.0", Check.CAPACITY),
    ("[brokers.capacity]\n2 = {}", 200, "brokers.capacity.2", Check.CAPACITY),
]


@pytest.mark.parametrize(("text", "limit", "rule", "check"), RULES)
def test_a_limit_is_kept_or_broken(text: str, limit: int, rule: str, check: Check) -> None:
    assert check_plan(PLAN, cluster(), parse_policy(text.format(limit))) == []
    findings = check_plan(PLAN, cluster(), parse_policy(text.format(limit - 1)))
    assert findings and {(finding.check, finding.rule) for finding in findings} == {(check, rule)}


def on_disks(*volumes: tuple[int, str]) -> ClusterSnapshot:
    """Return the cluster with these log dirs beside those that hold replicas."""
    return replace(cluster(), log_dirs=tuple(LogDirSnapshot(broker, path) for broker, path in volumes))


# Broker 0 keeps 300 bytes in /d; broker 2 has an empty /d and /e, and gets 200 bytes.
DISKS = on_disks((0, "/d"), (2, "/d"), (2, "/e"))


def capacities(*lines: str) -> str:
    return "\n".join(("[log_dirs.capacity]", *lines))


@pytest.mark.parametrize(
    ("lines", "told_of", "rule"),
    [
        (('"0:/d" = 300',), None, None),
        (('"0:/d" = 299',), "/d of broker 0 would hold 300 bytes, 1 above its capacity of 299", "0:/d"),
        (('"2:/d" = 200',), None, None),
        (('"2:/d" = 100', '"2:/e" = 99'), "broker 2 gets 200 bytes and chooses their log dirs itself; 1 more", "2:/d"),
        (('"0:/x" = 300',), "broker 0 has no log dir /x; it has /d", "0:/x"),
        (('"3:/d" = 1',), "is kept is unknown: sizes and log dirs of broker 3 are not known", "3:/d"),
    ],
)
def test_a_log_dir_s_capacity_is_kept_or_broken(lines: tuple[str, ...], told_of: str | None, rule: str | None) -> None:
    findings = check_plan(PLAN, DISKS, parse_policy(capacities(*lines)))
    assert all((finding.check, finding.is_error) == (Check.CAPACITY, True) for finding in findings)
    if told_of is None:
        assert findings == []
    else:
        assert (told_of in findings[0].message, findings[0].rule) == (True, f"log_dirs.capacity.{rule}"), findings


def test_a_log_dir_that_may_become_too_full_is_a_note() -> None:
    (finding,) = check_plan(PLAN, DISKS, parse_policy(capacities('"2:/d" = 199')))
    assert (finding.is_error, finding.message) == (
        False,
        "broker 2 gets 200 bytes and chooses their log dirs itself; /d has room for 199",
    )


def test_a_log_dir_that_the_plan_names_is_counted_there() -> None:
    first, *others = PLAN.partitions
    plan = replace(PLAN, partitions=(replace(first, log_dirs=("any", "/e")), *others))
    assert check_plan(plan, DISKS, parse_policy(capacities('"2:/e" = 200', '"2:/d" = 200'))) == []
    (finding,) = check_plan(plan, DISKS, parse_policy(capacities('"2:/e" = 99')))
    assert (finding.is_error, "/e of broker 2 would hold 100 bytes, 1 above" in finding.message) == (True, True)
    moved = replace(plan, partitions=(replace(first, log_dirs=("/e", "any")), *others))
    disks = on_disks((0, "/d"), (0, "/e"), (2, "/d"))
    assert "/d of broker 0 would hold 200 bytes, 1 above" in " ".join(
        finding.message for finding in check_plan(moved, disks, parse_policy(capacities('"0:/d" = 199')))
    )


def test_a_log_that_is_moving_to_another_disk_counts_there() -> None:
    logs = (ReplicaLog(0, "/d", 100), ReplicaLog(0, "/e", 10, is_future=True), ReplicaLog(1, "/d", 100))
    moving = PartitionSnapshot(0, ReplicaAssignment((0, 1)), 0, (0, 1), replica_logs=logs)
    snapshot = with_topic(lambda t: replace(t, partitions=(moving, t.partitions[1])))
    (finding,) = check_plan(PLAN, snapshot, parse_policy(capacities('"0:/e" = 99', '"0:/d" = 200')))
    assert finding.message == "/e of broker 0 would hold 100 bytes, 1 above its capacity of 99"


def test_a_least_factor_is_kept_or_broken() -> None:
    assert check_plan(PLAN, cluster(), parse_policy("[placement]\nreplication_factor_min = 2")) == []
    findings = check_plan(PLAN, cluster(), parse_policy("[placement]\nreplication_factor_min = 3"))
    assert [finding.partition for finding in findings] == [T0, T1]


def test_forbidden_brokers_may_keep_what_they_have_and_get_nothing() -> None:
    assert check_plan(PLAN, cluster(), parse_policy("[brokers]\nforbidden = [0, 1]")) == []
    findings = check_plan(PLAN, cluster(), parse_policy("[brokers]\nforbidden = [2]"))
    assert told(findings)[0] == (Check.BROKERS, "t-0 is to go to broker 2, which the policy forbids")


@pytest.mark.parametrize(
    ("pattern", "is_forbidden"), [("t", True), (".*", True), ("u", False), ("t-0", False), ("", False)]
)
def test_forbidden_topics_are_matched_as_a_whole(pattern: str, is_forbidden: bool) -> None:
    findings = check_plan(PLAN, cluster(), parse_policy(f'[topics]\nforbidden = ["{pattern}"]'))
    assert bool(findings) is is_forbidden


def test_racks_are_counted_in_the_plan_alone() -> None:
    bad = plan_of(cluster(), {T0: (0, 3), T1: (2, 0)})
    findings = check_plan(bad, cluster(), parse_policy("[placement]\nrack_violations = 0"))
    assert [(finding.check, finding.partition) for finding in findings] == [(Check.RACKS, T0)]
    assert check_plan(bad, cluster(), parse_policy("[placement]\nrack_violations = 1")) == []


@pytest.mark.parametrize(
    ("replicas", "missed"), [((0, 1, 2), 0), ((0, 3), 1), ((0, 3, 1), 1), ((0, 3, 1, 2), 0), ((0, 3, 9), 1), ((0,), 0)]
)
def test_racks_missed(replicas: tuple[int, ...], missed: int) -> None:
    assert racks_missed(replicas, {0: "a", 1: "b", 2: "c", 3: "a"}) == missed
    assert racks_missed(replicas, dict.fromkeys(range(4))) == 0


@pytest.mark.parametrize(
    "text",
    ["[limits]\nbytes = 1", '[limits]\ntime = "1s"', "[brokers.capacity]\n0 = 1", '[log_dirs.capacity]\n"0:/d" = 1'],
)
def test_what_cannot_be_told_is_a_finding(text: str) -> None:
    plan = plan_of(cluster(size=None), {T0: (0, 2)}, throttle=50)
    (finding,) = check_plan(plan, cluster(size=None), parse_policy(text))
    assert (
        "is kept is unknown: sizes" in finding.message and "not known: take the snapshot with sizes" in finding.message
    )
    assert finding.lacks is Lack.SIZES


def test_a_time_limit_wants_a_throttle() -> None:
    plan = plan_of(cluster(), {T0: (0, 2)})
    (finding,) = check_plan(plan, cluster(), parse_policy('[limits]\ntime = "1s"'))
    assert "the plan has no throttle" in finding.message
    assert finding.lacks is Lack.THROTTLE


@pytest.mark.parametrize("layout", [None, 2, "compact"])
def test_lines_are_those_of_the_file_however_it_is_laid_out(layout: int | str | None) -> None:
    text = encode_plan(PLAN)
    if layout is not None:
        text = json.dumps(json.loads(text), indent=None if layout == "compact" else 2)
    lines = plan_lines(text)
    rows = text.splitlines()
    for name in (T0, T1):
        around = " ".join(rows[lines.of_partition(name) - 1 : lines.of_partition(name) + 3])
        assert f'"partition": {name.partition}' in around
    for key in ("cluster_id", "input_digest", "score"):
        assert f'"{key}":' in rows[lines.of_key(key) - 1]
    assert lines.of_partition(U0) == 1


def test_a_digest_that_differs_says_what_has_changed() -> None:
    start = small_cluster({0: "a", 1: "b", 2: "c", 3: "a"}, {"t": [[0, 1], [1, 2]], "u": [[0, 1]]})
    plan = make_plan(start, Strategy.DECOMMISSION, PlanOptions(brokers=(2,))).plan
    assert check_plan(plan, start) == []
    now = small_cluster({0: "a", 1: "x", 3: "a", 5: "b"}, {"t": [[0, 1], [1, 2]], "u": [[0, 3], [3, 0]]})
    (digest,) = [finding for finding in check_plan(plan, now) if finding.check is Check.DIGEST]
    assert digest.message.endswith(
        "(broker 0 had 2 replicas and has 3; broker 1 was in rack b and is in x; broker 1 had 3 replicas and has 2;"
        " broker 2 is gone; broker 3 had 0 replicas and has 2; broker 5 is new)"
    )


def test_findings_have_the_lines_of_the_plan() -> None:
    lines = plan_lines(encode_plan(PLAN))
    findings = check_plan(PLAN, with_topic(lambda t: None), None, lines)
    assert [finding.line for finding in findings][:2] == [lines.of_partition(T0), lines.of_partition(T1)]
    assert lines.of_partition(T1) == lines.of_partition(T0) + 1


def other(plan: PlanFile) -> PlanFile:
    return plan_of(cluster(), {T0: (0, 3), U0: (0, 2)}, throttle=50)


def test_plans_differ_by_partition_and_figure() -> None:
    assert compare_plans(PLAN, PLAN).is_empty
    difference = compare_plans(PLAN, other(PLAN))
    assert [
        (partition.topic, partition.partition, partition.change.value, partition.before, partition.after)
        for partition in difference.partitions
    ] == [
        ("t", 0, "changed", (0, 2), (0, 3)),
        ("t", 1, "removed", (2, 0), None),
        ("u", 0, "added", None, (0, 2)),
    ]
    assert [(figure.name, figure.before, figure.after) for figure in difference.figures] == [("leader_changes", 1, 0)]
