"""What the controller reads from ZooKeeper and what from memory, and what a failed write leaves behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from controller_world import World
from fake_zookeeper import tp

from engine.broker.controller import events
from engine.broker.controller import instructions as do
from engine.broker.controller.events import (
    SUCCESS,
    AlterPartitionReassignments,
    ApiError,
    AutoPreferredReplicaLeaderElection,
    ElectionType,
    ElectLeaders,
)
from engine.broker.controller.instructions import SCAN_SIZE, GiveWay, ReadPartitionStates
from engine.broker.controller.leader_selectors import OFFLINE_ELECTION
from engine.broker.controller.states import PartitionState
from engine.common.errors import CoordinationError, ErrorCode
from engine.common.model import LeaderAndIsr
from engine.kafka.zk.partitions import PartitionStateUpdates

P = tp("t-0")


class Watched(World):
    """A world that counts the controller's instructions by kind."""

    def _carry_out(self, instruction: do.Instruction[object]) -> object:
        self.__dict__.setdefault("counts", Counter())[type(instruction)] += 1
        return super()._carry_out(instruction)

    def take_counts(self, *kinds: type) -> list[int]:
        counts: Counter[type] = self.__dict__.pop("counts", Counter())
        return [counts[kind] for kind in kinds]


def world_of(brokers: int, *partitions: tuple[int, ...], **options: bool) -> Watched:
    world = Watched(brokers, **options)
    world.elect()
    world.zk.create_topic("t", dict(enumerate(partitions)))
    world.settle()
    world.take_counts()
    world.take_writes()
    return world


def leaderless() -> Watched:
    """Return t-0, in sync only on broker 1, which has died. Broker 2 could lead only by losing records."""
    world = world_of(3, (1, 2))
    world.catch_up(P, 1)
    world.settle()
    world.kill(1)
    world.settle()
    assert world.state("t-0") == "leader=-1 le=1 isr=1 pe=2"
    world.take_counts()
    world.take_writes()
    return world


# Reads


def test_an_election_that_loses_nothing_goes_by_memory() -> None:
    world = world_of(3, (1, 2))
    world.kill(1)
    world.settle()
    assert world.state("t-0") == "leader=2 le=1 isr=2 pe=1"
    assert world.take_counts(ReadPartitionStates) == [0]


@pytest.mark.parametrize("trusts_memory", [True, False])
def test_a_loss_is_looked_up_once(trusts_memory: bool) -> None:
    """If leaders write their state themselves, the controller has read it anyway."""
    world = world_of(3, (1,), is_alter_partition_enabled=trusts_memory)
    world.core.context.live_brokers.pop(1)
    steps = world.core._partitions.change((P,), PartitionState.ONLINE, OFFLINE_ELECTION)
    world._begin(steps)  # type: ignore[arg-type]
    world.take_counts()
    while world._steps is not None:
        world.step()
    assert world.take_counts(ReadPartitionStates) == [1]


def test_a_preferred_election_reads_nothing_again() -> None:
    world = leaderless()
    (error,) = world.run(ElectLeaders((P,), ElectionType.PREFERRED)).values()
    assert error.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.take_counts(ReadPartitionStates) == [0]


def test_only_an_election_for_want_of_a_leader_may_be_unclean_by_setting() -> None:
    world = leaderless()
    world.zk.unclean.add("t")
    (error,) = world.run(ElectLeaders((P,), ElectionType.PREFERRED)).values()
    assert error.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.take_writes() == []


def test_a_long_read_gives_way_between_its_pieces() -> None:
    world = world_of(3, (1, 2))
    leadership = world.core._leadership
    partitions = [tp(f"u-{number}") for number in range(2 * SCAN_SIZE + 1)]
    world.core.context.leadership.update(dict.fromkeys(partitions, world.core.context.leadership[P]))
    steps = leadership.read(partitions)
    carried_out = []
    try:
        while True:
            carried_out.append(type(next(steps)))
    except StopIteration as end:
        assert list(end.value) == partitions
    assert carried_out == [GiveWay, GiveWay]


def test_what_cannot_be_read_again_stays_as_it_was() -> None:
    world = world_of(3, (1, 2))
    before = world.core.context.leadership[P]
    del world.zk.states[P]
    world._begin(world.core._leadership.refresh([P]))
    world.settle()
    assert world.core.context.leadership[P] is before


