"""A group: its states, its members and who waits. Pure bookkeeping; ``state_machine`` has the effect of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.coordinator.groups.member import JoinedMember, JoinReply, Member, MemberDescription, Protocols
from engine.broker.coordinator.groups.offsets import GroupOffsets
from engine.common.errors import KafkaError
from engine.common.model import TopicPartition
from engine.kafka.formats.consumer_protocol import CONSUMER_PROTOCOL_TYPE, decode_subscription

_VERSION_0 = b"\0\0"


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
class GroupDescription:
    """A group for DescribeGroups and ListGroups."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[MemberDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class InitialDelay:
    """A new group waits for further members: how long now, and how much more at most (KIP-134)."""

    delay_ms: int
    remaining_ms: int


class Group:
    """One group of one coordinator. Belongs to the broker's event loop."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms: int | None = now_ms
        """When the state was entered; None for a group stored by a Kafka before 2.1."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()
        """Ids that were given out and have not joined yet (KIP-394)."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.initial_delay: InitialDelay | None = None
        self.has_new_member = False
        """A member joined during the initial delay, so the delay may be extended."""
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that the members read; None if that is unknown."""
        self.offsets = GroupOffsets()
        self._supported: Counter[str] = Counter()
        self._awaiting_join = 0

    # -- state

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state. ValueError for a change that the table does not have."""
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise ValueError(f"group {self.group_id} cannot pass from {self.state.value} to {state.value}")
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out of any member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join(self) -> int:
        """How many members wait for an answer to their join."""
        return self._awaiting_join

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self._awaiting_join and not self.pending_members

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the members read the topic; True if that is unknown."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    # -- members

    def add(self, member: Member, protocol_type: str, join_reply: JoinReply | None = None) -> None:
        """Add a member. The first one decides the protocol type and leads."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported.update(member.protocol_names)
        self.set_join_reply(member, join_reply)
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, or an id that was given out; nothing happens if there is none."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supported.subtract(member.protocol_names)
            self.set_join_reply(member, None)
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member, whose waiting requests are answered, a new member id."""
        assert member.group_instance_id is not None
        old_member_id = member.member_id
        del self.members[old_member_id]
        self.pending_sync.discard(old_member_id)
        member.member_id = member_id
        self.members[member_id] = member
        self.static_members[member.group_instance_id] = member_id
        if self.leader_id == old_member_id:
            self.leader_id = member_id

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Apply what a member sends when it joins again."""
        self._supported.subtract(member.protocol_names)
        member.protocols = protocols
        self._supported.update(member.protocol_names)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def set_join_reply(self, member: Member, reply: JoinReply | None) -> None:
        """Make the member wait for its join's answer, or (None) stop waiting."""
        self._awaiting_join += (reply is not None) - (member.join_reply is not None)
        member.join_reply = reply

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Return the members as the answer to the leader lists them."""
        assert self.protocol_name is not None
        name = self.protocol_name
        return tuple(JoinedMember(m.member_id, m.group_instance_id, m.metadata(name)) for m in self.members.values())

    # -- protocols

    def supports(self, protocol_type: str, protocol_names: Collection[str]) -> bool:
        """Whether a member with these protocols is compatible with the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocol_names)
        if not self.members:
            # All have left while a new group waits for its first members: none is left to agree with.
            return self.protocol_type == protocol_type and bool(protocol_names)
        return self.protocol_type == protocol_type and not self._common_protocols.isdisjoint(protocol_names)

    @property
    def _common_protocols(self) -> frozenset[str]:
        everybody = len(self.members)
        return frozenset(name for name, count in self._supported.items() if count == everybody)

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all of them know."""
        candidates = self._common_protocols
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the members' subscriptions name, as far as they can be read."""
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                # Every version begins like version 0; the rest is the clients' business.
                metadata = _VERSION_0 + member.metadata(self.protocol_name)[2:]
                topics.update(decode_subscription(metadata).topics)
            except KafkaError:
                return None
        return frozenset(topics)

    # -- offsets

    def remove_expired_offsets(
        self, now_ms: int, retention_ms: int, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Forget those of the offsets whose retention is over (KIP-211); return their partitions."""
        if self.protocol_type is None:
            return self.offsets.remove_expired(partitions, now_ms, retention_ms, _commit_timestamp_ms)
        if self.state is GroupState.EMPTY:
            since_ms = self.state_timestamp_ms
            base = _commit_timestamp_ms if since_ms is None else lambda _: since_ms
            return self.offsets.remove_expired(partitions, now_ms, retention_ms, base)
        if self.state is GroupState.STABLE and self.is_consumer_group and self.subscribed_topics is not None:
            return self.offsets.remove_expired(
                partitions, now_ms, retention_ms, _commit_timestamp_ms, self.subscribed_topics
            )
        return []

    # -- description

    def describe(self) -> GroupDescription:
        """Return the group as DescribeGroups shows it: assignments only while it is stable."""
        name = self.protocol_name if self.state is GroupState.STABLE else None
        members = tuple(member.describe(name) for member in self.members.values())
        return GroupDescription(self.group_id, self.state.value, self.protocol_type or "", name or "", members)

    def __repr__(self) -> str:
        return (
            f"Group({self.group_id}, {self.state.value}, generation_id={self.generation_id}, "
            f"members={list(self.members)}, leader_id={self.leader_id})"
        )


def _commit_timestamp_ms(value: CommittedOffset) -> int:
    return value.commit_timestamp_ms
