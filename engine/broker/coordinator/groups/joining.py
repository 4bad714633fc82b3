"""The effect of a JoinGroup on a group. Pure. Source of the rules: GroupCoordinator of Kafka 3.9; KIP-345, 394, 814."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.broker.coordinator.groups.group import Group
from engine.broker.coordinator.groups.member import Member
from engine.broker.coordinator.groups.outbox import JoinReply, StoreGroup, StorePurpose, TimerKey, TimerKind
from engine.broker.coordinator.groups.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Rebalance,
    current_generation,
    logger,
    member_error,
)
from engine.broker.coordinator.groups.states import GroupState
from engine.broker.coordinator.groups.values import UNKNOWN_MEMBER_ID, Joining, JoinResult, Protocols, SyncResult
from engine.common.errors import ErrorCode


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
        # Otherwise a client that is gone before it learns its id would stay as a member without a client.
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
        group,
        f"{what} for member {member.member_id} during {group.state.value}; client reason: {_why(joining)}",
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
        # The leader may already have the old id in its assignment, which nobody would ask for.
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
        # It was fenced or is gone meanwhile, or a rebalance has begun, which answers the join.
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
