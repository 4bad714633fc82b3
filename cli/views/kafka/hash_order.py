"""The order in which Java's HashMap yields its keys. Kafka's tools print many things in that order.

Source: ``String.hashCode`` and ``HashMap`` of Java; ``TopicPartition.hashCode`` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from engine.common.model import TopicPartition

T = TypeVar("T")
_CAPACITY_MIN = 16
_MASK = 0xFFFFFFFF


def in_hash_order(
    items: Iterable[T], key: Callable[[T], str | TopicPartition], capacity: int = _CAPACITY_MIN
) -> list[T]:
    """Return items as a HashMap with these keys yields them; keys of one bucket stay in the order given.

    Args:
        capacity: what the map was made for; a set or map that grows from nothing begins with 16.
    """
    listed = list(items)
    buckets = 1
    while buckets < capacity or len(listed) > buckets * 3 // 4:
        buckets *= 2

    def bucket(item: T) -> int:
        code = java_hash(key(item))
        return (code ^ (code >> 16)) & (buckets - 1)

    return sorted(listed, key=bucket)


def java_hash(value: str | TopicPartition) -> int:
    """Return Java's hash code, as an unsigned number of 32 bits."""
    if isinstance(value, TopicPartition):
        return (31 * (31 + value.partition) + java_hash(value.topic)) & _MASK
    code = 0
    units = value.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & _MASK
    return code
