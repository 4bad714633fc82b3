"""The metadata cache: what updates merge, replace and remove."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
from replicated_brokers import StandInBroker, world
from virtual_time import in_virtual_time, run_virtual

from engine.broker.handlers.update_metadata import update_metadata
from engine.broker.replication.metadata_cache import MetadataCache, names_many
from engine.common.errors import KafkaError
from engine.common.model import LEADER_DURING_DELETE, Node, TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from engine.runtime.turns import TURNS_BETWEEN_FREEZES

ID_A, ID_B = bytes(15) + b"\x0a", bytes(15) + b"\x0b"


def state(index: int, leader: int = 1, **fields: Any) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(partition_index=index, leader=leader, isr=[1, 2], replicas=[1, 2], **fields)


def topic(name: str, topic_id: bytes, *states: UpdateMetadataPartitionState) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=list(states))


def broker(broker_id: int, **ports: int) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker_id,
        endpoints=[
            UpdateMetadataEndpoint(host=f"host-{broker_id}", port=port, listener=listener, security_protocol=0)
            for listener, port in ports.items()
        ],
        rack=f"rack-{broker_id}",
    )


def updated(cache: MetadataCache, *topics: UpdateMetadataTopicState, **fields: Any) -> list[TopicPartition]:
    request = UpdateMetadataRequest(controller_id=fields.pop("controller_id", 1), topic_states=list(topics), **fields)
    return cache.update(request, correlation_id=1)


@pytest.mark.parametrize("grown", ["topics", "brokers", "endpoints"])
def test_whatever_an_update_names_very_often_is_taken_in_steps(grown: str) -> None:
    """200,000 endpoints of one broker held the loop for 0.4 s of CPU, as many empty topics for 0.1."""
    many = 3000
    topics = [topic(f"t-{n}", n.to_bytes(16, "big")) for n in range(many if grown == "topics" else 1)]
    brokers = [broker(n, PLAINTEXT=n) for n in range(many if grown == "brokers" else 1)]
    if grown == "endpoints":
        brokers[0] = broker(0, **{f"L{n}": n for n in range(many)})
    request = UpdateMetadataRequest(controller_id=1, topic_states=topics, live_brokers=brokers)
    assert names_many(request, {})
    cache = MetadataCache(1)
    steps = sum(1 for _ in cache._steps(request, 1))
    assert steps >= many / 100 and len(cache.alive_brokers) == len(brokers)


@pytest.mark.parametrize("grown", ["brokers", "endpoints"])
def test_very_many_brokers_and_endpoints_are_freed_in_steps(grown: str) -> None:
    """A small request that replaced 200,000 brokers held the loop for 65 ms of CPU, 100,000 endpoints for 45."""
    cache, many = MetadataCache(1), 3000
    known = [broker(n, PLAINTEXT=n) for n in range(many)]
    if grown == "endpoints":
        known = [broker(0, **{f"L{n}": n for n in range(many)})]
    cache.update(UpdateMetadataRequest(live_brokers=known), correlation_id=1)
    request = UpdateMetadataRequest(live_brokers=[broker(1, PLAINTEXT=1)])
    assert names_many(request, cache.alive_brokers) and not names_many(request, {})
    del known
    blocks = [sys.getallocatedblocks()]
    blocks += [sys.getallocatedblocks() for _ in cache._steps(request, 1)]
    assert blocks[0] - blocks[-1] > 2 * many
    assert max(before - after for before, after in itertools.pairwise(blocks)) < many / 10


def test_what_replaces_very_many_brokers_takes_steps_before_it_is_seen() -> None:
    """To set aside 200,000 addresses at once held the loop for 36 ms of CPU."""
    cache = MetadataCache(1)
    updated(cache, live_brokers=[broker(0, **{f"listener{number}": number for number in range(1000)})])
    before = cache.snapshot
    small = UpdateMetadataRequest(controller_id=1, live_brokers=[broker(0, plain=1)])
    assert sum(cache.snapshot is before for _ in cache._steps(small, 1)) >= 10


def test_before_the_first_update_nothing_is_known() -> None:
    cache = MetadataCache(1)
    assert (cache.controller_id, dict(cache.alive_brokers), list(cache.topics)) == (None, {}, [])
    assert cache.topic_id("a") == ZERO_TOPIC_ID
    assert cache.node(1, "PLAINTEXT") is None


def test_partitions_are_merged_and_brokers_replaced() -> None:
    cache = MetadataCache(1)
    updated(cache, topic("a", ID_A, state(0), state(1)), live_brokers=[broker(1, PLAINTEXT=1), broker(2, PLAINTEXT=2)])
    updated(cache, topic("a", ID_A, state(1, leader=2)), topic("b", ID_B, state(0)), live_brokers=[broker(2, SSL=3)])
    assert {i: p.leader for i, p in cache.partitions("a").items()} == {0: 1, 1: 2}
    assert set(cache.topics) == {"a", "b"}
    assert not cache.has_alive_broker(1)
    assert cache.node(2, "SSL") == Node(2, "host-2", 3, "rack-2")
    assert cache.node(2, "PLAINTEXT") is None
    assert (cache.topic_name(ID_B), cache.topic_id("a")) == ("b", ID_A)


def test_leader_minus_two_takes_partitions_out_and_the_last_one_its_topic() -> None:
    cache = MetadataCache(1)
    updated(cache, topic("a", ID_A, state(0), state(1)))
    assert updated(cache, topic("a", ID_A, state(0, leader=LEADER_DURING_DELETE))) == [TopicPartition("a", 0)]
    assert cache.contains(TopicPartition("a", 1))
    assert updated(cache, topic("a", ID_A, state(1, leader=LEADER_DURING_DELETE))) == [TopicPartition("a", 1)]
    assert list(cache.topics) == []
    assert cache.topic_name(ID_A) is None
    assert cache.topic_id("a") == ZERO_TOPIC_ID


def test_a_topic_that_comes_again_has_its_new_id() -> None:
    cache = MetadataCache(1)
    updated(cache, topic("a", ID_A, state(0)))
    updated(cache, topic("a", ID_B, state(0)))
    assert (cache.topic_id("a"), cache.topic_name(ID_A), cache.topic_name(ID_B)) == (ID_B, None, "a")
    updated(cache, topic("a", ZERO_TOPIC_ID, state(0)))
    assert (cache.topic_id("a"), cache.topic_name(ID_B)) == (ZERO_TOPIC_ID, None)


def test_an_update_without_partitions_keeps_them() -> None:
    cache = MetadataCache(1)
    updated(cache, topic("a", ID_A, state(0)), live_brokers=[broker(1, PLAINTEXT=1)])
    before = cache.snapshot
    updated(cache, live_brokers=[broker(1, PLAINTEXT=1), broker(2, PLAINTEXT=2)], controller_id=-1)
    assert cache.contains(TopicPartition("a", 0))
    assert cache.controller_id is None
    assert set(cache.alive_brokers) == {1, 2}
    assert set(before.brokers) == {1}, "a snapshot that somebody holds does not change"


def test_who_holds_a_snapshot_sees_no_later_partition() -> None:
    cache = MetadataCache(1)
    updated(cache, topic("a", ID_A, state(0)))
    before = cache.snapshot
    updated(cache, topic("a", ID_A, state(0, leader=2), state(1)))
    assert {i: p.leader for i, p in before.topics["a"].items()} == {0: 1}


def test_old_versions_have_ungrouped_partitions_and_no_listener_names() -> None:
    cache = MetadataCache(1)
    old = UpdateMetadataRequest(
        ungrouped_partition_states=[state(0, topic_name="a")],
        live_brokers=[
            UpdateMetadataBroker(id=1, v0_host="old", v0_port=9092),
            UpdateMetadataBroker(id=2, endpoints=[UpdateMetadataEndpoint(host="h", port=1, security_protocol=1)]),
        ],
    )
    cache.update(old, correlation_id=1)
    assert cache.contains(TopicPartition("a", 0))
    assert cache.node(1, "PLAINTEXT") == Node(1, "old", 9092)
    assert cache.node(2, "SSL") == Node(2, "h", 1)


def test_an_unknown_protocol_refuses_the_whole_update() -> None:
    cache = MetadataCache(0)
    unknown = UpdateMetadataBroker(id=2, endpoints=[UpdateMetadataEndpoint(host="h", port=1, security_protocol=7)])
    with pytest.raises(KafkaError, match="broker 2: 7 is not"):
        cache.update(UpdateMetadataRequest(live_brokers=[broker(1, PLAINTEXT=9092), unknown]), correlation_id=1)
    assert cache.node(1, "PLAINTEXT") is None


def test_listeners_are_told_after_the_change() -> None:
    cache = MetadataCache(1)
    seen: list[list[str]] = []
    cache.update_listeners.append(lambda: seen.append(list(cache.topics)))
    updated(cache, topic("a", ID_A, state(0)))
    assert seen == [["a"]]


def test_an_update_of_many_partitions_gives_way_and_is_seen_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes meanwhile waits for it, and nothing of either is lost."""
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    many = [topic(f"t-{n}", n.to_bytes(16, "big"), *(state(index) for index in range(60))) for n in range(1, 21)]

    async def test() -> None:
        async with world(tmp_path, 1) as w:
            broker = w.brokers[1]
            updated(broker.metadata_cache, topic("a", ID_A, state(0)), many[0])
            before = broker.metadata_cache.snapshot
            taking_over = asyncio.ensure_future(sent(broker, *many))
            await asyncio.sleep(0)
            assert broker.replica_manager.is_updating_metadata
            following = asyncio.ensure_future(sent(broker, topic("t-1", bytes(15) + b"\x01", state(0, leader=2))))
            turns = 0
            while broker.metadata_cache.snapshot is before:
                turns += 1
                await asyncio.sleep(0)
            await asyncio.gather(taking_over, following)
            assert turns >= 5
            assert len(before.topics) == 2
            cache = broker.metadata_cache
            assert sorted(cache.topics) == sorted(["a", *(topic.topic_name for topic in many)])
            assert {cache.topic_name(topic.topic_id) for topic in many} == {topic.topic_name for topic in many}
            assert [cache.partitions("t-1")[index].leader for index in (0, 1)] == [2, 1]
            assert all(len(cache.partitions(topic.topic_name)) == 60 for topic in many)
            assert not broker.replica_manager.is_updating_metadata

    run_virtual(test)


