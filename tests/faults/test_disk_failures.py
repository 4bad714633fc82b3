"""A disk that is full, or gone: only its log dir goes offline, answers say so, nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker_program import OLD_RECORDS_STAY, BrokerProgram, settings
from guest_cluster import GuestCluster
from patience import wait_for
from required_tools import require
from wire_client import (
    SequencedProducer,
    WireClient,
    create_topic,
    describe_topic,
    fetch,
    list_offset,
    produce,
    read_all,
    wait_until_led,
)

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.elections.running import preview_election
from engine.admin.elections.scope_and_result import ElectionPreview, ElectionScope, ElectionType
from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

DISK_BYTES = 6_000_000
QUICK = OLD_RECORDS_STAY | {
    "zookeeper.session.timeout.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}
SMALL = encode_batch([Record(0, 1_700_000_000_000, b"k", b"small")])


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system of DISK_BYTES in memory, so that no real disk fills up."""
    folder.mkdir(parents=True)
    require("tmpfs")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "klamm-test", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def partition_in(log_dir: Path, topic: str) -> int:
    """Return the partition, of a topic with two, that is in this dir."""
    (folder,) = log_dir.glob(f"{topic}-*")
    return int(folder.name.rpartition("-")[2])


def fill(client: WireClient, producer: SequencedProducer, partition: int) -> tuple[int, Any]:
    """Send batches until one is refused; return how many were acknowledged, and the refusal."""
    big = b"x" * 90_000
    for number in range(DISK_BYTES // len(big) + 10):
        records = encode_batch(
            [Record(0, time.time_ns() // 1_000_000, b"%d" % number, big)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=number,
        )
        answer = produce(client, "t", records, partition=partition, acks=-1)
        if answer.error_code != ErrorCode.NONE:
            return number, answer
    raise AssertionError("the disk did not fill up")


async def previewed(cluster: LocalCluster, partition: int) -> ElectionPreview:
    """Return what an unclean election would do to a partition of ``t``."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    target = ClusterTarget("failing", Origin.OPTIONS, bootstrap=((host, int(port)),))
    async with Cluster(target) as asked:
        (found,) = await preview_election(asked, ElectionType.UNCLEAN, ElectionScope((("t", partition),)))
    return found


def check_the_failed_dir(cluster: LocalCluster, failed: Path, good: int, bad: int) -> None:
    """Check that the failed dir's partition is refused everywhere, and that the other one and new topics work."""
    with WireClient(cluster.bootstrap_servers) as client:

        def leaders() -> dict[int, int]:
            return {p.partition_index: p.leader_id for p in describe_topic(client, "t").partitions}

        wait_for(lambda: leaders() == {good: 0, bad: -1}, "the controller takes the leadership away")
        (gone,) = [p for p in describe_topic(client, "t").partitions if p.partition_index == bad]
        assert (gone.error_code, gone.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, [0])
        assert produce(client, "t", SMALL, partition=bad).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetch(client, "t", 0, partition=bad).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, "t", SMALL, partition=good).error_code == ErrorCode.NONE
        assert "a failed log dir?" in (asyncio.run(previewed(cluster, bad)).obstacle or "")
        dirs = client.ask(DescribeLogDirsRequest(topics=None), 2).results
        errors = {result.log_dir: result.error_code for result in dirs}
        assert errors[str(failed)] == ErrorCode.KAFKA_STORAGE_ERROR
        assert sorted(errors.values()) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        create_topic(cluster.bootstrap_servers, "later", partitions=2)
        for partition in (0, 1):
            assert produce(client, "later", SMALL, partition=partition).error_code == ErrorCode.NONE


def check_after_the_repair(address: str, producer: SequencedProducer, partition: int, acknowledged: int) -> None:
    wait_until_led(address, "t", "later")
    with WireClient(address) as client:
        records = read_all(client, "t", partition=partition)
        numbers = [int(record.key or b"") for record in records]
        assert numbers[:acknowledged] == list(range(acknowledged))
        # The refused batch may have been written anyway. A client that resends it gets it once.
        assert len(numbers) in (acknowledged, acknowledged + 1)
        again = encode_batch(
            [Record(0, time.time_ns() // 1_000_000, b"%d" % acknowledged, b"again")],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=acknowledged,
        )
        answer = produce(client, "t", again, partition=partition, acks=-1)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, acknowledged)
        assert list_offset(client, "t", -1, partition=partition) == acknowledged + 1


def test_full_disk(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    full = tmp_path / "broker-0" / "data-0"
    with small_disk(full), GuestCluster(zookeeper, 1, directory=tmp_path, config=QUICK, log_dir_count=2) as cluster:
        address = cluster.bootstrap_servers
        create_topic(address, "t", partitions=2)
        bad = partition_in(full, "t")
        with WireClient(address) as client:
            producer = SequencedProducer(client)
            acknowledged, refusal = fill(client, producer, bad)
        assert (refusal.error_code, refusal.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert acknowledged > 10
        check_the_failed_dir(cluster, full, 1 - bad, bad)
        assert cluster.stop_broker(0)
        subprocess.run(["mount", "-o", "remount,size=60m", str(full)], check=True)
        cluster.start_broker(0)
        check_after_the_repair(address, producer, bad, acknowledged)


def test_file_that_may_not_grow(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    """The same without root: the system refuses the write, here because of a limit of the process."""
    # A new segment's index has its maximum size, which must be below the limit.
    config = {**QUICK, "log.index.size.max.bytes": "100000"}
    with GuestCluster(zookeeper, 1, directory=tmp_path, config=config, log_dir_count=2) as cluster:
        address = cluster.bootstrap_servers
        create_topic(address, "t", partitions=2)
        failing = tmp_path / "broker-0" / "data-1"
        bad = partition_in(failing, "t")
        process = cluster.broker(0).process
        assert process is not None
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (DISK_BYTES, DISK_BYTES))
        with WireClient(address) as client:
            producer = SequencedProducer(client)
            acknowledged, refusal = fill(client, producer, bad)
        assert refusal.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        check_the_failed_dir(cluster, failing, 1 - bad, bad)
        cluster.restart_broker(0)
        check_after_the_repair(address, producer, bad, acknowledged)


def test_log_dir_that_vanishes(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    gone = tmp_path / "broker-0" / "data-1"
    with GuestCluster(zookeeper, 1, directory=tmp_path, config=QUICK, log_dir_count=2) as cluster:
        address = cluster.bootstrap_servers
        create_topic(address, "t", partitions=2)
        bad = partition_in(gone, "t")
        with WireClient(address) as client:
            for partition in (0, 1):
                assert produce(client, "t", SMALL, partition=partition).error_code == ErrorCode.NONE
        gone.rename(tmp_path / "moved")
        check_the_failed_dir(cluster, gone, 1 - bad, bad)
        assert cluster.stop_broker(0)
        (tmp_path / "moved").rename(gone)
        cluster.start_broker(0)
        wait_until_led(address, "t")
        with WireClient(address) as client:
            assert [record.value for record in read_all(client, "t", partition=bad)] == [b"small"]


def test_another_broker_takes_over_from_a_failed_log_dir(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    """Leaderships move, that of a group's offsets too; the broker goes on with its other dir, and catches up later."""
    config = QUICK | {"offsets.topic.num.partitions": "2", "offsets.topic.replication.factor": "2"}
    with GuestCluster(zookeeper, 2, directory=tmp_path, config=config, log_dir_count=2) as cluster:
        addresses = [cluster.broker(number).address for number in (0, 1)]
        create_topic(addresses[0], "t", assignment={0: [0, 1], 1: [0, 1], 2: [0, 1]})
        group = wait_for(lambda: next((g for g in map(str, range(50)) if coordinator_of(addresses[1], g) == 0), None))
        commit(addresses[0], group, 5)
        with WireClient(addresses[1]) as client:
            offsets = describe_topic(client, OFFSETS).partitions
        (index,) = (p.partition_index for p in offsets if p.leader_id == 0)
        failing = next((tmp_path / "broker-0").glob(f"data-*/{OFFSETS}-{index}")).parent
        bad = {int(folder.name.rpartition("-")[2]) for folder in failing.glob("t-*")}
        assert 0 < len(bad) < 3
        failing.rename(tmp_path / "moved")

        def leaders(topic: str) -> dict[int, int]:
            with WireClient(addresses[1]) as client:
                return {p.partition_index: p.leader_id for p in describe_topic(client, topic).partitions}

        wait_for(lambda: leaders("t") == {each: int(each in bad) for each in range(3)}, "leaderships move")
        wait_for(lambda: coordinator_of(addresses[1], group) == 1, "the group moves")
        assert committed(addresses[1], group) == 5
        commit(addresses[1], group, 6)
        assert ask_commit(addresses[0], group, 7) == ErrorCode.NOT_COORDINATOR
        for partition in range(3):
            with WireClient(addresses[partition in bad]) as client:
                assert produce(client, "t", SMALL, partition=partition, acks=-1).error_code == ErrorCode.NONE
        assert cluster.stop_broker(0)
        (tmp_path / "moved").rename(failing)
        cluster.start_broker(0)

        def is_whole() -> bool:
            with WireClient(addresses[1]) as client:
                topics = (describe_topic(client, topic).partitions for topic in ("t", OFFSETS))
                return all(sorted(p.isr_nodes) == [0, 1] for partitions in topics for p in partitions)

        wait_for(is_whole, "the replicas are in sync again")
        cluster.stop_broker(1)
        wait_for(lambda: coordinator_of(addresses[0], group) == 0, "the group comes back")
        assert committed(addresses[0], group) == 6
        wait_until_led(addresses[0], "t")
        with WireClient(addresses[0]) as client:
            for partition in range(3):
                assert [record.value for record in read_all(client, "t", partition=partition)] == [b"small"]


OFFSETS = "__consumer_offsets"


def coordinator_of(address: str, group: str) -> int | None:
    with WireClient(address) as client:
        (response,) = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4).coordinators
    return None if response.error_code else int(response.node_id)


def ask_commit(address: str, group: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None, topics=topics
    )
    with WireClient(address) as client:
        return int(client.ask(request, 8).topics[0].partitions[0].error_code)


def commit(address: str, group: str, offset: int) -> None:
    wait_for(lambda: ask_commit(address, group, offset) == ErrorCode.NONE, "the coordinator has loaded its groups")


def committed(address: str, group: str) -> int:
    wanted = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])])

    def answer() -> Any:
        with WireClient(address) as client:
            (group,) = client.ask(request, 8).groups
        return None if group.error_code else group

    return int(wait_for(answer, "the coordinator has loaded its groups").topics[0].partitions[0].committed_offset)


def test_broker_without_any_log_dir_left_ends_itself(tmp_path: Path, zk_chroot: str) -> None:
    host = own_loopback_address()
    quick = {"replica_high_watermark_checkpoint_interval_ms": "200"}
    with BrokerProgram(tmp_path, settings(tmp_path, host, zk_chroot, **quick)) as broker:
        broker.wait_until_started()
        create_topic(f"{host}:9092", "t")
        (tmp_path / "data").rename(tmp_path / "moved")
        assert broker.process.wait(40) == 1
        assert "Traceback" not in broker.stderr
        assert str(tmp_path / "data") in broker.server_log
