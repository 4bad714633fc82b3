"""Levels the disks inside brokers: it models log dirs as brokers, and replicas as partitions with one replica."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from engine.common.model import TopicPartition
from engine.common.snapshot import ClusterSnapshot
from plans.capping import cap_note, remaining_moves, within_caps
from plans.digest import input_digest
from plans.errors import BadOption, Infeasible
from plans.levels import Group, Levels
from plans.loads import ByteLimits, held_bytes, whole_replicas
from plans.options import Aim, Minimise, PlanOptions, Strategy
from plans.plan_file import ANY_LOG_DIR, FORMAT, KAFKA_VERSION, Envelope, MadePlan, PlanEntry, PlanFile
from plans.problem import Problem, ProblemBroker, ProblemPartition
from plans.problem_building import build_problem, unknown_log_dir
from plans.score import LogDirScore, Score, broker_scores, costs_of, measures_of
from plans.solving import EXACT, HEURISTIC, Counted, Progress, Solved, first_figure, gap_between, solve
from plans.work import DEFAULT_S, Work

_UNKNOWN = "log dirs are not known"
_NAMED_MAX = 5
_HINT = "they come from a live cluster, or from a snapshot taken with --sizes"


_GAP = 1e-3
"""Which replicas move the fewest bytes is a knapsack, whose last bytes would take nearly all of the time."""


@dataclass(slots=True)
class _Dirs:
    """The log dirs that take part, by index, and the replicas in them."""

    places: list[tuple[int, str]] = field(default_factory=list)
    index: dict[tuple[int, str], int] = field(default_factory=dict)
    replicas: list[tuple[TopicPartition, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    partitions: list[ProblemPartition] = field(default_factory=list)

    def of_broker(self, broker: int) -> list[int]:
        return [number for number, place in enumerate(self.places) if place[0] == broker]


def make_log_dir_plan(snapshot: ClusterSnapshot, options: PlanOptions, progress: Progress) -> MadePlan:
    """Return the plan that levels the log dirs of brokers, each broker by itself.

    Raises:
        BadOption: an option is wrong, or the log dirs of replicas are unknown.
        Infeasible: a disk would hold more than its capacity.
    """
    aim = (Aim.BYTES,) if options.aim is None else options.aim
    if len(aim) != 1 or aim[0] is Aim.LEADERS:
        raise BadOption("log-dirs levels one thing: --aim bytes or --aim replicas")
    # The cluster's own problem checks options and says what may move; its aim plays no part.
    asked = replace(options, aim=(Aim.REPLICAS,), keep_dead=True, log_dir_capacities=())
    cluster = build_problem(snapshot, Strategy.REBALANCE, asked)
    dirs = _dirs_of(snapshot, options, cluster.problem)
    minimise = options.minimise or (Minimise.BYTES if aim == (Aim.BYTES,) else Minimise.MOVES)
    problem = Problem(
        brokers=tuple(ProblemBroker(b, number, path, True, True) for number, (b, path) in enumerate(dirs.places)),
        partitions=tuple(dirs.partitions),
        topic_count=0,
        rack_count=0,
        aim=frozenset(aim),
        minimise=minimise,
        tolerance_percent=options.tolerance_percent,
        capacities=_capacities(dirs, options),
        leaving=frozenset(),
        max_moves=options.max_moves,
        max_bytes=options.max_bytes,
    )
    limits = _limits(problem, dirs, options)
    work = Work.within(options.time_limit_s, len(problem.movable))
    solved = _solved(problem, dirs, limits, options.time_limit_s, progress)
    _check(problem, solved)
    solved = replace(solved, notes=(*dirs.notes, *solved.notes, *_notes(problem, limits, solved)))
    filled = replace(options, aim=aim, minimise=minimise)
    after = within_caps(problem, solved, limits, work) if problem.is_capped else solved.after
    if after == solved.after:
        return _made(snapshot, filled, cluster.problem, problem, dirs, solved, 0, limits)
    left = remaining_moves(problem, solved, after, lambda _: limits, work)
    notes = [cap_note(left)] if left else []
    capped = replace(solved, after=after, notes=(*solved.notes, *notes))
    return _made(snapshot, filled, cluster.problem, problem, dirs, capped, left, limits)


def _dirs_of(snapshot: ClusterSnapshot, options: PlanOptions, cluster: Problem) -> _Dirs:
    wanted = set(options.brokers) or set(snapshot.live_broker_ids)
    for broker in sorted(wanted - snapshot.live_broker_ids):
        raise BadOption(f"broker {broker} is not registered", hint="only a live broker can move replicas between disks")
    movable = {partition.name for partition in cluster.partitions if partition.is_movable}
    logs = [
        (TopicPartition(topic.name, partition.partition), log)
        for topic in sorted(snapshot.topics, key=lambda each: each.name)
        for partition in topic.partitions
        for log in sorted(partition.replica_logs, key=lambda each: each.broker)
        if log.broker in wanted and log.broker in partition.assignment.target_replicas
    ]
    moving = {(name, log.broker) for name, log in logs if log.is_future}
    places = {(log.broker, log.log_dir) for _, log in logs}
    places |= {(log_dir.broker, log_dir.log_dir) for log_dir in snapshot.log_dirs if log_dir.broker in wanted}
    if not places:
        raise BadOption(_UNKNOWN, hint=_HINT)
    dirs = _Dirs(sorted(places), notes=_failed_notes(snapshot, wanted))
    dirs.index = {place: number for number, place in enumerate(dirs.places)}
    for name, log in logs:
        if log.is_future:
            continue
        here = dirs.index[log.broker, log.log_dir]
        is_free = name in movable and (name, log.broker) not in moving
        mask = sum(1 << number for number in dirs.of_broker(log.broker)) if is_free else 1 << here
        dirs.replicas.append((name, log.broker))
        dirs.partitions.append(
            ProblemPartition(name, len(dirs.partitions), (here,), 1, log.size_bytes, is_free, mask, 0, mask, 0)
        )
    return dirs


def _limits(problem: Problem, dirs: _Dirs, options: PlanOptions) -> ByteLimits:
    least: dict[int, int] = {}
    most: dict[int, int] = {}
    for broker in sorted({place[0] for place in dirs.places}):
        members = dirs.of_broker(broker)
        whole = sum(partition.size or 0 for partition in problem.partitions if partition.current[0] in members)
        if Aim.BYTES in problem.aim:
            slack = whole * options.tolerance_percent / 100 / len(members)
            for number in members:
                least[number] = -int(-(whole / len(members) - slack) // 1)
                most[number] = int(whole / len(members) + slack)
    for number, capacity in enumerate(problem.capacities):
        if capacity is not None:
            most[number] = min(most.get(number, capacity), capacity)
            least[number] = min(least.get(number, 0), capacity)
    return ByteLimits(least, most)


def _solved(
    problem: Problem, dirs: _Dirs, limits: ByteLimits, time_limit_s: float | None, progress: Progress
) -> Solved:
    """Solve broker by broker: no replica leaves its broker, so the best plan of each needs nothing of the others."""
    brokers = sorted({broker for broker, _ in dirs.places})
    after: list[tuple[int, ...]] = [partition.current for partition in problem.partitions]
    parts: list[Solved] = []
    firsts: list[int | None] = []
    left_s = DEFAULT_S if time_limit_s is None else time_limit_s
    levels = Levels({}, {}, ())
    for count, broker in enumerate(brokers):
        members = dirs.of_broker(broker)
        first = members[0]
        numbers = [index for index, partition in enumerate(problem.partitions) if partition.current[0] in members]
        part = _part_of(problem, numbers, members)
        work = Work.within(left_s / (len(brokers) - count), len(part.movable))
        share_s, work.seconds, work.gap = left_s / (len(brokers) - count), time_limit_s, _GAP
        progress(f"broker {broker}")
        solved = solve(part, _beside_lumps(part, _limits_of(limits, members)), work, progress)
        left_s -= share_s * (1 - max(0, work.left) / work.whole)
        for index, lists in zip(numbers, solved.after, strict=True):
            after[index] = (lists[0] + first,)
        parts.append(solved)
        firsts.append(first_figure(part, solved.bounds(part)))
        levels = _joined(levels, solved.replica_levels, first)
    known = [figure for figure in firsts if figure is not None]
    sizes = [result.counted.bytes for result in parts if result.counted.bytes is not None]
    return Solved(
        after=tuple(after),
        is_level=all(result.is_level for result in parts),
        replica_levels=levels if Aim.REPLICAS in problem.aim else None,
        leader_levels=None,
        counted=Counted(
            sum(result.counted.moves for result in parts), sum(sizes) if len(sizes) == len(parts) else None, 0
        ),
        first=sum(known) if len(known) == len(parts) else None,
        least_leader_changes=0,
        solver=EXACT if any(result.solver == EXACT for result in parts) else HEURISTIC,
        notes=tuple(dict.fromkeys(note for result in parts for note in result.notes)),
    )


def _part_of(problem: Problem, numbers: Sequence[int], members: Sequence[int]) -> Problem:
    """Return the problem of one broker, whose log dirs are ``members`` and whose replicas are ``numbers``."""
    first, last = members[0], members[-1] + 1
    partitions = tuple(
        replace(
            partition,
            current=(partition.current[0] - first,),
            may_hold=partition.may_hold >> first,
            may_lead=partition.may_lead >> first,
        )
        for partition in (problem.partitions[index] for index in numbers)
    )
    brokers = tuple(replace(broker, rack=broker.rack - first) for broker in problem.brokers[first:last])
    return replace(
        problem,
        brokers=brokers,
        partitions=partitions,
        capacities=problem.capacities[first:last],
        max_moves=None,
        max_bytes=None,
    )


def _limits_of(limits: ByteLimits, members: Sequence[int]) -> ByteLimits:
    first = members[0]
    return ByteLimits(
        {number - first: limits.least[number] for number in members if number in limits.least},
        {number - first: limits.most[number] for number in members if number in limits.most},
    )


def _beside_lumps(part: Problem, limits: ByteLimits) -> ByteLimits:
    """Return what the log dirs of a broker can hold where one of its partitions, or what may not move, is too large.

    Such a lump has a log dir for itself, its own if it can, and the others share the rest evenly.
    """
    if Aim.BYTES not in part.aim:
        return limits
    more = 1 + part.tolerance_percent / 100
    held = held_bytes(part, [() if partition.is_movable else partition.current for partition in part.partitions])
    rest = sum(partition.size or 0 for partition in part.partitions)
    free, full = list(range(len(part.brokers))), dict[int, int]()
    lumps = sorted(
        (partition for partition in part.partitions if partition.is_movable), key=lambda lump: -(lump.size or 0)
    )
    while len(free) > 1:
        level = rest / len(free)
        place = next((number for number in free if held[number] > level * more), None)
        if place is None:
            if not lumps or (lumps[0].size or 0) <= level * more:
                break
            lump = lumps.pop(0)
            place = lump.current[0] if lump.current[0] in free else min(free, key=lambda number: (held[number], number))
            held[place] += lump.size or 0
        full[place] = held[place]
        free.remove(place)
        rest -= held[place]
    if not full:
        return limits
    level = rest / len(free)
    least = {number: full.get(number, -int(-level * (2 - more) // 1)) for number in limits.most}
    most = {number: full.get(number, int(level * more)) for number in limits.most}
    for number, capacity in enumerate(part.capacities):
        if capacity is not None:
            least[number], most[number] = min(least[number], capacity), min(most[number], capacity)
    return ByteLimits(least, most)


def _joined(levels: Levels, part: Levels | None, first: int) -> Levels:
    """Return the shares of all log dirs, with those of one more broker, whose first log dir is number ``first``."""
    if part is None:
        return levels
    return Levels(
        levels.low | {number + first: low for number, low in part.low.items()},
        levels.high | {number + first: high for number, high in part.high.items()},
        (*levels.groups, *(Group(tuple(b + first for b in group.brokers), group.total) for group in part.groups)),
    )


def _capacities(dirs: _Dirs, options: PlanOptions) -> tuple[int | None, ...]:
    capacities: list[int | None] = [None] * len(dirs.places)
    for dir_capacity in options.log_dir_capacities:
        place = (dir_capacity.broker, dir_capacity.log_dir)
        if place in dirs.index:
            capacities[dirs.index[place]] = dir_capacity.bytes
        elif not options.brokers or dir_capacity.broker in options.brokers:
            raise unknown_log_dir(dir_capacity)
    return tuple(capacities)


def _check(problem: Problem, solved: Solved) -> None:
    held = held_bytes(problem, solved.after)
    for number, capacity in enumerate(problem.capacities):
        if capacity is not None and held[number] > capacity:
            disk, above = problem.brokers[number], held[number] - capacity
            sizes = [
                partition.size or 0
                for partition, (place,) in zip(problem.partitions, solved.after, strict=True)
                if place == number
            ]
            raise Infeasible(
                f"{disk.rack_name} of broker {disk.id} would hold {held[number]:,} bytes, {above:,} above its capacity",
                hint=f"add a log dir with room for {whole_replicas(sizes, above):,} bytes to broker {disk.id},"
                " or raise the capacity",
            )


def _notes(problem: Problem, limits: ByteLimits, solved: Solved) -> list[str]:
    """Say which disk of each broker stays farthest outside its limits."""
    held = held_bytes(problem, solved.after)
    worst: dict[int, tuple[int, int]] = {}
    for number, most in sorted(limits.most.items()):
        broker = problem.brokers[number].id
        off = max(held[number] - most, limits.least.get(number, 0) - held[number])
        if off > worst.get(broker, (0, 0))[0]:
            worst[broker] = off, number
    notes = []
    for broker, (off, number) in sorted(worst.items()):
        here = [
            partition for partition, lists in zip(problem.partitions, solved.after, strict=True) if lists == (number,)
        ]
        largest = max(here, key=lambda partition: (partition.size or 0, partition.name), default=None)
        why = "partitions there are too large or too few for it"
        if largest is not None and (largest.size or 0) > limits.most[number]:
            why = f"{largest.name} alone has {largest.size:,} bytes"
        path = problem.brokers[number].rack_name
        notes.append(
            f"{path} of broker {broker} stays {off:,} bytes outside the tolerance in the best plan found; {why}"
        )
    return notes


def _failed_notes(snapshot: ClusterSnapshot, wanted: Iterable[int]) -> list[str]:
    """Name log dirs that failed, and the replicas that no working log dir of their brokers has."""
    failed: dict[int, list[str]] = {}
    for log_dir in snapshot.failed_log_dirs or ():
        if log_dir.broker in wanted and log_dir.log_dir is not None:
            failed.setdefault(log_dir.broker, []).append(f"{log_dir.log_dir} ({log_dir.error})")
    notes = []
    for broker, paths in sorted(failed.items()):
        lost = [
            str(TopicPartition(topic.name, partition.partition))
            for topic in snapshot.topics
            for partition in topic.partitions
            if broker in partition.assignment.target_replicas
            and all(log.broker != broker for log in partition.replica_logs)
        ]
        more = f" and {len(lost) - _NAMED_MAX:,} more" if len(lost) > _NAMED_MAX else ""
        names = f"{', '.join(lost[:_NAMED_MAX])}{more}" if lost else "no replica"
        rest = "are in no working log dir and stay out of the plan" if lost else "is missing in the others"
        notes.append(f"broker {broker} cannot use {', '.join(paths)}: {names} {rest}")
    return notes


def _made(
    snapshot: ClusterSnapshot,
    options: PlanOptions,
    cluster: Problem,
    problem: Problem,
    dirs: _Dirs,
    solved: Solved,
    left: int,
    limits: ByteLimits,
) -> MadePlan:
    """Return the plan. ``left``: the moves that a cap leaves."""
    current = [partition.current for partition in cluster.partitions]
    costs, bounds = costs_of(problem, solved.after), solved.bounds(problem)
    achieved, bound = first_figure(problem, costs), first_figure(problem, bounds)
    measures = measures_of(cluster, current)
    rows = _rows(snapshot, problem, dirs, solved.after)
    entries, rollback = _entries(cluster, problem, dirs, solved.after)
    busiest = max((row.bytes_in or 0 for row in rows), default=0)
    outside = limits.violation(held_bytes(problem, solved.after)) if Aim.BYTES in problem.aim else 0
    score = Score(
        moves=costs.moves,
        bytes=costs.bytes,
        leader_changes=0,
        reordered=0,
        remaining_moves=left,
        lower_bound=replace(bounds, leader_changes=0),
        gap=None if outside and not left else gap_between(achieved, bound),
        is_optimal=achieved == bound and not left and not outside,
        solver=solved.solver,
        makespan_s=None if options.throttle is None else round(busiest / options.throttle, 3),
        before=measures,
        after=measures,
        brokers=broker_scores(cluster, current, {}),
        log_dirs=rows,
        remaining_bytes=outside,
    )
    sizes = {name: partition.size for (name, _), partition in zip(dirs.replicas, problem.partitions, strict=True)}
    envelope = Envelope(
        format=FORMAT,
        cluster_id=snapshot.cluster_id,
        input_digest=input_digest(snapshot),
        strategy=Strategy.LOG_DIRS,
        options=options,
        score=score,
        rollback=rollback,
        throttle=options.throttle,
        sizes=tuple(sizes.get(entry.name) for entry in entries),
    )
    plan = PlanFile(KAFKA_VERSION, entries, envelope)
    return MadePlan(plan, cluster, tuple(current), solved.notes)


def _rows(
    snapshot: ClusterSnapshot, problem: Problem, dirs: _Dirs, after: Sequence[tuple[int, ...]]
) -> tuple[LogDirScore, ...]:
    volumes = {(log_dir.broker, log_dir.log_dir): log_dir for log_dir in snapshot.log_dirs}
    scores = broker_scores(problem, after, {})
    rows = []
    for place, score in zip(dirs.places, scores, strict=True):
        volume = volumes.get(place)
        rows.append(
            LogDirScore(
                broker=place[0],
                log_dir=place[1],
                total_bytes=None if volume is None else volume.total_bytes,
                usable_bytes=None if volume is None else volume.usable_bytes,
                replicas_before=score.replicas_before,
                replicas_after=score.replicas_after,
                bytes_before=score.bytes_before,
                bytes_after=score.bytes_after,
                replicas_in=score.replicas_in,
                replicas_out=score.replicas_out,
                bytes_in=score.bytes_in,
                bytes_out=score.bytes_out,
            )
        )
    return tuple(rows)


def _entries(
    cluster: Problem, problem: Problem, dirs: _Dirs, after: Sequence[tuple[int, ...]]
) -> tuple[tuple[PlanEntry, ...], tuple[PlanEntry, ...]]:
    """Return the entries of the plan and its rollback: a replica that moves names its dir, the others say any."""
    new_dirs: dict[TopicPartition, dict[int, str]] = {}
    old_dirs: dict[TopicPartition, dict[int, str]] = {}
    for (name, broker), partition, (place,) in zip(dirs.replicas, problem.partitions, after, strict=True):
        if place != partition.current[0]:
            new_dirs.setdefault(name, {})[broker] = dirs.places[place][1]
            old_dirs.setdefault(name, {})[broker] = dirs.places[partition.current[0]][1]

    def entries(wanted: dict[TopicPartition, dict[int, str]]) -> tuple[PlanEntry, ...]:
        made = []
        for partition in cluster.partitions:
            if partition.name in wanted:
                ids = tuple(cluster.brokers[number].id for number in partition.current)
                paths = tuple(wanted[partition.name].get(broker, ANY_LOG_DIR) for broker in ids)
                made.append(PlanEntry(partition.name.topic, partition.name.partition, ids, paths))
        return tuple(made)

    return entries(new_dirs), entries(old_dirs)
