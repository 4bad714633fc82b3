"""When to read a stage next: as often as wanted, less often if reading takes long, and later after failures. Pure.

That is the feed's back-pressure: a stage that stays slow takes no more than its share of the time, however large the
cluster is.
Times are milliseconds of one clock.

If only ZooKeeper has the states of partitions, ``Rotation`` says which to read: a few at each tick, in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from heapq import heappop, heappush

from engine.common.model import TopicPartition

BACK_OFF_MS = 1_000
BACK_OFF_MAX_MS = 10_000

READS_PER_S = 8
"""How many states to read in a second while nothing happens: below ten requests together with the watches."""

SUSPECTS_PER_S = 2_000
"""How many states to read in a second while there are suspect partitions."""


class StageSchedule:
    """The times of one stage.

    Args:
        interval_ms: time from the start of one reading to that of the next; None is the feed's own tick.
        share: the share of the time for reading: what takes 300 ms with a share of 0.1 is read every 3 s.
        ticks: it is read no more often than after so many ticks.
    """

    def __init__(self, interval_ms: int | None, share: float, ticks: int = 1) -> None:
        self._wanted_ms = interval_ms
        self._share = share
        self._ticks = ticks
        self._failures = 0
        self._must_repeat = False
        self._whole_cost_ms = 0
        self.started_ms: int | None = None
        """When the current reading began."""
        self.next_ms: int | None = 0
        """When it is read next; None while it is being read."""
        self.interval_ms = interval_ms or 0
        """The latest time from one reading to the next."""

    def is_due(self, now_ms: int) -> bool:
        return self.next_ms is not None and now_ms >= self.next_ms

    def trigger(self, now_ms: int) -> None:
        """Read it now, or once more if it is being read: that reading may have begun too early."""
        if self.started_ms is not None:
            self._must_repeat = True
        else:
            self.next_ms = now_ms
            self._failures = 0

    def start(self, now_ms: int) -> None:
        """Reading begins."""
        self.started_ms, self.next_ms, self._must_repeat = now_ms, None, False

    def succeed(self, now_ms: int, tick_ms: int, *, is_partial: bool = False) -> int:
        """Reading ended well; return how long it took.

        The share applies to the faster one of the last two whole readings: the first one also connects, and one that
        was slow alone was held up by something else.

        Args:
            is_partial: a broker did not answer. Waiting for it was no work, so the next reading begins a second later,
            and the share does not apply to the wait. It still applies to the time of a whole reading.
        """
        cost_ms = self._end(now_ms)
        self._failures = 0
        work_ms = min(cost_ms, self._whole_cost_ms)
        pause_ms = cost_ms + BACK_OFF_MS if is_partial else 0
        if not is_partial:
            self._whole_cost_ms = cost_ms
        # More often than frames are made, it would not be seen.
        self.interval_ms = max(self._wanted_ms or 0, self._ticks * tick_ms, round(work_ms / self._share), pause_ms)
        self.next_ms = now_ms if self._must_repeat else max(now_ms, now_ms - cost_ms + self.interval_ms)
        return cost_ms

    def hasten(self, interval_ms: int, cost_ms: int) -> None:
        """Make the next reading come this soon, once, as far as the share allows."""
        if self.next_ms is not None:
            sooner_ms = max(interval_ms, round(cost_ms / self._share))
            self.next_ms += min(0, sooner_ms - self.interval_ms)
            self.interval_ms = min(self.interval_ms, sooner_ms)

    def fail(self, now_ms: int, tick_ms: int) -> None:
        """Reading failed: the next try comes later after each failure."""
        cost_ms = self._end(now_ms)
        back_off_ms = min(BACK_OFF_MAX_MS, BACK_OFF_MS * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self.interval_ms = max(self._wanted_ms or 0, tick_ms, back_off_ms)
        self.next_ms = now_ms if self._must_repeat else now_ms + max(0, back_off_ms - cost_ms, back_off_ms // 2)

    def _end(self, now_ms: int) -> int:
        started_ms = now_ms if self.started_ms is None else self.started_ms
        self.started_ms = None
        return now_ms - started_ms


class Rotation:
    """The order in which states are read. The time is any clock that does not go back."""

    def __init__(self) -> None:
        self._numbers: dict[str, Set[int]] = {}
        self._read_ms: dict[TopicPartition, int] = {}
        self._queue: list[tuple[int, TopicPartition]] = []
        self._suspects: dict[TopicPartition, None] = {}

    @property
    def suspect_count(self) -> int:
        return len(self._suspects)

    @property
    def is_empty(self) -> bool:
        return not self._read_ms

    def set_partitions(self, topic: str, numbers: Set[int]) -> None:
        """Set which partitions a topic has now; none: it is gone. New ones are suspects: nobody knows their states."""
        before = self._numbers.pop(topic, frozenset())
        if numbers:
            self._numbers[topic] = numbers
        for number in before - numbers:
            name = TopicPartition(topic, number)
            del self._read_ms[name]
            self._suspects.pop(name, None)
        for number in numbers - before:
            name = TopicPartition(topic, number)
            self._read_ms[name] = 0
            heappush(self._queue, (0, name))
            self._suspects[name] = None

    def suspect_all(self) -> None:
        """Read all of them as soon as possible."""
        self._suspects.update(dict.fromkeys(self._read_ms))

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
