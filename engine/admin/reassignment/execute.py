"""Carries out a reassignment that was prepared: saves the rollback, throttles, starts, follows, unthrottles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, AnswerLost, Refused
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.rollback_file import drop_rollback, write_rollback
from engine.admin.reassignment.access import reassignment_changer
from engine.admin.reassignment.log_dirs import move_log_dirs, refuse_moves
from engine.admin.reassignment.moves import PartitionStatus, ProgressWatcher, ReassignmentState, Refusal
from engine.admin.reassignment.prepare import PreparedReassignment
from engine.admin.reassignment.reassignment_file import plan_text
from engine.admin.reassignment.throttle_settings import ThrottleSettings
from engine.admin.reassignment.throttles import ClearedThrottles, renew_throttle, set_throttle
from engine.admin.reassignment.verify import clear_finished, follow_reassignment, read_statuses
from engine.common.errors import ErrorCode, KlammError
from engine.kafka.zk.errors import NoAuth

_UNCLEAR_CODES = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NETWORK_EXCEPTION})
"""Answers that do not say whether it was carried out."""


@dataclass(frozen=True, slots=True)
class ExecutedReassignment:
    """The outcome of an execution: the partitions refused, how far all are, and which throttles were removed."""

    refusals: Sequence[Refusal]
    statuses: Sequence[PartitionStatus]
    cleared: ClearedThrottles


class ExecutionWatcher(ProgressWatcher, Protocol):
    """Gets the course of an execution: what is saved, what has started, and the progress if it is followed."""

    def saved(self, rollback_file: Path) -> None:
        """The rollback is in this file. Nothing has changed so far."""

    def dropped(self, rollback_file: Path) -> None:
        """The cluster refused everything, so the file is gone again."""

    def started(self, refusals: Sequence[Refusal]) -> None:
        """Everything has begun except the partitions that were refused."""


async def execute_reassignment(
    cluster: Cluster,
    prepared: PreparedReassignment,
    watcher: ExecutionWatcher,
    *,
    rollback_file: Path,
    goes_on: str,
    waits: bool = False,
    limit_s: float | None = None,
) -> ExecutedReassignment:
    """Save the rollback, throttle and start what was prepared, and remove the throttle once nothing moves.

    If the caller interrupts it, or does not wait, it goes on under its throttle, which ``verify_reassignment`` removes
    later. Starting may take as long as the cluster's time-out. If the cluster refuses everything, no rollback is left.

    Args: rollback_file: where the rollback is written; it must not exist yet. goes_on: what ``cluster.accepted`` gets
    right before the first change. waits: follow it until nothing moves, or until ``limit_s`` is over (None: for as long
    as it takes).

    Raises:
        OSError: the rollback could not be written; nothing was changed.
        AdminError: nothing was started.
        TimeoutError: a broker does not answer.
    """
    cluster.check_may_change()
    async with asyncio.timeout(cluster.timeout_s):
        if prepared.moves_replicas:
            write_rollback(rollback_file, f"{plan_text(prepared.rollback)}\n")
            watcher.saved(rollback_file)
        cluster.accepted(goes_on)
        try:
            refusals = await _start(cluster, prepared)
        except (AdminError, NoAuth) as error:
            if says_that_nothing_began(error):
                _drop_rollback(prepared, watcher, rollback_file)
            raise
        codes = [refusal.code for refusal in refusals]
        if len(codes) == len(prepared.changing) and not _UNCLEAR_CODES.intersection(codes):
            _drop_rollback(prepared, watcher, rollback_file)
    watcher.started(refusals)
    plan = prepared.plan
    if waits:
        statuses = await follow_reassignment(cluster, plan, watcher, limit_s=limit_s)
    async with asyncio.timeout(cluster.timeout_s):
        if not waits:
            statuses = await read_statuses(cluster, plan)
        return ExecutedReassignment(refusals, statuses, await clear_finished(cluster, plan, statuses, prepared.rates))


async def _start(cluster: Cluster, prepared: PreparedReassignment) -> list[Refusal]:
    """Throttle and start; return what the cluster refused. Remove a throttle that was set for nothing.

    If an answer is lost, the running reassignments show whether it was started. If they cannot be read either, the
    throttle stays, because the reassignment may yet begin.

    Raises:
        AnswerLost: it is unknown whether anything was started.
        AdminError: nothing was started.
        NoAuth: an access list in ZooKeeper forbids it; nothing was started.
    """
    plan = prepared.plan
    is_asked = False
    try:
        if prepared.throttle is not None:
            await set_throttle(cluster, prepared.throttle)
        wanted_dirs = {(move.name, broker): path for move in plan for broker, path in move.wanted_dirs.items()}
        if wanted_dirs:
            # A broker that does not have the replica yet remembers where to put it.
            is_asked = True
            refuse_moves(await move_log_dirs(await cluster.wire(), wanted_dirs))
        targets = {move.name: move.replicas for move in prepared.changing}
        is_asked = is_asked or bool(targets)
        refusals = await (await reassignment_changer(cluster)).alter(targets) if targets else []
    except (AdminError, NoAuth) as error:
        if isinstance(error, NoAuth) or not is_asked or says_that_nothing_began(error):
            await _undo_throttle(cluster, prepared)
            raise
        refusals = await _after_a_lost_answer(cluster, prepared, error)
    if refusals and len(refusals) == len(prepared.changing):
        await _undo_throttle(cluster, prepared)
    elif prepared.throttle is not None:
        await _renew_throttle(cluster, prepared.throttle)
    return refusals


def _drop_rollback(prepared: PreparedReassignment, watcher: ExecutionWatcher, rollback_file: Path) -> None:
    """Remove the way back from what was refused, except where replicas may already be on their way to other dirs."""
    if prepared.moves_replicas and not any(move.wanted_dirs for move in prepared.plan):
        drop_rollback(rollback_file)
        watcher.dropped(rollback_file)


def says_that_nothing_began(error: Exception) -> bool:
    """Whether a failed start is a refusal; otherwise its outcome is unknown."""
    if isinstance(error, Refused):
        return error.code not in _UNCLEAR_CODES
    return not isinstance(error, AnswerLost)


async def _after_a_lost_answer(cluster: Cluster, prepared: PreparedReassignment, error: AdminError) -> list[Refusal]:
    """Return no refusals if the request has begun.

    Raises:
        AnswerLost: that cannot be found out.
    """
    cluster.observe(f"the answer was lost, so klamm checks whether it has begun: {error}")
    try:
        statuses = await read_statuses(cluster, prepared.plan)
    except KlammError as unseen:
        cluster.observe(f"cannot see which reassignments are running: {unseen}")
        statuses = []
    asked = {move.name for move in prepared.changing} or {move.name for move in prepared.plan}
    begun = (ReassignmentState.IN_PROGRESS, ReassignmentState.COMPLETE)
    if any(status.name in asked and status.state in begun for status in statuses):
        return []
    kept = "; its throttle stays" if prepared.throttle is not None else ""
    message = f"the answer was lost, so it may have begun or begin later{kept}: {error}"
    hint = Phrase("check whether it moves, and finally remove the throttle: ", Operation.VERIFY_REASSIGNMENT)
    raise AnswerLost(message, where=error.where, hint=hint) from error


async def _undo_throttle(cluster: Cluster, prepared: PreparedReassignment) -> None:
    """Remove a throttle that was set for nothing. A failure is only reported: the error to raise is an earlier one."""
    if prepared.throttle is None:
        return
    try:
        statuses = await read_statuses(cluster, prepared.plan)
        cleared = await clear_finished(cluster, prepared.plan, statuses, prepared.rates)
    except KlammError as error:
        cluster.complain(f"the throttle cannot be removed now: {error}")
        return
    for sentence in cleared.left:
        cluster.complain(sentence)


async def _renew_throttle(cluster: Cluster, throttle: ThrottleSettings) -> None:
    try:
        await renew_throttle(cluster, throttle)
    except KlammError as error:
        cluster.complain(f"cannot find out now whether the throttle is still there: {error}")
