"""A living cluster of three brokers watched from both sides, from each alone, and while parts of it are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from event_loop import in_event_loop

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.target import ClusterTarget, Origin, Side, parse_addresses
from engine.admin.reassignment.access import reassignment_changer
from engine.admin.topics.access import topic_changer
from engine.admin.topics.changes import NewTopic, TopicAlteration
from engine.admin.watch.events import EventKind
from engine.admin.watch.frame import Frame, LinkState, Stage, StageSource
from engine.admin.watch.live_feed import LiveFeed
from engine.common.model import TopicPartition
from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster

SESSION_MS = 2_000
DEADLINE_S = 30.0
ORDERS = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers with short sessions and one topic."""
    settings = {
        "auto.create.topics.enable": "false",
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "auto.leader.rebalance.enable": "false",
    }
    folder: Path = tmp_path_factory.mktemp("watched")
    with LocalCluster(3, directory=folder, config=settings) as made:
        asyncio.run(_create(made, "orders", 3))
        yield made


@pytest.fixture(params=["both", "zookeeper", "found", "brokers"])
def target(request: pytest.FixtureRequest, cluster: LocalCluster) -> ClusterTarget:
    """The cluster as it can be named: both sides, ZooKeeper alone, brokers to be found there, brokers alone."""
    return _target(cluster, request.param)


def _target(cluster: LocalCluster, how: str = "both") -> ClusterTarget:
    bootstrap = parse_addresses(cluster.bootstrap_servers) if how in ("both", "brokers") else ()
    zookeeper = None if how == "brokers" else cluster.zookeeper_connect
    via = Side.ZOOKEEPER if how == "zookeeper" else None
    return ClusterTarget(how, Origin.OPTIONS, zookeeper=zookeeper, bootstrap=bootstrap, via=via)


async def _create(cluster: LocalCluster, name: str, partitions: int) -> None:
    async with Cluster(_target(cluster)) as opened:
        topic = NewTopic(name, partition_count=partitions, replication_factor=3)
        await (await topic_changer(opened)).create(topic)


class _Watching:
    """Frames of a feed until one is as wanted; all events so far are kept."""

    def __init__(self, feed: LiveFeed) -> None:
        self.feed = feed
        self.events: list[EventKind] = []
        self._frames = feed.frames()

    async def until(self, is_wanted: Callable[[Frame], bool], deadline_s: float = DEADLINE_S) -> Frame:
        frame: Frame | None = None
        try:
            async with asyncio.timeout(deadline_s):
                async for frame in self._frames:
                    self.events += [event.kind for event in frame.events]
                    if is_wanted(frame):
                        return frame
        except TimeoutError:
            raise AssertionError(f"not seen within {deadline_s} s; the last frame: {frame}") from None
        raise AssertionError("the feed ended")


@asynccontextmanager
async def _watched(target: ClusterTarget) -> AsyncIterator[_Watching]:
    before = asyncio.all_tasks()
    feed = LiveFeed(target)
    await feed.start()
    try:
        yield _Watching(feed)
    finally:
        await feed.close()
        await feed.close()
    assert [one async for one in feed.frames()] in ([], [feed.latest])
    left = {task.get_name() for task in asyncio.all_tasks() - before if not task.done()}
    assert not {name for name in left if name.startswith("watch-")}


def _is_read(frame: Frame, brokers: int = 3) -> bool:
    stages = [Stage.MEMBERS, Stage.METADATA, Stage.SETTINGS]
    if frame.link(Side.WIRE).state is not LinkState.UNUSED:
        stages += [Stage.OFFSETS, Stage.LOG_DIRS, Stage.PROBES, Stage.GROUPS]
    known = frame.cluster is not None and len(frame.cluster.brokers) == brokers
    return known and all(frame.stage(stage).read_at_ms is not None for stage in stages)


