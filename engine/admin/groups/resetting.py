"""Plans resets of group offsets from the state of the cluster. ``committing`` then carries a plan out.

It plans or refuses a group as a whole; a refused group does not block the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, Refused, Unknown
from engine.admin.cluster.remedies import SEE_TOPICS, Do, Give, Operation, Parameter, Phrase
from engine.admin.groups.group_reading import committed_offsets, describe_groups, is_absent
from engine.admin.groups.reset_plan import (
    GroupReset,
    LogFacts,
    OffsetsByGroup,
    PartitionReset,
    ResetSpec,
    ResetTo,
    TopicScope,
    needs_range,
    new_offsets,
)
from engine.admin.groups.rights import lacking_on_groups
from engine.admin.groups.scope import NO_COORDINATOR, FoundGroups, GroupScope, as_error, find_groups, partitions_text
from engine.admin.groups.values import (
    CommittedOffset,
    GroupDescription,
    GroupMember,
    GroupOffsets,
    GroupState,
    GroupType,
)
from engine.admin.offsets.listing import end_offsets, offsets_at, start_offsets
from engine.common.acl import AclOperation
from engine.common.errors import ErrorCode
from engine.common.listing import first_few
from engine.common.model import TopicPartition
from engine.common.quantities import counted


@dataclass(frozen=True, slots=True)
class PlannedReset:
    """The plans by group, including refused ones, and what could not be read about the groups."""

    groups: tuple[GroupReset, ...]
    failures: tuple[AdminError, ...] = ()
    others: tuple[str, ...] = ()
    """Groups of other protocols, which "all" does not include."""

    @property
    def able(self) -> list[GroupReset]:
        """The plans that may be carried out and have something to do."""
        return [group for group in self.groups if group.refusal is None and group.resets]

    @property
    def uncommitted_count(self) -> int:
        """How many of their partitions have no offset so far: no file can restore that."""
        return sum(reset.current_offset is None for group in self.able for reset in group.resets)

    @property
    def refusals(self) -> list[AdminError]:
        return [*self.failures, *(group.refusal for group in self.groups if group.refusal is not None)]


@dataclass(frozen=True, slots=True)
class _Standing:
    """What is known about one group before it is planned."""

    group: str
    type: GroupType
    coordinator: int
    committed: GroupOffsets
    refusal: AdminError | None = None
    is_new: bool = False
    is_known: bool = True
    """Its offsets could be read."""


async def plan_reset(
    cluster: Cluster, scope: GroupScope, topics: TopicScope | None, spec: ResetSpec, *, is_backup: bool = False
) -> PlannedReset:
    """Plan a reset. ``topics`` None means all that the group has committed, or what the file names.

    A backup only reads: it includes groups with members, and leaves out partitions without an offset, with a warning.
    A dry run of anything else refuses a group that this principal may not reset.

    Raises:
        NotFound: a named topic or partition does not exist.
    """
    if spec.offsets is not None and scope.is_all:
        scope = GroupScope(tuple(spec.offsets))
    groups = await find_groups(cluster, scope, may_be_absent=topics is not None or spec.to is ResetTo.FILE)
    named = None if topics is None else await _partitions_of(cluster, topics)
    standings = [*await _at_brokers(cluster, groups), *await _in_zookeeper(cluster, groups)]
    if is_backup:
        standings = _readable(standings)
    meant = {standing.group: _meant(standing, named, spec) for standing in standings}
    if cluster.is_dry_run and not is_backup:
        standings = await _allowed(cluster, standings, meant)
    facts = await _facts(
        cluster, spec, [(standing, meant[standing.group]) for standing in standings if standing.refusal is None]
    )
    skips_deleted = named is None and spec.to is not ResetTo.FILE
    plans = [
        _plan(standing, meant[standing.group], spec, facts, skips_deleted=skips_deleted, is_backup=is_backup)
        for standing in standings
    ]
    return PlannedReset(tuple(sorted(plans, key=lambda plan: plan.group)), groups.failures, groups.others)


async def _allowed(
    cluster: Cluster, standings: Sequence[_Standing], meant: Mapping[str, Sequence[TopicPartition]]
) -> list[_Standing]:
    """Return them with a refusal of each group that a coordinator would not let this principal reset."""
    able = {
        standing.group
        for standing in standings
        if standing.refusal is None and standing.type is not GroupType.ZOOKEEPER
    }
    no_group = await lacking_on_groups(cluster, AclOperation.READ, sorted(able))
    topics = sorted({partition.topic for group in able for partition in meant[group]})
    no_topic = await cluster.lacking(AclOperation.READ, topics)

    def refused(group: str) -> AdminError | None:
        of_topics = (no_topic[partition.topic] for partition in meant[group] if partition.topic in no_topic)
        return no_group.get(group) or next(of_topics, None)

    return [
        replace(standing, refusal=refused(standing.group)) if standing.group in able else standing
        for standing in standings
    ]


def _readable(standings: Iterable[_Standing]) -> list[_Standing]:
    """Return them without the refusals that only matter for a change: members, and a name that two groups have."""
    return [replace(standing, refusal=None) if standing.is_known else standing for standing in standings]


def offsets_before(plans: Iterable[GroupReset]) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets that a reset replaces: the content of a rollback file."""
    return {
        plan.group: {reset.name: reset.current_offset for reset in plan.resets if reset.current_offset is not None}
        for plan in plans
    }


