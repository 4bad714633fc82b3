"""What watching costs, without a screen: 50,000 made-up partitions frame by frame, and 5,000 real ones at 1 Hz.

Frames: in each tick, one partition in a hundred changes its leader, and a tenth of the ends advance. The figures are
for the work of a feed and a dashboard without widgets: events, health, counts, history, analyses. Recording is measured
separately, with the longest time that ``klamm top --record`` holds the event loop. Live: three brokers of ours, 1,000
topics, 5,000 partitions; the CPU of a process that only watches, and its requests. ``KLAMM_BENCH_PARTITIONS`` and
``KLAMM_BENCH_TOPICS`` make it smaller.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from fake_cluster import FakeCluster, big_cluster
from fake_feed import FakeFeed

from engine.admin.analysis.causes import missing_brokers
from engine.admin.analysis.clocks_and_epochs import SanityCheck
from engine.admin.analysis.history import History
from engine.admin.analysis.moves import moves_board
from engine.admin.analysis.restart_order import restart_board
from engine.admin.analysis.tallies import Tallies
from engine.admin.cluster.target import ClusterTarget, Origin, Side, parse_addresses
from engine.admin.cluster.wire import WireCluster
from engine.admin.watch.diff import diff
from engine.admin.watch.feed import Feed
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.judging import HealthMemory
from engine.admin.watch.live_feed import LiveFeed
from engine.admin.watch.packed_logs import LogEnds
from engine.admin.watch.recording import FrameWriter, RecordedFeed, Recording
from engine.common.model import TopicPartition
from engine.common.snapshot import TopicSnapshot
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.local.cluster import LocalCluster

PARTITIONS = int(os.environ.get("KLAMM_BENCH_PARTITIONS", "50000"))
TOPICS = int(os.environ.get("KLAMM_BENCH_TOPICS", "1000"))
LIVE_TOPICS = int(os.environ.get("KLAMM_BENCH_LIVE_TOPICS", "1000"))
TICKS = 30
HELD_FRAMES = 6
LIVE_S = 20.0


def main() -> None:
    """Print both tables."""
    _measure_made_up()
    # The collector would scan what is left of 50,000 partitions, which a dashboard hides from it.
    gc.collect()
    asyncio.run(_measure_live())


def _measure_made_up() -> None:
    frames = _frames()
    _measure_frames(frames)
    asyncio.run(_measure_holds(frames[:HELD_FRAMES]))


def _frames() -> list[Frame]:
    """A frame for each tick, made beforehand."""
    first = big_cluster(12, TOPICS, PARTITIONS).frame()
    frames = [first]
    for tick in range(1, TICKS + 1):
        before = frames[-1]
        assert before.cluster is not None
        topics = tuple(_moved(topic, tick) if number % 100 == tick % 100 else topic
                       for number, topic in enumerate(before.cluster.topics))  # fmt: skip
        now_ms = first.at_ms + tick * 1000
        moved = (item for number, item in enumerate(before.offsets.items()) if number % 10 == tick % 10)
        offsets = LogEnds.of(before.offsets).with_ends((name, watermark.end + 100, now_ms) for name, watermark in moved)
        stages = {stage: replace(status, read_at_ms=now_ms) for stage, status in before.stages.items()}
        stages[Stage.LOG_DIRS] = before.stages[Stage.LOG_DIRS]
        cluster = replace(before.cluster, topics=topics)
        frames.append(replace(before, sequence=tick + 1, at_ms=now_ms, cluster=cluster, offsets=offsets, stages=stages))
    return frames


def _moved(topic: TopicSnapshot, tick: int) -> TopicSnapshot:
    partitions = tuple(
        replace(p, leader=p.replicas[tick % len(p.replicas)], leader_epoch=(p.leader_epoch or 0) + 1)
        for p in topic.partitions
    )
    return replace(topic, partitions=partitions)


def _measure_frames(frames: list[Frame]) -> None:
    health, history, tallies, sanity = HealthMemory(), History(), Tallies(), SanityCheck()
    spent: list[float] = []
    written: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        writer = FrameWriter(Path(folder) / "recording", "bench")
        before: Frame | None = None
        for frame in frames:
            started = time.process_time()
            judged = replace(frame, health=health.judge(frame), events=() if before is None else diff(before, frame))
            history.take(judged)
            tally = tallies.of_frame(judged)
            restart_board(judged, tally)
            missing_brokers(judged, tally)
            moves_board(judged, history)
            sanity.check(judged)
            spent.append(time.process_time() - started)
            started = time.process_time()
            writer.write(judged)
            written.append(time.process_time() - started)
            before = judged
        writer.close()
        size = writer.size_bytes
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rest, kept = spent[1:], written[1:]
    print(f"{TOPICS} topics, {PARTITIONS} partitions, {len(rest)} frames at 1 Hz; {memory_mb:.0f} MB with all frames")
    print(f"{'':34}{'% of a core':>12}{'worst ms':>10}{'first ms':>10}")
    print(
        f"{'events, health, counts, analyses':34}{_percent(rest):>12}{max(rest) * 1000:>10.0f}{spent[0] * 1000:>10.0f}"
    )
    print(f"{'recording':34}{_percent(kept):>12}{max(kept) * 1000:>10.0f}{written[0] * 1000:>10.0f}")
    print(f"recorded: {size / 1e6:.1f} MB, {size / len(frames) / 1e3:.0f} kB a frame")


async def _measure_holds(frames: list[Frame]) -> None:
    """Record through the dashboard's own recorder, a frame a second, and look how long the loop is held."""
    with tempfile.TemporaryDirectory() as folder:
        source = FakeFeed(FakeCluster(3, {}), plays=False)
        recorded = RecordedFeed(source, Path(folder) / "recording")
        stall = asyncio.create_task(_worst_stall())
        reader = asyncio.create_task(_read(recorded))
        for frame in frames:
            source._box.put(frame)
            await asyncio.sleep(1.0)
        stall.cancel()
        await asyncio.gather(stall, return_exceptions=True)
        await recorded.close()
        await reader
        recording = Recording(Path(folder) / "recording")
        count = recording.count
        recording.close()
    held = f"the event loop was held for {_worst[0] * 1000:.0f} ms at most"
    print(f"recorded by the dashboard: {count} of {len(frames)} frames; {held}")


