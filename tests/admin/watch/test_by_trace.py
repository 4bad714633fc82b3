"""Traces of Spark's queries as a feed reads them: outside the event loop, whatever the store does."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from event_loop import in_event_loop
from spark_traces import one_source, write_checkpoint

from engine.admin.cluster.errors import AdminError, NotFound, Unreachable
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.lag.spark_positions import Query
from engine.admin.lag.spark_traces import QueryTraces
from engine.admin.lag.verdicts import LagStatus
from engine.admin.watch.frame import Frame, LinkState, Stage, StageSource
from engine.admin.watch.live_feed import LiveFeed
from engine.admin.watch.stage_readings import QueryReader


def checkpoint(folder: Path) -> str:
    now_ms = time.time_ns() // 1_000_000
    ends = ((50_000, 48_000, 10), (40_000, 38_000, 20), (30_000, None, 30))
    batches = [one_source(now_ms - ago, done and now_ms - done, "orders", end) for ago, done, end in ends]
    return str(write_checkpoint(folder, batches))


@in_event_loop
async def test_without_brokers_the_files_tell_which_queries_there_are(tmp_path: Path) -> None:
    reader = QueryReader(QueryTraces((checkpoint(tmp_path / "b"), checkpoint(tmp_path / "a"))))
    read = await reader.read(None)
    assert [Path(query.job.path).name for query in read.queries] == ["a", "b"]
    assert {query.job.status for query in read.queries} == {LagStatus.RUNNING}
    assert all(query.lags == () and query.job.last_batch == 2 for query in read.queries)
    assert read.requests == 0 and not read.missing


@in_event_loop
async def test_what_cannot_be_read_is_told_beside_what_can(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    read = await QueryReader(QueryTraces((checkpoint(tmp_path / "a"), absent))).read(None)
    assert len(read.queries) == 1
    assert len(read.missing) == 1 and absent in read.missing[0]
    with pytest.raises(NotFound):
        await QueryReader(QueryTraces((absent,))).read(None)


class _Hanging(QueryTraces):
    """A store that answers only when it is released."""

    gate = threading.Event()
    begun = 0

    def read(self) -> tuple[list[Query], list[AdminError]]:
        _Hanging.begun += 1
        self.gate.wait(30)
        return QueryTraces(self.checkpoints).read()


@in_event_loop
async def test_a_store_that_hangs_is_waited_for_once_and_taken_when_it_answers(tmp_path: Path) -> None:
    reader = QueryReader(_Hanging((checkpoint(tmp_path / "a"),)), limit_s=0.05)
    for _ in range(3):
        with pytest.raises(Unreachable, match=r"within 0\.05 s"):
            await reader.read(None)
    assert _Hanging.begun == 1
    _Hanging.gate.set()
    async with asyncio.timeout(10):
        while True:
            try:
                read = await reader.read(None)
                break
            except Unreachable:
                continue
    assert len(read.queries) == 1 and _Hanging.begun == 1


async def frame_of(target: ClusterTarget) -> Frame:
    """Return the first frame with queries, or with the reason for their absence."""
    feed = LiveFeed(target, interval_s=0.5)
    await feed.start()
    try:
        async with asyncio.timeout(20):
            async for frame in feed.frames():
                if frame.stage(Stage.SPARK).read_at_ms is not None or frame.stage(Stage.SPARK).error:
                    return frame
    finally:
        await feed.close()
    raise AssertionError("the feed ended")


@in_event_loop
async def test_a_cluster_that_is_out_of_reach_keeps_nobody_from_the_queries(tmp_path: Path) -> None:
    # Nobody listens there.
    target = ClusterTarget("gone", Origin.OPTIONS, bootstrap=(("127.0.0.1", 1),))
    frame = await frame_of(target)
    assert frame.stage(Stage.SPARK).source is None
    assert "no checkpoint" in frame.stage(Stage.SPARK).error

    named = ClusterTarget("gone", Origin.OPTIONS, bootstrap=(("127.0.0.1", 1),), checkpoints=(checkpoint(tmp_path),))
    frame = await frame_of(named)
    assert [query.job.status for query in frame.queries] == [LagStatus.RUNNING]
    status = frame.stage(Stage.SPARK)
    assert status.source is StageSource.POLL and not status.error and status.cost_ms is not None
    assert frame.link(Side.WIRE).state is not LinkState.CONNECTED, "no broker has answered anything"

    wrong = ClusterTarget("gone", Origin.OPTIONS, bootstrap=(("127.0.0.1", 1),), checkpoints=(str(tmp_path / "no"),))
    status = (await frame_of(wrong)).stage(Stage.SPARK)
    assert str(tmp_path / "no") in status.error
