"""How many records a second arrive: by partition, topic and broker, and in all. Pure.

The rates follow from the ends of logs, so only these are kept of earlier frames: the rest of a large cluster's frames
takes tens of megabytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cached_property

from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.packed_logs import LogEnds
from engine.common.model import TopicPartition
from engine.common.snapshot import TopicSnapshot

OVER_MS = 10_000
"""Rates are over the last seconds: one poll alone jumps."""
MANY_PARTITIONS = 5_000
"""From this many on, figures that need a look at each partition in each frame are left out."""
SLICE = 5_000
"""This many partitions are counted in one frame; the others wait for the next."""


class _Ends:
    """The ends of one frame's logs, when they were read, and whether they should have been read again since."""

    def __init__(self, frame: Frame) -> None:
        status = frame.stage(Stage.OFFSETS)
        self.read_at_ms = status.read_at_ms or 0
        self.is_overdue = frame.at_ms - self.read_at_ms > OVER_MS + (status.interval_ms or 0)
        self.ends = LogEnds.of(frame.offsets)

    @cached_property
    def total(self) -> int:
        return self.ends.total

    def elapsed_ms(self, then: _Ends) -> int:
        """Return the time since earlier ends were read."""
        return self.read_at_ms - then.read_at_ms


class Rates:
    """The rates of the newest frame that it took; None is not known.

    Attributes:
        in_per_s: records a second of the whole cluster.
        in_by_broker: records a second, by the broker that leads; empty if not known. Of a cluster of more than
            ``SLICE`` partitions it is some frames old: all at once would hold the loop.
    """

    def __init__(self) -> None:
        self.in_per_s: float | None = None
        self.in_by_broker: dict[int, float] = {}
        self._topics: tuple[TopicSnapshot, ...] = ()
        self._at_ms = 0
        self._past: deque[_Ends] = deque()
        self._span: tuple[_Ends, _Ends, int] | None = None
        """The newest ends, those that rates are counted from, and the time between; None if there is no such time."""
        self._counting: Iterator[int] | None = None
        self._of_topics: dict[str, float | None] = {}
        """Results for the newest frame: several columns of a row need them."""

    def take(self, frame: Frame) -> None:
        """Take a newer frame; a frame from another time (a seek in a recording) discards the past."""
        now, past = _Ends(frame), self._past
        if frame.at_ms < self._at_ms:
            past.clear()
            self._counting = None
        self._at_ms, self._of_topics = frame.at_ms, {}
        self._topics = () if frame.cluster is None else frame.cluster.topics
        if now.ends and (not past or now.elapsed_ms(past[-1]) >= OVER_MS / 4):
            past.append(now)
        while len(past) > 2 and now.elapsed_ms(past[1]) >= OVER_MS:
            past.popleft()
        is_later = bool(past) and now.elapsed_ms(past[0]) > 0 and not now.is_overdue
        self._span = (now, past[0], now.elapsed_ms(past[0])) if is_later else None
        is_empty = frame.cluster is not None and not self._topics
        self.in_per_s = 0.0 if is_empty else self._in_all()
        self._count_by_broker(frozenset() if frame.cluster is None else frozenset(frame.cluster.live_broker_ids))

    def partition_in(self, name: TopicPartition) -> float | None:
        """Return how many records a second a partition gets."""
        if self._span is None:
            return None
        now, then, elapsed_ms = self._span
        end, before = now.ends.end(name), then.ends.end(name)
        return None if end is None or before is None else max(0.0, (end - before) * 1000 / elapsed_ms)

    def topic_in(self, topic: TopicSnapshot) -> float | None:
        """Return how many records a second a topic gets, over the partitions whose rate is known."""
        if self._span is None:
            return None
        if topic.name not in self._of_topics:
            now, then, elapsed_ms = self._span
            known = [records for records in now.ends.grown(topic.name, then.ends) if records is not None]
            self._of_topics[topic.name] = (
                sum(max(0, records) for records in known) * 1000 / elapsed_ms if known else None
            )
        return self._of_topics[topic.name]

    def busiest_topics(self, count: int) -> list[tuple[TopicSnapshot, float]]:
        """Return the topics that get the most records, at least one in two seconds, which is shown as one a second.

        There is none if there are too many to look at in every frame.
        """
        if count <= 0 or sum(len(topic.partitions) for topic in self._topics) > MANY_PARTITIONS:
            return []
        rates = [(topic, rate) for topic in self._topics if (rate := self.topic_in(topic) or 0.0) >= 0.5]
        return sorted(rates, key=lambda pair: -pair[1])[:count]

    def _in_all(self) -> float | None:
        """Return how many records a second the cluster gets."""
        if self._span is None or not self._span[0].ends:
            return None
        now, then, elapsed_ms = self._span
        if len(now.ends) == len(then.ends):
            # Sums are a tenth of the work, and the same as long as no partition comes or goes.
            grown = now.total - then.total
        else:
            grown = sum(records or 0 for topic in self._topics for records in now.ends.grown(topic.name, then.ends))
        return max(0.0, grown * 1000 / elapsed_ms)

    def _count_by_broker(self, live: frozenset[int]) -> None:
        """Count what each broker gets, a slice in each frame."""
        if self._counting is None:
            if self._span is None or not self._span[0].ends:
                self.in_by_broker = {}
                return
            self._counting = self._counted_in_slices(*self._span, live)
        if next(self._counting, None) is None:
            self._counting = None

    def _counted_in_slices(self, now: _Ends, then: _Ends, elapsed_ms: int, live: frozenset[int]) -> Iterator[int]:
        """Yield after each slice; at the end the result is there."""
        counted = 0
        grown = dict.fromkeys(live, 0)
        for topic in self._topics:
            counts = now.ends.grown(topic.name, then.ends)
            for partition in topic.partitions:
                count = counts[partition.partition] if partition.partition < len(counts) else None
                if partition.leader in grown and count is not None:
                    grown[partition.leader] += count
            counted += len(topic.partitions)
            if counted >= SLICE:
                yield counted
                counted = 0
        self.in_by_broker = {broker: max(0.0, count * 1000 / elapsed_ms) for broker, count in grown.items()}