async def _read(feed: Feed) -> None:
    async for _ in feed.frames():
        pass


def _percent(seconds: list[float]) -> str:
    return f"{100 * sum(seconds) / len(seconds):.1f}"


async def _measure_live() -> None:
    with LocalCluster(3) as cluster:
        await create_topics(parse_addresses(cluster.bootstrap_servers))
        print(f"\nlive: {LIVE_TOPICS} topics, {5 * LIVE_TOPICS} partitions, 3 brokers, {LIVE_S:.0f} s at 1 Hz")
        print(f"{'':12}{'all read after s':>18}{'% of a core':>12}{'worst stall ms':>16}{'ZooKeeper req/s':>17}")
        bootstrap = parse_addresses(cluster.bootstrap_servers)
        both = ClusterTarget("both", Origin.OPTIONS, zookeeper=cluster.zookeeper_connect, bootstrap=bootstrap)
        for target in (
            both,
            replace(both, name="brokers", zookeeper=None),
            replace(both, name="zookeeper", bootstrap=(), via=Side.ZOOKEEPER),
        ):
            await _watch(target)


async def create_topics(bootstrap: tuple[tuple[str, int], ...]) -> None:
    """Create the topics of the live cluster."""
    wire = WireCluster(bootstrap)
    for start in range(0, LIVE_TOPICS, 100):
        topics = [
            CreatableTopic(name=f"t-{number:04}", num_partitions=5, replication_factor=1)
            for number in range(start, min(start + 100, LIVE_TOPICS))
        ]
        await wire.call_controller(CreateTopicsRequest(topics=topics, timeout_ms=25_000), lambda answer: [])
    await wire.close()


def _zookeeper_requests(feed: LiveFeed) -> int:
    return 0 if feed._zookeeper is None else feed._zookeeper.requests


async def _watch(target: ClusterTarget) -> None:
    feed, started = LiveFeed(target), time.monotonic()
    await feed.start()
    frames = feed.frames()
    async for frame in frames:
        has_all = frame.stage(Stage.METADATA).read_at_ms and frame.stage(Stage.SETTINGS).read_at_ms
        if has_all and (TopicPartition("t-0000", 0) in frame.offsets or target.name == "zookeeper"):
            break
    read_s = time.monotonic() - started
    requests, cpu_s, began_s = _zookeeper_requests(feed), time.process_time(), time.monotonic()
    stall = asyncio.create_task(_worst_stall())
    async for _ in frames:
        if time.monotonic() - began_s > LIVE_S:
            break
    elapsed_s = time.monotonic() - began_s
    cpu, asked = (time.process_time() - cpu_s) / elapsed_s, (_zookeeper_requests(feed) - requests) / elapsed_s
    stall.cancel()
    worst = (await asyncio.gather(stall, return_exceptions=True))[0]
    worst_ms = _worst[0] * 1000 if isinstance(worst, asyncio.CancelledError) else 0.0
    print(f"{target.name:12}{read_s:>18.1f}{100 * cpu:>12.1f}{worst_ms:>16.0f}{asked:>17.1f}")
    costs = {stage.value: status.cost_ms for stage, status in frame.stages.items() if status.cost_ms}
    print(f"{'':12}first readings took, ms: {', '.join(f'{name} {cost:.0f}' for name, cost in costs.items())}")
    await feed.close()


_worst = [0.0]


async def _worst_stall() -> None:
    """Measure the longest hold of the loop until cancelled."""
    _worst[0] = 0.0
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(0.01)
        _worst[0] = max(_worst[0], loop.time() - before - 0.01)
