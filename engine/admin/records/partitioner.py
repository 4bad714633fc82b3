"""Which partition a record goes to, by Kafka's default: keys by murmur2, records without a key stick (KIP-480)."""

from __future__ import annotations

import random
from collections.abc import Sequence

MURMUR2_SEED = 0x9747B28C
MURMUR2_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of ``data`` as an unsigned number."""
    length = len(data)
    h = (MURMUR2_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * MURMUR2_M & _MASK
        k = (k ^ k >> 24) * MURMUR2_M & _MASK
        h = (h * MURMUR2_M & _MASK) ^ k
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * MURMUR2_M & _MASK
    h = (h ^ h >> 13) * MURMUR2_M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key, as every client with Kafka's default partitioner does."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The partition that records without a key go to, until a batch is full."""

    def __init__(self, choose: random.Random | None = None) -> None:
        self._random = choose or random.Random()
        self._current: int | None = None

    def current(self, available: Sequence[int]) -> int:
        """Return the partition to use now; ``available`` are those with a leader (all if none has one)."""
        if self._current is None or self._current not in available:
            self._current = self._random.choice(available)
        return self._current

    def next_batch(self, available: Sequence[int]) -> None:
        """Move on to another partition if there is one."""
        others = [partition for partition in available if partition != self._current]
        if others:
            self._current = self._random.choice(others)
