"""What ``klamm top`` keeps of an hour on a changing cluster: resident memory, minute by minute.

Three brokers of ours, six topics of 100 partitions with three replicas, two groups that read. A fault every 18 s:
brokers are killed, frozen and started again, preferred leaders elected, ZooKeeper is killed or frozen. Two dashboards
watch. Nobody touches the first one. The second one gets a key every two seconds: it opens and closes screens and
windows, filters, sorts, makes plans. ``KLAMM_BENCH_MINUTES`` makes it shorter.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from dashboard_terminal import DashboardTerminal, dashboard_terminal

from engine.local.cluster import LocalCluster

MINUTES = float(os.environ.get("KLAMM_BENCH_MINUTES", "60"))
FAULT_EVERY_S = 18.0
KEY_EVERY_S = 2.0
_ROWS = 12
_ESC = b"\x1b"
_KEYS: tuple[tuple[bytes, ...], ...] = (
    *((key,) for key in (b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"0", b"[", b"]")),
    *((key, _ESC, _ESC) for key in (b"?", b":", b"i", b"y", b"\x13", b"\x10")),
    (b"1", b"B", b"\x07", b"", b"", b"7", b"d", _ESC),
    (b"1", b"E", b"", b"y", b"", _ESC),
    *((b"3", key, _ESC, _ESC) for key in (b"N", b"A", b"D")), (b"2", b"A", _ESC, _ESC), (b"5", b"O", _ESC, _ESC),
    *((b"8", key) for key in (b"s", b"S", b"z")),
    (b"8", b"/", b"to", b"\r", _ESC),
    *((screen, b"\r", _ESC) for screen in (b"2", b"3", b"5")),
    (b"4", b"s", b"\x1b[F"), (b"3", b"T", b"T"),
)  # fmt: skip
"""Each goes to a screen or opens a window, and closes it. ^g makes a plan as the form proposes it."""


def main() -> None:
    """Print twelve rows."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"auto.leader.rebalance.enable": "false", "offsets.topic.num.partitions": "6"}
        with LocalCluster(3, directory=Path(folder) / "cluster", config=settings) as cluster:
            _klamm(cluster, "topics", "create", *TOPICS, "--partitions", "100", "--replication-factor", "3", check=True)
            words = ["--bootstrap-server", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect]
            with (
                dashboard_terminal(words, Path(folder) / "first") as first,
                dashboard_terminal(words, Path(folder) / "second") as second,
            ):
                _watch(cluster, first, second)


TOPICS = tuple(f"topic-{number}" for number in range(6))


def _watch(cluster: LocalCluster, first: DashboardTerminal, second: DashboardTerminal) -> None:
    print(f"{'minute':>6}{'untouched MB':>14}{'files':>7}{'with keys MB':>14}{'files':>7}{'load':>7}")
    end, started = threading.Event(), time.monotonic()
    workers = [threading.Thread(target=work, args=(cluster, end)) for work in (_load, _faults)]
    for worker in workers:
        worker.start()
    keys, next_key, rows = _keys(), started + 10, 0
    try:
        while rows < _ROWS:
            for top in (first, second):
                top.read(0.05)
            now = time.monotonic()
            if now >= next_key:
                next_key = now + KEY_EVERY_S
                second.press(next(keys))
            if now - started >= 60 * MINUTES * (rows + 1) / _ROWS:
                rows += 1
                cells = "".join(f"{top.resident_mb:>14.1f}{top.open_files:>7}" for top in (first, second))
                print(f"{(now - started) / 60:>6.1f}{cells}{os.getloadavg()[0]:>7.1f}", flush=True)
    finally:
        end.set()
        for worker in workers:
            worker.join()


def _keys() -> Iterator[bytes]:
    chosen = random.Random(7)
    while True:
        yield from chosen.choice(_KEYS)


def _load(cluster: LocalCluster, end: threading.Event) -> None:
    """Produce all the time, and read now and then."""
    number = 0
    while not end.wait(10):
        number += 1
        topic = TOPICS[number % len(TOPICS)]
        _klamm(cluster, "produce", topic, "--acks", "1", "--timeout", "10", told="x\n" * 300)
        if number % 2 == 0:
            _klamm(cluster, "consume", topic, "--group", f"g{number % 4}", "--timeout-ms", "3000", "-n", "200")


def _faults(cluster: LocalCluster, end: threading.Event) -> None:
    """Do something to the cluster, and 18 s later undo it."""
    chosen = random.Random(3)
    undo: Callable[[], object] | None = None
    while not end.wait(FAULT_EVERY_S):
        if undo is not None:
            undo()
            undo = None
            continue
        broker = chosen.choice(cluster.broker_ids)
        match chosen.choices(("kill", "freeze", "kill ZooKeeper", "freeze ZooKeeper", "elect"), (8, 3, 2, 2, 5))[0]:
            case "kill":
                cluster.kill_broker(broker)
                undo = _starting(cluster, broker)
            case "freeze":
                cluster.pause_broker(broker)
                undo = _resuming(cluster, broker)
            case "kill ZooKeeper":
                cluster.kill_zookeeper()
                undo = cluster.start_zookeeper
            case "freeze ZooKeeper":
                cluster.zookeeper.pause()
                undo = cluster.zookeeper.resume
            case _:
                _klamm(cluster, "elect", "preferred", "--all-topic-partitions", "--yes")
    if undo is not None:
        undo()


def _starting(cluster: LocalCluster, broker: int) -> Callable[[], object]:
    return lambda: cluster.start_brokers([broker])


def _resuming(cluster: LocalCluster, broker: int) -> Callable[[], object]:
    return lambda: cluster.resume_broker(broker)


def _klamm(cluster: LocalCluster, *words: str, told: str = "", check: bool = False) -> None:
    command = [sys.executable, "-m", "klamm", *words, "--bootstrap-server", cluster.bootstrap_servers]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(command, input=told, text=True, capture_output=True, timeout=60, check=check)
