"""Checks a reassignment before klamm asks the user, and whether its copies fit. ``execute`` carries it out.

For free space, only known figures count. They exclude what is written or deleted while the reassignment runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, FailureKind, NotFound, Refused
from engine.admin.cluster.members import holds_replicas, read_members
from engine.admin.cluster.remedies import USE_BROKERS, Operation, Parameter, Phrase, Words
from engine.admin.reassignment.access import read_topics, reassignment_changer, reassignment_reader, require_partitions
from engine.admin.reassignment.log_dirs import Replica, ReplicaPlace, check_can_move, check_log_dirs, read_log_dirs
from engine.admin.reassignment.moves import Flows, RunningReassignments, flows_of
from engine.admin.reassignment.reassignment_file import ANY_LOG_DIR, PartitionMove, plan_document
from engine.admin.reassignment.throttle_settings import Throttle, ThrottleSettings
from engine.admin.reassignment.throttles import plan_throttle
from engine.admin.reassignment.waves import WaveMove
from engine.admin.topics.access import topic_reader
from engine.admin.topics.values import partitions_of
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.quantities import counted
from engine.common.snapshot import LogDirSnapshot, PartitionSnapshot

_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class PlannedDir:
    """A replica that goes into another log dir of its broker; ``before`` is None if it is new or unknown."""

    broker: int
    before: str | None
    after: str

    def __str__(self) -> str:
        way = f"into {self.after}" if self.before is None else f"{self.before} → {self.after}"
        return f"broker {self.broker}: {way}"


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One partition as an execute would change it; ``replicas`` are those it has before.

    ``bytes_to_copy`` is what its new replicas and those that change their log dir have to copy in all, None if sizes
    are unknown or were not asked for.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    log_dirs: tuple[PlannedDir, ...] = ()
    bytes_to_copy: int | None = None

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def copies(self) -> int:
        """How many replicas are copied, from another broker or another log dir."""
        return len({*self.adding, *(log_dir.broker for log_dir in self.log_dirs)})

    def __str__(self) -> str:
        before, after = (",".join(map(str, replicas)) for replicas in (self.replicas, self.target))
        parts = [f"{before} → {after}"] if before != after else []
        return f"{self.name}: {', '.join([*parts, *map(str, self.log_dirs)])}"


@dataclass(frozen=True, slots=True)
class PreparedReassignment:
    """A plan that was checked against the current cluster.

    Attributes:
        plan: all its partitions.
        changing: those whose replicas will change, and are not on their way there already.
        origins: where all of them are now; a reassignment under way leaves its additions out.
        flows: who will copy from whom, running reassignments included.
        throttle: what to write for it; None if nothing.
        rates: the throttle's settings of brokers, which identify them as its own.
        places: the log dirs of replicas, of partitions for which the plan names any.
        cluster_id: of the cluster that it was checked against.
    """

    plan: tuple[PartitionMove, ...]
    changing: tuple[PartitionMove, ...]
    origins: Mapping[TopicPartition, tuple[int, ...]]
    flows: Flows
    throttle: ThrottleSettings | None
    warnings: tuple[str, ...] = ()
    rates: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[Replica, ReplicaPlace] = field(default_factory=dict)
    cluster_id: str | None = None

    @property
    def rollback(self) -> dict[str, Any]:
        """A reassignment file that leads back, including the present log dirs."""
        dirs = {
            move.name: [self._dir_of(move.name, broker) or ANY_LOG_DIR for broker in self.origins[move.name]]
            for move in self.plan
            if move.wanted_dirs
        }
        return plan_document(self.origins, log_dirs=dirs, cluster_id=self.cluster_id)

    @property
    def planned(self) -> list[PlannedMove]:
        """What changes, by name, still without sizes."""
        changing = {move.name for move in self.changing}
        moves = [_planned(move, self.origins[move.name], self._dirs_of(move)) for move in self.plan]
        return [move for move in moves if move.name in changing or move.log_dirs]

    @property
    def dir_move_count(self) -> int:
        """How many replicas change their log dir."""
        return sum(len(move.log_dirs) for move in self.planned)

    def planned_with(self, sizes: Mapping[TopicPartition, int]) -> list[PlannedMove]:
        """Return what changes with the bytes to copy; ``sizes`` are those of partitions, as far as known."""
        return [
            replace(move, bytes_to_copy=None if (size := sizes.get(move.name)) is None else size * move.copies)
            for move in self.planned
        ]

    def _dirs_of(self, move: PartitionMove) -> tuple[PlannedDir, ...]:
        wanted = sorted(move.wanted_dirs.items())
        dirs = [PlannedDir(broker, self._dir_of(move.name, broker), path) for broker, path in wanted]
        return tuple(planned for planned in dirs if planned.before != planned.after)

    def _dir_of(self, name: TopicPartition, broker: int) -> str | None:
        place = self.places.get((name, broker))
        return None if place is None else place.log_dir

    @property
    def moves_replicas(self) -> bool:
        """Whether there is anything to roll back."""
        return bool(self.changing) or any(move.wanted_dirs for move in self.plan)

    @property
    def has_work(self) -> bool:
        return self.moves_replicas or self.throttle is not None


class WaitsForDeadBroker(AdminError):
    """A reassignment would not end before a dead broker is back."""

    kind = FailureKind.REFUSED


async def prepare_reassignment(
    cluster: Cluster,
    plan: Sequence[PartitionMove],
    throttle: Throttle,
    *,
    is_additional: bool = False,
    may_change_factor: bool = True,
) -> PreparedReassignment:
    """Check a plan against the cluster. Changes nothing; with a snapshot it skips what only brokers can tell.

    Args:
        may_change_factor: partitions may get more or fewer replicas than they have (KIP-860 has the same check).

    Raises:
        BadRequest, NotFound: a partition, broker or log dir is unknown, or a new replica's broker is dead.
        WaitsForDeadBroker: it would never end through the znode.
        Refused: reassignments are under way and ``is_additional`` is not set, or the cluster is too old.
    """
    throttle.check()
    topics = await read_topics(cluster, {move.name.topic for move in plan})
    partitions = partitions_of(topics.values())
    require_partitions([move.name for move in plan], partitions)
    deleted = sorted(topic.name for topic in topics.values() if topic.is_marked_for_deletion)
    if deleted:
        raise BadRequest(f"topic {deleted[0]} is being deleted", hint="remove it from the file")
    live = await (await topic_reader(cluster)).live_brokers()
    changer = await reassignment_changer(cluster)
    warnings = await _check_brokers(cluster, plan, partitions, live)
    if changer.is_znode:
        _check_ends(plan, partitions, live, orders_wait=await changer.orders_wait())
    running = await (await reassignment_reader(cluster)).running()
    _check_running(running, is_additional=is_additional, is_znode=changer.is_znode)
    changing = tuple(move for move in plan if partitions[move.name].assignment.target_replicas != move.replicas)
    factors = {move.name: len(partitions[move.name].assignment.target_replicas) for move in changing}
    if not may_change_factor:
        _check_factors(changing, factors)
    fewer = [move for move in changing if len(move.replicas) < factors[move.name]]
    if fewer:
        warnings += _below_min_isr(fewer, await (await topic_reader(cluster)).min_isr([*topics.values()]))
    await changer.check({move.name: move.replicas for move in changing})
    origins = {move.name: partitions[move.name].assignment.origin_replicas for move in plan}
    places = await _check_dirs(cluster, plan, origins) if changer.is_live else {}
    flows = flows_of(running.assignments, plan, {name: p.assignment for name, p in partitions.items()})
    settings = None
    if throttle.is_set:
        # What moves already needs another rate, even where another client throttles all replicas.
        settings = await plan_throttle(cluster, throttle, flows, plan, live, keeps_all=is_additional)
        warnings += settings.warnings
        settings = settings if settings.topics or settings.brokers else None
    rates = throttle.broker_settings if settings is not None else {}
    cluster_id = (await read_members(cluster)).cluster_id
    return PreparedReassignment(
        tuple(plan), changing, origins, flows, settings, tuple(warnings), rates, places, cluster_id
    )


def _planned(move: PartitionMove, before: tuple[int, ...], dirs: tuple[PlannedDir, ...]) -> PlannedMove:
    adding = tuple(broker for broker in move.replicas if broker not in before)
    removing = tuple(broker for broker in before if broker not in move.replicas)
    return PlannedMove(*move.name, before, move.replicas, adding, removing, dirs)


async def _check_dirs(
    cluster: Cluster, plan: Sequence[PartitionMove], origins: Mapping[TopicPartition, tuple[int, ...]]
) -> Mapping[Replica, ReplicaPlace]:
    """Check the log dirs that a plan names; return where the replicas of these partitions are now."""
    wanted = [move for move in plan if move.wanted_dirs]
    if not wanted:
        return {}
    wire = await cluster.wire()
    await check_can_move(wire, wanted)
    holders = {broker for move in wanted for broker in origins[move.name]} & await wire.live_brokers()
    named = {broker for move in wanted for broker in move.wanted_dirs}
    log_dirs = await read_log_dirs(cluster, holders | named, [move.name for move in wanted])
    check_log_dirs(wanted, log_dirs)
    return log_dirs.places


async def _check_brokers(
    cluster: Cluster,
    plan: Sequence[PartitionMove],
    partitions: Mapping[TopicPartition, PartitionSnapshot],
    live: Set[int],
) -> list[str]:
    """Return warnings about dead brokers that keep a replica; a dead broker must not get one.

    Raises:
        NotFound: a new replica's broker is not alive.
    """
    warnings = []
    for move in plan:
        dead = [broker for broker in move.replicas if broker not in live]
        new = [broker for broker in dead if broker not in partitions[move.name].replicas]
        if new:
            alive = f"live brokers: {', '.join(map(str, sorted(live))) or 'none'}"
            where = f"partition {move.name}"
            if await holds_replicas(cluster, new[0]):
                raise NotFound(f"broker {new[0]} is dead, and gets no replica", where=where, hint=f"start it; {alive}")
            raise NotFound(f"unknown broker id {new[0]}: no live broker has it", where=where, hint=alive)
        if dead:
            warnings.append(f"{move.name} keeps replicas on dead brokers: {', '.join(map(str, dead))}")
    return warnings


def _check_ends(
    plan: Sequence[PartitionMove],
    partitions: Mapping[TopicPartition, PartitionSnapshot],
    live: Set[int],
    *,
    orders_wait: bool,
) -> None:
    """Check that no move would wait for a dead broker: through the znode it could not be cancelled and would block
    others.

    Args:
        orders_wait: a change of order waits for all replicas, too.

    Raises:
        WaitsForDeadBroker: one would.
    """
    for move in plan:
        dead = [broker for broker in move.replicas if broker not in live]
        is_order = set(move.replicas) == set(partitions[move.name].assignment.target_replicas)
        if dead and (orders_wait or not is_order):
            hint = Phrase("start it, remove the partition from the file, or ", USE_BROKERS)
            message = f"broker {dead[0]} is dead, and the controller would wait for it before all other moves"
            raise WaitsForDeadBroker(message, where=f"partition {move.name}", hint=hint)


def _check_factors(changing: Sequence[PartitionMove], factors: Mapping[TopicPartition, int]) -> None:
    others = [move for move in changing if len(move.replicas) != factors[move.name]]
    if not others:
        return
    first = others[0]
    message = f"the plan changes the replication factor of {counted(len(others), 'partition')}"
    where = f"{first.name} has {factors[first.name]}, and would have {len(first.replicas)}"
    raise BadRequest(message, where=where, hint=Phrase("if that is meant: ", Parameter.ALLOW_FACTOR_CHANGE))


def _below_min_isr(fewer: Sequence[PartitionMove], min_isr: Mapping[str, int]) -> list[str]:
    """Return warnings about partitions that will have fewer replicas than producers with acks=all need in sync."""
    short = [move for move in fewer if len(move.replicas) < min_isr.get(move.name.topic, 1)]
    lines = [
        f"{move.name} will have fewer replicas ({len(move.replicas)}) than min.insync.replicas"
        f" ({min_isr[move.name.topic]}): brokers before Kafka 3.7 refuse writes with acks=all"
        for move in short[:_NAMED_MAX]
    ]
    more = len(short) - len(lines)
    return [*lines, f"so will {counted(more, 'partition')} more"] if more > 0 else lines


def _check_running(running: RunningReassignments, *, is_additional: bool, is_znode: bool) -> None:
    if not running.names or (is_additional and not (is_znode and running.listed)):
        return
    names = sorted(running.names)
    shown = ", ".join(map(str, names[:_NAMED_MAX])) + (", …" if len(names) > _NAMED_MAX else "")
    message = f"{counted(len(names), 'partition')} being reassigned already"
    hint: Words = Phrase("wait for it (", Operation.LIST_REASSIGNMENTS, "), or add ", Parameter.ADDITIONAL)
    if is_znode:
        hint = "wait for it: through ZooKeeper reassignments run one after the other"
    raise Refused(ErrorCode.REASSIGNMENT_IN_PROGRESS, message, where=shown, hint=hint)


@dataclass(frozen=True, slots=True)
class RoomShortage:
    """More bytes will be copied than are free: into one log dir, or (None) into all those of a broker together."""

    broker: int
    log_dir: str | None
    bytes_to_copy: int
    usable_bytes: int


def room_shortages(
    moves: Iterable[PlannedMove], sizes: Mapping[TopicPartition, int], volumes: Sequence[LogDirSnapshot]
) -> list[RoomShortage]:
    """Return where there is too little room, by broker, a broker as a whole before its log dirs.

    Partitions of unknown size count as empty. A broker with an unknown volume is left out.
    """
    by_broker: Counter[int] = Counter()
    by_dir: Counter[tuple[int, str]] = Counter()
    for move in moves:
        size = sizes.get(move.name, 0)
        for broker in {*move.adding, *(log_dir.broker for log_dir in move.log_dirs)}:
            by_broker[broker] += size
        for log_dir in move.log_dirs:
            by_dir[log_dir.broker, log_dir.after] += size
    free_of_broker = {broker: _free(volumes, broker) for broker in by_broker}
    free_of_dir = {(volume.broker, volume.log_dir): volume.usable_bytes for volume in volumes}
    shortages = [
        RoomShortage(broker, None, size, free)
        for broker, size in by_broker.items()
        if (free := free_of_broker[broker]) is not None and size > free
    ]
    shortages += [
        RoomShortage(*place, size, free)
        for place, size in by_dir.items()
        if (free := free_of_dir.get(place)) is not None and size > free
    ]
    return sorted(shortages, key=lambda shortage: (shortage.broker, shortage.log_dir or ""))


def of_wave(move: WaveMove) -> PlannedMove:
    """Return a move of a plan's wave with the log dirs that its copies are meant for."""
    copied = {*move.adding, *move.changing_dirs}
    dirs = [PlannedDir(broker, None, path) for broker, path in move.move.wanted_dirs.items() if broker in copied]
    removing = tuple(broker for broker in move.before if broker not in move.target)
    return PlannedMove(*move.name, move.before, move.target, move.adding, removing, tuple(dirs))


def _free(volumes: Sequence[LogDirSnapshot], broker: int) -> int | None:
    """Return the free bytes of a broker; log dirs that report the same figures are on one volume, which counts once."""
    disks = {(volume.total_bytes, volume.usable_bytes) for volume in volumes if volume.broker == broker}
    known = [usable for _, usable in disks if usable is not None]
    return sum(known) if known and len(known) == len(disks) else None
