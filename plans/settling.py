"""Solves a problem so that planning again on the plan's own result changes nothing.

If the aim is met, nothing is left to do. If not, the simple ways may come nearer when they start from the result. They
do so here as long as it helps, and a plan that comes no nearer to the aim is not made.
"""

from __future__ import annotations

from dataclasses import replace

from engine.common.model import ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot
from plans.building import BuiltProblem, build_problem
from plans.cap_rules import is_allowed
from plans.capping import rank
from plans.errors import PlanError
from plans.loads import ByteLimits, byte_limits
from plans.options import Strategy
from plans.ordering import ordered
from plans.problem import Problem, mask_of
from plans.scoring import Lists
from plans.solving import Progress, Solved, is_met, solve
from plans.work import Work

_ROUNDS_MAX = 10

_SHARE = 3
"""A round that begins short of the aim may take one part in this many of the work. So it is the same part when somebody
plans again on the result, and finds as little."""

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
    if problem.is_capped:
        return _solved(problem, limits, work, progress, _SHARE)
    solved = _solved(problem, limits, work, progress, _SHARE)
    for _ in range(_ROUNDS_MAX):
        if solved.is_level and limits.is_kept(problem, solved.after):
            break
        if work.left < work.whole // _SHARE:
            return replace(solved, notes=(*solved.notes, _CUT))
        try:
            ahead = build_problem(_carried_out(snapshot, problem, solved.after), strategy, built.options).problem
            found = _solved(ahead, byte_limits(ahead), work, progress, _SHARE).after
        except PlanError:
            # A dead broker that is empty then no longer counts as a broker.
            break
        after = _composed(problem, ahead, found)
        if after == solved.after or not _is_allowed(problem, after):
            break
        is_level = is_met(problem, after, solved.replica_levels, solved.leader_levels)
        solved = replace(solved, after=after, is_level=is_level)
    return solved


def _solved(problem: Problem, limits: ByteLimits, work: Work, progress: Progress, rounds: int) -> Solved:
    """Solve it; change nothing if that is allowed and the aim would come no nearer."""
    solved = solve(problem, limits, work, progress, rounds=rounds)
    if solved.is_level and limits.is_kept(problem, solved.after):
        return solved
    current = tuple(one.current for one in problem.partitions)
    ranks = [rank(problem, one, solved.replica_levels, solved.leader_levels, limits) for one in (current, solved.after)]
    return replace(solved, after=current) if ranks[0] <= ranks[1] and _is_allowed(problem, current) else solved


def _is_allowed(problem: Problem, after: Lists) -> bool:
    return all(
        not one.is_movable or (is_allowed(problem, one, mask_of(lists)) and bool(one.may_lead >> lists[0] & 1))
        for one, lists in zip(problem.partitions, after, strict=True)
    )


def _carried_out(snapshot: ClusterSnapshot, problem: Problem, after: Lists) -> ClusterSnapshot:
    """Return the cluster with these replicas; sizes stay as they were reported."""
    changed: dict[tuple[str, int], ReplicaAssignment] = {
        one.name: ReplicaAssignment(tuple(problem.brokers[b].id for b in lists))
        for one, lists in zip(problem.partitions, after, strict=True)
        if lists != one.current
    }
    topics = tuple(
        replace(
            topic,
            partitions=tuple(
                replace(one, assignment=changed.get((topic.name, one.partition), one.assignment))
                for one in topic.partitions
            ),
        )
        for topic in snapshot.topics
    )
    return replace(snapshot, topics=topics)


def _composed(problem: Problem, ahead: Problem, after: Lists) -> tuple[tuple[int, ...], ...]:
    """Return the lists of a problem with a later start as lists of the first one, as near to it as possible."""
    index = {broker.id: number for number, broker in enumerate(problem.brokers)}
    ids = [index[broker.id] for broker in ahead.brokers]
    found = []
    for one, lists in zip(problem.partitions, after, strict=True):
        held = [ids[b] for b in lists]
        found.append(ordered(one.current, mask_of(held), held[0]) if one.is_movable else one.current)
    return tuple(found)
