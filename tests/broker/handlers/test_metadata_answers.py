"""Metadata answers share what they say of a topic, and never say what has changed since."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from event_loop import in_event_loop

from engine.broker.handlers.authorized_operations import NOT_REQUESTED, TOPIC_OPERATIONS
from engine.broker.handlers.metadata import metadata, once_known
from engine.broker.handlers.registry import all_handlers
from engine.broker.network.request import LargeAnswer
from engine.broker.replication.metadata_cache import MetadataCache
from engine.common.errors import ErrorCode
from engine.common.model import LEADER_DURING_DELETE
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from engine.kafka.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from engine.kafka.protocol.frames import decode_response, encode_response

ALL = (0, 1, 2)


def broker(broker_id: int) -> UpdateMetadataBroker:
    endpoint = UpdateMetadataEndpoint(host="127.0.0.1", port=9092 + broker_id, listener="PLAINTEXT")
    return UpdateMetadataBroker(id=broker_id, endpoints=[endpoint])


def state(
    topic: str, partition: int, leader: int, isr: tuple[int, ...], epoch: int = 0
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        topic_name=topic,
        partition_index=partition,
        leader=leader,
        leader_epoch=epoch,
        isr=list(isr),
        replicas=list(ALL),
        controller_epoch=1,
    )


def tell(
    cache: MetadataCache, *states: UpdateMetadataPartitionState, brokers: tuple[int, ...] = ALL, topic_id: int = 1
) -> None:
    by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
    for each in states:
        by_topic.setdefault(each.topic_name, []).append(each)
    topics = [
        UpdateMetadataTopicState(topic_name=t, topic_id=bytes([topic_id]) * 15 + t.encode(), partition_states=parts)
        for t, parts in by_topic.items()
    ]
    cache.update(
        UpdateMetadataRequest(
            controller_id=0, controller_epoch=1, topic_states=topics, live_brokers=[broker(b) for b in brokers]
        ),
        1,
    )


def ask(cache: MetadataCache, version: int = 12) -> dict[str | None, MetadataResponseTopic]:
    parts = SimpleNamespace(metadata_cache=cache, cluster_id="c")
    context: Any = SimpleNamespace(
        api_version=version, size_bytes=0, broker=parts, session=SimpleNamespace(listener_name="PLAINTEXT")
    )
    answer = metadata(context, MetadataRequest(topics=[] if version == 0 else None))
    assert isinstance(answer, MetadataResponse)
    return {topic.name: topic for topic in answer.topics}


@pytest.mark.parametrize("version", [0, 12])
def test_very_many_partitions_are_described_in_turns(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks run in between.

    Topics that change meanwhile are described as changed, and deleted ones are left out.
    """
    cache = MetadataCache(0)
    tell(cache, *(state(topic, n, 0, ALL) for topic in "abcd" for n in range(3)))
    at_once = ask(cache, version)
    monkeypatch.setattr("engine.broker.handlers.metadata.PARTITIONS_AT_ONCE", 5)
    parts = SimpleNamespace(metadata_cache=cache, cluster_id="c")
    context: Any = SimpleNamespace(
        api_version=version, size_bytes=0, broker=parts, session=SimpleNamespace(listener_name="PLAINTEXT")
    )
    request = MetadataRequest(topics=[] if version == 0 else None)

    async def answered(*between: UpdateMetadataPartitionState) -> dict[str | None, MetadataResponseTopic]:
        answer: Any = metadata(context, request)
        asking = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        assert not asking.done(), "a turn for others"
        if between:
            tell(cache, *between)
        large = await asking
        assert isinstance(large, LargeAnswer)
        return {topic.name: topic for topic in large.response.topics}

    assert asyncio.run(answered()) == at_once
    gone = [state("a", n, LEADER_DURING_DELETE, ALL) for n in range(3)]
    response = asyncio.run(answered(*gone, state("b", 1, 2, ALL, epoch=7)))
    assert set(response) == set("bcd")
    assert response["b"].partitions[1].leader_id == 2


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_version_12_refuse_the_whole_request(version: int) -> None:
    cache = cache_of_two_topics()
    topic_id = cache.topic_id("a")
    parts = SimpleNamespace(metadata_cache=cache, cluster_id="c")
    context: Any = SimpleNamespace(
        api_version=version, size_bytes=0, broker=parts, session=SimpleNamespace(listener_name="PLAINTEXT")
    )
    topics = [MetadataRequestTopic(topic_id=topic_id, name=None), MetadataRequestTopic(name="b")]
    answer = metadata(context, MetadataRequest(topics=topics))
    encoded = encode_response(answer, ApiKey.METADATA, version, 1)
    _, decoded = decode_response(bytes(encoded)[4:], ApiKey.METADATA, version)
    assert [(t.error_code, t.name, t.topic_id) for t in decoded.topics] == [
        (ErrorCode.INVALID_REQUEST, "", topic_id),
        (ErrorCode.INVALID_REQUEST, "b", ZERO_TOPIC_ID),
    ]
    assert (decoded.brokers, decoded.controller_id) == ([], -1)


