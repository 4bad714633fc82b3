"""Plans a merge of state-change logs: which logs take part, how times compare, which lines are wanted.

    plan = plan_merge(look_at_logs(find_logs(paths)), MergeWish(start="2h", topics=["orders"]))
    for batch in plan.merge(text_tags(plan)):
        …
    print(plan.problems)

It prints nothing, and parses only what the order needs: ``merged_text`` and ``merged_rows`` do the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Parameter, Phrase
from engine.admin.state_changes.entry_reader import EntryReader, Tag, TagOf
from engine.admin.state_changes.log_files import FoundLogs, LogFile
from engine.admin.state_changes.merging import Merge, Source
from engine.admin.state_changes.problems import LogProblem, ProblemCounter, ProblemKind
from engine.admin.state_changes.selection import Selection, wanted_numbers, wanted_topics
from engine.admin.state_changes.time_bounds import parse_bound
from engine.admin.state_changes.zones import UtcClock, Zone, has_one_offset

_CHUNK_BYTES = 1 << 16
"""Larger buffers would come fresh from the system each time, and cost more than reading does."""


@dataclass(frozen=True, slots=True)
class MergeWish:
    """What a person asks for, in words. ``zones`` are those of brokers; None is the key for all others."""

    start: str | None = None
    end: str | None = None
    topics: Sequence[str] = ()
    partitions: Sequence[str] = ()
    brokers: Sequence[str] = ()
    zones: Mapping[int | None, Zone] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What will be merged. ``is_utc``: times are compared in UTC, else as they are in the lines."""

    files: tuple[LogFile, ...]
    selection: Selection
    zones: Mapping[int | None, Zone]
    is_utc: bool
    found_problems: tuple[LogProblem, ...]
    counters: tuple[ProblemCounter, ...]

    @property
    def size_bytes(self) -> int:
        """How many bytes will be read; pipes are not counted."""
        return sum(file.size_bytes for file in self.files)

    @property
    def problems(self) -> list[LogProblem]:
        """Problems of the logs, as far as they were read."""
        met = {topic for counter in self.counters for topic in counter.topics_met}
        absent = [topic.decode() for topic in sorted(self.selection.topics - met)]
        return [
            *self.found_problems,
            *(problem for counter in self.counters for problem in counter.problems),
            *(LogProblem(f"topic {name}", ProblemKind.NO_MENTION, "no log names it in that period") for name in absent),
        ]

    @property
    def broker_ids(self) -> list[int]:
        """The brokers whose logs take part."""
        return sorted({broker_id for file in self.files for broker_id in file.broker_ids})

    def merge(self, tag_of: TagOf[Tag], *, in_bursts: bool = False) -> Merge[Tag]:
        """Return the merge, ready to be iterated over once.

        ``in_bursts``: entries of one log and the same millisecond may come as one, with line feeds between them.
        """
        return Merge([self._source(number, tag_of, in_bursts=in_bursts) for number in range(len(self.files))])

    def utc_clock(self) -> UtcClock | None:
        """Return a converter of the merge's times into UTC; None if they are in UTC."""
        return None if self.is_utc else UtcClock(self.zones[None] if not self.files else self._zone(self.files[0]))

    def clock_of(self, file: LogFile) -> UtcClock | None:
        """Return a converter of a log's times into comparable ones; None if they compare as they are."""
        return UtcClock(self._zone(file)) if self.is_utc else None

    @property
    def has_changed_clocks(self) -> bool:
        """Whether clocks of a zone changed meanwhile: then a log's order decides what its times mean."""
        if not self.is_utc or not self.files:
            return False
        first = min(file.first_start for file in self.files)
        last = max(file.last_start or file.first_start for file in self.files)
        return not all(has_one_offset(zone, first, last) for zone in {self._zone(file) for file in self.files})

    def _zone(self, file: LogFile) -> Zone:
        return _zone_of(file, self.zones)

    def _source(self, number: int, tag_of: TagOf[Tag], *, in_bursts: bool) -> Source[Tag]:
        file, counter = self.files[number], self.counters[number]
        lead_start = self.lead_start(number)

        def open_reader() -> EntryReader[Tag]:
            clock = self.clock_of(file)
            return EntryReader(
                file,
                tag_of,
                self.selection,
                counter,
                chunk_bytes=_CHUNK_BYTES,
                clock=clock,
                lead_start=lead_start,
                in_bursts=in_bursts,
            )

        return Source(min(lead_start, self._order_start(file, file.first_start)), open_reader, counter)

    def lead_start(self, number: int) -> bytes:
        """Return when a log's leading lines without a time were written: at the end of the broker's previous log."""
        file = self.files[number]
        own = self._order_start(file, file.first_start)
        before = self.files[number - 1] if number else None
        if before is None or before.broker_ids != file.broker_ids or before.last_start is None:
            return own
        return min(own, self._order_start(before, before.last_start))

    def _order_start(self, file: LogFile, start: bytes) -> bytes:
        return UtcClock(self._zone(file)).starts([start])[0] if self.is_utc else start


