"""A good plan by simple means: what is forced goes to the emptiest brokers, then exchanges level the rest.

It needs no solver and takes a few seconds for 200,000 replicas. The result is often optimal, but only the bounds can
tell.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from plans.levels import Levels, fixed_counts, replica_items
from plans.loads import ByteLimits
from plans.options import Aim
from plans.placement import Cost, Item, Placement, shortest_path
from plans.problem import Problem, ProblemPartition, bits, mask_of
from plans.work import Work

_STEPS_MAX = 2_000
_TRIALS_MAX = 20_000
"""Exchanges examined in one step."""

_Exchange = tuple[int, int, int, int]
"""What moves there, what moves back or -1, source, target."""


def level_bytes(
    problem: Problem, placement: Placement, limits: ByteLimits, levels: Levels | None, exchanges_max: int
) -> int:
    """Exchange replicas until all brokers are within their limits, or no exchange brings them nearer.

    It examines about ``exchanges_max`` exchanges, and returns how many it examined.
    """
    sizes = [problem.partitions[index].size or 0 for index in problem.movable]
    held = [0] * len(problem.brokers)
    for partition in problem.partitions:
        if not partition.is_movable:
            for broker in partition.current:
                held[broker] += partition.size or 0
    for number, mask in enumerate(placement.held):
        for broker in bits(mask):
            held[broker] += sizes[number]
    examined = 0
    for _ in range(_STEPS_MAX):
        if examined >= exchanges_max or not limits.violation(held):
            break
        best: tuple[int, int] | None = None
        exchange: _Exchange | None = None
        for trial, (gain, cost, candidate) in enumerate(_exchanges(placement, held, limits, levels, sizes), 1):
            if gain > 0 and (best is None or (-gain, cost) < best):
                best, exchange = (-gain, cost), candidate
            examined += 1
            if trial > _TRIALS_MAX:
                break
        if exchange is None:
            break
        forth, back, source, target = exchange
        for number, old, new in ((forth, source, target), (back, target, source))[: 1 + (back >= 0)]:
            placement.hop(number, old, new)
            held[old] -= sizes[number]
            held[new] += sizes[number]
    return examined


def _exchanges(
    placement: Placement, held: list[int], limits: ByteLimits, levels: Levels | None, sizes: list[int]
) -> Iterator[tuple[int, int, _Exchange]]:
    """Yield moves and swaps between the broker farthest outside and others, those with the most room first.

    Each comes with the bytes by which brokers get nearer to their limits, and the bytes that it copies.
    """

    def off(broker: int) -> int:
        return max(held[broker] - limits.most[broker], limits.least.get(broker, 0) - held[broker])

    worst = max(limits.most, key=lambda b: (off(b), -b))
    is_over = held[worst] > limits.most[worst]
    others = sorted((b for b in limits.most if b != worst), key=lambda b: (held[b] if is_over else -held[b], b))
    for other in others:
        source, target = (worst, other) if is_over else (other, worst)
        is_free = levels is None or (
            placement.count[source] > levels.low[source] and placement.count[target] < levels.high[target]
        )
        gives = [n for n in placement.on[source] if placement.targets(n, source) >> target & 1]
        takes = [n for n in placement.on[target] if placement.targets(n, target) >> source & 1]
        gain = _gain_of(limits, held, source, target)
        for number in gives:
            size = sizes[number]
            if is_free:
                yield gain(size), size, (number, -1, source, target)
            for back in takes:
                if sizes[back] < size:
                    yield gain(size - sizes[back]), size + sizes[back], (number, back, source, target)


def _gain_of(limits: ByteLimits, held: list[int], source: int, target: int) -> Callable[[int], int]:
    """Return a function that says how much nearer to their limits two brokers get if bytes go from one to the other."""
    above_source, above_target = held[source] - limits.most[source], held[target] - limits.most[target]
    below_source = limits.least.get(source, 0) - held[source]
    below_target = limits.least.get(target, 0) - held[target]
    before = max(0, above_source, below_source) + max(0, above_target, below_target)

    def gain(size: int) -> int:
        return (
            before - max(0, above_source - size, below_source + size) - max(0, above_target + size, below_target - size)
        )

    return gain


_PATHS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Solution:
    """The replicas, as a mask, and the leader of every movable partition, in the order of ``Problem.movable``."""

    held: tuple[int, ...]
    leaders: tuple[int, ...]


@dataclass(slots=True)
class Forcing:
    """Gives every partition an allowed set that keeps what it may keep; new replicas go to the emptiest brokers."""

    problem: Problem
    count: list[int] = field(init=False)
    per_topic: dict[tuple[int, int], int] = field(init=False)
    bytes: list[int] = field(init=False)
    racks: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.count = [0] * len(self.problem.brokers)
        self.bytes = [0] * len(self.problem.brokers)
        self.per_topic = {}
        self.racks = self.problem.racks()
        for partition in self.problem.partitions:
            for broker in partition.current:
                self._count(partition, broker, 1)

    def sets(self) -> list[int]:
        """Return the sets of the movable partitions."""
        return [self._set(self.problem.partitions[index]) for index in self.problem.movable]

    def _set(self, partition: ProblemPartition) -> int:
        before = mask_of(partition.current)
        kept = self._kept(partition)
        for broker in bits(before & ~kept):
            self._count(partition, broker, -1)
        while kept.bit_count() < partition.factor:
            broker = self._best(partition, kept)
            self._count(partition, broker, 1)
            kept |= 1 << broker
        return kept

    def _count(self, partition: ProblemPartition, broker: int, change: int) -> None:
        self.count[broker] += change
        self.bytes[broker] += change * (partition.size or 0)
        key = (partition.topic, broker)
        self.per_topic[key] = self.per_topic.get(key, 0) + change

    def _kept(self, partition: ProblemPartition) -> int:
        """Return what stays: all that may, less any surplus, taken from shared racks and the fullest broker first."""
        stays = [broker for broker in partition.current if partition.may_hold >> broker & 1]
        leader = stays[0] if stays else -1
        order = sorted(stays, key=lambda b: (not partition.must_hold >> b & 1, b != leader, self.count[b], b))
        room = partition.shared_racks_max
        kept, used, shared = 0, set(), 0
        late = []
        for broker in order:
            rack = self.problem.brokers[broker].rack
            if kept.bit_count() == partition.factor:
                break
            if rack in used:
                late.append(broker)
                continue
            kept |= 1 << broker
            used.add(rack)
        for broker in late:
            if kept.bit_count() < partition.factor and shared < room:
                kept |= 1 << broker
                shared += 1
        return kept

    def _best(self, partition: ProblemPartition, kept: int) -> int:
        used, shared = 0, 0
        for broker in bits(kept):
            rack = self.racks[self.problem.brokers[broker].rack]
            shared += bool(used & rack)
            used |= rack
        free = partition.may_hold & ~kept
        fresh = free & ~used
        able = free if shared < partition.shared_racks_max and not fresh else fresh
        for each in self.problem.replacements:
            new = next((i for i in bits(able) if self.problem.brokers[i].id == each.new), None)
            if new is not None and any(self.problem.brokers[b].id == each.old for b in partition.current):
                return new
        size = partition.size or 0
        fits = [b for b in bits(able) if self._fits(b, size)] or list(bits(able))
        return min(fits, key=lambda b: (self.per_topic.get((partition.topic, b), 0), self.count[b], b))

    def _fits(self, broker: int, size: int) -> bool:
        capacity = self.problem.capacities[broker]
        return capacity is None or self.bytes[broker] + size <= capacity


def level_replicas(problem: Problem, placement: Placement, levels: Levels) -> None:
    """Exchange replicas until the brokers have their shares: the cheapest copies first, then along paths."""
    parts = [problem.partitions[index] for index in problem.movable]

    def cost(number: int, source: int, target: int) -> tuple[int, ...]:
        partition = parts[number]
        change = problem.weight(partition) * ((target not in partition.current) - (source not in partition.current))
        return (change, partition.current[:1] == (source,))

    def leaving(number: int, source: int) -> tuple[int, ...]:
        partition = parts[number]
        return (problem.weight(partition) if source in partition.current else 0, partition.current[:1] == (source,))

    _level(placement, levels, leaving, cost)


def _level(placement: Placement, levels: Levels, leaving: Callable[[int, int], tuple[int, ...]], cost: Cost) -> None:
    shares = levels.shares(placement.count)
    _level_directly(placement, shares, leaving)
    arcs = placement.arcs()
    placement.touched = 0
    for _ in range(_PATHS_MAX):
        fuller = mask_of(
            [b for b in range(len(placement.on)) if placement.count[b] > shares.get(b, 0) and placement.on[b]]
        )
        lower = mask_of([b for b, share in shares.items() if placement.count[b] < share])
        if not fuller or not lower:
            return
        path = shortest_path(arcs, fuller, lower)
        if path is None or not placement.follow(path, cost):
            return
        for broker in bits(placement.touched):
            arcs[broker] = placement.arc(broker)
        placement.touched = 0


def _level_directly(
    placement: Placement, shares: dict[int, int], leaving: Callable[[int, int], tuple[int, ...]]
) -> None:
    """Move from brokers above their share straight to those that want the most, the cheapest first."""
    lower: dict[int, int] = {}
    for broker in shares:
        want = shares[broker] - placement.count[broker]
        if want > 0:
            lower[want] = lower.get(want, 0) | 1 << broker
    heap = [
        (leaving(n, b), n, b)
        for b in range(len(placement.on))
        if placement.count[b] > shares.get(b, 0)
        for n in placement.on[b]
    ]
    heapq.heapify(heap)
    while heap and lower:
        _, number, source = heapq.heappop(heap)
        if placement.count[source] <= shares.get(source, 0) or number not in placement.on[source]:
            continue
        free = placement.targets(number, source)
        want = next((w for w in sorted(lower, reverse=True) if lower[w] & free), 0)
        if not want:
            continue
        target = next(bits(lower[want] & free))
        placement.hop(number, source, target)
        lower[want] &= ~(1 << target)
        if not lower[want]:
            del lower[want]
        if want > 1:
            lower[want - 1] = lower.get(want - 1, 0) | 1 << target


def choose_leaders(problem: Problem, held: Sequence[int], levels: Levels | None) -> list[int]:
    """Return a leader for every movable partition: the current one if it can stay, level if that is the aim."""
    movable = problem.movable
    count = [0] * len(problem.brokers)
    for partition in problem.partitions:
        for broker in partition.current[:1]:
            count[broker] += 1
    leaders = []
    for mask, index in zip(held, movable, strict=True):
        partition = problem.partitions[index]
        able = mask & partition.may_lead or mask
        first = partition.current[0]
        if not able >> first & 1:
            in_sync = able & mask_of(partition.current)
            best = min(bits(in_sync or able), key=lambda b: (count[b], b))
            count[first] -= 1
            count[best] += 1
            first = best
        leaders.append(first)
    return leaders if levels is None else _level_leaders(problem, held, leaders, levels)


def _level_leaders(problem: Problem, held: Sequence[int], leaders: list[int], levels: Levels) -> list[int]:
    parts = [problem.partitions[index] for index in problem.movable]
    items = [
        Item(1 << leader, mask & partition.may_lead or mask, 0, 0)
        for leader, mask, partition in zip(leaders, held, parts, strict=True)
    ]
    base = fixed_counts(problem, leaders=True)
    placement = Placement(problem.brokers, items, problem.racks(), base)

    def cost(number: int, source: int, target: int) -> tuple[int, ...]:
        first = parts[number].current[0]
        return ((target != first) - (source != first), target not in parts[number].current)

    def leaving(number: int, source: int) -> tuple[int, ...]:
        return (parts[number].current[0] == source,)

    _level(placement, levels, leaving, cost)
    return [mask.bit_length() - 1 for mask in placement.held]


def construct(
    problem: Problem,
    replica_levels: Levels | None,
    leader_levels: Levels | None,
    held: list[int],
    limits: ByteLimits,
    work: Work,
) -> Solution:
    """Return a solution that starts from the forced sets ``held``. The search for level bytes takes of the work."""
    if replica_levels is not None or limits.most:
        placement = Placement(
            problem.brokers, replica_items(problem, held), problem.racks(), fixed_counts(problem, leaders=False)
        )
        if replica_levels is not None:
            level_replicas(problem, placement, replica_levels)
        if limits.most:
            work.spend_exchanges(level_bytes(problem, placement, limits, replica_levels, work.exchanges))
        held = placement.held
    wanted = leader_levels if Aim.LEADERS in problem.aim else None
    return Solution(tuple(held), tuple(choose_leaders(problem, held, wanted)))
