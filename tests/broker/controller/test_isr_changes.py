"""AlterPartition: every check in order; and the notifications that leaders wrote before it existed."""

import pytest
from controller_world import World
from fake_zookeeper import tp

from engine.broker.controller import events
from engine.broker.controller.events import AlterPartition, AlterPartitionItem
from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, LeaderRecoveryState

P = tp("t-0")
RECOVERING = LeaderRecoveryState.RECOVERING


def world_of(isr: tuple[int, ...] = (1, 2, 0), **options: object) -> World:
    """t-0 on brokers 1, 2, 0 in leader epoch 1, partition epoch 1."""
    world = World(3, **options)
    world.elect()
    world.zk.create_topic("t", {0: (1, 2, 0)})
    world.settle()
    state = LeaderAndIsr(1, 1, isr)
    world.zk.write_state(P, state, 1)
    world.core.context.leadership[P] = world.zk.states[P].read()
    world.take_requests()
    world.take_writes()
    return world


def ask(
    world: World,
    *isr: int,
    leader_epoch: int = 1,
    partition_epoch: int = 1,
    broker: int = 1,
    broker_epoch: int | None = None,
    version: int = 3,
    recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED,
    isr_epochs: tuple[int, ...] = (),
    partition: str = "t-0",
) -> object:
    item = AlterPartitionItem(leader_epoch, isr, partition_epoch, recovery, isr_epochs)
    epoch = world.zk.brokers[broker].broker_epoch if broker_epoch is None else broker_epoch
    answer = world.run(AlterPartition(broker, epoch, version, {tp(partition): item}))
    return answer[tp(partition)] if isinstance(answer, dict) else answer


