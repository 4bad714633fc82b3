"""Reassignments of many partitions: in batches, with one write of the topic's znode per batch."""

from collections.abc import Iterable

import pytest
from controller_world import World
from fake_zookeeper import tp

from engine.broker.controller import events, reassignment, reassignment_requests
from engine.broker.controller.events import SUCCESS, AlterPartitionReassignments, ListPartitionReassignments
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition


def world_of_many(partitions: int) -> World:
    world = World(4)
    world.elect()
    world.zk.create_topic("t", dict.fromkeys(range(partitions), (1, 2)))
    world.settle(200_000)
    world.take_requests()
    world.take_writes()
    return world


def topic_writes(world: World) -> list[str]:
    return [write for write in world.take_writes() if write.startswith("topic")]


def test_partitions_of_one_topic_move_with_one_write_of_its_znode() -> None:
    world = world_of_many(3)
    names = [tp(f"t-{index}") for index in range(3)]
    answer = world.run(AlterPartitionReassignments(dict.fromkeys(names, (1, 3))))
    assert answer == dict.fromkeys(names, SUCCESS)
    assert topic_writes(world) == ["topic t 0:132+3-2 1:132+3-2 2:132+3-2"]
    requests = [request for request in world.take_requests() if "LISR" in request and request.startswith("b1")]
    assert requests == ["b1 LISR t-0(leader=1 le=1 132+3-2) t-1(leader=1 le=1 132+3-2) t-2(leader=1 le=1 132+3-2)"]
    world.put(caught_up(world, names, (1, 2, 3)))
    world.run()
    assert topic_writes(world) == ["topic t 0:13 1:13 2:13"]
    assert world.run(ListPartitionReassignments(None)) == {}


def caught_up(world: World, partitions: Iterable[TopicPartition], isr: tuple[int, ...]) -> events.AlterPartition:
    """Return the request of broker 1 when the replicas of many partitions have caught up at once."""
    items = {}
    for partition in partitions:
        stored = world.zk.states[partition].state
        items[partition] = events.AlterPartitionItem(stored.leader_epoch, isr, stored.partition_epoch)
    return events.AlterPartition(1, world.zk.brokers[1].broker_epoch, 3, items)


def test_one_partition_that_cannot_move_holds_no_other_back() -> None:
    world = world_of_many(3)
    names = [tp(f"t-{index}") for index in range(3)]
    del world.zk.states[names[1]], world.core.context.leadership[names[1]]
    answer = world.run(AlterPartitionReassignments(dict.fromkeys(names, (1, 3))))
    assert [answer[name].code for name in names] == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert topic_writes(world) == ["topic t 0:132+3-2 1:12 2:132+3-2"]


def test_between_two_batches_the_controller_hears_of_a_broker_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reassignment, reassignment_requests):
        monkeypatch.setattr(module, "REASSIGNED_AT_ONCE_MAX", 2)
    world = world_of_many(5)
    names = [tp(f"t-{index}") for index in range(5)]
    world.put(AlterPartitionReassignments(dict.fromkeys(names, (1, 3))))
    while not topic_writes(world):
        assert world.step()
    world.kill(2)
    answer = world.run()
    assert answer == dict.fromkeys(names, SUCCESS)
    writes = world.take_writes()
    first_shrunk = next(i for i, write in enumerate(writes) if write.startswith("state") and write.count("isr=1 "))
    topic_positions = [i for i, write in enumerate(writes) if write.startswith("topic")]
    assert len(topic_positions) == 2
    assert first_shrunk < topic_positions[0]
    world.start(2)
    world.settle()
    world.take_writes()
    world.put(caught_up(world, names, (1, 2, 3)))
    world.run()
    assert [write.count("13 ") + write.endswith(":13") for write in topic_writes(world)] == [2, 4, 5]
    assert world.run(ListPartitionReassignments(None)) == {}


def test_a_znode_with_more_than_a_batch_is_carried_out_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reassignment, reassignment_requests):
        monkeypatch.setattr(module, "REASSIGNED_AT_ONCE_MAX", 2)
    world = world_of_many(5)
    names = [tp(f"t-{index}") for index in range(5)]
    world.zk.ask_for_reassignments(dict.fromkeys(names, (1, 3)))
    world.settle()
    assert list(world.run(ListPartitionReassignments(None))) == names
    world.elect()
    world.settle()
    world.put(caught_up(world, names, (1, 2, 3)))
    world.settle()
    assert world.run(ListPartitionReassignments(None)) == {}
    assert world.zk.reassignments is None


def test_moves_of_many_partitions_cost_a_write_per_batch() -> None:
    """A write per partition would contain all 1,100 each time."""
    world = world_of_many(1_100)
    names = [tp(f"t-{index}") for index in range(1_100)]
    world.put(AlterPartitionReassignments(dict.fromkeys(names, (1, 3))))
    world.settle(200_000)
    assert len(topic_writes(world)) == 3
    world.put(caught_up(world, names, (1, 2, 3)))
    world.settle(200_000)
    assert len(topic_writes(world)) == 3
    assert world.run(ListPartitionReassignments(None)) == {}