def test_an_epoch_is_raised_on_what_the_leader_wrote_meanwhile() -> None:
    world = world_of(3, (1, 2))
    world.zk.write_state(P, LeaderAndIsr(1, 0, (1,)), 1)
    assert world.run(AlterPartitionReassignments({P: (1, 2, 0)})) == {P: SUCCESS}
    assert world.take_writes() == ["topic t 0:120+0", "state t-0 leader=1 le=1 isr=1 pe=2"]
    assert world.take_counts(ReadPartitionStates) == [1]


def test_an_epoch_is_raised_by_memory() -> None:
    world = world_of(3, (1, 2))
    assert world.run(AlterPartitionReassignments({P: (1, 2, 0)})) == {P: SUCCESS}
    assert world.take_counts(ReadPartitionStates) == [0]


# Failures


def test_an_election_whose_write_fails_is_no_success() -> None:
    world = world_of(3, (1, 2))
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    world.catch_up(P, 2, 1)
    world.settle()
    del world.zk.states[P]
    (error,) = world.run(ElectLeaders((P,), ElectionType.PREFERRED)).values()
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_move_whose_epoch_cannot_be_written_is_no_success() -> None:
    world = world_of(4, (1, 2), (1, 2))
    del world.zk.states[P]
    answers = world.run(AlterPartitionReassignments({P: (1, 0), tp("t-1"): (1, 0)}))
    assert answers[P].code is not ErrorCode.NONE
    assert answers[tp("t-1")] is SUCCESS


def test_nothing_is_written_over_the_state_of_a_later_controller() -> None:
    world = world_of(4, (1, 2), (1, 2))
    world.zk.write_state(P, world.zk.states[P].state, 2)
    answers = world.run(AlterPartitionReassignments({P: (1, 0), tp("t-1"): (1, 0)}))
    assert answers[P].code is not ErrorCode.NONE
    assert answers[tp("t-1")] is SUCCESS
    world.kill(1)
    world.settle()
    assert world.state("t-0") == "leader=1 le=0 isr=12 pe=1"


def test_a_move_that_cannot_be_taken_back_does_not_keep_another_from_it() -> None:
    world = world_of(4, (1, 2), (1, 2))
    world.run(AlterPartitionReassignments({P: (1, 0), tp("t-1"): (1, 0)}))
    del world.zk.states[P]
    answers = world.run(AlterPartitionReassignments({P: None, tp("t-1"): None}))
    assert answers[P].code is not ErrorCode.NONE
    assert answers[tp("t-1")] is SUCCESS
    assert world.assignment("t-1") == "12"


def test_a_refused_move_leaves_the_assignment_in_memory() -> None:
    world = world_of(4, (1,))
    world.run(AlterPartitionReassignments({P: (2, 3)}))
    world.catch_up(P, 1, 2)
    world.settle()
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    world.catch_up(P, 2, 1)
    world.settle()
    world.run(events.ControlledShutdown(1, world.zk.brokers[1].broker_epoch))
    world.catch_up(P, 2, 1)
    world.settle()
    (error,) = world.run(AlterPartitionReassignments({P: None})).values()
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.core.context.full_assignment(P) == world.zk.topics["t"].assignment[0]


def test_a_cancelled_move_whose_leader_cannot_be_moved_goes_on_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(4, (1,))
    world.run(AlterPartitionReassignments({P: (2, 3)}))
    world.catch_up(P, 1, 2)
    world.settle()
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    world.catch_up(P, 2, 1)
    world.settle()
    before = world.core.context.full_assignment(P)
    refused = PartitionStateUpdates(failed={P: CoordinationError("NoAuth")})
    monkeypatch.setattr(world.zk, "_UpdateLeaderAndIsr", lambda *_: refused)
    (error,) = world.run(AlterPartitionReassignments({P: None})).values()
    assert error.code is not ErrorCode.NONE
    assert world.core.context.full_assignment(P) == before == world.zk.topics["t"].assignment[0]


