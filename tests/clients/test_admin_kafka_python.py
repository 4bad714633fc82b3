"""The admin API as kafka-python speaks it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from patience import wait_for

from engine.local.cluster import LocalCluster

DEADLINE_S = 40.0


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    yield client
    client.close()


def test_topic_is_created_described_grown_and_deleted(admin: KafkaAdminClient, topic: str) -> None:
    asked = {topic: {"num_partitions": 2, "replication_factor": 1, "configs": {"segment.ms": "60000"}}}
    (result,) = admin.create_topics(asked, wait_for_metadata=True)["topics"]
    assert (result["num_partitions"], result["replication_factor"]) == (2, 1)
    assert result["configs"]["segment.ms"]["value"] == "60000"
    assert result["configs"]["segment.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    (described,) = admin.describe_topics([topic])
    topic_id = uuid.UUID(described["topic_id"])
    assert topic_id == uuid.UUID(result["topic_id"]) != uuid.UUID(int=0)
    assert [(p["partition_index"], p["leader_id"], p["isr_nodes"]) for p in described["partitions"]] == [
        (0, 0, [0]),
        (1, 0, [0]),
    ]
    assert admin.describe_topics([topic_id]) == [described]
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(asked)
    admin.create_partitions({topic: 3})
    wait_for(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 3)
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 3})
    admin.delete_topics([topic_id])
    wait_for(lambda: topic not in admin.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_topic_of_defaults_and_of_an_assignment(admin: KafkaAdminClient, topic: str) -> None:
    (result,) = admin.create_topics([topic], wait_for_metadata=True)["topics"]
    assert (result["num_partitions"], result["replication_factor"]) == (2, 1), "num.partitions is 2 here"
    admin.create_topics({f"{topic}-b": {"assignments": {0: [0], 1: [0]}}}, wait_for_metadata=True)
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topics({f"{topic}-c": {"num_partitions": 1, "replication_factor": 2}})


def test_configs_incremental_and_whole(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([topic], wait_for_metadata=True)

    def described() -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        entries = admin.describe_configs([resource], include_synonyms=True)["topic"][topic]
        return {name: entry["value"] for name, entry in entries.items()}

    assert described() == {}
    change = {"retention.ms": (AlterConfigOp.SET, "1000"), "cleanup.policy": (AlterConfigOp.APPEND, "compact")}
    assert admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, change)]) == {"topic": {topic: "OK"}}
    wait_for(lambda: described() == {"retention.ms": "1000", "cleanup.policy": "delete,compact"})
    undo = {"retention.ms": (AlterConfigOp.DELETE, None)}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, undo)])
    wait_for(lambda: described() == {"cleanup.policy": "delete,compact"})
    whole = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.bytes": "2000"})
    admin.alter_configs([whole], incremental=False)
    wait_for(lambda: described() == {"cleanup.policy": "delete,compact", "segment.bytes": "2000"})
    wrong = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.bytes": "many"})
    assert "segment.bytes" in admin.alter_configs([wrong])["topic"][topic]
    assert described()["segment.bytes"] == "2000"


def test_cluster_is_described(admin: KafkaAdminClient, cluster: LocalCluster) -> None:
    description = admin.describe_cluster()
    assert description["controller_id"] == 0
    assert [f"{b['host']}:{b['port']}" for b in description["brokers"]] == [cluster.bootstrap_servers]


def test_offsets_deleted_records_log_dirs_and_producers(
    admin: KafkaAdminClient, cluster: LocalCluster, topic: str
) -> None:
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    begin_ms = 1_700_000_000_000
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all", enable_idempotence=True)
    for delta in (0, 5000, 1000):
        producer.send(topic, b"v", partition=0, timestamp_ms=begin_ms + delta).get(DEADLINE_S)
    producer.close()
    partition = TopicPartition(topic, 0)

    def offset(spec: object) -> int:
        return int(admin.list_partition_offsets({partition: spec})[partition].offset)

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 3
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 1
    assert offset(begin_ms + 1) == 1
    (state,) = admin.describe_producers([partition])[partition].active_producers
    assert (state.producer_epoch, state.last_sequence, state.last_timestamp) == (0, 2, begin_ms + 1000)
    assert admin.delete_records({partition: 2})[partition]["low_watermark"] == 2
    assert offset(OffsetSpec.EARLIEST) == 2
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({partition: 9})
    (broker,) = admin.describe_log_dirs({topic: [0]})
    ((log_dir,), (expected,)) = (broker["log_dirs"], cluster.broker(0).spec.log_dirs)
    assert (broker["broker"], log_dir["log_dir"], log_dir["error_code"]) == (0, str(expected), 0)
    ((description,),) = (log_dir["topics"],)
    size = (expected / f"{topic}-0" / f"{0:020}.log").stat().st_size
    assert description["partitions"] == [
        {"partition_index": 0, "partition_size": size, "offset_lag": 0, "is_future_key": False}
    ]
    assert log_dir["total_bytes"] > log_dir["usable_bytes"] > 0
