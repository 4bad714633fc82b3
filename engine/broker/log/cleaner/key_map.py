"""The map of keys to their last offsets, within its memory limit. It is exact: no two keys are ever confused.

It is a Python dictionary, which costs 100 to 200 bytes a key; Kafka's table of MD5 sums takes 24. With the same
``log.cleaner.dedupe.buffer.size``, a log with very many keys takes more rounds here.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from hashlib import blake2b
from itertools import islice

EXACT_KEY_BYTES_MAX = 63
"""Longer keys are stored as 64-byte digests, a length that no exact key has."""

LOOK_KEYS = 1024
"""The memory is checked after this many new keys."""

_INT_BYTES = 32
_TABLE_BYTES_BEFORE_GROWTH = 32
"""With fewer bytes of table per entry than this, a dictionary is about to double its table."""


def fold(key: bytes) -> bytes:
    """Return the digest of a key of more than ``EXACT_KEY_BYTES_MAX`` bytes."""
    return blake2b(key).digest()


class KeyMap:
    """The scan of records fills ``offsets`` directly, because a call per record would double its time."""

    def __init__(self, bytes_max: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = -1
        """The keys of all records before this offset are in the map."""
        self._bytes_max = bytes_max
        self._counted = 0
        self._object_bytes = 0
        self._live = array("q")

    @property
    def utilization(self) -> float:
        """The fraction of the memory in use."""
        self._count()
        return (self._object_bytes + sys.getsizeof(self.offsets)) / self._bytes_max

    def is_full(self) -> bool:
        """Whether the next batch must wait for another round; checked between batches."""
        if len(self.offsets) - self._counted < LOOK_KEYS:
            return False
        self._count()
        table_bytes = sys.getsizeof(self.offsets)
        if table_bytes < _TABLE_BYTES_BEFORE_GROWTH * len(self.offsets):
            table_bytes *= 3  # the old table and the new one, while it grows
        return self._object_bytes + table_bytes > self._bytes_max

    def seal(self) -> None:
        """Note that the map is complete."""
        self._live = array("q", sorted(self.offsets.values()))

    def live_offsets(self, first_offset: int, last_offset: int) -> list[int]:
        """Return the offsets of this range, within the mapped part, that are the last of their keys."""
        live = self._live
        slot = bisect_left(live, first_offset)
        return live[slot : bisect_right(live, last_offset, slot)].tolist()

    def _count(self) -> None:
        """Add the size of the newest keys, estimated from a sample."""
        added = len(self.offsets) - self._counted
        if added:
            sample = [sys.getsizeof(key) for key in islice(reversed(self.offsets), min(added, 64))]
            key_bytes = sum(sample) / len(sample) + 8  # rounded up by the allocator
            self._object_bytes += int(added * (key_bytes + _INT_BYTES + self._live.itemsize))
            self._counted = len(self.offsets)
