"""The admin API as librdkafka speaks it: what it creates and changes exists, and its questions are answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from patience import wait_for

from engine.local.cluster import LocalCluster

TIMEOUT_S = 40


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> Iterator[AdminClient]:
    yield AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})


def done(futures: dict[Any, Any]) -> Any:
    """Return the result of the only future."""
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def refused(futures: dict[Any, Any]) -> tuple[int, str]:
    """Return the code and text of the only future's error."""
    with pytest.raises(KafkaException) as caught:
        done(futures)
    error: KafkaError = caught.value.args[0]
    return error.code(), error.str()


def test_topic_is_created_described_grown_and_deleted(admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 3, 1, config={"retention.ms": "3600000"})], operation_timeout=10))
    described = done(admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True))
    assert (described.name, described.is_internal) == (topic, False)
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert [(p.id, p.leader.id, [n.id for n in p.replicas], [n.id for n in p.isr]) for p in described.partitions] == [
        (index, 0, [0], [0]) for index in range(3)
    ]
    assert described.authorized_operations
    done(admin.create_partitions([NewPartitions(topic, 5)], operation_timeout=10))
    wait_for(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 5)
    done(admin.delete_topics([topic], operation_timeout=10))
    wait_for(lambda: topic not in admin.list_topics().topics)


def test_topic_with_assignment_and_only_validated(admin: AdminClient, topic: str) -> None:
    asked = NewTopic(topic, 2, replica_assignment=[[0], [0]])
    done(admin.create_topics([asked], validate_only=True))
    assert topic not in admin.list_topics().topics
    done(admin.create_topics([asked], operation_timeout=10))
    wait_for(lambda: topic in admin.list_topics().topics)
    assert refused(admin.create_topics([asked])) == (
        KafkaError.TOPIC_ALREADY_EXISTS,
        f"Topic '{topic}' already exists.",
    )


def test_creations_that_are_refused(admin: AdminClient, topic: str) -> None:
    code, text = refused(admin.create_topics([NewTopic(topic, 1, 3)]))
    assert code == KafkaError.INVALID_REPLICATION_FACTOR
    assert "larger than available brokers: 1" in text
    assert refused(admin.create_topics([NewTopic("not/a name", 1, 1)]))[0] == KafkaError.TOPIC_EXCEPTION
    assert refused(admin.create_topics([NewTopic("..", 1, 1)]))[0] == KafkaError.TOPIC_EXCEPTION
    assert refused(admin.create_topics([NewTopic(topic, 0, 1)]))[0] == KafkaError.INVALID_PARTITIONS
    code, text = refused(admin.create_topics([NewTopic(topic, 1, 1, config={"no.such.key": "1"})]))
    assert code == KafkaError.INVALID_CONFIG and "no.such.key" in text
    code, text = refused(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "soon"})]))
    assert code == KafkaError.INVALID_CONFIG and "retention.ms" in text and "soon" in text
    assert refused(admin.create_partitions([NewPartitions(topic, 2)]))[0] == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert refused(admin.delete_topics([topic]))[0] == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in admin.list_topics().topics


def test_topic_configs_by_both_ways_of_altering(admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "7200000"})], operation_timeout=10))
    name = ConfigResource(ResourceType.TOPIC, topic)
    wait_for_config(admin, name, "retention.ms", "7200000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    changes = [
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)]))
    wait_for_config(admin, name, "retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG)
    wait_for_config(admin, name, "max.message.bytes", "5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    wait_for_config(admin, name, "cleanup.policy", "delete,compact", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    with pytest.warns(DeprecationWarning):
        done(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "60000"})]))
    wait_for_config(admin, name, "segment.ms", "60000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    wait_for_config(admin, name, "max.message.bytes", "1048588", ConfigSource.DEFAULT_CONFIG)
    wrong = [ConfigEntry("segment.ms", "-5", incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=wrong)
    code, text = refused(admin.incremental_alter_configs([resource]))
    assert code == KafkaError.INVALID_CONFIG and "segment.ms" in text
    unknown = ConfigResource(ResourceType.TOPIC, f"{topic}-none")
    assert refused(admin.describe_configs([unknown]))[0] == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_broker_configs_are_described_and_changed_at_run_time(admin: AdminClient) -> None:
    broker = ConfigResource(ResourceType.BROKER, "0")
    configs = done(admin.describe_configs([broker]))
    assert configs["broker.id"].value == "0" and configs["broker.id"].is_read_only
    assert configs["num.partitions"].value == "2"
    assert configs["num.partitions"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert set(configs["num.partitions"].synonyms) == {"num.partitions"}
    change = [ConfigEntry("log.retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)]
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, "0", incremental_configs=change)]))
    wait_for_config(admin, broker, "log.retention.ms", "86400000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    undo = [ConfigEntry("log.retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)]
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, "0", incremental_configs=undo)]))
    wait_for(
        lambda: (
            done(admin.describe_configs([broker]))["log.retention.ms"].source
            != ConfigSource.DYNAMIC_BROKER_CONFIG.value
        )
    )
    read_only = [ConfigEntry("broker.id", "9", incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=read_only)
    assert refused(admin.incremental_alter_configs([resource]))[0] == KafkaError.INVALID_REQUEST


def test_cluster_is_described(admin: AdminClient, cluster: LocalCluster) -> None:
    description = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert len(description.cluster_id) == 22
    assert description.controller.id == 0
    assert [f"{node.host}:{node.port}" for node in description.nodes] == [cluster.bootstrap_servers]
    assert description.authorized_operations


def test_offsets_by_every_specification_and_deleted_records(
    admin: AdminClient, cluster: LocalCluster, topic: str
) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=10))
    begin_ms = 1_700_000_000_000
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    # The largest timestamp is not the last one.
    for delta in (0, 1000, 9000, 2000, 3000):
        producer.produce(topic, b"v", partition=0, timestamp=begin_ms + delta)
        assert producer.flush(TIMEOUT_S) == 0
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> tuple[int, int]:
        offsets = done(admin.list_offsets({partition: spec}))
        return offsets.offset, offsets.timestamp

    assert offset(OffsetSpec.earliest())[0] == 0
    assert offset(OffsetSpec.latest())[0] == 5
    assert offset(OffsetSpec.max_timestamp()) == (2, begin_ms + 9000)
    assert offset(OffsetSpec.for_timestamp(begin_ms + 500)) == (1, begin_ms + 1000)
    assert offset(OffsetSpec.for_timestamp(begin_ms + 1001)) == (2, begin_ms + 9000)
    assert offset(OffsetSpec.for_timestamp(begin_ms + 9001))[0] == -1
    deleted = done(admin.delete_records([TopicPartition(topic, 0, 3)]))
    assert deleted.low_watermark == 3
    assert offset(OffsetSpec.earliest())[0] == 3
    assert done(admin.delete_records([TopicPartition(topic, 0, -1)])).low_watermark == 5
    assert refused(admin.delete_records([TopicPartition(topic, 0, 6)]))[0] == KafkaError.OFFSET_OUT_OF_RANGE


def wait_for_config(admin: AdminClient, resource: ConfigResource, key: str, value: str, source: ConfigSource) -> None:
    """Wait until DescribeConfigs shows the change, which arrives through ZooKeeper."""
    entries: list[tuple[str, int]] = []

    def is_there() -> bool:
        entry = done(admin.describe_configs([resource]))[key]
        entries[:] = [(entry.value, entry.source)]
        return entries == [(value, source.value)]

    wait_for(is_there, f"{key} is {value} by {source}")
