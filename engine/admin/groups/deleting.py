"""Deletes groups, or their offsets of topics, at coordinators and in ZooKeeper. Refuses groups with members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.admin.cluster.asking import ask_all
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, OutcomeUnknown, Refused, Unknown
from engine.admin.cluster.remedies import Do, Operation, Phrase
from engine.admin.groups.committing import may_change_again
from engine.admin.groups.group_reading import committed_offsets, describe_groups, find_coordinators
from engine.admin.groups.reset_plan import TopicScope
from engine.admin.groups.resetting import active_refusal, in_both
from engine.admin.groups.rights import lacking_on_groups
from engine.admin.groups.scope import FoundGroups, GroupScope, as_error, find_groups, ids_in, partitions_text
from engine.admin.groups.values import CommittedOffset, GroupDescription, GroupOffsets, GroupType
from engine.common.acl import AclOperation
from engine.common.errors import CoordinationError, ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.kafka.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

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


_SUBSCRIBED = Unknown(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC.name, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)

_Outcomes = Mapping[TopicPartition, Unknown | None]


@dataclass(frozen=True, slots=True)
class DeletedOffset:
    """One partition's offset; ``offset`` is what was committed, None if nothing was."""

    group: str
    topic: str
    partition: int
    offset: int | None
    result: DeletionResult
    error: str | None = None

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class NothingCommitted(BadRequest):
    """A group has committed nothing in a topic that is named."""


Found = tuple[FoundGroups, list[DeletedOffset]]


async def find_offsets_of_groups(cluster: Cluster, groups: Sequence[str], topics: TopicScope) -> list[Found]:
    """Return the same as ``find_offsets_to_delete`` for each of several groups, or patterns of their whole ids.

    Of the groups that a pattern matches only those count that have committed in the topics.

    Raises:
        AdminError: a name or a pattern means no group, or nothing would be deleted.
    """
    names, failures = await ids_in(cluster, groups)
    for error in failures:
        raise error
    offsets: list[Found] = []
    nothing: NothingCommitted | None = None
    for name in names:
        try:
            offsets.append(await find_offsets_to_delete(cluster, name, topics))
        except NothingCommitted as error:
            if name in groups:
                raise
            nothing = error
    if not offsets and nothing is not None:
        raise nothing
    return offsets


async def find_offsets_to_delete(
    cluster: Cluster, group: str, topics: TopicScope
) -> tuple[FoundGroups, list[DeletedOffset]]:
    """Return the group, and the offsets in scope: those named, or all that it has committed in a topic.

    Those of topics that a member subscribes to, as far as is known, have failed already.

    Raises:
        NotFound: there is no such group.
        NothingCommitted: nothing is committed in a topic.
        BadRequest: it exists both on brokers and in ZooKeeper.
        Refused: this is a dry run, and the change would be refused.
    """
    groups = await find_groups(cluster, GroupScope((group,)), takes_patterns=False)
    for error in (*groups.failures, *in_both(groups).values()):
        raise error
    committed: GroupOffsets | Unknown
    if groups.zookeeper:
        from engine.admin.groups.old_consumers import read_old_groups

        old = (await read_old_groups(await cluster.zookeeper(), [group]))[group]
        committed, read = old.offsets, {partition.topic for partition in old.owners}
    else:
        wire = await cluster.wire()
        committed = (await committed_offsets(wire, [group], coordinators=groups.coordinators))[group]
        described = groups.described.get(group)
        read = set(described.subscribed_topics() or ()) if described is not None else set()
        for member in described.members if described is not None else ():
            read.update(partition.topic for partition in member.assignment or ())
    if isinstance(committed, Unknown):
        raise as_error(committed, f"group {group}")
    if cluster.is_dry_run:
        lacking = await lacking_on_groups(
            cluster, AclOperation.DELETE, groups.brokers, coordinators=groups.coordinators
        )
        lacking |= await cluster.lacking(AclOperation.READ, [topic for topic, _ in topics.topics])
        for refusal in lacking.values():
            raise refusal
    return groups, [
        row for topic, wanted in topics.topics for row in _meant(group, topic, wanted, committed, is_read=topic in read)
    ]


async def existing_partitions(cluster: Cluster, scope: TopicScope) -> tuple[TopicScope, list[TopicPartition]]:
    """Return the scope by its partitions, as far as they exist, and those that do not.

    Partition -1 is what nobody knows: the partitions of a topic that is meant whole and does not exist.

    Raises:
        Refused: a topic is hidden, so nobody can say whether it exists.
    """
    answers = (await (await cluster.wire()).metadata([topic for topic, _ in scope.topics])).topics
    known = {answer.name: tuple(sorted(p.partition_index for p in answer.partitions)) for answer in answers}
    existing: list[tuple[str, tuple[int, ...] | None]] = []
    absent: list[TopicPartition] = []
    for topic, chosen in scope.topics:
        own = known.get(topic, ())
        meant = (own or (-1,)) if chosen is None else chosen
        absent += [TopicPartition(topic, partition) for partition in meant if partition not in own]
        if present := tuple(partition for partition in meant if partition in own):
            existing.append((topic, present))
    if (refusal := await cluster.hidden([topic for topic, _ in absent])) is not None:
        raise refusal
    return TopicScope(tuple(existing)), absent


