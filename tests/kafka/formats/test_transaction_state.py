"""Records of ``__transaction_state``: recorded ones come back byte for byte, versions match hand-made bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.formats.transaction_state import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
    TransactionState,
    decode_key,
    decode_value,
    encode_key,
    encode_state,
    encode_value,
)
from engine.kafka.formats.versioned import read_version
from engine.kafka.protocol.records.decode import iter_records

SEGMENT = Path(__file__).parents[3] / "fixtures/disk/clean/data/__transaction_state-0/00000000000000000000.log"


def test_recorded_records_are_written_byte_for_byte_as_kafka_wrote_them() -> None:
    states = set()
    for record in iter_records(SEGMENT.read_bytes()):
        assert record.key is not None
        assert encode_key(decode_key(record.key).transactional_id) == record.key
        value = decode_value(record.value)
        assert value is not None
        assert encode_value(value, read_version(record.value or b"")) == record.value
        assert (value.transaction_partitions is None) == (value.state is TransactionState.EMPTY)
        states.add(value.state)
    assert states == set(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}


@given(
    st.sampled_from(TransactionState),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.frozensets(st.builds(TopicPartition, st.sampled_from(["t", "ü-1", "x" * 300]), st.integers(0, 40)), max_size=60),
)
def test_the_short_way_writes_the_same(
    state: TransactionState, producer_id: int, epoch: int, partitions: frozenset[TopicPartition]
) -> None:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    by_topic = [TransactionPartitions(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
    value = TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=state,
        transaction_partitions=None if state is TransactionState.EMPTY else by_topic,
        transaction_last_update_timestamp_ms=7,
        transaction_start_timestamp_ms=-1,
    )
    assert encode_state(state, producer_id, epoch, 60_000, partitions, 7, -1) == encode_value(value)


def test_names_of_states() -> None:
    assert [state.kafka_name for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


VALUE = TransactionLogValue(
    producer_id=9,
    producer_epoch=2,
    transaction_timeout_ms=60_000,
    transaction_status=TransactionState.ONGOING,
    transaction_partitions=[TransactionPartitions(topic="t", partition_ids=[0, 3])],
    transaction_last_update_timestamp_ms=5,
    transaction_start_timestamp_ms=4,
)
HEAD = struct.pack(">qhib", 9, 2, 60_000, 1)
TAIL = struct.pack(">qq", 5, 4)


def test_version_0() -> None:
    data = b"\0\0" + HEAD + struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iii", 2, 0, 3) + TAIL
    assert encode_value(VALUE) == data
    assert decode_value(data) == VALUE


def test_version_1_is_flexible_and_has_tagged_fields() -> None:
    data = b"\0\1" + HEAD + b"\2\2t" + b"\3" + struct.pack(">ii", 0, 3) + b"\0" + TAIL
    assert encode_value(VALUE, 1) == data + b"\0"
    read = decode_value(data + b"\2\0\x08" + struct.pack(">q", 8) + b"\2\2\0\2")
    assert read is not None
    assert (read.previous_producer_id, read.next_producer_id, read.client_transaction_version) == (8, -1, 2)


def test_an_empty_state_has_no_partitions() -> None:
    empty = TransactionLogValue(producer_id=1, transaction_partitions=None)
    assert decode_value(encode_value(empty)) == empty
    assert b"\xff\xff\xff\xff" in encode_value(empty)


def test_tombstones_newer_versions_and_unknown_states() -> None:
    assert decode_value(None) is None
    assert encode_key("app") == b"\0\0\0\3app"
    assert decode_key(b"\0\0\0\3app") == TransactionLogKey(transactional_id="app")
    for read in (lambda: decode_value(b"\0\2" + bytes(60)), lambda: decode_key(b"\0\1\0\0")):
        with pytest.raises(KafkaError) as caught:
            read()
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError, match="99 is no state"):
        _ = TransactionLogValue(transaction_status=99).state


@settings(max_examples=200, deadline=None)
@given(st.integers(-1, 2), st.binary(max_size=80))
def test_garbage_raises_nothing_but_kafka_errors(version: int, rest: bytes) -> None:
    for data in (rest, struct.pack(">h", version) + rest):
        for read in (decode_key, decode_value):
            try:
                read(data)
            except KafkaError as error:
                assert error.message
