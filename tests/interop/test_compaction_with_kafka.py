"""Two cleaners, one log: Apache Kafka and klamm compact the same folder, and read each other's output."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_kafka import ApacheKafkaBroker
from cleaning import clean_all, records_of
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_tools import run_tool
from log_folders import open_log, read_all
from patience import within
from wire_client import create_topic, wait_until_led, wait_until_no_transaction_is_open

from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.common import model
from engine.common.clock import SystemClock
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import CLEANER_OFFSET_CHECKPOINT
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.header import iter_batches
from engine.local.addresses import own_loopback_address

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "8000",
    "index.interval.bytes": "200",
    "segment.index.bytes": "1024",
    "min.cleanable.dirty.ratio": "0.01",
}
CONFIG = LogConfig(
    segment_bytes=8000,
    index_interval_bytes=200,
    segment_index_bytes=1024,
    min_cleanable_dirty_ratio=0.01,
    cleanup_policy=("compact",),
)
KEYS = 23


@pytest.fixture
def kafka(tmp_path: Path, zk_chroot: str) -> Iterator[ApacheKafkaBroker]:
    broker = ApacheKafkaBroker(
        tmp_path / "kafka",
        broker_id=0,
        host=own_loopback_address(),
        port=19092,
        zookeeper_connect=zk_chroot,
        overrides={"log.cleaner.enable": "false", "log.cleaner.backoff.ms": "100"},
        shares_jvm=True,
    )
    try:
        yield broker
    finally:
        broker.stop()


def fill(kafka: ApacheKafkaBroker) -> None:
    """Write a topic per codec: values, tombstones, headers, and transactions that commit or abort."""
    for codec in CODECS:
        create_topic(kafka.bootstrap, codec, configs=SETTINGS)
        settings = {"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "batch.size": 1500, "linger.ms": 5}
        write(Producer({**settings, "enable.idempotence": True}), codec, range(600))
        producer = Producer({**settings, "transactional.id": codec})
        producer.init_transactions(30)
        for round_number in range(6):
            producer.begin_transaction()
            write(producer, codec, range(1000 + 40 * round_number, 1040 + 40 * round_number))
            if round_number % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        wait_until_no_transaction_is_open(kafka.bootstrap, codec)
        write(Producer(settings), codec, range(2000, 2200))


def write(producer: Producer, topic: str, numbers: range) -> None:
    for number in numbers:
        value = None if number % 17 == 0 else b"value %d " % number * (number % 5)
        headers = [("n", b"%d" % number)] if number % 3 else None
        producer.produce(topic, value, b"key-%d" % (number * 7 % KEYS), partition=0, headers=headers)
    assert producer.flush(30) == 0


def let_kafka_clean(kafka: ApacheKafkaBroker) -> None:
    kafka._settings["log.cleaner.enable"] = "true"
    kafka.start()
    is_in_time = within(60)
    while not all(f"cleaned log {codec}-0 " in kafka.log for codec in CODECS):
        assert is_in_time(), "Kafka did not clean all logs"
        time.sleep(0.1)
    kafka.stop()


def let_us_clean(data: Path) -> None:
    manager = LogManager(
        LogManagerConfig((data,)),
        lambda topic: CONFIG if topic in CODECS else LogConfig(),
        SystemClock(),
        lambda path: pytest.fail(f"{path} failed"),
    )
    manager.load()
    for codec in CODECS:
        log = manager.logs[model.TopicPartition(codec, 0)]
        log.update_high_watermark(log.log_end_offset)
        assert clean_all(log, now_ms=SystemClock().now_ms()) == 1
    manager.shutdown()


def opened(folder: Path) -> Log:
    return open_log(folder, CONFIG)


def kept(log: Log) -> list[tuple[object, ...]]:
    return [
        (record.offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))
        for record in records_of(log)
    ]


def batches(log: Log) -> list[tuple[object, ...]]:
    """Return the headers, without what depends on the time of a cleaning or on a library: checksum, compressed size."""
    return [
        (
            batch.base_offset,
            batch.last_offset,
            batch.record_count,
            batch.codec,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.is_control,
            batch.is_transactional,
            batch.has_delete_horizon,
            batch.has_delete_horizon or batch.base_timestamp,
            batch.max_timestamp,
            batch.partition_leader_epoch,
        )
        for _, batch in iter_batches(read_all(log))
    ]


def test_both_keep_the_same_and_read_each_other(kafka: ApacheKafkaBroker, tmp_path: Path) -> None:
    kafka.start()
    fill(kafka)
    kafka.stop()
    data, ours = kafka.folder / "data", tmp_path / "ours"
    shutil.copytree(data, ours)
    let_us_clean(ours)
    let_kafka_clean(kafka)
    for codec in CODECS:
        log, kafkas = opened(ours / f"{codec}-0"), opened(data / f"{codec}-0")
        assert (expected := kept(log)) == kept(kafkas)
        assert batches(log) == batches(kafkas)
        assert [segment.base_offset for segment in log.segments] == [segment.base_offset for segment in kafkas.segments]
        assert KEYS < len(expected) < 500
        end = log.log_end_offset
        assert log.collect_aborted_transactions(0, end) == kafkas.collect_aborted_transactions(0, end)
        for each_log in (log, kafkas):
            each_log.abandon()
        recovered = open_log(data / f"{codec}-0", CONFIG, clean=False)
        assert kept(recovered) == expected
        recovered.close()
    assert checkpoint(ours) == checkpoint(data)
    check_with_kafkas_tool(ours)
    read_by_kafka(kafka, ours, data)


def checkpoint(data: Path) -> set[str]:
    lines = (data / CLEANER_OFFSET_CHECKPOINT).read_text().splitlines()[2:]
    return {line for line in lines if line.split()[0] in CODECS}


def check_with_kafkas_tool(data: Path) -> None:
    folders = [data / f"{codec}-0" for codec in CODECS]
    logs = [path for folder in folders for path in sorted(folder.glob("*.log")) if path.stat().st_size]
    indexes = [path for folder in folders for path in folder.glob("*.index") if path.stat().st_size]
    assert indexes
    said = dumped("--deep-iteration", "--files", ",".join(map(str, logs)))
    assert "isvalid: false" not in said
    sane = dumped("--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert sane.count("passed sanity check") == len(indexes)


def dumped(*arguments: str) -> str:
    done = run_tool("kafka.tools.DumpLogSegments", *arguments)
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stdout + done.stderr
    return done.stdout


def read_by_kafka(kafka: ApacheKafkaBroker, ours: Path, data: Path) -> None:
    """Start Kafka on what we have cleaned. It finds nothing to repair, and serves it."""
    shutil.rmtree(data)
    shutil.copytree(ours, data)
    expected = {codec: committed(opened(ours / f"{codec}-0")) for codec in CODECS}
    kafka.start()
    said = kafka.log
    assert "Skipping recovery of" in said
    assert not [line for line in said.splitlines() if " WARN " in line and "kafka.log" in line]
    for codec in CODECS:
        assert consumed(kafka, codec) == expected[codec]


def committed(log: Log) -> list[int]:
    """Return the offsets that a consumer sees. Aborted records are still in the active segment."""
    aborted = log.collect_aborted_transactions(0, log.log_end_offset)
    offsets: list[int] = []
    for _, header in iter_batches(data := read_all(log)):
        producer_id, first = header.producer_id, header.base_offset
        is_hidden = header.is_transactional and any(
            transaction.producer_id == producer_id and transaction.first_offset <= first <= transaction.last_offset
            for transaction in aborted
        )
        if not header.is_control and not is_hidden:
            offsets += [record.offset for record in iter_records(data) if first <= record.offset <= header.last_offset]
    log.abandon()
    return offsets


def consumed(kafka: ApacheKafkaBroker, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "isolation.level": "read_committed"})
    wait_until_led(kafka.bootstrap, topic)
    where = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(where, timeout=30)
    consumer.assign([where])
    offsets: list[int] = []
    is_in_time = within(30)
    while consumer.position([where])[0].offset < end:
        assert is_in_time(), f"{topic} was read up to {offsets[-1:]}, it ends at {end}"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
    consumer.close()
    return offsets
