"""The ends of very many logs, in two numbers each. Pure.

As values of their own, the ends of 50,000 partitions take 7 MB in each frame in which they move. Here they take less
than 1 MB, and a topic whose ends did not move shares its numbers with the frame before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from engine.admin.watch.frame import PartitionOffsets
from engine.common.model import TopicPartition

Rows: TypeAlias = "array[int]"
"""Of one topic: end and time of each partition number, one after the other; ``UNKNOWN`` where there is none."""

UNKNOWN = -1


class LogEnds(Mapping[TopicPartition, PartitionOffsets]):
    """Ends by partition. Never changed after it was made; ``with_ends`` and ``of_rows`` make the next one."""

    __slots__ = ("_count", "_topics")

    def __init__(self, topics: Mapping[str, Rows] | None = None) -> None:
        self._topics: Mapping[str, Rows] = {} if topics is None else topics
        self._count = sum(len(rows) // 2 - rows[::2].count(UNKNOWN) for rows in self._topics.values())

    @classmethod
    def of(cls, known: Mapping[TopicPartition, PartitionOffsets]) -> LogEnds:
        """Return a mapping in this form; the same object if it has it."""
        return known if isinstance(known, cls) else cls().with_ends((name, *offsets) for name, offsets in known.items())

    def with_ends(self, ends: Iterable[tuple[TopicPartition, int, int]]) -> LogEnds:
        """Return these ends, each with its time, beside the others; the time of an end that is known already stays."""
        topics, own = dict(self._topics), set[str]()
        for (topic, partition), end, at_ms in ends:
            rows, place = topics.get(topic), 2 * partition
            if rows is not None and place < len(rows) and rows[place] == end:
                continue
            if rows is None or topic not in own:
                rows = topics[topic] = array("q", rows or ())
                own.add(topic)
            if place >= len(rows):
                rows.extend([UNKNOWN, 0] * (partition + 1 - len(rows) // 2))
            rows[place], rows[place + 1] = end, at_ms
        return LogEnds(topics)

    def only(self, partitions: Mapping[str, int]) -> LogEnds:
        """Return the ends of these topics, for this many partitions of each; this object if that is all."""
        if all(len(rows) <= 2 * partitions.get(topic, 0) for topic, rows in self._topics.items()):
            return self
        return LogEnds(
            {topic: rows[: 2 * partitions[topic]] for topic, rows in self._topics.items() if topic in partitions}
        )

    @property
    def by_topic(self) -> Mapping[str, Rows]:
        """The numbers of each topic; do not change them."""
        return self._topics

    @property
    def total(self) -> int:
        """The sum of all ends."""
        return sum(sum(ends) + ends.count(UNKNOWN) for ends in (rows[::2] for rows in self._topics.values()))

    def grown(self, topic: str, before: LogEnds) -> list[int | None]:
        """Return by how much each end of a topic has grown, by partition number; None where one is not known."""
        now, then = self._topics.get(topic, ()), before._topics.get(topic, ())
        return [
            None if UNKNOWN in (end, first) else end - first for end, first in zip(now[::2], then[::2], strict=False)
        ]

    def end(self, name: TopicPartition) -> int | None:
        """Return where a log ends, without making a value of it; None if that is not known."""
        topic, partition = name
        rows = self._topics.get(topic, ())
        if not 0 <= partition < len(rows) // 2 or (end := rows[2 * partition]) == UNKNOWN:
            return None
        return end

    def __getitem__(self, name: TopicPartition) -> PartitionOffsets:
        topic, partition = name
        rows = self._topics[topic]
        if not 0 <= partition < len(rows) // 2 or rows[2 * partition] == UNKNOWN:
            raise KeyError(name)
        return PartitionOffsets(rows[2 * partition], rows[2 * partition + 1])

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, rows in self._topics.items():
            for partition, end in enumerate(rows[::2]):
                if end != UNKNOWN:
                    yield TopicPartition(topic, partition)

    def __len__(self) -> int:
        return self._count
