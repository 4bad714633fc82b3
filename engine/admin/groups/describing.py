"""Lists groups by state and type, as kafka-consumer-groups does, and describes them. Asks only for what is wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, Unknown
from engine.admin.cluster.remedies import Parameter
from engine.admin.groups.description import DescribedGroup, Ends, described_group, described_old_group, partitions_of
from engine.admin.groups.group_reading import committed_offsets, describe_and_fetch, describe_groups
from engine.admin.groups.scope import FoundGroups, GroupScope, as_error, find_groups, is_of_consumers, list_everywhere
from engine.admin.groups.values import GroupDescription, GroupOffsets, GroupState, GroupType, ListedGroup, state_of
from engine.admin.offsets.listing import end_offsets
from engine.admin.topics.selection import TopicSelection
from engine.common.model import Node, TopicPartition


class Wanted(Enum):
    """What to describe of the groups: kafka-consumer-groups' three ways."""

    OFFSETS = auto()
    MEMBERS = auto()
    STATE = auto()


@dataclass(frozen=True, slots=True)
class GroupsDescribed:
    """The groups by name, and what could not be read about them."""

    groups: tuple[DescribedGroup, ...]
    failures: tuple[AdminError, ...] = ()
    others: tuple[str, ...] = ()
    """Groups of other protocols, which "all" leaves out."""


async def describe(cluster: Cluster, scope: GroupScope, wanted: Wanted = Wanted.OFFSETS) -> GroupsDescribed:
    """Describe the groups that a scope means, at coordinators and in ZooKeeper.

    What could not be read is among the failures; a group that was listed is included anyway, with an unknown state.
    """
    chosen = await find_groups(cluster, scope)
    at_brokers, old = await _at_brokers(cluster, chosen, wanted), await _in_zookeeper(cluster, chosen, wanted)
    failures = list(chosen.failures)
    for group in at_brokers:
        if group.failure is not None:
            failures.append(group.failure)
    groups = [*(group.described for group in at_brokers), *old]
    return GroupsDescribed(
        tuple(sorted(groups, key=lambda group: (group.group, group.type))), tuple(failures), chosen.others
    )


async def describe_readers(
    cluster: Cluster, scope: GroupScope, topics: TopicSelection, wanted: Wanted = Wanted.OFFSETS
) -> GroupsDescribed:
    """Describe the groups that have committed or own partitions of topics; with these partitions only.

    A group that could not be read is included anyway.
    """
    progress = await describe(cluster, scope)
    readers = [reader for reader in (_of_topics(group, topics) for group in progress.groups) if reader is not None]
    if wanted is Wanted.OFFSETS or not readers:
        return GroupsDescribed(tuple(readers), progress.failures)
    names = {(group.group, group.type) for group in readers}
    described = await describe(cluster, GroupScope(tuple(dict.fromkeys(group.group for group in readers))), wanted)
    kept = tuple(group for group in described.groups if (group.group, group.type) in names)
    return GroupsDescribed(kept, (*progress.failures, *described.failures))


def _of_topics(group: DescribedGroup, topics: TopicSelection) -> DescribedGroup | None:
    chosen = set(topics.choose({partition.topic for partition in group.partitions}))
    partitions = tuple(partition for partition in group.partitions if partition.topic in chosen)
    is_unknown = group.error is not None and not group.partitions
    return replace(group, partitions=partitions) if partitions or is_unknown else None


@dataclass(frozen=True, slots=True)
class _AtBrokers:
    described: DescribedGroup
    failure: AdminError | None = None


async def _at_brokers(cluster: Cluster, chosen: FoundGroups, wanted: Wanted) -> list[_AtBrokers]:
    if not chosen.brokers:
        return []
    wire = await cluster.wire()
    described: Mapping[str, GroupDescription | Unknown] = chosen.described
    committed: Mapping[str, GroupOffsets | Unknown] = {}
    if wanted is Wanted.OFFSETS and not described:
        both = await describe_and_fetch(wire, chosen.brokers, coordinators=chosen.coordinators)
        described = {name: group for name, (group, _) in both.items()}
        committed = {name: offsets for name, (_, offsets) in both.items()}
    elif wanted is Wanted.OFFSETS:
        committed = await committed_offsets(wire, chosen.brokers, coordinators=chosen.coordinators)
    elif not described:
        described = await describe_groups(wire, chosen.brokers, coordinators=chosen.coordinators)
    alive = {
        n: g for n, g in described.items() if not isinstance(g, GroupDescription) or g.state is not GroupState.DEAD
    }
    ends: Ends = {}
    if wanted is Wanted.OFFSETS:
        known = [g for g in alive.values() if isinstance(g, GroupDescription)]
        names = set().union(*(partitions_of(group.members, committed[group.group]) for group in known))
        ends = await ends_of(cluster, names)
    nodes = await wire.nodes()
    return [_described(name, group, committed.get(name), ends, nodes) for name, group in alive.items()]


