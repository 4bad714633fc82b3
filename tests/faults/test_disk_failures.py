"""A disk that is full, or gone: only its log dir goes offline, answers say so, nothing acknowledged is lost."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker_program import OLD_RECORDS_STAY, BrokerProgram, settings
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

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster

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
        dirs = client.ask(DescribeLogDirsRequest(topics=None), 2).results
        told = {result.log_dir: result.error_code for result in dirs}
        assert told[str(failed)] == ErrorCode.KAFKA_STORAGE_ERROR
        assert sorted(told.values()) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
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


def test_full_disk(tmp_path: Path) -> None:
    full = tmp_path / "broker-0" / "data-0"
    with small_disk(full), LocalCluster(1, directory=tmp_path, config=QUICK, log_dir_count=2) as cluster:
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


def test_file_that_may_not_grow(tmp_path: Path) -> None:
    """The same without root: the system refuses the write, here because of a limit of the process."""
    # A new segment's index has its maximum size, which must be below the limit.
    config = {**QUICK, "log.index.size.max.bytes": "100000"}
    with LocalCluster(1, directory=tmp_path, config=config, log_dir_count=2) as cluster:
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


def test_log_dir_that_vanishes(tmp_path: Path) -> None:
    gone = tmp_path / "broker-0" / "data-1"
    with LocalCluster(1, directory=tmp_path, config=QUICK, log_dir_count=2) as cluster:
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
