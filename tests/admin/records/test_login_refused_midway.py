"""A login that a broker refuses in the middle of a run ends the run at once: trying again would lock the account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from scripted_brokers import HANG_UP, ScriptedCluster, scripted_cluster
from scripted_logs import Log, lead

from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.errors import FailureKind, LoginRefused
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.membership import Membership
from engine.admin.perf.consumer import PerfConsumer, ReadLoad
from engine.admin.perf.producer import Load, PerfProducer
from engine.admin.perf.producer_settings import ProducerSettings
from engine.admin.perf.templates import TemplatePool, random_letters
from engine.admin.records.consume import Consumer
from engine.admin.records.leaders import LeaderReaders
from engine.admin.records.positions import ConsumeOptions
from engine.admin.records.produce import Producer, ProducerOptions
from engine.common.model import EARLIEST_TIMESTAMP, TopicPartition
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import LoginFailed
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.record import Record

Run = Callable[[WireCluster], Awaitable[Any]]
PATIENCE_S = 20.0
"""How long each of them would go on trying."""


async def consume(wire: WireCluster) -> None:
    consumer = Consumer(wire, "t", ConsumeOptions(offset=EARLIEST_TIMESTAMP, give_up_s=PATIENCE_S))
    await consumer.open()
    async with aclosing(consumer.batches()) as batches:
        async for _ in batches:
            pass


async def produce(wire: WireCluster) -> None:
    producer = Producer(wire, "t", ProducerOptions(is_idempotent=False, delivery_timeout_s=PATIENCE_S))
    await producer.open()
    producer.add(Record(timestamp_ms=1, key=None, value=b"x"), 0)
    await producer.flush()


async def read_for_speed(wire: WireCluster) -> None:
    test = PerfConsumer(wire, ReadLoad(topic="t", record_count=1000, idle_s=PATIENCE_S))
    await test.run(lambda _: None, lambda _: None)


async def send_for_speed(wire: WireCluster) -> None:
    templates = TemplatePool(random_letters(10), 16_384, Codec.NONE, None)
    settings = ProducerSettings(is_idempotent=False)
    test = PerfProducer(wire, Load(("t",), 10, give_up_s=PATIENCE_S), settings, templates)
    await test.open()
    await test.run(lambda _: None, lambda _: None)


@pytest.mark.parametrize(
    ("run", "last_asked"),
    [
        (consume, ApiKey.FETCH),
        (consume, ApiKey.LIST_OFFSETS),
        (produce, ApiKey.PRODUCE),
        (read_for_speed, ApiKey.FETCH),
        (send_for_speed, ApiKey.PRODUCE),
    ],
)
def test_the_run_ends_at_once(run: Run, last_asked: ApiKey, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, is_locked = BrokerClient.connect, False

    async def admitted(client: BrokerClient) -> None:
        if is_locked and not client.is_connected:
            raise LoginFailed("wrong password", address=client.address, hint="look at the password")
        await connect(client)

    def lock_out(_: object) -> object:
        nonlocal is_locked
        is_locked = True
        return HANG_UP

    async def playing(cluster: ScriptedCluster) -> None:
        cluster.leaders = {"t": [0]}
        lead(cluster, 0, {0: Log(3)})
        cluster.brokers[0].answers[last_asked] = lock_out
        wire = WireCluster(cluster.bootstrap, properties=ClientProperties())
        try:
            await run(wire)
        finally:
            await wire.close()

    async def play() -> None:
        async with asyncio.timeout(60), scripted_cluster(1) as cluster:
            await playing(cluster)

    monkeypatch.setattr(BrokerClient, "connect", admitted)
    began = time.monotonic()
    with pytest.raises(LoginRefused, match="wrong password") as failure:
        asyncio.run(play())
    assert failure.value.kind is FailureKind.AUTHENTICATION
    assert time.monotonic() - began < PATIENCE_S / 2


class LockedOut(Membership):
    """A member whose coordinator no longer admits it."""

    async def _home(self) -> int:
        raise LoginRefused("wrong password", where="broker 0")


@pytest.mark.parametrize(
    "act",
    [
        lambda member: member.join(),
        lambda member: member.heartbeat(),
        lambda member: member.commit({TopicPartition("t", 0): 1}),
    ],
)
def test_a_member_of_a_group_does_not_try_again(act: Callable[[Membership], Awaitable[object]]) -> None:
    async def playing() -> None:
        member = LockedOut(WireCluster([("127.0.0.1", 1)]), "g", ["t"], give_up_s=PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S / 2):
            await act(member)

    with pytest.raises(LoginRefused):
        asyncio.run(playing())


def test_a_reader_hands_the_refusal_on() -> None:
    lost: list[int] = []
    failures: list[Exception] = []

    async def read(_: int) -> None:
        raise LoginRefused("wrong password")

    async def fail(error: Exception) -> None:
        failures.append(error)

    async def playing() -> None:
        readers = LeaderReaders("test", read=read, lose=lost.append, fail=fail, observe=lambda _: None)
        readers.start([0])
        while not (failures or lost):
            await asyncio.sleep(0)
        await readers.stop()

    asyncio.run(playing())
    assert [str(failure) for failure in failures] == ["wrong password"]
    assert lost == []
