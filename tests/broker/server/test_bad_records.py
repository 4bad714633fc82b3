"""Records that a broker must refuse: each gets Kafka's error, and leaves nothing behind."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
from wire_client import LATEST, ConnectionClosed, WireClient, create_topic, fetch, list_offset, produce, read_all

from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record

TIME_MS = 1_700_000_000_000
LENGTH, MAGIC, ATTRIBUTES, LAST_DELTA, COUNT, RECORDS = 8, 16, 21, 23, 57, 61


def batch(count: int = 3, **options: object) -> bytearray:
    records = [Record(index, TIME_MS, b"k", b"value") for index in range(count)]
    return bytearray(encode_batch(records, **options))  # type: ignore[arg-type]


def changed(position: int, data: bytes, *, right_crc: bool = True, **options: object) -> bytes:
    """Return a batch of three records with some bytes overwritten."""
    made = batch(**options)
    made[position : position + len(data)] = data
    if right_crc:
        stamp_crc(made, 0, len(made))
    return bytes(made)


@pytest.fixture
def client(address: str, topic: str) -> Iterator[WireClient]:
    create_topic(address, topic, configs={"max.message.bytes": "5000"})
    with WireClient(address) as connected:
        yield connected
        # One good batch goes in, and nothing else is there.
        assert produce(connected, topic, bytes(batch())).base_offset == 0
        assert [record.offset for record in read_all(connected, topic)] == [0, 1, 2]


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


CASES: dict[str, tuple[Callable[[], bytes | None], ErrorCode]] = {
    "broken checksum": (lambda: changed(RECORDS + 5, b"\xff", right_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "magic of the future": (lambda: changed(MAGIC, b"\x07"), ErrorCode.CORRUPT_MESSAGE),
    "magic of the past": (lambda: changed(MAGIC, b"\x01"), ErrorCode.INVALID_RECORD),
    "negative length": (lambda: changed(LENGTH, int32(-5)), ErrorCode.CORRUPT_MESSAGE),
    "length beyond the request": (lambda: changed(LENGTH, int32(1_000_000)), ErrorCode.INVALID_RECORD),
    "cut off": (lambda: bytes(batch())[:-3], ErrorCode.INVALID_RECORD),
    "nothing": (lambda: b"", ErrorCode.INVALID_RECORD),
    "null": (lambda: None, ErrorCode.INVALID_RECORD),
    "two batches": (lambda: bytes(batch() + batch()), ErrorCode.INVALID_RECORD),
    "too large": (lambda: bytes(batch(1000)), ErrorCode.MESSAGE_TOO_LARGE),
    "count and offsets disagree": (lambda: changed(COUNT, int32(7)), ErrorCode.INVALID_RECORD),
    "negative count": (lambda: changed(COUNT, int32(-1)), ErrorCode.INVALID_RECORD),
    "negative last offset delta": (lambda: changed(LAST_DELTA, int32(-1)), ErrorCode.INVALID_RECORD),
    "unknown codec": (lambda: changed(ATTRIBUTES, struct.pack(">h", 7)), ErrorCode.CORRUPT_MESSAGE),
    "control batch of a client": (lambda: changed(ATTRIBUTES, struct.pack(">h", 0x20)), ErrorCode.INVALID_RECORD),
    "transaction of nobody": (
        lambda: bytes(batch(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "producer without sequence": (lambda: bytes(batch(producer_id=5, producer_epoch=0)), ErrorCode.INVALID_RECORD),
    "message set in a new request": (
        lambda: encode_message_set([Record(0, TIME_MS, b"k", b"v" * 60)], 1),
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("acks", [1, -1])
def test_refused(client: WireClient, topic: str, case: str, acks: int) -> None:
    make, code = CASES[case]
    answer = produce(client, topic, make(), acks=acks)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1), answer.error_message
    assert list_offset(client, topic, LATEST) == 0


def test_old_message_with_a_broken_checksum(client: WireClient, topic: str) -> None:
    broken = bytearray(encode_message_set([Record(0, TIME_MS, b"k", b"value")], 1))
    broken[-1] ^= 1
    assert produce(client, topic, bytes(broken), version=2).error_code == ErrorCode.CORRUPT_MESSAGE


def test_transaction_of_nobody_in_an_old_request(client: WireClient, topic: str) -> None:
    records = bytes(batch(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True))
    answer = produce(client, topic, records, version=2)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_acks_that_do_not_exist(client: WireClient, topic: str) -> None:
    assert produce(client, topic, bytes(batch()), acks=7).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_partition_that_does_not_exist(client: WireClient, topic: str) -> None:
    for partition in (1, -1, 2**31 - 1):
        assert produce(client, topic, bytes(batch()), partition=partition).error_code == 3
        assert fetch(client, topic, 0, partition=partition).error_code == 3
    assert produce(client, "no-such-topic", bytes(batch())).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_failed_acks_0_closes_the_connection(client: WireClient, address: str, topic: str) -> None:
    with WireClient(address) as other:
        produce(other, topic, changed(RECORDS + 5, b"\xff", right_crc=False), acks=0)
        with pytest.raises(ConnectionClosed):
            other.answer(ApiKey.PRODUCE, 9)


def test_records_behind_a_whole_batch_that_are_none_are_left_out(client: WireClient, address: str, topic: str) -> None:
    create_topic(address, f"{topic}-b")
    answer = produce(client, f"{topic}-b", bytes(batch()) + bytes(batch())[:40])
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert len(read_all(client, f"{topic}-b")) == 3


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_garbage_in_a_codec_that_must_be_opened(client: WireClient, address: str, topic: str, codec: Codec) -> None:
    """The topic's own codec differs, so the broker has to decompress."""
    name = f"{topic}-r"
    create_topic(address, name, configs={"compression.type": "gzip" if codec is Codec.ZSTD else "zstd"})
    assert produce(client, name, bytes(batch(200, codec=codec))).error_code == ErrorCode.NONE
    made = batch(200, codec=codec)
    made[RECORDS + 2 :] = bytes(len(made) - RECORDS - 2)
    stamp_crc(made, 0, len(made))
    answer = produce(client, name, bytes(made))
    assert answer.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD), answer
    assert len(read_all(client, name)) == 200


def test_timestamps_out_of_bounds(client: WireClient, address: str, topic: str) -> None:
    name = f"{topic}-t"
    create_topic(address, name, configs={"message.timestamp.after.max.ms": "1000"})
    future = encode_batch([Record(0, 4_000_000_000_000, b"k", b"v")])
    answer = produce(client, name, future)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [0]


def test_compacted_topics_want_keys(client: WireClient, address: str, topic: str) -> None:
    name = f"{topic}-c"
    create_topic(address, name, configs={"cleanup.policy": "compact"})
    answer = produce(client, name, encode_batch([Record(0, TIME_MS, b"k", b"v"), Record(1, TIME_MS, None, b"v")]))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert list_offset(client, name, LATEST) == 0
