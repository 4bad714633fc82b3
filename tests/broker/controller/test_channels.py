"""The channel to one broker: the controller's requests arrive in order, however long they take to encode."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from event_loop import in_event_loop

from engine.broker.controller import channels
from engine.broker.controller import wire_requests as wire_form
from engine.broker.controller.broker_requests import (
    LeaderAndIsrPartition,
    LeaderAndIsrToBroker,
    UpdateMetadataPartition,
    UpdateMetadataToBroker,
)
from engine.broker.controller.channels import PARTITIONS_AT_ONCE_MAX, BrokerChannel, ChannelSettings, ControllerChannels
from engine.broker.controller.instructions import SLICE_SIZE
from engine.broker.controller.loop import Controller
from engine.common.model import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from engine.kafka.protocol.apis.update_metadata import UpdateMetadataResponse
from engine.runtime import discards
from engine.runtime.discards import Discards
from engine.runtime.turns import Breather


class StandInClient:
    """A connection whose answers come when the test gives them."""

    is_connected = True

    def __init__(self, *_: object, **__: object) -> None:
        self.sent: list[tuple[int, bool]] = []
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    async def send(self, request: Any, api_version: int, *, is_large: bool = False) -> Any:
        self.sent.append((sum(len(t.partition_states) for t in request.topic_states), is_large))
        return await self.answers.get()

    async def close(self) -> None:
        pass


@in_event_loop
async def test_what_comes_behind_a_large_request_waits_for_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing overtakes a request that is encoded in a thread: the broker would return to an older state."""
    client = StandInClient()
    monkeypatch.setattr(channels, "BrokerClient", lambda *_, **__: client)
    broker = BrokerInfo(1, (Endpoint("127.0.0.1", 1, "PLAINTEXT", SecurityProtocol.PLAINTEXT),))
    settings = ChannelSettings(0, MetadataVersion.IBP_3_9_IV0, "PLAINTEXT", "PLAINTEXT")
    channel = BrokerChannel(broker, settings, 1, lambda event: None, Discards())
    many = PARTITIONS_AT_ONCE_MAX + 1
    for count in (many, 1, PARTITIONS_AT_ONCE_MAX):
        channel.put(
            UpdateMetadataToBroker(
                broker_id=1,
                broker_epoch=0,
                controller_epoch=1,
                partitions=tuple(
                    UpdateMetadataPartition(TopicPartition("t", p), 1, 0, 0, (1,), 0, (1,), ()) for p in range(count)
                ),
                live_brokers=(broker,),
                topic_ids={},
            )
        )
    running = asyncio.ensure_future(channel.run())
    expected = [(many, True), (1, False), (PARTITIONS_AT_ONCE_MAX, False)]
    for number in range(1, len(expected) + 1):
        async with asyncio.timeout(20):
            while len(client.sent) < number:
                await asyncio.sleep(0.001)
        for _ in range(20):
            await asyncio.sleep(0)
        assert client.sent == expected[:number]
        client.answers.put_nowait(UpdateMetadataResponse(error_code=0))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@in_event_loop
async def test_a_large_request_is_made_beside_the_loop_and_sent_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """LeaderAndIsr with 6,000 partitions for each of 100 brokers at a take-over used to block everybody for 60 ms."""
    client = StandInClient()
    monkeypatch.setattr(channels, "BrokerClient", lambda *_, **__: client)
    made: list[tuple[int, bool]] = []
    make = channels.wire_requests

    def noted(request: Any, *rest: Any) -> Any:
        made.append((len(request.partitions), threading.current_thread() is threading.main_thread()))
        return make(request, *rest)

    monkeypatch.setattr(channels, "wire_requests", noted)
    broker = BrokerInfo(1, (Endpoint("127.0.0.1", 1, "PLAINTEXT", SecurityProtocol.PLAINTEXT),))
    settings = ChannelSettings(0, MetadataVersion.IBP_3_9_IV0, "PLAINTEXT", "PLAINTEXT")
    answers: list[Any] = []
    channel = BrokerChannel(broker, settings, 1, answers.append, Discards())
    counts = (1, PARTITIONS_AT_ONCE_MAX + 1, 2, PARTITIONS_AT_ONCE_MAX)
    for count in counts:
        parts = tuple(
            LeaderAndIsrPartition(
                TopicPartition("t", p), 1, LeaderAndIsr(1, 0, (1,)), ReplicaAssignment((1,)), is_new=True
            )
            for p in range(count)
        )
        channel.put(LeaderAndIsrToBroker(1, 0, 1, parts, leaders=(broker,), topic_ids={}))
    running = asyncio.ensure_future(channel.run())
    async with asyncio.timeout(60):
        for number in range(1, len(counts) + 1):
            while len(client.sent) < number:
                await asyncio.sleep(0)
            client.answers.put_nowait(LeaderAndIsrResponse())
        while len(answers) < len(counts):
            await asyncio.sleep(0)
    assert [count for count, _ in client.sent] == list(counts)
    assert sorted(made) == sorted((count, count <= PARTITIONS_AT_ONCE_MAX) for count in counts)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Ids(dict[str, bytes]):
    """Topic ids that show when the last request with them is gone."""