def test_each_unknown_id_is_answered_once() -> None:
    cache = cache_of_two_topics()
    parts = SimpleNamespace(
        metadata_cache=cache, cluster_id="c", config=SimpleNamespace(auto_create_topics_enable=False)
    )
    context: Any = SimpleNamespace(
        api_version=12, size_bytes=0, broker=parts, session=SimpleNamespace(listener_name="PLAINTEXT")
    )
    ids = [b"?" * 16, cache.topic_id("b"), b"?" * 16]
    answer: Any = metadata(context, MetadataRequest(topics=[MetadataRequestTopic(topic_id=i, name=None) for i in ids]))
    assert [(t.error_code, t.name) for t in answer.topics] == [(0, "b"), (ErrorCode.UNKNOWN_TOPIC_ID, None)]


@pytest.mark.parametrize("at_once", [5, 2], ids=["at once", "in pieces"])
@in_event_loop
async def test_names_beside_ids_are_ignored(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.broker.handlers.metadata.TOPICS_AT_ONCE", at_once)
    cache = cache_of_two_topics()
    config = SimpleNamespace(auto_create_topics_enable=False)
    context: Any = SimpleNamespace(
        api_version=12,
        size_bytes=0,
        broker=SimpleNamespace(metadata_cache=cache, cluster_id="c", config=config),
        session=SimpleNamespace(listener_name="PLAINTEXT"),
    )
    topics = [MetadataRequestTopic(name=name) for name in ("a", "nowhere", "")]
    topics.append(MetadataRequestTopic(topic_id=cache.topic_id("b"), name="a"))
    answer: Any = metadata(context, MetadataRequest(topics=topics))
    response = (await answer).response if at_once == 2 else answer
    assert [(t.error_code, t.name) for t in response.topics] == [(0, "b")]


def cache_of_two_topics() -> MetadataCache:
    cache = MetadataCache(0)
    tell(cache, state("a", 0, 2, ALL), state("a", 1, 1, ALL), state("b", 0, 0, ALL))
    return cache


def test_only_a_topic_that_changed_is_described_anew() -> None:
    cache = cache_of_two_topics()
    before = ask(cache)
    assert ask(cache)["a"] is before["a"]
    tell(cache, state("a", 1, 1, (1, 2)))
    after = ask(cache)
    assert after["a"].partitions[1].isr_nodes == [1, 2]
    assert after["b"] is before["b"]


def test_a_leader_that_died_is_told_by_every_topic() -> None:
    cache = cache_of_two_topics()
    assert ask(cache)["a"].partitions[0].leader_id == 2
    tell(cache, brokers=(0, 1))
    partition = ask(cache)["a"].partitions[0]
    assert (partition.leader_id, partition.offline_replicas) == (-1, [])
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_who_is_offline_is_the_controllers_word() -> None:
    """As Kafka 3.9.1 (ZkMetadataCache): a replica is not offline because its broker lacks the client's listener."""
    cache = MetadataCache(0)
    offline = state("a", 0, 0, (0, 1))
    offline.offline_replicas = [2]
    tell(cache, offline)
    assert ask(cache)["a"].partitions[0].offline_replicas == [2]
    parts = SimpleNamespace(metadata_cache=cache, cluster_id="c")
    context: Any = SimpleNamespace(api_version=12, broker=parts, session=SimpleNamespace(listener_name="NEW"))
    answer: Any = metadata(context, MetadataRequest(topics=None))
    partition = answer.topics[0].partitions[0]
    assert (partition.offline_replicas, partition.error_code) == ([2], ErrorCode.LISTENER_NOT_FOUND)


def test_versions_that_tell_something_else_share_nothing() -> None:
    cache = cache_of_two_topics()
    tell(cache, brokers=(0, 1))
    assert ask(cache, 12)["b"].partitions[0].replica_nodes == [0, 1, 2]
    of_oldest = ask(cache, 0)["b"].partitions[0]
    assert of_oldest.replica_nodes == [0, 1]
    assert of_oldest.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert ask(cache, 1)["b"].partitions[0].replica_nodes == [0, 1, 2]
    assert ask(cache, 1)["b"] is ask(cache, 5)["b"]
    assert ask(cache, 5)["b"] is not ask(cache, 6)["b"]


def test_a_topic_made_again_under_its_name_is_another() -> None:
    cache = cache_of_two_topics()
    earlier = ask(cache)["b"].topic_id
    tell(cache, state("b", 0, -2, ALL))
    assert "b" not in ask(cache)
    assert not [key for key in cache.derived if "b" in str(key)]
    tell(cache, state("b", 0, 1, ALL), topic_id=2)
    again = ask(cache)["b"]
    assert again.topic_id != earlier
    assert again.partitions[0].leader_id == 1


@pytest.mark.parametrize("version", [8, 12])
@in_event_loop
async def test_very_many_names_are_answered_piece_by_piece(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name is answered once, wherever it is, and other tasks have their turn in between."""
    cache = MetadataCache(0)
    tell(cache, *(state(topic, 0, 0, ALL) for topic in "abc"))
    names = ["a", *(f"nowhere-{n}" for n in range(8)), "b", "a"]
    monkeypatch.setattr("engine.broker.handlers.metadata.TOPICS_AT_ONCE", 4)
    config = SimpleNamespace(auto_create_topics_enable=False)
    parts = SimpleNamespace(metadata_cache=cache, cluster_id="c", config=config)
    context: Any = SimpleNamespace(
        api_version=version, size_bytes=0, broker=parts, session=SimpleNamespace(listener_name="PLAINTEXT")
    )
    answer: Any = metadata(context, MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]))
    asking = asyncio.ensure_future(answer)
    await asyncio.sleep(0)
    assert not asking.done(), "a turn for others"
    large = await asking
    assert isinstance(large, LargeAnswer)
    assert [topic.name for topic in large.response.topics] == names[:-1]
    errors = {topic.name: topic.error_code for topic in large.response.topics}
    assert (errors["a"], errors["b"]) == (ErrorCode.NONE, ErrorCode.NONE)
    assert errors["nowhere-3"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [node.node_id for node in large.response.brokers] == list(ALL)


@pytest.mark.parametrize("wants", [True, False])
def test_operations_are_told_of_names_without_a_topic_too(wants: bool) -> None:
    """Kafka 3.9.1 does the same: a client may have rights to a topic that is not there yet."""
    config = SimpleNamespace(auto_create_topics_enable=False)
    parts = SimpleNamespace(metadata_cache=cache_of_two_topics(), cluster_id="c", config=config)
    context: Any = SimpleNamespace(
        api_version=12, size_bytes=0, broker=parts, session=SimpleNamespace(listener_name="PLAINTEXT")
    )

    def told(*topics: MetadataRequestTopic) -> list[int]:
        request = MetadataRequest(topics=list(topics), include_topic_authorized_operations=wants)
        answer: Any = metadata(context, request)
        return [topic.topic_authorized_operations for topic in answer.topics]

    named = told(MetadataRequestTopic(name="a"), MetadataRequestTopic(name="none"))
    assert named == [TOPIC_OPERATIONS if wants else NOT_REQUESTED] * 2
    assert told(MetadataRequestTopic(name=None, topic_id=b"?" * 16)) == [NOT_REQUESTED]


NEED_THE_CLUSTER = (ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("key", NEED_THE_CLUSTER)
def test_nobody_is_told_of_no_brokers_before_a_controller_has_named_them(key: ApiKey, is_large: bool) -> None:
    """librdkafka closes all its connections then. Who has to decide about the request decides after the wait."""
    passed: list[object] = []

    @in_event_loop
    async def test() -> None:
        cache = MetadataCache(0)
        context: Any = SimpleNamespace(broker=SimpleNamespace(metadata_cache=cache))

        def handle(_: object, request: object) -> object:
            passed.append(request)
            return request

        spec = once_known(replace(all_handlers()[key], handler=handle, large_handler=handle))
        handler: Any = spec.large_handler if is_large else spec.handler
        asking = asyncio.ensure_future(handler(context, "early"))
        await asyncio.sleep(0.01)
        assert not asking.done() and passed == []
        tell(cache)
        assert await asking == "early"
        assert handler(context, "late") == "late"

    test()


@pytest.mark.parametrize("leader", [0, LEADER_DURING_DELETE])
def test_a_broker_with_replicas_tells_nobody_that_there_are_no_topics(leader: int) -> None:
    """A controller that takes over names the brokers first. Some clients give up what they have for a topic then."""

    @in_event_loop
    async def test() -> None:
        cache = MetadataCache(0)
        cache.expects_topics = True
        tell(cache)
        assert not cache.known.is_set()
        tell(cache, state("a", 0, leader, ALL))
        assert cache.known.is_set(), "also if the only topic is being deleted"

    test()


def test_others_do_not_wait_until_the_cluster_is_known() -> None:
    others = [spec for key, spec in all_handlers().items() if key not in NEED_THE_CLUSTER]
    assert others and all(once_known(spec) is spec for spec in others)
