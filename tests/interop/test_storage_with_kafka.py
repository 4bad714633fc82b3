"""One log dir, two engines in turn: Apache Kafka and our storage layer open and recover each other's files."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apache_kafka import ApacheKafkaBroker
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_tools import run_tool
from kazoo.client import KazooClient
from log_folders import data_batch, marker_batch, open_log, values_of
from wire_client import create_topic

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.common import model
from engine.common.clock import SystemClock
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import HIGH_WATERMARK_CHECKPOINT
from engine.local.addresses import own_loopback_address

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, segment_index_bytes=1024)
TOPIC_CONFIG = {"segment.bytes": "2000", "index.interval.bytes": "200", "segment.index.bytes": "1024"}
TOPIC = model.TopicPartition("shared", 0)


@pytest.fixture
def kafka(tmp_path: Path, zk_chroot: str) -> Iterator[ApacheKafkaBroker]:
    broker = ApacheKafkaBroker(
        tmp_path / "kafka",
        broker_id=0,
        host=own_loopback_address(),
        port=19092,
        zookeeper_connect=zk_chroot,
        overrides={"log.segment.delete.delay.ms": "0", "log.flush.offset.checkpoint.interval.ms": "500"},
        shares_jvm=True,
    )
    try:
        yield broker
    finally:
        broker.stop()


def start(kafka: ApacheKafkaBroker) -> str:
    """Start the broker again and return what its log says about the folder."""
    kafka.start()
    return kafka.log


def kill(kafka: ApacheKafkaBroker, zookeeper_connect: str) -> None:
    """Kill the broker and wait until ZooKeeper notices: a new one cannot register earlier."""
    os.kill(kafka.process.pid, signal.SIGKILL)
    kafka.stop()
    client = KazooClient(zookeeper_connect)
    client.start()
    deadline = time.monotonic() + 30
    while client.exists("/brokers/ids/0") is not None:
        assert time.monotonic() < deadline, "the killed broker is still registered"
        time.sleep(0.1)
    client.stop()
    client.close()


def produce(kafka: ApacheKafkaBroker, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for value in values:
        producer.produce(TOPIC.topic, value, b"key", TOPIC.partition)
        assert producer.flush(30) == 0


def consume(kafka: ApacheKafkaBroker, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(TOPIC.topic, TOPIC.partition, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            values.append(value)
    consumer.close()
    return values


def with_our_storage(kafka: ApacheKafkaBroker, work: Callable[[Log], None], *, orderly: bool) -> None:
    """Open the broker's log dir with our storage layer. Leave it cleanly closed, or as after a kill."""
    manager = LogManager(
        LogManagerConfig((kafka.folder / "data",)),
        lambda topic: CONFIG if topic == TOPIC.topic else LogConfig(),
        SystemClock(),
        lambda path: pytest.fail(f"{path} failed"),
    )
    manager.load()
    log = manager.get(TOPIC)
    assert log is not None
    work(log)
    log.update_high_watermark(log.log_end_offset)
    if orderly:
        manager.shutdown()
    else:
        for job in manager.checkpoint_jobs(HIGH_WATERMARK_CHECKPOINT):
            job.run()
            job.finish()
        manager.release()


def append_ours(log: Log, values: list[bytes]) -> None:
    for value in values:
        log.append_as_leader(data_batch(value, timestamp_ms=SystemClock().now_ms()), log.leader_epochs.latest_epoch)