@in_event_loop
async def test_a_whole_cluster_is_read_from_each_side(target: ClusterTarget) -> None:
    async with _watched(target) as watching:
        frame = await watching.until(_is_read)
    assert frame.cluster is not None and frame.cluster.partition(ORDERS) is not None
    assert frame.cluster.controller_id in (0, 1, 2) and frame.cluster.cluster_id
    partition = frame.cluster.partition(ORDERS)
    assert partition is not None and sorted(partition.isr) == [0, 1, 2] and partition.leader == partition.replicas[0]
    assert frame.min_isr["orders"] == 1
    by_brokers = target.name != "zookeeper"
    assert frame.stage(Stage.METADATA).source is (StageSource.POLL if by_brokers else StageSource.ROTATION)
    assert (ORDERS in frame.read_at_ms) == (not by_brokers)
    assert bool(frame.offsets) == bool(frame.logs) == bool(frame.words) == by_brokers
    if by_brokers:
        assert frame.offsets[ORDERS].end == 0
        assert {log.broker for log in frame.logs[ORDERS]} == {0, 1, 2} and len(frame.log_dirs) == 3
        assert {said.controller_id for said in frame.words.values()} == {frame.cluster.controller_id}
    else:
        assert "not to be asked" in frame.stage(Stage.OFFSETS).error
    has_zookeeper = target.name != "brokers"
    assert (set(frame.registrations) == {0, 1, 2}) == has_zookeeper == (frame.zookeeper_ms is not None)
    assert (frame.cluster.controller_epoch is not None) == has_zookeeper


@in_event_loop
async def test_topics_that_come_change_and_go_are_seen(target: ClusterTarget, cluster: LocalCluster) -> None:
    name = f"t-{target.name}"
    async with _watched(target) as watching, Cluster(_target(cluster)) as opened:
        await watching.until(_is_read)
        changer = await topic_changer(opened)
        await changer.create(NewTopic(name, partition_count=1, replication_factor=3))

        def topic_of(frame: Frame) -> object:
            return frame.cluster and frame.cluster.topic(name)

        frame = await watching.until(lambda frame: topic_of(frame) is not None and frame.health is not None)
        if target.name != "zookeeper":
            # A topic is shown once brokers tell of it, so nobody takes it for offline.
            assert frame.health is not None
            assert not any("offline" in reason.check for reason in frame.health.reasons)
        await changer.alter(TopicAlteration(name, partition_count=2))
        await watching.until(lambda frame: len(getattr(topic_of(frame), "partitions", ())) == 2)
        if target.name != "brokers":
            await changer.alter(TopicAlteration(name, additions={"min.insync.replicas": "2"}))
            await watching.until(lambda frame: frame.min_isr.get(name) == 2)
        await changer.delete([name], waits=True)
        await watching.until(lambda frame: topic_of(frame) is None)
    kinds = set(watching.events)
    assert {EventKind.TOPIC_CREATED, EventKind.PARTITIONS_ADDED, EventKind.TOPIC_DELETED} <= kinds
    assert (EventKind.TOPIC_CONFIG_CHANGED in kinds) == (target.name != "brokers")


@in_event_loop
async def test_a_reassignment_is_seen(cluster: LocalCluster) -> None:
    await _create(cluster, "moved", 1)
    name = TopicPartition("moved", 0)
    async with _watched(_target(cluster)) as watching, Cluster(_target(cluster)) as opened:
        first = await watching.until(lambda f: f.cluster is not None and f.cluster.partition(name) is not None)
        assert first.cluster is not None
        replicas = first.cluster.partition(name).replicas  # type: ignore[union-attr]
        changer = await reassignment_changer(opened)
        await changer.alter({name: replicas[:2]})
        await watching.until(
            lambda f: f.cluster is not None and f.cluster.partition(name).replicas == replicas[:2]  # type: ignore[union-attr]
        )
    assert EventKind.REASSIGNMENT_FINISHED in watching.events


@in_event_loop
async def test_a_killed_broker_is_seen_and_its_return(target: ClusterTarget, cluster: LocalCluster) -> None:
    async with _watched(target) as watching:
        frame = await watching.until(_is_read)
        assert frame.cluster is not None
        victim = frame.cluster.partition(ORDERS).leader  # type: ignore[union-attr]
        await asyncio.to_thread(cluster.kill_broker, victim)
        try:
            # The session ends SESSION_MS after the kill, and a part of a tick of ZooKeeper later; the frame has 2 s.
            frame = await watching.until(lambda f: f.cluster is not None and len(f.cluster.brokers) == 2)
            assert frame.cluster is not None and frame.cluster.live_broker_ids == {0, 1, 2} - {victim}
            frame = await watching.until(
                lambda f: (
                    f.cluster is not None
                    and f.cluster.controller_id != victim
                    and all(victim not in p.isr for t in f.cluster.topics for p in t.partitions)
                )
            )
            assert frame.health is not None and frame.health.status == "critical"
        finally:
            await asyncio.to_thread(cluster.start_broker, victim)
        await watching.until(
            lambda f: (
                f.cluster is not None
                and len(f.cluster.brokers) == 3
                and all(set(p.isr) == set(p.replicas) for t in f.cluster.topics for p in t.partitions)
            )
        )
    kinds = watching.events
    assert kinds.index(EventKind.BROKER_DOWN) < kinds.index(EventKind.BROKER_UP)
    assert EventKind.ISR_SHRANK in kinds and EventKind.ISR_GREW in kinds and EventKind.LEADER_CHANGED in kinds


