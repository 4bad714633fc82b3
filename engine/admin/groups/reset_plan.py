"""Which offset a reset gives each partition: Kafka's rules, applied to what was read from the cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.admin.cluster.errors import AdminError, Unknown
from engine.admin.groups.reset_spec import ResetSpec, ResetTo
from engine.admin.groups.values import CommittedOffset, GroupOffsets, GroupType
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition

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
    spec: ResetSpec,
    group: str,
    partitions: Sequence[TopicPartition],
    committed: GroupOffsets,
    facts: LogFacts,
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
    spec: ResetSpec,
    group: str,
    partition: TopicPartition,
    committed: CommittedOffset | Unknown | None,
    facts: LogFacts,
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
