"""``klamm-kafka`` as a sink: a plain consumer reads exactly what was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from patience import slowness

from engine.admin.records.partitioner import partition_for_key
from engine.local.cluster import LocalCluster

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def topic(live_cluster: LocalCluster, topic_name: str) -> str:
    admin = AdminClient({"bootstrap.servers": live_cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic_name, num_partitions=3)])[topic_name].result(30)
    return topic_name


def consumed(cluster: LocalCluster, topic: str) -> list[Any]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused", "enable.partition.eof": True}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(3)])
    values, ended = [], 0
    while ended < 3:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended += 1
        else:
            values.append((message.partition(), message.key(), message.value(), message.headers()))
    consumer.close()
    return values


@pytest.fixture
def write(live_cluster: LocalCluster) -> Callable[..., None]:
    def do(data: Any, **options: str) -> None:
        given = {"kafka.bootstrap.servers": live_cluster.bootstrap_servers} | options
        data.write.format("klamm-kafka").options(**given).mode("append").save()

    return do


def test_a_batch_with_every_column(
    spark: Any, write: Callable[..., None], live_cluster: LocalCluster, topic: str
) -> None:
    rows = [
        (topic, 2, bytearray(b"k"), bytearray(b"v"), [("a", bytearray(b"1")), ("b", None)]),
        (topic, 0, None, None, []),
        (topic, 1, bytearray(b""), bytearray(b""), None),
    ]
    headers = "array<struct<key string, value binary>>"
    data = spark.createDataFrame(rows, f"topic string, partition int, key binary, value binary, headers {headers}")
    write(data)
    assert sorted(consumed(live_cluster, topic), key=lambda row: int(row[0])) == [
        (0, None, None, None),
        (1, b"", b"", None),
        (2, b"k", b"v", [("a", b"1"), ("b", None)]),
    ]


@pytest.mark.parametrize(("codec", "count"), [("none", 100_000), ("zstd", 500)])
def test_text_by_key_goes_where_kafka_would_put_it(
    spark: Any, write: Callable[..., None], live_cluster: LocalCluster, topic: str, codec: str, count: int
) -> None:
    """Each task sends the larger number in several rounds."""
    value = "concat(repeat('value ', 40), id) as value"
    data = spark.range(0, count, 1, 1).selectExpr("cast(id % 50 as string) as key", value)
    write(data, topic=topic, **{"kafka.compression.type": codec})
    values = consumed(live_cluster, topic)
    numbers = [int(row[2].removeprefix(b"value " * 40)) for row in values]
    assert sorted(numbers) == list(range(count))
    assert {(row[1], row[0]) for row in values} == {(b"%d" % n, partition_for_key(b"%d" % n, 3)) for n in range(50)}
    by_partition = [
        [n for n, row in zip(numbers, values, strict=True) if row[0] == partition] for partition in range(3)
    ]
    assert by_partition == [sorted(some) for some in by_partition], "one task, so in the order of the rows"


def test_a_stream(spark: Any, live_cluster: LocalCluster, topic: str, topic_name: str, tmp_path: Path) -> None:
    spark.range(100).selectExpr("cast(id as string) as value").write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema("value string").parquet(str(tmp_path / "in"))
    query = (
        source.writeStream.format("klamm-kafka")
        .option("kafka.bootstrap.servers", live_cluster.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(int(120 * slowness()))
    assert sorted(int(row[2]) for row in consumed(live_cluster, topic)) == list(range(100))


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("'x' as value", {}, "nothing names the topic"),
        ("'x' as wrong", {"topic": "t"}, "there is no column value"),
        ("1 as value", {"topic": "t"}, "the column value has the type int"),
        ("'x' as value, 'y' as other", {"topic": "t"}, "the column other has the type string"),
        ("'x' as value", {"topic": "absent"}, "absent"),
        ("'x' as value", {"topic": "t", "kafka.acks": "2"}, "kafka.acks must be all, 1 or 0"),
        ("'x' as value", {"topic": "t", "acks": "1"}, "no such option: acks"),
        ("'x' as value, cast(null as string) as topic", {}, "a row has no topic"),
        ("'x' as value, 3 as partition", {"topic": "three partitions"}, "has no partition 3"),
    ],
)
def test_what_cannot_be_written(
    spark: Any, write: Callable[..., None], topic: str, columns: str, options: dict[str, str], expected: str
) -> None:
    options = options | ({"topic": topic} if options.get("topic") == "three partitions" else {})
    with pytest.raises(Exception) as caught:
        write(spark.range(1).selectExpr(*columns.split(", ")), **options)
    assert expected in str(caught.value)
