"""The jobs that a broker does by itself, on 600 partitions: the longest hold of the event loops of two brokers.

The jobs are checkpoints, replica fetches, log flushes, retention and the removal of segments, compaction, moves between
log dirs, the expiry of groups, and a start without index files. ``KLAMM_BENCH_PARTITIONS`` makes it smaller. CPU is
that of the loop's thread between two probes. Wall-clock figures hold only on a quiet machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench_controller import take_held_ms
from wire_client import WireClient, create_topic, describe_topic, produce

from engine.common.errors import KlammError
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster

PARTITIONS = int(os.environ.get("KLAMM_BENCH_PARTITIONS", "600")) // 3
GROUPS = 20_000
PATIENCE_S = 240.0
TOPICS = ("retained", "compacted", "flushed")
SETTINGS = {
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "500",
    "log.flush.scheduler.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
    "offsets.topic.num.partitions": "4",
}
_TOPIC_RESOURCE = 2


class Jobs:
    """Makes the brokers do one job after the other."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._client = WireClient(cluster.broker(0).address, timeout_s=120)
        self._other = WireClient(cluster.broker(1).address, timeout_s=120)

    def close(self) -> None:
        self._client.socket.close()
        self._other.socket.close()

    def row(self, name: str, work: Callable[[], object]) -> None:
        brokers = [broker for broker in self._cluster.brokers.values() if broker.is_alive]
        for broker in brokers:
            asyncio.run(take_held_ms(broker))
        started_s = time.monotonic()
        work()
        cells = []
        for broker in brokers:
            wall_ms, cpu_ms = asyncio.run(take_held_ms(broker))
            cells.append(f"{wall_ms:9.0f} /{cpu_ms:5.0f}")
        print(f"{name:44} {time.monotonic() - started_s:6.1f} {''.join(cells)}", flush=True)

    def create(self) -> None:
        for topic in TOPICS:
            create_topic(
                self._cluster.broker(0).address,
                topic,
                partitions=PARTITIONS,
                replication_factor=2,
                configs={"segment.bytes": "20000", "segment.index.bytes": "1000", "min.cleanable.dirty.ratio": "0.01"},
            )

    def write(self, *topics: str, rounds: int = 10) -> None:
        """Write to every partition, through its leader. Each round repeats the keys."""
        now_ms = int(time.time() * 1000)
        batch = encode_batch([Record(n, now_ms, b"key-%d" % n, bytes(100)) for n in range(50)])
        for topic in topics:
            leaders = {p.partition_index: p.leader_id for p in describe_topic(self._client, topic).partitions}
            for _ in range(rounds):
                for partition, leader in leaders.items():
                    response = produce((self._client, self._other)[leader], topic, batch, partition=partition)
                    if response.error_code:
                        raise KlammError(f"{topic}-{partition} refuses records: {response.error_code}")

    def configure(self, topic: str, name: str, value: str) -> None:
        change = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=[change])
        answer = self._client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        if answer.responses[0].error_code:
            raise KlammError(f"{name} cannot be set: {answer.responses[0].error_message}")

    def retain_nothing(self) -> None:
        self.configure("retained", "retention.ms", "1")
        self._until(lambda: self._files("retained", "*.log") <= 2 * PARTITIONS)

    def compact(self) -> None:
        before = self._bytes("compacted")
        self.configure("compacted", "cleanup.policy", "compact")
        self._until(lambda: self._bytes("compacted") < before / 2)

    def flush(self) -> None:
        self.configure("flushed", "flush.ms", "100")
        self.write("flushed", rounds=2)
        time.sleep(2)

    def move(self) -> None:
        """Send all replicas of a topic on the first broker to its other log dir."""
        first, second = self._cluster.broker(0).spec.log_dirs
        names = [name for name in first.glob("compacted-*") if name.is_dir()]
        indexes = [int(name.name.rpartition("-")[2]) for name in names]
        topics = [AlterReplicaLogDirTopic(name="compacted", partitions=indexes)]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(second), topics=topics)])
        self._client.ask(request, 2)
        self._until(lambda: not list(first.glob("compacted-*")) and not self._is_moving())

    def _is_moving(self) -> bool:
        results = self._client.ask(DescribeLogDirsRequest(topics=None), 4).results
        return any(p.is_future_key for result in results for topic in result.topics for p in topic.partitions)

    def commit(self) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topics = [OffsetCommitRequestTopic(name="flushed", partitions=[partition])]
        for number in range(GROUPS):
            for client in (self._client, self._other):
                request = OffsetCommitRequest(group_id=f"g{number}", topics=topics)
                client.ask(request, 8)

    def expire(self) -> None:
        time.sleep(70)

    def start_without_indexes(self) -> None:
        broker = self._cluster.broker(1)
        self._other.socket.close()
        broker.kill()
        for log_dir in broker.spec.log_dirs:
            for pattern in ("*/*.index", "*/*.timeindex"):
                for path in log_dir.glob(pattern):
                    path.unlink()
        self._cluster.start_broker(1)
        self._other = WireClient(broker.address, timeout_s=120)

    def _files(self, topic: str, pattern: str) -> int:
        dirs = [log_dir for broker in self._cluster.brokers.values() for log_dir in broker.spec.log_dirs]
        return sum(1 for log_dir in dirs for _ in log_dir.glob(f"{topic}-*/{pattern}"))

    def _bytes(self, topic: str) -> int:
        total = 0
        for broker in self._cluster.brokers.values():
            for log_dir in broker.spec.log_dirs:
                for path in log_dir.glob(f"{topic}-*/*.log"):
                    try:
                        total += path.stat().st_size
                    except FileNotFoundError:
                        continue
        return total

    def _until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline_s:
                raise KlammError("a job has not done its work in time")
            time.sleep(0.2)


def main() -> None:
    command = (sys.executable, str(Path(__file__).with_name("gauged_broker.py")))
    with LocalCluster(2, config=SETTINGS, log_dir_count=2, commands=dict.fromkeys(range(2), command)) as cluster:
        jobs = Jobs(cluster)
        print(f"{3 * PARTITIONS} partitions × 2; {'':20} {'s':>6}  per broker: held in ms by the clock / CPU")
        jobs.row("created", jobs.create)
        jobs.row("written, and fetched by the follower", lambda: jobs.write(*TOPICS))
        jobs.row("checkpoints, nothing else", lambda: time.sleep(5))
        jobs.row("flushes", jobs.flush)
        jobs.row("retention, segments removed", jobs.retain_nothing)
        jobs.row("compaction", jobs.compact)
        jobs.row("moved between log dirs", jobs.move)
        jobs.row(f"{GROUPS} groups commit", jobs.commit)
        jobs.row("they expire", jobs.expire)
        jobs.row("killed, started without indexes", jobs.start_without_indexes)
        jobs.close()


if __name__ == "__main__":
    main()
