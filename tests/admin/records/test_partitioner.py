"""Keys go where every Kafka client with the default partitioner sends them."""

from __future__ import annotations

import random

import pytest

from engine.admin.records.partitioner import StickyPartition, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        # The vectors of Kafka's own UtilsTest.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, signed_hash: int) -> None:
    assert murmur2(key) == signed_hash & 0xFFFFFFFF
    assert partition_for_key(key, 7) == (signed_hash & 0x7FFFFFFF) % 7


def test_records_without_key_stick_until_the_batch_is_full() -> None:
    sticky = StickyPartition(random.Random(1))
    first = sticky.current([0, 1, 2])
    assert all(sticky.current([0, 1, 2]) == first for _ in range(20))
    sticky.next_batch([0, 1, 2])
    assert sticky.current([0, 1, 2]) != first
    sticky.next_batch([5])
    assert sticky.current([5]) == 5