class Turns:
    """Counts the turns of the event loop, and says in which of them something was freed."""

    def __init__(self) -> None:
        self.now = 0
        self.freed: Counter[int] = Counter()
        self._counting = asyncio.ensure_future(self._count())

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.now += 1

    def watch(self, value: object) -> None:
        weakref.finalize(value, lambda: self.freed.update((self.now,)))

    async def until_freed(self, count: int) -> None:
        async with asyncio.timeout(60):
            while self.freed.total() < count:
                await asyncio.sleep(0)
        self._counting.cancel()
        await asyncio.gather(self._counting, return_exceptions=True)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[StandInClient]:
    """The connections that the channels open. Discarded values are freed one piece per turn, on any machine."""
    made: list[StandInClient] = []

    def connect(*_: object, **__: object) -> StandInClient:
        made.append(StandInClient())
        return made[-1]

    monkeypatch.setattr(channels, "BrokerClient", connect)
    monkeypatch.setattr(discards, "HOLD_MS_MAX", 0)
    return made


SETTINGS = ChannelSettings(0, MetadataVersion.IBP_3_9_IV0, "PLAINTEXT", "PLAINTEXT")
ENDPOINTS = (Endpoint("127.0.0.1", 1, "PLAINTEXT", SecurityProtocol.PLAINTEXT),)
BROKERS = [BrokerInfo(broker_id, ENDPOINTS) for broker_id in range(8)]


def large_request(broker: BrokerInfo, turns: Turns) -> LeaderAndIsrToBroker:
    ids = Ids()
    turns.watch(ids)
    parts = tuple(
        LeaderAndIsrPartition(TopicPartition("t", p), 1, LeaderAndIsr(1, 0, (1,)), ReplicaAssignment((1,)), is_new=True)
        for p in range(PARTITIONS_AT_ONCE_MAX + 1)
    )
    return LeaderAndIsrToBroker(broker.id, 0, 1, parts, leaders=(broker,), topic_ids=ids)


async def until_sent(clients: list[StandInClient], count: int) -> None:
    async with asyncio.timeout(60):
        while sum(len(client.sent) for client in clients) < count:
            await asyncio.sleep(0)


@in_event_loop
@pytest.mark.parametrize("end", ["answered", "closed", "disconnected"])
async def test_large_requests_are_let_go_of_one_in_a_turn(clients: list[StandInClient], end: str) -> None:
    """Each connection kept its last request, and the end of a term freed those of 100 brokers in one go: 600 ms."""
    turns, lines = Turns(), ControllerChannels(SETTINGS, 1, lambda event: None)
    for broker in BROKERS:
        lines.connect(broker)
        lines.send(large_request(broker, turns))
    await until_sent(clients, len(BROKERS))
    assert not turns.freed
    if end == "answered":
        for client in clients:
            client.answers.put_nowait(LeaderAndIsrResponse())
    elif end == "disconnected":
        for broker in BROKERS:
            lines.disconnect(broker.id)
    else:
        await lines.close()
    await turns.until_freed(len(BROKERS))
    await lines.close()
    assert set(turns.freed.values()) == {1}


@in_event_loop
async def test_requests_that_everybody_is_done_with_are_let_go_of_one_in_a_turn(clients: list[StandInClient]) -> None:
    """The instruction held the requests to 100 brokers, 600,000 replicas at a take-over, and freed them in one go: 50
    ms."""
    turns, lines = Turns(), ControllerChannels(SETTINGS, 1, lambda event: None)
    controller: Any = Controller.__new__(Controller)
    controller._breather = Breather()
    # Nobody is connected, so nobody else holds them.
    await controller._send(lines, tuple(large_request(broker, turns) for broker in BROKERS))
    await turns.until_freed(len(BROKERS))
    await lines.close()
    assert set(turns.freed.values()) == {1}


class Noted(UpdateMetadataPartition):
    """An object that shows when it is freed, which a class without slots can do."""


class NotedList(list[int]):
    """The same for the wire form, which contains it."""


