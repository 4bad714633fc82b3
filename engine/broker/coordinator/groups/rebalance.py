"""The steps of every rebalance. Pure: the work goes into the outbox.

``state_machine`` decides which request leads to which step. Source of the rules: Kafka 3.9's GroupCoordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from engine.broker.coordinator.groups.group import Group, GroupState, InitialDelay
from engine.broker.coordinator.groups.member import UNKNOWN_MEMBER_ID, JoinResult, Member, SyncResult
from engine.broker.coordinator.groups.outbox import Outbox, StoreGroup, StorePurpose, TimerKey, TimerKind
from engine.broker.coordinator.groups.settings import GroupSettings
from engine.common.clock import Clock
from engine.common.errors import ErrorCode

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a member stays whose first join is not answered yet; it cannot send heartbeats."""


class Rebalance:
    """The steps, with their settings, clock, outbox and factory of member ids."""

    def __init__(self, settings: GroupSettings, clock: Clock, outbox: Outbox, unique_id: Callable[[], str]) -> None:
        self.settings = settings
        self.clock = clock
        self.outbox = outbox
        self.unique_id = unique_id

    # -- timers

    def restart_session(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """The member has shown up: its session starts over."""
        key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
        self.outbox.start_timer(key, member.session_timeout_ms if timeout_ms is None else timeout_ms)

    def stop_session(self, group: Group, member_id: str) -> None:
        self.outbox.stop_timer(TimerKey(TimerKind.SESSION, group.group_id, member_id))

    def stop_group_timers(self, group: Group) -> None:
        """Stop the timers for joins and for the fetching of assignments."""
        self.outbox.stop_timer(TimerKey(TimerKind.JOIN, group.group_id))
        self.outbox.stop_timer(TimerKey(TimerKind.SYNC, group.group_id))

    # -- beginning

    def prepare_if_possible(self, group: Group, reason: str) -> None:
        """Begin a rebalance unless one is under way."""
        if group.can_rebalance:
            self.prepare(group, reason)

    def prepare(self, group: Group, reason: str) -> None:
        """Begin a rebalance: all members have to join again; a new group waits for further members first."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self.stop_sync_wait(group)
        initial_delay_ms = self.settings.group_initial_rebalance_delay_ms
        wait_ms = group.rebalance_timeout_ms
        group.initial_delay = None
        if group.state is GroupState.EMPTY:
            group.initial_delay = InitialDelay(initial_delay_ms, max(wait_ms - initial_delay_ms, 0))
            wait_ms = initial_delay_ms
        group.transition_to(GroupState.PREPARING_REBALANCE, self.clock.now_ms())
        logger.info(
            "Preparing to rebalance group %s in state PreparingRebalance with old generation %d (reason: %s)",
            group.group_id,
            group.generation_id,
            reason,
        )
        self.outbox.start_timer(TimerKey(TimerKind.JOIN, group.group_id), wait_ms)
        self.complete_join_if_possible(group)

    def join_wait_is_over(self, group: Group) -> None:
        """The timer that waits for members to join has run out."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        delay = group.initial_delay
        if delay is None or not group.has_new_member or delay.remaining_ms == 0:
            self.complete_join(group)
            return
        group.has_new_member = False
        next_ms = min(self.settings.group_initial_rebalance_delay_ms, delay.remaining_ms)
        group.initial_delay = InitialDelay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))
        self.outbox.start_timer(TimerKey(TimerKind.JOIN, group.group_id), next_ms)

    # -- the members have joined

    def complete_join_if_possible(self, group: Group) -> None:
        """Go on as soon as everybody has joined; a new group always waits for its initial delay."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_delay is None
            and group.has_all_members_joined
        ):
            self.complete_join(group)

    def complete_join(self, group: Group) -> None:
        """Form the next generation of the members that have joined; remove dynamic members that have not."""
        late = [m.member_id for m in group.members.values() if m.join_reply is None and not m.is_static]
        for member_id in late:
            group.remove(member_id)
            self.stop_session(group, member_id)
        if late:
            logger.info("Group %s removed dynamic members who haven't joined: %s", group.group_id, ", ".join(late))
        group.initial_delay = None
        if group.members and not _elect_leader(group):
            # Only static members are left, and none has joined again: each does, or its session expires.
            logger.error("Group %s could not complete rebalance because no members rejoined", group.group_id)
            self.outbox.start_timer(TimerKey(TimerKind.JOIN, group.group_id), group.rebalance_timeout_ms)
            return
        self.outbox.stop_timer(TimerKey(TimerKind.JOIN, group.group_id))
        self._begin_generation(group)
        if group.state is GroupState.EMPTY:
            logger.info("Group %s with generation %d is now empty", group.group_id, group.generation_id)
            self.outbox.stores.append(StoreGroup(group.group_id, group.generation_id, StorePurpose.EMPTY, {}))
            return
        logger.info(
            "Stabilized group %s generation %d with %d members", group.group_id, group.generation_id, len(group.members)
        )
        for member in group.members.values():
            self.answer_join(group, member, current_generation(group, member.member_id))
            self.restart_session(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self.outbox.start_timer(TimerKey(TimerKind.SYNC, group.group_id), group.rebalance_timeout_ms)

    def _begin_generation(self, group: Group) -> None:
        group.generation_id += 1
        has_members = bool(group.members)
        group.protocol_name = group.select_protocol() if has_members else None
        group.subscribed_topics = group.compute_subscribed_topics()
        group.transition_to(GroupState.COMPLETING_REBALANCE if has_members else GroupState.EMPTY, self.clock.now_ms())

    # -- assignments

    def sync_wait_is_over(self, group: Group) -> None:
        """Remove members that have not asked for their assignment in time."""
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_sync:
            return
        late = sorted(group.pending_sync)
        for member_id in late:
            group.remove(member_id)
            self.stop_session(group, member_id)
        self.prepare(group, f"Removing {', '.join(late)} on pending sync request expiration")

    def has_synced(self, group: Group, member_id: str) -> None:
        """The member has asked for its assignment."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self.outbox.stop_timer(TimerKey(TimerKind.SYNC, group.group_id))

    def stop_sync_wait(self, group: Group) -> None:
        group.pending_sync.clear()
        self.outbox.stop_timer(TimerKey(TimerKind.SYNC, group.group_id))

    def give_assignments(self, group: Group, assignments: dict[str, bytes]) -> None:
        """Keep the leader's assignment and answer the members that wait for it."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        for member in group.members.values():
            result = SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
            self.answer_sync(group, member, result)

    def reset_assignments(self, group: Group, error: ErrorCode) -> None:
        """Withdraw the assignments and answer the members that wait for one with an error."""
        for member in group.members.values():
            member.assignment = b""
            self.answer_sync(group, member, SyncResult(error))

    # -- members

    def remove_member(self, group: Group, member: Member, reason: str) -> None:
        """Remove a member; the others share what it had."""
        self.answer_join(group, member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID))
        self.answer_sync(group, member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        self.stop_session(group, member.member_id)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare_if_possible(group, reason)
        else:
            self.complete_join_if_possible(group)

    def remove_pending(self, group: Group, member_id: str) -> None:
        """Withdraw an id that was given out and not used."""
        group.remove(member_id)
        self.stop_session(group, member_id)
        self.complete_join_if_possible(group)

    def answer_join(self, group: Group, member: Member, result: JoinResult) -> None:
        """Answer the member's join if it waits for the answer."""
        reply = member.join_reply
        if reply is not None:
            group.set_join_reply(member, None)
            self.outbox.reply(reply, result)

    def answer_sync(self, group: Group, member: Member, result: SyncResult) -> None:
        """Answer the member's SyncGroup if it waits for the answer; its session starts over."""
        reply = member.sync_reply
        if reply is not None:
            member.sync_reply = None
            self.outbox.reply(reply, result)
            self.restart_session(group, member)


def current_generation(group: Group, member_id: str) -> JoinResult:
    """Return the answer that describes the current generation to a member; the leader's lists all members."""
    return JoinResult(
        ErrorCode.NONE,
        member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        members=group.joined_members() if group.leader_id == member_id else (),
    )


def member_error(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Return why a request in the member's name is refused; NONE if it is not (KIP-345)."""
    if group_instance_id is not None:
        holder = group.static_members.get(group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def generation_error(group: Group, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
    """Like ``member_error``, but the generation has to be the current one as well."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = member_error(group, member_id, group_instance_id)
    if error is ErrorCode.NONE and generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _elect_leader(group: Group) -> bool:
    """Replace a leader that has not joined by a member that has; return whether there is a leader."""
    if group.leader_id is None:
        return False
    if group.members[group.leader_id].join_reply is not None:
        return True
    joined: Iterable[str] = (m.member_id for m in group.members.values() if m.join_reply is not None)
    leader_id = next(iter(joined), None)
    if leader_id is None:
        return False
    logger.info(
        "Group leader %s of group %s failed to join before rebalance timeout, while new leader %s was elected.",
        group.leader_id,
        group.group_id,
        leader_id,
    )
    group.leader_id = leader_id
    return True
