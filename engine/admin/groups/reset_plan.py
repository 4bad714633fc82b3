"""The options of a reset of offsets, and the offset that it gives each partition, by Kafka's rules. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum, auto

from engine.admin.cluster.errors import AdminError, BadRequest, Unknown
from engine.admin.cluster.remedies import Parameter, Phrase
from engine.admin.groups.values import CommittedOffset, GroupOffsets, GroupType
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.moments import HINT, moment_ms
from engine.common.quantities import parse_duration_s

OffsetsByGroup = Mapping[str, Mapping[TopicPartition, int]]

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d{1,9})D)?(?:T(?:([-+]?\d{1,9})H)?(?:([-+]?\d{1,9})M)?(?:([-+]?\d{1,12})(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE,
)


class ResetTo(Enum):
    """Where to: Kafka's eight scenarios."""

    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    OFFSET = auto()
    SHIFT_BY = auto()
    TIME = auto()
    FILE = auto()


@dataclass(frozen=True, slots=True)
class ResetSpec:
    """One scenario. ``value`` is an offset, a number of records, or milliseconds since 1970; ``offsets`` a file's."""

    to: ResetTo
    value: int = 0
    offsets: OffsetsByGroup | None = None


@dataclass(frozen=True, slots=True)
class TopicScope:
    """Topics with their chosen partitions; None is all of the topic."""

    topics: tuple[tuple[str, tuple[int, ...] | None], ...]


def parse_datetime(text: str) -> int:
    """Return the milliseconds of ``2026-11-21T12:23:04.866``; without a zone it is UTC, as in Kafka's tool.

    Raises:
        BadRequest: it is not a time.
    """
    try:
        return moment_ms(text, now=datetime.now(UTC))
    except ValueError as error:
        raise BadRequest(str(error), where=Parameter.TO_DATETIME, hint=f"write {HINT}") from None


def parse_iso_duration(text: str) -> timedelta:
    """Return the duration that ISO 8601 and Java write as ``P1DT2H30M``, or that a person writes as ``26h``.

    Raises:
        BadRequest: it is not one.
    """
    with suppress(ValueError, OverflowError):
        return timedelta(seconds=parse_duration_s(text))
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()[1:]) or text.strip()[-1] in "tT":
        hint = "write 30m, 2h or 1d, or as Kafka's tool PnDTnHnMnS: PT30M is half an hour"
        raise BadRequest(f"not a duration: {text!r}", where=Parameter.BY_DURATION, hint=hint)
    sign, days, hours, minutes, seconds, fraction = match.groups()
    part = timedelta(microseconds=int(f"{fraction or '':0<6}"[:6]))
    duration = timedelta(
        days=int(days or 0), hours=int(hours or 0), minutes=int(minutes or 0), seconds=int(seconds or 0)
    )
    duration += -part if (seconds or "").startswith("-") else part
    return -duration if sign == "-" else duration


def before_now(duration: timedelta, now: datetime) -> int:
    """Return the milliseconds of the moment that long ago; never before 1970."""
    try:
        return max(0, round((now - duration).timestamp() * 1000))
    except OverflowError:
        return 0