@in_event_loop
@pytest.mark.parametrize("is_answered", [True, False])
async def test_what_brokers_share_is_let_go_of_in_pieces(
    clients: list[StandInClient], monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    """The last broker's answer, or the end of the term, used to free 200,000 partitions in one go: 116 ms."""
    turns, lines = Turns(), ControllerChannels(SETTINGS, 1, lambda event: None)
    make, count = wire_form._metadata_state, 10 * SLICE_SIZE

    def noted(part: UpdateMetadataPartition) -> Any:
        state = make(part)
        state.isr = NotedList(state.isr)
        turns.watch(state.isr)
        return state

    def requests() -> Iterator[UpdateMetadataToBroker]:
        parts = tuple(Noted(TopicPartition(f"t{p}", p), 1, 0, 0, (1,), 0, (1,), ()) for p in range(count))
        for part in parts:
            turns.watch(part)
        ids: dict[str, bytes] = {}
        for broker in BROKERS:
            yield UpdateMetadataToBroker(broker.id, 0, 1, parts, live_brokers=(broker,), topic_ids=ids)

    monkeypatch.setattr(wire_form, "_metadata_state", noted)
    for broker in BROKERS:
        lines.connect(broker)
    controller: Any = Controller.__new__(Controller)
    controller._breather = Breather()
    await controller._send(lines, tuple(requests()))
    await until_sent(clients, len(BROKERS))
    assert not turns.freed
    if is_answered:
        for client in clients:
            client.answers.put_nowait(UpdateMetadataResponse(error_code=0))
    else:
        await lines.close()
    await turns.until_freed(2 * count)
    await lines.close()
    assert max(turns.freed.values()) <= 2 * SLICE_SIZE


@in_event_loop
async def test_a_thousand_partitions_are_not_encoded_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending that many partitions to each of a hundred brokers in one turn of the loop took 60 ms."""
    client = StandInClient()
    monkeypatch.setattr(channels, "BrokerClient", lambda *_, **__: client)
    broker = BrokerInfo(1, (Endpoint("127.0.0.1", 1, "PLAINTEXT", SecurityProtocol.PLAINTEXT),))
    settings = ChannelSettings(0, MetadataVersion.IBP_3_9_IV0, "PLAINTEXT", "PLAINTEXT")
    channel = BrokerChannel(broker, settings, 1, lambda event: None, Discards())
    parts = tuple(UpdateMetadataPartition(TopicPartition("t", p), 1, 0, 0, (1,), 0, (1,), ()) for p in range(1000))
    channel.put(UpdateMetadataToBroker(1, 0, 1, parts, live_brokers=(broker,), topic_ids={}))
    running = asyncio.ensure_future(channel.run())
    async with asyncio.timeout(60):
        while not client.sent:
            await asyncio.sleep(0)
    assert client.sent == [(len(parts), True)]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@in_event_loop
@pytest.mark.parametrize("where", ["connecting", "sending", "making"])
async def test_a_fault_costs_no_request_that_follows(
    clients: list[StandInClient], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A fault of ours used to end the channel: until the broker's next start it heard of no leader."""
    monkeypatch.setattr(channels, "BACKOFF_MS", 0)
    faults = ["a fault"]

    def fail_once() -> None:
        if faults:
            raise RuntimeError(faults.pop())

    class FaultyClient(StandInClient):
        is_connected = False

        async def connect(self) -> None:
            self.is_connected = True
            if where == "connecting":
                fail_once()

        async def send(self, request: Any, api_version: int, *, is_large: bool = False) -> Any:
            if where == "sending":
                fail_once()
            return await super().send(request, api_version, is_large=is_large)

        async def close(self) -> None:
            self.is_connected = False

    def connect(*_: object, **__: object) -> StandInClient:
        clients.append(FaultyClient())
        return clients[-1]

    make = channels.wire_requests

    def made(request: Any, *rest: Any) -> Any:
        if where == "making" and len(request.partitions) > PARTITIONS_AT_ONCE_MAX:
            fail_once()
        return make(request, *rest)

    monkeypatch.setattr(channels, "BrokerClient", connect)
    monkeypatch.setattr(channels, "wire_requests", made)
    lines = ControllerChannels(SETTINGS, 1, lambda event: None)
    lines.connect(BROKERS[1])
    lines.send(large_request(BROKERS[1], Turns()))
    small = (UpdateMetadataPartition(TopicPartition("t", 0), 1, 0, 0, (1,), 0, (1,), ()),)
    lines.send(UpdateMetadataToBroker(1, 0, 1, small, live_brokers=(BROKERS[1],), topic_ids={}))
    sizes = [(PARTITIONS_AT_ONCE_MAX + 1, True), (1, False)]
    if where == "making":
        del sizes[0]
    for number in range(1, len(sizes) + 1):
        await until_sent(clients, number)
        clients[0].answers.put_nowait(LeaderAndIsrResponse())
    assert not faults
    assert clients[0].sent == sizes
    await lines.close()
