"""However many partitions an event moves, the controller's core does little between two instructions."""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from controller_world import World
from event_loop import in_event_loop

import engine.broker.controller
from engine.broker.controller import events
from engine.broker.controller.broker_requests import UpdateMetadataPartition, UpdateMetadataToBroker
from engine.broker.controller.context import ControllerContext
from engine.broker.controller.instructions import (
    SCAN_SIZE,
    SLICE_SIZE,
    GiveWay,
    SendRequests,
    Steps,
    WatchTopics,
    carry_out,
    slices,
)
from engine.broker.controller.loop import Controller
from engine.broker.controller.request_batch import RequestBatch
from engine.broker.controller.wire_requests import SharedStates
from engine.broker.controller.zk_instructions import ControllerWatches
from engine.common.model import TopicPartition
from engine.kafka.zk.watches import WatchRegistry
from engine.runtime.turns import TURNS_BETWEEN_FREEZES

PARTITIONS = 4 * SLICE_SIZE
LINES_MAX = 2 * SLICE_SIZE
LOOKS_MAX = 16 * SLICE_SIZE
"""Several for each partition of a slice, and for each of its replicas."""

CONTROLLER_CODE = str(Path(engine.broker.controller.__file__).parent)
WORKED, SCANNED = 20 * SLICE_SIZE, 2 * SLICE_SIZE
WORK_MAX = 100 * SCANNED
"""Lines of Python: a hundred for each partition that may be handled between two instructions."""


class LineCounter(logging.Handler):
    """Counts the lines of state-change.log: about one for each partition that moves."""

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
    """Let everything happen; return the lines of the longest step, and of all steps."""
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
    """Creation, a broker lost and returned, a take-over."""
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
    """A returning broker learns of all partitions there are. A deletion tells every broker about all of a topic's."""
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
    request = UpdateMetadataToBroker(1, 0, 1, partitions, live_brokers=(), topic_ids={})
    for version in (0, 8):
        shared = SharedStates(version)
        assert len(list(shared.prepare(request))) == PARTITIONS // SLICE_SIZE
        states = shared.of(request)
        of_topic = states[0].partition_states if version == 8 else states
        assert [state.partition_index for state in of_topic] == list(range(PARTITIONS))
        assert list(shared.prepare(request)) == []
        assert shared.of(request) is states


def test_a_batch_that_was_sent_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lived on until the next step, and its end freed 200,000 partitions in one go."""

    class Noted(UpdateMetadataPartition):
        """One that tells when it is freed, as a class without slots can."""

    monkeypatch.setattr("engine.broker.controller.request_batch.UpdateMetadataPartition", Noted)
    world = World(3)
    world.elect()
    world.zk.create_topic("large", {p: tuple((p + i) % 3 for i in range(3)) for p in range(PARTITIONS)})
    world.settle()
    context = world.core.context
    batch = RequestBatch(context, 0)
    for partition, leadership in context.leadership.items():
        batch.add_leader_and_isr((0, 1, 2), partition, leadership, context.full_assignment(partition), is_new=False)
    left = weakref.WeakSet(batch._metadata.values())
    assert len(left) == PARTITIONS
    assert [type(step) for step in batch.send()][-1] is SendRequests
    assert not left


def test_looking_through_all_partitions_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for partitions that a dead broker led, among 200,000, used to run in one go: 120 ms."""
    monkeypatch.setattr("engine.broker.controller.instructions.SCAN_SIZE", SLICE_SIZE)
    monkeypatch.setattr("engine.broker.controller.topic_changes.SCAN_SIZE", SLICE_SIZE)
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