def offsets_after(plans: Iterable[GroupReset]) -> OffsetsByGroup:
    """Return the offsets that a reset sets: what ``--export`` prints."""
    return {plan.group: {reset.name: reset.new_offset for reset in plan.resets} for plan in plans}


def active_refusal(group: str, state: GroupState, members: Sequence[GroupMember]) -> Refused:
    """Return the refusal of a change that needs a group without members; it names some of them."""
    named = [f"{member.member_id} ({member.client_id or '-'} at {member.host or '-'})" for member in members]
    who = f", with {counted(len(named), 'member')}: {first_few(named)}"
    return Refused(
        ErrorCode.NON_EMPTY_GROUP,
        f"the group is {state.value}{who if named else ''}",
        where=f"group {group}",
        hint="stop its consumers first; a killed one is gone after its session time-out",
    )


def in_both(groups: FoundGroups) -> dict[str, AdminError]:
    """Return the refusal of each group that is both on brokers and in ZooKeeper: a change must know which is meant."""
    hint = Phrase("choose with ", Give(Parameter.VIA, "wire"), " or ", Give(Parameter.VIA, "zookeeper"))
    return {
        name: BadRequest("the group exists both on brokers and in ZooKeeper", where=f"group {name}", hint=hint)
        for name in set(groups.brokers) & set(groups.zookeeper)
    }


async def _at_brokers(cluster: Cluster, groups: FoundGroups) -> list[_Standing]:
    if not groups.brokers:
        return []
    wire = await cluster.wire()
    described: Mapping[str, GroupDescription | Unknown] = groups.described
    if not described:
        described = await describe_groups(wire, groups.brokers, coordinators=groups.coordinators)
    committed = await committed_offsets(wire, groups.brokers, coordinators=groups.coordinators)
    twice = in_both(groups)
    return [_standing(name, described[name], committed[name], twice.get(name)) for name in groups.brokers]


def _standing(
    name: str, group: GroupDescription | Unknown, offsets: GroupOffsets | Unknown, refusal: AdminError | None
) -> _Standing:
    if isinstance(group, Unknown):
        error = refusal or as_error(group, f"group {name}")
        return _Standing(name, GroupType.CLASSIC, NO_COORDINATOR, {}, error, is_known=False)
    if isinstance(offsets, Unknown):
        error = refusal or as_error(offsets, f"group {name}")
        return _Standing(name, group.type, group.coordinator, {}, error, is_known=False)
    if not group.state.is_inactive:
        refusal = refusal or active_refusal(name, group.state, group.members)
    return _Standing(name, group.type, group.coordinator, offsets, refusal, is_absent(group))


async def _in_zookeeper(cluster: Cluster, chosen: FoundGroups) -> list[_Standing]:
    if not chosen.zookeeper:
        return []
    from engine.admin.groups.old_consumers import read_old_groups

    twice = in_both(chosen)
    groups = await read_old_groups(await cluster.zookeeper(), [name for name in chosen.zookeeper if name not in twice])
    return [
        _Standing(
            name,
            GroupType.ZOOKEEPER,
            NO_COORDINATOR,
            group.offsets,
            None if group.state.is_inactive else active_refusal(name, group.state, group.members_or_owners),
        )
        for name, group in groups.items()
    ]


