"""``klamm-kafka`` in a real session, from real brokers: what a plain consumer reads, each record exactly once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from guest_cluster import GuestCluster
from patience import slowness, within
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from source_rows import consumed, reader, send, spark_rows
from wire_client import WireClient, describe_topic

import klamm.spark
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper
from klamm.spark import KafkaDataSource, klamm_kafka, register

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def topic(live_cluster: LocalCluster, topic_name: str) -> str:
    """A topic of two partitions on both brokers."""
    create(live_cluster, topic_name)
    return topic_name


def create(cluster: LocalCluster, name: str, *, partitions: int = 2, replicas: int = 2, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=settings)
    admin.create_topics([new])[name].result(30)


def add_partitions(cluster: LocalCluster, topic: str, total: int) -> None:
    """Add partitions; return when every broker knows them, or a producer's metadata might lack them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)
    is_in_time = within(60)
    for address in cluster.bootstrap_servers.split(","):
        with WireClient(address) as client:
            while len(describe_topic(client, topic).partitions) < total:
                assert is_in_time(), f"{address} does not hear of the new partitions"
                time.sleep(0.02)


@pytest.fixture
def frame(spark: Any, live_cluster: LocalCluster) -> Callable[..., Any]:
    """Makes a data frame from a batch."""

    def make(**options: str) -> Any:
        return reader(spark.read, live_cluster.bootstrap_servers, **options).load()

    return make


def test_every_codec_and_shape_as_a_consumer_reads_it(
    frame: Callable[..., Any], live_cluster: LocalCluster, topic: str
) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        shapes: list[dict[str, Any]] = [
            {"key": b"k", "value": f"{codec} {number}".encode() * (number % 7)} for number in range(400)
        ]
        shapes += [{"key": None, "value": b"no key"}, {"key": b"no value", "value": None}, {"key": b"", "value": b""}]
        shapes += [{"value": b"with headers", "headers": [("a", b"1"), ("a", None), ("ü", b"")]}]
        shapes += [{"value": b"of old", "timestamp": 1}]
        records = [shape | {"partition": number % 2} for number, shape in enumerate(shapes)]
        send(live_cluster.bootstrap_servers, topic, records, **{"compression.type": codec})
    wanted = consumed(live_cluster.bootstrap_servers, topic, 2)
    assert len(wanted) == 5 * 405
    data = frame(subscribe=topic, includeHeaders="true")
    assert spark_rows(data) == wanted
    assert {row.topic for row in data.select("topic").distinct().collect()} == {topic}
    assert "headers" not in frame(subscribe=topic).columns


def test_a_compacted_topic_with_gaps(frame: Callable[..., Any], live_cluster: LocalCluster, topic_name: str) -> None:
    config = {"cleanup_policy": "compact", "segment_bytes": "2000", "min_cleanable_dirty_ratio": "0.01"}
    create(live_cluster, topic_name, partitions=1, **config)
    records = [{"key": b"k%d" % (n % 7), "value": b"%d" % n} for n in range(300)]
    for first in range(0, 300, 30):
        send(live_cluster.bootstrap_servers, topic_name, records[first : first + 30])
    data = frame(subscribe=topic_name, includeHeaders="true")
    is_in_time = within(120)
    while True:
        before = consumed(live_cluster.bootstrap_servers, topic_name, 1)
        values = spark_rows(data) if len(before) < 150 else []
        if values and before == consumed(live_cluster.bootstrap_servers, topic_name, 1):
            break
        assert is_in_time(), "the cleaner does not come"
        time.sleep(0.05)
    assert values == before
    assert {row[3] for row in values} >= {b"%d" % n for n in range(293, 300)}, "of each key the last one stays"


def test_where_to_begin_and_to_end(frame: Callable[..., Any], live_cluster: LocalCluster, topic: str) -> None:
    records = [{"value": b"%d" % n, "partition": n % 2, "timestamp": 1_000_000 + n} for n in range(100)]
    send(live_cluster.bootstrap_servers, topic, records)

    def values(**options: str) -> list[int]:
        rows = frame(subscribe=topic, **options).select("value").collect()
        return sorted(int(bytes(row.value)) for row in rows)

    def by(**numbers: int) -> str:
        return json.dumps({topic: {name[1:]: number for name, number in numbers.items()}})

    assert values() == list(range(100))
    assert values(startingOffsets=by(p0=40, p1=-1)) == list(range(80, 100, 2))
    assert values(startingOffsets=by(p0=-1, p1=-2), endingOffsets=by(p0=-1, p1=10)) == list(range(1, 21, 2))
    assert values(startingTimestamp="1000090") == list(range(90, 100))
    assert values(startingOffsetsByTimestamp=by(p0=1_000_090, p1=1_000_095), endingTimestamp="1000097") == [
        90, 92, 94, 95, 96,
    ]  # fmt: skip
    late = {"startingOffsetsByTimestamp": by(p0=9_000_000, p1=1_000_099)}
    assert values(**late, startingOffsetsByTimestampStrategy="latest") == [99]
    with pytest.raises(Exception, match=r"no record is as recent as the option startingOffsets"):
        values(**late)
    with pytest.raises(Exception, match=r"must name all partitions"):
        values(startingOffsets=by(p0=1))


