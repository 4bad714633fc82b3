"""Lists groups by state and type, as kafka-consumer-groups does, including those in ZooKeeper."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest
from engine.admin.cluster.remedies import Parameter
from engine.admin.groups.scope import GroupScope, is_of_consumers, list_everywhere
from engine.admin.groups.values import GroupState, GroupType, ListedGroup, state_of
from engine.admin.topics.selection import TopicSelection

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
        from engine.admin.groups.describing import describe_readers

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
