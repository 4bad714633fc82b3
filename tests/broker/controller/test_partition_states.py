"""Every legal and every illegal move of a partition: what is written, what is sent, what is logged."""

import logging

import pytest
from controller_world import World
from fake_zookeeper import tp

from engine.broker.controller.leader_selectors import OFFLINE_ELECTION, UNCLEAN_ELECTION
from engine.broker.controller.partition_state_machine import ElectionResults, PartitionStateMachine
from engine.broker.controller.states import (
    VALID_PREVIOUS_PARTITION_STATES,
    IllegalTransition,
    PartitionState,
    StateChangeFailed,
)
from engine.common.model import LeaderAndIsr

LEGAL = {
    ("NonExistentPartition", "NewPartition"),
    ("NewPartition", "OnlinePartition"),
    ("OnlinePartition", "OnlinePartition"),
    ("OfflinePartition", "OnlinePartition"),
    ("NewPartition", "OfflinePartition"),
    ("OnlinePartition", "OfflinePartition"),
    ("OfflinePartition", "OfflinePartition"),
    ("OfflinePartition", "NonExistentPartition"),
}
P = tp("t-0")


def world_with(state: PartitionState) -> tuple[World, PartitionStateMachine]:
    """Return a controller that knows t-0 on brokers 1 and 2, put into ``state`` by hand."""
    world = World(3)
    world.elect()
    world.settle()
    if state is PartitionState.NON_EXISTENT or state is PartitionState.NEW:
        world.is_active = False
        world.zk.create_topic("t", {0: (1, 2)})
        world.is_active = True
        world.core.context.topics["t"] = None
        world.core.context.update_assignment(P, world.zk.topics["t"].assignment[0])
    else:
        world.zk.create_topic("t", {0: (1, 2)})
        world.settle()
    world.core.context.partition_states[P] = state
    world.take_requests()
    world.take_writes()
    return world, world.core._partitions


def change(world: World, machine: PartitionStateMachine, target: PartitionState) -> ElectionResults:
    results: ElectionResults = {}

    def steps():  # type: ignore[no-untyped-def]
        results.update((yield from machine.change((P,), target, OFFLINE_ELECTION)))

    world._begin(steps())
    while world._steps is not None:
        world.step()
    return results


@pytest.mark.parametrize("current", list(PartitionState))
@pytest.mark.parametrize("target", list(PartitionState))
def test_every_move(current: PartitionState, target: PartitionState, caplog: pytest.LogCaptureFixture) -> None:
    world, machine = world_with(current)
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        change(world, machine, target)
    if (current.value, target.value) in LEGAL:
        assert world.core.context.partition_state(P) is target
        assert caplog.records == []
        return
    assert world.core.context.partition_state(P) is current
    assert world.take_writes() == []
    assert world.take_requests() == []
    (record,) = caplog.records
    assert record.getMessage() == (
        f"[Controller id=0 epoch=1] Controller 0 epoch 1 failed to change state for partition t-0 "
        f"from {current} to {target}"
    )
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], IllegalTransition)
    allowed = ",".join(map(str, VALID_PREVIOUS_PARTITION_STATES[target]))
    assert str(record.exc_info[1]) == (
        f"Partition t-0 should be in one of {allowed} states before moving to {target} state. "
        f"Instead it is in {current} state"
    )


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    world, machine = world_with(PartitionState.NEW)
    world.is_active = False
    world.kill(1)
    world.is_active = True
    world.core.context.live_brokers.pop(1)
    change(world, machine, PartitionState.ONLINE)
    assert world.take_writes() == ["create t-0 leader=2 le=0 isr=2 pe=0"]
    assert world.take_requests() == [
        "b2 LISR t-0(leader=2 le=0 12 new)",
        "b0 UMD t-0(leader=2 le=0)",
        "b2 UMD t-0(leader=2 le=0)",
    ]


