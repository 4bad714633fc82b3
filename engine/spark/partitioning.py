"""Kafka's default partitioner for columns of keys: ``engine.admin.records.partitioner`` for all of them at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from engine.admin.records.partitioner import MURMUR2_M, MURMUR2_SEED, murmur2

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
    found: _Words = (MURMUR2_SEED ^ lengths).astype(np.uint32)
    position, active = 0, np.flatnonzero(lengths >= 4)
    while len(active) >= _ABREAST_MIN:
        word = words[starts[active] + position] * np.uint32(MURMUR2_M)
        word = (word ^ word >> np.uint32(24)) * np.uint32(MURMUR2_M)
        found[active] = found[active] * np.uint32(MURMUR2_M) ^ word
        position += 4
        active = active[lengths[active] >= position + 4]
    rest = np.flatnonzero(lengths & 3)
    bits = ((lengths[rest] & 3) << 3).astype(np.uint32)
    tail = words[starts[rest] + (lengths[rest] & ~3)] & ((np.uint32(1) << bits) - np.uint32(1))
    found[rest] = (found[rest] ^ tail) * np.uint32(MURMUR2_M)
    found = (found ^ found >> np.uint32(13)) * np.uint32(MURMUR2_M)
    found ^= found >> np.uint32(15)
    for number in active.tolist():
        found[number] = murmur2(data[edges[number] : edges[number + 1]])
    return found
