"""Kafka Connect on our brokers, in distributed mode: MirrorMaker 2's connectors copy a topic exactly once.

Two workers form a group of the protocol ``connect``, and keep their settings, offsets and states in compacted topics.
Each task of the source has a transactional producer, whose transactions hold the offsets that it has read, too.
One worker is killed while records flow.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.error import URLError

import pytest
from apache_kafka import KAFKA_VERSION, fetch_jar, short_lived_java
from broker_logs import assert_no_fault
from confluent_kafka import Consumer, TopicPartition
from patience import within
from sequence_writers import LibrdkafkaSender, Writer
from transactional_clients import committed_offset, read_records
from wire_client import create_topic

from engine.local.cluster import LocalCluster
from engine.local.processes import LocalProcess, start_process

TOPIC, COPY, PARTITIONS, GROUP = "lines", "there.lines", 3, "readers"
DEADLINE_S = 60.0
MIRROR = ("connect-mirror", "connect-mirror-client")
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.min.session.timeout.ms": "1000",
}
WORKER = {
    "group.id": "workers",
    "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    **{f"{what}.storage.topic": f"connect-{what}s" for what in ("offset", "config")},
    "status.storage.topic": "connect-status",
    **{f"{what}.storage.replication.factor": "2" for what in ("offset", "config", "status")},
    "offset.storage.partitions": "3",
    "exactly.once.source.support": "enabled",
    "session.timeout.ms": "4000",
    "heartbeat.interval.ms": "500",
    # The tasks of a dead worker do not wait for it to come back.
    "scheduled.rebalance.max.delay.ms": "0",
    "plugin.discovery": "service_load",
}
LINK = {
    "source.cluster.alias": "there",
    "target.cluster.alias": "here",
    "topics": TOPIC,
    "groups": GROUP,
    "key.converter": WORKER["key.converter"],
    "value.converter": WORKER["value.converter"],
    "tasks.max": "2",
}
SOURCE = LINK | {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "exactly.once.support": "required",
    "consumer.isolation.level": "read_committed",
    "replication.factor": "2",
    "offset-syncs.topic.replication.factor": "1",
    # Each record tells where its copy is. By default every hundredth does, and offsets between them wait for it.
    "offset.lag.max": "0",
}
CHECKPOINTS = LINK | {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
    "checkpoints.topic.replication.factor": "2",
    "emit.checkpoints.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
}


Found = TypeVar("Found")


class Worker:
    """One worker of Connect and its REST interface."""

    def __init__(self, cluster: LocalCluster, folder: Path, port: int) -> None:
        self.name = f"{cluster.host}:{port}"
        self._output = folder / f"{port}.out"
        given = {**WORKER, "bootstrap.servers": cluster.bootstrap_servers, "listeners": f"http://{self.name}"}
        properties = folder / f"{port}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        mirror = [fetch_jar(f"org.apache.kafka:{jar}:{KAFKA_VERSION}") for jar in MIRROR]
        java = short_lived_java("-Xmx192m", more_classes=mirror)
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.process: LocalProcess = start_process([*java, main, properties], output=self._output)

    def ask(self, path: str, settings: dict[str, str] | None = None) -> Any:
        """Return the answer; None while there is none."""
        body = None if settings is None else json.dumps(settings).encode()
        request = urllib.request.Request(
            f"http://{self.name}{path}",
            method="GET" if body is None else "PUT",
            data=body,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return json.load(answer)
        except (URLError, ConnectionError):
            return None

    def wait_for(self, found: Callable[[], Found], what: str) -> Found:
        """Return what is found in the end."""
        is_in_time = within(DEADLINE_S)
        while not (value := found()):
            assert is_in_time(), f"{what}: {self._output.read_text('utf-8', 'replace')[-3000:]}"
            time.sleep(0.1)
        return value

    def start_connector(self, name: str, settings: dict[str, str]) -> None:
        self.wait_for(lambda: self.ask(f"/connectors/{name}/config", settings), f"{name} begins")

    def workers_of_tasks(self, name: str) -> set[str]:
        """Return the workers that run the connector's tasks; none while a task does not run."""
        tasks = (self.ask(f"/connectors/{name}/status") or {}).get("tasks", [])
        return set() if any(task["state"] != "RUNNING" for task in tasks) else {task["worker_id"] for task in tasks}


