"""A cluster of genuine Apache Kafka 4 without ZooKeeper (KRaft): each node is a broker and a controller.

The jars come through mvn, like those of Kafka 3.9.1 in `apache_kafka.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from apache_kafka import LOG4J_2, START_TIMEOUT_S, SharedJvm, shared_jvm, short_lived_java
from kafka_tools import run_tool

from engine.common.topic_id import random_topic_id, topic_id_text
from engine.local.probe import known_broker_ids
from engine.local.processes import LocalProcess, start_process

KAFKA_4_VERSION = "4.2.0"


class KRaftNode:
    """One node that is a broker and a controller. Ids start at 1: a 0 would look too much like a default."""

    java_options: Sequence[str] = ()
    """Of nodes in a JVM of their own."""

    def __init__(
        self, folder: Path, node_id: int, host: str, settings: Mapping[str, str], heap: str, *, shares_jvm: bool
    ) -> None:
        self.folder = folder
        self.node_id = node_id
        self.host = host
        self.port = 21300 + 2 * node_id
        self.bootstrap = f"{host}:{self.port}"
        self.controller_address = f"{host}:{self.port + 1}"
        self._heap = heap
        self._settings = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.controller_address}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "data"),
            **settings,
        }
        self._shares_jvm = shares_jvm
        self._jvm: SharedJvm | None = None
        self._process: LocalProcess | None = None

    @property
    def process(self) -> LocalProcess:
        assert self._process is not None, "the node was not started, or shares a JVM"
        return self._process

    def prepare(self, cluster_id: str, voters: str) -> None:
        """Write the settings, and format the log dir as Kafka's own tool does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {**self._settings, "controller.quorum.voters": voters}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if self._shares_jvm:
            shared_jvm(KAFKA_4_VERSION).do("format", self._properties, cluster_id)
            return
        words = ["format", "--cluster-id", cluster_id, "--config", str(self._properties)]
        ran = run_tool("kafka.tools.StorageTool", *words, version=KAFKA_4_VERSION)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def start(self) -> None:
        """Start the node. In a JVM of its own it is not waited for: alone it has no quorum."""
        if self._shares_jvm:
            jvm = shared_jvm(KAFKA_4_VERSION)
            jvm.do("startup", self._properties)
            self._jvm = jvm
            return
        (log4j := self.folder / "log4j2.properties").write_text(LOG4J_2)
        options = (f"-Xmx{self._heap}", f"-Dlog4j2.configurationFile={log4j}", *self.java_options)
        java = short_lived_java(*options, version=KAFKA_4_VERSION)
        self._process = start_process([*java, "kafka.Kafka", self._properties], output=self.folder / "server.log")

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive if self._jvm is None else self._jvm.is_alive

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def kill(self) -> None:
        """Kill the node with KILL; ``start`` brings it back."""
        self.process.kill()
        self._process = None

    def stop(self) -> None:
        """Stop the node as TERM does."""
        if self._jvm is not None:
            self._jvm.do("shutdown", self._properties)
            self._jvm = None
        if self._process is not None:
            self._process.stop(30.0)
            self._process = None


class KRaftCluster:
    """Several nodes that form a quorum. Use it as a context manager."""

    def __init__(
        self,
        folder: Path,
        *,
        host: str,
        nodes: int = 3,
        overrides: Mapping[str, str] | None = None,
        heap: str = "300m",
        shares_jvm: bool = True,
    ) -> None:
        """With ``shares_jvm`` no node can be killed."""
        self.host = host
        self.folder = folder
        # As for a topic id: Kafka's tool takes a text that starts with a dash for an option.
        self.cluster_id = topic_id_text(random_topic_id())
        factor = str(min(nodes, 3))
        settings = {
            "offsets.topic.num.partitions": "5",
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": factor,
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "auto.leader.rebalance.enable": "false",
            "log.cleaner.dedupe.buffer.size": "16777216",
            # By default an idle quorum writes, replicates and applies two records a second.
            "metadata.max.idle.interval.ms": "10000",
            **(overrides or {}),
        }
        self.nodes = [
            KRaftNode(folder / str(number), number, host, settings, heap, shares_jvm=shares_jvm)
            for number in range(1, nodes + 1)
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def node_ids(self) -> set[int]:
        return {node.node_id for node in self.nodes}

    def start(self) -> None:
        """Format and start all nodes, and wait until each tells clients of all of them."""
        voters = ",".join(f"{node.node_id}@{node.controller_address}" for node in self.nodes)
        for node in self.nodes:
            node.prepare(self.cluster_id, voters)
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(KRaftNode.start, self.nodes))
        self.wait_until_up()

    def node(self, node_id: int) -> KRaftNode:
        return next(node for node in self.nodes if node.node_id == node_id)

    def active_controller(self) -> int:
        """Return the node that leads the quorum. Brokers name any node to clients, so Kafka's own tool is asked."""
        words = ("--bootstrap-server", self.bootstrap, "describe", "--status")
        ran = run_tool("org.apache.kafka.tools.MetadataQuorumCommand", *words, version=KAFKA_4_VERSION)
        leader = re.search(r"LeaderId:\s*(\d+)", ran.stdout)
        assert leader is not None, ran.stdout + ran.stderr
        return int(leader[1])

    def wait_until_up(self) -> None:
        """Return when every node tells clients of all of them."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while any(known_broker_ids(node.host, node.port) != self.node_ids for node in self.nodes):
            if not all(node.is_alive for node in self.nodes) or time.monotonic() > deadline:
                said = [log.read_text("utf-8", "replace")[-2000:] for log in self.folder.glob("*/server.log")]
                self.stop()
                raise RuntimeError(f"Apache Kafka {KAFKA_4_VERSION} did not start: {said}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop all nodes at the same time: the last ones would wait for a quorum that is gone."""
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(KRaftNode.stop, self.nodes))

    def __enter__(self) -> KRaftCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
