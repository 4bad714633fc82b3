"""The controller is lost between every two instructions of an operation; the next one must finish it.

For each operation the run is repeated with the controller lost after its first, second, third … instruction, and
compared with an undisturbed run: the same assignments, leaders in sync, nothing left behind.
"""

from collections.abc import Callable

import pytest
from controller_world import World
from fake_zookeeper import tp

from engine.broker.controller import events

Operation = Callable[[World], None]


def prepared() -> World:
    world = World(4)
    world.elect()
    world.zk.create_topic("t", {0: (0, 1), 1: (1, 2), 2: (2, 3)})
    world.settle()
    return world


def create_topic(world: World) -> None:
    world.zk.create_topic("new", {0: (0, 1), 1: (2, 3)})


def add_partitions(world: World) -> None:
    world.zk.add_partitions("t", {3: (3, 0), 4: (1, 3)})


def delete_topic(world: World) -> None:
    world.zk.mark_for_deletion("t")


def kill_broker(world: World) -> None:
    world.kill(1)


def bounce_broker(world: World) -> None:
    world.kill(1)
    world.start(1)


def reassign(world: World) -> None:
    targets = {tp("t-0"): (2, 3), tp("t-1"): (3,)}
    world.put(events.AlterPartitionReassignments(targets))


def reassign_by_znode(world: World) -> None:
    world.zk.ask_for_reassignments({tp("t-0"): (2, 3), tp("nosuch-0"): (1,)})


def cancel(world: World) -> None:
    world.put(events.AlterPartitionReassignments({tp("t-0"): (2, 3)}))
    world.put(events.AlterPartitionReassignments({tp("t-0"): None}))


def elect_preferred(world: World) -> None:
    world.kill(1)
    world.start(1)
    world.zk.ask_for_preferred_election((tp("t-0"), tp("t-1"), tp("t-2")))


def shut_down(world: World) -> None:
    world.put(events.ControlledShutdown(1, world.zk.brokers[1].broker_epoch))


OPERATIONS: list[Operation] = [
    create_topic,
    add_partitions,
    delete_topic,
    kill_broker,
    bounce_broker,
    reassign,
    reassign_by_znode,
    cancel,
    elect_preferred,
    shut_down,
]


def finish(world: World) -> None:
    """Let everything settle, with followers that catch up."""
    for _ in range(10):
        world.settle()
        asked = False
        for partition, stored in list(world.zk.states.items()):
            replicas = world.zk.topics[partition.topic].assignment[partition.partition].replicas
            live = tuple(r for r in replicas if r in world.zk.brokers)
            if set(stored.state.isr) != set(live) and stored.state.leader in live:
                asked = world.catch_up(partition, *live) or asked
        if not asked:
            return
    raise AssertionError("never comes to rest")


def outcome(world: World) -> dict[str, str]:
    """What must not depend on the crash: which brokers hold which partition, and that it has a leader."""
    states = {}
    for topic, assignment in world.zk.topics.items():
        for partition in assignment.assignment:
            name = f"{topic}-{partition}"
            state = world.zk.states[tp(name)].state
            assert state.leader in state.isr
            assert state.leader in world.zk.brokers
            states[name] = f"{world.assignment(name)} isr={sorted(state.isr)}"
    assert world.zk.deletions == {}
    assert world.zk.reassignments is None
    assert world.zk.preferred_election is None
    return states


def run(operation: Operation, lost_after: int | None) -> tuple[dict[str, str], bool]:
    """Return the outcome, and whether the controller was still busy when it was lost."""
    world = prepared()
    operation(world)
    was_at_work = True
    if lost_after is not None:
        for _ in range(lost_after):
            was_at_work = world.step() or any(world.deliver(b) for b in list(world.wires))
        request_lost = [e for e in world.queue if not is_answered_by_nobody(e)]
        world.elect()
        world.queue.extend(request_lost)
    if operation is shut_down:
        world.settle()
        world.kill(1)
    finish(world)
    return outcome(world), was_at_work


def is_answered_by_nobody(event: events.ControllerEvent) -> bool:
    """Requests still in the queue are refused. The caller asks the new controller again."""
    return event.refusal is None


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_the_next_controller_finishes_it(operation: Operation) -> None:
    undisturbed, _ = run(operation, None)
    possible = [undisturbed]
    if operation in (reassign, cancel):
        # A request that was lost before its first write leaves no trace.
        possible += [run(prepared_only, None)[0], {**undisturbed, **half(operation)}]
    lost_after = 0
    at_work = True
    while at_work:
        state, at_work = run(operation, lost_after)
        assert state in possible, f"{operation.__name__} differs when the controller is lost after {lost_after}"
        lost_after += 1
    assert lost_after > 5, "the operation takes some instructions"


def prepared_only(world: World) -> None:
    """Do nothing."""


def half(operation: Operation) -> dict[str, str]:
    """Leave what remains when the controller is lost between the two parts of a request."""
    if operation is reassign:
        return {"t-1": run(prepared_only, None)[0]["t-1"]}
    world = prepared()
    world.put(events.AlterPartitionReassignments({tp("t-0"): (2, 3)}))
    finish(world)
    return {"t-0": outcome(world)["t-0"]}


@pytest.mark.parametrize("lost_after", range(0, 60, 3))
def test_a_take_over_may_be_cut_short_any_number_of_times(lost_after: int) -> None:
    world = prepared()
    world.kill(1)
    world.zk.mark_for_deletion("t")
    world.zk.create_topic("u", {0: (1, 0), 1: (2, 0)})
    for _ in range(4):
        world.elect()
        for _ in range(lost_after):
            world.step()
    world.start(1)
    world.elect()
    finish(world)
    assert set(outcome(world)) == {"u-0", "u-1"}
