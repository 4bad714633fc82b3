"""Members of a group that rebalances: nothing that one of them has processed is read again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from event_loop import until

from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.errors import Unknown, Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.values import CommittedOffset, GroupOffsets
from engine.admin.records import group_consume
from engine.admin.records.group_consume import GroupConsumer
from engine.admin.records.positions import ConsumeOptions
from engine.common.errors import ErrorCode
from engine.common.model import EARLIEST_TIMESTAMP, TopicPartition
from engine.local.cluster import LocalCluster

COUNT = 20
NAME, OTHER = (TopicPartition("t", index) for index in range(2))
MOVING, REFUSED = map(Unknown.of_code, (ErrorCode.NOT_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED))


class Member:
    """Reads a topic for a group, and keeps the offset of each record."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self.told: list[str] = []
        self.read: list[tuple[int, int]] = []

    async def run(self) -> None:
        host, _, port = self._servers.partition(",")[0].rpartition(":")
        wire = WireCluster([(host, int(port))], properties=ClientProperties())
        options = ConsumeOptions(offset=EARLIEST_TIMESTAMP)
        tell = self.told.append
        consumer = GroupConsumer(wire, self._topic, [self._topic], options, observe=tell, complain=tell)
        try:
            async with aclosing(consumer.batches()) as batches:
                async for some in batches:
                    self.read += [(record.partition, record.record.offset) for record in some.records]
                    consumer.took(some.name, some.next_offset)
        finally:
            await wire.close()


def test_what_was_dealt_with_is_not_read_again_when_a_member_joins(live_cluster: LocalCluster, topic_name: str) -> None:
    servers = live_cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic_name, 2, 1)])[topic_name].result(30)

    async def scene() -> None:
        first, second = Member(servers, topic_name), Member(servers, topic_name)
        send(servers, topic_name)
        running = asyncio.create_task(first.run())
        await until(lambda: len(first.read) == 2 * COUNT)
        # It has sent nothing to the group since. Its next heartbeat reports that another one joins.
        two = asyncio.create_task(second.run())
        await until(lambda: any("joined" in told for told in second.told))
        send(servers, topic_name)
        await until(lambda: len({*first.read, *second.read}) == 4 * COUNT)
        for task in (running, two):
            task.cancel()
        await asyncio.gather(running, two, return_exceptions=True)
        assert second.read
        assert len(first.read) + len(second.read) == 4 * COUNT

    asyncio.run(asyncio.wait_for(scene(), 90))


def test_a_member_without_partitions_waits_and_joins_no_more(live_cluster: LocalCluster, topic_name: str) -> None:
    servers = live_cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(30)

    async def scene() -> None:
        members, shares = [Member(servers, topic_name) for _ in range(2)], {"0 partitions", "1 partition"}
        running = [asyncio.create_task(member.run()) for member in members]

        def joined(member: Member) -> list[str]:
            return [text for text in member.told if text.startswith("joined")]

        await until(lambda: {told.split(" with ")[1] for m in members for told in joined(m)[-1:]} == shares)
        counts = [len(joined(member)) for member in members]
        # Longer than a heartbeat takes.
        await asyncio.sleep(4)
        assert [len(joined(member)) for member in members] == counts
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scene(), 90))


def test_a_topic_that_is_created_again_is_read_by_its_group(live_cluster: LocalCluster, topic_name: str) -> None:
    servers = live_cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(topic_name, 2, 1)
    admin.create_topics([new])[topic_name].result(30)

    async def scene() -> None:
        member = Member(servers, topic_name)
        send(servers, topic_name)
        running = asyncio.create_task(member.run())
        await until(lambda: len(member.read) == 2 * COUNT)
        admin.delete_topics([topic_name])[topic_name].result(30)
        await until(lambda: any("does not exist any more" in told for told in member.told))
        admin.create_topics([new])[topic_name].result(30)
        send(servers, topic_name)
        await until(lambda: len(member.read) == 4 * COUNT or running.done())
        assert sorted(member.read[2 * COUNT :]) == [(partition, n) for partition in (0, 1) for n in range(COUNT)]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scene(), 90))


def test_no_offset_of_a_topic_that_is_gone_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the same name may be there by now, and its records would be passed over."""
    gone, kept = TopicPartition("gone", 0), TopicPartition("kept", 0)
    consumer = GroupConsumer(cast("Any", None), "g", ["gone", "kept"], ConsumeOptions())
    committed: list[dict[TopicPartition, int]] = []

    async def commit(offsets: Mapping[TopicPartition, int]) -> bool:
        committed.append(dict(offsets))
        return True

    monkeypatch.setattr(consumer._membership, "commit", commit)
    monkeypatch.setattr(consumer, "_starts", {gone: 4, kept: 1})
    consumer.took(gone, 9)
    asyncio.run(consumer._commit())
    monkeypatch.setattr(consumer, "_is_gone", {"gone"}.__contains__)
    asyncio.run(consumer._commit())
    assert committed == [{gone: 9, kept: 1}, {kept: 1}]


@pytest.mark.parametrize(
    ("answers", "has_moved", "give_up_s", "ended"),
    [
        ([MOVING, MOVING, {NAME: CommittedOffset(7)}], False, math.inf, None),
        ([MOVING, {NAME: CommittedOffset(7)}], True, math.inf, None),
        ([MOVING], False, 0.0, "offsets are not known: NOT_COORDINATOR"),
        ([REFUSED], False, math.inf, "offsets are not known: GROUP_AUTHORIZATION_FAILED"),
    ],
)
def test_offsets_that_are_unknown_while_the_coordinator_moves_are_asked_for_again(
    answers: list[Unknown | GroupOffsets],
    has_moved: bool,
    give_up_s: float,
    ended: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    left, shares = iter(answers), iter(([NAME, OTHER], [NAME]))
    options = ConsumeOptions(give_up_s=give_up_s)
    consumer = GroupConsumer(cast("Any", None), "g", ["t"], options, complain=told.append)

    async def committed(*_: object) -> dict[str, Unknown | GroupOffsets]:
        return {"g": next(left)}

    async def join() -> list[TopicPartition]:
        return next(shares)

    async def heartbeat() -> bool:
        return not has_moved

    monkeypatch.setattr(group_consume, "committed_offsets", committed)
    monkeypatch.setattr(group_consume, "RETRY_PAUSE_S", 0.0)
    monkeypatch.setattr(consumer._membership, "join", join)
    monkeypatch.setattr(consumer._membership, "heartbeat", heartbeat)
    if ended is not None:
        with pytest.raises(Unreachable, match=ended):
            asyncio.run(consumer._share())
        return
    mine, offsets = asyncio.run(consumer._share())
    assert (mine, offsets) == (frozenset({NAME} if has_moved else {NAME, OTHER}), answers[-1])
    assert told == ["waiting for the committed offsets of group g: NOT_COORDINATOR"]


def send(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(COUNT):
        for partition in (0, 1):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(30) == 0
