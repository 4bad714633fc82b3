"""The group state machine: a method for each event, consequences in the outbox. No clock, no I/O, no tasks.

Source of the rules: GroupCoordinator of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from engine.broker.coordinator.groups.commit_form import Committer
from engine.broker.coordinator.groups.group import Group, GroupState
from engine.broker.coordinator.groups.member import (
    UNKNOWN_MEMBER_ID,
    Joining,
    JoinReply,
    JoinResult,
    Member,
    MemberIdentity,
    Protocols,
    Syncing,
    SyncReply,
    SyncResult,
)
from engine.broker.coordinator.groups.outbox import Outbox, StoreGroup, StorePurpose, TimerKey, TimerKind
from engine.broker.coordinator.groups.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Rebalance,
    current_generation,
    generation_error,
    logger,
    member_error,
)
from engine.broker.coordinator.groups.settings import GroupSettings
from engine.common.clock import Clock
from engine.common.errors import NO_ERROR, ErrorCode

_DEAD, _EMPTY = GroupState.DEAD, GroupState.EMPTY


@dataclass(frozen=True, slots=True)
class StaticMemberBefore:
    """A static member's state before it came back, and how to answer its join."""

    old_member_id: str
    new_member_id: str
    leader_id: str
    protocols: Protocols
    rebalance_timeout_ms: int
    session_timeout_ms: int
    can_skip_assignment: bool


def join(rebalance: Rebalance, group: Group, joining: Joining, reply: JoinReply) -> None:
    """Let a member join, or refuse it. The caller checks the session time-out."""
    is_new = joining.member_id == UNKNOWN_MEMBER_ID
    refused_id = UNKNOWN_MEMBER_ID if is_new else joining.member_id
    error = ErrorCode.NONE
    if not _has_room(rebalance, group, joining.member_id):
        group.remove(joining.member_id)
        rebalance.stop_session(group, joining.member_id)
        error, refused_id = ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID
    elif group.state is GroupState.DEAD:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif not group.supports(joining.protocol_type, [name for name, _ in joining.protocols]):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    elif is_new:
        _join_new(rebalance, group, joining, reply)
    elif joining.member_id in group.pending_members and joining.group_instance_id is None:
        _add_member(rebalance, group, joining, joining.member_id, reply)
    else:
        error = member_error(group, joining.member_id, joining.group_instance_id)
        if error is ErrorCode.NONE:
            _join_again(rebalance, group, joining, reply)
    if error is not ErrorCode.NONE:
        rebalance.outbox.reply(reply, JoinResult(error, refused_id))
    rebalance.complete_join_if_possible(group)


def _has_room(rebalance: Rebalance, group: Group, member_id: str) -> bool:
    """Whether ``group.max.size`` admits the member. Existing members stay."""
    size_max = rebalance.settings.group_max_size
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        # Waiting members count, so that a group above the limit shrinks as its members come back.
        return (member is not None and member.join_reply is not None) or group.awaiting_join < size_max
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return member is not None or len(group.members) < size_max
    return True


