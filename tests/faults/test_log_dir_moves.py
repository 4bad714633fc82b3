"""Replicas move between the log dirs of real brokers while a client writes, through kill -9 and restarts."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_logs import server_log
from ended_sessions import kill_for_good
from guest_cluster import GuestCluster
from patience import wait_for
from producing import Witness
from replica_files import assert_identical, replica_folder
from wire_client import WireClient, create_topic, produce, wait_until_led

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

QUICK = {
    "zookeeper.session.timeout.ms": "2000",
    "log.segment.bytes": "4000000",
    "log.segment.delete.delay.ms": "100",
    "auto.leader.rebalance.enable": "false",
}
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
FILLING_BYTES = 12_000_000
BROKER_RESOURCE = 4


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper) -> Iterator[LocalCluster]:
    """Two brokers with two log dirs each."""
    with GuestCluster(zookeeper, 2, config=QUICK, log_dir_count=2) as running:
        yield running
        for broker in running.brokers.values():
            log = server_log(broker.logs_path)
            assert "marked as failed" not in log
            assert "Traceback" not in log
            assert "Traceback" not in broker.output_path.read_text()


def folder(cluster: LocalCluster, broker_id: int, topic: str) -> Path:
    return replica_folder(cluster.broker(broker_id).spec.log_dirs, topic, 0)


def wait_until_moved(cluster: LocalCluster, broker_id: int, topic: str, there: Path) -> None:
    """Wait for the end of a move. The old folder keeps its name until the new one's is on the disk."""
    wait_for(lambda: lag(cluster, broker_id) is None, "the move ends")
    dirs = cluster.broker(broker_id).spec.log_dirs
    wait_for(lambda: [path for path in dirs if (path / f"{topic}-0").exists()] == [there], "the old folder is gone")


def begin_move(cluster: LocalCluster, broker_id: int, topic: str) -> Path:
    """Send a broker's replica to its other log dir, and return that dir."""
    here = folder(cluster, broker_id, topic).parent
    (there,) = set(cluster.broker(broker_id).spec.log_dirs) - {here}
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(there), topics=topics)])
    with WireClient(cluster.broker(broker_id).address) as client:
        (result,) = client.ask(request, 2).results
    assert [partition.error_code for partition in result.partitions] == [ErrorCode.NONE]
    return there


def lag(cluster: LocalCluster, broker_id: int) -> int | None:
    """Return how many records the broker's future replica lags; None if there is none."""
    with WireClient(cluster.broker(broker_id).address) as client:
        results = client.ask(DescribeLogDirsRequest(topics=None), 4).results
    lags = [p.offset_lag for r in results for t in r.topics for p in t.partitions if p.is_future_key]
    return lags[0] if lags else None


def throttle(cluster: LocalCluster, broker_id: int, rate: int | None) -> None:
    """Set or remove the throttle of a broker's moves, and wait until the broker knows it."""
    operation, text = (1, None) if rate is None else (0, str(rate))
    change = AlterableConfig(name=RATE, config_operation=operation, value=text)
    resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=str(broker_id), configs=[change])
    asked = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=[RATE]
    )
    with WireClient(cluster.broker(broker_id).address) as client:
        (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses
        assert answer.error_code == ErrorCode.NONE, answer

        def is_in_force() -> bool:
            (result,) = client.ask(DescribeConfigsRequest(resources=[asked]), 4).results
            return [config.value for config in result.configs] == ([] if rate is None else [text])

        wait_for(is_in_force, "the broker hears of its throttle")


def fill(cluster: LocalCluster, topic: str) -> None:
    """Write what takes a while to copy, in large and small batches."""
    sizes = random.Random(3)
    with WireClient(cluster.broker(0).address) as client:
        written = 0
        while written < FILLING_BYTES:
            value = sizes.randbytes(sizes.choice((100, 10_000, 800_000)))
            records = encode_batch([Record(0, time.time_ns() // 1_000_000, b"-1", value)])
            assert produce(client, topic, records, acks=-1).error_code == ErrorCode.NONE
            written += len(records)


def settle(cluster: LocalCluster, topic: str) -> None:
    assert_identical([[folder(cluster, broker_id, topic) for broker_id in (0, 1)]])
    for broker in cluster.brokers.values():
        dirs = broker.spec.log_dirs
        wait_for(lambda dirs=dirs: not [p for d in dirs for p in d.glob(f"{topic}-0.*")], "old folders go")  # type: ignore[misc]


def test_leader_and_follower_move_under_writes(cluster: LocalCluster) -> None:
    topic = "moved"
    create_topic(cluster.broker(0).address, topic, assignment={0: [0, 1]})
    witness = Witness(cluster.bootstrap_servers, topic, 1, {"enable.idempotence": True, "acks": "all"})
    witness.start()
    for _ in range(2):
        witness.wait_for_more(1000)
        targets = {broker_id: begin_move(cluster, broker_id, topic) for broker_id in (0, 1)}
        for broker_id, there in targets.items():
            wait_until_moved(cluster, broker_id, topic, there)
    witness.wait_for_more(1000)
    witness.stop()
    assert witness.check(cluster.broker(0).address, exactly_once=True) > 3000
    settle(cluster, topic)


@pytest.mark.parametrize("broker_id", [0, 1])
def test_a_move_outlives_kills(cluster: LocalCluster, broker_id: int) -> None:
    topic = f"killed-{broker_id}"
    create_topic(cluster.broker(0).address, topic, assignment={0: [0, 1]})
    fill(cluster, topic)
    throttle(cluster, broker_id, 100_000)
    there = begin_move(cluster, broker_id, topic)
    wait_for(lambda: bool(list(there.glob(f"{topic}-0.*-future/*.log"))), "the move has begun")
    for _ in range(2):
        assert lag(cluster, broker_id)
        kill_for_good(cluster, broker_id)
        cluster.start_broker(broker_id)
        wait_until_led(cluster.broker(0).address, topic)
        wait_for(lambda: lag(cluster, broker_id) is not None, "the move goes on")
    throttle(cluster, broker_id, None)
    wait_until_moved(cluster, broker_id, topic, there)
    settle(cluster, topic)