def test_a_new_partition_without_live_replica_stays_new(caplog: pytest.LogCaptureFixture) -> None:
    world, machine = world_with(PartitionState.NEW)
    world.core.context.live_brokers = {0: world.core.context.live_brokers[0]}
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        change(world, machine, PartitionState.ONLINE)
    assert world.core.context.partition_state(P) is PartitionState.NEW
    assert caplog.records[0].exc_info is not None
    assert str(caplog.records[0].exc_info[1]) == (
        "Controller 0 epoch 1 encountered error during state change of partition t-0 from New to Online, "
        "assigned replicas are [1,2], live brokers are [Set(0)]. No assigned replica is alive."
    )


def test_a_state_that_exists_already_is_not_overwritten(caplog: pytest.LogCaptureFixture) -> None:
    world, machine = world_with(PartitionState.NEW)
    world.zk.write_state(P, LeaderAndIsr(2, 3, (2,)), 1)
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        change(world, machine, PartitionState.ONLINE)
    assert world.core.context.partition_state(P) is PartitionState.NEW
    assert world.state("t-0") == "leader=2 le=3 isr=2 pe=0"
    assert "from NewPartition to OnlinePartition" in caplog.text


def test_an_election_starts_anew_when_somebody_else_wrote_the_state() -> None:
    world, machine = world_with(PartitionState.ONLINE)
    world.zk.write_state(P, LeaderAndIsr(1, 0, (1,)), 1)  # An old leader shrinks its ISR by itself.
    world.core.context.partition_states[P] = PartitionState.OFFLINE
    results = change(world, machine, PartitionState.ONLINE)
    assert results == {P: LeaderAndIsr(1, 1, (1,), partition_epoch=2)}
    assert world.take_writes() == ["state t-0 leader=1 le=1 isr=1 pe=2"]


def test_a_zombie_controller_elects_nobody() -> None:
    world, machine = world_with(PartitionState.OFFLINE)
    world.zk.write_state(P, LeaderAndIsr(2, 1, (2,)), controller_epoch=9)
    results = change(world, machine, PartitionState.ONLINE)
    assert isinstance(results[P], StateChangeFailed)
    assert str(results[P]).startswith("Aborted leader election for partition t-0 since the LeaderAndIsr path was")
    assert world.core.context.partition_state(P) is PartitionState.OFFLINE


@pytest.mark.parametrize("enabled", [False, True])
def test_whether_an_unclean_election_is_allowed_is_the_topics_setting(enabled: bool) -> None:
    world, _ = world_with(PartitionState.ONLINE)
    world.catch_up(P, 1)
    world.run()
    if enabled:
        world.zk.unclean.add("t")
    world.kill(1)
    world.settle()
    expected = "leader=2 le=1 isr=2 pe=2 recovering" if enabled else "leader=-1 le=1 isr=1 pe=2"
    assert world.state("t-0") == expected
    assert world.core.context.unclean_elections_total == int(enabled)


def test_failed_writes_of_one_partition_leave_the_others_alone() -> None:
    world = World(3)
    world.elect()
    world.zk.create_topic("t", {0: (1, 2), 1: (1, 0), 2: (1, 0)})
    world.settle()
    del world.zk.states[tp("t-1")]
    world.kill(1)
    world.settle()
    assert world.state("t-0") == "leader=2 le=1 isr=2 pe=1"
    assert world.state("t-2") == "leader=0 le=1 isr=0 pe=1"
    assert world.core.context.partition_state(tp("t-1")) is PartitionState.OFFLINE


def test_unclean_strategy_elects_without_asking_for_the_setting() -> None:
    world, machine = world_with(PartitionState.ONLINE)
    world.catch_up(P, 1)
    world.run()
    world.kill(1)
    world.settle()
    results: ElectionResults = {}

    def steps():  # type: ignore[no-untyped-def]
        results.update((yield from machine.change((P,), PartitionState.ONLINE, UNCLEAN_ELECTION)))

    world._begin(steps())
    world.settle()
    assert isinstance(results[P], LeaderAndIsr)
    assert results[P].leader == 2
