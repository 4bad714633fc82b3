"""CreateTopics, CreatePartitions, DeleteTopics: answers by version, on a real ZooKeeper."""

from __future__ import annotations

import pytest
from controller_cluster import SmallCluster, cluster_of, eventually
from controller_requests import ask
from event_loop import staged
from network_serving import run

from engine.common.errors import ErrorCode
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.config.describe import ConfigSource
from engine.kafka.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from engine.kafka.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState


def wanted(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


@staged(run)
async def test_created_topics_are_described(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        broker = cluster.controller
        request = CreateTopicsRequest(topics=[wanted("t", 3, 2, retention_ms="5000")], timeout_ms=10_000)
        (result,) = (await ask(broker, request, 7)).topics
        assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
        assert (result.num_partitions, result.replication_factor) == (3, 2)
        assert result.topic_id == broker.metadata_cache.topic_id("t") != ZERO_TOPIC_ID
        configs = {config.name: config for config in result.configs}
        assert configs["retention.ms"].value == "5000"
        assert configs["retention.ms"].config_source == ConfigSource.TOPIC_CONFIG
        assert configs["segment.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
        assert len(broker.metadata_cache.partitions("t")) == 3
        old = CreateTopicsRequest(topics=[wanted("old")], timeout_ms=10_000)
        (result,) = (await ask(broker, old, 2)).topics
        assert result.error_code == 0
        manual = CreatableTopic(
            name="manual",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 0])],
        )
        (result,) = (await ask(broker, CreateTopicsRequest(topics=[manual], timeout_ms=10_000), 5)).topics
        assert result.error_code == 0
        assert broker.metadata_cache.partitions("manual")[0].replicas == (1, 0)


@staged(run)
async def test_given_replicas_count_in_any_order_and_the_last_of_a_partition(zk_chroot: str) -> None:
    cases = {
        "ordered": ([(0, 1), (1, 0)], [(1,), (0,)]),
        "backwards": ([(1, 1), (0, 0)], [(0,), (1,)]),
        "corrected": ([(0, 1), (1, 0), (0, 0)], [(0,), (0,)]),
        "corrected-later": ([(1, 0), (0, 0), (1, 1)], [(0,), (1,)]),
    }
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=p, broker_ids=[b]) for p, b in given],
        )
        for name, (given, _) in cases.items()
    ]
    async with cluster_of(zk_chroot, 2) as cluster:
        broker = cluster.controller
        results = (await ask(broker, CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)).topics
        assert [result.error_code for result in results] == [0] * 4
        for name, (_, expected) in cases.items():
            known = broker.metadata_cache.partitions(name)
            assert [known[partition].replicas for partition in range(2)] == expected


