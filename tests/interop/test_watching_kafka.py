"""Apache Kafka through the dashboard, by keys alone: a killed broker and its leaders, and a whole plan."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from apache_kafka import ApacheKafkaBroker, wait_until_all_know_each_other
from dashboards import Driven, apply_until_it_moves, make_move
from ended_sessions import SEEN_WITHIN_S, session_ended
from event_loop import in_event_loop
from kafka_cluster import kafka_cluster
from klamm_program import klamm
from patience import slowness

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin, Side, parse_addresses
from engine.admin.topics.access import topic_changer
from engine.admin.topics.changes import NewTopic
from engine.admin.watch.frame import Stage
from engine.admin.watch.live_feed import LiveFeed
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.kafka.zk.client import ZkClient
from engine.local.zookeeper import EmbeddedZooKeeper
from tui.app import Dashboard
from tui.state.session import Session

ORDERS = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def brokers(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Sequence[ApacheKafkaBroker]]]:
    """ZooKeeper's address, and two Kafka brokers with short sessions."""
    settings = {"zookeeper.session.timeout.ms": "4000", "controlled.shutdown.enable": "false"}
    settings["auto.leader.rebalance.enable"] = "false"
    with kafka_cluster(
        tmp_path_factory.mktemp("watched-kafka"), 2, 21092, settings, shares_jvm=False, zookeeper=zookeeper
    ) as running:
        yield running.zookeeper, running.brokers


def _everything_is_read(driven: Driven) -> bool:
    frame = driven.app.board.frame
    if frame is None or len(frame.words) < 2:
        return False
    return ORDERS in frame.offsets and ORDERS in frame.logs and ORDERS.topic in frame.min_isr


def _check_what_kafka_tells(driven: Driven) -> None:
    frame = driven.app.board.frame
    assert frame is not None and frame.cluster is not None and frame.min_isr["orders"] == 1
    errors = {stage: status.error for stage, status in frame.stages.items() if status.error}
    assert set(errors) == {Stage.METRICS, Stage.SPARK}, errors
    partition = frame.cluster.partition(ORDERS)
    assert partition is not None and set(partition.isr) == {0, 1} and partition.leader_epoch == 0
    assert all(said.controller_id == frame.cluster.controller_id for said in frame.words.values())


async def _elect_back(driven: Driven, victim: int) -> None:
    """Give the victim its leaders back, by keys alone."""
    await driven.press("3")
    await driven.until(lambda: driven.app.board.total.electable[victim] == 2)
    await driven.until(lambda: driven.main.model.put_cursor_on("orders"))
    await driven.press("E")
    await driven.sees("Elect preferred leaders of")
    assert "klamm elect preferred --topic orders" in driven.text
    await driven.press("y")
    await driven.sees("Elect preferred leaders: done")
    await driven.press("escape")
    await driven.until(lambda: driven.app.board.total.leaders[victim] == 2)


async def _check_what_was_logged(driven: Driven) -> None:
    """The last line that Kafka's brokers logged about a partition matches its present state."""
    await driven.press("colon")
    await driven.type("p orders-0")
    await driven.press("enter", "w")
    await driven.sees("entries about orders-0   from 2 logs")
    shown = driven.main.off_board.partition_log
    assert shown is not None and shown.log is not None
    last = [entry.state for entry in shown.log.entries if entry.state is not None][-1]
    assert last.leader == driven.app.board.topics[0].partitions[0].leader


@in_event_loop
async def test_a_killed_broker_is_shown_within_two_seconds_and_gets_its_leaders_back_by_keys(
    brokers: tuple[str, Sequence[ApacheKafkaBroker]],
) -> None:
    zookeeper, (survivor, victim) = brokers
    address = parse_addresses(survivor.bootstrap)
    logs = (str(survivor.folder), str(victim.folder))
    target = ClusterTarget("kafka", Origin.OPTIONS, zookeeper=zookeeper, bootstrap=address, logs=logs)
    async with Cluster(target) as opened:
        await (await topic_changer(opened)).create(NewTopic("orders", partition_count=4, replication_factor=2))
    loop = asyncio.get_running_loop()
    app = Dashboard(Session(feed := LiveFeed(target), target))
    async with await ZkClient.connect(zookeeper, make_chroot=False) as zk, app.run_test(size=(140, 45)) as pilot:
        driven = Driven(app, pilot, feed)
        await driven.until(lambda: _everything_is_read(driven))
        _check_what_kafka_tells(driven)
        await driven.sees("● HEALTHY")

        ended_s = await session_ended(zk, victim.broker_id, victim.process.kill)
        await driven.until(lambda: "1 of 2" in driven.text and "✖ CRITICAL" in driven.text)
        assert loop.time() - ended_s < SEEN_WITHIN_S * slowness()
        await driven.until(lambda: all(p.isr == (0,) for p in app.board.topics[0].partitions))
        assert loop.time() - ended_s < 5 * SEEN_WITHIN_S * slowness()
        frame = app.board.frame
        assert frame is not None and not frame.link(Side.WIRE).cause and not frame.stage(Stage.METADATA).error

        await asyncio.to_thread(victim.start)
        await _elect_back(driven, victim.broker_id)
        await driven.press("1")
        await driven.sees("● HEALTHY")
        assert app.board.total.under_replicated == 0
        await _check_what_was_logged(driven)


