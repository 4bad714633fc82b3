"""``klamm groups`` with 200 groups, beside Kafka's own tool, and with 10,000: time and memory of the program.

Two of our brokers share the groups. Each group has committed two partitions of one topic. ``KLAMM_BENCH_GROUPS`` sets
the final number of groups, ``KLAMM_BENCH_ROUNDS`` how often each command runs (medians are shown).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from apache_kafka import fetch_jars

from engine.admin.cluster.asking import ask_all
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.group_reading import find_coordinators
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.local.cluster import LocalCluster
from engine.local.java import find_java

KLAMM = str(Path(sys.executable).with_name("klamm"))
FEW = 200
MANY = int(os.environ.get("KLAMM_BENCH_GROUPS", "10000"))
ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "3"))
TOPIC = "orders"


async def make_groups(addresses: Sequence[tuple[str, int]], names: Sequence[str]) -> None:
    """Commit two offsets for each group."""
    wire = WireCluster(addresses)

    async def ask(broker_id: int, groups: list[str]) -> dict[str, int]:
        for group in groups:
            partitions = [
                OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
                for index in range(2)
            ]
            request = OffsetCommitRequest(
                group_id=group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
            )
            answer = await wire.call_broker(broker_id, request)
            assert {p.error_code for topic in answer.topics for p in topic.partitions} == {0}
        return dict.fromkeys(groups, 0)

    try:
        made = await ask_all(wire, names, lambda some: find_coordinators(wire, some), ask, batch=50, patience_s=30)
        assert set(made.values()) == {0}, next(value for value in made.values() if value != 0)
    finally:
        await wire.close()


def measured(command: Sequence[str]) -> tuple[float, float, float, int]:
    """Run a command; return wall seconds, CPU seconds, its largest resident size in MB, and its lines."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        lines = sum(1 for _ in process.stdout)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, lines


def medians(command: Sequence[str]) -> tuple[float, float, float, int]:
    runs = [measured(command) for _ in range(ROUNDS)]
    wall_s, cpu_s, rss_mb = (statistics.median(run[column] for run in runs) for column in range(3))
    return wall_s, cpu_s, rss_mb, runs[0][3]


def row(name: str, ours: Sequence[str], theirs: Sequence[str] | None = None) -> None:
    """Measure and print a line; the ratios are of wall time and of memory."""
    wall_s, cpu_s, rss_mb, lines = medians(ours)
    line = f"{name:40} {lines:7} {wall_s:8.2f} {cpu_s:8.2f} {rss_mb:8.0f}"
    if theirs is not None:
        kafka_s, kafka_cpu_s, kafka_mb, _ = medians(theirs)
        line += f" {kafka_s:8.2f} {kafka_cpu_s:8.2f} {kafka_mb:8.0f} {wall_s / kafka_s:7.2f}x {rss_mb / kafka_mb:7.2f}x"
    print(line, flush=True)


def main() -> None:
    """Measure against a local cluster of two brokers."""
    settings = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "10"}
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    java = [str(find_java().program), "-Xmx512m", "-cp", f"{fetch_jars()}/*", tool]
    with LocalCluster(2, config=settings) as cluster:
        where = ("--bootstrap-server", cluster.bootstrap_servers)
        shape = ("--partitions", "2", "--replication-factor", "1")
        subprocess.run([KLAMM, "topics", "create", TOPIC, *shape, *where, "-q"], check=True, stdout=subprocess.DEVNULL)
        addresses = [
            (host, int(port)) for host, _, port in (a.rpartition(":") for a in cluster.bootstrap_servers.split(","))
        ]
        names = [f"group-{number:06}" for number in range(MANY)]
        asyncio.run(make_groups(addresses, names[:FEW]))
        head = "".join(
            f" {title:>8}" for title in ("klamm s", "CPU s", "MB", "Kafka s", "CPU s", "MB", "wall", "memory")
        )
        print(f"{'':40} {'rows':>7}{head}")
        listed, described = ("groups", "list"), ("groups", "describe", "--all-groups")
        everything = ("--describe", "--all-groups", "--timeout", "60000")
        row(f"list, {FEW} groups", [KLAMM, *listed, *where], [*java, "--list", *where])
        row(f"describe, {FEW} groups", [KLAMM, *described, *where], [*java, *everything, *where])
        asyncio.run(make_groups(addresses, names[FEW:]))
        row(f"list, {MANY} groups", [KLAMM, *listed, *where], [*java, "--list", *where])
        row(f"describe, {MANY} groups", [KLAMM, *described, *where])
        row(f"describe -o json, {MANY} groups", [KLAMM, *described, *where, "-o", "json"])
        row(f"describe --state, {MANY} groups", [KLAMM, *described, "--state", *where])


if __name__ == "__main__":
    main()
