"""However many partitions an event moves, the controller's core never does much between two instructions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from controller_world import World
from event_loop import in_event_loop

from engine.common.model import TopicPartition
from engine.controller.broker_requests import UpdateMetadataPartition
from engine.controller.context import ControllerContext
from engine.controller.instructions import SLICE_SIZE, GiveWay, Steps, carry_out, slices
from engine.controller.loop import TURNS_BETWEEN_FREEZES, Controller
from engine.controller.request_batch import RequestBatch
from engine.controller.wire_requests import SharedStates

PARTITIONS = 4 * SLICE_SIZE
LINES_MAX = 2 * SLICE_SIZE
LOOKS_MAX = 16 * SLICE_SIZE
"""Several at each partition of a slice, and at each of its replicas."""


class LineCounter(logging.Handler):
    """Counts the lines of state-change.log: about one for each partition that is moved."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += 1


@pytest.fixture
def counter() -> Iterator[LineCounter]:
    handler, logger = LineCounter(), logging.getLogger("state.change.logger")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def most_lines_of_a_step(world: World, counter: LineCounter) -> tuple[int, int]:
    """Let everything happen; return the lines of the longest step, and of all."""
    longest = total = 0
    while True:
        counter.lines = 0
        if not world.step():
            if sum(world.deliver(broker_id) for broker_id in list(world.wires)) == 0:
                return longest, total
            continue
        longest, total = max(longest, counter.lines), total + counter.lines


def test_pieces_are_whole_and_small() -> None:
    pieces = list(slices(range(2 * SLICE_SIZE + 1)))
    assert [len(piece) for piece in pieces] == [SLICE_SIZE, SLICE_SIZE, 1]
    assert [item for piece in pieces for item in piece] == list(range(2 * SLICE_SIZE + 1))
    assert list(slices(())) == []


def test_no_event_does_much_at_once(counter: LineCounter) -> None:
    """Creation, a broker lost and back, a take-over."""
    world = World(3)
    world.elect()
    world.settle()
    world.zk.create_topic("large", {p: tuple((p + i) % 3 for i in range(3)) for p in range(PARTITIONS)})
    longest, total = most_lines_of_a_step(world, counter)
    assert longest <= LINES_MAX < total
    world.kill(2)
    longest, total = most_lines_of_a_step(world, counter)
    assert longest <= LINES_MAX < total
    world.start(2)
    assert most_lines_of_a_step(world, counter)[0] <= LINES_MAX
    world.elect()
    assert most_lines_of_a_step(world, counter)[0] <= LINES_MAX
    states = world.zk.states.values()
    assert len(states) == PARTITIONS
    assert all(stored.state.leader in world.zk.brokers for stored in states)


def test_brokers_are_told_of_many_partitions_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that returns is told of all partitions there are, a deletion tells everybody of all of a topic's."""
    made: list[TopicPartition] = []
    named: list[int] = []
    make, add = RequestBatch._metadata_of, RequestBatch.add_update_metadata

    def note(self: RequestBatch, partition: TopicPartition, *rest: Any) -> Any:
        made.append(partition)
        return make(self, partition, *rest)

    def note_brokers(self: RequestBatch, broker_ids: Iterable[int], partitions: Iterable[TopicPartition]) -> None:
        brokers = list(broker_ids)
        named.extend(brokers)
        add(self, brokers, partitions)

    monkeypatch.setattr(RequestBatch, "_metadata_of", note)
    monkeypatch.setattr(RequestBatch, "add_update_metadata", note_brokers)
    world = World(3)
    world.elect()
    world.zk.create_topic("large", {p: tuple((p + i) % 3 for i in range(3)) for p in range(PARTITIONS)})
    world.settle()
    world.kill(2)
    world.settle()
    named.clear()
    for change in (lambda: world.start(2), lambda: world.zk.mark_for_deletion("large")):
        change()
        made.clear()
        longest = 0
        while world.step() or sum(world.deliver(broker_id) for broker_id in list(world.wires)):
            longest = max(longest, len(made))
            made.clear()
        assert 0 < longest <= 2 * SLICE_SIZE
    assert len(named) < PARTITIONS


