"""A feed that plays a made-up cluster: for tests, pictures, and trying the dashboard without a cluster."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import suppress
from functools import cache

from fake_cluster import FakeCluster, big_cluster, small_cluster

from engine.admin.cluster.target import Side
from engine.admin.watch.feed import FeedStatus, FrameBox, Playback, interval_within_bounds
from engine.admin.watch.frame import Frame, LinkState, Stage
from engine.common.model import TopicPartition

OnTick = Callable[[FakeCluster, int], None]
"""Called before each frame but the first with the number of the tick, from 1: the place to make things happen."""


class FakeFeed:
    """Plays a made-up cluster, by itself or frame by frame with ``tick``.

    Args:
        plays: tick by itself every interval; else only ``tick`` makes frames (``start`` makes the first).
    """

    def __init__(
        self, cluster: FakeCluster, *, on_tick: OnTick | None = None, interval_s: float = 1.0, plays: bool = True,
        name: str = "made-up cluster",
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.refreshed: list[frozenset[Stage]] = []
        """What ``refresh`` was called with."""
        self._on_tick = on_tick
        self._interval_s = interval_within_bounds(interval_s)
        self._plays = plays
        self._name = name
        self._box = FrameBox()
        self._ticks = 0
        self._is_paused = self._is_closed = False
        self._task: asyncio.Task[None] | None = None

    @property
    def status(self) -> FeedStatus:
        return FeedStatus(self._name, self._interval_s, self._is_paused, self._is_closed, self._box.made)

    @property
    def latest(self) -> Frame | None:
        return self._box.latest

    @property
    def playback(self) -> Playback | None:
        return None

    async def start(self) -> None:
        self._box.put(self.cluster.frame())
        if self._plays:
            self._task = asyncio.create_task(self._play(), name="fake-feed")

    def frames(self) -> AsyncIterator[Frame]:
        return self._box.frames()

    def tick(self, ms: int | None = None) -> Frame:
        """Let time pass and offer the next frame, paused or not."""
        self._ticks += 1
        self.cluster.advance(round(self._interval_s * 1_000) if ms is None else ms)
        if self._on_tick is not None:
            self._on_tick(self.cluster, self._ticks)
        frame = self.cluster.frame()
        self._box.put(frame)
        return frame

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False

    def refresh(self, stages: Collection[Stage] = ()) -> None:
        self.refreshed.append(frozenset(stages) or frozenset(Stage))

    def set_interval(self, interval_s: float) -> None:
        self._interval_s = interval_within_bounds(interval_s)

    async def close(self) -> None:
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._box.close()

    async def _play(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if not self._is_paused:
                self.tick()


def fake_feed(scene: str = "live", *, plays: bool = True) -> FakeFeed:
    """Return the feed of a scene, one of ``SCENES``.

    Raises:
        ValueError: there is no such scene.
    """
    if scene not in SCENES:
        raise ValueError(f"no such scene: {scene}; scenes are {', '.join(SCENES)}")
    return FakeFeed(pickle.loads(_made(scene)), plays=plays, name=f"made-up cluster ({scene})")


@cache
def _made(scene: str) -> bytes:
    """Return a scene's cluster. Hundreds of tests begin with one, and it takes longer to play than to load."""
    return pickle.dumps(SCENES[scene]())


def _connecting() -> FakeCluster:
    """Nothing has answered yet."""
    cluster = small_cluster()
    cluster.forget_reads()
    for side in Side:
        cluster.set_link(side, LinkState.CONNECTING)
    return cluster


def _unreachable() -> FakeCluster:
    """Nothing has ever answered, and attempts have failed."""
    cluster = small_cluster()
    cluster.forget_reads()
    for side in Side:
        cluster.set_link(side, LinkState.LOST, "connection refused", next_try_in_ms=2_000)
    return cluster


def _denied() -> FakeCluster:
    """The cluster answers, and refuses."""
    cluster = small_cluster()
    cluster.forget_reads()
    cluster.set_link(Side.ZOOKEEPER, LinkState.DENIED, "authentication failed")
    cluster.set_link(Side.WIRE, LinkState.DENIED, "SASL_AUTHENTICATION_FAILED", next_try_in_ms=30_000)
    return cluster


