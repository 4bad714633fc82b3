"""What a whole ``klamm top`` costs on 50,000 partitions: a recording, played in a terminal at one frame a second.

Two recordings are made: one in which the ends of a tenth of the partitions move each second, and one in which all do;
the sizes of all move every ten seconds, and 500 partitions get another leader each second. It reports resident memory,
CPU, the time to the first picture and to the first one with data, and the longest that a key waited for its answer.
Then ``klamm top --all`` at rest: nobody touches the table of 1, 5 and 20 profiles, each of which names three brokers of
ours with 5,000 partitions. ``KLAMM_BENCH_PARTITIONS`` and ``KLAMM_BENCH_LIVE_TOPICS`` make it smaller.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench_dashboard_feed import create_topics
from dashboard_terminal import DashboardTerminal, dashboard_terminal
from fake_cluster import FakeCluster, big_cluster

from engine.admin.cluster.target import parse_addresses
from engine.admin.watch.diff import diff
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.packed_logs import LogEnds
from engine.admin.watch.recording import FrameWriter
from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster

PARTITIONS = int(os.environ.get("KLAMM_BENCH_PARTITIONS", "50000"))
TOPICS = 1_000
SECONDS = 70
"""More than a recording goes on without a whole frame."""
WARM_UP_S = 10.0
KEYS_FROM_S = SECONDS / 2
"""Before, nobody touches the dashboard."""
KEY_EVERY_S = 0.5
REST_S = 60.0
PROFILES = (1, 5, 20)


def main() -> None:
    """Print the table."""
    print(f"{TOPICS} topics, {PARTITIONS} partitions, {SECONDS} s at 1 Hz; load {os.getloadavg()[0]:.1f}")
    print(
        f"{'ends that move':<18}{'MB at 10 s':>12}{'at the end':>12}{'at most':>10}{'% of a core':>13}"
        f"{'first picture s':>17}{'CPU':>6}{'with data s':>13}{'CPU':>6}{'longest wait for a key, ms':>28}"
    )
    for name, share in (("one in ten", 10), ("all", 1)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "recording"
            writer = FrameWriter(path, "bench")
            for frame in _frames(share):
                writer.write(frame)
            writer.close()
            print(f"{name:<18}{_measured(path, Path(folder))}", flush=True)
    _measure_all()


def _measure_all() -> None:
    """Print what the table of all clusters costs while nobody touches it."""
    print(f"\nklamm top --all, {REST_S:.0f} s at rest; load {os.getloadavg()[0]:.1f}")
    print(f"{'profiles':<12}{'% of a core':>12}{'MB':>8}{'all seen after s':>18}")
    with LocalCluster(3) as cluster, tempfile.TemporaryDirectory() as folder:
        asyncio.run(create_topics(parse_addresses(cluster.bootstrap_servers)))
        for count in PROFILES:
            print(f"{count:<12}{_at_rest(cluster, count, Path(folder))}", flush=True)


def _at_rest(cluster: LocalCluster, count: int, home: Path) -> str:
    """Return the figures of a row."""
    profile = f'bootstrap_servers = "{cluster.bootstrap_servers}"\nzookeeper = "{cluster.zookeeper_connect}"\n'
    config = home / "klamm"
    config.mkdir(exist_ok=True)
    names = [f"c{number:02}" for number in range(count)]
    (config / "clusters.toml").write_text("".join(f"[clusters.{name}]\n{profile}" for name in names), "utf-8")
    started, seen = time.monotonic(), b""
    with dashboard_terminal(["--all"], home) as top:
        while f"{count} healthy".encode() not in seen:
            seen += top.read(0.1)
            assert time.monotonic() - started < 120, seen[-2_000:].decode("utf-8", "replace")
        seen_s = time.monotonic() - started
        top.read_for(WARM_UP_S)
        used, began = top.cpu_s, time.monotonic()
        top.read_for(REST_S)
        share = 100 * (top.cpu_s - used) / (time.monotonic() - began)
        return f"{share:>12.1f}{top.resident_mb:>8.0f}{seen_s:>18.1f}"


def _frames(share: int) -> Iterator[Frame]:
    """Yield a frame for each second, in which one of ``share`` ends has moved."""
    cluster = big_cluster(12, TOPICS, PARTITIONS)
    before = cluster.frame()
    yield before
    for tick in range(1, SECONDS):
        _elect(cluster, tick)
        cluster.advance()
        frame = cluster.frame()
        if share > 1:
            frame = replace(frame, offsets=_some_moved(before, frame, share, tick))
        if tick % 10:
            stages = {**frame.stages, Stage.LOG_DIRS: before.stage(Stage.LOG_DIRS)}
            frame = replace(frame, logs=before.logs, log_dirs=before.log_dirs, stages=stages)
        frame = replace(frame, events=diff(before, frame))
        yield frame
        before = frame


def _elect(cluster: FakeCluster, tick: int) -> None:
    """Give one of a hundred topics other leaders."""
    assert cluster._last is not None and cluster._last.cluster is not None
    for topic in cluster._last.cluster.topics[tick % 100 :: 100]:
        for partition in topic.partitions:
            cluster.move_leader(
                TopicPartition(topic.name, partition.partition), partition.replicas[tick % len(partition.replicas)]
            )


def _some_moved(before: Frame, frame: Frame, share: int, tick: int) -> LogEnds:
    chosen = (item for number, item in enumerate(frame.offsets.items()) if number % share == tick % share)
    return LogEnds.of(before.offsets).with_ends((name, *rest) for name, rest in chosen)


def _measured(recording: Path, home: Path) -> str:
    """Play a recording in a terminal; return the figures of a row."""
    started = time.monotonic()
    with dashboard_terminal(["--replay", str(recording)], home) as top:
        figures = _watched(top, started)
        top.press(b"q")
        while top.read(5.0):
            pass
    return figures


def _watched(top: DashboardTerminal, started: float) -> str:
    picture = data = ""
    seen = b""
    memory: list[tuple[float, float]] = []
    cpu: list[tuple[float, float]] = []
    longest_s, pressed, next_key = 0.0, 0.0, KEYS_FROM_S
    while (now := time.monotonic() - started) < SECONDS - 2:
        screen = top.read(0.02)
        now = time.monotonic() - started
        if pressed and screen:
            longest_s, pressed = max(longest_s, now - pressed), 0.0
        if not data:
            seen += screen
            if not picture and b"Overview" in seen:
                picture = f"{now:>17.2f}{top.cpu_s:>6.2f}"
            if b"HEALTHY" in seen:
                data = f"{now:>13.2f}{top.cpu_s:>6.2f}"
        if not memory or now - memory[-1][0] > 0.2:
            memory.append((now, top.resident_mb))
            cpu.append((now, top.cpu_s))
        if now > next_key:
            # The cursor of the list of topics goes up and down.
            top.press(b"3" if next_key == KEYS_FROM_S else b"\x1b[B" if round(now * 2) % 2 else b"\x1b[A")
            pressed, next_key = pressed or now, now + KEY_EVERY_S
    warm = next(index for index, (at, _) in enumerate(memory) if at >= WARM_UP_S)
    quiet = [(at, used) for at, used in cpu if WARM_UP_S <= at < KEYS_FROM_S]
    share = 100 * (quiet[-1][1] - quiet[0][1]) / (quiet[-1][0] - quiet[0][0])
    most = max(mb for _, mb in memory)
    return (
        f"{memory[warm][1]:>12.1f}{memory[-1][1]:>12.1f}{most:>10.1f}{share:>13.1f}{picture}{data}"
        f"{longest_s * 1000:>28.0f}"
    )
