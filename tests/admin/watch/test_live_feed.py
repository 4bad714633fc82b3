"""A running cluster of three brokers, watched through both interfaces, through each alone, and while parts are gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from event_loop import in_event_loop
from guest_cluster import GuestCluster
from znode_writer import znode_writer

from engine.admin.brokers.metrics import Beans, Teller
from engine.admin.brokers.metrics_sources import Source
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.target import ClusterTarget, Naming, Origin, Side, parse_addresses, resolve_target
from engine.admin.groups.values import GroupState, GroupType
from engine.admin.health.report import Check
from engine.admin.reassignment.access import reassignment_changer
from engine.admin.topics.access import topic_changer
from engine.admin.topics.changes import NewTopic, TopicAlteration
from engine.admin.watch.events import EventKind
from engine.admin.watch.frame import Frame, LinkState, Stage, StageSource
from engine.admin.watch.live_feed import LiveFeed
from engine.common.model import TopicPartition
from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper
from tui.state.status import Standing, causes_of, standing_of

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
    with LocalCluster(3, directory=folder, config=settings, metrics=True) as made:
        asyncio.run(_create(made, "orders", 3))
        yield made


@pytest.fixture(params=["both", "zookeeper", "found", "brokers"])
def target(request: pytest.FixtureRequest, cluster: LocalCluster) -> ClusterTarget:
    """The ways to name the cluster: both interfaces, ZooKeeper alone, brokers to be found there, brokers alone."""
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
    """Takes frames from a feed until one is as wanted, and keeps all events so far."""

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
            raise AssertionError(
                f"not seen within {deadline_s} s; {frame and causes_of(frame)}; the last frame: {frame}"
            ) from None
        raise AssertionError("the feed ended")


@asynccontextmanager
async def _watched(target: ClusterTarget, *, metrics: bool = False, has_ends: bool = True) -> AsyncIterator[_Watching]:
    before = asyncio.all_tasks()
    feed = LiveFeed(target, read_jmx=_no_java if metrics else None, has_ends=has_ends)
    await feed.start()
    try:
        yield _Watching(feed)
    finally:
        await feed.close()
        await feed.close()
    assert [frame async for frame in feed.frames()] in ([], [feed.latest])
    left = {task.get_name() for task in asyncio.all_tasks() - before if not task.done()}
    assert not {name for name in left if name.startswith("watch-")}


async def _no_java(sources: Mapping[int, Source], *asked: object) -> Mapping[int, Beans | str]:
    raise AssertionError(f"brokers of klamm tell their metrics over HTTP: {sources}")


def _is_read(frame: Frame, brokers: int = 3) -> bool:
    stages = [Stage.MEMBERS, Stage.METADATA, Stage.SETTINGS]
    if frame.link(Side.WIRE).state is not LinkState.UNUSED:
        stages += [Stage.OFFSETS, Stage.LOG_DIRS, Stage.PROBES, Stage.GROUPS]
    known = frame.cluster is not None and len(frame.cluster.brokers) == brokers
    return known and all(frame.stage(stage).read_at_ms is not None for stage in stages)


@in_event_loop
async def test_brokers_tell_what_they_measure(cluster: LocalCluster) -> None:
    async with _watched(_target(cluster), metrics=True) as watching:
        frame = await watching.until(lambda frame: len(frame.figures) == 3 and _is_read(frame))
        assert {figure.told_by for figure in frame.figures.values()} == {Teller.JOLOKIA}, frame.figures
        assert all(
            figure.handler_idle_percent is not None and figure.bytes_in.now == 0 for figure in frame.figures.values()
        )
        assert frame.stage(Stage.METRICS).missing == ()


@in_event_loop
async def test_a_table_of_clusters_does_without_the_ends_of_logs(cluster: LocalCluster) -> None:
    async with _watched(_target(cluster), has_ends=False) as watching:
        frame = await watching.until(lambda frame: frame.is_settled(Stage) and frame.health is not None)
    status = frame.stage(Stage.OFFSETS)
    assert (status.source, status.error, status.requests) == (None, "it was not asked for", 0) and not frame.offsets
    assert standing_of(frame) is Standing.LIVE and frame.logs and frame.words


@in_event_loop
async def test_a_whole_cluster_is_read_from_each_side(target: ClusterTarget) -> None:
    async with _watched(target) as watching:
        frame = await watching.until(_is_read)
    assert frame.cluster is not None and frame.cluster.partition(ORDERS) is not None
    assert frame.cluster.controller_id in (0, 1, 2) and frame.cluster.cluster_id
    partition = frame.cluster.partition(ORDERS)
    assert partition is not None and sorted(partition.isr) == [0, 1, 2] and partition.leader == partition.replicas[0]
    by_brokers = target.name != "zookeeper"
    assert frame.min_isr.get("orders") == (1 if by_brokers else None), "brokers' files may say another default"
    assert frame.stage(Stage.METADATA).source is (StageSource.POLL if by_brokers else StageSource.ROTATION)
    assert (ORDERS in frame.read_at_ms) == (not by_brokers)
    assert bool(frame.offsets) == bool(frame.logs) == bool(frame.words) == by_brokers
    if by_brokers:
        assert frame.offsets[ORDERS].end == 0
        assert {log.broker for log in frame.logs[ORDERS]} == {0, 1, 2} and len(frame.log_dirs) == 3
        assert {said.controller_id for said in frame.words.values()} == {frame.cluster.controller_id}
    else:
        assert "must not be asked" in frame.stage(Stage.OFFSETS).error
    assert frame.stage(Stage.METRICS).source is None and not frame.figures, "nobody asked for them"
    has_zookeeper = target.name != "brokers"
    assert (set(frame.registrations) == {0, 1, 2}) == has_zookeeper == (frame.zookeeper_ms is not None)
    assert (frame.cluster.controller_epoch is not None) == has_zookeeper


@in_event_loop
async def test_until_the_first_answer_the_dashboard_is_connecting(target: ClusterTarget) -> None:
    standings: list[Standing] = []

    def is_live(frame: Frame) -> bool:
        standings.append(standing_of(frame))
        assert LinkState.LOST not in {link.state for link in frame.links.values()}, causes_of(frame)
        return standings[-1] is Standing.LIVE

    async with _watched(target) as watching:
        await watching.until(is_live)
    assert standings[0] is Standing.CONNECTING
    assert not {EventKind.CONNECTION_LOST, EventKind.CONNECTION_BACK} & {*watching.events}
    if len(set(target.bootstrap)) == 0:
        assert set(standings) == {Standing.CONNECTING, Standing.LIVE}


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
            # A topic appears once brokers report it, so nobody takes it for offline.
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
            # The session ends SESSION_MS after the kill plus part of a ZooKeeper tick. The frame has 2 s more.
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
    async with _watched(_target(cluster)) as watching, _watched(_target(cluster)) as other:
        await watching.until(_is_read)
        feed = watching.feed
        for each_feed in (feed, other.feed):
            each_feed.set_interval(0.1)
            assert each_feed.status.interval_s == 0.5

        async def until_the_other_ticks(count: int) -> None:
            """Wait for as long as a feed takes that is not paused, however slow the machine is."""
            wanted = other.feed.status.frames_made + count
            await other.until(lambda _: other.feed.status.frames_made >= wanted)

        feed.pause()
        assert feed.status.is_paused
        # What was being read may still come.
        await until_the_other_ticks(2)
        made, requests = feed.status.frames_made, _zookeeper_requests(feed)
        await until_the_other_ticks(4)
        assert (feed.status.frames_made, _zookeeper_requests(feed)) == (made, requests)
        feed.resume()
        feed.refresh()
        latest = feed.latest
        assert latest is not None
        await watching.until(lambda f: (f.stage(Stage.LOG_DIRS).read_at_ms or 0) > latest.at_ms)


def _zookeeper_requests(feed: LiveFeed) -> int:
    return 0 if feed._zookeeper is None else feed._zookeeper.requests


@in_event_loop
async def test_a_quiet_cluster_costs_zookeeper_less_than_ten_requests_a_second(cluster: LocalCluster) -> None:
    for how in ("zookeeper", "both"):
        async with _watched(_target(cluster, how)) as watching:
            first = await watching.until(_is_read)
            requests = _zookeeper_requests(watching.feed)
            last = await watching.until(lambda f, since=first.at_ms: f.at_ms > since + 3_000)
            seconds = (last.at_ms - first.at_ms) / 1000
            assert 0 < _zookeeper_requests(watching.feed) - requests <= 10 * seconds


def test_a_snapshot_is_not_watched(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be watched"):
        LiveFeed(ClusterTarget("s", Origin.SNAPSHOT, snapshot=tmp_path / "s.json"))


@in_event_loop
async def test_queries_of_spark_are_measured_as_klamm_lag_measures_them(cluster: LocalCluster, tmp_path: Path) -> None:
    from spark_traces import one_source, write_checkpoint

    from engine.admin.lag.measuring import LagMeter, LagOptions
    from engine.admin.lag.spark_traces import QueryTraces

    name, now_ms = "streamed", time.time_ns() // 1_000_000
    await _create(cluster, name, 2)
    batches = [one_source(now_ms - ago, now_ms - ago + 1_000, name, 0, 0) for ago in (30_000, 20_000, 10_000)]
    place = str(write_checkpoint(tmp_path / "query", [*batches, one_source(now_ms - 500, None, name, 0, 5)]))
    target = replace(_target(cluster), checkpoints=(place,))
    async with _watched(target) as watching:
        frame = await watching.until(lambda frame: any(query.lags for query in frame.queries))
    async with Cluster(target) as opened:
        meter = LagMeter(opened, None, lambda topic: True, LagOptions(), QueryTraces((place,)))
        answer, _ = await meter.measure()
    (query,) = frame.queries
    (row,), (answers,) = query.lags, answer.groups
    assert (row.status, row.reason, row.lag, row.batch_id) == (answers.status, answers.reason, answers.lag, 3)
    assert [(partition.planned, partition.committed, partition.end) for partition in row.partitions] == [
        (0, 0, 0),
        (5, 0, 0),
    ]
    assert query.job.status is row.status and frame.stage(Stage.SPARK).requests > 0


@in_event_loop
async def test_groups_that_keep_themselves_in_zookeeper_are_watched_too(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So the two take turns.
    monkeypatch.setattr("engine.admin.watch.stage_readings.OLD_GROUPS_PER_READING", 1)
    with znode_writer(cluster.zookeeper_connect) as write:
        root = "/consumers/of-old"
        write({f"{root}/offsets/orders/0": b"0", f"{root}/ids/of-old_host-1500000000000-0a1b2c3d": b"{}"}, False)
        write({"/consumers/older/offsets/orders/1": b"0"}, False)
        async with _watched(_target(cluster)) as watching:
            frame = await watching.until(lambda f: any(group.name == "of-old" for group in f.groups))
            known = [group for group in frame.groups if group.name in ("of-old", "older")]
            assert [bool(row.lag.partitions) for row in known] == [True, False] == [row.has_lag for row in known]
            watching.feed.refresh([Stage.GROUPS])
            frame = await watching.until(lambda f: all(group.has_lag for group in f.groups if group.name == "older"))
            (group,) = (group for group in frame.groups if group.name == "of-old")
            assert (group.lag.type, group.lag.state) == (GroupType.ZOOKEEPER, GroupState.ACTIVE)
            assert [(partition.name, partition.lag) for partition in group.lag.partitions] == [("orders-0", 0)]
            assert group.members is not None and len(group.members) == 1 and group.coordinator is None
            assert not frame.stage(Stage.GROUPS).missing
        async with _watched(_target(cluster, "brokers")) as watching:
            frame = await watching.until(lambda f: f.stage(Stage.GROUPS).read_at_ms is not None)
            assert "of-old" not in [group.name for group in frame.groups], "no ZooKeeper is named"


@in_event_loop
async def test_groups_in_zookeeper_are_watched_where_brokers_are_not_to_be_asked(cluster: LocalCluster) -> None:
    with znode_writer(cluster.zookeeper_connect) as write:
        write({"/consumers/alone/offsets/orders/0": b"7"}, False)
        async with _watched(_target(cluster, "zookeeper")) as watching:
            frame = await watching.until(lambda f: any(group.name == "alone" and group.has_lag for group in f.groups))
            (group,) = (group for group in frame.groups if group.name == "alone")
            (partition,) = group.lag.partitions
            assert (group.lag.state, partition.committed_offset) == (GroupState.EMPTY, 7)
            assert partition.error == "only brokers know it, and they must not be asked"
            assert (partition.log_end_offset, partition.lag, group.lag.lag) == (None, None, None), (
                "only brokers know it"
            )
            assert frame.stage(Stage.GROUPS).source is StageSource.POLL
            assert frame.link(Side.WIRE).state is LinkState.UNUSED
            assert standing_of(frame) is Standing.LIVE and not causes_of(frame)
            write({"/consumers/alone/ids/alone_host-1500000000000-0a1b2c3d": b"{}"}, False)
            watching.feed.refresh([Stage.GROUPS])
            await watching.until(lambda f: any(group.lag.state is GroupState.ACTIVE for group in f.groups))


@in_event_loop
async def test_what_brokers_answer_late_does_not_replace_what_zookeeper_has_told_since(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer_late(*_: object) -> object:
        asked.set()
        await may_answer.wait()
        return {}, {}, {}, ("settings of topic orders are not known: ZooKeeper's session is over",)

    monkeypatch.setattr("engine.admin.watch.by_wire.read_wire_settings", answer_late)
    async with _watched(_target(cluster)) as watching:
        await watching.until(_is_read)
        cluster.zookeeper.pause()
        try:
            await watching.until(lambda f: f.link(Side.ZOOKEEPER).state is LinkState.LOST)
            watching.feed.refresh([Stage.SETTINGS])
            await asyncio.wait_for(asked.wait(), DEADLINE_S)
        finally:
            cluster.zookeeper.resume()
        await watching.until(lambda f: f.stage(Stage.SETTINGS).source is StageSource.WATCH and not causes_of(f))
        may_answer.set()
        sequence = (watching.feed.latest or Frame(0, 0, {}, {})).sequence
        frame = await watching.until(lambda f: f.sequence > sequence + 2)
        assert frame.stage(Stage.SETTINGS).source is StageSource.WATCH and not causes_of(frame)


@in_event_loop
async def test_zookeeper_that_stands_still_is_told_with_cause_and_age_while_brokers_go_on(
    cluster: LocalCluster,
) -> None:
    async with _watched(_target(cluster)) as watching:
        await watching.until(_is_read)
        cluster.zookeeper.pause()
        try:
            frame = await watching.until(lambda f: f.link(Side.ZOOKEEPER).state is LinkState.LOST)
            assert standing_of(frame) is Standing.DEGRADED
            causes = "; ".join(causes_of(frame))
            assert f"ZooKeeper {cluster.zookeeper_connect} lost: " in causes and "last answer" in causes
            lost_ms = frame.at_ms
            frame = await watching.until(lambda f: f.at_ms > lost_ms + 1_500)
            assert (frame.age_ms(Stage.METADATA) or 0) < 3_000, "brokers tell what they know"
        finally:
            cluster.zookeeper.resume()
        frame = await watching.until(lambda f: standing_of(f) is Standing.LIVE and len(_live(f)) == 3)
        assert not causes_of(frame)


@in_event_loop
async def test_a_frozen_broker_is_told_of_long_before_its_session_ends_and_holds_nobody_up(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    settings = {"zookeeper.session.timeout.ms": "18000", "auto.create.topics.enable": "false"}
    with GuestCluster(zookeeper, 3, directory=tmp_path, config=settings) as frozen_one:
        await asyncio.to_thread(asyncio.run, _create(frozen_one, "orders", 3))
        async with _watched(_target(frozen_one)) as watching:
            frame = await watching.until(_is_read)
            for victim in range(3):
                await watching.until(lambda f: not _silent(f) and standing_of(f) is Standing.LIVE)
                frozen_one.pause_broker(victim)
                began_s = time.monotonic()
                try:
                    frame = await watching.until(lambda f, victim=victim: victim in _silent(f))  # type: ignore[misc]
                    took_s = time.monotonic() - began_s
                    assert _silent(frame).keys() == {victim} and _silent(frame)[victim].startswith("no answer for ")
                    assert frame.health is not None
                    assert any(reason.check is Check.SILENT_BROKERS for reason in frame.health.reasons)
                    assert victim in _live(frame), "ZooKeeper knows nothing yet"
                    assert took_s < 5, "about 2 s; this machine may be slow"
                    ages = []
                    until_ms = frame.at_ms + 5_000

                    def is_over(f: Frame, ages: list[int] = ages, until_ms: int = until_ms) -> bool:
                        ages += [f.age_ms(stage) or 0 for stage in (Stage.METADATA, Stage.OFFSETS)]
                        assert f.link(Side.WIRE).state is LinkState.CONNECTED
                        return f.at_ms > until_ms

                    await watching.until(is_over)
                    assert max(ages) < 4_000, "the others are read as before"
                finally:
                    frozen_one.resume_broker(victim)


def _silent(frame: Frame) -> dict[int, str]:
    return {broker: said.trouble for broker, said in frame.words.items() if said.trouble}


@in_event_loop
async def test_brokers_that_stand_still_are_told_and_then_the_cluster_is_out_of_sight(cluster: LocalCluster) -> None:
    async with _watched(_target(cluster, "brokers")) as watching:
        await watching.until(_is_read)
        for broker in range(3):
            cluster.pause_broker(broker)
        try:
            # Asked, and no answer so far: the data become old.
            frame = await watching.until(lambda f: standing_of(f) in (Standing.STALE, Standing.DISCONNECTED))
            assert (frame.age_ms(Stage.METADATA) or 0) > 1_000 and causes_of(frame)
            frame = await watching.until(lambda f: standing_of(f) is Standing.DISCONNECTED)
            link = frame.link(Side.WIRE)
            assert "answer" in link.cause and link.last_answer_ms is not None
            assert frame.cluster is not None and len(frame.cluster.brokers) == 3, "what was read stays"
            await watching.until(lambda f: "next try in" in "; ".join(causes_of(f)))
        finally:
            for broker in range(3):
                cluster.resume_broker(broker)
        await watching.until(lambda f: standing_of(f) is Standing.LIVE)


def _live(frame: Frame) -> frozenset[int]:
    return frozenset() if frame.cluster is None else frame.cluster.live_broker_ids


@in_event_loop
async def test_a_store_that_has_gone_is_told_in_the_words_of_its_error(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/absent.pem\n")
    naming = Naming(bootstrap_servers=f"{own_loopback_address()}:9092", command_config=str(config))
    feed = LiveFeed(resolve_target(naming, {}, tmp_path), interval_s=0.1)
    await feed.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            async for frame in feed.frames():
                if error := frame.stage(Stage.METADATA).error:
                    assert error == "cannot be read (no such file or directory): ssl.truststore.location=/absent.pem"
                    return
    finally:
        await feed.close()
