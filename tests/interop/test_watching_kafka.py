"""Apache Kafka's brokers watched: what they tell, and how soon a killed one is seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from apache_kafka import ApacheKafkaBroker, wait_until_all_know_each_other
from event_loop import in_event_loop

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin, Side, parse_addresses
from engine.admin.topics.access import topic_changer
from engine.admin.topics.changes import NewTopic
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.live_feed import LiveFeed
from engine.common.model import TopicPartition
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper
from engine.zk.client import ZkClient
from engine.zk.watches import WatchEvent

ORDERS = TopicPartition("orders", 0)
SEEN_WITHIN_S = 2.0
DEADLINE_S = 60.0


@pytest.fixture
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[ApacheKafkaBroker]]]:
    """ZooKeeper's address, and two brokers of Kafka's with short sessions."""
    host, folder = own_loopback_address(), tmp_path_factory.mktemp("watched-kafka")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(host=host, fsync=False)).connect_string
        overrides = {"zookeeper.session.timeout.ms": "4000", "controlled.shutdown.enable": "false"}
        made = [
            stack.enter_context(
                ApacheKafkaBroker(
                    folder / str(number), broker_id=number, host=host, port=21092 + number,
                    zookeeper_connect=zookeeper, overrides=overrides, heap="300m",
                )
            )
            for number in range(2)
        ]  # fmt: skip
        wait_until_all_know_each_other(made)
        yield zookeeper, made


async def _until(feed: LiveFeed, is_wanted: Callable[[Frame], bool]) -> Frame:
    async with asyncio.timeout(DEADLINE_S):
        async for frame in feed.frames():
            if is_wanted(frame):
                return frame
    raise AssertionError("the feed ended")


async def _unregistered(zk: ZkClient, broker_id: int) -> None:
    """Return as soon as ZooKeeper has ended a broker's session."""
    gone = asyncio.Event()

    def on_event(event: WatchEvent) -> None:
        gone.set()

    assert await zk.watch_and_check_exists(f"/brokers/ids/{broker_id}", on_event)
    await gone.wait()


@in_event_loop
async def test_a_killed_broker_of_kafka_is_seen_within_two_seconds_of_its_sessions_end(
    brokers: tuple[str, list[ApacheKafkaBroker]],
) -> None:
    zookeeper, (survivor, victim) = brokers
    target = ClusterTarget("kafka", Origin.OPTIONS, zookeeper=zookeeper, bootstrap=parse_addresses(survivor.bootstrap))
    async with Cluster(target) as opened:
        await (await topic_changer(opened)).create(NewTopic("orders", partition_count=4, replication_factor=2))
    loop = asyncio.get_running_loop()
    async with await ZkClient.connect(zookeeper, make_chroot=False) as zk:
        feed = LiveFeed(target)
        await feed.start()
        frame = await _until(feed, lambda f: ORDERS in f.offsets and ORDERS in f.logs and len(f.words) == 2)
        assert frame.cluster is not None and frame.min_isr["orders"] == 1
        assert all(not status.error for status in frame.stages.values())
        partition = frame.cluster.partition(ORDERS)
        assert partition is not None and set(partition.isr) == {0, 1} and partition.leader_epoch == 0
        assert all(said.controller_id == frame.cluster.controller_id for said in frame.words.values())
        gone = asyncio.create_task(_unregistered(zk, 1), name="session-of-the-victim")
        await asyncio.sleep(0)
        await asyncio.to_thread(victim.process.kill)
        async with asyncio.timeout(DEADLINE_S):
            await gone
        ended_s = loop.time()
        frame = await _until(feed, lambda f: f.cluster is not None and f.cluster.live_broker_ids == {0})
        assert loop.time() - ended_s < SEEN_WITHIN_S
        frame = await _until(
            feed, lambda f: f.cluster is not None and all(p.isr == (0,) for p in f.cluster.topics[0].partitions)
        )
        assert loop.time() - ended_s < 5 * SEEN_WITHIN_S
        assert frame.link(Side.WIRE).cause == "" and frame.stage(Stage.METADATA).error == ""
        await feed.close()
