"""Chunks as columns: the plain decoder's records for every codec and format, and errors for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.common.errors import KafkaError
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import empty_batch, encode_batch
from engine.kafka.protocol.records.header import read_batch_header
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record
from engine.spark import columns
from engine.spark.columns import HEADERS_TYPE, SCHEMA, Frame, decode

ALL = tuple(SCHEMA.names)
EVERYTHING = 1 << 60


@dataclass
class Aborted:
    producer_id: int
    first_offset: int


def rows(chunk: bytes, start: int = 0, stop: int = EVERYTHING, aborted: Sequence[Aborted] | None = None) -> list[Any]:
    frame = Frame("orders", 3, start, stop, ALL)
    rows_read = []
    for batch in decode(chunk, frame, aborted):
        batch.validate(full=True)
        assert batch.schema.equals(SCHEMA)
        rows_read += batch.cast(SCHEMA.set(5, SCHEMA.field(5).with_type(pa.int64()))).to_pylist()
    return rows_read


def expected(chunk: bytes, kind: int = 0) -> list[Any]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "orders",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp_ms * 1000,
            "timestampType": kind,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for record in iter_records(chunk)
    ]


def record(offset: int, size: int = 10, time: int = 1_700_000_000_000) -> Record:
    return Record(offset, time + offset, b"k%d" % offset, b"v" * size)


small_bytes = st.one_of(st.none(), st.binary(max_size=200), st.just(b"x" * 100))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)


@st.composite
def chunks(draw: Any) -> bytes:
    """Return batches as a log has them: gaps inside and between, times that go back, any codec."""
    offset, parts = draw(st.integers(0, 2**40)), []
    for _ in range(draw(st.integers(1, 4))):
        records = []
        base = offset
        for _ in range(draw(st.integers(1, 40))):
            time = draw(st.integers(0, 2**41))
            records.append(Record(offset, time, draw(small_bytes), draw(small_bytes), draw(headers)))
            offset += draw(st.sampled_from([1, 1, 1, 1, 70, 9000]))
        parts.append(encode_batch(records, base_offset=base, codec=draw(st.sampled_from(list(Codec)))))
    return b"".join(parts)


@given(chunks(), st.data())
def test_a_chunk_and_a_part_of_it_are_the_same_as_one_by_one(chunk: bytes, data: st.DataObject) -> None:
    whole = expected(chunk)
    assert rows(chunk) == whole
    start, stop = sorted(data.draw(st.integers(whole[0]["offset"] - 1, whole[-1]["offset"] + 2)) for _ in "ab")
    assert rows(chunk, start, stop) == [row for row in whole if start <= row["offset"] < stop]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 100, 8000])
def test_long_batches(codec: Codec, size: int) -> None:
    """Runs of equal records, with others in between whose lengths differ only in the second byte."""
    records = [record(n, size if n % 1000 else size + 64) for n in range(20_000 if size < 1000 else 300)]
    chunk = encode_batch(records, codec=codec)
    assert rows(chunk) == expected(chunk)


@pytest.mark.parametrize("count", [1, 255, 256, 600])
def test_many_small_batches(count: int) -> None:
    batches, offset = [], 0
    for number in range(count):
        some = [record(offset + n, (number * 7 + n) % 150) for n in range(number % 5 + 1)]
        batches.append(encode_batch(some, base_offset=offset))
        offset += len(some)
    chunk = b"".join(batches)
    assert rows(chunk) == expected(chunk)


def test_log_append_time() -> None:
    stamped = encode_batch(
        [record(0), record(1)], timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=1_800_000_000_000
    )
    own = encode_batch([record(2)], base_offset=2)
    rows_read = rows(stamped + own)
    assert [row["timestamp"] for row in rows_read] == [1_800_000_000_000_000] * 2 + [1_700_000_000_002_000]
    assert [row["timestampType"] for row in rows_read] == [1, 1, 0]


def test_a_time_beyond_what_spark_can_hold_is_the_last_that_it_can() -> None:
    nanoseconds = 1_796_069_067_347_000_000
    rows_read = rows(encode_batch([record(0), record(1, time=nanoseconds)]))
    assert [row["timestamp"] for row in rows_read] == [1_700_000_000_000_000, (2**63 - 1) // 1000 * 1000]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_formats_between_new_ones(magic: int, codec: Codec) -> None:
    old = encode_message_set([record(2), Record(3, 5, None, b"v"), Record(4, 6, b"k", None)], magic, codec=codec)
    chunk = encode_batch([record(0), record(1)]) + old + encode_batch([record(5)], base_offset=5)
    wanted = expected(chunk)
    for row in wanted[2:5]:
        row["timestampType"] = -1 if magic == 0 else 0
    assert rows(chunk) == wanted
    assert [row["offset"] for row in rows(chunk, 3, 4)] == [3]


def transaction(base: int, producer_id: int, count: int = 2) -> bytes:
    return encode_batch(
        [record(base + n) for n in range(count)], base_offset=base, producer_id=producer_id, producer_epoch=0,
        base_sequence=0, transactional=True,
    )  # fmt: skip


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    key = b"\x00\x00\x00\x01" if is_commit else b"\x00\x00\x00\x00"
    return encode_batch(
        [Record(offset, 0, key, bytes(6))], base_offset=offset, producer_id=producer_id, producer_epoch=0,
        transactional=True, control=True,
    )  # fmt: skip


def test_aborted_transactions_and_markers() -> None:
    chunk = b"".join(
        [
            transaction(0, 7),
            transaction(2, 8),
            marker(4, 7, is_commit=False),
            transaction(5, 7),
            marker(7, 7, is_commit=True),
            marker(8, 8, is_commit=True),
            encode_batch([record(9)], base_offset=9),
        ]
    )
    committed = [row["offset"] for row in rows(chunk, aborted=[Aborted(7, 0)])]
    assert committed == [2, 3, 5, 6, 9]
    assert [row["offset"] for row in rows(chunk)] == [0, 1, 2, 3, 5, 6, 9], "markers are never records"


def test_batches_that_compaction_has_emptied() -> None:
    full = encode_batch([record(0), record(1)], codec=Codec.ZSTD)
    chunk = empty_batch(read_batch_header(full)) + encode_batch([record(5)], base_offset=2)
    assert [row["offset"] for row in rows(chunk)] == [5]


def test_a_batch_that_is_cut_at_the_end_is_left_out() -> None:
    whole = encode_batch([record(0)])
    assert len(rows(whole + encode_batch([record(1)], base_offset=1)[:-1])) == 1


def test_only_the_wanted_columns_are_made() -> None:
    frame = Frame("orders", 3, 0, EVERYTHING, ("offset", "value"))
    (batch,) = decode(encode_batch([record(0)]), frame)
    assert batch.to_pylist() == [{"offset": 0, "value": b"v" * 10}]


def test_large_chunks_come_in_parts() -> None:
    chunk = encode_batch([record(n, 0) for n in range(columns._ROWS_MAX + 5)])
    frame = Frame("orders", 3, 2, EVERYTHING, ALL)
    assert [batch.num_rows for batch in decode(chunk, frame)] == [columns._ROWS_MAX, 3]


def test_headers_of_some_records() -> None:
    chunk = encode_batch(
        [
            Record(0, 1, None, b"a", [("x", b"1"), ("y", None)]),
            Record(1, 1, None, b"b"),
            Record(2, 1, None, b"c", [("", b""), ("ä", b"2"), ("z", b"3")]),
        ]
    )
    assert rows(chunk) == expected(chunk)
    broken = encode_batch([Record(0, 1, None, b"a", [("\udcff", b"1")])])
    assert rows(broken)[0]["headers"] == [{"key": "�", "value": b"1"}], "as Java reads it"
    assert SCHEMA.field("headers").type == HEADERS_TYPE


def at(chunk: bytes, position: int, value: int) -> bytes:
    return chunk[:position] + bytes([value]) + chunk[position + 1 :]


@pytest.mark.parametrize("copies", [1, 300])
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 0x01),  # a negative length
        (0, 0x7E),  # a record that reaches past its batch
        (0, 0x02),  # one that ends early
        (4, 0x7E),  # a key that reaches past its record
        (7, 0x7E),  # a value
        (18, 0x7E),  # the last value
    ],
)
def test_bytes_that_are_no_records(place: int, value: int, copies: int) -> None:
    batch = encode_batch([record(0, 2), record(1, 2)])
    assert rows(batch * copies)
    with pytest.raises(KafkaError):
        rows(at(batch, layout.BATCH_OVERHEAD + place, value) * copies)


@pytest.mark.parametrize("count", [1, 3, 1_000_000, 2**31 - 1])
def test_a_wrong_number_of_records(count: int) -> None:
    batch = encode_batch([record(0), record(1)])
    with pytest.raises(KafkaError):
        rows(batch[: layout.RECORD_COUNT] + count.to_bytes(4, "big") + batch[layout.RECORD_COUNT + 4 :])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bytes_that_do_not_decompress(codec: Codec) -> None:
    batch = encode_batch([record(n) for n in range(50)], codec=codec)
    middle = layout.BATCH_OVERHEAD + 4
    with pytest.raises(KafkaError):
        rows(batch[:middle] + bytes(len(batch) - middle))