@in_virtual_time
async def test_what_a_large_update_makes_is_left_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector took hundreds of milliseconds to scan what a broker knows of 200,000 partitions."""
    freezes = 0

    def note() -> None:
        nonlocal freezes
        freezes += 1

    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    monkeypatch.setattr("engine.runtime.turns.leave_uncollected", note)
    steps = 2 * TURNS_BETWEEN_FREEZES
    async with world(tmp_path, 1) as w:
        # A turn for each hundred partitions, and for each topic that is replaced.
        await sent(w.brokers[1], topic("small", ID_A, *(state(index) for index in range(300))))
        assert freezes == 0
        await sent(w.brokers[1], topic("large", bytes(range(16)), *(state(p) for p in range(100 * steps))))
        assert freezes == 2


def test_very_many_brokers_and_topics_are_learned_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 brokers used to block everybody for 100 ms. Updates behind them wait."""
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)

    async def turns_of(member: StandInBroker, request: UpdateMetadataRequest) -> int:
        answer = update_metadata(member.context(ApiKey.UPDATE_METADATA, 8), request)
        if not inspect.isawaitable(answer):
            return 0
        task, turns = asyncio.ensure_future(answer), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    async def test() -> None:
        async with world(tmp_path, 1) as w:
            member, cache = w.brokers[1], w.brokers[1].metadata_cache
            live = [broker(number, A=number) for number in range(2000)]
            request = UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=-1, live_brokers=live)
            # A turn for each hundred of them as brokers, and for their listeners.
            assert await turns_of(member, request) >= 40
            assert list(cache.alive_brokers) == list(range(2000))
            assert cache.node(1999, "A") == Node(1999, "host-1999", 1999, "rack-1999")
            topics = [topic(f"t{number}", number.to_bytes(16, "big"), state(0)) for number in range(1, 2001)]
            named = UpdateMetadataRequest(
                controller_id=1, controller_epoch=1, broker_epoch=-1, live_brokers=live[:3], topic_states=topics
            )
            # Turns for their ids, their partitions, the topics, and what these replace.
            assert await turns_of(member, named) >= 20 + 20 + 20 + 2000
            assert cache.topic_name((2000).to_bytes(16, "big")) == "t2000"

    run_virtual(test)


async def sent(broker: StandInBroker, *topics: UpdateMetadataTopicState) -> Any:
    """Send a controller's request; return the broker's answer."""
    request = UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=list(topics))
    answer = update_metadata(broker.context(ApiKey.UPDATE_METADATA, 8), request)
    return await answer if inspect.isawaitable(answer) else answer