def _described(
    name: str,
    group: GroupDescription | Unknown,
    offsets: GroupOffsets | Unknown | None,
    ends: Ends,
    nodes: Mapping[int, Node],
) -> _AtBrokers:
    if isinstance(group, Unknown):
        blank = DescribedGroup(name, GroupType.CLASSIC, None, "", "", None, error=str(group))
        return _AtBrokers(blank, as_error(group, f"group {name}"))
    failure = as_error(offsets, f"committed offsets of group {name}") if isinstance(offsets, Unknown) else None
    return _AtBrokers(described_group(group, offsets, ends, nodes), failure)


async def _in_zookeeper(cluster: Cluster, chosen: FoundGroups, wanted: Wanted) -> list[DescribedGroup]:
    if not chosen.zookeeper:
        return []
    from engine.admin.groups.old_consumers import read_old_groups

    groups = await read_old_groups(await cluster.zookeeper(), chosen.zookeeper)
    ends: Ends | None = None
    if wanted is Wanted.OFFSETS:
        ends = await ends_of(cluster, {p for group in groups.values() for p in (*group.offsets, *group.owners)})
    return [described_old_group(group, ends) for group in groups.values()]


async def ends_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Ends:
    """Return where partitions end; if no broker answers, each is an Unknown."""
    names = list(partitions)
    if not names:
        return {}
    try:
        return await end_offsets(await cluster.wire(), names)
    except AdminError as error:
        return dict.fromkeys(names, Unknown.of_error(error))


EVERYTHING = "all"
"""Stands for every state or type: an option that only asks for the column."""


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """Which groups are wanted; an empty collection lets all pass."""

    states: Collection[GroupState] = ()
    types: Collection[GroupType] = ()

    def lets_pass(self, group: ListedGroup) -> bool:
        """Whether it is wanted; a group of unknown state matches no state."""
        return (not self.states or group.state in self.states) and (not self.types or group.type in self.types)


@dataclass(frozen=True, slots=True)
class GroupsListed:
    """The groups, those of other protocols that were left out, and what could not be read."""

    groups: tuple[ListedGroup, ...]
    others: tuple[ListedGroup, ...] = ()
    failures: tuple[AdminError, ...] = ()


def parse_filter(states: str | None, types: str | None) -> GroupFilter:
    """Return the filter of ``--state Stable,Empty`` and ``--type classic``, in any case.

    Raises:
        BadRequest: a word is not a state or a type.
    """
    return GroupFilter(
        () if states in (None, EVERYTHING) else tuple(_state(word) for word in (states or "").split(",")),
        () if types in (None, EVERYTHING) else tuple(_type(word) for word in (types or "").split(",")),
    )


async def list_consumer_groups(
    cluster: Cluster, wanted: GroupFilter, topics: TopicSelection | None = None
) -> GroupsListed:
    """List the groups of consumers, shares and streams by name. Others (Kafka Connect's) are left out and reported.

    With ``topics`` only those that have committed or own partitions of them.
    """
    groups, failures = await list_everywhere(cluster)
    others = tuple(group for group in groups if not _is_listed(group))
    chosen = tuple(group for group in groups if _is_listed(group) and wanted.lets_pass(group))
    if topics is not None and not topics.is_all and chosen:
        read = await describe_readers(cluster, GroupScope(tuple(group.group for group in chosen)), topics)
        readers = {(group.group, group.type) for group in read.groups}
        chosen = tuple(group for group in chosen if (group.group, group.type) in readers)
        failures += read.failures
    return GroupsListed(chosen, others, tuple(failures))


def _is_listed(group: ListedGroup) -> bool:
    return is_of_consumers(group) or group.type in (GroupType.SHARE, GroupType.STREAMS)


def _state(word: str) -> GroupState:
    group_state = state_of(word.strip())
    if group_state is None:
        hint = f"there are {', '.join(state.value for state in GroupState)}"
        raise BadRequest(f"not a group state: {word.strip()!r}", where=Parameter.STATE, hint=hint)
    return group_state


def _type(word: str) -> GroupType:
    try:
        return GroupType(word.strip().lower())
    except ValueError:
        hint = f"there are {', '.join(GroupType)}"
        raise BadRequest(f"not a group type: {word.strip()!r}", where=Parameter.TYPE, hint=hint) from None
