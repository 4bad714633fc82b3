"""Three brokers for operators' commands, over the wire and through the znodes; one cluster per process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guest_cluster import GuestCluster
from klamm_program import Ran, in_process

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]


def of_three_brokers(zookeeper: EmbeddedZooKeeper, folder: Path) -> LocalCluster:
    """Return a cluster whose leaders stay where they are, and in which a throttled move takes time."""
    settings = {
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        # Every command about all partitions meets those of internal topics.
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "controlled.shutdown.retry.backoff.ms": "100",
        "replica.fetch.max.bytes": "65536",
        "log.cleaner.backoff.ms": "200",
        # Only then can a transaction hang.
        "transaction.partition.verification.enable": "false",
    }
    return GuestCluster(zookeeper, 3, directory=folder, config=settings, racks=["a", "b", "c"])


@pytest.fixture(scope="session")
def three_brokers(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with of_three_brokers(zookeeper, tmp_path_factory.mktemp("three-brokers")) as cluster:
        yield cluster


class Klamm:
    """Runs commands against one interface of the cluster."""

    def __init__(self, capture: Capture, *where: str) -> None:
        self.where = where
        self._capture = capture

    def __call__(self, *words: str | Path, stdin: str = "") -> Ran:
        return in_process(*words, *self.where, capture=self._capture, stdin=stdin)

    def leaders(self, topic: str) -> list[int]:
        return [p["leader"] for p in self.partitions(topic)]

    def replicas(self, topic: str) -> list[list[int]]:
        return [p["replicas"] for p in self.partitions(topic)]

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        described = self("topics", "describe", topic, "-o", "json").json
        return list(described[0]["partitions"])

    def settings(self, *entity: str) -> dict[str, str]:
        configs = self("configs", "describe", *entity, "-o", "json").json
        entities = configs if isinstance(configs, list) else [configs]
        return {entry["name"]: entry["value"] for entity in entities for entry in entity["configs"]}


@pytest.fixture
def by_wire(three_brokers: LocalCluster, capsys: Capture) -> Klamm:
    return Klamm(capsys, "--bootstrap-server", three_brokers.bootstrap_servers)


@pytest.fixture
def by_znodes(three_brokers: LocalCluster, capsys: Capture) -> Klamm:
    return Klamm(capsys, "--zookeeper", three_brokers.zookeeper_connect)


@pytest.fixture(params=["wire", "znodes"])
def klamm_by(request: pytest.FixtureRequest, by_wire: Klamm, by_znodes: Klamm) -> Klamm:
    return by_wire if request.param == "wire" else by_znodes


def plan_file(folder: Path, topic: str, *replicas: list[int]) -> Path:
    partitions = [{"topic": topic, "partition": index, "replicas": replica} for index, replica in enumerate(replicas)]
    path = folder / f"plan-{time.monotonic_ns()}.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def filled(klamm: Klamm, topic: str, assignment: str, records: int = 3000) -> None:
    """Create a topic and write this many records of a kilobyte to each of its partitions."""
    created = klamm("topics", "create", topic, "--replica-assignment", assignment)
    assert created.code == 0, created.err
    for partition in range(assignment.count(",") + 1):
        lines = ("x" * 999 + "\n") * records
        sent = klamm("produce", topic, "--partition", str(partition), "--acks", "all", stdin=lines)
        assert sent.code == 0, sent.err
