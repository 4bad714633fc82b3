"""Makes a plan: poses the problem, constructs a solution, improves it with the solver, and writes the score card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.common.collection import collector_paused
from engine.common.model import NO_LEADER
from engine.common.snapshot import ClusterSnapshot
from plans.bounds import Counted, counted_bounds
from plans.building import BuiltProblem, build_problem
from plans.capping import within_caps
from plans.construction import Forcing, Solution, construct
from plans.digest import input_digest
from plans.levels import Levels, fixed_counts, leader_items, levels_of, replica_items
from plans.loads import ByteLimits, byte_limits
from plans.made import MadePlan
from plans.options import Aim, Minimise, PlanOptions, Strategy
from plans.ordering import ordered
from plans.plan_file import ANY_LOG_DIR, FORMAT, KAFKA_VERSION, Envelope, PlanEntry, PlanFile
from plans.problem import Problem
from plans.score import Bounds, Score
from plans.scoring import Costs, broker_scores, costs_of, measures_of

EXACT_CELLS_MAX = 600_000
"""Movable partitions times brokers up to which the solver is used; that bounds its time and memory."""

CELLS_A_SECOND = 20_000
"""With a time limit only problems of so many cells a second are given to the solver: work is limited, not time."""

HEURISTIC, EXACT = "heuristic", "highs"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Proven:
    """What is proven of the first figure, and of leader changes at that figure."""

    first: int | None = None
    leader_changes: int | None = None
    solver: str = HEURISTIC
    notes: tuple[str, ...] = ()


def make_plan(
    snapshot: ClusterSnapshot, strategy: Strategy, options: PlanOptions, *, progress: Progress | None = None
) -> MadePlan:
    """Return the smallest plan that can be found. The same input always gives the same plan.

    Raises:
        BadOption: an option is wrong.
        Infeasible: no plan can meet the aim.
    """
    with collector_paused():
        if strategy is Strategy.LOG_DIRS:
            from plans.log_dirs import make_log_dir_plan

            return make_log_dir_plan(snapshot, options)
        built = build_problem(snapshot, strategy, options)
        return _Planner(snapshot, strategy, built, progress or (lambda text: None)).make()


@dataclass(slots=True)
class _Planner:
    snapshot: ClusterSnapshot
    strategy: Strategy
    built: BuiltProblem
    progress: Progress

    def make(self) -> MadePlan:
        problem = self.built.problem
        held = Forcing(problem).sets()
        replica_levels = self._levels(held, Aim.REPLICAS)
        leader_levels = self._levels(held, Aim.LEADERS)
        limits = byte_limits(problem)
        solution = construct(problem, replica_levels, leader_levels, held, limits)
        counted = counted_bounds(problem, replica_levels, leader_levels, limits.most)
        solution, proven = self._improved(solution, replica_levels, leader_levels, limits, counted)
        notes = [*self.built.notes, *proven.notes]
        after = self._lists(solution)
        limits.check(problem, after)
        notes += self._aim_notes(after, replica_levels, leader_levels)
        remaining = 0
        if problem.is_capped:
            whole = costs_of(problem, after)
            capped = within_caps(problem, after, replica_levels)
            if capped != after:
                after, remaining = capped, whole.moves - costs_of(problem, capped).moves
                notes.append(f"a cap ends the plan early: {remaining} moves of the whole plan are left")
        score = self._score(after, counted, proven, remaining)
        return MadePlan(self._file(after, score), problem, after, tuple(notes))

    def _levels(self, held: list[int], kind: Aim) -> Levels | None:
        problem = self.built.problem
        if kind not in problem.aim:
            return None
        items = (replica_items if kind is Aim.REPLICAS else leader_items)(problem, held)
        return levels_of(problem, items, fixed_counts(problem, leaders=kind is Aim.LEADERS))

    def _improved(
        self,
        solution: Solution,
        replica_levels: Levels | None,
        leader_levels: Levels | None,
        limits: ByteLimits,
        counted: Counted,
    ) -> tuple[Solution, _Proven]:
        """Let the solver have a go, unless counting proves that nothing can be better."""
        problem = self.built.problem
        after = self._lists(solution)
        is_level = self._is_met(after, replica_levels, leader_levels) and limits.is_kept(problem, after)
        costs = costs_of(problem, after)
        first = counted.moves if problem.minimise is Minimise.MOVES else counted.bytes
        if is_level and _first(problem, costs) == first and costs.leader_changes == counted.leader_changes:
            return solution, _Proven(first, counted.leader_changes)
        cells = len(problem.movable) * len(problem.brokers)
        limit = self.built.options.time_limit_s
        if cells > EXACT_CELLS_MAX or (limit is not None and cells > limit * CELLS_A_SECOND):
            return solution, _Proven()
        try:
            from plans.exact import Search, model_of
        except ImportError:
            note = "the solver is not installed, so the plan may be larger than it has to be: pip install 'klamm[plan]'"
            return solution, _Proven(notes=(note,))
        model = model_of(problem, replica_levels, leader_levels, limits.rows(problem))
        outcome = Search(model, solution, is_level, self.progress).run()
        if outcome.solution is None:
            return solution, _Proven(outcome.bound, None, EXACT)
        found = self._lists(outcome.solution)
        found_costs = costs_of(problem, found)
        is_found_level = self._is_met(found, replica_levels, leader_levels) and limits.is_kept(problem, found)
        old, new = (_rank(problem, level, cost) for level, cost in ((is_level, costs), (is_found_level, found_costs)))
        return (outcome.solution if new <= old else solution), _Proven(outcome.bound, outcome.leader_bound, EXACT)

    def _lists(self, solution: Solution) -> tuple[tuple[int, ...], ...]:
        problem = self.built.problem
        after = [one.current for one in problem.partitions]
        for index, held, leader in zip(problem.movable, solution.held, solution.leaders, strict=True):
            after[index] = ordered(problem.partitions[index].current, held, leader)
        return tuple(after)

    def _is_met(self, after: Sequence[tuple[int, ...]], replicas: Levels | None, leaders: Levels | None) -> bool:
        counts, leads = _counts(self.built.problem, after)
        return (replicas is None or replicas.is_met(counts)) and (leaders is None or leaders.is_met(leads))

    def _aim_notes(
        self, after: Sequence[tuple[int, ...]], replicas: Levels | None, leaders: Levels | None
    ) -> list[str]:
        """Explain shares that differ between racks, and say where a level was not reached."""
        notes = []
        problem = self.built.problem
        counts, leads = _counts(problem, after)
        for name, levels, found in (("replicas", replicas, counts), ("leaders", leaders, leads)):
            if levels is None:
                continue
            if not levels.is_met(found):
                notes.append(f"{name} are not as level as they could be: no plan was found that does it")
            low, high = min(levels.low.values()), max(levels.high.values())
            if high - low > 1:
                notes.append(
                    f"level means {low} to {high} {name} on a broker, not the same on all: racks of unequal size,"
                    " pins and excluded brokers allow nothing more even"
                )
        return notes

    def _score(self, after: tuple[tuple[int, ...], ...], counted: Counted, proven: _Proven, remaining: int) -> Score:
        problem, options = self.built.problem, self.built.options
        costs = costs_of(problem, after)
        bounds = Bounds(counted.moves, counted.bytes, counted.leader_changes)
        if proven.first is not None and problem.minimise is Minimise.MOVES:
            bounds = replace(bounds, moves=max(bounds.moves, proven.first))
        elif proven.first is not None and bounds.bytes is not None:
            bounds = replace(bounds, bytes=max(bounds.bytes, proven.first))
        achieved = _first(problem, costs)
        bound = bounds.moves if problem.minimise is Minimise.MOVES else bounds.bytes
        is_first = achieved is not None and achieved == bound and not remaining
        least_changes = max(counted.leader_changes, proven.leader_changes or 0)
        brokers = broker_scores(problem, after, self._senders())
        busiest = max((max(one.bytes_in or 0, one.bytes_sent or 0) for one in brokers), default=0)
        is_timed = options.throttle is not None and problem.has_sizes
        return Score(
            moves=costs.moves,
            bytes=costs.bytes,
            leader_changes=costs.leader_changes,
            reordered=costs.reordered,
            remaining_moves=remaining,
            lower_bound=bounds,
            gap=_gap(achieved, bound),
            is_optimal=is_first and costs.leader_changes <= least_changes,
            solver=proven.solver,
            makespan_s=round(busiest / (options.throttle or 1), 3) if is_timed else None,
            before=measures_of(problem, [one.current for one in problem.partitions]),
            after=measures_of(problem, after),
            brokers=brokers,
        )

    def _senders(self) -> dict[int, int]:
        """Return who leads each partition now, for that broker sends the copies; else the first live replica."""
        problem = self.built.problem
        index = {broker.id: number for number, broker in enumerate(problem.brokers)}
        leaders = {(t.name, p.partition): p.leader for t in self.snapshot.topics for p in t.partitions}
        found = {}
        for number, one in enumerate(problem.partitions):
            leader = index.get(leaders.get(one.name, NO_LEADER))
            live = [b for b in one.current if problem.brokers[b].is_alive]
            sender = leader if leader is not None else next(iter(live), None)
            if sender is not None:
                found[number] = sender
        return found

    def _file(self, after: tuple[tuple[int, ...], ...], score: Score) -> PlanFile:
        problem = self.built.problem
        changed = [(one, lists) for one, lists in zip(problem.partitions, after, strict=True) if lists != one.current]

        def entry(name: tuple[str, int], lists: tuple[int, ...]) -> PlanEntry:
            ids = tuple(problem.brokers[b].id for b in lists)
            return PlanEntry(name[0], name[1], ids, (ANY_LOG_DIR,) * len(ids))

        return PlanFile(
            version=KAFKA_VERSION,
            partitions=tuple(entry(one.name, lists) for one, lists in changed),
            klamm=Envelope(
                format=FORMAT,
                cluster_id=self.snapshot.cluster_id,
                input_digest=input_digest(self.snapshot),
                strategy=self.strategy,
                options=self.built.options,
                score=score,
                rollback=tuple(entry(one.name, one.current) for one, _ in changed),
                throttle=self.built.options.throttle,
            ),
        )


def _counts(problem: Problem, after: Sequence[tuple[int, ...]]) -> tuple[list[int], list[int]]:
    counts, leads = [0] * len(problem.brokers), [0] * len(problem.brokers)
    for lists in after:
        for broker in lists:
            counts[broker] += 1
        for broker in lists[:1]:
            leads[broker] += 1
    return counts, leads


def _first(problem: Problem, costs: Costs) -> int | None:
    return costs.moves if problem.minimise is Minimise.MOVES else costs.bytes


def _rank(problem: Problem, is_level: bool, costs: Costs) -> tuple[bool, int, int, int]:
    return (not is_level, _first(problem, costs) or 0, costs.leader_changes, costs.moves)


def _gap(achieved: int | None, bound: int | None) -> float | None:
    if achieved is None or bound is None:
        return None
    if not bound:
        return None if achieved else 0.0
    return round((achieved - bound) / bound, 6)
