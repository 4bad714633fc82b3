"""The score card of a plan: its cost, the lowest possible cost, and the cluster before and after. Pure.

None means unknown: sizes that no broker reported, a makespan without a throttle.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plans.json_values import LATER
from plans.problem import Problem


@dataclass(frozen=True, slots=True)
class Bounds:
    """For each figure by itself, what no plan that meets the aim can go below."""

    moves: int
    bytes: int | None
    leader_changes: int


@dataclass(frozen=True, slots=True)
class Measures:
    """How level the cluster is, over the remaining live brokers.

    ``bytes_cv`` is the standard deviation of the brokers' bytes, divided by their mean. ``topic_excess`` counts the
    replicas above their topic's even share, rounded up, of each broker.
    """

    replica_range: int
    leader_range: int
    bytes_cv: float | None
    rack_violations: int
    topic_excess: int


@dataclass(frozen=True, slots=True)
class BrokerScore:
    """What one broker holds before and after, what goes in and out, and what it sends as a leader."""

    broker: int
    rack: str | None
    alive: bool
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int
    bytes_before: int | None
    bytes_after: int | None
    replicas_in: int
    replicas_out: int
    bytes_in: int | None
    bytes_out: int | None
    bytes_sent: int | None


@dataclass(frozen=True, slots=True)
class LogDirScore:
    """What one log dir holds before and after. ``total_bytes`` and ``usable_bytes`` are those of its volume."""

    broker: int
    log_dir: str
    total_bytes: int | None
    usable_bytes: int | None
    replicas_before: int
    replicas_after: int
    bytes_before: int | None
    bytes_after: int | None
    replicas_in: int
    replicas_out: int
    bytes_in: int | None
    bytes_out: int | None


@dataclass(frozen=True, slots=True)
class Score:
    """What a plan does and costs.

    ``moves`` counts replicas that are copied, ``leader_changes`` partitions whose first replica changes, ``reordered``
    partitions with the same replicas in another order. ``remaining_moves`` is what a cap has left undone. ``gap`` is
    (achieved - bound) / bound of the figure that is minimised first; None if the bound is 0 and the figure is not, or
    if ``remaining_bytes`` are outside the tolerance, because no plan was found that meets the aim.
    """

    moves: int
    bytes: int | None
    leader_changes: int
    reordered: int
    remaining_moves: int
    lower_bound: Bounds
    gap: float | None
    is_optimal: bool
    solver: str
    makespan_s: float | None
    before: Measures
    after: Measures
    brokers: tuple[BrokerScore, ...] = ()
    log_dirs: tuple[LogDirScore, ...] = ()
    remaining_bytes: int = field(default=0, metadata=LATER)


Lists = Sequence[tuple[int, ...]]
"""The replicas of every partition, by index, in preference order."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What it takes to get from one assignment to another."""

    moves: int
    bytes: int | None
    leader_changes: int
    reordered: int


def costs_of(problem: Problem, after: Lists) -> Costs:
    """Return the costs of a plan; bytes are None if a partition that moves is of unknown size."""
    moves = changes = reordered = size = 0
    is_known = True
    for partition, lists in zip(problem.partitions, after, strict=True):
        if lists == partition.current:
            continue
        fresh = len(set(lists) - set(partition.current))
        moves += fresh
        changes += lists[:1] != partition.current[:1]
        reordered += set(lists) == set(partition.current)
        is_known = is_known and (partition.size is not None or not fresh)
        size += fresh * (partition.size or 0)
    return Costs(moves, size if is_known else None, changes, reordered)


def measures_of(problem: Problem, lists: Lists) -> Measures:
    """Return how level an assignment is over the remaining live brokers."""
    remaining = problem.remaining
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    held: Counter[int] = Counter()
    per_topic: dict[int, Counter[int]] = {}
    violations = 0
    for partition, replicas_of in zip(problem.partitions, lists, strict=True):
        replicas.update(replicas_of)
        leaders.update(replicas_of[:1])
        per_topic.setdefault(partition.topic, Counter()).update(replicas_of)
        for broker in replicas_of:
            held[broker] += partition.size or 0
        racks = len({problem.brokers[b].rack for b in replicas_of})
        violations += max(0, min(len(replicas_of), problem.rack_count) - racks)
    return Measures(
        replica_range=_range([replicas[b] for b in remaining]),
        leader_range=_range([leaders[b] for b in remaining]),
        bytes_cv=_variation([held[b] for b in remaining]) if problem.has_sizes else None,
        rack_violations=violations,
        topic_excess=sum(_excess(counts, remaining) for counts in per_topic.values()),
    )


def broker_scores(problem: Problem, after: Lists, senders: Mapping[int, int]) -> tuple[BrokerScore, ...]:
    """Return the rows of all brokers. ``senders`` has the broker that leads each partition now, by index."""
    size = len(problem.brokers)
    counts = {name: [0] * size for name in ("rb", "ra", "lb", "la", "bb", "ba", "ri", "ro", "bi", "bo", "bs")}
    for index, (partition, lists) in enumerate(zip(problem.partitions, after, strict=True)):
        amount = partition.size or 0
        for broker in partition.current:
            counts["rb"][broker] += 1
            counts["bb"][broker] += amount
        for broker in lists:
            counts["ra"][broker] += 1
            counts["ba"][broker] += amount
        for broker in partition.current[:1]:
            counts["lb"][broker] += 1
        for broker in lists[:1]:
            counts["la"][broker] += 1
        fresh = set(lists) - set(partition.current)
        for broker in fresh:
            counts["ri"][broker] += 1
            counts["bi"][broker] += amount
        for broker in set(partition.current) - set(lists):
            counts["ro"][broker] += 1
            counts["bo"][broker] += amount
        if index in senders:
            counts["bs"][senders[index]] += amount * len(fresh)
    has_sizes = problem.has_sizes
    rows = []
    for number, row in enumerate(problem.brokers):
        numbers = {name: column[number] for name, column in counts.items()}
        known = {name: numbers[name] if has_sizes else None for name in ("bb", "ba", "bi", "bo", "bs")}
        rows.append(
            BrokerScore(
                broker=row.id,
                rack=row.rack_name,
                alive=row.is_alive,
                replicas_before=numbers["rb"],
                replicas_after=numbers["ra"],
                leaders_before=numbers["lb"],
                leaders_after=numbers["la"],
                bytes_before=known["bb"],
                bytes_after=known["ba"],
                replicas_in=numbers["ri"],
                replicas_out=numbers["ro"],
                bytes_in=known["bi"],
                bytes_out=known["bo"],
                bytes_sent=known["bs"],
            )
        )
    return tuple(rows)


def _range(values: Sequence[int]) -> int:
    return max(values) - min(values) if values else 0


def _variation(values: Sequence[int]) -> float | None:
    whole = sum(values)
    if not whole:
        return 0.0 if values else None
    count = len(values)
    # Whole numbers up to the square root, so that the result is the same on every machine.
    squares = count * sum(value * value for value in values) - whole * whole
    return round(math.sqrt(squares / (whole * whole)), 6)


def _excess(counts: Counter[int], remaining: Sequence[int]) -> int:
    held = [counts[b] for b in remaining]
    share = -(-sum(held) // len(held)) if held else 0
    return sum(max(0, value - share) for value in held)