@in_event_loop
async def test_zookeeper_that_is_gone_leaves_what_brokers_tell_and_comes_back(cluster: LocalCluster) -> None:
    async with _watched(_target(cluster)) as watching:
        await watching.until(_is_read)
        await asyncio.to_thread(cluster.kill_zookeeper)
        try:
            frame = await watching.until(lambda f: f.link(Side.ZOOKEEPER).state is LinkState.LOST)
            assert frame.link(Side.ZOOKEEPER).cause and frame.link(Side.ZOOKEEPER).last_answer_ms is not None
            lost_ms = frame.at_ms
            frame = await watching.until(lambda f: f.at_ms > lost_ms + 2_500)
            assert frame.link(Side.WIRE).state is LinkState.CONNECTED
            assert frame.age_ms(Stage.METADATA) is not None and (frame.age_ms(Stage.METADATA) or 0) < 3_000
            assert frame.cluster is not None and frame.cluster.topic("orders") is not None
        finally:
            await asyncio.to_thread(cluster.start_zookeeper)
        await watching.until(lambda f: f.link(Side.ZOOKEEPER).state is LinkState.CONNECTED and _is_read(f))
    assert EventKind.CONNECTION_LOST in watching.events and EventKind.CONNECTION_BACK in watching.events


@in_event_loop
async def test_a_cluster_that_nobody_answers_for_says_so_and_when_it_is_tried_again() -> None:
    host = own_loopback_address()
    target = ClusterTarget("nobody", Origin.OPTIONS, zookeeper=f"{host}:2181", bootstrap=((host, 9092),))
    async with _watched(target) as watching:
        first = await watching.until(lambda f: True)
        assert {link.state for link in first.links.values()} == {LinkState.CONNECTING}
        frame = await watching.until(lambda f: all(link.state is LinkState.LOST for link in f.links.values()))
        assert frame.cluster is None and frame.health is None
        for link in frame.links.values():
            assert host in link.address and link.cause and link.last_answer_ms is None
        await watching.until(lambda f: f.link(Side.WIRE).next_try_ms is not None)


@in_event_loop
async def test_a_paused_feed_asks_nothing_and_goes_on(cluster: LocalCluster) -> None:
    async with _watched(_target(cluster)) as watching:
        await watching.until(_is_read)
        feed = watching.feed
        feed.pause()
        assert feed.status.is_paused
        await asyncio.sleep(0.5)
        made, requests = feed.status.frames_made, feed.zookeeper_requests
        # Five ticks of the shortest interval: what were to come would have come.
        feed.set_interval(0.1)
        assert feed.status.interval_s == 0.5
        await asyncio.sleep(1.5)
        assert (feed.status.frames_made, feed.zookeeper_requests) == (made, requests)
        feed.resume()
        feed.refresh()
        latest = feed.latest
        assert latest is not None
        await watching.until(lambda f: (f.stage(Stage.LOG_DIRS).read_at_ms or 0) > latest.at_ms)


@in_event_loop
async def test_a_quiet_cluster_costs_zookeeper_less_than_ten_requests_a_second(cluster: LocalCluster) -> None:
    for how in ("zookeeper", "both"):
        async with _watched(_target(cluster, how)) as watching:
            first = await watching.until(_is_read)
            requests = watching.feed.zookeeper_requests
            last = await watching.until(lambda f, since=first.at_ms: f.at_ms > since + 3_000)
            seconds = (last.at_ms - first.at_ms) / 1000
            assert 0 < watching.feed.zookeeper_requests - requests <= 10 * seconds


def test_a_snapshot_is_not_watched(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be watched"):
        LiveFeed(ClusterTarget("s", Origin.SNAPSHOT, snapshot=tmp_path / "s.json"))
