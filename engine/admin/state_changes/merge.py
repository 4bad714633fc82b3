"""Plans a merge of state-change logs: which logs take part, how times compare, which lines are wanted.

    plan = plan_merge(look_at_logs(find_logs(paths)), MergeWish(start="2h", topics=["orders"]))
    for batch in plan.merge(text_tags(plan)):
        …
    print(plan.problems)

It prints nothing, and parses only what the order needs: ``merged_rows`` parses the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Generic

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Parameter, Phrase
from engine.admin.state_changes.entry_reader import Block, EntryReader, Tag, TagOf, line_count
from engine.admin.state_changes.log_files import FoundLogs, LogFile
from engine.admin.state_changes.log_input import LogProblem, ProblemCounter, ProblemKind
from engine.admin.state_changes.selection import Selection, wanted_numbers, wanted_topics
from engine.admin.state_changes.zones import UtcClock, Zone, has_one_offset, in_zone, start_of
from engine.common.moments import HINT, parse_moment

_CHUNK_BYTES = 1 << 16
"""Larger buffers would come fresh from the system each time, and cost more than reading does."""


@dataclass(frozen=True, slots=True)
class MergeWish:
    """What the user asks for, as typed. ``zones`` are those of brokers; None is the key for all others."""

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
        """Whether clocks of a zone changed within the logs: then a log's order decides what its times mean."""
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


def plan_merge(logs: FoundLogs, wish: MergeWish) -> MergePlan:
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
    is_utc = not _is_one_local_time(logs.files, zones)
    selection = Selection(
        *_bounds(wish, zones[None], is_utc=is_utc, now=datetime.now(UTC)),
        topics=topics,
        partitions=partitions,
        brokers=brokers,
    )
    problems = (*logs.problems, *_absent_brokers(logs.files, brokers))
    plan = MergePlan(logs.files, selection, zones, is_utc, problems, ())
    files = tuple(file for file in logs.files if _can_have_wanted(plan, file))
    return replace(plan, files=files, counters=tuple(ProblemCounter(file.source) for file in files))


def _absent_brokers(files: Sequence[LogFile], wanted: Set[int]) -> Iterator[LogProblem]:
    """Yield a problem for each wanted broker that no log is of; a log that does not say whose it is may be of any."""
    if all(file.broker_ids for file in files):
        logged = {broker_id for file in files for broker_id in file.broker_ids}
        for broker_id in sorted(wanted - logged):
            yield LogProblem(f"broker {broker_id}", ProblemKind.NO_MENTION, "no log is of it")


def _zone_of(file: LogFile, zones: Mapping[int | None, Zone]) -> Zone:
    return zones.get(file.broker_id, zones[None])


def _is_one_local_time(files: Sequence[LogFile], zones: Mapping[int | None, Zone]) -> bool:
    """Whether the times of all lines compare as they are: one zone, without a clock change."""
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


# The times between which lines are wanted, as a person gives them: ISO 8601, log4j's form, or ``2h`` back from now.

_KAFKAS_BEGINNING = "0000-00-00"


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range of time. A moment without a zone has the zone of the lines."""

    moment: datetime

    def start_in(self, zone: Zone, *, as_utc: bool) -> bytes:
        """Return it as the start of a line, in the zone's local time or in UTC."""
        if self.moment.tzinfo is not None:
            return start_of(self.moment.astimezone(UTC if as_utc else zone))
        return start_of(in_zone(self.moment, zone).astimezone(UTC) if as_utc else self.moment)


def parse_bound(text: str, *, now: datetime, is_end: bool) -> Bound | None:
    """Return what ``--start`` or ``--end`` means; None if it is the beginning of all time, as in Kafka's tool.

    Durations are counted back from ``now``. An end that is less exact than a millisecond includes all of its second,
    minute or day.

    Raises:
        BadRequest: it is not a time.
    """
    if text.strip(" '\"").startswith(_KAFKAS_BEGINNING):
        return None
    try:
        return Bound(parse_moment(text, now=now, is_end=is_end))
    except OverflowError:
        return None
    except ValueError:
        raise BadRequest("not a time", where=text, hint=f"give it as {HINT}") from None


# Merges many logs into one order: by time, then by broker, and never changing the order within one log.
#
# Each log is read a block at a time, and only while it is its turn, so memory depends on how many logs overlap, not on
# their size. A block is held back until the next one of its log is read, so lines that are out of order by less than
# that are sorted. Lines that are further out come as soon as they are read, and are counted.

_AFTER_ALL = b"\xff"


