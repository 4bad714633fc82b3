"""``klamm-kafka`` reads transactions from Apache Kafka as a plain consumer does, in batches and in streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_cluster import kafka_cluster
from patience import slowness
from source_rows import consumed, reader, send, spark_rows
from wire_client import create_topic

from engine.local.zookeeper import EmbeddedZooKeeper

SETTINGS = {"auto.create.topics.enable": "false", "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "1"}  # fmt: skip
TOPIC, CODECS = "orders", ("none", "gzip", "snappy", "lz4", "zstd")
COMMITTED = {b"committed": 80, b"plain": 8}
ALL = {b"committed": 80, b"aborted": 80, b"open": 40, b"plain": 10}


@pytest.fixture
def servers(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[str]:
    with kafka_cluster(tmp_path, 1, 21292, SETTINGS, zookeeper=zookeeper) as running:
        yield running.bootstrap


def test_transactions_of_every_codec(spark: Any, servers: str, tmp_path: Path) -> None:
    """Committed and aborted ones, an open one, and records outside of any, in two partitions for each codec."""
    create_topic(servers, TOPIC, partitions=2 * len(CODECS))
    producers = [fill(servers, codec, 2 * place) for place, codec in enumerate(CODECS)]
    for isolation, wanted in (("read_committed", COMMITTED), ("read_uncommitted", ALL)):
        options = {"subscribe": TOPIC, "includeHeaders": "true", "kafka.isolation.level": isolation}
        rows = spark_rows(reader(spark.read, servers, **options).load())
        assert rows == consumed(servers, TOPIC, 2 * len(CODECS), isolation), isolation
        for place, codec in enumerate(CODECS):
            of_codec = Counter(row[3].split()[0] for row in rows if row[0] // 2 == place)
            assert of_codec == wanted, (codec, isolation)
        stream = reader(spark.readStream, servers, **options, startingOffsets="earliest", maxOffsetsPerTrigger="250")
        writer = stream.load().writeStream.format("memory").queryName(isolation).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / isolation)).start()
        assert query.awaitTermination(int(120 * slowness()))
        assert len([batch for batch in query.recentProgress if batch["numInputRows"]]) > 1
        assert spark_rows(spark.table(isolation)) == rows
    for producer in producers:
        producer.abort_transaction(60)


def fill(servers: str, codec: str, first: int) -> Producer:
    """Fill two partitions with records of a codec; return the producer of the open transaction."""
    # Kafka aborts the open transaction after the time-out, and a busy machine needs longer than the minute by default.
    own = {"compression.type": codec, "transactional.id": codec, "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": servers, **own})
    producer.init_transactions(60)
    for number, kind in enumerate(("committed", "aborted", "aborted", "committed", "open")):
        producer.begin_transaction()
        for n in range(40):
            place = first + n % 2
            producer.produce(TOPIC, f"{kind} {n}", key=b"%d" % number, headers=[("n", b"%d" % n)], partition=place)
        assert producer.flush(60) == 0
        send(servers, TOPIC, [{"value": b"plain", "partition": first + n} for n in (0, 1)])
        if kind == "committed":
            producer.commit_transaction(60)
        elif kind == "aborted":
            producer.abort_transaction(60)
    return producer
