"""A broker compacts: what real clients see of it, what kills leave behind, and how little an idle broker spends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from broker_logs import cleaner_log, server_log
from cleaning import is_worker
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from ended_sessions import kill_for_good
from guest_cluster import GuestCluster
from patience import wait_for, within
from wire_client import wait_until_led

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

T = TypeVar("T")

TIMEOUT_S = 40.0
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
SLOW = "30000"
"""Bytes per second at which the cleanings here take many seconds."""

KEYS = 10
"""The keys of each topic, written over and over."""


@pytest.fixture(scope="module")
def compacting(zookeeper: EmbeddedZooKeeper) -> Iterator[LocalCluster]:
    """A broker whose cleaner looks for work five times a second."""
    settings = {
        "log.cleaner.backoff.ms": "200",
        "offsets.topic.num.partitions": "1",
        "zookeeper.session.timeout.ms": "3000",
    }
    with GuestCluster(zookeeper, 1, config=settings) as running:
        yield running
        assert running.broker(0).is_alive
        assert "Traceback" not in server_log(running.broker(0).logs_path) + cleaner_log(running.broker(0).logs_path)
        assert "Traceback" not in running.broker(0).output_path.read_text()


def create(cluster: LocalCluster, topic: str, **config: str) -> None:
    settings = COMPACTED | {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(TIMEOUT_S)


def alter(cluster: LocalCluster, kind: ResourceType, name: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def write(cluster: LocalCluster, topic: str, count: int, **settings: str) -> None:
    """Write ``count`` records, repeating the same keys."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5, "batch.size": 4000, **settings}
    )
    for number in range(count):
        producer.produce(topic, b"%060d" % number, b"key-%d" % (number % KEYS), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def read(cluster: LocalCluster, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """Return offset, key and value of all records, as a consumer from the beginning sees them."""
    wait_until_led(cluster.bootstrap_servers, topic)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, 0)])
        records: list[tuple[int, bytes, bytes | None]] = []
        is_in_time = within(TIMEOUT_S)
        while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
            assert is_in_time(), f"read up to {records[-1:]}, the log ends at {end}"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                offset, key = message.offset(), message.key()
                assert offset is not None
                assert key is not None
                records.append((offset, key, message.value()))
        return records
    finally:
        consumer.close()


def cleaned_times(cluster: LocalCluster, topic: str) -> int:
    return cleaner_log(cluster.broker(0).logs_path).count(f"cleaned log {topic}-0 (dirty section")


def folder_of(cluster: LocalCluster, topic: str) -> Path:
    return cluster.broker(0).spec.log_dirs[0] / f"{topic}-0"


def worker_pids(cluster: LocalCluster) -> list[int]:
    """Return the cleaning processes of the broker."""
    process = cluster.broker(0).process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [pid for pid in map(int, children) if is_worker(pid)]


def test_consumers_see_the_last_value_of_each_key(compacting: LocalCluster) -> None:
    create(compacting, "plain")
    write(compacting, "plain", 3000)
    wait_for(lambda: cleaned_times(compacting, "plain"), "a cleaning")
    wait_for(lambda: len(read(compacting, "plain")) < 1500, "a smaller log")
    seen = read(compacting, "plain")
    assert [offset for offset, _, _ in seen] == sorted({offset for offset, _, _ in seen})
    assert all(value == b"%060d" % offset and key == b"key-%d" % (offset % KEYS) for offset, key, value in seen)
    assert {key: value for _, key, value in seen} == {b"key-%d" % n: b"%060d" % (2990 + n) for n in range(KEYS)}
    log_text = cleaner_log(compacting.broker(0).logs_path)
    assert "Cleaner 0: Beginning cleaning of log plain-0" in log_text
    assert "fewer messages)" in log_text


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_a_restart_goes_on_where_it_was(compacting: LocalCluster, codec: str) -> None:
    topic = f"restarted-{codec}"
    create(compacting, topic)
    write(compacting, topic, 3000, **{"compression.type": codec, "batch.size": "2000"})
    wait_for(lambda: cleaned_times(compacting, topic), "a cleaning")
    before = read(compacting, topic)
    checkpoint = compacting.broker(0).spec.log_dirs[0] / "cleaner-offset-checkpoint"
    wait_for(lambda: checkpoint.exists() and f"{topic} 0 " in checkpoint.read_text(), "a checkpoint")
    compacting.restart_broker(0)
    after = read(compacting, topic)
    assert {key: value for _, key, value in after} == {key: value for _, key, value in before}
    assert set(after) <= set(before)


def test_a_killed_worker_costs_nothing(compacting: LocalCluster) -> None:
    create(compacting, "worker-killed")
    alter(compacting, ResourceType.BROKER, "0", "log.cleaner.io.max.bytes.per.second", SLOW)
    write(compacting, "worker-killed", 3000)
    folder = folder_of(compacting, "worker-killed")
    wait_for(lambda: list(folder.glob("*.cleaned")), "a cleaning under way")
    for pid in worker_pids(compacting):
        os.kill(pid, signal.SIGKILL)
    gone = "The process that was cleaning log worker-killed-0 is gone; nothing is lost: killed by signal 9"
    wait_for(lambda: gone in cleaner_log(compacting.broker(0).logs_path), "a word on it")
    alter(compacting, ResourceType.BROKER, "0", "log.cleaner.io.max.bytes.per.second", "1000000000")
    wait_for(lambda: cleaned_times(compacting, "worker-killed"), "another cleaning")
    assert len({key for _, key, _ in read(compacting, "worker-killed")}) == KEYS
    assert not list(folder.glob("*.cleaned"))


