"""A real query, and the ways in which klamm reads its lag: all must agree with what the query itself reports.

It is written once: the tests play it on our engine and on Apache Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from klamm_program import Ran
from patience import wait_for

from engine.admin.lag.spark_checkpoints import read_checkpoint
from engine.admin.lag.spark_positions import BATCHES_MAX, Query, ReaderKind
from engine.admin.lag.spark_traces import find_event_logs, read_event_logs
from engine.admin.lag.stores import locate
from engine.kafka.formats.spark_checkpoints import Offsets, kafka_offsets

DEADLINE_S = 60.0

Ends = dict[int, Offsets]
"""The offsets where each finished batch ended."""


def produce(servers: str, topic: str, count: int) -> None:
    """Send records to two partitions in turn, until all replicas have them."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    for number in range(count):
        producer.produce(topic, b"v%d" % number, partition=number % 2)
    assert producer.flush(DEADLINE_S) == 0


def start(
    spark: Any, servers: str, topic: str, name: str, checkpoint: Path, kind: str = "klamm-kafka", **options: object
) -> Any:
    """Start a query that reads a topic from the beginning, with this kind of source."""
    reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    for option, value in options.items():
        reader = reader.option(option, value)
    writer = reader.load().writeStream.format("noop").queryName(name).option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="100 milliseconds").start()


def all_ways_agree(spark: Any, query: Any, program: Callable[..., Ran], checkpoint: Path, told: Path) -> Ends:
    """Check checkpoint, event log and the listener's files against the query itself, which has read everything.

    All of them keep only the latest ``BATCHES_MAX``.

    Returns:
        What the query reports.
    """
    query_id, name, events = str(query.id), query.name, spark.conf.get("spark.eventLog.dir")
    own = {
        progress["batchId"]: kafka_offsets(progress["sources"][0]["endOffset"])
        for reported in query.recentProgress
        if (progress := json.loads(reported.json))["numInputRows"]
    }
    wait_for(lambda: max(_ends_of(_of_kind(told, query_id, ReaderKind.LISTENER)), default=-1) == max(own), "told")
    wait_for(lambda: max(_ends_of(_of_kind(events, query_id, ReaderKind.EVENT_LOG)), default=-1) == max(own), "logged")
    ways = {
        "checkpoint": read_checkpoint(locate(str(checkpoint))),
        "event_log": _of_kind(events, query_id, ReaderKind.EVENT_LOG),
        "listener": _of_kind(told, query_id, ReaderKind.LISTENER),
    }
    latest = dict(sorted(own.items())[-BATCHES_MAX:])
    assert {way: _ends_of(offsets) for way, offsets in ways.items()} == dict.fromkeys(ways, latest)
    assert {query.query_id for query in ways.values() if query} == {query_id}
    traces = [("--checkpoint", checkpoint), ("--event-log", events), ("--event-log", told)]
    for named in (*([trace] for trace in traces), traces):
        words = [str(word) for trace in named for word in trace]
        ran = program("lag", *words, "--topic", name, "--partitions", "-o", "json")
        rows = [row for row in ran.json if row["query_id"] == query_id]
        shown = [(row["status"], row["lag"], row["batch_id"]) for row in rows]
        assert shown == [("OK", 0, max(own))], "each way says the same, and all of them say it once"
    assert [row["group"] for row in rows] == [name], "a checkpoint alone knows no name"
    return own


def _of_kind(logs: str | Path, query_id: str, kind: ReaderKind) -> Query | None:
    queries, failures = read_event_logs(find_event_logs(locate(str(logs))))
    assert failures == []
    return next((query for query in queries if query.query_id == query_id and query.kind is kind), None)


def _ends_of(query: Query | None) -> Ends:
    return {} if query is None else {batch.batch_id: batch.ends["0"] for batch in query.finished}
