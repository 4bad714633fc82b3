"""Kafka's own programs that process exactly once, on three of our brokers that are killed in turn with ``kill -9``.

Kafka Streams counts words with ``exactly_once_v2``, and two of Kafka's TransactionalMessageCopier share a group, with
transactions of which they abort a third on purpose; one copier is killed, too. Their output must equal their input.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from apache_kafka import KAFKA_VERSION, compiled, fetch_jar, short_lived_java
from broker_logs import assert_no_fault
from confluent_kafka import Consumer, TopicPartition
from patience import within
from sequence_writers import LibrdkafkaSender, Writer
from transactional_clients import committed_offset, read_records
from wire_client import create_topic

from engine.local.cluster import LocalCluster
from engine.local.processes import start_process

LINES, COUNTS, COPIES, COPIERS = "lines", "counts", "copies", "copiers"
PARTITIONS = 3
DEADLINE_S = 120.0
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "3000",
    # Copies of transactions whose copier is killed end soon.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
STREAMS = f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}"


class Application:
    """A Java program. Whenever it ends by itself it is started again, as whatever supervises it would do."""

    def __init__(self, output: Path, *arguments: str | Path, classes: Iterable[Path] = ()) -> None:
        self._command = [*short_lived_java("-Xmx160m", more_classes=classes), *arguments]
        self._output = output
        self.process = start_process(self._command, output=output)

    def look_after(self) -> None:
        if not self.process.is_alive:
            self.process = start_process(self._command, output=self._output)

    def stop(self) -> None:
        self.process.stop(30.0)

    @property
    def told(self) -> str:
        return self._output.read_text("utf-8", "replace")[-3000:]


def copier(cluster: LocalCluster, folder: Path, name: str) -> Application:
    return Application(
        folder / f"{name}.out",
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", cluster.bootstrap_servers, "--transactional-id", name, "--consumer-group", COPIERS),
        *("--input-topic", LINES, "--input-partition", "0", "--output-topic", COPIES),
        *("--transaction-size", "20", "--transaction-timeout", "6000"),
        *("--group-mode", "--use-group-metadata", "--enable-random-aborts"),
    )


def word_count(cluster: LocalCluster, folder: Path) -> Application:
    streams = fetch_jar(STREAMS)
    program = ["WordCount", cluster.bootstrap_servers, LINES, COUNTS, folder / "streams"]
    return Application(folder / "wordcount.out", *program, classes=[compiled("WordCount", streams), streams])


class Progress:
    """How far both have come, as a reader of committed records sees it."""

    def __init__(self, cluster: LocalCluster, applications: list[Application]) -> None:
        self._applications = applications
        self._seen = dict.fromkeys((COUNTS, COPIES), 0)
        settings = {"group.id": "watches", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        self._tail = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **settings})
        self._tail.assign([TopicPartition(topic, index, 0) for topic in self._seen for index in range(PARTITIONS)])

    def close(self) -> None:
        self._tail.close()

    def of(self, topic: str) -> int:
        """Return how many records a topic has by now."""
        for message in self._tail.consume(100_000, 0.1):
            self._seen[message.topic()] += message.error() is None
        return self._seen[topic]

    def wait_for_records(self, topic: str, count: int) -> None:
        self.wait_for(lambda: self.of(topic) >= count, f"{topic} has {count} records")

    def wait_for(self, done: Callable[[], bool], what: str) -> None:
        is_in_time = within(DEADLINE_S)
        while not done():
            assert is_in_time(), f"{what}: {[each.told for each in self._applications]}"
            for each in self._applications:
                each.look_after()
            time.sleep(0.2)

    def wait_for_more(self) -> None:
        for topic in (COPIES, COUNTS):
            self.wait_for_records(topic, self.of(topic) + 20)


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bring both programs through the faults, and wait until they have processed everything. Return the brokers."""
    folder = tmp_path_factory.mktemp("java-transactions")
    with LocalCluster(3, config=SETTINGS) as cluster, ExitStack() as stack:
        for topic in (LINES, COUNTS, COPIES):
            create_topic(cluster.bootstrap_servers.split(",")[0], topic, partitions=PARTITIONS, replication_factor=3)
        writer = Writer("line", LibrdkafkaSender(cluster.bootstrap_servers), records_per_s=150)
        stack.callback(writer.close)
        writer.start(LINES, PARTITIONS)
        applications = [copier(cluster, folder, "copier-0"), copier(cluster, folder, "copier-1")]
        applications.append(word_count(cluster, folder))
        for each in applications:
            stack.callback(each.stop)
        progress = Progress(cluster, applications)
        stack.callback(progress.close)
        progress.wait_for_more()
        for victim in cluster.broker_ids:
            cluster.kill_broker(victim)
            if victim == 1:
                applications[0].process.kill()
            progress.wait_for_more()
            cluster.start_broker(victim)
            progress.wait_for_more()
        writer.stop()
        writer.check()
        lines = read_records(cluster.bootstrap_servers, LINES, PARTITIONS)
        words = sum(len(words_of(line.value)) for written in lines for line in written)
        progress.wait_for_records(COUNTS, words)
        progress.wait_for_records(COPIES, sum(map(len, lines)))
        yield cluster.bootstrap_servers
        for broker_id in cluster.broker_ids:
            assert_no_fault(cluster.broker(broker_id).logs_path)


def words_of(line: bytes) -> list[bytes]:
    return [word for word in line.split(b":") if word]


def test_copiers_copy_each_line_once(survived: str) -> None:
    lines = read_records(survived, LINES, PARTITIONS)
    copies = read_records(survived, COPIES, PARTITIONS)
    assert [[line.value for line in each] for each in copies] == [[line.value for line in each] for each in lines]
    offsets = [committed_offset(survived, COPIERS, LINES, index) for index in range(PARTITIONS)]
    assert offsets == list(map(len, lines))
    aborted = sum(map(len, read_records(survived, COPIES, PARTITIONS, committed=False))) - sum(map(len, lines))
    assert aborted > 0, "transactions were aborted"


def test_streams_count_each_word_once(survived: str) -> None:
    wanted: dict[bytes, int] = defaultdict(int)
    for line in read_records(survived, LINES, PARTITIONS):
        for record in line:
            for word in words_of(record.value):
                wanted[word] += 1
    counted: dict[bytes, list[int]] = defaultdict(list)
    for counts in read_records(survived, COUNTS, PARTITIONS):
        for record in counts:
            counted[record.key].append(int(record.value))
    assert counted == {word: list(range(1, count + 1)) for word, count in wanted.items()}
