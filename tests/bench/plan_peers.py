"""kafka-utils, the best planner among the peers on PyPI, run live beside klamm, in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "kafka-utils==4.1.0"
LIMIT_S = 300.0


@dataclass(frozen=True)
class PeerResult:
    """What the peer's plan costs, and the range of replicas per broker that it leaves."""

    moves: int
    leader_changes: int
    replica_range: int
    wall_s: float


class KafkaUtils:
    """The planner of kafka-utils. ``reason`` says why it cannot run here, None if it can."""

    def __init__(self, folder: Path) -> None:
        self._python = folder / "peer" / "bin" / "python"
        self.reason: str | None = None
        try:
            subprocess.run(
                [sys.executable, "-m", "venv", folder / "peer"], check=True, capture_output=True, timeout=120
            )
            install = [self._python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
            subprocess.run(install, check=True, capture_output=True, timeout=300)
        except (subprocess.SubprocessError, OSError) as error:
            self.reason = f"{PACKAGE} does not install here: {error}"

    def plan(self, scenario: Path, words: tuple[str, ...]) -> PeerResult | str:
        """Return the peer's plan for a scenario file, or why it makes none."""
        removed = words[1] if words[0] == "decommission" else ""
        if words[0] not in ("decommission", "expand", "racks", "rebalance"):
            return f"has no {words[0]}"
        started = time.monotonic()
        try:
            ran = subprocess.run(
                [self._python, "-c", _DRIVER, scenario, removed],
                check=False, capture_output=True, text=True, timeout=LIMIT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"not done in {LIMIT_S:g} s"
        if ran.returncode:
            return f"fails: {ran.stderr.splitlines()[-1] if ran.stderr else ran.returncode}"
        wall_s = time.monotonic() - started
        return _scored(
            json.loads(scenario.read_text("utf-8")), json.loads(ran.stdout.splitlines()[-1]), removed, wall_s
        )


def _scored(document: dict, after: dict[str, list[int]], removed: str, wall_s: float) -> PeerResult:
    moves = changes = 0
    gone = {int(broker) for broker in removed.split(",") if broker}
    counts = {broker["id"]: 0 for broker in document["brokers"] if broker["id"] not in gone}
    for partition in document["partitions"]:
        new = after[f"{partition['topic']}-{partition['partition']}"]
        moves += len(set(new) - set(partition["replicas"]))
        changes += new[0] != partition["replicas"][0]
        for broker in new:
            counts[broker] = counts.get(broker, 0) + 1
    return PeerResult(moves, changes, max(counts.values()) - min(counts.values()), wall_s)


_DRIVER = """
import argparse, json, sys
from kafka_utils.kafka_cluster_manager.cluster_info.cluster_topology import ClusterTopology
from kafka_utils.kafka_cluster_manager.cluster_info.partition_count_balancer import PartitionCountBalancer
from kafka_utils.kafka_cluster_manager.cluster_info.partition_measurer import UniformPartitionMeasurer

document = json.load(open(sys.argv[1]))
removed = [int(broker) for broker in sys.argv[2].split(",") if broker]
racks = {broker["id"]: broker["rack"] for broker in document["brokers"]}
assignment = {(entry["topic"], entry["partition"]): list(entry["replicas"]) for entry in document["partitions"]}
words = argparse.Namespace(
    replication_groups=True, brokers=True, leaders=True, max_movement_size=None, max_partition_movements=None,
    max_leader_changes=None, balancer_args=[], measurer_args=[],
)
brokers = {broker: {"host": str(broker)} for broker in racks}
measurer = UniformPartitionMeasurer(None, brokers, assignment, words)
topology = ClusterTopology(assignment, brokers, measurer, lambda broker: str(racks[broker.id]))
balancer = PartitionCountBalancer(topology, words)
if removed:
    balancer.decommission_brokers(removed)
else:
    balancer.rebalance()
print(json.dumps({f"{topic}-{number}": replicas for (topic, number), replicas in topology.assignment.items()}))
"""
