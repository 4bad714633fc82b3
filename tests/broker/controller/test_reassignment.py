"""Reassignments step by step: the AR/leader/ISR table, cancelling, replacing, the old znode, and a takeover midway."""

import logging
from dataclasses import replace

import pytest
from controller_world import World
from fake_zookeeper import tp

from engine.broker.controller import events
from engine.broker.controller.events import SUCCESS, AlterPartitionReassignments, ApiError, ListPartitionReassignments
from engine.broker.controller.states import PartitionAndReplica, ReplicaState
from engine.common.errors import ErrorCode
from engine.common.model import ReplicaAssignment

P = tp("t-0")


@pytest.mark.parametrize(
    ("start", "target", "expected"),
    [
        (((1, 2, 3, 4), (), ()), (4, 2, 5, 3), ((4, 2, 5, 3, 1), (5,), (1,))),
        (((1, 2, 3), (), ()), (4, 5, 6), ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
        (((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)), (7, 8, 9), ((7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3))),
        (((7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3)), (1, 2, 3), ((1, 2, 3), (), ())),
        (((1, 2, 3), (), ()), (3, 1, 2), ((3, 1, 2), (), ())),
    ],
)
def test_kafkas_vectors_of_reassign_to(
    start: tuple[tuple[int, ...], ...], target: tuple[int, ...], expected: tuple[tuple[int, ...], ...]
) -> None:
    assert ReplicaAssignment(*start).reassigned_to(target) == ReplicaAssignment(*expected)


@pytest.mark.parametrize(
    ("assignment", "target"),
    [
        (((1, 2, 3, 4, 5, 6), (2, 3, 4), (1, 5, 6)), (2, 3, 4)),
        (((1, 2, 3, 4), (), (1, 4)), (2, 3)),
        (((1, 2, 3, 4), (4,), (2,)), (1, 3, 4)),
    ],
)
def test_kafkas_vectors_of_target_replicas(assignment: tuple[tuple[int, ...], ...], target: tuple[int, ...]) -> None:
    assert ReplicaAssignment(*assignment).target_replicas == target


def test_without_a_replica_no_list_names_it() -> None:
    assert ReplicaAssignment((1, 2, 3), (2,), (3,)).without(2) == ReplicaAssignment((1, 3), (), (3,))


def world_of(brokers: int, replicas: tuple[int, ...]) -> World:
    world = World(brokers)
    world.elect()
    world.zk.create_topic("t", {0: replicas})
    world.settle()
    world.take_requests()
    world.take_writes()
    return world


def reassign(world: World, *target: int) -> ApiError:
    answer = world.run(AlterPartitionReassignments({P: target}))
    error: ApiError = answer[P]
    return error


def test_the_table_of_a_complete_move() -> None:
    """(1,2,3) -> (4,5,6), the example of KIP-455 and of Kafka's documentation."""
    world = world_of(7, (1, 2, 3))
    assert reassign(world, 4, 5, 6) is SUCCESS
    assert world.take_writes() == ["topic t 0:456123+456-123", "state t-0 leader=1 le=1 isr=123 pe=1"]
    assert world.take_requests()[:6] == [
        f"b{b} LISR t-0(leader=1 le=1 456123+456-123{' new' if b > 3 else ''})" for b in (1, 2, 3, 4, 5, 6)
    ]
    for replica in (4, 5, 6):
        assert world.core.context.replica_state(PartitionAndReplica(P, replica)) is ReplicaState.NEW
    world.catch_up(P, 1, 2, 3, 4, 5)
    world.run()
    assert world.take_writes() == ["state t-0 leader=1 le=1 isr=12345 pe=2"]
    world.take_requests()
    world.catch_up(P, 1, 2, 3, 4, 5, 6)
    world.run()
    assert world.take_writes() == [
        "state t-0 leader=1 le=1 isr=123456 pe=3",
        "state t-0 leader=4 le=2 isr=123456 pe=4",
        "state t-0 leader=4 le=3 isr=23456 pe=5",
        "state t-0 leader=4 le=4 isr=3456 pe=6",
        "state t-0 leader=4 le=5 isr=456 pe=7",
        "topic t 0:456",
    ]
    assert [r for r in world.take_requests() if "UMD" not in r] == [
        "b4 LISR t-0(leader=4 le=2 456)",
        "b5 LISR t-0(leader=4 le=2 456)",
        "b6 LISR t-0(leader=4 le=2 456)",
        "b4 LISR t-0(leader=4 le=5 456)",
        "b5 LISR t-0(leader=4 le=5 456)",
        "b6 LISR t-0(leader=4 le=5 456)",
        "b1 STOP t-0(le=2)",
        "b2 STOP t-0(le=3)",
        "b3 STOP t-0(le=4)",
        "b1 STOP t-0(le=5 delete)",
        "b2 STOP t-0(le=5 delete)",
        "b3 STOP t-0(le=5 delete)",
    ]
    assert world.run(ListPartitionReassignments(None)) == {}
    assert all(P not in world.brokers[b].replicas for b in (1, 2, 3))


def test_a_move_as_recorded_from_kafka() -> None:
    """Scenes main/07a and 07b: move-0 [0,1] -> [1,2], the leader must move."""
    world = world_of(3, (0, 1))
    reassign(world, 1, 2)
    assert world.take_writes() == ["topic t 0:120+2-0", "state t-0 leader=0 le=1 isr=01 pe=1"]
    requests = world.take_requests()
    assert requests == [
        "b1 LISR t-0(leader=0 le=1 120+2-0)",
        "b0 LISR t-0(leader=0 le=1 120+2-0)",
        "b2 LISR t-0(leader=0 le=1 120+2-0 new)",
        *(f"b{b} UMD t-0(leader=0 le=1)" for b in (0, 1, 2)),
        "b2 LISR t-0(leader=0 le=1 120+2-0 new)",
        *(f"b{b} UMD t-0(leader=0 le=1)" for b in (0, 1, 2)),
    ]
    reassign(world, 1, 2)  # Kafka's --additional: the same target again.
    assert world.take_writes() == ["state t-0 leader=0 le=2 isr=01 pe=2"]
    assert [r for r in world.take_requests() if "UMD" not in r] == [
        "b1 LISR t-0(leader=0 le=2 120+2-0)",
        "b0 LISR t-0(leader=0 le=2 120+2-0)",
        "b2 LISR t-0(leader=0 le=2 120+2-0 new)",
    ]
    world.catch_up(P, 0, 1, 2)
    world.run()
    assert world.take_writes() == [
        "state t-0 leader=0 le=2 isr=012 pe=3",
        "state t-0 leader=1 le=3 isr=012 pe=4",
        "state t-0 leader=1 le=4 isr=12 pe=5",
        "topic t 0:12",
    ]
    assert world.take_requests() == [
        *(f"b{b} UMD t-0(leader=0 le=2)" for b in (0, 1, 2)),
        "b1 LISR t-0(leader=1 le=3 12)",
        "b2 LISR t-0(leader=1 le=3 12)",
        *(f"b{b} UMD t-0(leader=1 le=3)" for b in (0, 1, 2)),
        "b1 LISR t-0(leader=1 le=4 12)",
        "b2 LISR t-0(leader=1 le=4 12)",
        *(f"b{b} UMD t-0(leader=1 le=4)" for b in (0, 1, 2)),
        "b0 STOP t-0(le=3)",
        "b0 STOP t-0(le=4 delete)",
        *(f"b{b} UMD t-0(leader=1 le=4)" for b in (0, 1, 2)),
    ]


def test_a_leader_that_stays_gets_a_new_epoch() -> None:
    world = world_of(3, (0, 1))
    reassign(world, 0, 2)
    world.catch_up(P, 0, 1, 2)
    world.run()
    assert world.take_writes()[2:] == [
        "state t-0 leader=0 le=1 isr=012 pe=2",
        "state t-0 leader=0 le=2 isr=012 pe=3",
        "state t-0 leader=0 le=3 isr=02 pe=4",
        "topic t 0:02",
    ]


def test_changing_the_order_only_is_done_at_once() -> None:
    """Scene main/09: topic znode, epoch, topic znode again with the same content; the leader stays."""
    world = world_of(3, (0, 1, 2))
    assert reassign(world, 1, 2, 0) is SUCCESS
    assert world.take_writes() == ["topic t 0:120", "state t-0 leader=0 le=1 isr=012 pe=1", "topic t 0:120"]
    assert world.run(ListPartitionReassignments(None)) == {}


def test_cancelling_brings_the_old_replicas_back() -> None:
    """Scene main/08: [1,2] -> [0,1] cancelled."""
    world = world_of(3, (1, 2))
    reassign(world, 0, 1)
    assert world.assignment("t-0") == "012+0-2"
    world.take_writes()
    world.take_requests()
    assert world.run(AlterPartitionReassignments({P: None})) == {P: SUCCESS}
    assert world.take_writes() == ["topic t 0:12", "state t-0 leader=1 le=2 isr=12 pe=2", "topic t 0:12"]
    assert [r for r in world.take_requests() if "UMD" not in r] == [
        "b1 LISR t-0(leader=1 le=1 12)",
        "b2 LISR t-0(leader=1 le=1 12)",
        "b0 STOP t-0(le=1)",
        "b0 STOP t-0(le=1 delete)",
        "b1 LISR t-0(leader=1 le=2 12)",
        "b2 LISR t-0(leader=1 le=2 12)",
    ]
    assert P not in world.brokers[0].replicas


def test_a_new_target_replaces_the_one_under_way() -> None:
    world = world_of(5, (0, 1))
    reassign(world, 2, 3)
    world.catch_up(P, 0, 1, 2)
    world.run()
    world.take_writes()
    assert reassign(world, 3, 4) is SUCCESS
    assert world.assignment("t-0") == "3401+34-01"
    assert world.take_writes() == [
        "topic t 0:3401+34-01",
        "state t-0 leader=0 le=2 isr=01 pe=3",
        "state t-0 leader=0 le=3 isr=01 pe=4",
    ]
    assert P not in world.brokers[2].replicas
    world.catch_up(P, 0, 1, 3, 4)
    world.run()
    assert world.assignment("t-0") == "34"
    assert world.state("t-0") == "leader=3 le=6 isr=34 pe=8"


def led_by_an_adding_replica() -> World:
    """2 and 3 are replacing 1. Broker 2 was in sync when 1 died, and leads now that 1 is back."""
    world = world_of(4, (1,))
    world.run(AlterPartitionReassignments({P: (2, 3)}))
    world.catch_up(P, 1, 2)
    world.settle()
    world.kill(1)
    world.settle()
    assert world.state("t-0") == "leader=2 le=2 isr=2 pe=3"
    world.start(1)
    world.settle()
    world.take_requests()
    world.take_writes()
    return world


@pytest.mark.parametrize("target", [None, (1,), (3, 0)])
def test_the_only_replica_in_sync_is_not_taken_away(target: tuple[int, ...] | None) -> None:
    world = led_by_an_adding_replica()
    before = world.state("t-0"), world.assignment("t-0")
    (error,) = world.run(AlterPartitionReassignments({P: target})).values()
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "require an unclean leader election, for the ISR is 2" in error.message
    assert (world.state("t-0"), world.assignment("t-0")) == before
    assert world.take_writes() == []
    assert not [request for request in world.take_requests() if "STOP" in request]


def test_what_the_leader_wrote_itself_counts() -> None:
    """Its IBP may still be older than the controller's: the ISR shrinks without the controller's knowledge."""
    world = led_by_an_adding_replica()
    world.catch_up(P, 2, 1)
    world.settle()
    stored = world.zk.states[P].state
    world.zk.write_state(P, replace(stored, isr=(2,)), 1)
    (error,) = world.run(AlterPartitionReassignments({P: None})).values()
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(("target", "then"), [(None, "1"), ((3, 0), "301+30-1")])
def test_before_the_leader_is_taken_away_another_leads(target: tuple[int, ...] | None, then: str) -> None:
    world = led_by_an_adding_replica()
    world.catch_up(P, 2, 1)
    world.settle()
    world.take_writes()
    assert world.run(AlterPartitionReassignments({P: target})) == {P: SUCCESS}
    writes = [write for write in world.take_writes() if write.startswith("state")]
    assert [write.split()[2] for write in writes] == ["leader=1"] * len(writes), "at no time nobody leads"
    assert world.zk.states[P].state.isr == (1,)
    assert world.assignment("t-0") == then
    assert P not in world.brokers[2].replicas


def test_who_stays_must_be_able_to_lead_now() -> None:
    world = led_by_an_adding_replica()
    world.catch_up(P, 2, 1)
    world.settle()
    world.run(events.ControlledShutdown(1, world.zk.brokers[1].broker_epoch))
    world.catch_up(P, 2, 1)
    world.settle()
    before = world.state("t-0")
    (error,) = world.run(AlterPartitionReassignments({P: None})).values()
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.state("t-0") == before


def test_two_partitions_move_each_on_its_own() -> None:
    world = World(4)
    world.elect()
    world.zk.create_topic("t", {0: (0, 1), 1: (1, 0)})
    world.settle()
    world.run(AlterPartitionReassignments({tp("t-0"): (2, 3), tp("t-1"): (3, 2)}))
    listed = world.run(ListPartitionReassignments(None))
    assert listed == {
        tp("t-0"): ReplicaAssignment((2, 3, 0, 1), (2, 3), (0, 1)),
        tp("t-1"): ReplicaAssignment((3, 2, 1, 0), (3, 2), (1, 0)),
    }
    assert world.run(ListPartitionReassignments((tp("t-1"), tp("no-0")))) == {tp("t-1"): listed[tp("t-1")]}
    world.catch_up(tp("t-1"), 1, 0, 3, 2)
    world.run()
    assert world.assignment("t-1") == "32"
    assert world.assignment("t-0") == "2301+23-01"


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ((), 39, "Empty replica list specified in partition reassignment."),
        (tuple(range(10_001)), 39, "There are too many replicas in the partition reassignment replica list."),
        ((1, 1), 39, "Duplicate replica ids in partition reassignment replica list: ArrayBuffer(1, 1)"),
        ((1, -2), 39, "Invalid broker id in replica list: ArrayBuffer(1, -2)"),
        (
            (1, 9),
            39,
            "Replica assignment has brokers that are not alive. Replica list: ArrayBuffer(9), "
            "live broker list: Set(0, 1, 2)",
        ),
        (None, 85, "No partition reassignment is in progress."),
    ],
)
def test_what_the_api_refuses(target: tuple[int, ...] | None, code: int, message: str) -> None:
    world = world_of(3, (0, 1))
    assert world.run(AlterPartitionReassignments({P: target})) == {P: ApiError(ErrorCode(code), message)}
    assert world.take_writes() == []


