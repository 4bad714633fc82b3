"""Solves a problem: constructs, counts the bounds, and lets the exact search improve what counting does not prove."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from plans.construction import Forcing, Solution, construct
from plans.levels import Levels, fixed_counts, leader_items, levels_of, replica_items
from plans.loads import ByteLimits
from plans.options import Aim, Minimise
from plans.problem import Problem, ProblemPartition, bits, mask_of, ordered, shared_racks
from plans.score import Bounds, Costs, costs_of
from plans.work import Work

_PASSES_MAX = 4
_TRIALS_MAX = 200
"""Partners examined for one replica."""

_WORK_MAX = 5_000_000
"""Swaps are searched for up to this many copies times brokers; beyond that it would take minutes."""


@dataclass(slots=True)
class _Spread:
    problem: Problem
    held: list[int]
    leaders: list[int]
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    shares: dict[int, int] = field(default_factory=dict)
    fresh: dict[tuple[int, bool], dict[int, None]] = field(default_factory=dict)
    """The partitions that are copied to a broker, separated by whether it leads them."""

    def count(self) -> None:
        """Count the replicas of each topic on each broker, and each topic's even share."""
        problem = self.problem
        after = [mask_of(partition.current) for partition in problem.partitions]
        for number, index in enumerate(problem.movable):
            after[index] = self.held[number]
            for broker in bits(self.held[number] & ~mask_of(problem.partitions[index].current)):
                self.fresh.setdefault((broker, self.leaders[number] == broker), {})[number] = None
        remaining = mask_of(problem.remaining)
        whole: dict[int, int] = {}
        for partition, mask in zip(problem.partitions, after, strict=True):
            whole[partition.topic] = whole.get(partition.topic, 0) + (mask & remaining).bit_count()
            for broker in bits(mask):
                self.counts[partition.topic, broker] = self.counts.get((partition.topic, broker), 0) + 1
        self.shares = {topic: -(-total // max(1, len(problem.remaining))) for topic, total in whole.items()}

    def improve(self) -> bool:
        """Go through all copies once; return whether any swap was made."""
        is_better = False
        for broker, leads in sorted(self.fresh):
            for number in list(self.fresh[broker, leads]):
                if self._excess(number, broker) and self._swap(number, broker, leads):
                    is_better = True
        return is_better

    def _excess(self, number: int, broker: int) -> bool:
        topic = self._topic(number)
        return self.counts.get((topic, broker), 0) > self.shares[topic]

    def _topic(self, number: int) -> int:
        return self.problem.partitions[self.problem.movable[number]].topic

    def _swap(self, number: int, broker: int, leads: bool) -> bool:
        topic, trials = self._topic(number), 0
        for (other, other_leads), partners in self.fresh.items():
            if other_leads != leads or other == broker or self.counts.get((topic, other), 0) >= self.shares[topic]:
                continue
            if not self._may(number, broker, other):
                continue
            for partner in partners:
                trials += 1
                if trials > _TRIALS_MAX:
                    return False
                theirs = self._topic(partner)
                if theirs == topic or self.counts.get((theirs, broker), 0) >= self.shares[theirs]:
                    continue
                if self._may(partner, other, broker):
                    self._move(number, broker, other, leads)
                    self._move(partner, other, broker, leads)
                    return True
        return False

    def _may(self, number: int, source: int, target: int) -> bool:
        """Whether a copy may go to ``target`` instead, and would be a copy there as well."""
        partition = self.problem.partitions[self.problem.movable[number]]
        held = self.held[number] & ~(1 << source)
        if (held | mask_of(partition.current)) >> target & 1 or not partition.may_hold >> target & 1:
            return False
        if self.leaders[number] == source and not partition.may_lead >> target & 1:
            return False
        return shared_racks(self.problem.brokers, [*bits(held), target]) <= partition.shared_racks_max

    def _move(self, number: int, source: int, target: int, leads: bool) -> None:
        topic = self._topic(number)
        self.held[number] ^= (1 << source) | (1 << target)
        if leads:
            self.leaders[number] = target
        self.counts[topic, source] -= 1
        self.counts[topic, target] = self.counts.get((topic, target), 0) + 1
        del self.fresh[source, leads][number]
        self.fresh.setdefault((target, leads), {})[number] = None


def spread_topics(problem: Problem, solution: Solution) -> Solution:
    """Return a solution of the same cost whose topics are spread at least as evenly."""
    spread = _Spread(problem, list(solution.held), list(solution.leaders))
    spread.count()
    if sum(map(len, spread.fresh.values())) * len(spread.fresh) > _WORK_MAX:
        return solution
    for _ in range(_PASSES_MAX):
        if not spread.improve():
            break
    return Solution(tuple(spread.held), tuple(spread.leaders))


@dataclass(frozen=True, slots=True)
class Counted:
    """Bounds of each figure by itself; ``bytes`` is None if a size that counts is unknown."""

    moves: int
    bytes: int | None
    leader_changes: int


def counted_bounds(
    problem: Problem, replica_levels: Levels | None, leader_levels: Levels | None, most_bytes: dict[int, int]
) -> Counted:
    """Return the larger of what partitions need one by one and what the brokers' shares need.

    ``most_bytes`` is what brokers may hold at most, if bytes are an aim or a broker has a capacity.
    """
    parts = [problem.partitions[index] for index in problem.movable]
    forced = [(part, _forced_moves(problem, part)) for part in parts]
    moves = sum(count for _, count in forced)
    changes = sum(not (part.may_hold & part.may_lead) >> part.current[0] & 1 for part in parts)
    known = all(partition.size is not None for partition, count in forced if count)
    size = sum(count * (partition.size or 0) for partition, count in forced)
    if replica_levels is not None:
        counts = _counts(problem, leaders=False)
        moves = max(moves, _wanted(replica_levels, counts))
        if not any(part.factor < len(part.current) for part in parts):
            # If no partition loses replicas, every replica above a share is copied elsewhere.
            size = max(size, _cheapest_surplus(problem, replica_levels, counts))
        known = known and problem.has_sizes
    if leader_levels is not None:
        changes = max(changes, _wanted(leader_levels, _counts(problem, leaders=True)))
    if most_bytes:
        size = max(size, _above(problem, most_bytes))
    return Counted(moves, size if known else None, changes)


def _forced_moves(problem: Problem, partition: ProblemPartition) -> int:
    """Return how many new replicas the partition must get, whatever the others do."""
    stays = list(bits(mask_of(partition.current) & partition.may_hold))
    racks = len({problem.brokers[broker].rack for broker in stays})
    keepable = min(partition.factor, racks + min(len(stays) - racks, partition.shared_racks_max))
    return partition.factor - keepable


def _counts(problem: Problem, *, leaders: bool) -> list[int]:
    counts = [0] * len(problem.brokers)
    for partition in problem.partitions:
        for broker in partition.current[:1] if leaders else partition.current:
            counts[broker] += 1
    return counts


def _wanted(levels: Levels, counts: list[int]) -> int:
    return sum(max(0, share - counts[broker]) for broker, share in levels.shares(counts).items())


def _cheapest_surplus(problem: Problem, levels: Levels, counts: list[int]) -> int:
    """Return the sum of the smallest replicas above every broker's share."""
    sizes: dict[int, list[int]] = {broker: [] for broker in levels.high}
    for index in problem.movable:
        partition = problem.partitions[index]
        for broker in partition.current:
            if broker in sizes:
                sizes[broker].append(partition.size or 0)
    return sum(sum(sorted(sizes[b])[: max(0, counts[b] - high)]) for b, high in levels.high.items())


def _above(problem: Problem, most_bytes: dict[int, int]) -> int:
    """Return by how much brokers exceed what they may hold; every such byte is copied elsewhere.

    That holds if no partition loses replicas, because a dropped replica is not copied.
    """
    parts = problem.partitions
    if any(part.factor < len(part.current) for part in parts):
        return 0
    held = [0] * len(problem.brokers)
    for part in parts:
        for broker in part.current:
            held[broker] += part.size or 0
    return sum(max(0, held[broker] - most) for broker, most in most_bytes.items())


EXACT_CELLS_MAX = 600_000
"""The solver is used up to this many movable partitions times brokers, which bounds its time and memory."""

CELLS_A_SECOND = 20_000
"""With a time limit, the solver gets only problems of this many cells a second: work is limited, not time."""

_COLUMNS_SHARE = 10
"""The program over columns may take this fraction of the work if the program over every choice follows."""

_CAPPED_SHARE = 2
"""If a cap cannot hold the whole plan, that may take one part in this many of the work: only a part is carried out."""

HEURISTIC, EXACT = "heuristic", "highs"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Solved:
    """The lists of all partitions, and the proven bounds: ``first`` for the figure that is minimised first,
    ``least_leader_changes`` for plans that achieve it. ``is_level``: the aim is met. ``is_impossible``: no plan keeps
    all limits."""

    after: tuple[tuple[int, ...], ...]
    is_level: bool
    replica_levels: Levels | None
    leader_levels: Levels | None
    counted: Counted
    first: int | None
    least_leader_changes: int
    solver: str
    notes: tuple[str, ...]
    is_impossible: bool = False

    def bounds(self, problem: Problem) -> Bounds:
        """Return the bounds of each figure by itself."""
        bounds = Bounds(self.counted.moves, self.counted.bytes, self.counted.leader_changes)
        if self.first is not None and problem.minimise is Minimise.MOVES:
            return replace(bounds, moves=max(bounds.moves, self.first))
        if self.first is not None and bounds.bytes is not None:
            return replace(bounds, bytes=max(bounds.bytes, self.first))
        return bounds


def solve(
    problem: Problem, limits: ByteLimits, work: Work, progress: Progress, *, is_rough: bool = False, rounds: int = 1
) -> Solved:
    """Return the best placement found, with bounds.

    ``is_rough``: a good one is enough, without a proof. ``rounds``: one part in so many of the whole work is for this
    run if the construction does not meet the aim, for then others may follow.
    """
    return _Solver(problem, limits, work, progress, is_rough, rounds).solve()


@dataclass(frozen=True, slots=True)
class _Proven:
    """What is proven about the first figure, and about leader changes at that figure."""

    first: int | None = None
    leader_changes: int | None = None
    solver: str = HEURISTIC
    notes: tuple[str, ...] = ()
    is_impossible: bool = False

    def tightened(self, first: int | None, leader_changes: int | None) -> _Proven:
        """Return what is proven with a further proof added. Leader changes are those of plans at the larger bound."""
        if first is None or (self.first is not None and first < self.first):
            return self
        if first == self.first:
            leader_changes = max(leader_changes or 0, self.leader_changes or 0)
        return replace(self, first=first, leader_changes=leader_changes)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A solution; ``is_good``: it meets the aim within all limits."""

    solution: Solution
    is_good: bool
    costs: Costs

    def rank(self, problem: Problem) -> tuple[bool, int, int, int]:
        first = first_figure(problem, self.costs) or 0
        return (not self.is_good, first, self.costs.leader_changes, self.costs.moves)

    def is_proven(self, problem: Problem, proven: _Proven) -> bool:
        first = first_figure(problem, self.costs)
        return self.is_good and first == proven.first and self.costs.leader_changes == proven.leader_changes


@dataclass(slots=True)
class _Solver:
    problem: Problem
    limits: ByteLimits
    work: Work
    progress: Progress
    is_rough: bool = False
    rounds: int = 1

    def solve(self) -> Solved:
        problem = self.problem
        held = Forcing(problem).sets()
        replicas, leaders = self._levels(held, Aim.REPLICAS), self._levels(held, Aim.LEADERS)
        solution = construct(problem, replicas, leaders, held, self.limits, self.work)
        counted = counted_bounds(problem, replicas, leaders, self.limits.most)
        solution, proven = self._improved(solution, replicas, leaders, counted)
        if not self.limits.most and not problem.replacements:
            # A swap changes the bytes of brokers, and which replica replaces which.
            solution = spread_topics(problem, solution)
        after = self._lists(solution)
        return Solved(
            after=after,
            is_level=is_met(problem, after, replicas, leaders),
            replica_levels=replicas,
            leader_levels=leaders,
            counted=counted,
            first=proven.first,
            least_leader_changes=max(counted.leader_changes, proven.leader_changes or 0),
            solver=proven.solver,
            notes=proven.notes,
            is_impossible=proven.is_impossible,
        )

    def _levels(self, held: list[int], kind: Aim) -> Levels | None:
        problem = self.problem
        if kind not in problem.aim:
            return None
        items = (replica_items if kind is Aim.REPLICAS else leader_items)(problem, held)
        return levels_of(problem, items, fixed_counts(problem, leaders=kind is Aim.LEADERS))

    def _improved(
        self, solution: Solution, replica_levels: Levels | None, leader_levels: Levels | None, counted: Counted
    ) -> tuple[Solution, _Proven]:
        """Let the solver try, unless counting proves that nothing can be better."""
        problem = self.problem
        after = self._lists(solution)
        is_level = is_met(problem, after, replica_levels, leader_levels) and self.limits.is_kept(problem, after)
        costs = costs_of(problem, after)
        first = counted.moves if problem.minimise is Minimise.MOVES else counted.bytes
        if is_level and first_figure(problem, costs) == first and costs.leader_changes == counted.leader_changes:
            return solution, _Proven(first, counted.leader_changes)
        share = 1 if is_level else self.rounds
        work = self.work.part(self.work.whole // (_CAPPED_SHARE if self._exceeds_caps(counted, None) else share))
        if work.is_over or self.limits.missing or not may_use_solver(problem, self.work.seconds):
            return solution, _Proven()
        try:
            from plans.column_program import Search
            from plans.columns import model_of
            from plans.whole_program import WholeProgram, is_small
        except ImportError:
            note = "the solver is not installed, so the plan may be larger than necessary: pip install 'klamm[plan]'"
            return solution, _Proven(notes=(note,))
        model = model_of(problem, replica_levels, leader_levels, self.limits.rows(problem))
        best = _Candidate(solution, is_level, costs)
        is_last = self.is_rough or not is_small(problem)
        outcome = Search(model, solution, is_level, work, self.progress, 1 if is_last else _COLUMNS_SHARE).run()
        best = self._better(best, outcome.solution, replica_levels, leader_levels)
        proven = _Proven(outcome.bound, outcome.leader_bound, EXACT)
        is_last = is_last or self._exceeds_caps(counted, outcome.bound)
        if is_last or best.is_proven(problem, proven) or work.is_over:
            return best.solution, proven
        self.progress("one program over every choice")
        outcome = WholeProgram(model, best.solution, best.is_good, work).run()
        best = self._better(best, outcome.solution, replica_levels, leader_levels)
        proven = replace(proven, is_impossible=outcome.is_impossible and not best.is_good)
        return best.solution, proven.tightened(outcome.bound, outcome.leader_bound)

    def _exceeds_caps(self, counted: Counted, first: int | None) -> bool:
        """Whether no whole plan is within the caps: then a cap takes a part, and the whole need not be the best."""
        problem = self.problem
        is_by_moves = problem.minimise is Minimise.MOVES
        moves = max(counted.moves, first or 0) if is_by_moves else counted.moves
        size = max(counted.bytes or 0, 0 if is_by_moves else first or 0)
        return (problem.max_moves is not None and moves > problem.max_moves) or (
            problem.max_bytes is not None and size > problem.max_bytes
        )

    def _better(
        self, best: _Candidate, solution: Solution | None, replica_levels: Levels | None, leader_levels: Levels | None
    ) -> _Candidate:
        """Return the new result if it is no worse than the best so far: the solver's tolerances are not ours."""
        if solution is None:
            return best
        problem, lists = self.problem, self._lists(solution)
        is_good = is_met(problem, lists, replica_levels, leader_levels) and self.limits.is_kept(problem, lists)
        candidate = _Candidate(solution, is_good, costs_of(problem, lists))
        return candidate if candidate.rank(problem) <= best.rank(problem) else best

    def _lists(self, solution: Solution) -> tuple[tuple[int, ...], ...]:
        problem = self.problem
        after = [partition.current for partition in problem.partitions]
        for index, held, leader in zip(problem.movable, solution.held, solution.leaders, strict=True):
            after[index] = ordered(problem.partitions[index].current, held, leader)
        return tuple(after)


def is_met(problem: Problem, after: Sequence[tuple[int, ...]], replicas: Levels | None, leaders: Levels | None) -> bool:
    """Whether the brokers have their shares of replicas and leaders."""
    counts, leads = broker_counts(problem, after)
    return (replicas is None or replicas.is_met(counts)) and (leaders is None or leaders.is_met(leads))


def level_notes(problem: Problem, solved: Solved) -> list[str]:
    """Explain shares that differ between racks, and say what is not level."""
    notes = []
    counts, leads = broker_counts(problem, solved.after)
    for name, levels, totals in (("replicas", solved.replica_levels, counts), ("leaders", solved.leader_levels, leads)):
        if levels is None or not levels.low:
            continue
        if not levels.is_met(totals):
            notes.append(f"{name} are not as level as they could be: no such plan was found")
        low, high = min(levels.low.values()), max(levels.high.values())
        if high - low > 1:
            notes.append(
                f"level means {low} to {high} {name} on a broker, not the same on all:"
                " racks of unequal size, pins, excluded brokers or the strategy rule out a more even spread"
            )
    return notes


def first_figure(problem: Problem, figures: Costs | Bounds) -> int | None:
    """Return the figure that is minimised first."""
    return figures.moves if problem.minimise is Minimise.MOVES else figures.bytes


def gap_between(achieved: int | None, bound: int | None) -> float | None:
    """Return (achieved - bound) / bound; None if it is unknown or not finite."""
    if achieved is None or bound is None:
        return None
    if not bound:
        return None if achieved else 0.0
    return round((achieved - bound) / bound, 6)


def may_use_solver(problem: Problem, time_limit_s: float | None) -> bool:
    """Whether the problem is small enough for the solver and for the available time."""
    cells = len(problem.movable) * len(problem.brokers)
    return cells <= EXACT_CELLS_MAX and (time_limit_s is None or cells <= time_limit_s * CELLS_A_SECOND)


def broker_counts(problem: Problem, after: Sequence[tuple[int, ...]]) -> tuple[list[int], list[int]]:
    """Return how many replicas and how many leaders each broker has."""
    counts, leads = [0] * len(problem.brokers), [0] * len(problem.brokers)
    for lists in after:
        for broker in lists:
            counts[broker] += 1
        for broker in lists[:1]:
            leads[broker] += 1
    return counts, leads