def test_a_broker_killed_while_it_cleans(compacting: LocalCluster) -> None:
    create(compacting, "broker-killed")
    alter(compacting, ResourceType.BROKER, "0", "log.cleaner.io.max.bytes.per.second", SLOW)
    write(compacting, "broker-killed", 3000)
    folder = folder_of(compacting, "broker-killed")
    wait_for(lambda: list(folder.glob("*.cleaned")), "a cleaning under way")
    workers = worker_pids(compacting)
    kill_for_good(compacting, 0)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "the end of its worker")
    compacting.start_broker(0)
    assert {key: value for _, key, value in read(compacting, "broker-killed")} == {
        b"key-%d" % n: b"%060d" % (2990 + n) for n in range(KEYS)
    }
    alter(compacting, ResourceType.BROKER, "0", "log.cleaner.io.max.bytes.per.second", "1000000000")
    wait_for(lambda: cleaned_times(compacting, "broker-killed"), "a cleaning")


def test_a_topic_deleted_while_it_is_cleaned(compacting: LocalCluster) -> None:
    create(compacting, "doomed")
    alter(compacting, ResourceType.BROKER, "0", "log.cleaner.io.max.bytes.per.second", SLOW)
    write(compacting, "doomed", 3000)
    wait_for(lambda: list(folder_of(compacting, "doomed").glob("*.cleaned")), "a cleaning under way")
    admin = AdminClient({"bootstrap.servers": compacting.bootstrap_servers})
    admin.delete_topics(["doomed"])["doomed"].result(TIMEOUT_S)
    called_off = "Cancelled the cleaning of log doomed-0"
    wait_for(lambda: called_off in cleaner_log(compacting.broker(0).logs_path), "a word on it")
    alter(compacting, ResourceType.BROKER, "0", "log.cleaner.io.max.bytes.per.second", "1000000000")
    wait_for(lambda: not folder_of(compacting, "doomed").exists(), "the folder's end")


def test_committed_offsets_are_compacted(compacting: LocalCluster) -> None:
    """``__consumer_offsets`` is a compacted topic like any other, and groups read it after a restart."""
    create(compacting, "consumed", segment_bytes="100000")
    write(compacting, "consumed", 100)
    consumer = Consumer({"bootstrap.servers": compacting.bootstrap_servers, "group.id": "group"})
    for number in range(400):
        consumer.commit(offsets=[TopicPartition("consumed", 0, number)], asynchronous=False)
    alter(compacting, ResourceType.TOPIC, "__consumer_offsets", "segment.bytes", "2000")
    alter(compacting, ResourceType.TOPIC, "__consumer_offsets", "min.cleanable.dirty.ratio", "0.01")
    for number in range(400, 500):
        consumer.commit(offsets=[TopicPartition("consumed", 0, number)], asynchronous=False)
    wait_for(lambda: cleaned_times(compacting, "__consumer_offsets"), "a cleaning")
    compacting.restart_broker(0)
    wait_for(lambda: cleaned_times(compacting, "__consumer_offsets"), "a cleaning")
    assert consumer.committed([TopicPartition("consumed", 0)], timeout=TIMEOUT_S)[0].offset == 499
    consumer.close()


def test_a_damaged_log_is_left_alone(compacting: LocalCluster) -> None:
    create(compacting, "damaged")
    create(compacting, "sound")
    alter(compacting, ResourceType.TOPIC, "damaged", "min.compaction.lag.ms", "100000000")
    write(compacting, "damaged", 1000)
    first = min(folder_of(compacting, "damaged").glob("*.log"))
    with first.open("r+b") as file:
        file.seek(first.stat().st_size - 10)
        file.write(b"\xff\xff")
    alter(compacting, ResourceType.TOPIC, "damaged", "min.compaction.lag.ms", "0")
    said = "Marking its partition (damaged-0) as uncleanable"
    wait_for(lambda: said in cleaner_log(compacting.broker(0).logs_path), "a word on it")
    write(compacting, "sound", 1000)
    wait_for(lambda: cleaned_times(compacting, "sound"), "the cleaning of another log")
    assert not cleaned_times(compacting, "damaged")


def test_a_broker_without_compacted_logs_has_no_worker(zookeeper: EmbeddedZooKeeper) -> None:
    with GuestCluster(zookeeper, 1, config={"log.cleaner.backoff.ms": "100"}) as cluster:
        create(cluster, "kept", cleanup_policy="delete")
        write(cluster, "kept", 1000)
        log_text = json.dumps(cleaner_log(cluster.broker(0).logs_path))
        assert "Starting the log cleaner" in log_text
        assert worker_pids(cluster) == []