@staged(run)
async def test_topics_fail_each_for_itself(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        broker = cluster.controller
        topics = [
            wanted("good"),
            wanted("twice"),
            wanted("twice"),
            wanted("wide", 1, 5),
            wanted("__cluster_metadata"),
            wanted("bad name"),
            wanted("odd", 1, 1, nosuch_key="1"),
        ]
        response = await ask(broker, CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        assert [t.name for t in response.topics].count("twice") == 2
        errors = {t.name: (ErrorCode(t.error_code), t.error_message) for t in response.topics}
        assert errors == {
            "good": (ErrorCode.NONE, None),
            "twice": (ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic."),
            "wide": (
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor: 5 larger than available brokers: 1.",
            ),
            "__cluster_metadata": (
                ErrorCode.INVALID_REQUEST,
                "Creation of internal topic __cluster_metadata is prohibited.",
            ),
            "bad name": (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                "Topic name is invalid: 'bad name' contains one or more characters other than ASCII "
                "alphanumerics, '.', '_' and '-'",
            ),
            "odd": (ErrorCode.INVALID_CONFIG, "Unknown topic config name: nosuch.key"),
        }
        failed = [t for t in response.topics if t.error_code]
        assert all((t.num_partitions, t.replication_factor, t.configs) == (-1, -1, []) for t in failed)


@staged(run)
async def test_time_outs_and_validation(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        broker = cluster.controller
        validated = CreateTopicsRequest(topics=[wanted("v", 2)], timeout_ms=0, validate_only=True)
        (result,) = (await ask(broker, validated, 7)).topics
        assert (result.error_code, result.num_partitions, result.topic_id) == (0, 2, ZERO_TOPIC_ID)
        at_once = CreateTopicsRequest(topics=[wanted("now")], timeout_ms=0)
        (result,) = (await ask(broker, at_once, 7)).topics
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert result.topic_id != ZERO_TOPIC_ID
        await eventually(lambda: "now" in broker.metadata_cache.topics, "the topic comes all the same")
        assert await broker.zk.topics.get_all_topics() == ["now"]


@staged(run)
async def test_numbers_of_partitions_that_nothing_can_hold(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        broker = cluster.controller
        topics = [wanted("absurd", 2**31 - 1), wanted("large", 150_000), wanted("good")]
        response = await ask(broker, CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        errors = {t.name: (ErrorCode(t.error_code), t.error_message) for t in response.topics}
        assert errors["absurd"] == (
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions must not be larger than 200000, but it is 2147483647.",
        )
        code, message = errors["large"]
        assert code is ErrorCode.INVALID_REQUEST
        assert "too large for ZooKeeper (jute.maxbuffer): /brokers/topics/large" in message
        assert errors["good"] == (ErrorCode.NONE, None)
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="good", count=2**31 - 1, assignments=None)], timeout_ms=10_000
        )
        (result,) = (await ask(broker, grow, 3)).results
        assert result.error_code == ErrorCode.INVALID_PARTITIONS


@staged(run)
async def test_a_topic_that_is_deleted_twice_in_one_request(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        await with_topic(cluster, "t")
        topic_id = cluster.controller.metadata_cache.topic_id("t")
        doomed = [
            DeleteTopicState(name="t"),
            DeleteTopicState(name=None, topic_id=topic_id),
            DeleteTopicState(name="t"),
        ]
        deleted = await ask(cluster.controller, DeleteTopicsRequest(topics=doomed, timeout_ms=10_000), 6)
        assert [(t.error_code, t.name) for t in deleted.responses] == [(0, "t")] * 3


@staged(run)
async def test_only_the_controller_answers(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        other = cluster.brokers[1]
        created = await ask(other, CreateTopicsRequest(topics=[wanted("t")]), 7)
        assert [t.error_code for t in created.topics] == [ErrorCode.NOT_CONTROLLER]
        grown = await ask(other, CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)]), 3)
        assert [t.error_code for t in grown.results] == [ErrorCode.NOT_CONTROLLER]
        deleted = await ask(other, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6)
        assert [t.error_code for t in deleted.responses] == [ErrorCode.NOT_CONTROLLER]


async def with_topic(cluster: SmallCluster, name: str, partitions: int = 1) -> None:
    request = CreateTopicsRequest(topics=[wanted(name, partitions, -1)], timeout_ms=10_000)
    (result,) = (await ask(cluster.controller, request, 7)).topics
    assert result.error_code == 0


@staged(run)
async def test_partitions_are_added(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        broker = cluster.controller
        await with_topic(cluster, "t")
        await with_topic(cluster, "u")
        topics = [
            CreatePartitionsTopic(name="t", count=3, assignments=None),
            CreatePartitionsTopic(name="u", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[1])]),
            CreatePartitionsTopic(name="no", count=2, assignments=None),
            CreatePartitionsTopic(name="twice", count=2, assignments=None),
            CreatePartitionsTopic(name="twice", count=3, assignments=None),
        ]
        response = await ask(broker, CreatePartitionsRequest(topics=topics, timeout_ms=10_000), 3)
        assert {r.name: (ErrorCode(r.error_code), r.error_message) for r in response.results} == {
            "t": (ErrorCode.NONE, None),
            "u": (ErrorCode.NONE, None),
            "no": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'no' does not exist."),
            "twice": (ErrorCode.INVALID_REQUEST, "Duplicate topic in request."),
        }
        assert len(broker.metadata_cache.partitions("t")) == 3
        assert broker.metadata_cache.partitions("u")[1].leader == 1


@staged(run)
async def test_topics_are_deleted_by_name_and_by_id(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        broker = cluster.controller
        for name in ("by-name", "by-id", "old"):
            await with_topic(cluster, name)
        topic_id = broker.metadata_cache.topic_id("by-id")
        topics = [
            DeleteTopicState(name="by-name"),
            DeleteTopicState(name=None, topic_id=topic_id),
            DeleteTopicState(name="no"),
            DeleteTopicState(name=None, topic_id=b"\1" * 16),
            DeleteTopicState(name=None),
        ]
        unclear = [*topics, DeleteTopicState(name="by-id", topic_id=topic_id)]
        response = await ask(broker, DeleteTopicsRequest(topics=unclear, timeout_ms=10_000), 6)
        # As in Kafka: one topic with name and id, and nothing of the request is done.
        assert {r.error_code for r in response.responses} == {ErrorCode.INVALID_REQUEST}
        assert await broker.zk.admin.get_topic_deletions() == []
        response = await ask(broker, DeleteTopicsRequest(topics=topics, timeout_ms=10_000), 6)
        assert [(r.name, ErrorCode(r.error_code)) for r in response.responses] == [
            ("by-name", ErrorCode.NONE),
            ("by-id", ErrorCode.NONE),
            ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
            (None, ErrorCode.INVALID_REQUEST),
        ]
        assert response.responses[1].topic_id == topic_id
        assert set(broker.metadata_cache.topics) == {"old"}
        response = await ask(broker, DeleteTopicsRequest(topic_names=["old"], timeout_ms=10_000), 1)
        assert [(r.name, r.error_code) for r in response.responses] == [("old", 0)]


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (6, ErrorCode.TOPIC_DELETION_DISABLED)])
@staged(run)
async def test_deletion_may_be_disabled(zk_chroot: str, version: int, code: ErrorCode) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        await with_topic(cluster, "t")
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], topic_names=["t"])
        response = await ask(cluster.controller, request, version, delete_topic_enable="false")
        assert [r.error_code for r in response.responses] == [code]
        assert await cluster.controller.zk.admin.get_topic_deletions() == []
