"""The group state machine: a method for each event, consequences in the outbox. No clock, no I/O, no tasks.

Source of the rules: GroupCoordinator of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.broker.coordinator.groups.group import Group
from engine.broker.coordinator.groups.joining import StaticMemberBefore, join, static_rejoin_stored
from engine.broker.coordinator.groups.outbox import (
    JoinReply,
    Outbox,
    StoreGroup,
    StorePurpose,
    SyncReply,
    TimerKey,
    TimerKind,
)
from engine.broker.coordinator.groups.rebalance import Rebalance, generation_error, logger, member_error
from engine.broker.coordinator.groups.states import GroupState
from engine.broker.coordinator.groups.values import (
    UNKNOWN_MEMBER_ID,
    Committer,
    GroupSettings,
    Joining,
    JoinResult,
    MemberIdentity,
    Syncing,
    SyncResult,
)
from engine.common.clock import Clock
from engine.common.errors import ErrorCode


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
        """Whether the session time-out is within the limits."""
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
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation_id >= 0 or member_id != UNKNOWN_MEMBER_ID or instance_id is not None:
            error = generation_error(group, member_id, instance_id, generation_id)
            if error is not ErrorCode.NONE or is_transactional:
                return error
        elif is_transactional:
            # Transactional commits before version 3 name no member.
            return ErrorCode.NONE
        else:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._rebalance.restart_session(group, group.members[member_id])
        return ErrorCode.NONE

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
        """This broker is no longer the group's coordinator: waiting requests are told so."""
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
