"""Deletes groups, or their offsets of topics, at coordinators and in ZooKeeper. Refuses groups with members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.admin.cluster.asking import ask_all
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, OutcomeUnknown, Refused, Unknown
from engine.admin.groups.committing import may_change_again
from engine.admin.groups.group_reading import describe_groups, find_coordinators
from engine.admin.groups.resetting import active_refusal, in_both
from engine.admin.groups.rights import lacking_on_groups
from engine.admin.groups.scope import FoundGroups, GroupScope, as_error, find_groups
from engine.admin.groups.values import GroupDescription, GroupType
from engine.common.acl import AclOperation
from engine.common.errors import CoordinationError, ErrorCode
from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest

_GROUPS_PER_REQUEST = 200


class DeletionResult(StrEnum):
    """The outcome for a group or an offset."""

    DELETED = "deleted"
    WOULD_BE_DELETED = "would_be_deleted"
    NOTHING_COMMITTED = "nothing_committed"
    FAILED = "failed"
    UNDER_WAY = "under_way"
    """It was requested, and nobody answered: it may still take effect."""


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """One group."""

    group: str
    type: GroupType
    result: DeletionResult
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GroupsToDelete:
    """Groups without members, by where they are, and why the others stay."""

    brokers: tuple[str, ...]
    zookeeper: tuple[str, ...]
    coordinators: Mapping[str, int]
    refusals: Mapping[str, AdminError]
    failures: tuple[AdminError, ...]

    @property
    def names(self) -> list[str]:
        return sorted([*self.brokers, *self.zookeeper])

    @property
    def all_failures(self) -> list[AdminError]:
        return [*self.failures, *self.refusals.values()]

    def planned(self) -> list[DeletedGroup]:
        """Return what a dry run reports."""
        would = DeletionResult.WOULD_BE_DELETED
        rows = [DeletedGroup(group, GroupType.CLASSIC, would) for group in self.brokers]
        rows += [DeletedGroup(group, GroupType.ZOOKEEPER, would) for group in self.zookeeper]
        rows += [
            DeletedGroup(group, GroupType.CLASSIC, DeletionResult.FAILED, str(why.message))
            for group, why in self.refusals.items()
        ]
        return sorted(rows, key=lambda row: (row.group, row.type))


async def find_groups_to_delete(cluster: Cluster, scope: GroupScope) -> GroupsToDelete:
    """Find the groups in scope and check whether they have members; in a dry run also whether they may be deleted."""
    groups = await find_groups(cluster, scope)
    refusals: dict[str, AdminError] = in_both(groups)
    described: Mapping[str, GroupDescription | Unknown] = groups.described
    if groups.brokers and not described:
        described = await describe_groups(await cluster.wire(), groups.brokers, coordinators=groups.coordinators)
    for name in groups.brokers:
        group = described[name]
        if isinstance(group, Unknown):
            refusals.setdefault(name, as_error(group, f"group {name}"))
        elif not group.state.is_inactive:
            refusals.setdefault(name, active_refusal(name, group.state, group.members))
    refusals |= await _active_old_groups(cluster, groups, refusals)
    if cluster.is_dry_run:
        able = [name for name in groups.brokers if name not in refusals]
        refusals |= await lacking_on_groups(cluster, AclOperation.DELETE, able, coordinators=groups.coordinators)
    return GroupsToDelete(
        tuple(name for name in groups.brokers if name not in refusals),
        tuple(name for name in groups.zookeeper if name not in refusals),
        groups.coordinators,
        dict(sorted(refusals.items())),
        groups.failures,
    )


async def delete_groups(cluster: Cluster, wanted: GroupsToDelete) -> tuple[list[DeletedGroup], list[AdminError]]:
    """Delete groups with all their offsets; return the outcome for each, and the failures."""
    cluster.check_may_change()
    rows: list[DeletedGroup] = []
    failures: list[AdminError] = []

    def note(group: str, kind: GroupType, why: AdminError | None) -> None:
        result = DeletionResult.DELETED if why is None else failed_or_under_way(why)
        rows.append(DeletedGroup(group, kind, result, None if why is None else str(why.message)))
        if why is not None:
            failures.append(why)

    if wanted.brokers:
        for group, why in (await _delete_at_brokers(cluster, wanted)).items():
            note(group, GroupType.CLASSIC, None if why is None else as_error(why, f"group {group}"))
    for group in wanted.zookeeper:
        note(group, GroupType.ZOOKEEPER, await _delete_in_zookeeper(cluster, group))
    rows += [row for row in wanted.planned() if row.result is DeletionResult.FAILED]
    return sorted(rows, key=lambda row: (row.group, row.type)), failures


def failed_or_under_way(why: AdminError | Unknown) -> DeletionResult:
    """Return the outcome of a deletion that did not succeed."""
    is_open = why.may_still_happen if isinstance(why, Unknown) else isinstance(why, OutcomeUnknown)
    return DeletionResult.UNDER_WAY if is_open else DeletionResult.FAILED


async def _delete_at_brokers(cluster: Cluster, wanted: GroupsToDelete) -> Mapping[str, Unknown | None]:
    """Return why a group was not deleted; None if it was."""
    wire = await cluster.wire()

    async def ask(broker_id: int, groups: list[str]) -> Mapping[str, Unknown | None]:
        response = await wire.call_broker(broker_id, DeleteGroupsRequest(groups_names=groups))
        return {
            result.group_id: Unknown.of_code(result.error_code) if result.error_code != ErrorCode.NONE else None
            for result in response.results
        }

    return await ask_all(
        wire,
        wanted.brokers,
        lambda names: find_coordinators(wire, names),
        ask,
        batch=_GROUPS_PER_REQUEST,
        known=wanted.coordinators,
        may_repeat=may_change_again,
        is_change=True,
    )


async def _delete_in_zookeeper(cluster: Cluster, group: str) -> AdminError | None:
    from engine.admin.groups.old_consumers import delete_old_group, read_old_groups

    zk = await cluster.zookeeper()
    old_group = (await read_old_groups(zk, [group])).get(group)
    if old_group is None:
        return None
    if not old_group.state.is_inactive:
        return active_refusal(group, old_group.state, old_group.members_or_owners)
    try:
        await delete_old_group(zk, group)
    except CoordinationError as error:
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error), where=f"group {group}", hint="check, then try again")
    return None


async def _active_old_groups(
    cluster: Cluster, chosen: FoundGroups, refused: Mapping[str, AdminError]
) -> dict[str, AdminError]:
    names = [name for name in chosen.zookeeper if name not in refused]
    if not names:
        return {}
    from engine.admin.groups.old_consumers import read_old_groups

    groups = await read_old_groups(await cluster.zookeeper(), names)
    return {
        name: active_refusal(name, group.state, group.members_or_owners)
        for name, group in groups.items()
        if not group.state.is_inactive
    }