class LineTracer:
    """Counts the lines of the controller's code that Python runs, which do not depend on the machine's load."""

    def __init__(self) -> None:
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if CONTROLLER_CODE not in frame.f_code.co_filename:
            return None
        self.lines += 1
        return self._line

    def _line(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        self.lines += 1
        return self._line


def most_work_of_a_step(world: World) -> int:
    """Let everything happen, and return the number of lines of the longest step."""
    longest = 0
    tracer, before = LineTracer(), sys.gettrace()
    while True:
        tracer.lines = 0
        sys.settrace(tracer)
        try:
            has_more = world.step()
        finally:
            sys.settrace(before)
        longest = max(longest, tracer.lines)
        if not has_more and sum(world.deliver(broker_id) for broker_id in list(world.wires)) == 0:
            return longest


def replicas_of(partitions: int, first: int = 0) -> dict[int, tuple[int, ...]]:
    return {p: tuple((p + i) % 3 for i in range(3)) for p in range(first, first + partitions)}


def create_one(world: World) -> None:
    world.zk.create_topic("large", replicas_of(WORKED))


def create_many(world: World) -> None:
    for number in range(WORKED // SLICE_SIZE):
        world.zk.create_topic(f"t{number}", replicas_of(SLICE_SIZE))


def grow(world: World) -> None:
    world.zk.add_partitions("large", replicas_of(WORKED, WORKED))


def elect_all(world: World) -> None:
    every = tuple(world.core.context.all_partitions())
    world.put(events.ElectLeaders(every, events.ElectionType.PREFERRED))


def list_reassignments(world: World) -> None:
    world.put(events.ListPartitionReassignments(tuple(world.core.context.all_partitions())))


def refuse_reassignments(world: World) -> None:
    """Ask for more brokers than exist."""
    some = islice(world.core.context.all_partitions(), 2 * SLICE_SIZE)
    world.put(events.AlterPartitionReassignments(dict.fromkeys(some, tuple(range(1000, 1100)))))


def delete_all(world: World) -> None:
    for topic in list(world.zk.topics):
        world.zk.mark_for_deletion(topic)


def shut_down(world: World) -> None:
    world.put(events.ControlledShutdown(1, world.zk.brokers[1].broker_epoch))


EVENTS: dict[str, Callable[[World], object]] = {
    "a topic created": create_one,
    "many topics created": create_many,
    "a topic grown": grow,
    "a broker lost": lambda world: world.kill(2),
    "a take-over without it": lambda world: world.elect(),
    "the broker back": lambda world: world.start(2),
    "leaders balanced": lambda world: world.put(events.AutoPreferredReplicaLeaderElection()),
    "a broker that wants to go": shut_down,
    "all asked to be led": elect_all,
    "reassignments listed": list_reassignments,
    "reassignments refused": refuse_reassignments,
    "a take-over": lambda world: world.elect(),
    "log dirs lost": lambda world: world.put(events.LogDirEventNotification()),
    "all deleted": delete_all,
}
"""One after the other, on three brokers."""


def test_no_event_works_for_long_between_two_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Balance, deletion, controlled shutdown and large topics used to do all their work in one go."""
    for module in ("instructions", "topic_changes", "request_batch", "leadership", "replica_state_machine"):
        monkeypatch.setattr(f"engine.broker.controller.{module}.SCAN_SIZE", SCANNED)
    world = World(3)
    world.elect()
    world.settle()
    world.zk.log_dir_events["1"] = 1
    held = {}
    for name, happen in EVENTS.items():
        happen(world)
        held[name] = most_work_of_a_step(world)
    assert not world.zk.topics
    assert {name: lines for name, lines in held.items() if lines > WORK_MAX} == {}


def test_resigning_forgets_in_pieces() -> None:
    world = World(3)
    world.elect()
    create_many(world)
    world.settle(100_000)
    context = world.core.context
    known = len(context.replica_states)
    for _ in context.retire():
        assert known - len(context.replica_states) <= 2 * SCAN_SIZE
        known = len(context.replica_states)
    left = context.replica_states, context.leadership, context.partition_states, list(context.all_partitions())
    assert not any(left)


@in_event_loop
async def test_resigning_forgets_one_watch_at_a_time() -> None:
    registry = WatchRegistry()
    client: Any = SimpleNamespace(watch_data=registry.add_data, unwatch=registry.remove)
    watches, topics = ControllerWatches(client, lambda event: None), tuple(f"t{number}" for number in range(50))
    await watches.perform(WatchTopics(topics))
    for left, _ in zip(range(49, -1, -1), watches.retire(), strict=True):
        assert len(registry.data_paths()) == left


def test_brokers_are_sent_pieces_of_many_new_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 topics that came at once, with 200,000 partitions, used to go out in one request.

    A take-over reads in pieces.
    """
    size = 4 * SLICE_SIZE
    for module in ("instructions", "topic_changes", "request_batch", "leadership"):
        monkeypatch.setattr(f"engine.broker.controller.{module}.SCAN_SIZE", size)
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
    """The garbage collector took 400 ms to scan what is known of 200,000 partitions."""
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
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("engine.broker.controller.loop.leave_uncollected", note)
        patches.setattr("engine.runtime.turns.leave_uncollected", note)
        patches.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
        await controller._drive(steps(TURNS_BETWEEN_FREEZES - 1), None)
        assert freezes == 0
        # After every so many turns, and at the end.
        await controller._drive(steps(2 * TURNS_BETWEEN_FREEZES + 1), None)
        assert freezes == 3
