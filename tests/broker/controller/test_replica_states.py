"""Every legal and every illegal move of a replica: what is written, what is sent, what is logged."""

import logging
from dataclasses import replace

import pytest
from controller_world import World
from fake_zookeeper import tp

from engine.broker.controller.states import IllegalTransition, PartitionAndReplica, ReplicaState

NON_EXISTENT, NEW, ONLINE, OFFLINE = (
    ReplicaState.NON_EXISTENT,
    ReplicaState.NEW,
    ReplicaState.ONLINE,
    ReplicaState.OFFLINE,
)
STARTED, SUCCESSFUL, INELIGIBLE = (
    ReplicaState.DELETION_STARTED,
    ReplicaState.DELETION_SUCCESSFUL,
    ReplicaState.DELETION_INELIGIBLE,
)
LEGAL = {
    (NON_EXISTENT, NEW),
    (NEW, ONLINE),
    (ONLINE, ONLINE),
    (OFFLINE, ONLINE),
    (INELIGIBLE, ONLINE),
    (NEW, OFFLINE),
    (ONLINE, OFFLINE),
    (OFFLINE, OFFLINE),
    (INELIGIBLE, OFFLINE),
    (OFFLINE, STARTED),
    (STARTED, SUCCESSFUL),
    (STARTED, INELIGIBLE),
    (OFFLINE, INELIGIBLE),
    (SUCCESSFUL, NON_EXISTENT),
}
FOLLOWER = PartitionAndReplica(tp("t-0"), 2)
LEADER = PartitionAndReplica(tp("t-0"), 1)


def world_with(replica: PartitionAndReplica, state: ReplicaState) -> World:
    """Return a controller with t-0 on brokers 1 (leader), 2, 0, and one replica put into ``state`` by hand."""
    world = World(3)
    world.elect()
    world.zk.create_topic("t", {0: (1, 2, 0)})
    world.settle()
    world.core.context.replica_states[replica] = state
    if state is NON_EXISTENT:
        del world.core.context.replica_states[replica]
    world.take_requests()
    world.take_writes()
    return world


def change(world: World, replica: PartitionAndReplica, target: ReplicaState) -> None:
    world._begin(world.core._replicas.change((replica,), target))
    while world._steps is not None:
        world.step()


@pytest.mark.parametrize("current", list(ReplicaState))
@pytest.mark.parametrize("target", list(ReplicaState))
def test_every_move(current: ReplicaState, target: ReplicaState, caplog: pytest.LogCaptureFixture) -> None:
    world = world_with(FOLLOWER, current)
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        change(world, FOLLOWER, target)
    if (current, target) in LEGAL:
        assert world.core.context.replica_state(FOLLOWER) is target
        assert caplog.records == []
        return
    assert world.core.context.replica_state(FOLLOWER) is current
    assert world.take_writes() == []
    assert world.take_requests() == []
    (record,) = caplog.records
    assert record.getMessage() == (
        f"[Controller id=0 epoch=1] Controller 0 epoch 1 initiated state change of replica 2 for partition t-0 "
        f"from {current} to {target} failed"
    )
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], IllegalTransition)
    assert f"Instead it is in {current} state" in str(record.exc_info[1])


TO_ALL = [f"b{b} UMD t-0(leader=1 le=0)" for b in (0, 1, 2)]


@pytest.mark.parametrize(
    ("current", "target", "requests"),
    [
        (NON_EXISTENT, NEW, ["b2 LISR t-0(leader=1 le=0 120 new)", *TO_ALL]),
        (NEW, ONLINE, []),
        (OFFLINE, ONLINE, ["b2 LISR t-0(leader=1 le=0 120)", *TO_ALL]),
        (OFFLINE, STARTED, ["b2 STOP t-0(le=0 delete)"]),
        (STARTED, SUCCESSFUL, []),
        (STARTED, INELIGIBLE, []),
        (SUCCESSFUL, NON_EXISTENT, []),
    ],
)
def test_what_moves_without_writes_send(current: ReplicaState, target: ReplicaState, requests: list[str]) -> None:
    world = world_with(FOLLOWER, current)
    change(world, FOLLOWER, target)
    assert world.take_requests() == requests
    assert world.take_writes() == []


def test_an_offline_follower_leaves_the_isr() -> None:
    world = world_with(FOLLOWER, ONLINE)
    change(world, FOLLOWER, OFFLINE)
    assert world.take_writes() == ["state t-0 leader=1 le=1 isr=10 pe=1"]
    assert world.take_requests() == [
        "b1 LISR t-0(leader=1 le=1 120)",
        "b0 LISR t-0(leader=1 le=1 120)",
        *(f"b{b} UMD t-0(leader=1 le=1)" for b in (0, 1, 2)),
        "b2 STOP t-0(le=0)",
    ]


def test_an_offline_leader_leaves_the_partition_without_one() -> None:
    world = world_with(LEADER, ONLINE)
    change(world, LEADER, OFFLINE)
    assert world.take_writes() == ["state t-0 leader=-1 le=1 isr=20 pe=1"]


