"""The map of keys to the places of their last records, within its memory limit. It never confuses two keys.

It is a Python dictionary, which costs 100 to 200 bytes a key; Kafka's table of MD5 sums takes 24. With the same
``log.cleaner.dedupe.buffer.size``, a log with very many keys takes more rounds here.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from hashlib import blake2b
from itertools import islice

EXACT_KEY_BYTES_MAX = 63
"""Longer keys are stored as 64-byte digests, a length that no exact key has."""

LOOK_KEYS = 1024
"""The memory is checked after this many new keys."""

_POSITION_BITS = 31
"""No batch unpacks to more bytes than these can count."""

_INT_BYTES = 32
_REFERENCE_BYTES = 8
_TABLE_BYTES_BEFORE_GROWTH = 32
"""With fewer bytes of table per entry than this, a dictionary is about to double its table."""


def fold(key: bytes) -> bytes:
    """Return the digest of a key of more than ``EXACT_KEY_BYTES_MAX`` bytes."""
    return blake2b(key).digest()


def known_key(key: bytes) -> bytes:
    """Return the form in which the map has a key."""
    return key if len(key) <= EXACT_KEY_BYTES_MAX else fold(key)


class KeyMap:
    """The scan of records fills ``places`` directly, because a call per record would double its time.

    A place says which batch, and where in its records, uncompressed. So the second pass need not search for a record.
    """

    def __init__(self, bytes_max: int, first_offset: int) -> None:
        """``first_offset`` is that of the dirty part; smaller places take less memory."""
        self._first_offset = first_offset
        self.places: dict[bytes, int] = {}
        self.latest_offset = -1
        """The keys of all records before this offset are in the map."""
        self._bytes_max = bytes_max
        self._counted = 0
        self._object_bytes = 0
        self._live: list[int] = []

    @property
    def utilization(self) -> float:
        """The fraction of the memory in use."""
        self._count()
        return (self._object_bytes + sys.getsizeof(self.places)) / self._bytes_max

    def is_full(self) -> bool:
        """Whether the next batch must wait for another round; checked between batches."""
        if len(self.places) - self._counted < LOOK_KEYS:
            return False
        self._count()
        table_bytes = sys.getsizeof(self.places)
        if table_bytes < _TABLE_BYTES_BEFORE_GROWTH * len(self.places):
            table_bytes *= 3  # the old table and the new one, while it grows
        return self._object_bytes + table_bytes > self._bytes_max

    def seal(self) -> None:
        """Note that the map is complete."""
        self._live = sorted(self.places.values())

    def first_place(self, base_offset: int) -> int:
        """Return the place of a batch's first record; the next is further by the size of that record."""
        return (base_offset - self._first_offset) << _POSITION_BITS

    def live_places(self, base_offset: int) -> list[int]:
        """Return the places in a batch of the mapped part whose records are the last of their keys."""
        first_place, live = self.first_place(base_offset), self._live
        slot = bisect_left(live, first_place)
        return live[slot : bisect_left(live, first_place + (1 << _POSITION_BITS), slot)]

    def _count(self) -> None:
        """Add the size of the newest keys, estimated from a sample."""
        added = len(self.places) - self._counted
        if added:
            sample = [sys.getsizeof(key) for key in islice(reversed(self.places), min(added, 64))]
            key_bytes = sum(sample) / len(sample) + 8  # rounded up by the allocator
            self._object_bytes += int(added * (key_bytes + _INT_BYTES + _REFERENCE_BYTES))
            self._counted = len(self.places)