@dataclass(slots=True)
class Batch(Generic[Tag]):
    """Entries in their final order."""

    starts: list[bytes]
    tags: list[Tag]
    entries: list[bytes]
    has_continuations: bool
    """Some entry has more than one line."""


@dataclass(frozen=True, slots=True)
class Source(Generic[Tag]):
    """A log that is waiting for its turn. ``first_start`` must not be later than its first entry's time."""

    first_start: bytes
    open: Callable[[], EntryReader[Tag]]
    problems: ProblemCounter


@dataclass(slots=True)
class _Open(Generic[Tag]):
    """A log that is being read. ``number`` is its place among those of the same millisecond."""

    number: int
    reader: EntryReader[Tag]
    problems: ProblemCounter
    starts: list[bytes] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    has_continuations: bool = False
    safe_to: bytes = b""
    """No unread entry is expected to be earlier."""


class Merge(Generic[Tag]):
    """Merges ``sources``, whose order applies to entries of the same millisecond. Iterate over it once."""

    def __init__(self, sources: Sequence[Source[Tag]]) -> None:
        waiting = sorted(enumerate(sources), key=lambda numbered: numbered[1].first_start, reverse=True)
        self._waiting: list[tuple[int, Source[Tag]]] = waiting
        self._open: list[_Open[Tag]] = []
        self._emitted_to = b""
        self._closed_bytes = 0

    @property
    def consumed_bytes(self) -> int:
        """How many bytes of the files were read so far."""
        return self._closed_bytes + sum(log.reader.consumed_bytes for log in self._open)

    def __iter__(self) -> Iterator[Batch[Tag]]:
        try:
            while self._waiting or self._open:
                limit = min((log.safe_to for log in self._open), default=b"")
                if self._waiting and (not self._open or self._waiting[-1][1].first_start <= limit):
                    self._begin(*self._waiting.pop())
                    continue
                batch = self._take_before(limit)
                if batch is not None:
                    yield batch
                self._read_on(limit)
        finally:
            for log in self._open:
                log.reader.close()

    def _begin(self, number: int, source: Source[Tag]) -> None:
        try:
            reader = source.open()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            source.problems.tell(ProblemKind.UNREADABLE, f"cannot be read: {reason}")
            return
        log = _Open(number, reader, source.problems, safe_to=source.first_start)
        self._open.append(log)
        self._open.sort(key=lambda each: each.number)

    def _read_on(self, limit: bytes) -> None:
        """Read the next block of the logs that the others wait for."""
        for log in [log for log in self._open if log.safe_to == limit]:
            if limit == _AFTER_ALL:
                self._closed_bytes += log.reader.consumed_bytes
                self._open.remove(log)
                continue
            block = log.reader.read()
            if block is None:
                log.safe_to = _AFTER_ALL
            else:
                self._add(log, block)

    def _add(self, log: _Open[Tag], block: Block[Tag]) -> None:
        late = bisect_left(block.starts, self._emitted_to)
        log.problems.count(ProblemKind.LATE, sum(map(line_count, block.entries[:late])))
        is_behind = bool(log.starts) and bool(block.starts) and block.starts[0] < log.starts[-1]
        log.starts += block.starts
        log.tags += block.tags
        log.entries += block.entries
        log.has_continuations = log.has_continuations or block.has_continuations
        log.safe_to = max(log.safe_to, block.begins_at)
        if is_behind:
            log.problems.count(ProblemKind.REORDERED)
            whole = Block(log.safe_to, log.starts, log.tags, log.entries)
            whole.put_in_order()
            log.starts, log.tags, log.entries = whole.starts, whole.tags, whole.entries

    def _take_before(self, limit: bytes) -> Batch[Tag] | None:
        """Take what is earlier than ``limit`` from every log."""
        batch: Batch[Tag] = Batch([], [], [], False)
        taken = 0
        for log in self._open:
            count = bisect_left(log.starts, limit)
            if not count:
                continue
            taken += 1
            batch.starts += log.starts[:count]
            batch.tags += log.tags[:count]
            batch.entries += log.entries[:count]
            batch.has_continuations = batch.has_continuations or log.has_continuations
            del log.starts[:count], log.tags[:count], log.entries[:count]
            log.has_continuations = log.has_continuations and bool(log.starts)
        self._emitted_to = max(self._emitted_to, limit)
        if not taken:
            return None
        if taken > 1:
            # The sort keeps each log's order within a millisecond; the logs' places order them among each other.
            block = Block(limit, batch.starts, batch.tags, batch.entries)
            block.put_in_order()
            batch.starts, batch.tags, batch.entries = block.starts, block.tags, block.entries
        return batch
