"""The states, inputs and outputs of the group state machine: plain values, no wire messages and no clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition

NO_GENERATION = -1
UNKNOWN_MEMBER_ID = ""

Protocols = tuple[tuple[str, bytes], ...]
"""Names of the assignment strategies that a member knows, the preferred first, each with its subscription."""


class GroupState(Enum):
    """A group's state; the values are the words that clients see. Source: Kafka 3.9."""

    EMPTY = "Empty"
    """No members; there may be offsets."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until the members have joined, at most for the rebalance time-out."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The members are known; waits for the leader's assignment."""

    STABLE = "Stable"
    """Every member may fetch its assignment."""

    DEAD = "Dead"
    """Removed, or moved to another coordinator. A final state."""


_S = GroupState

VALID_PREVIOUS_STATES: Final[dict[GroupState, frozenset[GroupState]]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.PREPARING_REBALANCE: frozenset({_S.STABLE, _S.COMPLETING_REBALANCE, _S.EMPTY}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.DEAD: frozenset(_S),
}
"""The transitions."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What the broker's configuration says about groups. Field names follow the keys."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Joining:
    """A JoinGroup request. ``member_id`` is empty for a member that is new."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    group_instance_id: str | None = None
    needs_known_member_id: bool = False
    can_skip_assignment: bool = False
    reason: str | None = None


class JoinedMember(NamedTuple):
    """One member as the answer to the leader lists it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to JoinGroup. ``members`` is for the leader; empty for the others."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class Syncing:
    """A SyncGroup request. Protocol type and name are None if the version does not carry them."""

    member_id: str
    generation_id: int
    assignments: dict[str, bytes]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The answer to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class MemberIdentity(NamedTuple):
    """A member to remove. An empty id with an instance id means whoever holds the instance id now."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class CommittedOffset(NamedTuple):
    """An offset that a group has committed. ``expire_timestamp_ms`` is None unless the client gave a retention."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None


Offsets = dict[TopicPartition, CommittedOffset]


class Committer(NamedTuple):
    """Who commits. Clients that assign partitions themselves have no member id and the generation -1."""

    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member for DescribeGroups; subscription and assignment only while the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group for DescribeGroups and ListGroups."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[MemberDescription, ...] = ()
