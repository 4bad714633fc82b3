"""What drawing costs: the dashboard on 50,000 made-up partitions that change, screen by screen, without a terminal.

The frames are made beforehand, so this measures the dashboard alone. It reports the CPU of one frame (its share of a
core at one frame a second), the longest hold of the event loop, how much of that was work (the rest is waiting for a
busy core), and the time from the start of the program to the first picture. ``KLAMM_BENCH_PARTITIONS`` makes it
smaller.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator, Collection

from fake_cluster import big_cluster

from engine.admin.watch.feed import FeedStatus, Playback
from engine.admin.watch.frame import Frame, Stage
from tui.actions import PAGES
from tui.app import Dashboard
from tui.state.session import Session

PARTITIONS = int(os.environ.get("KLAMM_BENCH_PARTITIONS", "50000"))
TICKS = 10
SHOWN = ("overview", "brokers", "topics", "partitions", "groups", "reassignments", "timeline")
SORTED_BY = ("bytes", "follower_lag", "leader", "end_offset", "in_per_s")
"""Sorted by these, the partitions are drawn once more: sizes stay, offsets move in each frame."""


class _OneFrame:
    """A feed of one frame. The test passes the other frames to the dashboard itself."""

    playback: Playback | None = None

    def __init__(self, frame: Frame) -> None:
        self.latest: Frame | None = frame

    @property
    def status(self) -> FeedStatus:
        return FeedStatus("made-up cluster")

    async def start(self) -> None:
        """Nothing to start."""

    async def frames(self) -> AsyncIterator[Frame]:
        assert self.latest is not None
        yield self.latest

    def pause(self) -> None:
        """Nothing to pause."""

    def resume(self) -> None:
        """Nothing to resume."""

    def refresh(self, stages: Collection[Stage] = ()) -> None:
        """Nothing to ask."""

    def set_interval(self, interval_s: float) -> None:
        """Nothing to set."""

    async def close(self) -> None:
        """Nothing to close."""


def main() -> None:
    """Print the table."""
    cluster = big_cluster(12, 1_000, PARTITIONS)
    frames = [cluster.frame()]
    for _ in range(TICKS):
        cluster.advance()
        frames.append(cluster.frame())
    asyncio.run(_measure(frames))


async def _measure(frames: list[Frame]) -> None:
    before_mb = _memory_mb()
    started, begun = time.perf_counter(), time.process_time()
    app = Dashboard(Session(_OneFrame(frames[0])))
    async with app.run_test(size=(140, 45)) as pilot:
        # Once the first picture is drawn, it begins to load what keys need later.
        while app.main is None or not app.board.has_metadata or app._loading is None:
            await asyncio.sleep(0.005)
        work_s = time.process_time() - begun
        took = f"{time.perf_counter() - started:.2f} s, {work_s:.2f} s of it CPU"
        await pilot.pause()
        print(f"first picture after {took}; {PARTITIONS:,} partitions")
        print(f"{'screen':<16}{'ms of CPU a frame':>20}{'longest hold, ms':>20}{'of it work, ms':>20}")
        for page, key, _ in PAGES:
            if page in SHOWN:
                await pilot.press(key)
                await _print_cost(page, app, frames[1:])
        await pilot.press("4")
        for name in SORTED_BY:
            app.main.model.sort_by(name)
            app.main.draw(is_new_data=False)
            await _print_cost(f"by {name}", app, frames[1:])
    print(f"memory beside the frames: {_memory_mb() - before_mb:.0f} MB")


async def _print_cost(what: str, app: Dashboard, frames: list[Frame]) -> None:
    cpu_ms, hold = await _frame_cost(app, frames)
    print(f"{what:<16}{cpu_ms:>20.1f}{hold.longest_s * 1000:>20.0f}{hold.longest_work_s * 1000:>20.0f}")


async def _frame_cost(app: Dashboard, frames: list[Frame]) -> tuple[float, _Hold]:
    hold = _Hold()
    watching = asyncio.create_task(hold.watch(), name="hold")
    begun = time.process_time()
    for frame in frames:
        app.take(frame)
        await asyncio.sleep(0.2)
    cpu_s = time.process_time() - begun
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return cpu_s / len(frames) * 1000, hold


class _Hold:
    """The longest hold of the event loop."""

    longest_s = longest_work_s = 0.0

    async def watch(self) -> None:
        last, last_work = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.005)
            now, work = time.perf_counter(), time.thread_time()
            self.longest_s = max(self.longest_s, now - last - 0.005)
            self.longest_work_s = max(self.longest_work_s, work - last_work)
            last, last_work = now, work


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