def test_an_accepted_isr_is_written_and_told_to_all() -> None:
    world = world_of()
    assert ask(world, 1, 2) == LeaderAndIsr(1, 1, (1, 2), partition_epoch=2)
    assert world.take_writes() == ["state t-0 leader=1 le=1 isr=12 pe=2"]
    assert world.take_requests() == [f"b{b} UMD t-0(leader=1 le=1)" for b in (0, 1, 2)]


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        ({"partition": "t-9"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"broker": 2}, ErrorCode.INVALID_REQUEST),
        ({"recovery": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ({"broker_epoch": 1}, ErrorCode.STALE_BROKER_EPOCH),
        ({"isr_epochs": (-1, 1)}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_is_refused(wish: dict[str, object], error: ErrorCode) -> None:
    world = world_of()
    assert ask(world, 1, 2, **wish) is error  # type: ignore[arg-type]
    assert world.take_writes() == []


def test_recovered_leaders_do_not_become_recovering() -> None:
    assert ask(world_of(), 1, recovery=RECOVERING) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "error"), [(3, 107), (2, 107), (1, 55), (0, 55)])
def test_dead_and_shutting_down_members_are_ineligible(version: int, error: int) -> None:
    world = world_of(isr=(1, 2))
    world.kill(0)
    world.settle()
    state = world.zk.states[P].state
    epochs = {"leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch}
    assert ask(world, 1, 2, 0, version=version, **epochs) == ErrorCode(error)
    world.start(0)
    world.settle()
    assert isinstance(ask(world, 1, 2, 0, version=version, **epochs), LeaderAndIsr)


def test_a_member_that_was_restarted_is_ineligible() -> None:
    world = world_of(isr=(1, 2))
    old = world.zk.brokers[0].broker_epoch
    world.zk.unregister(0)
    world.start(0)
    world.settle()
    state = world.zk.states[P].state
    epochs = {"leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch}
    assert ask(world, 1, 2, 0, isr_epochs=(-1, -1, old), **epochs) is ErrorCode.INELIGIBLE_REPLICA
    new = world.zk.brokers[0].broker_epoch
    assert isinstance(ask(world, 1, 2, 0, isr_epochs=(-1, -1, new), **epochs), LeaderAndIsr)


def test_the_same_wish_again_is_answered_with_the_state_now() -> None:
    world = world_of()
    first = ask(world, 1, 2)
    world.take_writes()
    assert ask(world, 1, 2) == first
    assert world.take_writes() == []


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_leader_of_another_registration_changes_nothing(difference: int) -> None:
    """An older registration is a broker that has restarted since. The controller has not heard of a newer one yet."""
    world = world_of()
    known = world.core.context.live_brokers[1].broker_epoch
    assert ask(world, 1, 2, broker_epoch=known + difference) is ErrorCode.STALE_BROKER_EPOCH
    assert (world.take_writes(), world.take_requests()) == ([], [])
    assert isinstance(ask(world, 1, 2, broker_epoch=known), LeaderAndIsr)


def test_an_unknown_broker_is_stale() -> None:
    world = world_of()
    world.core.context.live_brokers.pop(1)
    assert ask(world, 1) is ErrorCode.STALE_BROKER_EPOCH


def test_a_state_somebody_else_wrote_is_not_overwritten_and_read_again() -> None:
    world = world_of()
    world.zk.write_state(P, LeaderAndIsr(1, 1, (1, 0)), 1)
    assert ask(world, 1, 2) is ErrorCode.INVALID_UPDATE_VERSION
    assert world.core.context.leadership[P].leader_and_isr.partition_epoch == 2
    assert isinstance(ask(world, 1, 2, partition_epoch=2), LeaderAndIsr)


def test_recovery_ends_with_the_first_isr_change() -> None:
    """Scene main/26, 27."""
    world = world_of()
    state = LeaderAndIsr(1, 1, (1,), RECOVERING)
    world.zk.write_state(P, state, 1)
    world.core.context.leadership[P] = world.zk.states[P].read()
    assert ask(world, 1, 2, recovery=RECOVERING, partition_epoch=2) is ErrorCode.INVALID_REQUEST
    assert ask(world, 1, 2, partition_epoch=2) == LeaderAndIsr(1, 1, (1, 2), partition_epoch=3)


def test_topics_being_deleted_accept_nothing() -> None:
    world = world_of()
    world.core.context.topics_to_be_deleted["t"] = None
    assert ask(world, 1, 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_many_partitions_in_one_request_each_for_itself() -> None:
    world = World(2)
    world.elect()
    world.zk.create_topic("t", {0: (0, 1), 1: (0, 1), 2: (1, 0)})
    world.settle()
    items = {tp(f"t-{p}"): AlterPartitionItem(0, (0,), 0) for p in range(3)}
    answer = world.run(AlterPartition(0, world.zk.brokers[0].broker_epoch, 3, items))
    assert answer == {
        tp("t-0"): LeaderAndIsr(0, 0, (0,), partition_epoch=1),
        tp("t-1"): LeaderAndIsr(0, 0, (0,), partition_epoch=1),
        tp("t-2"): ErrorCode.INVALID_REQUEST,
    }


def test_notifications_are_read_told_and_deleted() -> None:
    """Scene ibp-2.6/03: the leader wrote the state, the controller only announces it."""
    world = world_of(is_alter_partition_enabled=False)
    world.zk.write_state(P, LeaderAndIsr(1, 1, (1,)), 1)
    world.zk.isr_notifications["isr_change_0000000000"] = (P, tp("no-0"))
    world.run(events.IsrChangeNotification())
    assert world.zk.isr_notifications == {}
    assert world.core.context.leadership[P].leader_and_isr.isr == (1,)
    assert world.take_requests() == [f"b{b} UMD t-0(leader=1 le=1)" for b in (0, 1, 2)]
    assert world.take_writes() == []


def test_the_leader_alone_may_still_be_recovering() -> None:
    """A request for an ISR of only the leader is refused only if the leader has recovered before."""
    world = world_of(isr=(1, 2))
    world.zk.write_state(P, LeaderAndIsr(1, 1, (1, 2), RECOVERING), 1)
    world.core.context.leadership[P] = world.zk.states[P].read()
    answer = ask(world, 1, recovery=RECOVERING, partition_epoch=world.zk.states[P].state.partition_epoch)
    assert isinstance(answer, LeaderAndIsr)
    assert (answer.isr, answer.leader_recovery_state) == ((1,), RECOVERING)
