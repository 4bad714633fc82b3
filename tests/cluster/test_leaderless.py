"""Too few replicas are left: producers are refused, partitions have no leader, and an operator may accept losses."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_checks import replica_folders
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from ended_sessions import kill_for_good
from fault_cluster import SESSION_MS, FaultCluster
from replica_files import assert_identical
from wire_client import WireClient, create_topic, fetch, produce, read_all

from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, LeaderRecoveryState, TopicPartition
from engine.kafka.config.properties import format_properties, parse_properties
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.probe import known_broker_ids
from engine.local.zookeeper import EmbeddedZooKeeper
from engine.runtime.own_process import module_command


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultCluster]:
    # Brokers 0 and 1 hold the partitions. Broker 2 survives them, and is the controller when it matters.
    with FaultCluster(
        tmp_path_factory.mktemp("leaderless"), config={"min.insync.replicas": "1"}, zookeeper=zookeeper
    ) as running:
        for other in (0, 1):
            running.local.stop_broker(other)
        # If it is alone, it wins. Started one after the other, the two could take turns.
        running.wait_for("broker 2 is the controller", lambda: running.controller_id() == 2)
        for other in (0, 1):
            running.local.start_broker(other)
        yield running


@pytest.fixture(autouse=True)
def all_run(cluster: FaultCluster) -> None:
    """Whatever a failed earlier test left dead or frozen must not make the next one fail."""
    for broker in cluster.local.brokers.values():
        if broker.is_paused:
            cluster.local.resume_broker(broker.id)
        cluster.local.start_broker(broker.id)
    cluster.local.wait_until_serving()


@pytest.fixture
def topic() -> str:
    return f"t{time.monotonic_ns()}"


def batch(value: bytes) -> bytes:
    return encode_batch([Record(0, time.time_ns() // 1_000_000, None, value, [])])


def state_of(cluster: FaultCluster, topic: str) -> LeaderAndIsr:
    return cluster.states([topic])[TopicPartition(topic, 0)].leader_and_isr


def values(cluster: FaultCluster, broker_id: int, topic: str) -> list[bytes | None]:
    with WireClient(cluster.broker(broker_id).address) as client:
        return [record.value for record in read_all(client, topic)]


def put(cluster: FaultCluster, broker_id: int, topic: str, value: bytes, *, acks: int = 1) -> ErrorCode:
    with WireClient(cluster.broker(broker_id).address) as client:
        return ErrorCode(produce(client, topic, batch(value), acks=acks).error_code)


def known_to(cluster: FaultCluster, broker_id: int) -> set[int]:
    """Return the brokers that this one reports to clients, as the controller told it."""
    spec = cluster.broker(broker_id).spec
    return known_broker_ids(spec.host, spec.port)


def leave_without_leader(cluster: FaultCluster, topic: str) -> None:
    """Let broker 0 lead alone and write records that 1 does not have; then 0 dies and 1 is back."""
    create_topic(cluster.broker(2).address, topic, assignment={0: [0, 1]})
    cluster.wait_for("0 leads", lambda: put(cluster, 0, topic, b"both", acks=-1) is ErrorCode.NONE)
    cluster.local.pause_broker(1)
    # Its last fetch has to be answered before "only 0" is written, so nobody ends its session earlier.
    cluster.wait_for("broker 1 is out of the ISR", lambda: state_of(cluster, topic).isr == (0,))
    # Its session may outlast its place in the ISR. Resumed too early, it would seem alive again, and then die.
    cluster.wait_for("broker 1 is dead to the controller", lambda: known_to(cluster, 2) == {0, 2})
    assert put(cluster, 0, topic, b"only 0", acks=-1) is ErrorCode.NONE
    kill_for_good(cluster.local, 0)
    cluster.local.resume_broker(1)
    cluster.wait_for("nobody leads", lambda: state_of(cluster, topic).leader == -1)
    cluster.local.wait_until_serving([1])
    assert state_of(cluster, topic).isr == (0,), "the last member stays"
    with WireClient(cluster.broker(1).address) as client:
        answer = produce(client, topic, batch(b"nobody takes it"))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def come_back(cluster: FaultCluster, topic: str) -> None:
    """Start broker 0 again; both replicas end up equal."""
    cluster.local.start_broker(0)
    cluster.wait_in_sync([topic])
    assert_identical(replica_folders(cluster, topic))


def test_without_a_decision_nothing_is_lost(cluster: FaultCluster, topic: str) -> None:
    leave_without_leader(cluster, topic)
    come_back(cluster, topic)
    assert state_of(cluster, topic).leader == 0
    assert values(cluster, 0, topic) == [b"both", b"only 0"]


def test_an_unclean_election_by_request(cluster: FaultCluster, topic: str) -> None:
    leave_without_leader(cluster, topic)
    before = state_of(cluster, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    results = admin.elect_leaders(ElectionType.UNCLEAN, [ClientPartition(topic, 0)]).result()
    assert list(results.values()) == [None]
    state = state_of(cluster, topic)
    assert (state.leader, state.isr, state.leader_recovery_state) == (1, (1,), LeaderRecoveryState.RECOVERING)
    assert state.leader_epoch == before.leader_epoch + 1
    cluster.wait_for("1 leads", lambda: put(cluster, 1, topic, b"only 1") is ErrorCode.NONE)
    come_back(cluster, topic)
    assert values(cluster, 1, topic) == [b"both", b"only 1"]
    # The next ISR change records that the leader has recovered.
    assert state_of(cluster, topic).leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_an_unclean_election_by_a_topic_setting_at_run_time(cluster: FaultCluster, topic: str) -> None:
    leave_without_leader(cluster, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    entry = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    cluster.wait_for("1 leads", lambda: state_of(cluster, topic).leader == 1)
    come_back(cluster, topic)
    assert values(cluster, 1, topic) == [b"both"]


def alter_cluster_setting(cluster: FaultCluster, name: str, value: str | None) -> None:
    """Set a setting for all brokers, or remove it (None); librdkafka cannot do that."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    wanted = AlterableConfig(name=name, config_operation=operation.value, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[wanted])
    with WireClient(cluster.broker(2).address) as client:
        (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 0).responses
    assert answer.error_code == ErrorCode.NONE, answer


