"""A real query reads from our brokers: checkpoint, event log and listener tell what it tells itself, batch by batch.

And what is committed for it is what ``klamm groups`` shows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from topic_program import Program

from engine.admin.lag.checkpoints import read_checkpoint
from engine.admin.lag.event_logs import find_event_logs, read_event_logs
from engine.admin.lag.positions import Query, ReaderKind
from engine.admin.lag.stores import locate
from engine.common.model import TopicPartition
from engine.formats.spark_checkpoints import Offsets, kafka_offsets
from engine.local.cluster import LocalCluster

DEADLINE_S = 60.0


@pytest.fixture
def listener(spark: Any, tmp_path: Path, live_cluster: LocalCluster) -> Iterator[Path]:
    """The folder into which klamm's listener writes; it also commits to a group per query."""
    from klamm.spark_listener import LagListener

    one = LagListener(
        tmp_path / "told",
        group="mirror-{query}",
        bootstrap_servers=live_cluster.bootstrap_servers,
        commit_interval_s=0.2,
    )
    spark.streams.addListener(one)
    try:
        yield tmp_path / "told"
    finally:
        spark.streams.removeListener(one)
        one.close()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.05)


def produce(servers: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    for number in range(count):
        producer.produce(topic, b"v%d" % number, partition=number % 2)
    assert producer.flush(40) == 0


def start(spark: Any, servers: str, topic: str, name: str, checkpoint: Path, **options: object) -> Any:
    reader = spark.readStream.format("klamm-kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    for option, value in options.items():
        reader = reader.option(option, value)
    writer = reader.load().writeStream.format("noop").queryName(name).option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="100 milliseconds").start()


def of_kind(logs: str | Path, query_id: str, kind: ReaderKind) -> Query | None:
    queries, failures = read_event_logs(find_event_logs(locate(str(logs))))
    assert failures == []
    return next((query for query in queries if query.query_id == query_id and query.kind is kind), None)


def ends_of(query: Query | None) -> dict[int, Offsets]:
    return {} if query is None else {batch.batch_id: batch.ends["0"] for batch in query.finished}


def test_all_ways_agree_with_the_query_at_every_batch(
    spark: Any, program: Program, listener: Path, topic_name: str, live_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers, checkpoint, events = (
        live_cluster.bootstrap_servers,
        tmp_path / "checkpoint",
        spark.conf.get("spark.eventLog.dir"),
    )
    produce(servers, topic_name, 100)
    query = start(spark, servers, topic_name, topic_name, checkpoint, maxOffsetsPerTrigger=40)
    query_id, place = str(query.id), locate(str(checkpoint))
    try:
        for _ in range(3):
            query.processAllAvailable()
            produce(servers, topic_name, 30)
        query.processAllAvailable()
        own = {
            progress["batchId"]: kafka_offsets(progress["sources"][0]["endOffset"])
            for one in query.recentProgress
            if (progress := json.loads(one.json))["numInputRows"]
        }
        assert len(own) >= 5
        assert own[max(own)] == {TopicPartition(topic_name, 0): 95, TopicPartition(topic_name, 1): 95}
        wait_for(lambda: max(ends_of(of_kind(listener, query_id, ReaderKind.LISTENER)), default=-1) == max(own), "told")
        wait_for(
            lambda: max(ends_of(of_kind(events, query_id, ReaderKind.EVENT_LOG)), default=-1) == max(own), "logged"
        )
        ways = {
            "checkpoint": read_checkpoint(place),
            "event_log": of_kind(events, query_id, ReaderKind.EVENT_LOG),
            "listener": of_kind(listener, query_id, ReaderKind.LISTENER),
        }
        assert {way: ends_of(one) for way, one in ways.items()} == dict.fromkeys(ways, own)
        assert {one.query_id for one in ways.values() if one} == {query_id}
        ran = program("lag", "--checkpoint", checkpoint, "--event-log", events, "--event-log", listener,
                      "--topic", topic_name, "--partitions", "-o", "json")  # fmt: skip
        rows = [row for row in ran.json if row["query_id"] == query_id]
        told = {row["kind"]: (row["group"], row["status"], row["lag"], row["batch_id"]) for row in rows}
        assert told == dict.fromkeys(ways, (topic_name, "OK", 0, max(own)))
    finally:
        query.stop()
    _lag_while_it_stands_still(program, topic_name, servers, checkpoint, listener)


def _lag_while_it_stands_still(program: Program, topic: str, servers: str, checkpoint: Path, listener: Path) -> None:
    produce(servers, topic, 20)
    ran = program("lag", "--checkpoint", checkpoint, "--event-log", listener, "-o", "json")
    assert {row["kind"]: row["lag"] for row in ran.json} == {"checkpoint": 20, "listener": 20}

    def mirrored() -> list[tuple[int, int]]:
        ran = program("groups", "describe", "--group", f"mirror-{topic}", "-o", "json")
        return [(one["current_offset"], one["lag"]) for one in ran.json[0]["partitions"]] if ran.code == 0 else []

    wait_for(lambda: mirrored() == [(95, 10), (95, 10)], "what the listener had committed")
    ran = program("spark", "commit", checkpoint, "--group", f"{topic}-once", "-o", "json", "--yes")
    assert (ran.code, [(one["new_offset"], one["result"]) for one in ran.json]) == (0, [(95, "reset")] * 2)
    shown = program("groups", "describe", "--group", f"{topic}-once", "-o", "json").json[0]["partitions"]
    assert [(one["current_offset"], one["lag"]) for one in shown] == [(95, 10)] * 2
    (job,) = program("spark", "jobs", checkpoint, "-o", "json").json
    assert (job["path"], job["lag"], job["sources"]) == (
        str(checkpoint),
        20,
        [{"source": "0", "topics": [topic], "partition_count": 2}],
    )
    assert job["last_commit"] is not None
