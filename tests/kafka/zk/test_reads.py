"""Reads that every subject shares, and how tools and brokers read the same znodes; against a real ZooKeeper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from event_loop import in_event_loop

from engine.admin.cluster.zookeeper import read_brokers
from engine.common.model import TopicPartition
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.consumers import is_group_znode_name
from engine.kafka.zk.errors import NoAuth, NoNode, ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.operations import Acl, ZnodeStat
from engine.kafka.zk.reads import children_or_empty, decoded, or_raise, read_znode, wait_until_gone

Connect = Callable[..., AbstractAsyncContextManager[ZkClient]]
STAT = ZnodeStat(*range(11))
READ_ONLY = (Acl(1, "world", "anyone"),)
NOBODY = (Acl(2, "world", "anyone"),)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def number(data: bytes, stat: ZnodeStat) -> tuple[int, int]:
    if not data.isdigit():
        raise ZnodeFormatError("/n", "not a number")
    return int(data), stat.version


def test_an_answer_is_a_value_whatever_it_is() -> None:
    assert decoded((b"7", STAT), number) == (7, STAT.version)
    assert decoded(NoNode(path="/n"), number) is None
    refused = NoAuth(path="/n")
    assert decoded(refused, number) is refused
    assert isinstance(decoded((b"x", STAT), number), ZnodeFormatError)


def test_an_error_that_stands_for_a_value_is_raised() -> None:
    assert or_raise(7) == 7
    with pytest.raises(NoAuth):
        or_raise(NoAuth(path="/n"))


@in_event_loop
async def test_a_znode_that_may_be_missing(connect: Connect) -> None:
    async with connect() as client:
        assert await read_znode(client, "/n", number) is None
        assert await children_or_empty(client, "/n") == []
        await client.create("/n", b"7")
        await client.set("/n", b"8")
        await client.create("/n/child")
        assert await read_znode(client, "/n", number) == (8, 1)
        assert await children_or_empty(client, "/n") == ["child"]
        await client.set("/n", b"x")
        with pytest.raises(ZnodeFormatError):
            await read_znode(client, "/n", number)


@in_event_loop
async def test_waiting_until_a_znode_is_gone(connect: Connect) -> None:
    async with connect() as client:
        assert await wait_until_gone(client, "/n", 10)
        await client.create("/n")
        assert not await wait_until_gone(client, "/n", 0.05)
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(wait_until_gone(client, "/n", 60))
            await client.set("/n", b"still there")
            await client.delete("/n")
        assert waiting.result()
        assert time.monotonic() - started < 30


def test_a_damaged_registration_is_a_value_for_who_asks_and_left_out_for_a_broker(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    good = b'{"version":4,"endpoints":["PLAINTEXT://h:1"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}'

    async def run() -> None:
        async with connect() as client:
            kafka = KafkaZkClient(client)
            assert await kafka.brokers.read_broker_registrations() == {}
            await client.ensure_path("/brokers/ids")
            await client.create("/brokers/ids/2", good)
            await client.create("/brokers/ids/10", good)
            await client.create("/brokers/ids/not-a-broker", good)
            await client.create("/brokers/ids/3", good, acl=NOBODY)
            read = await kafka.brokers.read_broker_registrations()
            assert list(read) == [2, 3, 10]
            assert isinstance(read[3], NoAuth)
            with pytest.raises(NoAuth):
                await kafka.brokers.get_broker_registrations()
            # A tool lists the brokers that it may look at.
            assert [broker.broker.id for broker in await read_brokers(client)] == [2, 10]
            await client.delete("/brokers/ids/3")
            await client.set("/brokers/ids/10", b"{")
            assert isinstance((await kafka.brokers.read_broker_registrations())[10], ZnodeFormatError)
            with pytest.raises(ZnodeFormatError, match="/brokers/ids/10"):
                await read_brokers(client)
            assert list(await kafka.brokers.get_broker_registrations()) == [2]

    asyncio.run(run())
    assert "Leaving out a broker's registration" in caplog.text


@in_event_loop
async def test_when_topics_were_marked_for_deletion(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect() as client:
        kafka = KafkaZkClient(client)
        assert await kafka.admin.get_topic_deletion_times() == {}
        await client.ensure_path("/admin/delete_topics")
        await kafka.admin.create_topic_deletion("t")
        stat = await client.exists("/admin/delete_topics/t")
        assert stat is not None
        assert await kafka.admin.get_topic_deletion_times() == {"t": stat.ctime_ms}

        async def deleted_meanwhile(_: object) -> list[ZnodeStat | None]:
            return [None]

        monkeypatch.setattr(client, "exists_many", deleted_meanwhile)
        assert await kafka.admin.get_topic_deletion_times() == {}


@in_event_loop
async def test_offsets_of_groups_in_zookeeper(connect: Connect) -> None:
    async with connect() as client:
        kafka = KafkaZkClient(client)
        assert await kafka.consumers.set_or_create_consumer_offsets("g", {T0: 4, U0: 5}) == {T0: None, U0: None}
        assert await kafka.consumers.set_or_create_consumer_offsets("g", {T0: 6, T1: 7}) == {T0: None, T1: None}
        await client.set("/consumers/g/offsets/u/0", b"many")
        wanted = [("g", T0), ("g", T1), ("g", U0), ("h", T0)]
        read = await kafka.consumers.get_consumer_offsets(wanted)
        assert [read[key] for key in wanted if key != ("g", U0)] == [6, 7, None]
        assert isinstance(read["g", U0], ZnodeFormatError)


@in_event_loop
async def test_an_offset_whose_folder_cannot_be_made_fails_alone(connect: Connect) -> None:
    async with connect() as client:
        kafka = KafkaZkClient(client)
        await kafka.consumers.set_or_create_consumer_offsets("g", {T0: 1})
        await client.set_acl("/consumers/g/offsets", READ_ONLY)
        errors = await kafka.consumers.set_or_create_consumer_offsets("g", {T0: 2, U0: 4})
        assert errors[T0] is None
        assert isinstance(errors[U0], NoAuth)


@in_event_loop
async def test_an_offset_that_somebody_else_makes_meanwhile_is_written_all_the_same(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect() as client:
        kafka = KafkaZkClient(client)
        ensure_path = client.ensure_path

        async def overtaken(path: str, *rest: object) -> None:
            await ensure_path(path)
            await client.create(f"{path}/0", b"1")

        monkeypatch.setattr(client, "ensure_path", overtaken)
        assert await kafka.consumers.set_or_create_consumer_offsets("g", {T0: 9}) == {T0: None}
        assert await kafka.consumers.get_consumer_offsets([("g", T0)]) == {("g", T0): 9}


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a\0b"])
def test_groups_that_no_znode_can_be_named_after(group: str) -> None:
    assert not is_group_znode_name(group)
    assert is_group_znode_name("g.roup-1")
