"""Topic settings as clients notice them: codec, timestamps, sizes, retention, also when they change at run time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_logs import assert_no_fault
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from guest_cluster import GuestCluster
from patience import wait_for
from real_clients import ConfluentKafka, Sent
from segments_on_disk import codecs_on_disk
from wire_client import EARLIEST, LATEST, WireClient, create_topic, list_offset, produce, read_all

from engine.common.errors import ErrorCode
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper


@pytest.fixture(scope="module")
def quick(zookeeper: EmbeddedZooKeeper) -> Iterator[LocalCluster]:
    """A broker that runs its log upkeep all the time."""
    often = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
    with GuestCluster(zookeeper, 1, config=often) as running:
        yield running
        assert_no_fault(running.broker(0).logs_path)


def set_config(address: str, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    (future,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
    ).values()
    future.result(30)


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topics_own_codec_wins(cluster: LocalCluster, topic: str, codec: str) -> None:
    create_topic(cluster.bootstrap_servers, topic, configs={"compression.type": codec})
    (log_dir,) = cluster.broker(0).spec.log_dirs
    sent: list[Sent] = []
    for used in ("none", "gzip", "zstd"):
        batch = [Sent(0, b"k%d" % n, b"the castle above the village " * 9, (("h", b"v"),)) for n in range(50)]
        ConfluentKafka().produce(cluster.bootstrap_servers, topic, used, batch)
        sent += batch
    assert codecs_on_disk(log_dir, topic) == {codec.replace("uncompressed", "none")}
    assert ConfluentKafka().consume(cluster.bootstrap_servers, topic, 1, len(sent)) == sent


def test_log_append_time(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap_servers, topic, configs={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.type": "lz4"})
    stamps: list[tuple[int, int]] = []
    begin_ms = time.time_ns() // 1_000_000
    for _ in range(20):
        producer.produce(topic, b"v", timestamp=1000, on_delivery=lambda _, message: stamps.append(message.timestamp()))
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None and message.error() is None
    kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert begin_ms <= timestamp_ms <= time.time_ns() // 1_000_000
    assert stamps[0] == (TIMESTAMP_LOG_APPEND_TIME, timestamp_ms)


def test_largest_message_changes_at_run_time(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap_servers, topic)

    def error_of(size: int) -> int | None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.max.bytes": 20_000_000})
        errors: list[KafkaError | None] = []
        producer.produce(topic, b"x" * size, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
        return None if errors[0] is None else errors[0].code()

    assert error_of(900_000) is None
    assert error_of(1_100_000) == KafkaError.MSG_SIZE_TOO_LARGE
    set_config(cluster.bootstrap_servers, topic, "max.message.bytes", "5000000")
    wait_for(lambda: error_of(1_100_000) is None, "the larger limit is in force")
    assert error_of(5_100_000) == KafkaError.MSG_SIZE_TOO_LARGE


def fill(client: WireClient, topic: str, batches: int, timestamp_ms: int) -> None:
    for number in range(batches):
        records = [Record(n, timestamp_ms + number, None, b"x" * 200) for n in range(10)]
        assert produce(client, topic, encode_batch(records)).error_code == ErrorCode.NONE


def segments(cluster: LocalCluster, topic: str) -> list[Path]:
    return sorted((cluster.broker(0).spec.log_dirs[0] / f"{topic}-0").glob("*.log*"))


def test_retention_by_size(quick: LocalCluster, topic: str) -> None:
    small = {"segment.bytes": "10000", "retention.bytes": "20000", "file.delete.delay.ms": "100"}
    create_topic(quick.bootstrap_servers, topic, configs=small)
    with WireClient(quick.bootstrap_servers) as client:
        fill(client, topic, 50, time.time_ns() // 1_000_000)
        wait_for(lambda: list_offset(client, topic, EARLIEST) > 300, "old segments go")
        wait_for(lambda: len(segments(quick, topic)) <= 4, "their files too")
        records = read_all(client, topic)
        assert [record.offset for record in records] == list(range(list_offset(client, topic, EARLIEST), 500))
        # retention.bytes is the minimum that is kept.
        assert sum(path.stat().st_size for path in segments(quick, topic)) >= 20_000


def test_retention_by_time_set_later(quick: LocalCluster, topic: str) -> None:
    create_topic(quick.bootstrap_servers, topic, configs={"segment.bytes": "10000", "file.delete.delay.ms": "100"})
    now_ms = time.time_ns() // 1_000_000
    with WireClient(quick.bootstrap_servers) as client:
        fill(client, topic, 20, now_ms - 100_000_000)
        fill(client, topic, 20, now_ms)
        assert list_offset(client, topic, EARLIEST) == 0
        set_config(quick.bootstrap_servers, topic, "retention.ms", "50000000")
        wait_for(lambda: list_offset(client, topic, EARLIEST) > 100, "what is older than retention.ms goes")
        start = list_offset(client, topic, EARLIEST)
        assert start <= 200, "what is younger stays"
        assert [record.offset for record in read_all(client, topic)] == list(range(start, 400))
        set_config(quick.bootstrap_servers, topic, "retention.ms", "1")
        wait_for(lambda: list_offset(client, topic, EARLIEST) == 400, "everything goes, the active segment too")
        assert list_offset(client, topic, LATEST) == 400
        fill(client, topic, 1, time.time_ns() // 1_000_000 + 1_000_000)
        assert list_offset(client, topic, LATEST) == 410
