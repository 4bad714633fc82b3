"""When each replica was out of the ISR, for how long, and which broker led: a row per partition, from the events.
Pure.

Changes that came and went between two samples of the cluster are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from engine.admin.watch.events import Event, EventKind
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot

ISR_KINDS = (EventKind.ISR_SHRANK, EventKind.ISR_GREW, EventKind.ISR_CHANGED)
ABSENT_MAX = 20_000
"""As many are kept as events; the oldest are forgotten first."""


class Absences:
    """The replicas that left an ISR and were not seen to return. Owned by the history.

    It is kept up with each event: searching 20,000 of them at each drawing takes 0.1 s.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._since_ms: dict[tuple[TopicPartition, int], int] = {}
        self.take(events)

    def take(self, events: Iterable[Event]) -> None:
        """Take what happened, oldest first."""
        since_ms = self._since_ms
        for event in events:
            if event.kind not in ISR_KINDS or (name := event.topic_partition) is None:
                continue
            before, after = brokers_in(event.before), brokers_in(event.after)
            for broker in before ^ after:
                since_ms.pop((name, broker), None)
            for broker in before - after:
                since_ms[name, broker] = event.at_ms
        while len(since_ms) > ABSENT_MAX:
            del since_ms[next(iter(since_ms))]

    def present(self, topics: Iterable[TopicSnapshot]) -> Iterator[tuple[int, TopicPartition, int]]:
        """Yield the time, partition and broker of each replica that is still out of sync.

        A replica that was moved away or deleted is not missed any more.
        """
        by_name = {topic.name: topic for topic in topics} if self._since_ms else {}
        for (name, broker), since_ms in self._since_ms.items():
            partition = _partition_now(by_name, name)
            if partition is not None and broker in partition.osr:
                yield since_ms, name, broker


def brokers_in(text: str) -> set[int]:
    """Return the brokers that an event names in ``before`` or ``after``."""
    return {int(part) for part in text.split(",") if part}


def _partition_now(topics: Mapping[str, TopicSnapshot], name: TopicPartition) -> PartitionSnapshot | None:
    """Return a partition as it is; topics list theirs in order, usually without gaps."""
    topic = topics.get(name.topic)
    partitions = () if topic is None else topic.partitions
    if name.partition < len(partitions) and partitions[name.partition].partition == name.partition:
        return partitions[name.partition]
    return next((partition for partition in partitions if partition.partition == name.partition), None)


_LEADER_KINDS = (EventKind.FIRST_LEADER, EventKind.LEADER_CHANGED, EventKind.PARTITION_OFFLINE)


@dataclass(frozen=True, slots=True)
class Absence:
    """A replica was out of the ISR.

    Attributes:
        since_ms: None: since before the first look.
        until_ms: None: it was not seen to return.
    """

    broker: int
    since_ms: int | None
    until_ms: int | None

    def is_present(self, partition: PartitionSnapshot | None) -> bool:
        """Whether it is still out, as the partition is now: a replica that was moved away is not missed any more."""
        return self.until_ms is None and partition is not None and self.broker in partition.osr

    def lasted_s(self, now_ms: int) -> float | None:
        """Return how long it was, or has been, out; None: not known."""
        end_ms = now_ms if self.until_ms is None else self.until_ms
        return None if self.since_ms is None else max(0, end_ms - self.since_ms) / 1000


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """Another replica became leader at a moment; None means no leader."""

    at_ms: int
    before: int | None
    after: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PartitionTimeline:
    """One partition: absences and changes of leaders, oldest first; ``last_ms`` is when the last thing happened."""

    name: TopicPartition
    absences: tuple[Absence, ...]
    leaders: tuple[LeaderChange, ...]
    last_ms: int


@dataclass(slots=True)
class _Row:
    open: dict[int, int] = field(default_factory=dict)
    closed: list[Absence] = field(default_factory=list)
    leaders: list[LeaderChange] = field(default_factory=list)
    last_ms: int = 0


def timelines(events: Iterable[Event]) -> list[PartitionTimeline]:
    """Return a row for each partition whose ISR or leader changed, the latest first; events oldest first."""
    rows: dict[TopicPartition, _Row] = {}
    for event in events:
        name = event.topic_partition
        if name is None or event.kind not in (*ISR_KINDS, *_LEADER_KINDS):
            continue
        row = rows.setdefault(name, _Row())
        row.last_ms = event.at_ms
        if event.kind in ISR_KINDS:
            _note_isr(row, event)
        else:
            row.leaders.append(LeaderChange(event.at_ms, _broker(event.before), _broker(event.after), event.reason))
    partitions = [
        PartitionTimeline(name, _absences(row), tuple(row.leaders), row.last_ms) for name, row in rows.items()
    ]
    return sorted(partitions, key=lambda row: (-row.last_ms, row.name))


def _note_isr(row: _Row, event: Event) -> None:
    before, after = brokers_in(event.before), brokers_in(event.after)
    for broker in sorted(before - after):
        row.open[broker] = event.at_ms
    for broker in sorted(after - before):
        row.closed.append(Absence(broker, row.open.pop(broker, None), event.at_ms))


def _absences(row: _Row) -> tuple[Absence, ...]:
    absences = [*row.closed, *(Absence(broker, since_ms, None) for broker, since_ms in row.open.items())]
    return tuple(sorted(absences, key=lambda row: (row.since_ms or 0, row.broker)))


def _broker(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
