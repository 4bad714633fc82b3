"""state-change.log and controller.log of a busy cluster: lines in Kafka's words, event by event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewPartitions
from ended_sessions import kill_for_good
from fault_cluster import FaultCluster
from log_shapes import shape, skeleton
from reassigning import start_reassignment, wait_reassigned
from wire_client import create_topic

from engine.common.model import TopicPartition
from engine.local.zookeeper import EmbeddedZooKeeper

SHAPES = Path(__file__).parents[2] / "fixtures" / "log-shapes"
TOPICS = ("kept", "doomed")
_IS_LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] [A-Z]+ ")

OWN = (
    # Kafka prints the whole request, up to a megabyte, and repeats it for each try, ten times a second.
    "fails to send request",
    "connection to broker",
    # A deposed controller still says this. Kafka's line has the exception's text, which was never recorded.
    "Controller moved to another broker",
)
"""What our controller says in its own words, or what no recording shows."""


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultCluster]:
    with FaultCluster(
        tmp_path_factory.mktemp("logs"), config={"min.insync.replicas": "1"}, zookeeper=zookeeper
    ) as running:
        _let_things_happen(running)
        yield running


def _let_things_happen(cluster: FaultCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    create_topic(cluster.broker(0).address, "kept", assignment={0: [0, 1], 1: [1, 2]})
    create_topic(cluster.broker(0).address, "doomed", assignment={0: [1, 2], 1: [2, 0]})
    admin.create_partitions([NewPartitions("kept", 3, [[2, 0]])])["kept"].result()
    moves = {TopicPartition("kept", 0): [2, 1]}
    start_reassignment(cluster, moves)
    wait_reassigned(cluster, moves)
    controller = cluster.controller_id()
    first, second = (b for b in cluster.local.broker_ids if b != controller)
    kill_for_good(cluster.local, first)
    cluster.wait_led(TOPICS, without=first)
    cluster.local.start_broker(first)
    cluster.wait_in_sync(TOPICS)
    admin.elect_leaders(ElectionType.PREFERRED).result()
    assert cluster.local.stop_broker(second)
    cluster.local.start_broker(second)
    cluster.wait_in_sync(TOPICS)
    admin.delete_topics(["doomed"])["doomed"].result()
    assert controller is not None
    kill_for_good(cluster.local, controller)
    cluster.wait_led(["kept"], without=controller)
    cluster.local.start_broker(controller)
    cluster.wait_in_sync(["kept"])


def _shapes(cluster: FaultCluster, name: str) -> set[str]:
    lines = [line for b in cluster.local.broker_ids for line in cluster.server_log(b, name).splitlines()]
    return {shape(line, TOPICS) for line in lines if _IS_LINE.match(line)}


def _recorded(name: str) -> set[str]:
    return set((SHAPES / name).read_text("utf-8").splitlines())


def test_state_changes_are_told_in_kafkas_words(cluster: FaultCluster) -> None:
    ours, recorded = _shapes(cluster, "state-change.log"), _recorded("state-change.txt")
    assert len(ours) > 20
    known = set(map(skeleton, recorded))
    assert {line for line in ours if line not in recorded and skeleton(line) not in known} == set()
    text = "\n".join(ours)
    for event in (
        "state from NonExistentPartition to NewPartition with assigned replicas N…",
        "from NewPartition to OnlinePartition with state LeaderAndIsr(leader=N, leaderEpoch=N, isrWith",
        "from OfflinePartition to OnlinePartition with state",
        "from OnlinePartition to OnlinePartition with state",
        "after removing replica N from the ISR as part of transition to OfflineReplica",
        "Sent LeaderAndIsr request (Leader:N,ISR:N…,LeaderRecoveryState:RECOVERED,LeaderEpoch:N,ZkVersion:N",
        "Sending StopReplica request for N replicas to broker N",
        "Leader <tp> with topic id Some(<id>) starts at leader epoch N from offset N with partition epoch N",
        "Follower <tp> starts at leader epoch N from offset N with partition epoch N and high watermark N",
        "Add N partitions and deleted N partitions from metadata cache",
    ):
        assert event in text, event


def test_the_controller_speaks_in_kafkas_words(cluster: FaultCluster) -> None:
    known = set(map(skeleton, _recorded("controller.txt")))
    ours = {line for line in _shapes(cluster, "controller.log") if not any(words in line for words in OWN)}
    assert len(ours) > 60
    assert {line for line in ours if skeleton(line) not in known} == set()


def test_each_file_has_its_own_lines(cluster: FaultCluster) -> None:
    for broker_id in cluster.local.broker_ids:
        server = cluster.server_log(broker_id)
        assert "(state.change.logger)" not in server
        assert "(kafka.controller.KafkaController)" not in server
        assert "Traceback" not in server
        assert "started (kafka.server.KafkaServer)" in server
