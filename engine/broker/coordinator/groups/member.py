"""One member of a group. Mutable, owned by its group."""

from __future__ import annotations

from collections.abc import Container

from engine.broker.coordinator.groups.outbox import JoinReply, SyncReply
from engine.broker.coordinator.groups.values import MemberDescription, Protocols


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