def absences_of(absent: Iterable[TopicPartition]) -> list[AdminError]:
    """Return an error for each topic or partition that does not exist."""
    return [
        NotFound(f"topic {topic!r} does not exist" if partition < 0 else f"there is no partition {topic}-{partition}")
        for topic, partition in absent
    ]


def doubts_of(offsets: Sequence[Found]) -> list[str]:
    """Return a warning for each group whose members may subscribe to a topic without anybody knowing."""
    return [
        f"group {name}: what its members subscribe to is not known now, so the cluster may refuse"
        for groups, rows in offsets
        for name in dict.fromkeys(row.group for row in rows if row.result is DeletionResult.WOULD_BE_DELETED)
        if name in groups.described and groups.described[name].subscribed_topics() is None
    ]


def refusals_of(outcomes: Sequence[DeletedOffset]) -> list[AdminError]:
    """Return why offsets cannot be deleted that were found, for each group."""
    names: dict[str, list[str]] = {}
    for row in outcomes:
        if row.result is DeletionResult.FAILED:
            names.setdefault(row.group, []).append(str(row.name))
    return [_explained(_SUBSCRIBED, partitions_text(group, own)) for group, own in names.items()]


async def delete_offsets(
    cluster: Cluster, chosen: FoundGroups, wanted: Sequence[DeletedOffset]
) -> tuple[list[DeletedOffset], list[AdminError]]:
    """Delete offsets of one group; return the outcome for each, and the failures."""
    cluster.check_may_change()
    committed = [preview.name for preview in wanted if preview.result is DeletionResult.WOULD_BE_DELETED]
    if not committed:
        return list(wanted), []
    group = wanted[0].group
    delete = _delete_offsets_in_zookeeper if chosen.zookeeper else _delete_offsets_at_broker
    outcomes = await delete(cluster, chosen, group, committed)
    rows: list[DeletedOffset] = []
    for preview in wanted:
        if preview.name not in outcomes:
            rows.append(preview)
            continue
        why = outcomes[preview.name]
        result = DeletionResult.DELETED if why is None else failed_or_under_way(why)
        rows.append(DeletedOffset(group, *preview.name, preview.offset, result, None if why is None else str(why)))
    failed: dict[Unknown, list[str]] = {}
    for name, why in outcomes.items():
        if why is not None:
            failed.setdefault(why, []).append(str(name))
    return rows, [_explained(why, partitions_text(group, names)) for why, names in failed.items()]


def _meant(
    group: str, topic: str, wanted: tuple[int, ...] | None, committed: GroupOffsets, *, is_read: bool
) -> list[DeletedOffset]:
    own = sorted(partition.partition for partition in committed if partition.topic == topic)
    rows = []
    for index in own if wanted is None else wanted:
        value = committed.get(TopicPartition(topic, index))
        offset = value.offset if isinstance(value, CommittedOffset) else None
        would = DeletionResult.FAILED if is_read else DeletionResult.WOULD_BE_DELETED
        result = DeletionResult.NOTHING_COMMITTED if value is None else would
        error = str(_SUBSCRIBED) if result is DeletionResult.FAILED else None
        rows.append(DeletedOffset(group, topic, index, offset, result, error))
    if not rows:
        hint = Phrase("see what it has committed: ", Do(Operation.DESCRIBE_GROUP, group))
        message = f"the group has committed nothing in topic {topic!r}"
        raise NothingCommitted(message, where=f"group {group}", hint=hint, topics=[topic])
    return rows


async def _delete_offsets_at_broker(
    cluster: Cluster, chosen: FoundGroups, group: str, partitions: Sequence[TopicPartition]
) -> _Outcomes:
    wire = await cluster.wire()
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=index))
    request = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=own) for topic, own in topics.items()]
    )

    async def ask(broker_id: int, _: list[str]) -> Mapping[str, _Outcomes | Unknown]:
        response = await wire.call_broker(broker_id, request)
        if response.error_code != ErrorCode.NONE:
            return {group: Unknown.of_code(response.error_code)}
        return {
            group: {
                TopicPartition(topic.name, p.partition_index): (
                    Unknown.of_code(p.error_code) if p.error_code != ErrorCode.NONE else None
                )
                for topic in response.topics
                for p in topic.partitions
            }
        }

    answers = await ask_all(
        wire,
        [group],
        lambda names: find_coordinators(wire, names),
        ask,
        batch=1,
        known=chosen.coordinators,
        may_repeat=may_change_again,
        is_change=True,
    )
    outcome = answers[group]
    return dict.fromkeys(partitions, outcome) if isinstance(outcome, Unknown) else outcome


async def _delete_offsets_in_zookeeper(
    cluster: Cluster, chosen: FoundGroups, group: str, partitions: Sequence[TopicPartition]
) -> _Outcomes:
    from engine.admin.groups.old_consumers import delete_old_offsets, read_old_groups

    zk = await cluster.zookeeper()
    owned = (await read_old_groups(zk, [group]))[group].owners
    read_topics = {partition.topic for partition in owned}
    free = [partition for partition in partitions if partition.topic not in read_topics]
    refused: dict[TopicPartition, Unknown | None] = {
        partition: _SUBSCRIBED for partition in partitions if partition.topic in read_topics
    }
    return refused | await delete_old_offsets(zk, group, free)


def _explained(why: Unknown, where: str) -> AdminError:
    if why.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        message, hint = "a member of the group reads the topic", "stop its consumers of the topic first"
        return Refused(why.code, message, where=where, hint=hint)
    return as_error(why, where)
