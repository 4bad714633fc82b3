"""Whatever happens to the bytes, record code returns records or raises KafkaError, and nothing else.

``KLAMM_FUZZ_ROUNDS=100`` makes a long run of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import rounds

from engine.common.errors import KafkaError
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.append_rules import AppendRules
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.compression import decompress
from engine.kafka.protocol.records.convert import down_convert
from engine.kafka.protocol.records.decode import iter_batch_records, iter_batch_values, iter_records, record_section
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches, read_batch_header
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record
from engine.kafka.protocol.records.validate import prepare_append, scan_section

INT64 = st.integers(-1, 2**62)
TEXT = st.text(max_size=12)
DATA = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(TEXT, DATA), max_size=3)
RECORD_PARTS = st.lists(st.tuples(INT64, DATA, DATA, HEADERS), min_size=1, max_size=8)
OLD = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
SIZE_MAX = 1_000_000
ROUNDS = rounds("KLAMM_FUZZ_ROUNDS", 1)


def records_of(parts: list[tuple], gaps: list[int] | None = None) -> list[Record]:
    offset = -1
    records = []
    for index, (timestamp, key, value, headers) in enumerate(parts):
        offset += 1 if gaps is None else gaps[index]
        records.append(Record(offset, timestamp, key, value, headers))
    return records


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """Return bytes as a log or a request may hold them: batches of any kind, one after the other."""
    data = b""
    for _ in range(draw(st.integers(1, 2))):
        records = records_of(draw(RECORD_PARTS))
        magic = draw(st.sampled_from([0, 1, 2]))
        if magic == 2:
            data += encode_batch(
                records,
                codec=draw(st.sampled_from(Codec)),
                producer_id=draw(st.integers(-1, 5)),
                base_sequence=draw(st.sampled_from([-1, 0, 2**31 - 1])),
                control=draw(st.booleans()),
                timestamp_type=draw(st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])),
            )
        else:
            data += encode_message_set(records, magic, codec=draw(OLD))
    return data


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return the same bytes with bits flipped, bytes overwritten, a piece cut out, or the end torn off."""
    data = bytearray(draw(written()))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["flip", "set", "cut", "tear"]))
        if not data:
            break
        if kind == "flip":
            data[position] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set":
            piece = draw(st.binary(min_size=1, max_size=8))
            data[position : position + len(piece)] = piece
        elif kind == "cut":
            del data[position : position + draw(st.integers(1, 8))]
        else:
            del data[position:]
    return bytes(data)


def drain(iterator: Iterator[object]) -> None:
    for _ in iterator:
        pass


def scan(data: bytes) -> None:
    header = read_batch_header(data)
    if header.magic == 2:
        scan_section(header, record_section(data, 0, header, SIZE_MAX))


COMPRESSING = AppendRules(codec=Codec.LZ4, is_compacted=True, timestamp_before_max_ms=10**12)


def prepare(rules: AppendRules) -> Callable[[bytes], None]:
    def call(data: bytes) -> None:
        prepare_append(data, rules, first_offset=7, leader_epoch=1, now_ms=10**12, size_max=SIZE_MAX)

    return call


def read_values(data: bytes) -> None:
    """The values alone are those of the records, or the fault is the same."""
    for position, header in iter_batches(data):
        records = outcome(lambda: [r.value for r in iter_batch_records(data, position, header, size_max=SIZE_MAX)])  # noqa: B023
        assert outcome(lambda: list(iter_batch_values(data, position, header, size_max=SIZE_MAX))) == records  # noqa: B023


def outcome(read: Callable[[], list[bytes | None]]) -> object:
    try:
        return read()
    except KafkaError as error:
        return error.code, error.message


READERS: list[Callable[[bytes], None]] = [
    lambda data: drain(iter_batches(data)),
    lambda data: drain(iter_records(data, size_max=SIZE_MAX)),
    read_values,
    scan,
    prepare(AppendRules()),
    prepare(COMPRESSING),
    lambda data: drain([down_convert(data, magic, 2, size_max=SIZE_MAX) for magic in (0, 1)]),
]


def ours_or_nothing(read: Callable[[bytes], None], data: bytes) -> None:
    try:
        read(data)
    except KafkaError as error:
        assert error.message


