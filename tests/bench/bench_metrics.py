"""What metrics cost: a scrape of a large broker, a reading and a scrape of ``klamm exporter``, a request's counters.

``KLAMM_BENCH_TOPICS`` (3,000, of 4 partitions) and ``KLAMM_BENCH_GROUPS`` (2,000) make the cluster smaller. The broker
notes how long its loop was held; CPU is that of the process. What a broker or the exporter uses between scrapes is
taken off a scrape's CPU.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import timeit
import urllib.error
import urllib.request
from pathlib import Path

from bench_controller import take_held_ms
from tabulate import tabulate
from wire_client import WireClient, wait_until_led

from engine.broker.metrics.requests import RequestTimes
from engine.broker.metrics.topics import TopicCounts
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.local.cluster import LocalCluster
from engine.local.local_broker import METRICS_LISTENER

TOPICS = int(os.environ.get("KLAMM_BENCH_TOPICS", "3000"))
PARTITIONS = 4
GROUPS = int(os.environ.get("KLAMM_BENCH_GROUPS", "2000"))
SCRAPES = 5
QUIET_S = 10.0
READINGS_S = 60.0
AT_ONCE = 100
PATIENCE_S = 600.0
KLAMM = str(Path(sys.executable).with_name("klamm"))
EXPORTER = "127.0.0.1:21999"
COMMIT_VERSION = 7


def cpu_s(pid: int) -> float:
    """Return the CPU that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """Return the largest resident memory that a process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return bytes(answer.read())


def fill(address: str) -> None:
    """Create the topics, and let every group commit an offset of one topic."""
    names = [f"topic-{number:05}" for number in range(TOPICS)]
    with WireClient(address, timeout_s=PATIENCE_S) as client:
        for start in range(0, TOPICS, AT_ONCE):
            wanted = [
                CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
                for name in names[start : start + AT_ONCE]
            ]
            answer = client.ask(CreateTopicsRequest(topics=wanted, timeout_ms=300_000), 5)
            assert all(topic.error_code == ErrorCode.NONE for topic in answer.topics)
        while client.ask(FindCoordinatorRequest(key="g"), 3).error_code != ErrorCode.NONE:
            time.sleep(0.1)
    wait_until_led(address, "__consumer_offsets")
    with WireClient(address, timeout_s=PATIENCE_S) as client:
        for number in range(GROUPS):
            partitions = [
                OffsetCommitRequestPartition(partition_index=p, committed_offset=0) for p in range(PARTITIONS)
            ]
            topics = [OffsetCommitRequestTopic(name=names[number % TOPICS], partitions=partitions)]
            client.send(OffsetCommitRequest(group_id=f"group-{number:05}", topics=topics), COMMIT_VERSION)
            if number % AT_ONCE == AT_ONCE - 1 or number == GROUPS - 1:
                for _ in range(number % AT_ONCE + 1):
                    client.answer(ApiKey.OFFSET_COMMIT, COMMIT_VERSION)


def scrapes(name: str, address: str, pid: int, limits: str) -> tuple[list[str], float]:
    """Return a row of the table, and the CPU that the process uses between scrapes."""
    get(address)
    quiet_cpu_s = cpu_s(pid)
    time.sleep(QUIET_S)
    quiet = (cpu_s(pid) - quiet_cpu_s) / QUIET_S
    begun_s, begun_cpu_s, size = time.monotonic(), cpu_s(pid), 0
    for _ in range(SCRAPES):
        size = len(get(address))
    elapsed_s = time.monotonic() - begun_s
    used_s = max(0.0, cpu_s(pid) - begun_cpu_s - quiet * elapsed_s) / SCRAPES
    row = [name, f"{elapsed_s / SCRAPES * 1000:.0f}", f"{used_s * 1000:.0f}", f"{size / 1e6:.1f}", limits]
    return row, quiet


def broker_rows(cluster: LocalCluster) -> list[list[str]]:
    """A scrape of the broker: all of it, and how long it held the loop."""
    broker, rows = cluster.broker(0), []
    listener = broker.spec.overrides[METRICS_LISTENER]
    asyncio.run(take_held_ms(broker))
    row, quiet = scrapes("broker, /metrics", f"http://{listener}/metrics", broker.pid or 0, "CPU < 100 ms")
    wall_ms, held_ms = asyncio.run(take_held_ms(broker))
    rows.append(
        [*row, f"loop held {held_ms:.1f} ms of CPU ({wall_ms:.0f} ms wall); idle {100 * quiet:.1f} % of a core"]
    )
    return rows


def exporter_rows(address: str) -> list[list[str]]:
    """``klamm exporter``: a reading of the cluster every 10 s, and a scrape."""
    command = [KLAMM, "exporter", "--bootstrap-server", address, "--listen", EXPORTER]
    exporter = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                get(f"http://{EXPORTER}/metrics")
                break
            except (urllib.error.URLError, ConnectionError):
                assert exporter.poll() is None and time.monotonic() < deadline, "the exporter shows nothing"
                time.sleep(0.5)
        time.sleep(READINGS_S)
        row, quiet = scrapes(
            "klamm exporter, /metrics", f"http://{EXPORTER}/metrics", exporter.pid, "CPU < 1 s, < 200 MB"
        )
        used = f"peak {peak_mb(exporter.pid):.0f} MB; readings take {100 * quiet:.0f} % of a core"
        return [[*row, used]]
    finally:
        exporter.terminate()
        exporter.wait(30)


def request_row() -> str:
    """What a Produce request of one partition adds for its counters, timed or not."""
    names = {"times": RequestTimes(), "counts": TopicCounts(), "size": 200, "begun_s": 0.0}
    counted = """
times.new_requests.append(size)
if begun_s >= times.timed_from_s:
    pass
times.new_answers.append(size)
appends = counts.appends
appends.append(size)
appends.append(1)
"""
    number = 200_000
    plain_ns = (
        min(timeit.repeat(counted, timer=time.process_time, globals=names, number=number, repeat=15)) / number * 1e9
    )
    timed = "times.answered_at_once(0.0, perf_counter() - perf_counter(), times.stands_for(0.0))"
    names["perf_counter"] = time.perf_counter
    timed_ns = (
        min(timeit.repeat(timed, timer=time.process_time, globals=names, number=number, repeat=15)) / number * 1e9
    )
    return (
        f"a Produce request's counters: {plain_ns:.0f} ns; its time, of at most 128 to 256 a second: {timed_ns:.0f} ns"
    )


def main() -> None:
    """Print all figures."""
    print(request_row())
    command = (sys.executable, str(Path(__file__).with_name("gauged_broker.py")))
    settings = {"offsets.topic.num.partitions": "10", "log.index.size.max.bytes": "65536"}
    with LocalCluster(1, config=settings, metrics=True, commands={0: command}, start_timeout_s=PATIENCE_S) as cluster:
        fill(cluster.broker(0).address)
        print(f"{TOPICS} topics, {TOPICS * PARTITIONS} partitions, {GROUPS} groups; {SCRAPES} scrapes")
        rows = [*broker_rows(cluster), *exporter_rows(cluster.broker(0).address)]
    print(tabulate(rows, ("", "ms", "CPU, ms", "MB", "goal", "beside"), disable_numparse=True))


if __name__ == "__main__":
    main()