def test_an_unclean_election_by_a_setting_of_all_brokers_at_run_time(cluster: FaultCluster, topic: str) -> None:
    leave_without_leader(cluster, topic)
    alter_cluster_setting(cluster, "unclean.leader.election.enable", "true")
    try:
        cluster.wait_for("1 leads", lambda: state_of(cluster, topic).leader == 1)
    finally:
        alter_cluster_setting(cluster, "unclean.leader.election.enable", None)
    come_back(cluster, topic)
    assert values(cluster, 1, topic) == [b"both"]


def test_below_min_insync_replicas_producers_are_refused(cluster: FaultCluster, topic: str) -> None:
    create_topic(cluster.broker(2).address, topic, assignment={0: [2, 0, 1]}, configs={"min.insync.replicas": "2"})
    cluster.wait_for("2 leads", lambda: put(cluster, 2, topic, b"all", acks=-1) is ErrorCode.NONE)
    kill_for_good(cluster.local, 0, 1)
    cluster.wait_for("the ISR is down to one", lambda: state_of(cluster, topic).isr == (2,))
    cluster.wait_for(
        "acks=all is refused", lambda: put(cluster, 2, topic, b"refused", acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    )
    with WireClient(cluster.broker(2).address) as client:
        # A Fetch shows the high watermark, because ZooKeeper has the new ISR before the leader hears of it. Records
        # written in between belong to an earlier leader epoch and are not committed, and ListOffsets gives no end until
        # they are.
        committed = fetch(client, topic, 0).high_watermark
        assert produce(client, topic, batch(b"one"), acks=1).error_code == ErrorCode.NONE
        # A record is committed once min.insync.replicas replicas have it.
        assert fetch(client, topic, 0).high_watermark == committed
    cluster.local.start_broker(0)
    cluster.wait_for("acks=all works", lambda: put(cluster, 2, topic, b"two", acks=-1) is ErrorCode.NONE)
    cluster.local.start_broker(1)
    cluster.wait_in_sync([topic])
    assert_identical(replica_folders(cluster, topic))
    # A refusal after the append still leaves a record.
    kept = [value for value in values(cluster, 2, topic) if value != b"refused"]
    assert list(dict.fromkeys(kept)) == [b"all", b"one", b"two"]


def test_a_second_broker_with_the_same_id_waits_and_refuses(cluster: FaultCluster, tmp_path: Path) -> None:
    spec = cluster.broker(1).spec
    settings = parse_properties((spec.directory / "server.properties").read_text())
    address = f"{cluster.host}:9999"
    settings |= {
        "listeners": f"PLAINTEXT://{address}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "log.dirs": str(tmp_path / "data"),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    properties = tmp_path / "server.properties"
    properties.write_text(format_properties(settings))
    began = time.monotonic()
    command = [*module_command("engine.broker.server"), properties]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert time.monotonic() - began >= SESSION_MS / 1000, "the old session might have been this broker's own"
    assert ended.returncode != 0
    (error,) = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert "broker id 1 is already registered" in error
    assert f"{cluster.host}:{spec.port}" in error, "it says whom it met"
    cluster.wait_in_sync(cluster.zk(lambda zk: zk.topics.get_all_topics()))