def test_pieces_and_columns(frame: Callable[..., Any], live_cluster: LocalCluster, topic: str) -> None:
    send(live_cluster.bootstrap_servers, topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(1000)])
    assert frame(subscribe=topic).rdd.getNumPartitions() == 2
    assert frame(subscribe=topic, minPartitions="5").rdd.getNumPartitions() == 6
    assert frame(subscribe=topic, maxRecordsPerPartition="200").rdd.getNumPartitions() == 6
    cut = frame(subscribePattern=f"{topic[:-1]}.", minPartitions="7")
    assert Counter((row.partition, row.offset) for row in cut.collect()) == Counter(
        (partition, offset) for partition in (0, 1) for offset in range(500)
    )
    rows = frame(assign=json.dumps({topic: [1]})).select("partition").distinct().collect()
    assert [row.partition for row in rows] == [1]


def test_a_schema_that_leaves_columns_out(spark: Any, live_cluster: LocalCluster, topic: str) -> None:
    send(live_cluster.bootstrap_servers, topic, [{"value": b"v", "key": b"k"}])
    narrow = (
        reader(spark.read, live_cluster.bootstrap_servers, subscribe=topic).schema("offset long, value binary").load()
    )
    assert [(row.offset, bytes(row.value)) for row in narrow.collect()] == [(0, b"v")]
    with pytest.raises(Exception, match="no column value of type string"):
        reader(spark.read, live_cluster.bootstrap_servers, subscribe=topic).schema("value string").load().collect()


def test_records_that_are_gone(frame: Callable[..., Any], live_cluster: LocalCluster, topic: str) -> None:
    send(live_cluster.bootstrap_servers, topic, [{"value": b"%d" % n, "partition": 0} for n in range(100)])
    admin = AdminClient({"bootstrap.servers": live_cluster.bootstrap_servers})
    for deletion in admin.delete_records([TopicPartition(topic, 0, 60)]).values():
        deletion.result(30)
    wanted = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 50, "1": 0}})}
    with pytest.raises(Exception, match="needed from offset 50 on, the first is now 60"):
        frame(**wanted).count()
    assert frame(**wanted, failOnDataLoss="false").count() == 40


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "no option says what to read"),
        ({"subscribe": "a", "assign": "{}"}, "two options say"),
        ({"subscribe": "absent"}, "no such topic: absent"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "1"}, "is for a stream, not for a batch"),
        ({"subscribe": "a", "kafka.security.protocol": "TLS"}, "security.protocol=TLS is not one of"),
    ],
)
def test_bad_options_say_what_to_do(frame: Callable[..., Any], options: Mapping[str, str], told: str) -> None:
    with pytest.raises(Exception) as caught:
        frame(**options).count()
    assert told in str(caught.value)


def test_spark_s_processes_import_pyspark_as_it_is_installed(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default they import it from a zip, and compile it each time."""

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(pyspark.__file__)]

        def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
            yield partition.value, str(pyspark.__file__)

    class Place(DataSource):
        @classmethod
        def name(cls) -> str:
            return "place-of-pyspark"

        def reader(self, schema: object) -> Reader:
            return Reader()

    monkeypatch.setattr(klamm.spark, "KafkaDataSource", Place)
    register(spark)
    data = spark.read.format("place-of-pyspark").schema("planner string, task string").load()
    assert [tuple(row) for row in data.collect()] == [(pyspark.__file__, pyspark.__file__)]


# -- streams


class Collected:
    """Keeps what the batches of a query brought, once per batch: a repeated batch replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, bytes]]] = {}
        self.lock = threading.Lock()

    def __call__(self, data: Any, number: int) -> None:
        rows = [(row.partition, row.offset, bytes(row.value)) for row in data.collect()]
        with self.lock:
            self.batches[number] = rows

    @property
    def rows(self) -> list[tuple[int, int, bytes]]:
        with self.lock:
            return sorted(row for rows in self.batches.values() for row in rows)


