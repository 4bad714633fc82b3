"""Lag of very many groups (T7, B3): ``klamm lag`` beside ``kafka-consumer-groups --describe --all-groups``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from apache_kafka import fetch_jars
from bench_cli import timed
from wire_client import WireClient, create_topic

from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.local.cluster import LocalCluster
from engine.local.java import find_java

GROUPS = int(os.environ.get("KLAMM_BENCH_GROUPS", "10000"))
KLAMM = str(Path(sys.executable).with_name("klamm"))
PARTITIONS = 10
RECORDS = 200_000
WINDOW = 200
_VERSION = 7


def commit_all(bootstrap: str) -> None:
    """Let every group commit all partitions, each group a different offset: half of them lag."""
    with WireClient(bootstrap) as client:
        find = FindCoordinatorRequest(key="g-0")
        while client.ask(find, 3).error_code != ErrorCode.NONE:
            continue
        waiting = 0
        for number in range(GROUPS):
            offset = RECORDS // PARTITIONS if number % 2 else number
            partitions = [
                OffsetCommitRequestPartition(partition_index=p, committed_offset=offset) for p in range(PARTITIONS)
            ]
            topics = [OffsetCommitRequestTopic(name="orders", partitions=partitions)]
            client.send(OffsetCommitRequest(group_id=f"g-{number}", topics=topics), _VERSION)
            waiting += 1
            if waiting == WINDOW:
                _answers(client, waiting)
                waiting = 0
        _answers(client, waiting)


def _answers(client: WireClient, count: int) -> None:
    for _ in range(count):
        answer = client.answer(ApiKey.OFFSET_COMMIT, _VERSION)
        if any(p.error_code for topic in answer.topics for p in topic.partitions):
            raise RuntimeError(f"a commit was refused: {answer}")


def main() -> None:
    """Measure against a local cluster of one broker."""
    java = [str(find_java().program), "-Xmx1g", "-cp", f"{fetch_jars()}/*"]
    with LocalCluster(1) as cluster:
        where = ("--bootstrap-server", cluster.bootstrap_servers)
        create_topic(cluster.bootstrap_servers, "orders", partitions=PARTITIONS)
        load = ("--topic", "orders", "--num-records", str(RECORDS // PARTITIONS), "--record-size", "100", "--quiet")
        for number in range(PARTITIONS):
            words_of_one = [KLAMM, "perf", "producer", *load, "--partition", str(number), *where]
            subprocess.run(words_of_one, check=True, stdout=subprocess.DEVNULL)
        commit_all(cluster.bootstrap_servers)
        print(f"{GROUPS} groups with {PARTITIONS} partitions each, half of them behind")
        print(f"{'':52} {'seconds':>8} {'CPU s':>8}")
        one_look = [KLAMM, "lag", "--samples", "1", "--timeout", "300", *where]
        theirs = [*java, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--all-groups"]
        for name, command in (
            ("klamm lag --no-time-lag", [*one_look, "--no-time-lag"]),
            ("klamm lag (times of unread records, too)", one_look),
            ("klamm lag --partitions -o jsonl", [*one_look, "--partitions", "-o", "jsonl"]),
            ("kafka-consumer-groups --describe --all-groups", [*theirs, "--timeout", "300000", *where]),
        ):
            wall_s, cpu_s = timed(command)
            print(f"{name:52} {wall_s:8.2f} {cpu_s:8.2f}", flush=True)
