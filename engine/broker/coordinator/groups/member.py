"""A member of a group: what it asks, what it is answered, and what its group keeps of it. Plain values and no clock."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import NamedTuple

from engine.common.errors import ErrorCode

NO_GENERATION = -1
UNKNOWN_MEMBER_ID = ""

Protocols = tuple[tuple[str, bytes], ...]
"""Names of the assignment strategies that a member knows, the preferred first, each with its subscription."""


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


JoinReply = Callable[[JoinResult], None]
SyncReply = Callable[[SyncResult], None]


class MemberIdentity(NamedTuple):
    """A member to remove. An empty id with an instance id means whoever holds the instance id now."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member for DescribeGroups; subscription and assignment only while the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        *,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """Its first join is not answered yet: it cannot send heartbeats."""
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Whether an expired session means nothing: the member waits for this coordinator, not the reverse."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)

    def metadata(self, protocol_name: str) -> bytes:
        """Return the subscription under a protocol. KeyError if the member does not know it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: Container[str]) -> str:
        """Return the candidate that the member prefers. KeyError if it knows none."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise KeyError(self.member_id)

    def describe(self, protocol_name: str | None) -> MemberDescription:
        """Return the member's description; without a protocol it has no subscription or assignment."""
        is_shown = protocol_name is not None
        return MemberDescription(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol_name) if protocol_name is not None else b"",
            self.assignment if is_shown else b"",
        )
