"""Which offsets a batch reads, and in which pieces. Pure; the rules are those of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from engine.admin.cluster.errors import BadRequest
from engine.common.model import TopicPartition

Offsets = dict[TopicPartition, int]
"""The next offset to read, of each partition."""

OnDataLoss = Callable[[str], None]
"""Receives what cannot be read any more; raises if that is not allowed."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start`` to ``stop`` - 1 of a partition: one task reads them."""

    topic: str
    partition: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.start


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as a checkpoint has them: by topic, then by partition as text, in order."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def from_json(document: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets that ``to_json`` or Spark's own source has written.

    Raises:
        BadRequest: it does not have that form.
    """
    try:
        return {TopicPartition(t, int(p)): int(o) for t, numbers in document.items() for p, o in numbers.items()}
    except (AttributeError, TypeError, ValueError):
        hint = "it was written by another source: give the query a checkpoint folder of its own"
        raise BadRequest("the checkpoint holds no Kafka offsets", where=str(document)[:100], hint=hint) from None


def ranges_between(
    start: Offsets, stop: Offsets, earliest: Mapping[TopicPartition, int], on_data_loss: OnDataLoss
) -> list[OffsetRange]:
    """Return the ranges between two positions, without empty ones.

    A partition that ``start`` does not have is new, and is read from its beginning. ``earliest`` is the first offset
    that brokers still have: records before it are lost.
    """
    gone = sorted(start.keys() - stop.keys())
    if gone:
        on_data_loss(f"partitions that were read before are gone: {', '.join(map(str, gone))}")
    ranges = []
    for name, end in sorted(stop.items()):
        first = earliest.get(name, 0)
        begin = start.get(name, first)
        if end < first and end < begin:
            on_data_loss(f"records of {name} are gone: needed up to offset {end}, the first is now {first}")
        elif begin > end:
            on_data_loss(f"the end of {name} went back from offset {begin} to {end}: was the topic created again?")
        elif begin < first and begin < end:
            on_data_loss(f"records of {name} are gone: needed from offset {begin} on, the first is now {first}")
            begin = min(first, end)
        if begin < end:
            ranges.append(OffsetRange(*name, begin, end))
    return ranges


def split(ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Cut ranges by their sizes: no piece longer than ``max_records``, and at least ``min_partitions`` of them."""
    pieces = [piece for part in ranges for piece in _cut(part, -(-part.count // max_records) if max_records else 1)]
    if min_partitions is None or len(pieces) >= min_partitions or not pieces:
        return pieces
    total = sum(piece.count for piece in pieces)
    # Small ranges stay whole; the large ones share the rest of ``min_partitions``.
    large = [piece for piece in pieces if piece.count * min_partitions > total]
    share = min_partitions - (len(pieces) - len(large))
    large_total = sum(piece.count for piece in large)
    return [
        piece for part in pieces for piece in _cut(part, -(-part.count * share // large_total) if part in large else 1)
    ]


def _cut(offset_range: OffsetRange, parts: int) -> list[OffsetRange]:
    edges = [offset_range.start + offset_range.count * number // parts for number in range(parts + 1)]
    return [
        OffsetRange(offset_range.topic, offset_range.partition, low, high)
        for low, high in pairwise(edges)
        if low < high
    ]


def limited(start: Offsets, latest: Offsets, earliest: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Return how far about ``most`` records reach: each partition gets its share of what waits, at least one record."""
    begins = {name: start.get(name, earliest.get(name, 0)) for name in latest}
    waiting = {name: end - begins[name] for name, end in latest.items() if end > begins[name]}
    total = sum(waiting.values())
    if total <= most:
        return latest
    ends = dict(latest)
    for name, count in waiting.items():
        share = most * count / total
        ends[name] = min(latest[name], begins[name] + max(1, int(share)))
    return ends


def count_between(start: Offsets, stop: Offsets, earliest: Mapping[TopicPartition, int]) -> int:
    """Return how many offsets lie between two positions."""
    return sum(max(0, end - start.get(name, earliest.get(name, 0))) for name, end in stop.items())