def test_unknown_partitions_and_topics_being_deleted_are_refused() -> None:
    world = world_of(3, (0, 1))
    unknown = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    assert world.run(AlterPartitionReassignments({tp("t-7"): (1,), tp("no-0"): (1,)})) == {
        tp("t-7"): unknown,
        tp("no-0"): unknown,
    }
    world.kill(1)
    world.zk.mark_for_deletion("t")
    world.settle()
    assert reassign(world, 2) == unknown


def test_a_move_waits_for_a_target_that_died_and_goes_on_when_it_returns() -> None:
    world = world_of(4, (0, 1))
    reassign(world, 2, 3)
    world.kill(3)
    world.settle()
    world.catch_up(P, 0, 1, 2)
    world.run()
    assert world.assignment("t-0") == "2301+23-01"
    world.start(3)
    world.settle()
    world.catch_up(P, 0, 1, 2, 3)
    world.run()
    assert world.assignment("t-0") == "23"


def test_old_replicas_stay_while_no_target_can_lead() -> None:
    """Kafka removes them all the same, and the partition has no replica left that can lead."""
    world = world_of(4, (0, 1))
    reassign(world, 2)
    world.core.context.replicas_on_offline_dirs[2] = {P}
    world.zk.write_state(P, world.zk.states[P].state.__class__(0, 1, (0, 1, 2)), 1)
    world.run(events.PartitionReassignmentIsrChange(P))
    assert world.assignment("t-0") == "201+2-01"
    assert world.zk.states[P].state.leader == 0
    assert list(world.run(ListPartitionReassignments(None))) == [P]
    world.kill(2)
    world.start(2)
    world.settle()
    world.catch_up(P, 0, 1, 2)
    world.run()
    assert world.assignment("t-0") == "2"


