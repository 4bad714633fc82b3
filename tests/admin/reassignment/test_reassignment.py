"""Reassignments without a cluster: files, generated plans, states, progress.

The vectors come from Kafka's own tests.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.reassignment.generate import generate_plan
from engine.admin.reassignment.log_dirs import LogDirs, Replica, ReplicaPlace
from engine.admin.reassignment.moves import PartitionStatus, ProgressMeter, ReassignmentState, status_of
from engine.admin.reassignment.reassignment_file import (
    PartitionMove,
    parse_broker_list,
    parse_plan,
    parse_topics_to_move,
    plan_document,
)
from engine.admin.reassignment.reassignment_file import plan_text as written
from engine.admin.reassignment.verify import held_up, remaining_bytes, seen_as_begun
from engine.common.assignment import assign_replicas
from engine.common.model import BrokerInfo, ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot

FOO0 = TopicPartition("foo", 0)


def found(replicas: tuple[int, ...], adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()) -> PartitionSnapshot:
    return PartitionSnapshot(0, ReplicaAssignment(replicas, adding, removing), replicas[0], replicas)


def topic(name: str, *replicas: tuple[int, ...]) -> TopicSnapshot:
    return TopicSnapshot(name, tuple(PartitionSnapshot(i, ReplicaAssignment(r)) for i, r in enumerate(replicas)))


def test_the_current_assignment_is_written_as_kafka_writes_it() -> None:
    current = {TopicPartition("foo", 1): (4, 5, 6), TopicPartition("bar", 0): (7, 8)}
    assert written(plan_document(current)) == (
        '{"version":1,"partitions":[{"topic":"bar","partition":0,"replicas":[7,8],"log_dirs":["any","any"]},'
        '{"topic":"foo","partition":1,"replicas":[4,5,6],"log_dirs":["any","any","any"]}]}'
    )
    assert [move.name for move in parse_plan(written(plan_document(current)), "f")] == sorted(current)


def test_a_plan_is_read_with_its_log_dirs() -> None:
    text = '{"partitions":[{"topic":"foo","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]}'
    (move,) = parse_plan(text, "f")
    assert move == PartitionMove(FOO0, (1, 2), ("any", "/d"))
    assert move.wanted_dirs == {2: "/d"}


def entry(**fields: object) -> str:
    return json.dumps({"version": 1, "partitions": [{"topic": "foo", "partition": 0, "replicas": [1]} | fields]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("nonsense", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "no list called 'partitions'"),
        ('{"version":2,"partitions":[]}', "not supported version field value 2"),
        ('{"version":1,"partitions":[]}', "partition reassignment list cannot be empty"),
        (entry(replicas=[]), "partition replica list cannot be empty: foo-0"),
        (entry(replicas=[1, 1]), "foo-0 contains multiple entries for 1"),
        (entry(replicas=["1"]), "not a partition with its replicas"),
        (entry(replicas=[-1]), "not a partition with its replicas"),
        (entry(partition=None), "not a partition with its replicas"),
        (entry(replicas=[1, 2], log_dirs=["any"]), r"replicas list \[1, 2\] is different from size of log dirs list"),
        (entry(log_dirs=[3]), "log_dirs is not a list of directories"),
        (
            '{"partitions":[{"topic":"foo","partition":0,"replicas":[1]},{"topic":"foo","partition":0,"replicas":[2]}]}',
            "duplicate topic partitions: foo-0",
        ),
    ],
)
def test_plans_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        parse_plan(text, "f")


def test_lists_of_topics_and_brokers() -> None:
    assert parse_topics_to_move('{"topics":[{"topic":"foo"},{"topic":"bar"}],"version":1}', "f") == ("foo", "bar")
    with pytest.raises(BadRequest, match="list of topics to reassign contains duplicate entries: foo"):
        parse_topics_to_move('{"topics":[{"topic":"foo"},{"topic":"foo"}]}', "f")
    with pytest.raises(BadRequest, match="is empty"):
        parse_topics_to_move('{"topics":[]}', "f")
    assert parse_broker_list("1, 2") == (1, 2)
    with pytest.raises(BadRequest, match="broker list contains duplicate entries: 1"):
        parse_broker_list("1,1,2")
    with pytest.raises(BadRequest, match="not a list of broker ids"):
        parse_broker_list("1,b")


def test_generate_is_kafkas_assigner_topic_by_topic() -> None:
    brokers = [BrokerInfo(b, ()) for b in range(4)]
    topics = [topic("foo", (0, 1), (1, 2), (2, 0)), topic("bar", (0, 1, 2))]
    plan = generate_plan(topics, brokers, (0, 1, 3), draw=random.Random(5).randrange)
    again = generate_plan(topics[::-1], brokers, (3, 1, 0), draw=random.Random(5).randrange)
    assert plan == again
    assert all(set(replicas) <= {0, 1, 3} for replicas in plan.proposed.values())
    fixed = generate_plan(topics, brokers, (0, 1, 2), fixed_start_index=1)
    expected = assign_replicas(dict.fromkeys((0, 1, 2)), 3, 2, fixed_start_index=1)
    assert {name.partition: r for name, r in fixed.proposed.items() if name.topic == "foo"} == expected
    assert fixed.current[TopicPartition("bar", 0)] == (0, 1, 2)


def test_generate_spreads_over_racks_unless_told_otherwise() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    brokers = [BrokerInfo(b, (), rack) for b, rack in racks.items()]
    topics = [topic("foo", *[(0, 1)] * 8)]
    for seed in range(5):
        plan = generate_plan(topics, brokers, tuple(racks), draw=random.Random(seed).randrange)
        assert all({racks[b] for b in replicas} == {"a", "b"} for replicas in plan.proposed.values())
    brokers[0] = BrokerInfo(0, ())
    with pytest.raises(BadRequest, match="Not all brokers have rack information"):
        generate_plan(topics, brokers, tuple(racks))
    assert generate_plan(topics, brokers, tuple(racks), is_rack_aware=False).proposed


def test_generate_wants_enough_living_brokers() -> None:
    brokers = [BrokerInfo(b, ()) for b in range(2)]
    with pytest.raises(BadRequest, match=r"Replication factor: 3 larger than available brokers: 2$"):
        generate_plan([topic("foo", (0, 1, 2))], brokers, (0, 1))
    with pytest.raises(NotFound, match="no live broker has the id 7"):
        generate_plan([topic("foo", (0,))], brokers, (0, 7))


def test_how_far_a_partition_is() -> None:
    move = PartitionMove(FOO0, (0, 1, 3))
    moving = status_of(move, found((0, 1, 3, 2), (3,), (2,)))
    assert (moving.state, moving.adding, moving.removing) == (ReassignmentState.IN_PROGRESS, (3,), (2,))
    cancelled = status_of(move, found((0, 1, 2)))
    assert cancelled.state is ReassignmentState.FAILED
    assert cancelled.reason == "not there, and no move is active: not started, cancelled or undone"
    assert status_of(move, found((0, 1, 3))).state is ReassignmentState.COMPLETE
    assert status_of(move, found((1, 0, 3))).state is ReassignmentState.FAILED
    assert status_of(move, found((0, 1, 2)), is_listed=True).state is ReassignmentState.IN_PROGRESS
    assert status_of(move, None).state is ReassignmentState.NOT_FOUND
    assert status_of(move, found((4, 0, 1, 2), (4,), (1, 2))).reason == "it is on its way to 4,0 instead"


def status(remaining: int | None, state: ReassignmentState = ReassignmentState.IN_PROGRESS) -> PartitionStatus:
    return PartitionStatus("foo", 0, state, (1,), (2,), remaining_bytes=remaining)


def test_progress_has_rate_and_time_left() -> None:
    meter = ProgressMeter()
    first = meter.update([status(1000)], 100.0)
    assert (first.overall.moved_bytes, first.overall.total_bytes, first.overall.eta_s) == (0, 1000, None)
    then = meter.update([status(800)], 102.0)
    assert (then.overall.moved_bytes, then.overall.rate, then.overall.eta_s) == (200, 100.0, 8.0)
    assert then.partitions[0].name == FOO0
    unknown = meter.update([status(None)], 103.0)
    assert unknown.overall.moved_bytes == 200
    done = meter.update([status(None, ReassignmentState.COMPLETE)], 104.0)
    assert (done.overall.moved_bytes, done.done_count, done.partitions) == (1000, 1, ())


def test_who_looks_from_the_middle_on_sees_the_true_share() -> None:
    seen = ProgressMeter().update([replace(status(250), total_bytes=1000)], 1.0)
    assert (seen.overall.moved_bytes, seen.overall.total_bytes) == (750, 1000)
    assert ProgressMeter().update([status(250)], 1.0).overall.total_bytes == 250


def test_the_rate_is_that_of_the_last_seconds() -> None:
    meter = ProgressMeter()
    for second in range(40):
        seen = meter.update([status(10_000 - 100 * second)], float(second))
    assert seen.overall.rate == pytest.approx(100.0)
    for second in range(40, 80):
        seen = meter.update([status(6_100)], float(second))
    assert (seen.overall.rate, seen.overall.eta_s) == (0.0, None)


def test_a_partition_that_waits_for_a_dead_broker_says_so() -> None:
    partition = PartitionSnapshot(0, ReplicaAssignment((3, 0, 1), (3,), (1,)), 0, (0, 1))
    moving = status_of(PartitionMove(FOO0, (3, 0)), partition)
    assert held_up(moving, {FOO0: partition}, {0, 1}).reason == "waits for dead broker 3"
    assert held_up(moving, {FOO0: partition}, {0, 1, 3}).reason is None


@pytest.mark.parametrize(
    ("silent", "reason"),
    [
        ({3}, "waits for broker 3, which does not answer"),
        ({0}, "waits for broker 0, which does not answer"),
        ({0, 1, 3}, "waits for brokers 0, 3, which do not answer"),
        ({1}, None),
    ],
)
def test_a_partition_that_waits_for_a_silent_broker_says_so(silent: set[int], reason: str | None) -> None:
    """Broker 0 leads and broker 3 copies; broker 1 has nothing to do with it."""
    partition = PartitionSnapshot(0, ReplicaAssignment((3, 0, 1), (3,), (1,)), 0, (0, 1))
    moving = status_of(PartitionMove(FOO0, (3, 0)), partition)
    assert held_up(moving, {FOO0: partition}, {0, 1, 3}, silent).reason == reason


@pytest.mark.parametrize(
    ("offline", "places", "reason"),
    [
        ({3: ("/full",)}, {}, "waits for broker 3: log dir failed or full: /full"),
        ({3: ("/full",)}, {(FOO0, 3): ReplicaPlace("/d", 10)}, None),
        ({3: (), 0: ("/full",)}, {}, None),
    ],
    ids=["its log dir failed", "it copies into another", "another broker's failed"],
)
def test_a_partition_that_waits_for_a_failed_log_dir_says_so(
    offline: dict[int, tuple[str, ...]], places: dict[Replica, ReplicaPlace], reason: str | None
) -> None:
    """Broker 0 leads and broker 3 copies."""
    partition = PartitionSnapshot(0, ReplicaAssignment((3, 0, 1), (3,), (1,)), 0, (0, 1))
    moving = status_of(PartitionMove(FOO0, (3, 0)), partition)
    failed = LogDirs({}, offline, places).failed_for(FOO0)
    assert held_up(moving, {FOO0: partition}, {0, 1, 3}, failed=failed).reason == reason


def test_a_partition_waits_for_a_dead_broker_that_keeps_its_replica_too() -> None:
    """Broker 3 has copied all of it, but Kafka ends the move only when broker 1 is in sync again."""
    partition = PartitionSnapshot(0, ReplicaAssignment((3, 1, 0), (3,), (0,)), 0, (0, 3))
    moving = status_of(PartitionMove(FOO0, (3, 1)), partition)
    assert held_up(moving, {FOO0: partition}, {0, 3}).reason == "waits for dead broker 1"
    assert held_up(moving, {FOO0: partition}, {0, 1, 3}).reason is None


def test_a_move_that_the_controller_has_not_begun_yet_has_all_its_bytes_left() -> None:
    listed = PartitionSnapshot(0, ReplicaAssignment((0, 1)), 0, (0, 1))
    brokers = dict.fromkeys((0, 1, 3), frozenset({"/d"}))
    places = {(FOO0, 0): ReplicaPlace("/d", 1000), (FOO0, 1): ReplicaPlace("/d", 900)}
    begun = seen_as_begun(listed, (0, 3))
    assert begun.assignment == ReplicaAssignment((0, 1, 3), (3,), (1,))
    assert remaining_bytes(FOO0, begun, LogDirs(brokers, {}, places)) == 1000
    assert seen_as_begun(begun, (0, 2)) is begun, "what moves already is as it is"


def test_what_a_silent_broker_has_to_copy_is_not_known() -> None:
    partition = PartitionSnapshot(0, ReplicaAssignment((3, 0, 1), (3,), (1,)), 0, (0, 1))
    places = {(FOO0, 0): ReplicaPlace("/d", 1000), (FOO0, 1): ReplicaPlace("/d", 900)}
    silent = LogDirs({0: frozenset({"/d"}), 1: frozenset({"/d"})}, {}, places)
    assert remaining_bytes(FOO0, partition, silent) is None
    answers = replace(silent, dirs={**silent.dirs, 3: frozenset({"/d"})})
    assert remaining_bytes(FOO0, partition, answers) == 1000
    assert remaining_bytes(FOO0, replace(partition, isr=(0, 1, 3)), silent) == 0


def test_a_copy_to_a_broker_that_never_answered_has_a_size_and_no_progress() -> None:
    seen = ProgressMeter().update([replace(status(None), total_bytes=1000)], 1.0)
    assert (seen.overall.moved_bytes, seen.overall.total_bytes) == (0, 1000)
