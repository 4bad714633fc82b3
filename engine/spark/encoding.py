"""Turns Arrow columns into records as a batch holds them, without a Python object per record.

All of this is for ``batches_of``: which rows go together, and their bytes. numpy makes the numbers between keys and
values, and Arrow joins both. ``columns`` does the reverse.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.admin.cluster.errors import BadRequest
from engine.admin.records.produce import RECORD_OVERHEAD_BYTES
from engine.kafka.protocol.records.encode import RecordSection

_Ints = np.ndarray[Any, np.dtype[np.int64]]

_NO_HEADERS = pa.scalar(b"\x00", pa.binary())
_NULL_SIZE = -1


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Keys, values and headers of records: binary columns; ``headers`` has those of each record as they are sent."""

    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None

    @property
    def sizes(self) -> _Ints:
        """About how many bytes each record takes, as the producer counts them."""
        parts = [self.keys, self.values, *([] if self.headers is None else [self.headers])]
        total: _Ints = np.full(len(self.keys), RECORD_OVERHEAD_BYTES, np.int64)
        for part in parts:
            total += np.maximum(_lengths(part), 0)
        return total


def record_columns(rows: pa.RecordBatch) -> RecordColumns:
    """Return the columns of Spark's rows that make up a record.

    Raises:
        BadRequest: a header has no key.
    """
    names = rows.schema.names
    keys, values = (
        rows.column(name).cast(pa.binary()) if name in names else pa.nulls(rows.num_rows, pa.binary())
        for name in ("key", "value")
    )
    return RecordColumns(keys, values, _headers(rows.column("headers")) if "headers" in names else None)


def batches_of(
    records: RecordColumns, partitions: _Ints, batch_bytes: int, time_ms: int
) -> Iterator[tuple[int, RecordSection]]:
    """Yield the batches of each partition, and the partition; all records have the same time, that of sending.

    Rows keep their order within a partition. A batch is full as the producer's is: see ``runs``.
    """
    order = np.argsort(partitions, kind="stable")
    sizes, deltas = records.sizes[order], np.empty(len(order), np.int64)
    batches: list[tuple[int, int, int]] = []
    edges = [0, *(np.flatnonzero(np.diff(partitions[order])) + 1).tolist(), len(order)]
    for first, last in itertools.pairwise(edges):
        for start, stop in runs(sizes[first:last], batch_bytes):
            batches.append((int(partitions[order[first]]), first + start, first + stop))
            deltas[order[first + start : first + stop]] = np.arange(stop - start)
    encoded = _encode(records, deltas)
    if len(edges) > 2:
        encoded = encoded.take(pa.array(order))
    places, data = _places(encoded), memoryview(encoded.buffers()[2])
    for partition, start, stop in batches:
        count = stop - start
        yield partition, RecordSection(data[places[start] : places[stop]], count, count - 1, time_ms, time_ms)


def runs(sizes: _Ints, most: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of runs of rows that take at most ``most`` together, and of single larger rows."""
    ends, start, count = np.cumsum(sizes), 0, len(sizes)
    while start < count:
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + most, side="right")), start + 1)
        yield start, stop
        start = stop


def _encode(records: RecordColumns, deltas: _Ints) -> pa.Array:
    """Return the records encoded for batches in which all records have the batch's time."""
    key_sizes, value_sizes = _lengths(records.keys), _lengths(records.values)
    headers = _NO_HEADERS if records.headers is None else records.headers
    header_sizes: Any = 1 if records.headers is None else _lengths(records.headers)
    # Attributes and the time after the batch's own.
    nothing = np.zeros(len(deltas), np.int64)
    sizes = 2 + _varint_sizes(deltas) + _varint_sizes(key_sizes) + _varint_sizes(value_sizes)
    sizes += np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + header_sizes
    before_key, before_value = _varints(sizes, nothing, nothing, deltas, key_sizes), _varints(value_sizes)
    parts = (before_key, records.keys, before_value, records.values, headers)
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")


def _headers(column: pa.Array) -> pa.Array:
    """Return the headers of each row as its record holds them: their number, then keys and values."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    keys, values = (each.cast(pa.binary()) for each in column.flatten().flatten())
    if keys.null_count:
        raise BadRequest("a header has no key", hint="fill the field key of every header, or leave the header out")
    before_key, before_value = _varints(_lengths(keys)), _varints(_lengths(values))
    parts = (before_key, keys, before_value, values)
    each = pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")
    edges = _places(each)[np.append(0, np.cumsum(counts))].astype(np.int32)
    of_rows = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(edges), each.buffers()[2]])
    return pc.binary_join_element_wise(_varints(counts), of_rows, b"")


def _lengths(column: pa.Array) -> _Ints:
    """Return the size of each piece of a binary column; -1 where it is null, as in a record."""
    lengths: _Ints = pc.fill_null(pc.binary_length(column), _NULL_SIZE).to_numpy().astype(np.int64)
    return lengths


def _places(column: pa.Array) -> _Ints:
    """Return the starts of the pieces of a binary column, and the end of the last one."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    places: _Ints = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return places


def _varints(*columns: _Ints) -> pa.Array:
    """Return the zig-zag varints of several columns of numbers, joined row by row, as a binary column."""
    count = len(columns[0])
    sizes = [_varint_sizes(numbers) for numbers in columns]
    widths = [int(each.max(initial=1)) for each in sizes]
    octets, is_used = np.empty((count, sum(widths)), np.uint8), np.empty((count, sum(widths)), bool)
    at = 0
    for numbers, size, width in zip(columns, sizes, widths, strict=True):
        left = _zigzag(numbers)
        for place in range(width):
            octets[:, at] = left & 0x7F | (size > place + 1) << 7
            is_used[:, at] = size > place
            left >>= 7
            at += 1
    edges = np.append(0, np.cumsum(sum(sizes))).astype(np.int32)
    data = octets.reshape(-1) if at == len(columns) else octets[is_used]
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(data)])


def _varint_sizes(numbers: _Ints) -> _Ints:
    zigzag = _zigzag(numbers)
    sizes: _Ints = np.ones(len(numbers), np.int64)
    limit, most = 1 << 7, int(zigzag.max(initial=0))
    while limit <= most:
        sizes += zigzag >= limit
        limit <<= 7
    return sizes


def _zigzag(numbers: _Ints) -> _Ints:
    return (numbers << 1) ^ (numbers >> 63)