def parse_topic_scope(texts: Iterable[str]) -> TopicScope:
    """Return what ``t``, ``t:0,1`` and so on mean; the same topic may come again.

    Raises:
        BadRequest: a partition is not a number, or there is nothing before or after the colon.
    """
    scope: dict[str, tuple[int, ...] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        parts = numbers.split(",") if colon else []
        if not topic or (colon and not all(part.isascii() and part.isdigit() for part in parts)):
            raise BadRequest(
                f"not a topic with partitions: {text!r}", where=Parameter.TOPIC, hint="write orders or orders:0,1,2"
            )
        if not parts or (topic in scope and scope[topic] is None):
            scope[topic] = None
        else:
            scope[topic] = tuple(sorted({*(scope.get(topic) or ()), *map(int, parts)}))
    return TopicScope(tuple(scope.items()))


def parse_offsets_file(text: str, where: str, *, only_group: str | None) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets of a file by group.

    Lines are ``group,topic,partition,offset``, or lack the group if ``only_group`` names it.

    Raises:
        BadRequest: it has no lines, one is malformed, or a partition occurs twice; says which line.
    """
    by_group: dict[str, dict[TopicPartition, int]] = {}
    width = None
    for number, cells in enumerate(csv.reader(io.StringIO(text, newline="")), 1):
        if not cells:
            continue
        width = width or _width(cells, only_group, f"{where}:{number}")
        group, partition, offset = _line(cells, width, only_group, f"{where}:{number}")
        offsets = by_group.setdefault(group, {})
        if partition in offsets:
            raise BadRequest(f"partition {partition} of group {group!r} occurs twice", where=f"{where}:{number}")
        offsets[partition] = offset
    if not by_group:
        raise BadRequest("the file has no offsets", where=where, hint="write a line topic,partition,offset for each")
    return by_group


def offsets_text(offsets: OffsetsByGroup, *, with_group: bool) -> str:
    """Return offsets as the lines of such a file, without a header, as Kafka's ``--export`` prints them."""
    return "".join(
        _csv_line([*([group] if with_group else []), topic, partition, offset])
        for group, partitions in offsets.items()
        for (topic, partition), offset in partitions.items()
    )


def _csv_line(cells: Sequence[object]) -> str:
    line = io.StringIO()
    # The writer quotes only characters of its own line end, so give it both.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"


def _width(cells: Sequence[str], only_group: str | None, where: str) -> int:
    if len(cells) == 4 or (len(cells) == 3 and only_group is not None):
        return len(cells)
    if len(cells) == 3:
        hint = Phrase("write group,topic,partition,offset, or name its only group with ", Parameter.GROUP)
        raise BadRequest("the group is missing", where=where, hint=hint)
    raise _malformed(cells, where)


def _line(cells: Sequence[str], width: int, only_group: str | None, where: str) -> tuple[str, TopicPartition, int]:
    try:
        if len(cells) != width:
            raise ValueError
        group = cells[0] if width == 4 else only_group or ""
        topic, partition, offset = cells[-3:]
        name, value = TopicPartition(topic, int(partition)), int(offset)
        if not topic or not group or name.partition < 0 or not -(1 << 63) <= value < 1 << 63:
            raise ValueError
    except ValueError:
        raise _malformed(cells, where) from None
    return group, name, value


def _malformed(cells: Sequence[str], where: str) -> BadRequest:
    hint = "write topic,partition,offset, or for several groups group,topic,partition,offset; no header"
    return BadRequest(f"not an offset of a partition: {','.join(cells)!r}", where=where, hint=hint)


Known = Mapping[TopicPartition, int | Unknown]


class ResetResult(StrEnum):
    """The outcome for one partition."""

    WOULD_BE_RESET = "would_be_reset"
    RESET = "reset"
    FAILED = "failed"
    UNDER_WAY = "under_way"
    """It was requested, and nobody answered: it may still take effect."""


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """One partition of one group. ``current_offset`` is None if nothing was committed."""

    group: str
    topic: str
    partition: int
    current_offset: int | None
    new_offset: int
    result: ResetResult = ResetResult.WOULD_BE_RESET
    error: str | None = None

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class GroupReset:
    """One group's plan. With a ``refusal`` none of it is done; ``coordinator`` -1 is ZooKeeper, or unknown."""

    group: str
    type: GroupType
    coordinator: int
    resets: tuple[PartitionReset, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: AdminError | None = None
    is_new: bool = False
    """There is no such group yet; committing offsets creates it."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What was read from the logs: only what the scenario needs. ``at_time`` -1: no record is that late."""

    starts: Known = field(default_factory=dict)
    ends: Known = field(default_factory=dict)
    at_time: Known = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewOffsets:
    """The new offset of each partition that has one, why the others have none, and warnings about the first."""

    offsets: dict[TopicPartition, int]
    problems: dict[TopicPartition, Unknown]
    warnings: tuple[str, ...]


def needs_range(spec: ResetSpec) -> bool:
    """Whether the scenario may ask for an offset that does not exist."""
    return spec.to in (ResetTo.OFFSET, ResetTo.SHIFT_BY, ResetTo.FILE)


def new_offsets(
    spec: ResetSpec, group: str, partitions: Sequence[TopicPartition], committed: GroupOffsets, facts: LogFacts
) -> NewOffsets:
    """Return the new offsets that a scenario gives partitions."""
    offsets: dict[TopicPartition, int] = {}
    problems: dict[TopicPartition, Unknown] = {}
    warnings: list[str] = []
    for partition in partitions:
        value = _wanted(spec, group, partition, committed.get(partition), facts)
        if isinstance(value, int) and spec.to is ResetTo.TIME and value < 0:
            warnings.append(f"partition {partition} has no record that late; using its end")
            value = _fact(facts.ends, partition)
        if isinstance(value, int) and needs_range(spec):
            value = _in_range(partition, value, facts, warnings)
        if isinstance(value, Unknown):
            problems[partition] = value
        else:
            offsets[partition] = value
    return NewOffsets(offsets, problems, tuple(warnings))


def _wanted(
    spec: ResetSpec, group: str, partition: TopicPartition, committed: CommittedOffset | Unknown | None, facts: LogFacts
) -> int | Unknown:
    match spec.to:
        case ResetTo.EARLIEST:
            return _fact(facts.starts, partition)
        case ResetTo.LATEST:
            return _fact(facts.ends, partition)
        case ResetTo.TIME:
            return _fact(facts.at_time, partition)
        case ResetTo.OFFSET:
            return spec.value
        case ResetTo.FILE:
            return (spec.offsets or {})[group][partition]
        case ResetTo.SHIFT_BY if committed is None:
            return Unknown("no offset is committed that could be shifted", ErrorCode.NONE)
        case ResetTo.CURRENT if committed is None:
            return _fact(facts.ends, partition)
    if isinstance(committed, CommittedOffset):
        return committed.offset + (spec.value if spec.to is ResetTo.SHIFT_BY else 0)
    return committed or Unknown("nothing is committed")


def _in_range(partition: TopicPartition, wanted: int, facts: LogFacts, warnings: list[str]) -> int | Unknown:
    start, end = _fact(facts.starts, partition), _fact(facts.ends, partition)
    if isinstance(end, Unknown):
        return end
    if isinstance(start, Unknown):
        return start
    if wanted > end:
        warnings.append(f"new offset {wanted} is higher than the latest of partition {partition}; using {end}")
        return end
    if wanted < start:
        warnings.append(f"new offset {wanted} is lower than the earliest of partition {partition}; using {start}")
        return start
    return wanted


def _fact(known: Known, partition: TopicPartition) -> int | Unknown:
    return known.get(partition, Unknown("was not asked for"))
