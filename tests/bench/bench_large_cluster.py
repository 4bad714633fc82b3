"""klamm on a cluster of 50,000 partitions: commands on a snapshot, and reading it from ZooKeeper and over the wire.

The cluster is made up (``fixtures/snapshots``), and its znodes are loaded into a real ZooKeeper. Commands are cold
processes, and memory is the peak of a process. ``KLAMM_BENCH_PARTITIONS`` makes it smaller.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from engine.admin.cluster.snapshot_file import save_snapshot
from engine.admin.topics.by_wire import topic_from_metadata
from engine.admin.topics.by_znode import ZkTopicReader
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicPartition
from engine.common.snapshot import ClusterSnapshot, TopicSnapshot
from engine.kafka.protocol.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from engine.kafka.protocol.codec import Outgoing, decoder, encoder
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.configs import ConfigEntityZNode, ConfigType
from engine.kafka.zk.operations import Create
from engine.kafka.zk.topics import TopicPartitionStateZNode, TopicZNode
from engine.local.zookeeper import EmbeddedZooKeeper

PARTITIONS = int(os.environ.get("KLAMM_BENCH_PARTITIONS", "50000"))
TOPICS = PARTITIONS // 5
ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "3"))
KLAMM = str(Path(sys.executable).with_name("klamm"))
SCRIPT = Path(__file__).parents[2] / "fixtures" / "snapshots" / "large_cluster.py"
METADATA_VERSION = 12
TOPICS_AT_ONCE = 200


def main() -> None:
    """Print all figures."""
    cluster: ClusterSnapshot = runpy.run_path(str(SCRIPT))["large_cluster"](topics=TOPICS, partitions=PARTITIONS)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{TOPICS} topics, {PARTITIONS} partitions, {len(cluster.brokers)} brokers; best of {ROUNDS}")
        print(f"{'':44} {'wall s':>8} {'CPU s':>8} {'MB':>6}")
        snapshot_rows(cluster, Path(folder))
        metadata_row(cluster)
        with EmbeddedZooKeeper(fsync=False) as zookeeper:
            asyncio.run(fill(zookeeper.connect_string, cluster.topics))
            zookeeper_rows(zookeeper.connect_string)


def snapshot_rows(cluster: ClusterSnapshot, folder: Path) -> None:
    """Commands that read a snapshot file."""
    snapshot, topics = folder / "snapshot.json", folder / "topics.json"
    save_snapshot(cluster, snapshot)
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic.name} for topic in cluster.topics]}))
    brokers = ",".join(str(broker.id) for broker in cluster.brokers)
    for words in (
        ["topics", "list"],
        ["topics", "describe", "--under-replicated-partitions"],
        ["topics", "describe", "--under-replicated-partitions", "-o", "table"],
        ["topics", "describe", "-o", "json"],
        ["cluster", "health"],
        ["cluster", "load"],
        ["reassign", "generate", "--topics-to-move-json-file", str(topics), "--broker-list", brokers],
    ):
        row(
            f"snapshot: {' '.join(word for word in words[:3] if '/' not in word)}",
            [*words, "--snapshot", str(snapshot)],
        )


def zookeeper_rows(connect: str) -> None:
    """Read the whole cluster from ZooKeeper."""
    row("ZooKeeper: topics describe, all", ["topics", "describe", "--zookeeper", connect, "--timeout", "120"])
    row("ZooKeeper: topics describe, one", ["topics", "describe", "orders.00000", "--zookeeper", connect])

    async def read() -> int:
        async with await ZkClient.connect(connect, session_timeout_ms=30_000) as zk:
            reader = ZkTopicReader(zk)
            topics = await reader.topics([entry.topic for entry in await reader.names()])
        return sum(len(topic.partitions) for topic in topics)

    begin, cpu = time.perf_counter(), time.process_time()
    assert asyncio.run(read()) == PARTITIONS
    wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    print(f"{'ZooKeeper: all topics into a snapshot':44} {wall_s:8.2f} {cpu_s:8.2f}")


def metadata_row(cluster: ClusterSnapshot) -> None:
    """One Metadata answer, decoded and turned into topics."""
    out = Outgoing()
    encoder(MetadataResponse, METADATA_VERSION)(out, metadata_of(cluster.topics))
    begin, cpu = time.perf_counter(), time.process_time()
    response, _ = decoder(MetadataResponse, METADATA_VERSION)(memoryview(bytes(out)), 0)
    topics = [topic_from_metadata(topic, {}, {}) for topic in response.topics]
    wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    assert sum(len(topic.partitions) for topic in topics) == PARTITIONS
    print(f"{f'wire: one Metadata answer of {len(out) / 1e6:.1f} MB':44} {wall_s:8.2f} {cpu_s:8.2f}")


def metadata_of(topics: Sequence[TopicSnapshot]) -> MetadataResponse:
    """Return the answer that a broker of the cluster would give."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id or bytes(16),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=p.partition,
                        leader_id=p.leader,
                        leader_epoch=p.leader_epoch or 0,
                        replica_nodes=list(p.replicas),
                        isr_nodes=list(p.isr),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


async def fill(connect: str, topics: Sequence[TopicSnapshot]) -> None:
    """Put the znodes of all topics into ZooKeeper."""
    begin = time.perf_counter()
    async with await ZkClient.connect(connect, session_timeout_ms=30_000) as zk:
        for path in ("/brokers", "/brokers/topics", "/brokers/ids", "/config", "/config/topics", "/admin"):
            await zk.create(path, None)
        await zk.create("/admin/delete_topics", None)
        for start in range(0, len(topics), TOPICS_AT_ONCE):
            await zk.multi_many([znodes_of(topic) for topic in topics[start : start + TOPICS_AT_ONCE]])
    print(f"(put into ZooKeeper in {time.perf_counter() - begin:.0f} s)", flush=True)


def znodes_of(topic: TopicSnapshot) -> list[Create]:
    """Return the znodes of one topic, parents first."""
    assignment = {p.partition: p.assignment for p in topic.partitions}
    root = TopicZNode.path(topic.name)
    creates = [
        Create(ConfigEntityZNode.path(ConfigType.TOPIC, topic.name), ConfigEntityZNode.encode(topic.configs)),
        Create(root, TopicZNode.encode(topic.topic_id, assignment)),
        Create(f"{root}/partitions", None),
    ]
    for p in topic.partitions:
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(p.leader, p.leader_epoch or 0, p.isr), p.controller_epoch or 0)
        path = TopicPartitionStateZNode.path(TopicPartition(topic.name, p.partition))
        creates += [Create(path.removesuffix("/state"), None), Create(path, TopicPartitionStateZNode.encode(state))]
    return creates


def row(name: str, words: Sequence[str]) -> None:
    """Run a command several times and print the best time. Exit code 1 is an answer, too."""
    runs = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        # A process in between: memory of this one would count as its children's.
        measured = subprocess.run(
            [sys.executable, "-c", _MEASURE, KLAMM, *words], stdout=subprocess.PIPE, check=True, text=True
        )
        wall_s = time.perf_counter() - begin
        code, cpu_s, memory_mb = json.loads(measured.stdout)
        assert code in (0, 1), f"klamm {' '.join(words)} ended with {code}"
        runs.append((wall_s, cpu_s, memory_mb))
    wall_s, cpu_s, memory_mb = (min(column) for column in zip(*runs, strict=True))
    print(f"{name:44} {wall_s:8.2f} {cpu_s:8.2f} {memory_mb:6.0f}", flush=True)


_MEASURE = """
import json, resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""
