"""The ends of very many logs, as two numbers each, and their replicas on disk, as four numbers each. Pure.

As separate objects, the ends of 50,000 partitions would take 7 MB in each frame in which they move; here they take
less than 1 MB. 150,000 replicas take 5 MB instead of 24 MB, or twice as much while a newer reading replaces an older
one. A topic that did not change shares its numbers with the previous frame.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from engine.admin.watch.frame import PartitionOffsets
from engine.common.model import TopicPartition
from engine.common.snapshot import ReplicaLog

Rows: TypeAlias = "array[int]"
"""The numbers of one topic: of its ends, two for each partition number; of its replicas, ``WIDTH`` for each."""

UNKNOWN = -1
"""Both numbers of a partition whose end is not known."""


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


Place = tuple[int, bool, str]
"""A broker, whether the replica there is a future one, and the log dir."""

WIDTH = 4
"""Partition, number of the place, bytes and lag of each replica, one after the other."""


class ReplicaLogs(Mapping[TopicPartition, tuple[ReplicaLog, ...]]):
    """Logs by partition, those of each by broker. Never changed after it was made."""

    __slots__ = ("_count", "_places", "_topics")

    def __init__(self, places: tuple[Place, ...] = (), topics: Mapping[str, Rows] | None = None) -> None:
        self._places = places
        self._topics: Mapping[str, Rows] = {} if topics is None else topics
        self._count: int | None = None

    @classmethod
    def of(cls, known: Mapping[TopicPartition, Iterable[ReplicaLog]]) -> ReplicaLogs:
        """Return a mapping in this form; the same object if it has it."""
        if isinstance(known, cls):
            return known
        making = LogsMaker()
        for name, logs in known.items():
            for log in logs:
                making.add(name.topic, name.partition, log)
        return making.made(cls())

    @property
    def places(self) -> tuple[Place, ...]:
        return self._places

    @property
    def by_topic(self) -> Mapping[str, Rows]:
        """The numbers of each topic; do not change them."""
        return self._topics

    def logs(self) -> Iterator[tuple[str, int, ReplicaLog]]:
        """Yield every replica's log with topic and partition."""
        for topic, rows in self._topics.items():
            for at in range(0, len(rows), WIDTH):
                yield topic, rows[at], self._log(rows, at)

    def topic_bytes(self, topic: str) -> int | None:
        """Return the bytes of all replicas of a topic; None if none was reported."""
        rows = self._topics.get(topic)
        return None if rows is None else sum(rows[2::WIDTH])

    def numbers(self, name: TopicPartition) -> Iterator[tuple[int, bool, int, int]]:
        """Yield broker, whether it is a future one, bytes and lag of each replica: a table of very many asks for them.

        To make a value of each replica takes several times as long.
        """
        topic, partition = name
        rows = self._topics.get(topic, ())
        for at in _places_of(rows, partition):
            broker, is_future, _ = self._places[rows[at + 1]]
            yield broker, is_future, rows[at + 2], rows[at + 3]

    def __getitem__(self, name: TopicPartition) -> tuple[ReplicaLog, ...]:
        topic, partition = name
        rows = self._topics[topic]
        logs = tuple(self._log(rows, at) for at in _places_of(rows, partition))
        if not logs:
            raise KeyError(name)
        return logs

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, rows in self._topics.items():
            for partition in dict.fromkeys(rows[::WIDTH]):
                yield TopicPartition(topic, partition)

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(len(set(rows[::WIDTH])) for rows in self._topics.values())
        return self._count

    def _log(self, rows: Rows, at: int) -> ReplicaLog:
        broker, is_future, log_dir = self._places[rows[at + 1]]
        return ReplicaLog(broker, log_dir, rows[at + 2], rows[at + 3], is_future)


def _places_of(rows: Sequence[int], partition: int) -> range:
    """Return where the numbers of a partition's replicas begin."""
    end = len(rows)
    if not end:
        return range(0)
    # Nearly always all partitions have equally many replicas, and the first one is where it would be then.
    first = WIDTH * partition * (end // WIDTH // (rows[-WIDTH] + 1))
    if not (0 <= first < end and rows[first] == partition and (first == 0 or rows[first - WIDTH] != partition)):
        first = WIDTH * bisect_left(_Partitions(rows), partition)
    last = first
    while last < end and rows[last] == partition:
        last += WIDTH
    return range(first, last, WIDTH)


class _Partitions:
    """The partition of each replica of a topic, to search in."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[int]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows) // WIDTH

    def __getitem__(self, index: int) -> int:
        return self._rows[index * WIDTH]


class LogsMaker:
    """Takes logs in any order, and makes the mapping of them."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[int, Place, int, int]]] = {}
        self._places: dict[Place, Place] = {}

    def add(self, topic: str, partition: int, log: ReplicaLog) -> None:
        """Take one replica's log."""
        place = log.broker, log.is_future, log.log_dir
        place = self._places.setdefault(place, place)
        self._rows.setdefault(topic, []).append((partition, place, log.size_bytes, log.offset_lag))

    def made(self, before: ReplicaLogs) -> ReplicaLogs:
        """Return them all; what is the same as ``before`` shares its numbers."""
        places = tuple(sorted(self._places))
        if places == before.places:
            places = before.places
        numbers = {place: number for number, place in enumerate(places)}
        topics: dict[str, Rows] = {}
        for topic, replicas in self._rows.items():
            rows = array("q")
            for partition, place, size_bytes, lag in sorted(replicas):
                rows.extend((partition, numbers[place], size_bytes, lag))
            known = before.by_topic.get(topic)
            topics[topic] = known if known == rows and places is before.places and known is not None else rows
        return ReplicaLogs(places, topics)