def plan_merge(found: FoundLogs, wish: MergeWish, *, now: datetime | None = None) -> MergePlan:
    """Decide what to merge.

    Raises:
        BadRequest: a wish is invalid.
    """
    topics = wanted_topics(list(wish.topics))
    partitions = wanted_numbers(list(wish.partitions), "partition")
    if partitions and not topics:
        hint = Phrase("name the topic too, with ", Parameter.TOPIC)
        raise BadRequest("partitions are given without a topic", hint=hint)
    brokers = wanted_numbers(list(wish.brokers), "broker")
    zones = {None: None, **wish.zones}
    is_utc = not _is_one_local_time(found.files, zones)
    selection = Selection(
        *_bounds(wish, zones[None], is_utc=is_utc, now=now or datetime.now(UTC)),
        topics=topics,
        partitions=partitions,
        brokers=brokers,
    )
    problems = (*found.problems, *_absent_brokers(found.files, brokers))
    plan = MergePlan(found.files, selection, zones, is_utc, problems, ())
    files = tuple(file for file in found.files if _can_have_wanted(plan, file))
    return replace(plan, files=files, counters=tuple(ProblemCounter(file.source) for file in files))


def _absent_brokers(files: Sequence[LogFile], wanted: Set[int]) -> Iterator[LogProblem]:
    """Yield a problem for each wanted broker that no log is of; a log that does not say whose it is may be of any."""
    if all(file.broker_ids for file in files):
        there = {broker_id for file in files for broker_id in file.broker_ids}
        for broker_id in sorted(wanted - there):
            yield LogProblem(f"broker {broker_id}", ProblemKind.NO_MENTION, "no log is of it")


def _zone_of(file: LogFile, zones: Mapping[int | None, Zone]) -> Zone:
    return zones.get(file.broker_id, zones[None])


def _is_one_local_time(files: Sequence[LogFile], zones: Mapping[int | None, Zone]) -> bool:
    """Whether the times of all lines compare as they are: one zone, without a clock change meanwhile."""
    if not files:
        return True
    used = {_zone_of(file, zones) for file in files}
    first = min(file.first_start for file in files)
    last = max(file.last_start or file.first_start for file in files)
    return len(used) == 1 and has_one_offset(next(iter(used)), first, last)


def _bounds(wish: MergeWish, zone: Zone, *, is_utc: bool, now: datetime) -> tuple[bytes | None, bytes | None]:
    texts = ((wish.start, False), (wish.end, True))
    bounds = [None if text is None else parse_bound(text, now=now, is_end=is_end) for text, is_end in texts]
    start, end = (None if bound is None else bound.start_in(zone, as_utc=is_utc) for bound in bounds)
    if start is not None and end is not None and start > end:
        raise BadRequest("the start is later than the end", where=f"{wish.start} … {wish.end}")
    return start, end


def _can_have_wanted(plan: MergePlan, file: LogFile) -> bool:
    """Whether a log can have a wanted line; otherwise it is not opened again."""
    selection = plan.selection
    if selection.brokers and file.broker_id is not None and file.broker_id not in selection.brokers:
        return False
    if selection.reads_to is not None and plan._order_start(file, file.first_start) > selection.reads_to:
        return False
    if selection.reads_from is None or file.last_start is None:
        return True
    return plan._order_start(file, file.last_start) >= selection.reads_from