@settings(max_examples=400 * ROUNDS, deadline=None)
@given(damaged() | written())
def test_damaged_bytes_raise_nothing_but_kafka_errors(data: bytes) -> None:
    for read in READERS:
        ours_or_nothing(read, data)


@settings(max_examples=200 * ROUNDS, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([0, 1, 2]), st.binary(max_size=40))
def test_garbage_behind_a_plausible_start_raises_nothing_but_kafka_errors(
    rest: bytes, magic: int, start: bytes
) -> None:
    length = len(rest) + 5
    data = start.ljust(8, b"\0")[:8] + length.to_bytes(4, "big") + bytes(4) + bytes([magic]) + rest
    for read in READERS:
        ours_or_nothing(read, data)


@settings(max_examples=200 * ROUNDS, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2**31 - 1))
def test_garbage_as_records_raises_nothing_but_kafka_errors(section: bytes, count: int) -> None:
    """The header is valid, the records are not. A client with a bug sends such a batch, with a valid checksum."""
    batch = bytearray(encode_batch([Record()])[: layout.BATCH_OVERHEAD] + section)
    batch[layout.BATCH_LENGTH : layout.BATCH_LENGTH + 4] = (len(batch) - layout.LOG_OVERHEAD).to_bytes(4, "big")
    batch[layout.RECORD_COUNT : layout.RECORD_COUNT + 4] = count.to_bytes(4, "big")
    for read in READERS:
        ours_or_nothing(read, bytes(batch))


@settings(max_examples=300 * ROUNDS, deadline=None)
@given(st.sampled_from(Codec), st.binary(max_size=200), st.sampled_from([0, 1, 2]))
def test_garbage_to_decompress_raises_nothing_but_kafka_errors(codec: Codec, data: bytes, magic: int) -> None:
    starts = {
        Codec.GZIP: b"\x1f\x8b\x08\0",
        Codec.SNAPPY: b"\x82SNAPPY\0\0\0\0\1\0\0\0\1",
        Codec.LZ4: b"\x04\x22\x4d\x18\x60\x40\x82",
        Codec.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for packed in (data, starts.get(codec, b"") + data):
        ours_or_nothing(lambda packed: unpack(codec, packed, magic), packed)


def unpack(codec: Codec, data: bytes, magic: int) -> None:
    assert len(decompress(codec, data, magic=magic, size_max=SIZE_MAX)) <= SIZE_MAX


@settings(max_examples=200 * ROUNDS, deadline=None)
@given(RECORD_PARTS, st.data(), st.sampled_from(Codec))
def test_any_records_come_back_as_they_were(parts: list[tuple], data: st.DataObject, codec: Codec) -> None:
    gaps = data.draw(st.lists(st.integers(1, 1000), min_size=len(parts), max_size=len(parts)))
    base = data.draw(st.integers(0, 2**40))
    records = records_of(parts, gaps)
    for record in records:
        record.offset += base
    batch = encode_batch(records, base_offset=base, codec=codec)
    assert list(iter_records(batch)) == records
    header = read_batch_header(batch)
    facts = scan_section(header, record_section(batch, 0, header))
    times = [record.timestamp_ms for record in records if record.timestamp_ms != -1]
    assert (facts.min_timestamp, facts.max_timestamp) == ((min(times), max(times)) if times else (-1, -1))
    assert facts.has_null_key == any(record.key is None for record in records)
    assert facts.offsets_in_order == all(record.offset == base + index for index, record in enumerate(records))


@pytest.mark.parametrize("field", [layout.BASE_OFFSET, layout.BASE_TIMESTAMP])
@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_numbers_that_run_over_64_bits_raise_nothing_but_kafka_errors(field: int, value: int, codec: Codec) -> None:
    for times in ([5, 9, 1], [5, -(2**62), 2**62]):
        batch = bytearray(encode_batch([Record(timestamp_ms=time, key=b"k") for time in times], codec=codec))
        batch[field : field + 8] = value.to_bytes(8, "big", signed=True)
        batch[layout.LAST_OFFSET_DELTA + 3] = 2
        for read in READERS:
            ours_or_nothing(read, bytes(batch))