class Mirrored(NamedTuple):
    """Both clusters after all."""

    source: str
    target: str
    read: list[int]
    """How many records of each partition the group had read."""


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrored]:
    """Copy from one cluster to another while a worker is killed."""
    folder = tmp_path_factory.mktemp("connect")
    with LocalCluster(1, config=SETTINGS) as there, LocalCluster(2, config=SETTINGS) as here, ExitStack() as stack:
        create_topic(there.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        workers = [Worker(here, folder, port) for port in (8083, 8084)]
        for worker in workers:
            stack.callback(worker.process.stop, 20.0)
        writer = Writer("line", LibrdkafkaSender(there.bootstrap_servers), records_per_s=300)
        stack.callback(writer.close)
        writer.start(TOPIC, PARTITIONS)
        first, second = workers
        for worker in workers:
            worker.wait_for(lambda asked=worker: asked.ask("/connectors") is not None, "a worker serves")
        link = {
            "source.cluster.bootstrap.servers": there.bootstrap_servers,
            "target.cluster.bootstrap.servers": here.bootstrap_servers,
        }
        # The third task comes last: else one worker may get both of the source.
        second.start_connector("source", SOURCE | link)
        first.wait_for(lambda: len(first.workers_of_tasks("source")) == 2, "both workers have a task")
        second.start_connector("checkpoints", CHECKPOINTS | link)
        copies = Copies(here)
        stack.callback(copies.close)
        wait_for_more(first, copies)
        second.process.kill()
        first.wait_for(lambda: first.workers_of_tasks("source") == {first.name}, "the other worker has its tasks")
        wait_for_more(first, copies)
        writer.stop()
        writer.check()
        written = [len(writer.acknowledged[TOPIC, index]) for index in range(PARTITIONS)]
        first.wait_for(lambda: copies.count() >= sum(written), "all is copied")
        read = [count - 7 for count in written]
        commit(there, read)
        first.wait_for(lambda: min(translated(here.bootstrap_servers)) > 0, "offsets are translated")
        yield Mirrored(there.bootstrap_servers, here.bootstrap_servers, read)
        for cluster in (there, here):
            for broker_id in cluster.broker_ids:
                assert_no_fault(cluster.broker(broker_id).logs_path)


class Copies:
    """Counts the copies while they come in."""

    def __init__(self, target: LocalCluster) -> None:
        settings = {"group.id": "watches", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        self._tail = Consumer({"bootstrap.servers": target.bootstrap_servers, "log_level": 0, **settings})
        self._tail.assign([TopicPartition(COPY, index, 0) for index in range(PARTITIONS)])
        self.close = self._tail.close
        self._seen = 0

    def count(self) -> int:
        self._seen += sum(message.error() is None for message in self._tail.consume(100_000, 0.1))
        return self._seen


def wait_for_more(worker: Worker, copies: Copies) -> None:
    wanted = copies.count() + 50
    worker.wait_for(lambda: copies.count() >= wanted, "more is copied")


def commit(source: LocalCluster, read: list[int]) -> None:
    consumer = Consumer({"bootstrap.servers": source.bootstrap_servers, "group.id": GROUP, "log_level": 0})
    offsets = [TopicPartition(TOPIC, index, count) for index, count in enumerate(read)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def translated(target: str) -> list[int]:
    return [committed_offset(target, GROUP, COPY, index) for index in range(PARTITIONS)]


def test_each_record_is_copied_once(mirrored: Mirrored) -> None:
    assert read_records(mirrored.target, COPY, PARTITIONS) == read_records(mirrored.source, TOPIC, PARTITIONS)


def test_a_group_goes_on_in_the_other_cluster(mirrored: Mirrored) -> None:
    """Its offsets there are offsets of copies, which the markers of transactions move, and it misses no record."""
    left = read_records(mirrored.target, COPY, PARTITIONS, starts=translated(mirrored.target))
    written = read_records(mirrored.source, TOPIC, PARTITIONS)
    for read, records, still in zip(mirrored.read, written, left, strict=True):
        assert still[-len(records[read:]) :] == records[read:]
