"""Rows as record batches: the bytes of the plain encoder, and keys where Kafka's producer puts them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cluster.errors import BadRequest
from engine.admin.records.partitioner import partition_for_key
from engine.admin.records.produce import RECORD_OVERHEAD_BYTES
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.spark.columns import HEADERS_TYPE
from engine.spark.encoding import batches_of, record_columns, runs
from engine.spark.row_batches import key_partitions

TIME_MS = 1_763_900_000_000

OCTETS = st.none() | st.binary(max_size=200) | st.integers(0, 20_000).map(lambda size: b"x" * size)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3)
ROWS = st.lists(st.tuples(st.integers(0, 2), OCTETS, OCTETS, HEADERS), min_size=1, max_size=60)


def rows_of(found: list[Any], *, has_headers: bool = True, large: bool = False) -> pa.RecordBatch:
    kind = pa.large_binary() if large else pa.binary()
    columns = {
        "key": pa.array([key for _, key, _, _ in found], kind),
        "value": pa.array([value for _, _, value, _ in found], kind),
    }
    if has_headers:
        given = [headers and [{"key": key, "value": value} for key, value in headers] for *_, headers in found]
        columns["headers"] = pa.array(given, HEADERS_TYPE)
    return pa.record_batch(columns)


def encoded(rows: pa.RecordBatch, partitions: list[int], batch_bytes: int) -> dict[int, list[bytes]]:
    made = batches_of(record_columns(rows), np.array(partitions), batch_bytes, TIME_MS)
    batches = defaultdict(list)
    for partition, section in made:
        batches[partition].append(encode_batch(section))
    return batches


def plain(found: list[Any], batch_bytes: int) -> dict[int, list[bytes]]:
    """Return what the producer makes of the records if they are added one by one."""
    lanes: dict[int, list[list[Record]]] = defaultdict(lambda: [[]])
    gathered: dict[int, int] = defaultdict(int)
    for partition, key, value, headers in found:
        size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
        if lanes[partition][-1] and gathered[partition] + size > batch_bytes:
            lanes[partition].append([])
            gathered[partition] = 0
        lanes[partition][-1].append(Record(-1, TIME_MS, key, value, headers or ()))
        gathered[partition] += size
    return {partition: [encode_batch(batch) for batch in batches] for partition, batches in lanes.items()}


@given(found=ROWS, batch_bytes=st.sampled_from([1, 300, 5000, 1 << 20]), large=st.booleans())
def test_the_bytes_and_the_bounds_of_the_plain_encoder(found: list[Any], batch_bytes: int, large: bool) -> None:
    rows = rows_of(found, has_headers=False, large=large)
    without_headers = [(*row[:3], None) for row in found]
    assert encoded(rows, [row[0] for row in found], batch_bytes) == plain(without_headers, batch_bytes)


@given(found=ROWS, skip=st.integers(0, 3))
def test_headers_and_parts_of_a_larger_batch(found: list[Any], skip: int) -> None:
    rows, left = rows_of(found).slice(skip), found[skip:]
    if left:
        assert encoded(rows, [row[0] for row in left], 1 << 30) == plain(left, 1 << 30)


def test_many_records_have_varints_of_every_size() -> None:
    decoded = [(number % 3, b"%d" % number, b"v" * (number % 300), None) for number in range(60_000)]
    rows = rows_of(decoded, has_headers=False)
    assert encoded(rows, [row[0] for row in decoded], 1 << 30) == plain(decoded, 1 << 30)


def test_text_is_sent_as_it_is() -> None:
    rows = pa.record_batch({"key": ["ä"], "value": ["日本"]})
    assert encoded(rows, [0], 1000) == plain([(0, "ä".encode(), "日本".encode(), None)], 1000)


def test_rows_without_a_column_of_keys() -> None:
    assert encoded(pa.record_batch({"value": ["v"]}), [0], 1000) == plain([(0, None, b"v", None)], 1000)


@pytest.mark.parametrize("header", [{"key": None, "value": b"v"}, None])
def test_a_header_without_a_key_is_refused(header: Any) -> None:
    rows = pa.record_batch({"value": pa.array([b"v"]), "headers": pa.array([[header]], HEADERS_TYPE)})
    with pytest.raises(BadRequest, match="a header has no key"):
        record_columns(rows)


def test_runs_hold_as_much_as_goes_in_and_at_least_one_row() -> None:
    assert list(runs(np.array([5, 5, 1, 20, 3, 7]), 10)) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert list(runs(np.array([], np.int64), 10)) == []


@given(
    keys=st.lists(st.binary(max_size=40) | st.binary(min_size=100, max_size=500), max_size=80),
    partition_count=st.integers(1, 1000),
    skip=st.integers(0, 2),
)
def test_keys_go_where_kafkas_partitioner_puts_them(keys: list[bytes], partition_count: int, skip: int) -> None:
    column = pa.array(keys, pa.binary()).slice(skip)
    expected = [partition_for_key(key, partition_count) for key in keys[skip:]]
    assert key_partitions(column, partition_count).tolist() == expected
