"""One sample of groups: what they have committed, where their partitions begin and end, and which members own these.

Ask for committed offsets before the ends, so that a reader that keeps up is never seen beyond the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Unknown
from engine.admin.groups.group_reading import describe_and_fetch
from engine.admin.groups.scope import FoundGroups, as_error, is_of_consumers, why_without_lag
from engine.admin.groups.values import (
    CommittedOffset,
    GroupDescription,
    GroupMember,
    GroupOffsets,
    GroupState,
    GroupType,
)
from engine.admin.lag.verdicts import Reason
from engine.admin.offsets.listing import NO_LEADER_TEXT, end_offsets, start_offsets
from engine.common.errors import ErrorCode
from engine.common.model import IsolationLevel, TopicPartition

Ends = Mapping[TopicPartition, int | Unknown]
IsWanted = Callable[[str], bool]
"""Says whether a topic is asked about."""

_NO_LEADER_CODES = (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """One partition of one group at a moment. Unknown values are None; ``error`` is for a person."""

    committed: int | None
    end: int | None
    start: int | None
    is_owned: bool | None
    owner: str | None = None
    why_unknown: Reason | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSample:
    """One group at a moment; ``state`` and ``members`` None are unknown. A Spark query has no type."""

    group: str
    type: GroupType | None
    state: GroupState | None
    partitions: Mapping[TopicPartition, PartitionSample]
    error: str | None = None
    members: tuple[GroupMember, ...] | None = None
    protocol: str = ""
    """Name of the assignment strategy; empty while there is none."""


@dataclass(frozen=True, slots=True)
class Sample:
    """All groups asked about, between question and answer; the time is that of the ends."""

    time_ms: int
    groups: Mapping[tuple[str, GroupType | None], GroupSample]
    failures: tuple[AdminError, ...] = ()


@dataclass(frozen=True, slots=True)
class _Half:
    """A group before the ends of its partitions are known."""

    group: str
    type: GroupType
    state: GroupState | None
    members: Sequence[GroupMember]
    owners: Mapping[TopicPartition, GroupMember]
    offsets: GroupOffsets
    error: str | None = None
    protocol: str = ""

    def partitions(self, is_wanted: IsWanted) -> list[TopicPartition]:
        return sorted(name for name in {*self.offsets, *self.owners} if is_wanted(name.topic))


async def take_sample(cluster: Cluster, chosen: FoundGroups, is_wanted: IsWanted, isolation: IsolationLevel) -> Sample:
    """Sample the groups once; groups deleted since they were found are left out."""
    halves, failures = await _at_brokers(cluster, chosen)
    halves += await _in_zookeeper(cluster, chosen)
    names = sorted({name for half in halves for name in half.partitions(is_wanted)})
    committed_first = {
        name for half in halves for name, offset in half.offsets.items() if isinstance(offset, CommittedOffset)
    }
    ends: Ends = {}
    starts: Ends = {}
    if names:
        try:
            wire = await cluster.wire()
            ends = await end_offsets(wire, names, isolation=isolation)
            begun = [name for name in names if name in committed_first and isinstance(ends[name], int)]
            starts = await start_offsets(wire, begun)
        except AdminError as error:
            ends = dict.fromkeys(names, Unknown.of_error(error))
    time_ms = time.time_ns() // 1_000_000
    groups: dict[tuple[str, GroupType | None], GroupSample] = {
        (half.group, half.type): _group(half, ends, starts, is_wanted) for half in halves
    }
    return Sample(time_ms, groups, tuple(failures))


async def _at_brokers(cluster: Cluster, chosen: FoundGroups) -> tuple[list[_Half], list[AdminError]]:
    if not chosen.brokers:
        return [], []
    wire = await cluster.wire()
    answers = await describe_and_fetch(wire, chosen.brokers, coordinators=chosen.coordinators or None)
    halves: list[_Half] = []
    failures: list[AdminError] = []
    for name, (described, committed) in answers.items():
        if isinstance(described, GroupDescription) and described.state is GroupState.DEAD:
            continue
        failures += [
            as_error(answer, f"group {name}") for answer in (described, committed) if isinstance(answer, Unknown)
        ][:1]
        halves.append(_half_at_broker(name, described, committed))
    return halves, failures


def _half_at_broker(name: str, described: GroupDescription | Unknown, committed: GroupOffsets | Unknown) -> _Half:
    errors = [str(answer) for answer in (described, committed) if isinstance(answer, Unknown)]
    offsets: GroupOffsets = {} if isinstance(committed, Unknown) else committed
    error = errors[0] if errors else None
    if isinstance(described, Unknown):
        return _Half(name, GroupType.CLASSIC, None, (), {}, offsets, error)
    owners = {partition: member for member in described.members for partition in member.assignment or ()}
    if isinstance(committed, Unknown):
        offsets = dict.fromkeys(owners, committed)
    elif not offsets and not is_of_consumers(described):
        error = why_without_lag(described)
    return _Half(name, described.type, described.state, described.members, owners, offsets, error, described.protocol)


async def _in_zookeeper(cluster: Cluster, chosen: FoundGroups) -> list[_Half]:
    if not chosen.zookeeper:
        return []
    from engine.admin.groups.old_consumers import read_old_groups

    groups = await read_old_groups(await cluster.zookeeper(), chosen.zookeeper)
    return [
        _Half(
            group.group,
            GroupType.ZOOKEEPER,
            group.state,
            group.members,
            {name: owner for name in group.owners if (owner := group.owner(name)) is not None},
            group.offsets,
        )
        for group in groups.values()
    ]


def _group(half: _Half, ends: Ends, starts: Ends, is_wanted: IsWanted) -> GroupSample:
    partitions = {name: _partition(half, name, ends.get(name), starts.get(name)) for name in half.partitions(is_wanted)}
    members = None if half.state is None else tuple(half.members)
    return GroupSample(half.group, half.type, half.state, partitions, half.error, members, half.protocol)


def _partition(
    half: _Half, name: TopicPartition, end: int | Unknown | None, start: int | Unknown | None
) -> PartitionSample:
    committed, owner = half.offsets.get(name), half.owners.get(name)
    why, error = why_unknown(committed, end)
    return PartitionSample(
        committed.offset if isinstance(committed, CommittedOffset) else None,
        end if isinstance(end, int) else None,
        start if isinstance(start, int) else None,
        _is_owned(half, owner),
        owner.member_id if owner is not None else None,
        why,
        error,
    )


def _is_owned(half: _Half, owner: GroupMember | None) -> bool | None:
    """Whether it has a reader: unknown while a group rebalances, or if a member's assignment is unreadable."""
    if owner is not None:
        return True
    if half.state is None or half.state.is_rebalancing:
        return None
    return None if any(member.assignment is None for member in half.members) else False


def why_unknown(
    committed: CommittedOffset | Unknown | None, end: int | Unknown | None
) -> tuple[Reason | None, str | None]:
    """Return what prevents a verdict; the end comes before the offset, because a partition may be gone."""
    if isinstance(end, Unknown):
        if end.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return Reason.NO_SUCH_PARTITION, "the topic or partition does not exist"
        is_leaderless = end.message == NO_LEADER_TEXT or end.code in _NO_LEADER_CODES
        return (Reason.NO_LEADER if is_leaderless else Reason.END_UNKNOWN), str(end)
    if isinstance(committed, Unknown):
        return Reason.COMMITTED_UNKNOWN, str(committed)
    return (Reason.NOTHING_COMMITTED, None) if committed is None else (None, None)
