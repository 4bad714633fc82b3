"""What a whole ``klamm top`` costs on 50,000 partitions: a recording, played in a terminal at one frame a second.

Two recordings are made: one in which the ends of a tenth of the partitions move each second, and one in which all do;
the sizes of all move every ten seconds, and 500 partitions get another leader each second. It reports resident memory,
CPU, the time to the first picture and to the first one with data, and the longest that a key waited for its answer.
``KLAMM_BENCH_PARTITIONS`` makes it smaller.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dashboard_terminal import DashboardTerminal, dashboard_terminal
from fake_cluster import FakeCluster, big_cluster

from engine.admin.watch.diff import diff
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.log_ends import LogEnds
from engine.admin.watch.recording import FrameWriter
from engine.common.model import TopicPartition

PARTITIONS = int(os.environ.get("KLAMM_BENCH_PARTITIONS", "50000"))
TOPICS = 1_000
SECONDS = 70
"""More than a recording goes on without a whole frame."""
WARM_UP_S = 10.0
KEYS_FROM_S = SECONDS / 2
"""Before, nobody touches the dashboard."""
KEY_EVERY_S = 0.5


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
        for one in topic.partitions:
            cluster.move_leader(TopicPartition(topic.name, one.partition), one.replicas[tick % len(one.replicas)])


def _some_moved(before: Frame, frame: Frame, share: int, tick: int) -> LogEnds:
    chosen = (item for number, item in enumerate(frame.offsets.items()) if number % share == tick % share)
    return LogEnds.of(before.offsets).with_ends((name, *one) for name, one in chosen)


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
        told = top.read(0.02)
        now = time.monotonic() - started
        if pressed and told:
            longest_s, pressed = max(longest_s, now - pressed), 0.0
        if not data:
            seen += told
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
