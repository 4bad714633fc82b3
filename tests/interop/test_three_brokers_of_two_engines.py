"""One broker of Apache Kafka among two of ours and the other way round, with either engine as controller.

The broker that is alone of its kind is the controller until it is killed. Meanwhile a client with acks=all writes,
replicas move between the engines, and leaders move back. The client loses nothing, and in the end all replicas are
equal byte for byte. Two of Kafka's beside one of ours take longer to start, so ``make soak`` runs that case.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mixed_cluster import MixedCluster
from replica_files import assert_identical
from sequence_writers import LibrdkafkaSender, Writer, assert_nothing_lost
from soak import SOAK
from wire_client import create_topic

from engine.common.model import TopicPartition

PARTITIONS = 3
WRITTEN, MOVED = "written", "moved"


BOTH_WAYS = [pytest.param((2,), id="kafka-among-klamm"), pytest.param((0, 1), id="klamm-among-kafka")]


@pytest.mark.parametrize("kafkas", BOTH_WAYS[:1] if SOAK == 1 else BOTH_WAYS)
def test_nothing_is_lost_between_two_engines(tmp_path: Path, zk_chroot: str, kafkas: tuple[int, ...]) -> None:
    with MixedCluster(tmp_path, zk_chroot, (2, 0, 1), kafkas) as cluster:
        replicas = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1]}
        create_topic(cluster.address(0), WRITTEN, assignment=replicas, configs={"min.insync.replicas": "2"})
        create_topic(cluster.address(2), MOVED, assignment={0: [0], 1: [2]})
        writers = [Writer(topic, LibrdkafkaSender(cluster.bootstrap)) for topic in (WRITTEN, MOVED)]
        try:
            writers[0].start(WRITTEN, PARTITIONS)
            writers[1].start(MOVED, 2)
            let_them_write(cluster, writers)
            cluster.reassign({TopicPartition(MOVED, 0): [2], TopicPartition(MOVED, 1): [1, 0]})
            let_them_write(cluster, writers)
            writers[1].stop()
            # First the controller, of one engine; then a broker of the other, which may be the controller by now.
            for victim in (2, 0):
                cluster.kill(victim)
                cluster.wait_for_topic(
                    WRITTEN,
                    f"all is led without {victim}",
                    lambda told, victim=victim: all(t[0] not in (-1, victim) and victim not in t[1] for t in told),  # type: ignore[misc]
                )
                let_them_write(cluster, writers[:1])
                cluster.start(victim)
                cluster.wait_in_sync(WRITTEN)
            cluster.elect_preferred(WRITTEN, PARTITIONS)
            let_them_write(cluster, writers[:1])
            writers[0].stop()
            cluster.wait_in_sync(WRITTEN)
            cluster.wait_in_sync(MOVED)
            cluster.wait_until_all_know_each_other()
            for writer, partitions in zip(writers, (PARTITIONS, 2), strict=True):
                writer.check()
                assert assert_nothing_lost(cluster.bootstrap, writer.name, partitions, [writer]) > 0
        finally:
            for writer in writers:
                writer.close()
        cluster.stop_all()
        assert_identical([cluster.log_dir(b) / f"{WRITTEN}-{p}" for b in (0, 1, 2)] for p in range(PARTITIONS))
        assert_identical([[cluster.log_dir(b) / f"{MOVED}-1" for b in (0, 1)]])


def let_them_write(cluster: MixedCluster, writers: list[Writer]) -> None:
    """Wait until the cluster has acknowledged more records of each writer."""
    for writer in writers:
        wanted = writer.acknowledged_total + 300
        cluster.wait_for_topic(
            writer.name,
            "records are acknowledged",
            lambda _, writer=writer, wanted=wanted: writer.acknowledged_total >= wanted,  # type: ignore[misc]
        )
