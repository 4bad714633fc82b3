"""Consumer groups as values. What could not be read is an ``Unknown``, never a guess."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine.admin.cluster.errors import Unknown
from engine.common.model import TopicPartition


class GroupType(StrEnum):
    """Where a group lives, and its protocol. All but the last are Kafka's names (KIP-848, KIP-932, KIP-1071)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    ZOOKEEPER = "zookeeper"
    """Members, owners and offsets in znodes: consumers of before 0.9."""


class GroupState(StrEnum):
    """Kafka's states, and ``ACTIVE`` for a group in ZooKeeper with live members: nothing more is known of it."""

    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """Over the wire: there is no such group."""
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    """Streams groups: internal topics are missing, or not everything is known yet."""
    ACTIVE = "Active"

    @property
    def is_inactive(self) -> bool:
        """Whether offsets may be changed because the group has no members."""
        return self in (GroupState.EMPTY, GroupState.DEAD)

    @property
    def is_rebalancing(self) -> bool:
        return self in (
            GroupState.PREPARING_REBALANCE,
            GroupState.COMPLETING_REBALANCE,
            GroupState.ASSIGNING,
            GroupState.RECONCILING,
        )


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as its coordinator lists it. State is None if the broker is too old to report it (before 2.6)."""

    group: str
    type: GroupType
    protocol_type: str
    """``consumer``; empty for a group without members whose consumers assign partitions themselves."""
    state: GroupState | None
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupListing:
    """All groups that answered, by name, and why some brokers did not, by broker id.

    ``leaderless`` are partitions of the offsets topic without a leader: their groups have no coordinator.
    """

    groups: tuple[ListedGroup, ...]
    failures: Mapping[int, Unknown]
    leaderless: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member; ``assignment`` is what it owns, None if its bytes are not the consumers' format."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] | None


def _nothing_known() -> None:
    return None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it. A group that does not exist is DEAD and has no members."""

    group: str
    type: GroupType
    state: GroupState
    protocol_type: str
    protocol: str
    """Name of the assignment strategy; empty while there is none."""
    coordinator: int
    members: tuple[GroupMember, ...]
    subscribed_topics: Callable[[], frozenset[str] | None] = field(default=_nothing_known, compare=False, repr=False)
    """Decodes which topics the members subscribe to. None: not known, as while a classic group rebalances."""


class CommittedOffset(NamedTuple):
    """The next offset that a group reads in a partition; ``leader_epoch`` -1 is unknown."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


GroupOffsets = Mapping[TopicPartition, CommittedOffset | Unknown]
"""One group's offsets: partitions without one are not in it."""


def state_of(name: str) -> GroupState | None:
    """Return the state of this name, in upper or lower case; None if it is unknown here."""
    return _STATES.get(name.lower())


def type_of(name: str) -> GroupType:
    """Return the type of this name; brokers that report none have classic groups only."""
    return _TYPES.get(name.lower(), GroupType.CLASSIC)


_TYPES = {type.value: type for type in (GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS)}
_STATES = {state.value.lower(): state for state in GroupState}
_STATES["awaitingsync"] = GroupState.COMPLETING_REBALANCE
"""Its name before Kafka 1.1."""
