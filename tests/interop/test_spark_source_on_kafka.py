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

SETTINGS = {"auto.create.topics.enable": "false", "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "1"}  # fmt: skip
COMMITTED = {b"committed": 80, b"plain": 8}
ALL = {b"committed": 80, b"aborted": 80, b"open": 40, b"plain": 10}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with kafka_cluster(tmp_path, 1, 21292, SETTINGS) as running:
        yield running.bootstrap


def test_transactions_of_every_codec(spark: Any, servers: str, tmp_path: Path) -> None:
    """Committed and aborted ones, an open one, and records outside of any transaction."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = fill(servers, codec)
        for isolation, wanted in (("read_committed", COMMITTED), ("read_uncommitted", ALL)):
            options = {"subscribe": codec, "includeHeaders": "true", "kafka.isolation.level": isolation}
            found = spark_rows(reader(spark.read, servers, **options).load())
            assert found == consumed(servers, codec, 2, isolation), (codec, isolation)
            assert Counter(row[3].split()[0] for row in found) == wanted
            stream = reader(spark.readStream, servers, **options, startingOffsets="earliest", maxOffsetsPerTrigger="50")
            name = f"{codec}_{isolation}"
            writer = stream.load().writeStream.format("memory").queryName(name).trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(tmp_path / name)).start()
            assert query.awaitTermination(int(120 * slowness()))
            assert spark_rows(spark.table(name)) == found
        producer.abort_transaction(60)


def fill(servers: str, codec: str) -> Producer:
    """Make a topic of two partitions, named after its codec; return the producer of the open transaction."""
    create_topic(servers, codec, partitions=2)
    # Kafka aborts the open transaction after the time-out, and a busy machine needs longer than the minute by default.
    own = {"compression.type": codec, "transactional.id": codec, "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": servers, **own})
    producer.init_transactions(60)
    for number, kind in enumerate(("committed", "aborted", "aborted", "committed", "open")):
        producer.begin_transaction()
        for n in range(40):
            producer.produce(codec, f"{kind} {n}", key=b"%d" % number, headers=[("n", b"%d" % n)], partition=n % 2)
        assert producer.flush(60) == 0
        send(servers, codec, [{"value": b"plain", "partition": n} for n in (0, 1)])
        if kind == "committed":
            producer.commit_transaction(60)
        elif kind == "aborted":
            producer.abort_transaction(60)
    return producer