def _broker_down() -> FakeCluster:
    """Broker 2 has just gone."""
    cluster = _after_some_time(small_cluster())
    cluster.kill(2)
    return cluster


def _stages_failing() -> FakeCluster:
    """The sizes cannot be read; the right to see groups is missing."""
    cluster = _after_some_time(small_cluster())
    cluster.fail_stage(Stage.LOG_DIRS, "no answer within 8 s")
    cluster.fail_stage(Stage.GROUPS, "GROUP_AUTHORIZATION_FAILED", is_denied=True)
    return cluster


def _zookeeper_lost() -> FakeCluster:
    """ZooKeeper is gone, the brokers answer."""
    cluster = _after_some_time(small_cluster())
    cluster.set_link(Side.ZOOKEEPER, LinkState.LOST, "the session is over; klamm opens another", next_try_in_ms=3_000)
    return cluster


def _brokers_lost() -> FakeCluster:
    """The brokers do not answer, ZooKeeper does."""
    cluster = _after_some_time(small_cluster())
    cluster.set_link(Side.WIRE, LinkState.LOST, "connection refused", next_try_in_ms=3_000)
    return cluster


def _disconnected() -> FakeCluster:
    """Both were connected, and are gone."""
    cluster = _brokers_lost()
    cluster.set_link(Side.ZOOKEEPER, LinkState.LOST, "no answer for 10 s", next_try_in_ms=2_000)
    return cluster


def _stale() -> FakeCluster:
    """Metadata and offsets have been asked for, and no answer has come for 12 s."""
    cluster = _after_some_time(small_cluster())
    for stage in (Stage.METADATA, Stage.REASSIGNMENTS, Stage.OFFSETS):
        cluster.delay_stage(stage)
    cluster.advance(12_000)
    return cluster


def _empty() -> FakeCluster:
    """A new cluster without topics."""
    return FakeCluster(3, {})


def _reassigning() -> FakeCluster:
    """One partition copies, one is stuck; after a restart broker 3 leads nothing."""
    cluster = FakeCluster(5, {"clicks": 6, "orders": 12})
    _after_some_time(cluster)
    cluster.reassign(TopicPartition("orders", 0), (4, 5, 1))
    cluster.reassign(TopicPartition("clicks", 1), (5, 4, 3), is_stalled=True)
    cluster.kill(3)
    cluster.start(3)
    return _after_some_time(cluster)


def _five() -> FakeCluster:
    """Five brokers in three racks: enough to remove one of them."""
    return _after_some_time(FakeCluster(5, {"clicks": 6, "invoices": 3, "orders": 12, "payments": 6}))


def _streaming() -> FakeCluster:
    """Queries of Spark: one keeps up, one falls behind, one runs a batch that does not end."""
    cluster = small_cluster()
    cluster.add_query("orders-to-lake", "orders", reads=2_000, lag=400)
    cluster.add_query("clicks-sessions", "clicks", reads=60, lag=20_000, took_ms=7_000)
    cluster.add_query("payments-fraud", "payments", reads=2_000)
    for _ in range(120):
        cluster.advance()
    cluster.stop_batch("payments-fraud")
    for _ in range(90):
        cluster.advance()
    return _after_some_time(cluster)


def _after_some_time(cluster: FakeCluster) -> FakeCluster:
    for _ in range(20):
        cluster.advance()
        cluster.frame()
    return cluster


SCENES: Mapping[str, Callable[[], FakeCluster]] = {
    "live": lambda: _after_some_time(small_cluster()),
    "connecting": _connecting,
    "unreachable": _unreachable,
    "denied": _denied,
    "broker-down": _broker_down,
    "stages-failing": _stages_failing,
    "zookeeper-lost": _zookeeper_lost,
    "brokers-lost": _brokers_lost,
    "disconnected": _disconnected,
    "stale": _stale,
    "empty": _empty,
    "reassigning": _reassigning,
    "five": _five,
    "streaming": _streaming,
    "big": big_cluster,
}
"""Each state that a dashboard can be in, by name."""
