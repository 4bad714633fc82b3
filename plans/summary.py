"""A plan in words: the sentence that sums it up, the score card's rows, its moves. Pure.

The caller writes sizes and times in its own way: ``Units`` has the two functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.common.model import TopicPartition
from engine.common.quantities import plural
from plans.options import Minimise
from plans.plan_file import PlanFile, dir_changes
from plans.score import Score


@dataclass(frozen=True, slots=True)
class Units:
    """How a face writes bytes, and seconds."""

    size: Callable[[int], str]
    span: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One partition of a plan. ``copies`` counts the replicas that are copied; ``bytes`` is None if unknown.

    ``disks`` says which replicas go to another log dir of their broker.
    """

    name: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    copies: int
    bytes: int | None
    disks: tuple[str, ...] = ()


def summary(score: Score, first: Minimise | None, partition_count: int, units: Units) -> str:
    """Return the plan in a sentence: what it costs, and what is proven."""
    if not partition_count and not score.remaining_moves:
        if score.remaining_bytes:
            return "No plan was found that comes nearer to the aim than the cluster is."
        return "Nothing has to be done: no plan is needed."
    copied = "" if score.bytes is None else f", {units.size(score.bytes)}"
    took = "" if score.makespan_s is None else f", at least {units.span(score.makespan_s)}"
    text = f"{_count(score.moves, 'move')}{copied}, {_count(score.leader_changes, 'leader change')}{took}"
    bound = score.lower_bound
    # Where nothing has to be copied, the moves are what a plan can save.
    is_bytes = first is Minimise.BYTES and bound.bytes is not None and bool(score.bytes or bound.bytes)
    least = units.size(bound.bytes or 0) if is_bytes else _count(bound.moves, "move")
    if score.remaining_moves:
        left = f"{_count(score.remaining_moves, 'move')} {'is' if score.remaining_moves == 1 else 'are'} left"
        return f"{text}: as much as the cap allows; {left}. The whole aim takes at least {least}."
    if score.remaining_bytes:
        return f"{text}: the best found; {units.size(score.remaining_bytes)} stay outside the tolerance."
    achieved = score.bytes if is_bytes else score.moves
    if achieved == (bound.bytes if is_bytes else bound.moves):
        also = "" if score.is_optimal else "; there may be one with fewer leader changes"
        return f"{text}: no plan needs fewer {'bytes' if is_bytes else 'moves'}{also}."
    are = "is" if least == "1 move" else "are"
    gap = "" if score.gap is None else f", a gap of {_small_percent(score.gap)}"
    return f"{text}: at least {least} {are} needed{gap}."


Figure = int | str | None


def card_rows(score: Score) -> list[tuple[str, Figure, Figure]]:
    """Return the measures of the brokers that remain, each before and after."""
    old, new = score.before, score.after
    return [
        ("replicas, most minus fewest", old.replica_range, new.replica_range),
        ("leaders, most minus fewest", old.leader_range, new.leader_range),
        ("bytes, deviation from the mean", _percent(old.bytes_cv), _percent(new.bytes_cv)),
        ("rack violations", old.rack_violations, new.rack_violations),
        ("replicas above their topic's share", old.topic_excess, new.topic_excess),
    ]


def moves_of(plan: PlanFile, sizes: Mapping[TopicPartition, int | None]) -> list[PlannedMove]:
    before = {entry.name: entry for entry in plan.klamm.rollback}
    moves = []
    for entry in plan.partitions:
        old = before[entry.name]
        placed = set(zip(old.replicas, old.log_dirs, strict=True))
        copies = len(set(zip(entry.replicas, entry.log_dirs, strict=True)) - placed)
        size = sizes.get(entry.name)
        copied = None if size is None else size * copies
        moves.append(PlannedMove(entry.name, old.replicas, entry.replicas, copies, copied, dir_changes(old, entry)))
    return moves


def largest(moves: list[PlannedMove], count: int) -> list[PlannedMove]:
    """Return the moves that copy the most, the largest first, without those that copy nothing."""
    return sorted((move for move in moves if move.copies), key=lambda move: (-(move.bytes or 0), move.name))[:count]


def _count(count: int, noun: str) -> str:
    return f"{count:,} {plural(noun, count)}"


def _small_percent(value: float) -> str:
    return "less than 0.1 %" if value < 0.001 else f"{100 * value:.1f} %"


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.1f} %"
