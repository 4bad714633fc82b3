"""Makes the problem from a cluster snapshot and options: which brokers are targets, what is forced, what may move."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from engine.common.assignment import lacking_rack
from engine.common.listing import first_few
from engine.common.model import TopicPartition
from engine.common.quantities import counted
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, TopicSnapshot
from plans.errors import BadOption, Infeasible
from plans.options import Aim, LogDirCapacity, Minimise, PlanOptions, Strategy
from plans.problem import Problem, ProblemBroker, ProblemPartition, bits, mask_of

_EMPTIES_DEAD = frozenset({Strategy.REBALANCE, Strategy.RACKS})
DEFAULT_AIMS = {
    Strategy.REBALANCE: (Aim.REPLICAS, Aim.LEADERS),
    Strategy.EXPAND: (Aim.REPLICAS,),
    Strategy.LEADERS: (Aim.LEADERS,),
}
_CAPACITY_HINT = "correct the file of --capacity"
SIZES_HINT = "sizes come from a live cluster, or from a snapshot taken with --sizes; --minimise moves needs none"


@dataclass(frozen=True, slots=True)
class BuiltProblem:
    """The problem, the options with every default filled in, and notes for users."""

    problem: Problem
    options: PlanOptions
    notes: tuple[str, ...] = ()


def build_problem(snapshot: ClusterSnapshot, strategy: Strategy, options: PlanOptions) -> BuiltProblem:
    """Return the problem that a strategy poses on a cluster.

    Raises:
        BadOption: an option is wrong, or names a broker or partition that the cluster does not have.
        Infeasible: replicas have nowhere to go.
    """
    return _Builder(snapshot, strategy, options).build()


@dataclass(slots=True)
class _Builder:
    snapshot: ClusterSnapshot
    strategy: Strategy
    options: PlanOptions
    notes: list[str] = field(default_factory=list)
    index: dict[int, int] = field(default_factory=dict)
    brokers: list[ProblemBroker] = field(default_factory=list)
    masks: dict[str, int] = field(default_factory=dict)
    rack_counts: dict[int, int] = field(default_factory=dict)
    """Racks by mask: nearly all partitions may use the same brokers."""

    def build(self) -> BuiltProblem:
        aim = self._aim()
        self._index_brokers()
        pins = self._pins()
        is_selected = self._selection()
        targets = self._targets()
        if self.strategy is Strategy.FACTOR:
            self._check_factor(targets)
        partitions = []
        moving = []
        for number, topic in enumerate(sorted(self.snapshot.topics, key=lambda topic: topic.name)):
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition):
                name = TopicPartition(topic.name, partition.partition)
                is_free = is_selected(topic) and name not in pins and bool(partition.replicas)
                is_moving = partition.assignment.is_being_reassigned
                partitions.append(self._partition(name, number, partition, targets, is_free and not is_moving, aim))
                if is_free and is_moving:
                    moving.append(partitions[-1])
        self._check_left_behind(partitions, is_selected, pins)
        if moving:
            is_or_are = "is" if len(moving) == 1 else "are"
            note = f"{counted(len(moving), 'partition')} {is_or_are} being reassigned and left out: {_listed(moving)}"
            self.notes.append(note)
        options = self._filled(aim, partitions)
        assert options.minimise is not None
        problem = Problem(
            brokers=tuple(self.brokers),
            partitions=tuple(partitions),
            topic_count=len(self.snapshot.topics),
            rack_count=len({broker.rack for broker in self.brokers if broker.remains}),
            aim=frozenset(aim),
            minimise=options.minimise,
            tolerance_percent=options.tolerance_percent,
            capacities=self._capacities(),
            leaving=frozenset(bits(self.masks["leaving"])),
            targets=targets,
            replacements=options.replacements,
            max_moves=options.max_moves,
            max_bytes=options.max_bytes,
        )
        return BuiltProblem(problem, options, tuple(self.notes))

    def _aim(self) -> tuple[Aim, ...]:
        asked = self.options.aim
        if asked is None:
            return DEFAULT_AIMS.get(self.strategy, ())
        if self.strategy is Strategy.LEADERS and set(asked) != {Aim.LEADERS}:
            raise BadOption("leaders only reorders replica lists: its one aim is leaders", hint="use rebalance --aim …")
        return tuple(sorted(set(asked), key=list(Aim).index))

    def _index_brokers(self) -> None:
        live = {broker.id: broker.rack for broker in self.snapshot.brokers}
        holders = {b for t in self.snapshot.topics for p in t.partitions for b in p.assignment.target_replicas}
        known = sorted(set(live) | holders)
        self._check_ids(set(live), set(known))
        has_racks = bool(live) and all(rack is not None for rack in live.values())
        if lacking := lacking_rack(live):
            without = ", ".join(map(str, lacking))
            if self.strategy is Strategy.RACKS:
                which = f"broker {without} has" if len(lacking) == 1 else f"brokers {without} have"
                raise Infeasible(
                    f"cannot judge racks: {which} none",
                    hint="give them broker.rack and restart them; until then rebalance levels without racks",
                )
            self.notes.append(f"racks are ignored: brokers without a rack: {without}")
        names = sorted({rack for rack in live.values() if rack is not None}) if has_racks else []
        removed = {*self.options.brokers} if self.strategy is Strategy.DECOMMISSION else set()
        removed |= {replacement.old for replacement in self.options.replacements}
        dead = set(known) - set(live)
        emptied_dead = dead if self.strategy in _EMPTIES_DEAD and not self.options.keep_dead else set()
        if dead - removed:
            self._tell_dead(sorted(dead - removed), bool(emptied_dead))
        for position, broker in enumerate(known):
            self.index[broker] = position
            rack = names.index(live[broker] or "") if has_racks and broker in live else len(names) + position
            remains = broker in live and broker not in removed
            self.brokers.append(ProblemBroker(broker, rack, live.get(broker), broker in live, remains))
        self.masks["live"] = self._mask(live)
        self.masks["dead"] = self._mask(dead)
        self.masks["leaving"] = self._mask(removed | emptied_dead)

    def _tell_dead(self, dead: list[int], is_emptied: bool) -> None:
        listed = ", ".join(map(str, dead))
        is_single = len(dead) == 1
        who = f"broker {listed} is" if is_single else f"brokers {listed} are"
        emptied, kept = ("it is", "its") if is_single else ("they are", "their")
        fate = f"{emptied} emptied first" if is_emptied else f"{kept} replicas stay"
        self.notes.append(f"{who} not registered: {fate}")

    def _check_ids(self, live: set[int], known: set[int]) -> None:
        listed = f"live brokers: {', '.join(map(str, sorted(live))) or 'none'}"
        old = [replacement.old for replacement in self.options.replacements]
        new = [replacement.new for replacement in self.options.replacements]
        for broker in [*self.options.brokers, *old, *new, *self.options.exclude_brokers]:
            if broker not in known and broker not in live:
                raise BadOption(f"no broker {broker}: it is not registered and holds no replica", hint=listed)
        must_live = [*new, *(self.options.brokers if self.strategy in (Strategy.EXPAND, Strategy.MOVE) else ())]
        for broker in must_live:
            if broker not in live:
                raise BadOption(f"broker {broker} is not registered, so nothing can move onto it", hint=listed)
        if len(set(old)) < len(old) or len(set(new)) < len(new) or set(old) & set(new):
            raise BadOption("replace names a broker twice", hint="write OLD=NEW[,OLD=NEW…], each broker once")
        if self.strategy is Strategy.DECOMMISSION and live <= set(self.options.brokers):
            raise Infeasible("no broker would remain", hint="add a broker first")

    def _mask(self, brokers: Iterable[int]) -> int:
        return mask_of([self.index[broker] for broker in brokers])

    def _pins(self) -> set[TopicPartition]:
        pins = set()
        for text in self.options.pins:
            topic, _, number = text.rpartition("-")
            name = TopicPartition(topic, int(number)) if topic and number.isdecimal() else None
            if name is None or self.snapshot.partition(name) is None:
                raise BadOption(f"no such partition to pin: {text}", hint="write TOPIC-PARTITION, such as orders-0")
            pins.add(name)
        return pins

    def _selection(self) -> Callable[[TopicSnapshot], bool]:
        wanted, unwanted = _patterns(self.options.topics), _patterns(self.options.exclude_topics)
        for pattern in (*wanted, *unwanted):
            if not any(pattern.fullmatch(topic.name) for topic in self.snapshot.topics):
                # One that excludes would protect nothing, and the user would not notice.
                hint = "a pattern matches whole names, such as 'orders.*'; klamm topics list shows them"
                raise BadOption(f"no topic matches '{pattern.pattern}'", hint=hint)

        def is_selected(topic: TopicSnapshot) -> bool:
            if topic.is_marked_for_deletion or any(regex.fullmatch(topic.name) for regex in unwanted):
                return False
            return not wanted or any(regex.fullmatch(topic.name) for regex in wanted)

        return is_selected

    def _targets(self) -> int:
        targets = self.masks["live"] & ~self.masks["leaving"] & ~self._mask(self.options.exclude_brokers)
        if self.strategy in (Strategy.EXPAND, Strategy.MOVE):
            targets &= self._mask(self.options.brokers)
        return targets

    def _check_factor(self, targets: int) -> None:
        factor = self.options.replication_factor or 0
        count = targets.bit_count()
        if factor < 1:
            raise BadOption("a replication factor must be at least 1", hint="write klamm plan factor 3")
        if factor > count:
            raise Infeasible(
                f"{factor} replicas are wanted, but only {counted(count, 'broker')} can take any",
                hint=f"add {factor - count} more, or ask for at most {count}",
            )
        racks = len({self.brokers[index].rack for index in bits(targets)})
        if factor > racks:
            self.notes.append(f"{factor} replicas share {counted(racks, 'rack')}: some racks get more than one")

    def _partition(
        self,
        name: TopicPartition,
        topic: int,
        partition: PartitionSnapshot,
        targets: int,
        is_free: bool,
        aim: tuple[Aim, ...],
    ) -> ProblemPartition:
        current = tuple(self.index[broker] for broker in partition.assignment.target_replicas)
        size = copy_size(partition)
        held = mask_of(current)
        if not is_free:
            return ProblemPartition(name, topic, current, len(current), size, False, held, held, held, len(current))
        factor = self.options.replication_factor if self.strategy is Strategy.FACTOR else None
        factor = len(current) if factor is None else factor
        kept = held & ~self.masks["leaving"]
        if self.strategy is Strategy.MOVE:
            kept &= targets
        may_hold = kept if self.strategy is Strategy.LEADERS else kept | targets
        if may_hold.bit_count() < factor:
            count = may_hold.bit_count()
            raise Infeasible(
                f"{name} needs {factor} replicas, but only {counted(count, 'broker')} may hold it",
                hint=self._more_targets_hint(held),
            )
        must_hold = kept & self.masks["dead"]
        if must_hold and kept == held and factor == len(current):
            # The cluster ends no move before all targets are in the ISR, so a copy would wait for the dead broker.
            may_hold = held
        if factor < len(current):
            # Dead replicas are dropped first, and no live one is dropped in their place.
            living = kept & ~self.masks["dead"]
            dead = [broker for broker in current if must_hold >> broker & 1]
            stays = mask_of(dead[: max(0, factor - living.bit_count())])
            must_hold = stays if aim or not stays else stays | living
            may_hold &= stays | ~self.masks["dead"]
        least = factor - min(factor, self._rack_count(may_hold))
        is_aimed = bool(aim) or self.strategy is Strategy.RACKS
        shared = (
            least if is_aimed and self.strategy is not Strategy.LEADERS else self._forced_shared(kept, factor, may_hold)
        )
        shared = max(shared, must_hold.bit_count() - self._rack_count(must_hold))
        is_touched = kept != held or factor != len(current) or len(current) - self._rack_count(held) > shared
        may_lead = may_hold & ~self.masks["dead"] or may_hold
        if Aim.LEADERS not in aim or must_hold.bit_count() == factor:
            # If all replicas stay on dead brokers, no other can come first.
            may_lead = may_hold
        return ProblemPartition(
            name, topic, current, factor, size, bool(aim) or is_touched, may_hold, must_hold, may_lead, shared
        )

    def _more_targets_hint(self, held: int) -> str:
        """Say what to do if a partition on ``held`` has too few brokers to go to."""
        if self.strategy in _EMPTIES_DEAD and (dead := held & self.masks["leaving"]):
            names = ", ".join(str(self.brokers[index].id) for index in bits(dead))
            if dead.bit_count() == 1:
                return f"broker {names} is dead; start it, or leave its replicas where they are with --keep-dead"
            return f"brokers {names} are dead; start them, or leave their replicas where they are with --keep-dead"
        return "add a broker, or allow more targets"

    def _forced_shared(self, kept: int, factor: int, may_hold: int) -> int:
        """Return how often racks are shared if everything stays that may, and the rest goes to the best places."""
        count, racks = kept.bit_count(), self._rack_count(kept)
        if count >= factor:
            return factor - min(factor, racks)
        fresh = self._rack_count(may_hold) - racks
        return count - racks + max(0, factor - count - fresh)

    def _rack_count(self, mask: int) -> int:
        count = self.rack_counts.get(mask)
        if count is None:
            count = self.rack_counts[mask] = len({self.brokers[index].rack for index in bits(mask)})
        return count

    def _check_left_behind(
        self,
        partitions: list[ProblemPartition],
        is_selected: Callable[[TopicSnapshot], bool],
        pins: set[TopicPartition],
    ) -> None:
        """Report a broker that cannot be emptied: partitions out of scope in a note, pinned ones as an error."""
        leaving = self.masks["leaving"]
        stuck = [
            partition for partition in partitions if not partition.is_movable and mask_of(partition.current) & leaving
        ]
        if not stuck:
            return
        topics = {topic.name: topic for topic in self.snapshot.topics}
        held = [partition for partition in stuck if is_selected(topics[partition.name.topic])]
        if held and self.strategy in (Strategy.DECOMMISSION, Strategy.REPLACE):
            moving = [partition for partition in held if partition.name not in pins]
            named = moving or held
            reason = f"{'is' if len(named) == 1 else 'are'} {'being reassigned' if moving else 'pinned'}"
            hint = "wait until klamm reassign list is empty" if moving else "remove --pin"
            raise Infeasible(f"the broker cannot be emptied: {_listed(named)} {reason}", hint=hint)
        does = "does" if len(stuck) == 1 else "do"
        self.notes.append(
            f"{counted(len(stuck), 'partition')} with replicas on brokers that are emptied {does} not move:"
            f" {_listed(stuck)}"
        )

    def _capacities(self) -> tuple[int | None, ...]:
        capacities = {
            broker_capacity.broker: broker_capacity.bytes for broker_capacity in self.options.broker_capacities
        }
        for broker in capacities:
            if broker not in self.index:
                raise BadOption(f"a capacity names broker {broker}, which does not exist", hint=_CAPACITY_HINT)
        capacities.update(
            {broker: min(room, capacities.get(broker, room)) for broker, room in self._room_of_dirs().items()}
        )
        if self.strategy is Strategy.LEADERS:
            # It copies nothing, so no broker gets fuller.
            capacities = {}
        return tuple(capacities.get(broker.id) for broker in self.brokers)

    def _room_of_dirs(self) -> dict[int, int]:
        """Return the total capacity of a broker's log dirs, if each of them has one."""
        given = {(capacity.broker, capacity.log_dir): capacity for capacity in self.options.log_dir_capacities}
        if not given:
            return {}
        dirs = {(log_dir.broker, log_dir.log_dir) for log_dir in self.snapshot.log_dirs}
        for topic in self.snapshot.topics:
            dirs |= {(log.broker, log.log_dir) for partition in topic.partitions for log in partition.replica_logs}
        for place, capacity in given.items():
            if place not in dirs:
                raise unknown_log_dir(capacity)
        self.notes.append(
            "Kafka chooses the log dirs of new replicas: a broker gets no more than its log dirs hold together,"
            " if each of them has a capacity; the strategy log-dirs keeps each"
        )
        brokers = {broker for broker, _ in given} - {broker for broker, _ in dirs - set(given)}
        room = dict.fromkeys(sorted(brokers), 0)
        for (broker, _), capacity in given.items():
            if broker in brokers:
                room[broker] += capacity.bytes
        return room

    def _filled(self, aim: tuple[Aim, ...], partitions: list[ProblemPartition]) -> PlanOptions:
        from dataclasses import replace

        unknown = [partition for partition in partitions if partition.size is None]
        wants = [
            *(["--aim bytes"] if Aim.BYTES in aim else []),
            *(["--minimise bytes"] if self.options.minimise is Minimise.BYTES else []),
            *(["--max-bytes"] if self.options.max_bytes is not None else []),
            *(["--capacity"] if self.options.broker_capacities or self.options.log_dir_capacities else []),
        ]
        if unknown and wants:
            raise BadOption(f"{wants[0]} needs sizes, and those of {_listed(unknown)} are unknown", hint=SIZES_HINT)
        minimise = self.options.minimise or (Minimise.MOVES if unknown else Minimise.BYTES)
        if self.options.minimise is None and unknown and len(unknown) < len(partitions):
            self.notes.append(f"the plan has the fewest moves, not bytes: sizes of {_listed(unknown)} are unknown")
        return replace(self.options, aim=aim, minimise=minimise)


def unknown_log_dir(capacity: LogDirCapacity) -> BadOption:
    """Return the error about the capacity of an unknown log dir."""
    return BadOption(
        f"a capacity names log dir {capacity.log_dir} of broker {capacity.broker}, which is unknown",
        hint=_CAPACITY_HINT,
    )


def _patterns(texts: Iterable[str]) -> list[re.Pattern[str]]:
    patterns = []
    for text in texts:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            hint = "write it in Python's syntax, such as 'orders.*'"
            raise BadOption(f"not a regular expression: {text!r}: {error}", hint=hint) from None
    return patterns


def copy_size(partition: PartitionSnapshot) -> int | None:
    """Return the size of a copy: that of the leader's log, else of the largest known one."""
    logs = {log.broker: log.size_bytes for log in partition.replica_logs if not log.is_future}
    return logs.get(partition.leader, max(logs.values(), default=None))


def _listed(partitions: list[ProblemPartition]) -> str:
    return first_few(partition.name for partition in partitions)