def test_the_last_member_stays_in_the_isr() -> None:
    world = world_with(LEADER, ONLINE)
    world.catch_up(tp("t-0"), 1)
    world.run()
    world.take_writes()
    change(world, LEADER, OFFLINE)
    assert world.take_writes() == ["state t-0 leader=-1 le=1 isr=1 pe=2"]


def test_a_replica_outside_the_isr_changes_nothing_but_is_told_about() -> None:
    world = world_with(FOLLOWER, ONLINE)
    world.catch_up(tp("t-0"), 1, 0)
    world.run()
    world.take_writes()
    world.take_requests()
    change(world, FOLLOWER, OFFLINE)
    assert world.take_writes() == []
    assert world.take_requests()[:2] == ["b1 LISR t-0(leader=1 le=0 120)", "b0 LISR t-0(leader=1 le=0 120)"]


def test_a_topic_being_deleted_gets_no_leader_and_isr() -> None:
    world = world_with(FOLLOWER, ONLINE)
    world.core.context.topics_to_be_deleted["t"] = None
    change(world, FOLLOWER, OFFLINE)
    assert world.take_writes() == ["state t-0 leader=1 le=1 isr=10 pe=1"]
    assert world.take_requests() == ["b2 STOP t-0(le=-2)"]


def test_the_leader_cannot_become_a_new_replica(caplog: pytest.LogCaptureFixture) -> None:
    world = world_with(LEADER, NON_EXISTENT)
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        change(world, LEADER, NEW)
    assert world.core.context.replica_state(LEADER) is NON_EXISTENT
    assert "cannot be moved to NewReplica state as it is being requested to become leader" in caplog.text


def test_a_replica_that_is_gone_leaves_the_assignment() -> None:
    world = world_with(FOLLOWER, SUCCESSFUL)
    change(world, FOLLOWER, NON_EXISTENT)
    assert world.core.context.replicas(tp("t-0")) == (1, 0)


def test_a_partition_that_never_had_a_leader_goes_offline_without_a_write() -> None:
    world = world_with(FOLLOWER, ONLINE)
    del world.core.context.leadership[tp("t-0")]
    change(world, FOLLOWER, OFFLINE)
    assert world.core.context.replica_state(FOLLOWER) is OFFLINE
    assert world.take_requests() == ["b0 UMD", "b1 UMD", "b2 UMD", "b2 STOP t-0(le=-1)"]
    assert world.take_writes() == []


@pytest.mark.parametrize(("is_being_deleted", "state"), [(True, OFFLINE), (False, ONLINE)])
def test_a_state_znode_that_is_gone_holds_up_no_deletion(is_being_deleted: bool, state: ReplicaState) -> None:
    """If the topic stays, a replica whose leadership could not be written keeps its state, and is tried again."""
    world = world_with(FOLLOWER, ONLINE)
    if is_being_deleted:
        world.core.context.topics_to_be_deleted["t"] = None
    del world.zk.states[tp("t-0")]
    change(world, FOLLOWER, OFFLINE)
    assert world.core.context.replica_state(FOLLOWER) is state
    assert world.take_writes() == []


@pytest.mark.parametrize(("is_being_deleted", "state"), [(True, OFFLINE), (False, ONLINE)])
def test_it_holds_up_none_either_where_leaders_write_their_isr_themselves(
    is_being_deleted: bool, state: ReplicaState, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(3, is_alter_partition_enabled=False)
    world.elect()
    world.zk.create_topic("t", {0: (1, 2, 0)})
    world.settle()
    if is_being_deleted:
        world.core.context.topics_to_be_deleted["t"] = None
    del world.zk.states[tp("t-0")]
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        change(world, FOLLOWER, OFFLINE)
    assert world.core.context.replica_state(FOLLOWER) is state
    assert bool(caplog.records) is not is_being_deleted


def test_an_isr_that_its_leader_changed_meanwhile_is_read_again() -> None:
    world = world_with(FOLLOWER, ONLINE)
    world.zk.write_state(tp("t-0"), replace(world.zk.states[tp("t-0")].state, isr=(1, 2)), 1)
    change(world, FOLLOWER, OFFLINE)
    assert world.take_writes() == ["state t-0 leader=1 le=1 isr=1 pe=2"]


def test_an_isr_that_a_later_controller_wrote_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = world_with(FOLLOWER, ONLINE)
    world.zk.write_state(tp("t-0"), world.zk.states[tp("t-0")].state, 2)
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        change(world, FOLLOWER, OFFLINE)
    assert world.take_writes() == []
    assert world.core.context.replica_state(FOLLOWER) is ONLINE
    assert "written by another controller" in "".join(str(record.exc_info) for record in caplog.records)


@pytest.mark.parametrize("dead", [1, 2])
def test_a_new_controller_knows_which_replicas_are_online(dead: int) -> None:
    world = world_with(FOLLOWER, ONLINE)
    world.kill(dead)
    world.settle()
    world.elect()
    world.settle()
    states = {r: world.core.context.replica_state(PartitionAndReplica(tp("t-0"), r)) for r in (0, 1, 2)}
    assert states == {r: OFFLINE if r == dead else ONLINE for r in (0, 1, 2)}
