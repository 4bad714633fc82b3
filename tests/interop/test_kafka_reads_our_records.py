"""Kafka's own dump tool reads segments that we wrote, in every format, codec and level, and reports what we report."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_tools import run_tool

from engine.admin.dump.files import DumpOptions, decoder_for, dump_file
from engine.admin.dump.rows import row_line
from engine.kafka.formats.consumer_offsets import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from engine.kafka.formats.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from engine.kafka.formats.control_records import ControlRecordType, EndTransactionMarker, encode_end_transaction_batch
from engine.kafka.formats.transaction_state import (
    TransactionLogValue,
    TransactionPartitions,
    TransactionState,
    encode_key,
    encode_value,
)
from engine.kafka.protocol.records.append_rules import AppendRules
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.convert import down_convert
from engine.kafka.protocol.records.encode import empty_batch, encode_batch
from engine.kafka.protocol.records.header import iter_batches, read_batch_header
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record
from engine.kafka.protocol.records.validate import prepare_append

LEVELS = {Codec.GZIP: (None, 1, 9), Codec.LZ4: (None, 1, 17), Codec.ZSTD: (None, -5, 19)}
NOW = 1_700_000_000_000


class Log:
    """A segment that the test is writing."""

    def __init__(self) -> None:
        self.data = b""
        self.end_offset = 0

    def records(self, count: int) -> list[Record]:
        noise = random.Random(self.end_offset)
        return [
            Record(
                self.end_offset + index,
                NOW + index,
                b"key %d" % index if index % 3 else None,
                b"the castle above " * (index % 50) + noise.randbytes(20).hex().encode() if index % 7 else None,
                [("trace", b"x"), ("null", None)] if index % 2 else [],
            )
            for index in range(count)
        ]

    def add(self, data: bytes) -> None:
        self.data += data
        *_, (_, header) = iter_batches(data)
        self.end_offset = header.next_offset


def assert_kafka_says_the_same(folder: Path, data: bytes, *options: str) -> None:
    folder.mkdir()
    path = folder / f"{0:020}.log"
    path.write_bytes(data)
    output = run_tool("kafka.tools.DumpLogSegments", "--deep-iteration", *options, "--files", str(path))
    assert output.returncode == 0, output.stderr
    dump = DumpOptions(print_data_log=True)
    ours = [row_line(row, path, decoder_for(path, dump)) for row in dump_file(path, dump)]
    assert output.stdout.splitlines()[1:] == [line for line in ours if line is not None]


def test_every_codec_and_level_of_format_v2(tmp_path: Path) -> None:
    log = Log()
    for codec in Codec:
        for level in LEVELS.get(codec, (None,)):
            for count in (1, 7, 3_000):
                log.add(encode_batch(log.records(count), base_offset=log.end_offset, codec=codec, level=level))
    assert_kafka_says_the_same(tmp_path / "t-0", log.data, "--print-data-log")


@pytest.mark.parametrize("magic", [0, 1])
def test_every_codec_of_the_old_formats(tmp_path: Path, magic: int) -> None:
    log = Log()
    for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        for level in LEVELS.get(codec, (None,)):
            for count in (1, 500):
                log.add(encode_message_set(log.records(count), magic, codec=codec, level=level))
        batch = encode_batch(log.records(50), base_offset=log.end_offset, codec=codec)
        log.add(down_convert(batch, magic, 0))
    assert_kafka_says_the_same(tmp_path / "t-0", log.data, "--print-data-log")


def prepared(log: Log) -> Iterator[bytes]:
    """Return what the leader makes of batches that it cannot store unchanged."""
    for rules in (
        AppendRules(),
        AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME),
        *(AppendRules(codec=codec) for codec in Codec),
    ):
        for source in (
            encode_batch([record_at(record, -1) for record in log.records(20)], codec=Codec.GZIP),
            encode_message_set([record_at(record, n) for n, record in enumerate(log.records(20))], 1, codec=Codec.LZ4),
        ):
            append = prepare_append(source, rules, first_offset=log.end_offset, leader_epoch=4, now_ms=NOW)
            yield bytes(append.records)


def record_at(record: Record, offset: int) -> Record:
    return Record(offset, record.timestamp_ms, record.key, record.value, record.headers)


def test_what_the_leader_makes_of_produced_batches(tmp_path: Path) -> None:
    log = Log()
    for data in prepared(log):
        log.add(data)
    assert_kafka_says_the_same(tmp_path / "t-0", log.data, "--print-data-log")


def test_markers_emptied_batches_and_delete_horizons(tmp_path: Path) -> None:
    log = Log()
    producer = {"producer_id": 5, "producer_epoch": 1}
    log.add(encode_batch(log.records(5), base_sequence=2**31 - 3, transactional=True, **producer))
    for kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        batch = bytearray(encode_end_transaction_batch(EndTransactionMarker(kind, 3), timestamp_ms=NOW, **producer))
        batch[:8] = log.end_offset.to_bytes(8, "big")
        log.add(bytes(batch))
    batch = encode_batch(log.records(3), base_offset=log.end_offset, codec=Codec.ZSTD, base_sequence=9, **producer)
    log.add(empty_batch(read_batch_header(batch)))
    log.add(encode_batch(log.records(2), base_offset=log.end_offset, delete_horizon_ms=NOW - 5))
    assert_kafka_says_the_same(tmp_path / "t-0", log.data, "--print-data-log")


def test_records_of_consumer_offsets(tmp_path: Path) -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="static",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=300_000,
        session_timeout=45_000,
        subscription=encode_subscription(
            ConsumerProtocolSubscription(topics=["t", "ü"], user_data=b"u", generation_id=3)
        ),
        assignment=encode_assignment(
            ConsumerProtocolAssignment(assigned_partitions=[ConsumerProtocolPartitions(topic="t", partitions=[0, 1])])
        ),
    )
    group = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="m", members=[member])
    connect = GroupMetadataValue(protocol_type="connect", generation=1, members=[member])
    offset = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=NOW, expire_timestamp=NOW + 1)
    records = [Record(timestamp_ms=NOW, key=encode_offset_key("g", "t", 0))]
    records += [
        Record(timestamp_ms=NOW, key=encode_offset_key("g", "t", 0), value=encode_offset_value(offset, version))
        for version in range(5)
    ]
    records += [
        Record(timestamp_ms=NOW, key=encode_group_key("g"), value=encode_group_value(value, version))
        for version in range(5)
        for value in (group, connect)
    ]
    assert_kafka_says_the_same(tmp_path / "__consumer_offsets-0", encode_batch(records), "--offsets-decoder")


def test_records_of_transaction_state(tmp_path: Path) -> None:
    records = [Record(timestamp_ms=NOW, key=encode_key("app"))]
    for state in TransactionState:
        partitions = [TransactionPartitions(topic="t", partition_ids=[2])]
        value = TransactionLogValue(
            producer_id=1,
            producer_epoch=2,
            transaction_timeout_ms=3,
            transaction_status=state,
            transaction_partitions=None if state is TransactionState.EMPTY else partitions,
            transaction_last_update_timestamp_ms=NOW,
        )
        records += [
            Record(timestamp_ms=NOW, key=encode_key("app"), value=encode_value(value, version)) for version in (0, 1)
        ]
    assert_kafka_says_the_same(tmp_path / "__transaction_state-0", encode_batch(records), "--transaction-log-decoder")
