"""Which groups a broker holds: those it has read from the partitions it leads, until it leads them no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from coordinator_world import OFFSETS_PARTITION, READ, MemoryPartition, offset_records
from event_loop import staged
from virtual_time import LoopClock, run_virtual

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.coordinator.groups.coordinator import GROUPS
from engine.broker.coordinator.groups.group import Group
from engine.broker.coordinator.groups.loading import GroupLoader
from engine.broker.coordinator.groups.records import batch_of
from engine.broker.coordinator.ownership import OwnedPartitions, TopicSize
from engine.common.errors import CoordinationError, ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.protocol.records.attributes import Codec
from engine.runtime.turns import TURNS_BETWEEN_FREEZES

E = ErrorCode
IBP = parse_metadata_version("3.9")


class Broker:
    """Leads the only partition of the offsets topic, and notes which groups come and go."""

    def __init__(self) -> None:
        self.partition = MemoryPartition()
        self.loaded: list[list[str]] = []
        self.unloaded: list[list[str]] = []
        self.reads: list[int] = []
        self.buffers = 0
        self.read_s = 0.0
        """How long a read of the disk takes."""
        self.meanwhile: Callable[[], object] = lambda: None
        """Happens while a piece of the log is read from the disk."""
        self.counts: list[CoordinationError | None] = []
        """What asking ZooKeeper raises."""
        self.update_listeners: list[Callable[[], None]] = []
        self.groups = OwnedPartitions(
            "__consumer_offsets",
            GROUPS,
            cast("Any", self),
            LoopClock(),
            size=TopicSize("__consumer_offsets", 1, cast("Any", self), self.count),
            load_buffer_bytes=1,
            on_loaded=lambda _, groups: self.loaded.append([group.group_id for group in groups]),
            on_unloaded=lambda owned: self.unloaded.append(list(owned.states)),
        )
        self._read = self.partition.log.read
        self.partition.log.read = self._noted  # type: ignore[method-assign]

    def partitions(self, topic: str) -> dict[int, object]:
        """What the metadata says."""
        return {}

    async def count(self, topic: str) -> int:
        """What ZooKeeper says."""
        if self.counts and (error := self.counts.pop(0)) is not None:
            raise error
        return 1

    def _noted(self, position: int, *arguments: Any, **options: Any) -> Any:
        self.reads.append(position)
        assert len(self.reads) < 1000, "it never ends"
        return self._read(position, *arguments, **options)

    async def run(self, read: Callable[[], bytes]) -> bytes:
        """The offloader's."""
        self.buffers += 1
        await asyncio.sleep(self.read_s)
        self.meanwhile()
        return read()

    def commit(self, *groups: str) -> None:
        for group in groups:
            self.partition.log.append(batch_of(offset_records(group, {READ: CommittedOffset(7)}, 1, IBP), Codec.NONE))

    async def lead(self) -> None:
        self.groups.leadership_changed(cast("Any", [self.partition]), [])
        async with asyncio.timeout(60):
            while self.groups.is_loading:
                await asyncio.sleep(0.001)

    def resign(self) -> None:
        self.groups.leadership_changed([], cast("Any", [self.partition]))


def play(test: Callable[[Broker], Any]) -> None:
    async def run() -> None:
        broker = Broker()
        await test(broker)
        await broker.groups.stop()

    run_virtual(run)


@staged(play)
async def test_each_group_is_reported_once_it_is_there_and_once_it_goes(broker: Broker, /) -> None:
    names = [f"g{number}" for number in range(250)]
    broker.commit(*names)
    await broker.lead()
    assert [len(piece) for piece in broker.loaded] == [100, 100, 50]
    assert sorted(group for piece in broker.loaded for group in piece) == sorted(names)
    assert broker.reads == list(range(250)), "each batch once, and nothing at the end"
    broker.resign()
    assert [sorted(piece) for piece in broker.unloaded] == [sorted(names)]
    assert broker.groups.status("g1") is E.NOT_COORDINATOR


@staged(play)
async def test_a_broker_that_leads_no_more_coordinates_nothing_even_before_it_drops_the_groups(
    broker: Broker, /
) -> None:
    broker.commit("a")
    await broker.lead()
    assert broker.groups.locate("a") == (E.NONE, broker.groups.partition(0))
    broker.partition.is_leader = False
    assert broker.groups.locate("a") == (E.NOT_COORDINATOR, None)


@staged(play)
async def test_how_long_a_load_took_is_kept_and_told(broker: Broker, /, caplog: pytest.LogCaptureFixture) -> None:
    broker.commit("a", "b")
    await asyncio.sleep(7)
    broker.read_s = 0.25
    with caplog.at_level(logging.INFO, GROUPS.logger.name):
        await broker.lead()
        broker.resign()
    assert list(broker.groups.load_times_ms) == [500]
    assert [record.getMessage() for record in caplog.records] == [
        "Finished loading offsets and group metadata from __consumer_offsets-0 in 500 milliseconds for epoch 0: "
        "2 groups, 2 records, 0 skipped",
        "Unloading 2 groups of __consumer_offsets-0",
    ]


@staged(play)
async def test_who_is_made_leader_again_drops_what_it_knew_of_the_earlier_term(broker: Broker, /) -> None:
    broker.commit("a")
    await broker.lead()
    broker.groups.find_or_add("only asked about", lambda: Group("only asked about", 0))
    await broker.lead()
    assert [sorted(piece) for piece in broker.unloaded] == [["a", "only asked about"]]
    assert [group.group_id for group in broker.groups] == ["a"]