def _join_new(rebalance: Rebalance, group: Group, joining: Joining, reply: JoinReply) -> None:
    instance_id = joining.group_instance_id
    prefix = joining.client_id if instance_id is None else instance_id
    member_id = f"{prefix}-{rebalance.unique_id()}"
    if instance_id is not None and instance_id in group.static_members:
        _replace_static(rebalance, group, joining, member_id, reply)
    elif instance_id is None and joining.needs_known_member_id:
        # Otherwise a client that goes away before it learns its id would leave a member behind.
        group.pending_members.add(member_id)
        key = TimerKey(TimerKind.SESSION, group.group_id, member_id)
        rebalance.outbox.start_timer(key, joining.session_timeout_ms)
        rebalance.outbox.reply(reply, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add_member(rebalance, group, joining, member_id, reply)


def _add_member(rebalance: Rebalance, group: Group, joining: Joining, member_id: str, reply: JoinReply) -> None:
    member = Member(
        member_id,
        group_instance_id=joining.group_instance_id,
        client_id=joining.client_id,
        client_host=joining.client_host,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        session_timeout_ms=joining.session_timeout_ms,
        protocols=joining.protocols,
    )
    member.is_new = True
    if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
        group.has_new_member = True
    group.add(member, joining.protocol_type, reply)
    rebalance.restart_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    instance = f" with group instance id {joining.group_instance_id}" if joining.group_instance_id else ""
    rebalance.prepare_if_possible(group, f"Adding new member {member_id}{instance}; client reason: {_why(joining)}")


def _join_again(rebalance: Rebalance, group: Group, joining: Joining, reply: JoinReply) -> None:
    """Handle a join of an existing member."""
    member = group.members[joining.member_id]
    is_unchanged = member.protocols == joining.protocols
    is_leader = group.leader_id == member.member_id
    repeats_answer = group.state is GroupState.COMPLETING_REBALANCE and is_unchanged
    # The leader requests a rebalance by joining: its assignment may have changed.
    has_no_news = group.state is GroupState.STABLE and is_unchanged and not is_leader
    if repeats_answer or has_no_news:
        rebalance.outbox.reply(reply, current_generation(group, member.member_id))
        return
    what = "Leader re-joining group" if is_leader and is_unchanged else "Updating metadata"
    if member.join_reply is not None:
        # It asked twice: the first request's connection may be gone, and only one answer can count.
        rebalance.answer_join(group, member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.update(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
    group.set_join_reply(member, reply)
    rebalance.prepare_if_possible(
        group, f"{what} for member {member.member_id} during {group.state.value}; client reason: {_why(joining)}"
    )


def _replace_static(rebalance: Rebalance, group: Group, joining: Joining, member_id: str, reply: JoinReply) -> None:
    """Take a static member back that lost its member id: fence the old id; a stable group need not rebalance."""
    assert joining.group_instance_id is not None
    old_member_id = group.static_members[joining.group_instance_id]
    member = group.members[old_member_id]
    logger.info(
        "Static member with groupInstanceId=%s joins group %s in state %s; it replaces member %s by %s.",
        joining.group_instance_id,
        group.group_id,
        group.state.value,
        old_member_id,
        member_id,
    )
    before = StaticMemberBefore(
        old_member_id,
        member_id,
        group.leader_id or "",
        member.protocols,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        joining.can_skip_assignment,
    )
    fence(rebalance, group, member)
    group.rename(member, member_id)
    group.update(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
    group.set_join_reply(member, reply)
    rebalance.restart_session(group, member)
    reason = f"static member {member_id} with instance id {joining.group_instance_id}; client reason: {_why(joining)}"
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may already have the old id in its assignment, which no member would ask for.
        rebalance.prepare(group, f"Updating metadata for {reason}")
    elif group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        assignments = {m.member_id: m.assignment for m in group.members.values()}
        rebalance.outbox.stores.append(
            StoreGroup(group.group_id, group.generation_id, StorePurpose.STATIC_REJOIN, assignments, before)
        )
    elif group.state is GroupState.STABLE:
        rebalance.prepare_if_possible(group, f"Group's selectedProtocol will change because of {reason}")


def fence(rebalance: Rebalance, group: Group, member: Member) -> None:
    """Answer the requests that still wait under the member's old id: it is fenced."""
    rebalance.answer_join(group, member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
    rebalance.answer_sync(group, member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
    rebalance.stop_session(group, member.member_id)


def static_rejoin_stored(rebalance: Rebalance, group: Group, before: StaticMemberBefore, error: ErrorCode) -> None:
    """Answer a static member's join once its new id is stored; undo the change if it could not be."""
    member = group.members.get(before.new_member_id)
    if member is None or group.state is not GroupState.STABLE:
        # It has been fenced or has gone since, or a rebalance has begun, which answers the join.
        return
    if error is not ErrorCode.NONE:
        reply = member.join_reply
        group.set_join_reply(member, None)
        group.update(member, before.protocols, before.rebalance_timeout_ms, before.session_timeout_ms)
        rebalance.stop_session(group, member.member_id)
        group.rename(member, before.old_member_id)
        rebalance.restart_session(group, member)
        if reply is not None:
            result = replace(current_generation(group, UNKNOWN_MEMBER_ID), error=error, leader_id=before.leader_id)
            rebalance.outbox.reply(reply, result)
        return
    result = current_generation(group, member.member_id)
    if before.can_skip_assignment:
        result = replace(result, skip_assignment=group.leader_id == member.member_id)
    else:
        # The answer names the old leader's id, so it does not assign: a stable group would not take the assignment.
        result = replace(result, leader_id=before.leader_id, members=())
    rebalance.answer_join(group, member, result)


def _why(joining: Joining) -> str:
    return joining.reason or "not provided"


class GroupMachine:
    """The rules for groups. One for all groups of a broker; the caller empties ``outbox`` after each event."""

    def __init__(self, settings: GroupSettings, clock: Clock, unique_id: Callable[[], str]) -> None:
        self.outbox = Outbox()
        self.settings = settings
        self._clock = clock
        self.completed_rebalances_total = 0
        self._rebalance = Rebalance(settings, clock, self.outbox, unique_id)

    # -- requests

    def join(self, group: Group, joining: Joining, reply: JoinReply) -> None:
        """JoinGroup: answered at once only if it is refused or changes nothing."""
        join(self._rebalance, group, joining, reply)

    def is_session_timeout_valid(self, session_timeout_ms: int) -> bool:
        settings = self.settings
        return settings.group_min_session_timeout_ms <= session_timeout_ms <= settings.group_max_session_timeout_ms

    def sync(self, group: Group, syncing: Syncing, reply: SyncReply) -> None:
        """SyncGroup: the leader brings the assignment, and every member waits for its part."""
        error = _sync_error(group, syncing)
        if error is ErrorCode.NONE and group.state is GroupState.EMPTY:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif error is ErrorCode.NONE and group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            self.outbox.reply(reply, SyncResult(error))
            return
        member = group.members[syncing.member_id]
        self._rebalance.has_synced(group, member.member_id)
        if group.state is GroupState.STABLE:
            result = SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
            self.outbox.reply(reply, result)
            self._rebalance.restart_session(group, member)
            return
        if member.sync_reply is not None:
            self.outbox.reply(member.sync_reply, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = reply
        if group.leader_id == member.member_id:
            assignments = {m: syncing.assignments.get(m, b"") for m in group.members}
            self.outbox.stores.append(
                StoreGroup(group.group_id, group.generation_id, StorePurpose.ASSIGNMENT, assignments)
            )

    def heartbeat(self, group: Group, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Heartbeat: keep the member; REBALANCE_IN_PROGRESS tells it to join again."""
        error = generation_error(group, member_id, group_instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        self._rebalance.restart_session(group, group.members[member_id])
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, group: Group, identity: MemberIdentity) -> ErrorCode:
        """Remove one member that leaves by itself or is removed by an operator."""
        member_id, instance_id, _ = identity
        if member_id == UNKNOWN_MEMBER_ID:
            holder = None if instance_id is None else group.static_members.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = holder
        elif member_id in group.pending_members:
            self._rebalance.remove_pending(group, member_id)
            return ErrorCode.NONE
        else:
            error = member_error(group, member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
        why = identity.reason or "not provided"
        logger.info("Member %s has left group %s; client reason: %s", member_id, group.group_id, why)
        member = group.members[member_id]
        self._rebalance.remove_member(group, member, f"Removing member {member_id} on LeaveGroup; client reason: {why}")
        return ErrorCode.NONE

    def check_commit(self, group: Group, committer: Committer, *, is_transactional: bool = False) -> ErrorCode:
        """Return why the committer may not commit offsets now; NONE if it may. A member's commit keeps its session."""
        member_id, generation_id, instance_id = committer
        if group.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and group.state is _EMPTY:
            return NO_ERROR
        if generation_id >= 0 or member_id != UNKNOWN_MEMBER_ID or instance_id is not None:
            error = generation_error(group, member_id, instance_id, generation_id)
            if error is not NO_ERROR or is_transactional:
                return error
        elif is_transactional:
            # Transactional commits before version 3 name no member.
            return NO_ERROR
        else:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._rebalance.restart_session(group, group.members[member_id])
        return NO_ERROR

    # -- time

    def timer_is_due(self, group: Group, key: TimerKey) -> None:
        """A timer has run out."""
        if group.state is GroupState.DEAD:
            return
        if key.kind is TimerKind.JOIN:
            self._rebalance.join_wait_is_over(group)
        elif key.kind is TimerKind.SYNC:
            self._rebalance.sync_wait_is_over(group)
        else:
            self._session_is_over(group, key.member_id)

    def _session_is_over(self, group: Group, member_id: str) -> None:
        if member_id in group.pending_members:
            logger.info("Pending member %s in group %s has been removed: it never joined.", member_id, group.group_id)
            self._rebalance.remove_pending(group, member_id)
            return
        member = group.members.get(member_id)
        if member is None or member.is_excused:
            return
        logger.info("Member %s in group %s has failed, removing it from the group", member_id, group.group_id)
        self._rebalance.remove_member(group, member, f"removing member {member_id} on heartbeat expiration")

    # -- results of stores

    def stored(self, group: Group, store: StoreGroup, error: ErrorCode) -> None:
        """A group was written and replicated, or (``error``) that failed."""
        if group.state is GroupState.DEAD:
            return
        if store.purpose is StorePurpose.EMPTY:
            if error is not ErrorCode.NONE:
                logger.warning("Failed to write empty metadata for group %s: %s", group.group_id, error.name)
        elif store.purpose is StorePurpose.STATIC_REJOIN:
            assert isinstance(store.undo, StaticMemberBefore)
            static_rejoin_stored(self._rebalance, group, store.undo, error)
        elif group.state is GroupState.COMPLETING_REBALANCE and group.generation_id == store.generation_id:
            if error is ErrorCode.NONE:
                self.completed_rebalances_total += 1
                self._rebalance.give_assignments(group, store.assignments)
                group.transition_to(GroupState.STABLE, self._clock.now_ms())
            else:
                self._rebalance.reset_assignments(group, error)
                self._rebalance.prepare_if_possible(group, f"Error {error.name} when storing group assignment")

    # -- coming and going

    def loaded(self, group: Group) -> None:
        """A group was loaded from the log: its members' sessions begin; a group that is too large is reduced."""
        if len(group.members) > self.settings.group_max_size:
            self._rebalance.prepare(group, f"Freshly-loaded group is over capacity ({self.settings.group_max_size})")
        for member in group.members.values():
            self._rebalance.restart_session(group, member)

    def unload(self, group: Group) -> None:
        """This broker is no longer the group's coordinator: waiting requests get that answer."""
        self._end(group, ErrorCode.NOT_COORDINATOR)

    def delete(self, group: Group) -> None:
        """The group is empty and removed."""
        self._end(group, ErrorCode.UNKNOWN_MEMBER_ID)

    def _end(self, group: Group, error: ErrorCode) -> None:
        group.transition_to(GroupState.DEAD, self._clock.now_ms())
        for member in group.members.values():
            self._rebalance.answer_join(group, member, JoinResult(error, member.member_id))
            self._rebalance.answer_sync(group, member, SyncResult(error))
        self._stop_sessions(group, group.members)
        self._stop_sessions(group, group.pending_members)
        self._rebalance.stop_group_timers(group)

    def _stop_sessions(self, group: Group, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            self._rebalance.stop_session(group, member_id)


def _sync_error(group: Group, syncing: Syncing) -> ErrorCode:
    error = generation_error(group, syncing.member_id, syncing.group_instance_id, syncing.generation_id)
    if error is not ErrorCode.NONE:
        return error
    if syncing.protocol_type is not None and syncing.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if syncing.protocol_name is not None and syncing.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE
