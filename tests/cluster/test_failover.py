"""Brokers die, freeze, stop and come back while real clients write: leadership moves, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from cluster_checks import assert_quiet_and_whole
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from fault_cluster import SESSION_MS, FaultCluster
from sequence_writers import SLOW, KafkaPythonSender, LibrdkafkaSender, Writer
from wire_client import create_topic

# See KafkaPythonSender.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

PARTITIONS = 6
TOPIC = "records"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultCluster]:
    with FaultCluster(tmp_path_factory.mktemp("failover")) as running:
        create_topic(running.broker(0).address, TOPIC, partitions=PARTITIONS, replication_factor=3)
        yield running


@pytest.fixture
def writers(cluster: FaultCluster) -> Iterator[list[Writer]]:
    """Two clients that write during the whole test. At its end none of their records may be missing."""
    cluster.wait_in_sync([TOPIC])
    both = [
        Writer(f"rdkafka{time.monotonic_ns()}", LibrdkafkaSender(cluster.bootstrap)),
        Writer(f"python{time.monotonic_ns()}", KafkaPythonSender(cluster.bootstrap), records_per_s=SLOW),
    ]
    try:
        for writer in both:
            writer.start(TOPIC, PARTITIONS)
        yield both
        for writer in both:
            writer.stop()
        assert assert_quiet_and_whole(cluster, TOPIC, both) > 0
    finally:
        for writer in both:
            writer.close()


def client_settings(cluster: FaultCluster) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap, "log_level": 0}


def leaders(cluster: FaultCluster) -> dict[int, int]:
    return {p.partition: state.leader_and_isr.leader for p, state in cluster.states([TOPIC]).items()}


def wait_for_progress(cluster: FaultCluster, writers: list[Writer], records: int = 200) -> None:
    """Wait until each writer has made progress: produce works."""
    wanted = [writer.acknowledged_total + records for writer in writers]
    cluster.wait_for(
        "records are acknowledged", lambda: all(w.acknowledged_total >= n for w, n in zip(writers, wanted, strict=True))
    )


def other_than(cluster: FaultCluster, *ids: int | None) -> int:
    return next(b for b in cluster.local.broker_ids if b not in ids)


def test_all_replicas_follow(cluster: FaultCluster, writers: list[Writer]) -> None:
    wait_for_progress(cluster, writers, 1000)
    assert sorted(leaders(cluster).values()) == [0, 0, 1, 1, 2, 2]


def test_killed_broker(cluster: FaultCluster, writers: list[Writer]) -> None:
    wait_for_progress(cluster, writers)
    victim = other_than(cluster, cluster.controller_id())
    cluster.local.kill_broker(victim)
    took_s = cluster.wait_led([TOPIC], without=victim)
    assert took_s < SESSION_MS / 1000 + 20
    wait_for_progress(cluster, writers)
    cluster.local.start_broker(victim)
    cluster.wait_in_sync([TOPIC])
    assert victim not in leaders(cluster).values(), "leadership comes back by an election, not by itself"


def test_preferred_election_brings_leadership_back(cluster: FaultCluster, writers: list[Writer]) -> None:
    admin = AdminClient(client_settings(cluster))
    victim = other_than(cluster, cluster.controller_id())
    cluster.local.restart_broker(victim)
    cluster.wait_in_sync([TOPIC])
    assert victim not in leaders(cluster).values()
    wanted = [ClientPartition(TOPIC, index) for index in range(PARTITIONS)]
    results = admin.elect_leaders(ElectionType.PREFERRED, wanted).result()
    preferred = {p.partition: a.replicas[0] for p, a in cluster.assignments([TOPIC]).items()}
    assert leaders(cluster) == preferred
    refused = {p.partition for p, error in results.items() if error is not None}
    assert all(results_error_name(results, p) == "ELECTION_NOT_NEEDED" for p in refused)
    wait_for_progress(cluster, writers)


def results_error_name(results: dict[ClientPartition, object], partition: int) -> str:
    """Return the error of one partition of an election, by its name."""
    error = next(error for p, error in results.items() if p.partition == partition)
    return str(error.name()).lstrip("_")  # type: ignore[attr-defined]


def test_controlled_shutdown_moves_leadership_first(cluster: FaultCluster, writers: list[Writer]) -> None:
    wait_for_progress(cluster, writers)
    victim = other_than(cluster, cluster.controller_id())
    assert cluster.local.stop_broker(victim), "TERM is enough"
    # No session had to expire: another broker leads as soon as this one is gone.
    assert victim not in leaders(cluster).values()
    cluster.wait_led([TOPIC], without=victim)
    log = cluster.server_log(victim)
    assert "Controlled shutdown request returned successfully" in log.rpartition("Starting controlled shutdown")[2]
    wait_for_progress(cluster, writers)
    cluster.local.start_broker(victim)


def test_killed_controller(cluster: FaultCluster, writers: list[Writer]) -> None:
    wait_for_progress(cluster, writers)
    controller = cluster.controller_id()
    assert controller is not None
    cluster.local.kill_broker(controller)
    cluster.wait_led([TOPIC], without=controller)
    assert cluster.controller_id() not in (None, controller)
    wait_for_progress(cluster, writers)
    cluster.local.start_broker(controller)
    cluster.wait_in_sync([TOPIC])


def test_controller_that_ends(cluster: FaultCluster, writers: list[Writer]) -> None:
    controller = cluster.controller_id()
    assert controller is not None
    assert cluster.local.stop_broker(controller)
    cluster.wait_led([TOPIC], without=controller)
    wait_for_progress(cluster, writers)
    cluster.local.start_broker(controller)


def test_frozen_broker_is_fenced_and_goes_on(cluster: FaultCluster, writers: list[Writer]) -> None:
    wait_for_progress(cluster, writers)
    victim = other_than(cluster, cluster.controller_id())
    cluster.local.pause_broker(victim)
    cluster.wait_led([TOPIC], without=victim)
    wait_for_progress(cluster, writers)
    cluster.local.resume_broker(victim)
    cluster.wait_in_sync([TOPIC])


def test_frozen_controller_is_replaced(cluster: FaultCluster, writers: list[Writer]) -> None:
    wait_for_progress(cluster, writers)
    controller = cluster.controller_id()
    assert controller is not None
    cluster.local.pause_broker(controller)
    cluster.wait_led([TOPIC], without=controller)
    cluster.local.resume_broker(controller)
    cluster.wait_in_sync([TOPIC])
    assert cluster.controller_id() != controller


def test_zookeeper_restarts(cluster: FaultCluster, writers: list[Writer]) -> None:
    wait_for_progress(cluster, writers)
    cluster.local.zookeeper.kill()
    wait_for_progress(cluster, writers)
    cluster.local.zookeeper.start()
    cluster.wait_in_sync([TOPIC])
    wait_for_progress(cluster, writers)


def test_zookeeper_freezes_longer_than_a_session(cluster: FaultCluster, writers: list[Writer]) -> None:
    wait_for_progress(cluster, writers)
    cluster.local.zookeeper.pause()
    began = time.monotonic()
    while time.monotonic() - began < 2 * SESSION_MS / 1000:
        wait_for_progress(cluster, writers)
    cluster.local.zookeeper.resume()
    cluster.wait_in_sync([TOPIC])
    wait_for_progress(cluster, writers)


def test_all_brokers_killed_at_once(cluster: FaultCluster, writers: list[Writer]) -> None:
    wait_for_progress(cluster, writers)
    for broker_id in cluster.local.broker_ids:
        cluster.broker(broker_id).kill()
    for broker_id in cluster.local.broker_ids:
        cluster.local.start_broker(broker_id)
    cluster.wait_in_sync([TOPIC])
    wait_for_progress(cluster, writers)
