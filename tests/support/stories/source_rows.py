"""What ``klamm-kafka`` reads and what a plain consumer reads, in one form for comparison."""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition


def send(servers: str, topic: str, records: list[dict[str, Any]], **settings: Any) -> None:
    """Send records and wait until all replicas have them."""
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "acks": "all", **settings})
    for record in records:
        producer.produce(topic, on_delivery=lambda error, _: failures.append(error) if error else None, **record)
    assert producer.flush(60) == 0
    assert not failures


def consumed(servers: str, topic: str, partitions: int, isolation: str = "read_uncommitted") -> list[tuple[Any, ...]]:
    """Return what a plain consumer reads, by partition and offset."""
    settings = {"bootstrap.servers": servers, "group.id": "unused", "enable.partition.eof": True}
    consumer = Consumer(settings | {"enable.auto.commit": False, "isolation.level": isolation})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    values, ended = [], 0
    while ended < partitions:
        message = consumer.poll(30)
        assert message is not None, "the consumer got nothing"
        if message.error():
            ended += 1
            continue
        kind, time = message.timestamp()
        place = (message.partition(), message.offset())
        values.append((*place, message.key(), message.value(), time, kind - 1, message.headers()))
    consumer.close()
    return sorted(values, key=lambda row: row[:2])


def reader(source: Any, servers: str, **options: str) -> Any:
    """Make a reader ready to load."""
    given = {"kafka.bootstrap.servers": servers} | options
    return source.format("klamm-kafka").options(**given)


def spark_rows(data: Any) -> list[tuple[Any, ...]]:
    """Return rows in the form of ``consumed``."""
    from pyspark.sql import functions as f

    chosen = data.select(
        "partition", "offset", "key", "value", f.unix_millis("timestamp").alias("time"), "timestampType", "headers"
    )
    return [
        (
            row.partition,
            row.offset,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.time,
            row.timestampType,
            [(header.key, None if header.value is None else bytes(header.value)) for header in row.headers or ()]
            or None,
        )
        for row in chosen.orderBy("partition", "offset").collect()
    ]
