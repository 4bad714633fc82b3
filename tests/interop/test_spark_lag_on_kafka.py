"""Spark reads from Apache Kafka 3.9.1 while a broker is killed: klamm's lag matches what the query reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafkaBroker
from kafka_cluster import kafka_cluster
from klamm_program import in_process
from patience import wait_for
from query_ways import all_ways_agree, produce, start
from wire_client import create_topic

from engine.common.model import TopicPartition
from engine.local.zookeeper import EmbeddedZooKeeper

TOPIC = "orders"
STEP = 60
SETTINGS = {"auto.create.topics.enable": "false", "controlled.shutdown.enable": "false"}


@pytest.fixture
def brokers(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Sequence[ApacheKafkaBroker]]:
    """Two Kafka brokers; the first is the controller, and the second may be killed."""
    each = ({}, {"shares_jvm": False})
    with kafka_cluster(tmp_path, 2, 21292, SETTINGS, each=each, zookeeper=zookeeper) as running:
        yield running.brokers


@pytest.fixture
def listener(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """The folder that klamm's listener writes into."""
    from klamm.spark_listener import LagListener

    lag_listener = LagListener(tmp_path / "told")
    spark.streams.addListener(lag_listener)
    try:
        yield tmp_path / "told"
    finally:
        spark.streams.removeListener(lag_listener)
        lag_listener.close()


def test_all_ways_agree_while_a_broker_is_killed(
    spark: Any,
    brokers: Sequence[ApacheKafkaBroker],
    listener: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers, checkpoint = ",".join(broker.bootstrap for broker in brokers), tmp_path / "checkpoint"
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", servers)
    monkeypatch.chdir(tmp_path)

    def program(*words: str | Path) -> Any:
        return in_process(*words, capture=capsys)

    def in_sync() -> list[list[int]]:
        (topic,) = program("topics", "describe", TOPIC, "-o", "json").json
        return [sorted(partition["isr"]) for partition in topic["partitions"]]

    # Each broker leads one of the partitions.
    create_topic(brokers[0].bootstrap, TOPIC, assignment={0: [0, 1], 1: [1, 0]})
    produce(servers, TOPIC, STEP)
    query = start(spark, servers, TOPIC, TOPIC, checkpoint, maxOffsetsPerTrigger=20)
    try:
        query.processAllAvailable()
        all_ways_agree(spark, query, program, checkpoint, listener)
        wait_for(lambda: in_sync() == [[0, 1], [0, 1]], "either broker may go")
        brokers[1].process.kill()
        # The dead broker still leads its partition. These records wait for the election, and the query waits for them.
        produce(servers, TOPIC, STEP)
        query.processAllAvailable()
        own = all_ways_agree(spark, query, program, checkpoint, listener)
        assert own[max(own)] == {TopicPartition(TOPIC, 0): STEP, TopicPartition(TOPIC, 1): STEP}
        assert len(own) >= 2 * STEP // 20
        wait_for(lambda: in_sync() == [[0], [0]], "it was killed in the midst")
    finally:
        query.stop()
