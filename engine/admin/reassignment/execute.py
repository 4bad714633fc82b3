"""``reassign execute``: everything is checked first, then throttled, then started.

A caller saves ``PreparedReassignment.rollback`` between ``prepare`` and ``execute``: it is the way back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, Refused
from engine.admin.cluster.remedies import Operation, Parameter, Phrase, Words
from engine.admin.cluster.target import Side
from engine.admin.reassignment.log_dirs import (
    check_can_move,
    check_log_dirs,
    move_log_dirs,
    read_log_dirs,
    refuse_moves,
)
from engine.admin.reassignment.moves import Flows, flows_of
from engine.admin.reassignment.plan_file import PartitionMove, plan_document
from engine.admin.reassignment.running import (
    Refusal,
    RunningReassignments,
    alter_reassignments,
    check_can_alter,
    partitions_of,
    read_running,
    read_topics,
    require_partitions,
)
from engine.admin.reassignment.throttle_settings import Throttle
from engine.admin.reassignment.throttles import ThrottleSettings, clear_throttles, plan_throttle, set_throttle
from engine.admin.topics.access import topic_reader
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot

_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One partition as an execute would change it; ``replicas`` are those it has before."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    def __str__(self) -> str:
        before, after = (",".join(map(str, one)) for one in (self.replicas, self.target))
        return f"{self.topic}-{self.partition}: {before} -> {after}"


@dataclass(frozen=True, slots=True)
class PreparedReassignment:
    """A plan that was checked against the cluster as it is.

    Attributes:
        plan: all its partitions.
        changing: those whose replicas are to change, and are not on their way there already.
        origins: where all of them are now; a reassignment under way leaves its additions out.
        flows: who will copy from whom, running reassignments included.
        moving_already: what was under way before.
    """

    plan: tuple[PartitionMove, ...]
    changing: tuple[PartitionMove, ...]
    origins: Mapping[TopicPartition, tuple[int, ...]]
    flows: Flows
    throttle: ThrottleSettings | None
    moving_already: frozenset[TopicPartition]
    warnings: tuple[str, ...] = ()

    @property
    def rollback(self) -> dict[str, Any]:
        """A reassignment file that leads back."""
        return plan_document(self.origins)

    @property
    def planned(self) -> list[PlannedMove]:
        return [_planned(move, self.origins[move.name]) for move in self.changing]

    @property
    def has_work(self) -> bool:
        return bool(self.changing or self.throttle or any(move.wanted_dirs for move in self.plan))


async def prepare_reassignment(
    cluster: Cluster, plan: Sequence[PartitionMove], throttle: Throttle, *, is_additional: bool = False
) -> PreparedReassignment:
    """Check a plan against the cluster. Changes nothing; of a snapshot all is checked but what brokers alone can tell.

    Raises:
        BadRequest, NotFound: a partition, broker or log dir is unknown, or a new replica's broker is dead.
        Refused: reassignments are under way and ``is_additional`` is not set, or the cluster is too old.
    """
    throttle.check()
    topics = await read_topics(cluster, {move.name.topic for move in plan})
    found = partitions_of(topics)
    require_partitions([move.name for move in plan], found)
    deleted = sorted(topic.name for topic in topics.values() if topic.is_marked_for_deletion)
    if deleted:
        raise BadRequest(f"topic {deleted[0]} is being deleted", hint="take it out of the file")
    live = await (await topic_reader(cluster)).live_brokers()
    is_live = cluster.target.snapshot is None
    is_znode = is_live and cluster.changes_by is Side.ZOOKEEPER
    warnings = _check_brokers(plan, found, live, is_strict=is_znode)
    running = await read_running(cluster)
    _check_running(running, is_additional=is_additional, is_znode=is_znode)
    changing = tuple(move for move in plan if found[move.name].assignment.target_replicas != move.replicas)
    if is_live:
        await check_can_alter(cluster, {move.name: move.replicas for move in changing})
        await _check_dirs(cluster, plan)
    flows = flows_of(running.assignments, plan, {name: p.assignment for name, p in found.items()})
    settings = await plan_throttle(cluster, throttle, flows, plan, live) if throttle.is_set else None
    if settings is not None:
        warnings += settings.warnings
        settings = settings if settings.topics or settings.brokers else None
    origins = {move.name: found[move.name].assignment.origin_replicas for move in plan}
    return PreparedReassignment(tuple(plan), changing, origins, flows, settings, running.names, tuple(warnings))


async def execute_reassignment(cluster: Cluster, prepared: PreparedReassignment) -> list[Refusal]:
    """Throttle and start what was prepared; return the partitions that the cluster refused.

    A throttle that was set for nothing is taken off again.

    Raises:
        Refused: nothing was started.
    """
    plan = prepared.plan
    try:
        if prepared.throttle is not None:
            await set_throttle(cluster, prepared.throttle)
        wanted_dirs = {(move.name, broker): path for move in plan for broker, path in move.wanted_dirs.items()}
        if wanted_dirs:
            # A broker that does not have the replica yet remembers where it shall come to lie.
            refuse_moves(await move_log_dirs(await cluster.wire(), wanted_dirs))
        targets = {move.name: move.replicas for move in prepared.changing}
        refusals = await alter_reassignments(cluster, targets) if targets else []
    except AdminError:
        await _undo_throttle(cluster, prepared)
        raise
    if refusals and len(refusals) == len(prepared.changing):
        await _undo_throttle(cluster, prepared)
    return refusals


def _planned(move: PartitionMove, before: tuple[int, ...]) -> PlannedMove:
    adding = tuple(broker for broker in move.replicas if broker not in before)
    removing = tuple(broker for broker in before if broker not in move.replicas)
    return PlannedMove(*move.name, before, move.replicas, adding, removing)


async def _undo_throttle(cluster: Cluster, prepared: PreparedReassignment) -> None:
    if prepared.throttle is not None:
        await clear_throttles(cluster, prepared.moving_already, sorted(prepared.throttle.topics))


async def _check_dirs(cluster: Cluster, plan: Sequence[PartitionMove]) -> None:
    wanted = [move for move in plan if move.wanted_dirs]
    if wanted:
        await check_can_move(await cluster.wire(), wanted)
        brokers = {broker for move in wanted for broker in move.wanted_dirs}
        check_log_dirs(wanted, await read_log_dirs(cluster, brokers, []))


def _check_brokers(
    plan: Sequence[PartitionMove],
    found: Mapping[TopicPartition, PartitionSnapshot],
    live: Set[int],
    *,
    is_strict: bool,
) -> list[str]:
    """Return warnings of dead brokers that keep a replica; a dead one must not get any.

    Raises:
        NotFound: a new replica's broker is not alive.
    """
    known = ", ".join(map(str, sorted(live))) or "none"
    warnings = []
    for move in plan:
        dead = [broker for broker in move.replicas if broker not in live]
        new = [broker for broker in dead if is_strict or broker not in found[move.name].replicas]
        if new:
            message = f"unknown broker id {new[0]}: no live broker has it"
            raise NotFound(message, where=f"partition {move.name}", hint=f"live brokers: {known}")
        if dead:
            warnings.append(f"{move.name} keeps replicas on dead brokers: {', '.join(map(str, dead))}")
    return warnings


def _check_running(running: RunningReassignments, *, is_additional: bool, is_znode: bool) -> None:
    if not running.names or (is_additional and not (is_znode and running.listed)):
        return
    names = sorted(running.names)
    shown = ", ".join(map(str, names[:_NAMED_MAX])) + (", …" if len(names) > _NAMED_MAX else "")
    message = f"{len(names)} partition{'' if len(names) == 1 else 's'} being reassigned already"
    hint: Words = Phrase("wait for it (", Operation.LIST_REASSIGNMENTS, "), or add ", Parameter.ADDITIONAL)
    if is_znode:
        hint = "wait for it: through ZooKeeper one reassignment goes after the other"
    raise Refused(ErrorCode.REASSIGNMENT_IN_PROGRESS, message, where=shown, hint=hint)