@pytest.mark.parametrize(
    ("event", "answer"),
    [
        (events.AllocateProducerIds(1, 1), ErrorCode.UNKNOWN_SERVER_ERROR),
        (events.ListPartitionReassignments(None), ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)),
        (AlterPartitionReassignments({P: (1, 2)}), ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)),
        (events.BrokerChange(), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, events.ControllerEvent) else "",
)
def test_an_event_that_fails_is_answered_and_does_not_keep_the_next_from_it(
    event: events.ControllerEvent, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(_: object) -> do.Steps[None]:
        yield do.GiveWay()
        raise ZeroDivisionError

    world = world_of(3, (1, 2))
    with monkeypatch.context() as patch:
        patch.setitem(world.core._table, type(event), fault)
        assert world.run(event) == answer
    world.kill(1)
    world.settle()
    assert world.state("t-0") == "leader=2 le=1 isr=2 pe=1"


def test_a_block_of_producer_ids_that_cannot_be_claimed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise CoordinationError("NoAuth")

    world = world_of(3, (1, 2))
    wish = events.AllocateProducerIds(1, world.zk.brokers[1].broker_epoch)
    with monkeypatch.context() as patch:
        patch.setattr(world.zk, "_AllocateProducerIdBlock", refuse)
        assert world.run(wish) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert isinstance(world.run(wish), do.ProducerIdBlock)


# Moves


def test_a_move_is_over_when_the_isr_is_exactly_its_target() -> None:
    world = world_of(3, (1,))
    world.run(AlterPartitionReassignments({P: (1, 2)}))
    world.catch_up(P, 1, 2)
    world.settle()
    assert world.assignment("t-0") == "12"
    assert world.core.context.partitions_being_reassigned == {}


@pytest.mark.parametrize(("is_alter_partition_enabled", "expected"), [(True, [0, 0]), (False, [2, 1])])
def test_a_state_is_watched_during_a_move_where_leaders_write_it(
    is_alter_partition_enabled: bool, expected: list[int]
) -> None:
    """The watch is set when a move begins and again when it completes: a new controller may have taken over."""
    world = world_of(3, (1,), is_alter_partition_enabled=is_alter_partition_enabled)
    world.run(AlterPartitionReassignments({P: (1, 2)}))
    world.zk.write_state(P, replace(world.zk.states[P].state, isr=(1, 2)), 1)
    world.run(events.PartitionReassignmentIsrChange(P))
    assert world.take_counts(do.WatchPartitionState, do.UnwatchPartitionState) == expected


def test_the_znode_is_left_alone_by_a_move_that_it_does_not_name() -> None:
    world = world_of(4, (1,), (1,))
    world.zk.ask_for_reassignments({P: (1, 2)})
    world.settle()
    world.run(AlterPartitionReassignments({tp("t-1"): (1, 3)}))
    world.take_writes()
    world.catch_up(tp("t-1"), 1, 3)
    world.settle()
    assert world.assignment("t-1") == "13"
    assert [write for write in world.take_writes() if write.startswith("reassignments")] == []


# Elections on demand


def test_a_leader_that_is_dead_may_be_replaced_before_the_controller_has_seen_it() -> None:
    world = world_of(3, (1, 2))
    world.core.context.live_brokers.pop(1)
    assert world.run(ElectLeaders((P,), ElectionType.UNCLEAN)) == {P: 2}


@pytest.mark.parametrize("is_there_already", [False, True])
def test_an_election_may_give_a_partition_its_first_leader(is_there_already: bool) -> None:
    world = Watched(3)
    world.elect()
    world.settle()
    for broker_id in (1, 2):
        world.kill(broker_id)
    world.zk.create_topic("t", {0: (1, 2)})
    world.settle()
    world.is_active = False
    world.start(1)
    world.is_active = True
    world.core.context.live_brokers[1] = world.zk.brokers[1]
    if is_there_already:
        world.zk.write_state(P, LeaderAndIsr(2, 0, (2,)), 1)
    answer = world.run(ElectLeaders((P,), ElectionType.PREFERRED))[P]
    assert answer.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if is_there_already else answer == 1


def displaced() -> Watched:
    world = world_of(3, (1, 2))
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    world.catch_up(P, 2, 1)
    world.settle()
    world.take_writes()
    return world


def test_a_new_controller_leaves_leaders_alone_that_are_where_they_belong() -> None:
    world = world_of(3, (1, 2))
    world.is_active = False
    world.zk.ask_for_preferred_election((P,))
    world.elect()
    world.settle()
    assert world.zk.preferred_election is None
    assert not [write for write in world.take_writes() if write.startswith("state")]


def test_a_new_controller_elects_nobody_for_a_topic_that_is_being_deleted() -> None:
    world = displaced()
    world.is_active = False
    world.zk.mark_for_deletion("t")
    world.zk.ask_for_preferred_election((P,))
    world.elect()
    world.settle()
    assert not [write for write in world.take_writes() if "leader=1" in write]


def test_no_leader_goes_back_in_a_topic_that_is_being_deleted() -> None:
    world = displaced()
    world.core.context.topics_to_be_deleted["t"] = None
    world.run(AutoPreferredReplicaLeaderElection())
    assert world.take_writes() == []