@staged(play)
async def test_who_stops_drops_all_and_takes_nothing_more(broker: Broker, /) -> None:
    broker.commit("a")
    await broker.lead()
    await broker.groups.stop()
    assert broker.unloaded == [["a"]]
    await broker.lead()
    assert broker.groups.status("a") is E.NOT_COORDINATOR
    assert len(broker.reads) == 1


@staged(play)
async def test_forgetting_a_group_leaves_another_of_its_name(broker: Broker, /) -> None:
    broker.groups.forget("g", Group("g", 0))
    await broker.lead()
    earlier = broker.groups.find_or_add("g", lambda: Group("g", 0))
    broker.groups.forget("g", earlier)
    assert broker.groups.find("g") is None
    later = broker.groups.find_or_add("g", lambda: Group("g", 0))
    broker.groups.forget("g", earlier)
    assert broker.groups.find("g") is later


@staged(play)
async def test_other_topics_change_nothing(broker: Broker, /) -> None:
    broker.commit("a")
    await broker.lead()
    other: Any = SimpleNamespace(topic_partition=TopicPartition("t", OFFSETS_PARTITION.partition))
    broker.groups.leadership_changed([other], [other])
    broker.groups.replicas_stopped([other.topic_partition])
    assert (broker.unloaded, broker.groups.status("a")) == ([], E.NONE)
    broker.groups.replicas_stopped([OFFSETS_PARTITION])
    assert broker.unloaded == [["a"]]


@staged(play)
async def test_leadership_lost_while_reading_ends_the_reading(broker: Broker, /) -> None:
    broker.commit("a", "b", "c")
    broker.meanwhile = broker.resign
    await broker.lead()
    await asyncio.sleep(1)
    assert (broker.reads, broker.loaded) == ([0], [])


@pytest.mark.parametrize("content", ["nothing", "no bytes", "half a batch"])
def test_a_log_that_gives_no_more_is_served_as_far_as_it_was_read(
    content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged end must neither be read forever nor keep the other groups from being served."""

    async def test(broker: Broker) -> None:
        broker.commit("a")
        data = bytes(broker.partition.log.data[:20]) if content == "half a batch" else b""
        records = None if content == "nothing" else SimpleNamespace(size_bytes=len(data), read=lambda: data)
        broker._read = lambda *_, **__: SimpleNamespace(records=records)  # type: ignore[assignment]
        await broker.lead()
        assert (broker.reads, broker.buffers) == ([0], 1 if content == "half a batch" else 0)
        assert broker.groups.status("a") is E.NONE

    with caplog.at_level(logging.ERROR):
        play(test)
    assert ("What follows cannot be read" in caplog.text) == (content == "half a batch")
    assert len(caplog.records) == (content == "half a batch")


def test_a_fault_of_the_program_keeps_no_partition_from_being_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the next election nobody else would serve it."""

    def fails(*_: object) -> Iterator[None]:
        raise RuntimeError("a fault of the program")

    async def test(broker: Broker) -> None:
        broker.commit("a")
        monkeypatch.setattr(GroupLoader, "finish", fails)
        await broker.lead()
        assert (broker.groups.status("a"), broker.loaded) == (E.NONE, [])

    play(test)
    assert "Loading failed and is given up" in caplog.text


@staged(play)
async def test_long_work_gives_way_every_few_milliseconds(broker: Broker, /, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made until then is left to itself by the collector. Work that is not wanted any more ends."""
    steps = uncollected = 0
    turns: list[int] = []

    def work(count: int) -> Iterator[None]:
        nonlocal steps
        for _ in range(count):
            steps += 1
            yield

    def note() -> None:
        nonlocal uncollected
        uncollected += 1

    await broker.lead()

    async def other() -> None:
        while True:
            turns.append(steps)
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    await asyncio.sleep(0)
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    monkeypatch.setattr("engine.runtime.turns.leave_uncollected", note)
    owned = broker.groups._owned[0]
    await broker.groups._in_slices(owned, work(15))
    beside.cancel()
    assert set(range(1, 15)) <= set(turns), "after each step others go on"
    assert (steps, uncollected) == (15, 15 // TURNS_BETWEEN_FREEZES)
    broker.groups._unload(0)
    await broker.groups._in_slices(owned, work(15))
    assert steps == 16
    broker.groups._owned[0] = owned


@staged(play)
async def test_the_size_of_the_topic_is_read_before_it_is_loaded_and_again_after_each_change(broker: Broker, /) -> None:
    sizes: dict[int, object] = {}
    stored = [0, 3, CoordinationError("no session"), 5]

    async def read(topic: str) -> int:
        await asyncio.sleep(0)
        next_value = stored.pop(0)
        if isinstance(next_value, CoordinationError):
            raise next_value
        return next_value

    metadata = SimpleNamespace(partitions=lambda topic: sizes, update_listeners=[])
    size = TopicSize("t", 50, cast("Any", metadata), read)
    size.follow()
    await asyncio.sleep(1)
    assert (size(), stored[0]) == (50, 3), "there is no topic"
    await size.once_read()
    assert size() == 3
    await size.once_read()
    assert len(stored) == 2, "it is known"
    sizes.update(dict.fromkeys(range(2)))
    metadata.update_listeners[0]()
    await asyncio.sleep(0.5)
    assert (size(), len(stored)) == (3, 1), "ZooKeeper did not answer"
    await asyncio.sleep(1)
    assert (size(), stored) == (5, [])
    metadata.update_listeners[0]()
    await asyncio.sleep(1)
    assert size() == 5
    await size.stop()
    assert metadata.update_listeners == []


@staged(play)
async def test_a_topic_whose_size_cannot_be_read_is_loaded_all_the_same(broker: Broker, /) -> None:
    broker.counts = [CoordinationError("no session")]
    broker.commit("a")
    await broker.lead()
    assert broker.loaded == [["a"]]