@pytest.fixture
def stream(spark: Any, live_cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a query that collects.

    The checkpoint belongs to the test, so a second query continues where the first ended.
    """
    started: list[Any] = []

    def start(
        into: Callable[[Any, int], None],
        trigger: Mapping[str, Any] | None = None,
        cluster: LocalCluster = live_cluster,
        **options: str,
    ) -> Any:
        data = reader(spark.readStream, cluster.bootstrap_servers, **options).load()
        writer = data.writeStream.foreachBatch(into).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        started.append(query)
        return query

    yield start
    for query in started:
        query.stop()


def ended(query: Any) -> list[Any]:
    assert query.awaitTermination(int(120 * slowness())), "the query did not end"
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def numbered(first: int, count: int) -> list[dict[str, Any]]:
    return [{"value": b"%d" % n, "partition": n % 2} for n in range(first, first + count)]


def test_batches_of_a_wanted_size_and_a_restart(
    stream: Callable[..., Any], live_cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    send(live_cluster.bootstrap_servers, topic, numbered(0, 1000))
    collected = Collected()
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
    progress = ended(stream(collected, **options))
    assert [batch["numInputRows"] for batch in progress] == [300, 300, 300, 100]
    assert json.loads(progress[0]["sources"][0]["latestOffset"] if isinstance(
        progress[0]["sources"][0]["latestOffset"], str) else json.dumps(progress[0]["sources"][0]["latestOffset"])
    ) == {topic: {"0": 500, "1": 500}}  # fmt: skip
    written = (tmp_path / "checkpoint" / "offsets" / "3").read_text().splitlines()[2]
    assert json.loads(written) == {topic: {"0": 500, "1": 500}}
    send(live_cluster.bootstrap_servers, topic, numbered(1000, 100))
    add_partitions(live_cluster, topic, 3)
    send(live_cluster.bootstrap_servers, topic, [{"value": b"new", "partition": 2}])
    ended(stream(collected, **options))
    assert collected.rows == sorted([(n % 2, n // 2, b"%d" % n) for n in range(1100)] + [(2, 0, b"new")])


def test_latest_is_pinned_by_the_checkpoint(stream: Callable[..., Any], live_cluster: LocalCluster, topic: str) -> None:
    """A failed batch is repeated from the same start, whatever has arrived since."""
    send(live_cluster.bootstrap_servers, topic, numbered(0, 10))
    ended(stream(Collected(), subscribe=topic))
    send(live_cluster.bootstrap_servers, topic, numbered(10, 10))

    def fail(data: Any, number: int) -> None:
        raise RuntimeError("not today")

    with pytest.raises(Exception, match="not today"):
        stream(fail, subscribe=topic).awaitTermination(60)
    send(live_cluster.bootstrap_servers, topic, numbered(20, 10))
    collected = Collected()
    ended(stream(collected, subscribe=topic))
    assert collected.rows == sorted((n % 2, n // 2, b"%d" % n) for n in range(10, 30))


def test_a_broker_dies_and_partitions_are_added_while_a_stream_runs(
    zookeeper: EmbeddedZooKeeper, stream: Callable[..., Any], topic_name: str, tmp_path: Path
) -> None:
    """In the end the query has read what a plain consumer reads, each record once."""
    collected = Collected()
    settings = {"auto.leader.rebalance.enable": "false", "controlled.shutdown.retry.backoff.ms": "100"}
    with GuestCluster(zookeeper, 3, directory=tmp_path / "cluster", config=settings) as cluster:
        create(cluster, topic_name, partitions=3, replicas=3)
        send(cluster.bootstrap_servers, topic_name, spread(0, 15_000, partitions=3))
        options = {"subscribe": topic_name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3000"}
        query = stream(collected, {"processingTime": "0 seconds"}, cluster, **options)
        until(query, lambda: len(collected.rows) > 0)
        victim = cluster.broker_ids[1]
        cluster.kill_broker(victim)
        send(cluster.bootstrap_servers, topic_name, spread(15_000, 3000, partitions=3))
        until(query, lambda: len(collected.rows) >= 18_000)
        cluster.start_broker(victim)
        add_partitions(cluster, topic_name, 6)
        send(cluster.bootstrap_servers, topic_name, spread(18_000, 6000, partitions=6))
        expected = [row[:2] + row[3:4] for row in consumed(cluster.bootstrap_servers, topic_name, 6)]
        until(query, lambda: len(collected.rows) >= len(expected))
        query.stop()
    assert {value for *_, value in expected} == {b"%d" % n for n in range(24_000)}
    assert collected.rows == expected


def spread(first: int, count: int, *, partitions: int) -> list[dict[str, Any]]:
    return [{"value": b"%d" % n, "partition": n % partitions} for n in range(first, first + count)]


def until(query: Any, is_so: Callable[[], bool]) -> None:
    is_in_time = within(180)
    while not is_so():
        assert query.isActive, query.exception()
        assert is_in_time(), query.lastProgress
        query.awaitTermination(0.1)


def test_the_format_that_is_there(spark: Any) -> None:
    assert klamm_kafka(spark) == "klamm-kafka" == KafkaDataSource.name(), "no jar of the connector is on the class path"
