"""Cuts the rows to send, as Spark passes them, into even parts, by topic, and by partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.admin.cluster.errors import BadRequest
from engine.admin.records.partitioner import MURMUR2_M, MURMUR2_SEED, murmur2
from engine.spark.encoding import RecordColumns, runs

if TYPE_CHECKING:
    from engine.admin.records.produce import Producer


_ABREAST_MIN = 16
"""If fewer keys are this long, each is hashed alone."""

_Words = np.ndarray[Any, np.dtype[np.uint32]]


def key_partitions(keys: pa.Array, partition_count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the partition of each key of a binary column without nulls, as every client with Kafka's default does."""
    return (_hashes(keys) & 0x7FFFFFFF).astype(np.int64) % partition_count


def _hashes(keys: pa.Array) -> _Words:
    """Return murmur2 of each key: first the words of all keys in turn, then the remaining bytes of each."""
    count = len(keys)
    edges = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + count + 1].astype(np.int64)
    # Reading a word may run past the last key: bytes outside the key are masked.
    data = b"".join((keys.buffers()[2] or b"", bytes(4)))
    words: _Words = np.ndarray(len(data) - 3, np.dtype("<u4"), data, strides=(1,))
    starts, lengths = edges[:-1], np.diff(edges)
    hashes: _Words = (MURMUR2_SEED ^ lengths).astype(np.uint32)
    position, active = 0, np.flatnonzero(lengths >= 4)
    while len(active) >= _ABREAST_MIN:
        word = words[starts[active] + position] * np.uint32(MURMUR2_M)
        word = (word ^ word >> np.uint32(24)) * np.uint32(MURMUR2_M)
        hashes[active] = hashes[active] * np.uint32(MURMUR2_M) ^ word
        position += 4
        active = active[lengths[active] >= position + 4]
    rest = np.flatnonzero(lengths & 3)
    bits = ((lengths[rest] & 3) << 3).astype(np.uint32)
    tail = words[starts[rest] + (lengths[rest] & ~3)] & ((np.uint32(1) << bits) - np.uint32(1))
    hashes[rest] = (hashes[rest] ^ tail) * np.uint32(MURMUR2_M)
    hashes = (hashes ^ hashes >> np.uint32(13)) * np.uint32(MURMUR2_M)
    hashes ^= hashes >> np.uint32(15)
    for number in active.tolist():
        hashes[number] = murmur2(data[edges[number] : edges[number + 1]])
    return hashes


def even_parts(batches: Iterable[pa.RecordBatch], size_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts of about ``size_bytes``: small batches are joined, large ones are cut."""
    gathered: list[pa.RecordBatch] = []
    gathered_bytes = 0
    for batch in batches:
        row_count = max(1, batch.num_rows * size_bytes // max(1, batch.nbytes))
        for first in range(0, batch.num_rows, row_count):
            piece = batch.slice(first, row_count)
            if gathered and gathered_bytes + piece.nbytes > size_bytes:
                yield _joined(gathered)
                gathered, gathered_bytes = [], 0
            gathered.append(piece)
            gathered_bytes += piece.nbytes
    if gathered:
        yield _joined(gathered)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def by_topic(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each topic with its rows, in their order.

    Raises:
        BadRequest: a row has no topic.
    """
    topics = rows.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    if topics.null_count or not all(names):
        raise BadRequest("a row has no topic", hint="give the option topic, or fill the column")
    numbers = topics.indices.to_numpy()
    for number, name in enumerate(names):
        yield name, rows if len(names) == 1 else rows.take(pa.array(np.flatnonzero(numbers == number)))


def partitions_of(
    rows: pa.RecordBatch, records: RecordColumns, producer: Producer, batch_bytes: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the partition of each row: the column's, else the one that Kafka's own producer would choose."""
    count = rows.num_rows
    partitions, is_open = np.zeros(count, np.int64), np.ones(count, bool)
    if "partition" in rows.schema.names:
        column = rows.column("partition")
        partitions = pc.fill_null(column, 0).to_numpy().astype(np.int64)
        is_open = column.is_null().to_numpy(zero_copy_only=False)
    has_key = records.keys.is_valid().to_numpy(zero_copy_only=False)
    by_key = np.flatnonzero(is_open & has_key)
    if by_key.size:
        keys = records.keys if by_key.size == count else records.keys.take(pa.array(by_key))
        partitions[by_key] = key_partitions(keys, producer.partition_count)
    unkeyed = np.flatnonzero(is_open & ~has_key)
    if unkeyed.size:
        bounds = list(runs(records.sizes[unkeyed], batch_bytes))
        for partition, (start, stop) in zip(producer.sticky_partitions(len(bounds)), bounds, strict=True):
            partitions[unkeyed[start:stop]] = partition
    return partitions
