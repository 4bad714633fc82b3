"""Which partition states to read next if only ZooKeeper has them: a few at each tick, in turn. Pure.

Watching thousands of state znodes is not free: each watch costs a read, and another after each event. So states are
read in rotation, the oldest first, and before them the suspects: a broker that they involve came or went, or ZooKeeper
has a notice of a changed ISR.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from engine.common.model import TopicPartition

READS_PER_S = 8
"""How many states to read in a second while nothing happens: below ten requests together with the watches."""

SUSPECTS_PER_S = 2_000
"""How many states to read in a second while there are suspect partitions."""


class Rotation:
    """The order in which states are read. The time is any clock that does not go back."""

    def __init__(self) -> None:
        self._read_ms: dict[TopicPartition, int] = {}
        self._queue: list[tuple[int, TopicPartition]] = []
        self._suspects: dict[TopicPartition, None] = {}

    @property
    def suspect_count(self) -> int:
        return len(self._suspects)

    def set_partitions(self, names: Iterable[TopicPartition]) -> None:
        """Set which partitions there are now. New ones are suspects: nothing is known about them."""
        wanted = set(names)
        for name in [name for name in self._read_ms if name not in wanted]:
            del self._read_ms[name]
            self._suspects.pop(name, None)
        for name in wanted - self._read_ms.keys():
            self._read_ms[name] = 0
            heappush(self._queue, (0, name))
            self._suspects[name] = None

    def suspect(self, names: Iterable[TopicPartition]) -> None:
        """Read these before all others."""
        self._suspects.update((name, None) for name in names if name in self._read_ms)

    def take(self, elapsed_s: float) -> list[TopicPartition]:
        """Return what to read after ``elapsed_s`` without reading; call ``was_read`` after that."""
        chosen = list(self._suspects)[: max(1, round(SUSPECTS_PER_S * elapsed_s))]
        for name in chosen:
            del self._suspects[name]
        taken = set(chosen)
        ordinary = max(1, round(READS_PER_S * elapsed_s)) - len(chosen)
        while ordinary > 0 and self._queue:
            read_ms, name = heappop(self._queue)
            # An entry is void if its partition is gone, or was read since.
            if self._read_ms.get(name) == read_ms and name not in taken:
                chosen.append(name)
                taken.add(name)
                ordinary -= 1
        return chosen

    def was_read(self, names: Iterable[TopicPartition], now_ms: int) -> None:
        """These were read, or tried; their next turn comes after all others."""
        for name in names:
            if name in self._read_ms:
                self._read_ms[name] = now_ms
                heappush(self._queue, (now_ms, name))

    def age_of_oldest(self, now_ms: int, read_at_ms: Mapping[TopicPartition, int]) -> int | None:
        """Return the age of the oldest state that was read; None: not all have been read yet."""
        if len(read_at_ms) < len(self._read_ms):
            return None
        return max((now_ms - at for at in read_at_ms.values()), default=0)