@in_event_loop
async def test_a_plan_is_made_applied_watched_throttled_and_cancelled_by_keys(
    brokers: tuple[str, Sequence[ApacheKafkaBroker]], tmp_path: Path
) -> None:
    zookeeper, (first, second) = brokers
    wait_until_all_know_each_other([first, second])
    bootstrap = f"{first.bootstrap},{second.bootstrap}"
    for words, stdin in (
        (("topics", "create", "moved", "--replica-assignment", "0,0"), ""),
        *((("produce", "moved", "--partition", n, "--acks", "all"), ("x" * 999 + "\n") * 5000) for n in "01"),
    ):
        ran = await asyncio.to_thread(klamm, *words, "-b", bootstrap, folder=tmp_path, stdin=stdin)
        assert ran.code == 0, ran.err
    target = ClusterTarget("kafka", Origin.OPTIONS, zookeeper=zookeeper, bootstrap=parse_addresses(bootstrap))
    app = Dashboard(Session(feed := LiveFeed(target, interval_s=0.5), target, folder=tmp_path, page="plans"))

    def adding() -> list[tuple[int, ...]]:
        topic = next(topic for topic in app.board.topics if topic.name == "moved")
        return [partition.assignment.adding_replicas for partition in topic.partitions]

    async with app.run_test(size=(200, 60)) as pilot:
        driven = Driven(app, pilot, feed)
        await driven.until(lambda: app.board.has_metadata and any(topic.name == "moved" for topic in app.board.topics))
        await make_move(driven, "moved", "1")
        assert "move: 2 moves, " in driven.text
        await apply_until_it_moves(driven, "15000", "1 wave")
        await driven.until(lambda: bool(driven.lines_with("2 under way")) and adding() == [(1,), (1,)])
        await driven.press("6")
        await driven.sees("receives under a throttle of 15.0 kB/s")
        assert driven.lines_with("moved-")
        await driven.press("7", "H", "ctrl+u")
        await driven.type("20000")
        await driven.press("enter")
        await driven.sees("Let brokers copy 20.0 kB/s each")
        await driven.press("y")
        await driven.until(lambda: bool(driven.lines_with("throttle 15.0 kB/s → 20.0 kB/s")))
        await driven.press("C")
        await driven.sees("2 partitions under way?")
        await driven.press("y")
        await driven.sees("Cancel reassignments: done")
        await driven.press("escape")
        await driven.until(lambda: adding() == [(), ()])
        topic = next(topic for topic in app.board.topics if topic.name == "moved")
        assert [partition.assignment for partition in topic.partitions] == [ReplicaAssignment((0,))] * 2


def test_the_exporter_serves_apache_kafka(brokers: tuple[str, Sequence[ApacheKafkaBroker]], tmp_path: Path) -> None:
    _, (first, _) = brokers

    def run(*words: str, stdin: str = "") -> list[str]:
        ran = klamm(*words, "-b", first.bootstrap, folder=tmp_path, stdin=stdin)
        assert (ran.code, "error" in ran.err) == (0, False), ran.err
        return ran.out.splitlines()

    run("topics", "create", "exported", "--partitions", "3", "--replication-factor", "2")
    run("produce", "exported", stdin="1\n2\n3\n4\n5\n6\n7\n")
    run("consume", "exported", "--group", "readers", "--from-beginning", "--max-messages", "5")
    page = run("exporter", "--once", "--partitions", "--topic", "exported")
    assert {"klamm_cluster_up 1", "kafka_brokers 2", 'kafka_topic_partitions{topic="exported"} 3'} <= {*page}
    assert 'klamm_topic_end_offsets_total{topic="exported"} 7' in page
    assert 'kafka_topic_partition_in_sync_replica{topic="exported",partition="2"} 2' in page
    assert 'kafka_consumergroup_group_sum_lag{group="readers",source="classic"} 2' in page
    assert [line for line in page if line.startswith("klamm_log_dir_usable_bytes{")]
    assert not [line for line in page if line.startswith("klamm_exporter_reading_failed") and line.endswith(" 1")]