def test_kafka_and_our_storage_share_a_log_dir(kafka: ApacheKafkaBroker, zk_chroot: str) -> None:
    start(kafka)
    create_topic(kafka.bootstrap, TOPIC.topic, configs=TOPIC_CONFIG)
    expected = [b"kafka-%02d" % n for n in range(30)]
    produce(kafka, expected)
    kafka.stop()

    def after_an_orderly_stop(log: Log) -> None:
        assert [value for _, value in values_of(log)] == expected
        assert len(log.segments) > 1
        append_ours(log, [b"ours-%02d" % n for n in range(30)])

    with_our_storage(kafka, after_an_orderly_stop, orderly=True)
    expected += [b"ours-%02d" % n for n in range(30)]
    # It will be killed.
    kafka.shares_jvm = False
    said = start(kafka)
    assert "since clean shutdown file was found" in said
    assert "WARN" not in "".join(line for line in said.splitlines(keepends=True) if "kafka.log" in line)
    assert consume(kafka, len(expected)) == expected
    more = [b"kafka-again-%02d" % n for n in range(10)]
    produce(kafka, more)
    expected += more
    kill(kafka, zk_chroot)

    def after_a_kill(log: Log) -> None:
        assert [value for _, value in values_of(log)] == expected
        append_ours(log, [b"ours-again-%02d" % n for n in range(30)])
        transaction = data_batch(b"never seen", producer=(9_000, 0, 0), transactional=True)
        log.append_as_leader(transaction, log.leader_epochs.latest_epoch)
        marker = marker_batch(9_000, 0, commit=False, timestamp_ms=SystemClock().now_ms())
        log.append_as_leader(marker, log.leader_epochs.latest_epoch, origin=AppendOrigin.COORDINATOR)

    with_our_storage(kafka, after_a_kill, orderly=False)
    expected += [b"ours-again-%02d" % n for n in range(30)]
    kafka.shares_jvm = True
    said = start(kafka)
    assert "since no clean shutdown file was found" in said
    assert "Corruption found" not in said
    produce(kafka, [b"last"])
    assert consume(kafka, len(expected) + 1) == [*expected, b"last"]


def test_kafkas_dump_tool_finds_our_indexes_sound(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", CONFIG)
    for n in range(40):
        log.append_as_leader(data_batch(b"x" * 50, timestamp_ms=1_000 + n, producer=(5, 0, n)), 3)
    for n in range(5):
        log.append_as_leader(data_batch(b"y", producer=(6, 1, n), transactional=True, timestamp_ms=2_000), 3)
        marker = marker_batch(6, 1, commit=False, coordinator_epoch=4, timestamp_ms=2_000)
        log.append_as_leader(marker, 3, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(log.log_end_offset)
    log.close()
    segments = [segment.path for segment in log.segments]
    for path in segments:
        assert _dump("--files", str(path)).count("isvalid: true") == sum(1 for _ in _batches(log, path))
    indexes = [str(path.with_suffix(".index")) for path in segments if path.with_suffix(".index").stat().st_size]
    assert _dump("--index-sanity-check", "--files", ",".join(indexes)).count("passed sanity check") == len(indexes)
    times = ",".join(str(path.with_suffix(".timeindex")) for path in segments)
    assert "mismatch" not in _dump("--files", times)
    assert "producerId: 5 producerEpoch: 0 coordinatorEpoch: -1" in _dump(
        "--files", str(log.producers.snapshots.path(log.log_end_offset))
    )
    aborted = _dump("--files", ",".join(str(path) for path in log.dir.glob("*.txnindex")))
    assert aborted.count("producerId: 6 firstOffset:") == 5


def test_kafkas_dump_tool_finds_a_followers_indexes_sound(tmp_path: Path) -> None:
    """A leader sends many batches at once. The tool looks for a batch that ends with an entry's offset."""
    config = LogConfig(index_interval_bytes=400)
    leader, log = open_log(tmp_path / "t-0", config), open_log(tmp_path / "u-0", config)
    for n in range(60):
        leader.append_as_leader(data_batch(b"x" * 70, timestamp_ms=1000 + n * 7 % 40), 0)
    whole = leader.segments[0].path.read_bytes()
    third = len(whole) // 3
    for start in range(0, len(whole), third):
        log.append_as_follower(memoryview(whole[start : start + third]))
    assert log.log_end_offset == 60
    leader.close()
    log.close()
    indexes = [str(path) for path in log.dir.glob("*index") if path.stat().st_size]
    assert {Path(path).suffix for path in indexes} == {".index", ".timeindex"}
    output = _dump("--files", ",".join(indexes))
    assert "ismatch" not in output and "out of order" not in output, output


def _dump(*arguments: str) -> str:
    done = run_tool("kafka.tools.DumpLogSegments", *arguments)
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stderr
    return done.stdout + done.stderr


def _batches(log: Log, path: Path) -> Iterator[object]:
    return next(segment for segment in log.segments if segment.path == path).iter_batches()