# The znode of old tools


def test_the_znode_is_carried_out_and_emptied() -> None:
    """Scene main/12."""
    world = World(3)
    world.elect()
    world.zk.create_topic("t", {0: (0, 1), 1: (1, 2)})
    world.settle()
    world.take_writes()
    world.zk.ask_for_reassignments({tp("t-0"): (1, 2), tp("t-1"): (0, 2)})
    world.settle()
    assert world.assignment("t-0") == "120+2-0"
    world.catch_up(tp("t-0"), 0, 1, 2)
    world.run()
    assert world.zk.reassignments == {tp("t-1"): (0, 2)}
    before = world.state("t-1")
    world.settle()
    assert world.state("t-1") == before, "the controller's own write of the znode must not start anything again"
    world.catch_up(tp("t-1"), 1, 2, 0)
    world.run()
    assert world.zk.reassignments is None
    assert world.take_writes()[-1] == "reassignments deleted"


@pytest.mark.parametrize("target", [(0, 0), (), (1, 9), (-1,)])
def test_bad_entries_of_the_znode_are_logged_and_removed(
    target: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(3, (0, 1))
    with caplog.at_level(logging.WARNING, "kafka.controller.KafkaController"):
        world.zk.ask_for_reassignments({P: target, tp("no-0"): (1,), tp("t-9"): (1,)})
        world.settle()
    assert world.take_writes() == ["reassignments deleted"]
    assert "Failed reassignment through zk with the following errors: HashMap(t-0 -> ApiError(error=INVALID_" in (
        caplog.text
    )
    assert "no-0 -> ApiError(error=UNKNOWN_TOPIC_OR_PARTITION, message=The partition does not exist.)" in caplog.text


def test_a_znode_that_is_no_json_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(3, (0, 1))
    world.zk.malformed = "not JSON"
    world.zk.ask_for_reassignments({})
    with caplog.at_level(logging.WARNING, "kafka.controller.KafkaController"):
        world.settle()
    assert world.zk.reassignments is None
    assert "cannot be understood: not JSON" in caplog.text


def test_the_same_target_by_znode_is_done_at_once_and_removed() -> None:
    """Scene legacy-bad/01: epoch + 1, topic znode rewritten, entry removed."""
    world = world_of(3, (0, 1))
    world.zk.ask_for_reassignments({P: (0, 1)})
    world.settle()
    assert world.take_writes() == ["state t-0 leader=0 le=1 isr=01 pe=1", "topic t 0:01", "reassignments deleted"]


def test_a_second_write_of_the_znode_is_looked_at() -> None:
    world = world_of(4, (0, 1))
    world.zk.ask_for_reassignments({P: (2,)})
    world.settle()
    world.zk.ask_for_reassignments({P: (3,)})
    world.settle()
    assert world.assignment("t-0") == "301+3-01"
    world.catch_up(P, 0, 1, 3)
    world.run()
    assert world.zk.reassignments is None


def test_the_api_wins_over_the_znode() -> None:
    world = world_of(4, (0, 1))
    world.zk.ask_for_reassignments({P: (2,)})
    world.settle()
    assert reassign(world, 3) is SUCCESS
    assert world.zk.reassignments is None
    assert world.assignment("t-0") == "301+3-01"


def test_a_topic_deleted_while_it_moves_takes_its_entry_along() -> None:
    world = world_of(4, (0, 1))
    world.zk.ask_for_reassignments({P: (2, 3)})
    world.settle()
    world.zk.mark_for_deletion("t")
    world.settle()
    assert world.zk.topics == {}
    assert world.zk.reassignments is None
    assert world.run(ListPartitionReassignments(None)) == {}
    assert all(P not in broker.replicas for broker in world.brokers.values())


@pytest.mark.parametrize("steps", [0, 1, 12, 40])
def test_a_new_controller_deletes_a_topic_that_moves(steps: int) -> None:
    """Kafka 3.9.1 waits for the end of the move, which cannot come: followers are told that the topic is unknown."""
    world = world_of(4, (0, 1))
    reassign(world, 2, 3)
    world.zk.mark_for_deletion("t")
    for _ in range(steps):
        world.step()
    world.elect()
    world.settle()
    assert world.zk.topics == {} and world.zk.deletions == {}
    assert world.run(ListPartitionReassignments(None)) == {}
    assert all(P not in broker.replicas for broker in world.brokers.values())


# Leaders that write their state themselves (IBP before 2.7-IV2)


def test_before_alter_partition_the_state_znode_is_watched() -> None:
    world = World(3, is_alter_partition_enabled=False)
    world.elect()
    world.zk.create_topic("t", {0: (0, 1)})
    world.settle()
    reassign(world, 1, 2)
    state = world.zk.states[P].state
    world.zk.write_state(P, state.__class__(0, state.leader_epoch, (0, 1, 2)), 1)
    world.run(events.PartitionReassignmentIsrChange(P))
    assert world.assignment("t-0") == "12"
    assert world.state("t-0") == "leader=1 le=3 isr=12 pe=4"


def test_partitions_added_unseen_survive_the_write_of_the_topic() -> None:
    world = world_of(4, (0, 1))
    world.is_active = False
    world.zk.add_partitions("t", {1: (2, 3)})
    world.is_active = True
    reassign(world, 2, 3)
    assert world.zk.topics["t"].assignment[1] == ReplicaAssignment((2, 3))
    world.run(events.PartitionModifications("t"))
    assert world.state("t-1") == "leader=2 le=0 isr=23 pe=0"
