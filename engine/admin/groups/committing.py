"""Carries out a reset: commits the new offsets like a client outside the group, or writes a group's znodes.

If the answer to a commit is lost, it is not sent again, because it may have been carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.admin.cluster.asking import ask_all
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Unknown
from engine.admin.cluster.rollback_file import drop_rollback, write_rollback
from engine.admin.groups.group_reading import find_coordinators
from engine.admin.groups.reset_plan import GroupReset, PartitionReset, ResetResult, offsets_text
from engine.admin.groups.resetting import PlannedReset, active_refusal, offsets_before
from engine.admin.groups.scope import as_error, partitions_text
from engine.admin.groups.values import GroupType
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

_Outcomes = Mapping[TopicPartition, Unknown | None]

_JOINED_MEANWHILE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
_HINT_JOINED = "a consumer joined meanwhile: stop it, then try again"

SURELY_NOT_DONE = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Refusals after which a change may be asked for again."""


def may_change_again(unknown: Unknown) -> bool:
    """Whether a change with this failure was certainly not carried out, and may be sent again."""
    return unknown.code in SURELY_NOT_DONE


async def execute_reset(
    cluster: Cluster,
    planned: PlannedReset,
    *,
    rollback_file: Path,
    with_group: bool,
    goes_on: str,
    on_saved: Callable[[], None],
    on_dropped: Callable[[], None],
) -> tuple[list[PartitionReset], list[AdminError]]:
    """Save the current offsets, then set the new ones; return the outcome for each partition, and the failures.

    Args: rollback_file: where the rollback is written; it must not be there yet. If nothing was committed so far, no
    file is written. with_group: the file names the group of each offset. goes_on: what ``cluster.accepted`` gets right
    before the first change. on_saved: called once the file is on disk, while nothing has changed. on_dropped:
    called once the file is gone again, because brokers have refused every offset.

    Raises:
        OSError: the rollback could not be written; nothing was changed.
    """
    cluster.check_may_change()
    text = offsets_text(offsets_before(planned.able), with_group=with_group)
    if text:
        write_rollback(rollback_file, text)
        on_saved()
    cluster.accepted(goes_on)
    done, failures = await reset_offsets(cluster, planned.able)
    may_be_in_part = any(plan.type is GroupType.ZOOKEEPER for plan in planned.able)
    if text and not may_be_in_part and all(outcome.result is ResetResult.FAILED for outcome in done):
        drop_rollback(rollback_file)
        on_dropped()
    return done, failures


async def reset_offsets(cluster: Cluster, plans: Sequence[GroupReset]) -> tuple[list[PartitionReset], list[AdminError]]:
    """Set the offsets that the plans name; return the outcome for each partition, and the failures."""
    by_wire = {plan.group: plan for plan in plans if plan.type is not GroupType.ZOOKEEPER}
    outcomes: dict[str, _Outcomes | Unknown | AdminError] = {}
    if by_wire:
        outcomes.update(await _commit(cluster, by_wire))
    for plan in plans:
        if plan.type is GroupType.ZOOKEEPER:
            outcomes[plan.group] = await _write(cluster, plan)
    done: list[PartitionReset] = []
    failures: list[AdminError] = []
    for plan in plans:
        outcome = outcomes[plan.group]
        if isinstance(outcome, (Unknown, AdminError)):
            failure = _joined(as_error(outcome, f"group {plan.group}")) if isinstance(outcome, Unknown) else outcome
            failures.append(failure)
            result = _result(outcome) if isinstance(outcome, Unknown) else ResetResult.FAILED
            done += [replace(reset, result=result, error=str(failure.message)) for reset in plan.resets]
            continue
        failed: dict[Unknown, list[str]] = {}
        for reset in plan.resets:
            why = outcome.get(reset.name)
            if why is not None:
                failed.setdefault(why, []).append(str(reset.name))
            result = _result(why)
            done.append(replace(reset, result=result, error=None if why is None else str(why)))
        failures += [_joined(as_error(why, partitions_text(plan.group, names))) for why, names in failed.items()]
    return done, failures


def _result(why: Unknown | None) -> ResetResult:
    if why is None:
        return ResetResult.RESET
    return ResetResult.UNDER_WAY if why.may_still_happen else ResetResult.FAILED


async def _commit(cluster: Cluster, plans: Mapping[str, GroupReset]) -> Mapping[str, _Outcomes | Unknown]:
    wire = await cluster.wire()

    async def ask(broker_id: int, groups: list[str]) -> Mapping[str, _Outcomes | Unknown]:
        (group,) = groups
        response = await wire.call_broker(broker_id, _request(plans[group]))
        return {group: _outcomes(response)}

    return await ask_all(
        wire,
        plans,
        lambda names: find_coordinators(wire, names),
        ask,
        batch=1,
        known={name: plan.coordinator for name, plan in plans.items() if plan.coordinator >= 0},
        may_repeat=may_change_again,
        is_change=True,
    )


def _request(plan: GroupReset) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for reset in plan.resets:
        topics.setdefault(reset.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=reset.partition, committed_offset=reset.new_offset, committed_metadata=""
            )
        )
    return OffsetCommitRequest(
        group_id=plan.group,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _outcomes(response: OffsetCommitResponse) -> _Outcomes | Unknown:
    by_partition = {
        TopicPartition(topic.name, p.partition_index): p.error_code
        for topic in response.topics
        for p in topic.partitions
    }
    codes = set(by_partition.values())
    if len(codes) == 1 and (code := codes.pop()) != ErrorCode.NONE:
        # Every partition carries the group's error.
        return Unknown.of_code(code)
    return {name: None if code == ErrorCode.NONE else Unknown.of_code(code) for name, code in by_partition.items()}


async def _write(cluster: Cluster, plan: GroupReset) -> _Outcomes | AdminError:
    """Write a group's znodes, unless a consumer has joined since it was planned."""
    from engine.admin.groups.old_consumers import read_old_groups, write_old_offsets

    zk = await cluster.zookeeper()
    group = (await read_old_groups(zk, [plan.group])).get(plan.group)
    if group is not None and not group.state.is_inactive:
        return active_refusal(plan.group, group.state, group.members_or_owners)
    return await write_old_offsets(zk, plan.group, {reset.name: reset.new_offset for reset in plan.resets})


def _joined(failure: AdminError) -> AdminError:
    code = getattr(failure, "code", None)
    if code in _JOINED_MEANWHILE:
        failure.hint = _HINT_JOINED
    return failure
