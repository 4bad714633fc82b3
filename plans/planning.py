"""Makes a plan: poses the problem, constructs a solution, improves it with the solver, and writes the score card."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.common.collection import collector_paused
from engine.common.listing import first_few
from engine.common.model import NO_LEADER, ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot
from plans.capping import cap_note, rank, remaining_moves, within_caps
from plans.digest import input_digest
from plans.errors import PlanError
from plans.loads import ByteLimits, byte_limits, held_bytes
from plans.options import Minimise, PlanOptions, Strategy
from plans.plan_file import ANY_LOG_DIR, FORMAT, KAFKA_VERSION, Envelope, MadePlan, PlanEntry, PlanFile
from plans.problem import Problem, is_allowed, mask_of, ordered
from plans.problem_building import BuiltProblem, build_problem
from plans.score import Lists, Score, broker_scores, costs_of, measures_of
from plans.solving import Progress, Solved, first_figure, gap_between, is_met, level_notes, may_use_solver, solve
from plans.work import Work

_ROUNDS_MAX = 10

_SHARE = 3
"""A round that begins short of the aim may take one part in this many of the work. So a second plan, made on the
result, has the same part, and finds as little."""

_CUT = "the limit of work ends the search: planning again, or a longer --time-limit, may come nearer to the aim"


def settled(
    snapshot: ClusterSnapshot,
    strategy: Strategy,
    built: BuiltProblem,
    limits: ByteLimits,
    work: Work,
    progress: Progress,
) -> Solved:
    """Return the best placement found, also by starting from earlier results."""
    problem = built.problem
    solved = _solved(problem, limits, work, progress, _SHARE)
    if problem.is_capped:
        return solved
    if problem.minimise is Minimise.BYTES and not _is_proven(problem, solved, limits):
        is_short = not (solved.is_level and limits.is_kept(problem, solved.after))
        if is_short or (work.left > 0 and may_use_solver(problem, built.options.time_limit_s)):
            solved = _or_by_moves(problem, limits, work, solved)
    for _ in range(_ROUNDS_MAX):
        if solved.is_level and limits.is_kept(problem, solved.after):
            break
        if work.left < work.whole // _SHARE:
            return replace(solved, notes=(*solved.notes, _CUT))
        try:
            ahead = build_problem(_carried_out(snapshot, problem, solved.after), strategy, built.options).problem
            lists = _solved(ahead, byte_limits(ahead), work, progress, _SHARE).after
        except PlanError:
            # A dead broker that is empty then no longer counts as a broker.
            break
        after = _composed(problem, ahead, lists)
        if after == solved.after or not _is_allowed(problem, after):
            break
        is_level = is_met(problem, after, solved.replica_levels, solved.leader_levels)
        solved = replace(solved, after=after, is_level=is_level)
    return solved


def _solved(problem: Problem, limits: ByteLimits, work: Work, progress: Progress, rounds: int) -> Solved:
    """Solve it; change nothing if that is allowed and it would bring the aim no nearer."""
    solved = solve(problem, limits, work, progress, rounds=rounds)
    if solved.is_level and limits.is_kept(problem, solved.after):
        return solved
    current = tuple(partition.current for partition in problem.partitions)
    ranks = [
        rank(problem, placement, solved.replica_levels, solved.leader_levels, limits)
        for placement in (current, solved.after)
    ]
    return replace(solved, after=current) if ranks[0] <= ranks[1] and _is_allowed(problem, current) else solved


def _or_by_moves(problem: Problem, limits: ByteLimits, work: Work, solved: Solved) -> Solved:
    """Return a plan by bytes that is not proven the best, or a better one by moves, found with the work left.

    The search for the fewest moves often meets the aim where the one for the fewest bytes has only begun. Its plan may
    even copy fewer bytes, where that one ended early.
    """
    other = solve(replace(problem, minimise=Minimise.MOVES), limits, work, lambda _: None)
    mine, theirs = (
        rank(problem, each.after, solved.replica_levels, solved.leader_levels, limits) for each in (solved, other)
    )
    return solved if mine <= theirs else replace(solved, after=other.after, is_level=other.is_level)


def _is_proven(problem: Problem, solved: Solved, limits: ByteLimits) -> bool:
    """Whether the plan meets the aim, and no other copies less."""
    achieved = first_figure(problem, costs_of(problem, solved.after))
    is_good = solved.is_level and limits.is_kept(problem, solved.after)
    return is_good and achieved == first_figure(problem, solved.bounds(problem))


def _is_allowed(problem: Problem, after: Lists) -> bool:
    return all(
        not partition.is_movable
        or (is_allowed(problem, partition, mask_of(lists)) and bool(partition.may_lead >> lists[0] & 1))
        for partition, lists in zip(problem.partitions, after, strict=True)
    )


def _carried_out(snapshot: ClusterSnapshot, problem: Problem, after: Lists) -> ClusterSnapshot:
    """Return the cluster with these replicas; sizes stay as they were reported."""
    changed: dict[tuple[str, int], ReplicaAssignment] = {
        partition.name: ReplicaAssignment(tuple(problem.brokers[b].id for b in lists))
        for partition, lists in zip(problem.partitions, after, strict=True)
        if lists != partition.current
    }
    topics = tuple(
        replace(
            topic,
            partitions=tuple(
                replace(partition, assignment=changed.get((topic.name, partition.partition), partition.assignment))
                for partition in topic.partitions
            ),
        )
        for topic in snapshot.topics
    )
    return replace(snapshot, topics=topics)


def _composed(problem: Problem, ahead: Problem, after: Lists) -> tuple[tuple[int, ...], ...]:
    """Return the lists of a problem with a later start as lists of the first one, as near to it as possible."""
    index = {broker.id: number for number, broker in enumerate(problem.brokers)}
    ids = [index[broker.id] for broker in ahead.brokers]
    composed = []
    for partition, lists in zip(problem.partitions, after, strict=True):
        held = [ids[b] for b in lists]
        composed.append(
            ordered(partition.current, mask_of(held), held[0]) if partition.is_movable else partition.current
        )
    return tuple(composed)


_NAMED_MAX = 3


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

            return make_log_dir_plan(snapshot, options, progress or _silent)
        built = build_problem(snapshot, strategy, options)
        return _Planner(snapshot, strategy, built, progress or _silent).make()


@dataclass(slots=True)
class _Planner:
    snapshot: ClusterSnapshot
    strategy: Strategy
    built: BuiltProblem
    progress: Progress

    def make(self) -> MadePlan:
        problem = self.built.problem
        limits = byte_limits(problem)
        work = Work.within(self.built.options.time_limit_s, len(problem.movable))
        solved = settled(self.snapshot, self.strategy, self.built, limits, work, self.progress)
        after = solved.after
        limits.check(problem, after)
        notes = [*self.built.notes, *solved.notes, *level_notes(problem, solved), *_replace_notes(problem, after)]
        notes += limits.notes(problem, after, is_impossible=solved.is_impossible)
        remaining = 0
        if problem.is_capped:
            after = within_caps(problem, solved, limits, work)
            if after != solved.after:
                remaining = remaining_moves(problem, solved, after, byte_limits, work)
                notes += [cap_note(remaining)] if remaining else []
        notes += [*_waiting_notes(problem, after), *_stranded_notes(problem, after)]
        score = self._score(after, solved, remaining, limits)
        return MadePlan(self._file(after, score), problem, after, tuple(notes))

    def _score(self, after: Lists, solved: Solved, remaining: int, limits: ByteLimits) -> Score:
        problem, options = self.built.problem, self.built.options
        costs = costs_of(problem, after)
        bounds = solved.bounds(problem)
        achieved, bound = first_figure(problem, costs), first_figure(problem, bounds)
        outside = limits.violation(held_bytes(problem, after)) if limits.shares else 0
        is_first = achieved is not None and achieved == bound and not remaining and solved.is_level and not outside
        brokers = broker_scores(problem, after, self._senders())
        busiest = max((max(broker.bytes_in or 0, broker.bytes_sent or 0) for broker in brokers), default=0)
        is_timed = options.throttle is not None and problem.has_sizes
        return Score(
            moves=costs.moves,
            bytes=costs.bytes,
            leader_changes=costs.leader_changes,
            reordered=costs.reordered,
            remaining_moves=remaining,
            lower_bound=bounds,
            gap=None if outside and not remaining else gap_between(achieved, bound),
            is_optimal=is_first and costs.leader_changes <= solved.least_leader_changes,
            solver=solved.solver,
            makespan_s=round(busiest / (options.throttle or 1), 3) if is_timed else None,
            before=measures_of(problem, [partition.current for partition in problem.partitions]),
            after=measures_of(problem, after),
            brokers=brokers,
            remaining_bytes=outside,
        )

    def _senders(self) -> dict[int, int]:
        """Return who leads each partition now, because that broker sends the copies; else the first live replica."""
        problem = self.built.problem
        index = {broker.id: number for number, broker in enumerate(problem.brokers)}
        leaders = {(t.name, p.partition): p.leader for t in self.snapshot.topics for p in t.partitions}
        senders = {}
        for number, partition in enumerate(problem.partitions):
            leader = index.get(leaders.get(partition.name, NO_LEADER))
            live = [b for b in partition.current if problem.brokers[b].is_alive]
            sender = leader if leader is not None else next(iter(live), None)
            if sender is not None:
                senders[number] = sender
        return senders

    def _file(self, after: Lists, score: Score) -> PlanFile:
        problem = self.built.problem
        changed = [
            (partition, lists)
            for partition, lists in zip(problem.partitions, after, strict=True)
            if lists != partition.current
        ]

        def entry(name: tuple[str, int], lists: tuple[int, ...]) -> PlanEntry:
            ids = tuple(problem.brokers[b].id for b in lists)
            return PlanEntry(name[0], name[1], ids, (ANY_LOG_DIR,) * len(ids))

        return PlanFile(
            version=KAFKA_VERSION,
            partitions=tuple(entry(partition.name, lists) for partition, lists in changed),
            klamm=Envelope(
                format=FORMAT,
                cluster_id=self.snapshot.cluster_id,
                input_digest=input_digest(self.snapshot),
                strategy=self.strategy,
                options=self.built.options,
                score=score,
                rollback=tuple(entry(partition.name, partition.current) for partition, _ in changed),
                throttle=self.built.options.throttle,
                sizes=tuple(partition.size for partition, _ in changed) if problem.has_sizes else (),
            ),
        )


def _replace_notes(problem: Problem, after: Lists) -> list[str]:
    """Say how many replicas of replaced brokers go to a broker other than their successor."""
    index = {broker.id: number for number, broker in enumerate(problem.brokers)}
    elsewhere = sum(
        index[pair.old] in partition.current and index[pair.old] not in lists and index[pair.new] not in lists
        for pair in problem.replacements
        for partition, lists in zip(problem.partitions, after, strict=True)
    )
    if not elsewhere:
        return []
    subject = f"{elsewhere} replicas of brokers that are replaced go"
    if elsewhere == 1:
        subject = "1 replica of a broker that is replaced goes"
    return [f"{subject} elsewhere: racks, capacity or a replica that is already there rule out the new broker"]


def _waiting_notes(problem: Problem, after: Lists) -> list[str]:
    """Name dead brokers that keep a replica of a partition that has to move: the cluster would wait for them."""
    waited_for = {
        broker
        for partition, new in zip(problem.partitions, after, strict=True)
        if set(new) != set(partition.current)
        for broker in new
        if not problem.brokers[broker].is_alive
    }
    if not waited_for:
        return []
    names = ", ".join(str(problem.brokers[broker].id) for broker in sorted(waited_for))
    subject = f"broker {names}, which is" if len(waited_for) == 1 else f"brokers {names}, which are"
    them = "it" if len(waited_for) == 1 else "them"
    return [f"some moves would wait for {subject} dead: start {them}, or decommission {them} first"]


def _stranded_notes(problem: Problem, after: Lists) -> list[str]:
    """Name partitions that are to move although all their replicas are on dead brokers."""
    stranded = [
        partition
        for partition, new in zip(problem.partitions, after, strict=True)
        if set(new) - set(partition.current)
        and not any(problem.brokers[broker].is_alive for broker in partition.current)
    ]
    if not stranded:
        return []
    names = first_few((partition.name for partition in stranded), _NAMED_MAX)
    dead = sorted({problem.brokers[broker].id for partition in stranded for broker in partition.current})
    start = f"start {'one of ' if len(dead) > 1 else 'broker '}{', '.join(map(str, dead))}"
    whose = "its" if len(stranded) == 1 else "their"
    where = "dead brokers" if len(dead) > 1 else "a dead broker"
    return [f"no broker can copy {names}: all {whose} replicas are on {where}; {start} first"]


def _silent(text: str) -> None:
    """Ignore progress that the caller does not want."""
