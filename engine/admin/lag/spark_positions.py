"""The positions of Spark's queries, from whichever source. Values only; ``spark_traces`` reads them.

Spark never commits to Kafka. A query's checkpoint, Spark's event log and klamm's listener show its position; all three
become a ``Query``, which amounts to a list of ``Position``s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from engine.admin.lag.history import POINTS_MAX
from engine.admin.lag.verdicts import Point
from engine.common.model import TopicPartition
from engine.kafka.formats.spark_checkpoints import Offsets

BATCHES_MAX: Final = POINTS_MAX + 1
"""This many of a query's latest batches are read."""


class ReaderKind(StrEnum):
    """What kind of reader it is, and which file says so."""

    GROUP = "group"
    CHECKPOINT = "checkpoint"
    EVENT_LOG = "event_log"
    LISTENER = "listener"


class Position(NamedTuple):
    """Where one source of a query is in one partition.

    ``planned`` is where the latest batch ends, which may still be running; ``committed`` is where the latest finished
    one ended. Both are the next offset to read. None is unknown.
    """

    kind: ReaderKind
    job: str
    query_id: str
    run_id: str | None
    batch_id: int
    source: str
    topic: str
    partition: int
    planned: int
    committed: int | None
    planned_ms: int | None
    committed_ms: int | None


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: where it ends in each of Kafka's sources. ``committed_ms`` is None for one that is not finished.

    ``latest`` is where the logs ended when it was planned, if the query says so.
    """

    batch_id: int
    planned_ms: int | None
    committed_ms: int | None
    ends: Mapping[str, Offsets]
    latest: Mapping[str, Offsets] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """A query. ``batches`` are the latest ones in order; all but perhaps the last one are finished.

    ``source_ids`` are those of all its sources, ``initial`` has where some of them began. ``error`` is why its last run
    failed. ``started_ms`` is when it was started, if it has no batch yet and that is known. ``has_ended``: an event log
    says that its last run is over.
    """

    kind: ReaderKind
    path: str
    query_id: str
    name: str | None
    batches: Sequence[Batch]
    source_ids: Sequence[str] = ()
    initial: Mapping[str, Offsets] = field(default_factory=dict)
    run_id: str | None = None
    error: str | None = None
    started_ms: int | None = None
    has_ended: bool = False

    @property
    def job(self) -> str:
        """Its name, else its folder's."""
        return self.name or self.path.rstrip("/").rpartition("/")[2]

    @property
    def last_batch(self) -> Batch | None:
        return self.batches[-1] if self.batches else None

    @property
    def finished(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.committed_ms is not None]

    @property
    def in_flight(self) -> Batch | None:
        """The batch that was planned and is not finished."""
        last = self.last_batch
        return last if last is not None and last.committed_ms is None else None

    @property
    def kafka_sources(self) -> list[str]:
        """The ids of its sources that are Kafka's, in order."""
        return sorted({source for batch in self.batches for source in batch.ends}, key=_by_number)

    def committed(self, source: str) -> Offsets:
        """Return a source's position: where a restart would begin."""
        finished = self.finished
        return finished[-1].ends.get(source, {}) if finished else self.initial.get(source, {})

    def positions(self) -> Iterator[Position]:
        """Yield every partition of every source."""
        last, finished = self.last_batch, self.finished
        if last is None:
            return
        committed_ms = finished[-1].committed_ms if finished else None
        for source in self.kafka_sources:
            committed = self.committed(source)
            for name, planned in sorted(last.ends.get(source, {}).items()):
                yield Position(
                    self.kind, self.job, self.query_id, self.run_id, last.batch_id, source, *name,
                    planned, committed.get(name), last.planned_ms, committed_ms,
                )  # fmt: skip

    def points(self, source: str, name: TopicPartition) -> list[Point]:
        """Return a partition's state when each batch was planned, with the end of the log if it was recorded."""
        begins = self.batches and self.batches[0].batch_id == 0
        points, before = [], self.initial.get(source, {}).get(name) if begins else None
        for batch in self.batches:
            if batch.planned_ms is not None and before is not None:
                points.append(Point(batch.planned_ms, before, batch.latest.get(source, {}).get(name)))
            before = batch.ends.get(source, {}).get(name, before)
        return points


def _by_number(source: str) -> tuple[int, str]:
    return (int(source), "") if source.isdigit() else (1 << 31, source)
