"""A broker of klamm and one of Kafka that reach each other by SCRAM over TLS: users, ACLs, kills, both as controller.

Kafka's tools make the topic and the ACLs; librdkafka writes and reads as a user with no more rights than these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import fetch_jars, run_tool
from confluent_kafka import Consumer, KafkaError, Producer

from engine.local.cluster import LocalCluster
from engine.local.java import find_java
from engine.local.security import librdkafka_path, properties_path

KLAMM, KAFKA = 0, 1
DEADLINE_S = 90.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("secured")
    kafka = [str(find_java().program), "-Xmx320m", "-XX:+UseG1GC", "-cp", f"{fetch_jars()}/*", "kafka.Kafka"]
    config = {
        "zookeeper.session.timeout.ms": "4000",
        "replica.lag.time.max.ms": "4000",
        "offsets.topic.num.partitions": "2",
        "auto.leader.rebalance.enable": "false",
        "log.cleaner.dedupe.buffer.size": "16777216",
    }
    with LocalCluster(
        [KLAMM, KAFKA], directory=folder, config=config, commands={KAFKA: kafka},
        secure=True, sasl="SCRAM-SHA-512", acls=True, start_timeout_s=DEADLINE_S,
    ) as running:  # fmt: skip
        yield running


def as_user(cluster: LocalCluster, user: str) -> dict[str, Any]:
    lines = librdkafka_path(cluster.directory, user).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines) | {"log_level": 2}


def tool(cluster: LocalCluster, main_class: str, *arguments: str) -> str:
    config = str(properties_path(cluster.directory))
    ran = run_tool(main_class, "--bootstrap-server", cluster.bootstrap_servers, "--command-config", config, *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def send(cluster: LocalCluster, user: str, values: list[str]) -> set[int | None]:
    """Send values to both partitions and return the codes of the errors."""
    codes: set[int | None] = set()
    settings = {"acks": "all", "delivery.timeout.ms": int(DEADLINE_S * 1000), "linger.ms": 0}
    producer = Producer(as_user(cluster, user) | settings)
    for value in values:
        for partition in (0, 1):
            producer.produce(
                "orders", f"{value}-{partition}", partition=partition,
                on_delivery=lambda error, _: codes.add(error and error.code()),
            )  # fmt: skip
    assert producer.flush(DEADLINE_S) == 0
    return codes


def read(cluster: LocalCluster, count: int) -> list[str]:
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(as_user(cluster, "alice") | settings)
    consumer.subscribe(["orders"])
    values: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None, message.error()
                values.append(message.value().decode())
    finally:
        consumer.close()
    return values


def wait_in_sync(cluster: LocalCluster) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while said := tool(
        cluster,
        "org.apache.kafka.tools.TopicCommand",
        "--describe",
        "--topic",
        "orders",
        "--under-replicated-partitions",
    ).strip():
        assert time.monotonic() < deadline, said


def test_a_mixed_cluster_keeps_what_it_acknowledged_and_who_may_do_what(cluster: LocalCluster) -> None:
    tool(
        cluster, "org.apache.kafka.tools.TopicCommand", "--create", "--topic", "orders",
        "--replica-assignment", f"{KLAMM}:{KAFKA},{KAFKA}:{KLAMM}",
    )  # fmt: skip
    assert send(cluster, "alice", ["refused"]) == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
    tool(
        cluster, "kafka.admin.AclCommand", "--add", "--allow-principal", "User:alice",
        "--producer", "--consumer", "--topic", "orders", "--group", "readers",
    )  # fmt: skip
    wait_until_allowed(cluster)
    assert send(cluster, "bob", ["refused"]) == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
    acknowledged = [f"{value}" for value in range(50)]
    assert send(cluster, "alice", acknowledged) == {None}
    was_controller = set()
    for round_number in (1, 2):
        controller = cluster.controller_id()
        assert controller is not None
        was_controller.add(controller)
        cluster.kill_broker(controller)
        more = [f"{round_number}-{value}" for value in range(50)]
        assert send(cluster, "alice", more) == {None}
        acknowledged += more
        cluster.start_broker(controller)
        wait_in_sync(cluster)
    assert was_controller == {KLAMM, KAFKA}
    expected = sorted(f"{value}-{partition}" for value in acknowledged for partition in (0, 1))
    values = read(cluster, len(expected))
    assert sorted(set(values)) == expected


def wait_until_allowed(cluster: LocalCluster) -> None:
    """Both brokers learn of new ACLs from ZooKeeper, a moment after the tool has ended."""
    producer = Producer(as_user(cluster, "alice"))
    deadline = time.monotonic() + DEADLINE_S
    while any(topic.error for topic in producer.list_topics("orders", timeout=10).topics.values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_secrets_are_nobody_elses_and_go_with_the_cluster(cluster: LocalCluster) -> None:
    secrets = [*cluster.directory.glob("*.properties"), *cluster.directory.glob("*.kcat"),
               *cluster.directory.glob("security/*.pem"), *cluster.directory.glob("broker-*/server.properties"),
               cluster.directory / "local.json"]  # fmt: skip
    assert len(secrets) == 11
    assert {path.stat().st_mode & 0o077 for path in secrets} == {0}
    password = as_user(cluster, "alice")["sasl.password"]
    logs = [path.read_text("utf-8", "replace") for path in Path(cluster.directory).glob("broker-*/logs/*.log")]
    assert logs and not any(password in text for text in logs)