def test_the_wire_form_of_many_partitions_is_made_in_pieces() -> None:
    partitions = tuple(
        UpdateMetadataPartition(TopicPartition("t", p), 1, 0, 0, (0,), 0, (0,), ()) for p in range(PARTITIONS)
    )
    shared = SharedStates()
    assert len(list(shared.prepare(partitions))) == PARTITIONS // SLICE_SIZE
    states = shared.of(partitions)
    assert [state.partition_index for state in states] == list(range(PARTITIONS))
    assert list(shared.prepare(partitions)) == []
    assert shared.of(partitions) is states


def test_looking_through_all_partitions_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200,000 partitions, those that a dead broker led were looked for in one go: 120 ms."""
    monkeypatch.setattr("engine.controller.instructions.SCAN_SIZE", SLICE_SIZE)
    monkeypatch.setattr("engine.controller.topic_changes.SCAN_SIZE", SLICE_SIZE)
    looks = 0

    def counted(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal looks
            looks += 1
            return real(*arguments, **options)

        return call

    for name in ("full_assignment", "is_replica_online", "partition_state", "replica_state", "update_assignment"):
        monkeypatch.setattr(ControllerContext, name, counted(getattr(ControllerContext, name)))
    world = World(3)
    world.elect()
    for number in range(8):
        assignment = {p: tuple((p + i) % 3 for i in range(3)) for p in range(LOOKS_MAX // 4)}
        world.zk.create_topic(f"t{number}", assignment)
    world.settle(1_000_000)
    for change in (lambda: world.kill(2), lambda: world.start(2), world.elect):
        change()
        longest = total = 0
        while True:
            looks = 0
            if not world.step() and sum(world.deliver(broker_id) for broker_id in list(world.wires)) == 0:
                break
            longest, total = max(longest, looks), total + looks
        assert longest <= LOOKS_MAX < total


def test_many_topics_of_one_event_are_brought_online_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 topics that came at once, 200,000 partitions, were logged, written and sent in steps of 0.8 s."""
    size = 4 * SLICE_SIZE
    for module in ("instructions", "topic_changes", "request_batch", "leadership"):
        monkeypatch.setattr(f"engine.controller.{module}.SCAN_SIZE", size)
    world = World(3)
    world.elect()
    world.settle()
    for number in range(20):
        world.zk.create_topic(f"t{number}", {p: tuple((p + i) % 3 for i in range(3)) for p in range(size // 2)})
    world.settle(100_000)
    assert len(world.zk.states) == 10 * size
    assert max(len(request.partitions) for request in world.sent) <= size
    world.elect()
    reads: list[int] = []
    read = type(world.zk)._ReadPartitionStates

    def counted(self: Any, core: Any, instruction: Any) -> Any:
        reads.append(len(instruction.partitions))
        return read(self, core, instruction)

    monkeypatch.setattr(type(world.zk), "_ReadPartitionStates", counted)
    world.settle(100_000)
    assert sum(reads) >= 10 * size and max(reads) <= size


@in_event_loop
async def test_what_a_long_event_makes_is_left_to_itself_and_what_a_short_one_makes_is_not() -> None:
    """The collector looked through what is known of 200,000 partitions for 400 ms."""
    freezes = 0

    def note() -> None:
        nonlocal freezes
        freezes += 1

    def steps(turns: int) -> Steps[None]:
        for _ in range(turns):
            yield from carry_out(GiveWay())

    controller: Any = Controller.__new__(Controller)
    controller._on_instruction = None
    controller._channels = controller._instructions = object()
    controller._held_since_s = 0.0
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("engine.controller.loop.leave_uncollected", note)
        patches.setattr("engine.controller.loop.HOLD_MS_MAX", 0)
        await controller._drive(steps(TURNS_BETWEEN_FREEZES - 1), None)
        assert freezes == 0
        # Each time so many turns were given, and at the end.
        await controller._drive(steps(2 * TURNS_BETWEEN_FREEZES + 1), None)
        assert freezes == 3