async def _partitions_of(cluster: Cluster, scope: TopicScope) -> list[TopicPartition]:
    wire = await cluster.wire()
    metadata = await wire.metadata([topic for topic, _ in scope.topics])
    known = {
        topic.name: sorted(p.partition_index for p in topic.partitions)
        for topic in metadata.topics
        if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    names: list[TopicPartition] = []
    for topic, wanted in scope.topics:
        if not known.get(topic):
            raise NotFound(f"topic {topic!r} does not exist", hint=SEE_TOPICS, topics=[topic])
        absent = sorted(set(wanted or ()) - set(known[topic]))
        if absent:
            hint = Phrase("see its partitions with: ", Do(Operation.DESCRIBE_TOPIC, topic))
            raise NotFound(f"partition {topic}-{absent[0]} does not exist", hint=hint)
        names += [TopicPartition(topic, index) for index in (known[topic] if wanted is None else wanted)]
    return names


def _meant(standing: _Standing, named: list[TopicPartition] | None, spec: ResetSpec) -> list[TopicPartition]:
    if spec.offsets is not None:
        return sorted(spec.offsets.get(standing.group, {}))
    return sorted(standing.committed) if named is None else named


async def _facts(
    cluster: Cluster, spec: ResetSpec, meant: Sequence[tuple[_Standing, Sequence[TopicPartition]]]
) -> LogFacts:
    """Ask the leaders what the scenario needs; nothing if it needs nothing."""
    partitions = sorted({partition for _, some in meant for partition in some})
    uncommitted = sorted({p for standing, some in meant for p in some if p not in standing.committed})
    wants_ends = partitions if spec.to is ResetTo.LATEST or needs_range(spec) else []
    if spec.to is ResetTo.CURRENT:
        wants_ends = uncommitted
    starts = ends = at_time = {}
    if spec.to is ResetTo.TIME and partitions:
        at_time = await offsets_at(await cluster.wire(), dict.fromkeys(partitions, spec.value))
        wants_ends = [partition for partition, offset in at_time.items() if offset == -1]
    if partitions and (spec.to is ResetTo.EARLIEST or needs_range(spec)):
        starts = await start_offsets(await cluster.wire(), partitions)
    if wants_ends:
        ends = await end_offsets(await cluster.wire(), wants_ends)
    return LogFacts(starts, ends, at_time)


def _plan(
    standing: _Standing,
    partitions: Sequence[TopicPartition],
    spec: ResetSpec,
    facts: LogFacts,
    *,
    skips_deleted: bool,
    is_backup: bool,
) -> GroupReset:
    blank = GroupReset(standing.group, standing.type, standing.coordinator)
    if standing.refusal is not None:
        return replace(blank, refusal=standing.refusal)
    if spec.offsets is not None and standing.group not in spec.offsets:
        return replace(
            blank, refusal=NotFound("the file has no offsets for the group", where=f"group {standing.group}")
        )
    new = new_offsets(spec, standing.group, partitions, standing.committed, facts)
    warnings = list(new.warnings)
    problems = dict(new.problems)
    if skips_deleted:
        gone = [p for p, why in problems.items() if why.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        warnings += [f"partition {p} does not exist any more; its offset is left alone" for p in gone]
        problems = {p: why for p, why in problems.items() if p not in gone}
    if is_backup:
        warnings += [f"partition {p} is left out: {why}" for p, why in problems.items()]
        warnings += [] if new.offsets else ["has committed nothing, so there is nothing to keep"]
        problems = {}
    if problems:
        return replace(blank, refusal=_problem(standing.group, problems))
    resets = tuple(
        PartitionReset(standing.group, *partition, _current(standing.committed.get(partition)), offset)
        for partition, offset in new.offsets.items()
    )
    return replace(blank, resets=resets, warnings=tuple(warnings), is_new=standing.is_new)


def _current(committed: CommittedOffset | Unknown | None) -> int | None:
    return committed.offset if isinstance(committed, CommittedOffset) else None


def _problem(group: str, problems: Mapping[TopicPartition, Unknown]) -> AdminError:
    """Return one failure for all partitions without a new offset; the group is left alone."""
    first = next(iter(problems.values()))
    where = partitions_text(group, (partition for partition, why in problems.items() if why == first))
    if first.code is ErrorCode.NONE:
        hint = Phrase(
            "leave these partitions out, or set them with ",
            Parameter.TO_OFFSET, ", ", Parameter.TO_EARLIEST, " or ", Parameter.TO_LATEST,
        )  # fmt: skip
        return BadRequest(first.message, where=where, hint=hint)
    if first.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NotFound("does not exist", where=where, hint=SEE_TOPICS)
    return as_error(first, where)
