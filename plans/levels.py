"""What level means on this cluster: how many replicas and leaders each broker may have in the most even placements.

The most even placement has the least sum of squares. With even racks every broker gets the floor or the ceiling of the
mean. A small rack that must hold a replica of every partition gives its brokers a larger share. All most even
placements differ by at most one replica per broker, and brokers of the same share always have the same sum.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from plans.placement import Item, Placement, reachable, shortest_path
from plans.problem import Problem, bits, mask_of

_ROUNDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Group:
    """Brokers that share ``total`` evenly: each has the floor or the ceiling."""

    brokers: tuple[int, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Levels:
    """The share of every remaining broker, by index: from ``low`` to ``high``, which differ by at most one."""

    low: dict[int, int]
    high: dict[int, int]
    groups: tuple[Group, ...]

    def shares(self, counts: Sequence[int]) -> dict[int, int]:
        """Return the most even counts that are nearest to ``counts``: the fullest of a group keep one more."""
        shares = dict(self.low)
        for group in self.groups:
            spare = group.total - sum(self.low[broker] for broker in group.brokers)
            for broker in sorted(group.brokers, key=lambda b: (-counts[b], b))[:spare]:
                shares[broker] += 1
        return shares

    def is_met(self, counts: Sequence[int]) -> bool:
        return all(self.low[b] <= counts[b] <= self.high[b] for b in self.low) and all(
            sum(counts[b] for b in group.brokers) == group.total for group in self.groups
        )


def replica_items(problem: Problem, held: Sequence[int]) -> list[Item]:
    """Return the movable partitions as items that hold ``held``."""
    return [
        Item(mask, partition.may_hold, partition.must_hold, partition.shared_racks_max)
        for mask, partition in zip(held, (problem.partitions[index] for index in problem.movable), strict=True)
    ]


def leader_items(problem: Problem, held: Sequence[int]) -> list[Item]:
    """Return the movable partitions as items with one place, the leader's; it stays where it is if it may."""
    items = []
    for mask, index in zip(held, problem.movable, strict=True):
        partition = problem.partitions[index]
        first = 1 << partition.current[0] if partition.current else 0
        able = first & partition.may_lead or (mask & partition.may_lead) or partition.may_lead
        items.append(Item(able & -able, partition.may_lead, 0, 0))
    return items


def fixed_counts(problem: Problem, *, leaders: bool) -> list[int]:
    """Return what brokers hold of partitions that do not move."""
    counts = [0] * len(problem.brokers)
    for partition in problem.partitions:
        if not partition.is_movable:
            for broker in partition.current[:1] if leaders else partition.current:
                counts[broker] += 1
    return counts


def levels_of(problem: Problem, items: Sequence[Item], base: Sequence[int]) -> Levels:
    """Return the shares of the remaining brokers; ``items`` hold any allowed placement."""
    sizes = sorted({(item.may_hold, item.must_hold, item.shared_racks_max) for item in items})
    if len(sizes) == 1 and sizes[0][1:] == (0, 0) and not sizes[0][0] & ~mask_of(problem.remaining):
        return _levels_of_alike(problem, [item.held.bit_count() for item in items], sizes[0][0], base)
    return _levels_by_exchange(problem, items, base)


def _levels_of_alike(problem: Problem, factors: Sequence[int], may_hold: int, base: Sequence[int]) -> Levels:
    """All partitions may use the same brokers, each rack once: fill up the lowest broker whose rack still has room.

    The j fullest racks can hold no more than min(j, factor) replicas of every partition.
    """
    targets = list(bits(may_hold))
    rack_of = {b: problem.brokers[b].rack for b in targets}
    rack_load = dict.fromkeys(rack_of.values(), 0)
    depth = len(rack_load)
    room = [0] * (depth + 1)
    for factor in factors:
        for j in range(1, depth + 1):
            room[j] += min(j, factor)
    count = {b: base[b] for b in problem.remaining}

    def has_room(loads: dict[int, int], rack: int) -> bool:
        full = sorted((load + (other == rack) for other, load in loads.items()), reverse=True)
        whole = 0
        for j, load in enumerate(full, 1):
            whole += load
            if whole > room[j]:
                return False
        return True

    heap = [(count[b], b) for b in targets]
    heapq.heapify(heap)
    slack_known = _free_units(rack_load, room, depth)
    for _ in range(sum(factors)):
        while True:
            load, broker = heapq.heappop(heap)
            if slack_known > 0 or has_room(rack_load, rack_of[broker]):
                break
        slack_known = slack_known - 1 if slack_known > 0 else _free_units(rack_load, room, depth) - 1
        rack_load[rack_of[broker]] += 1
        count[broker] = load + 1
        heapq.heappush(heap, (load + 1, broker))

    @cache
    def racks_can_pass(source: int | None, target: int | None) -> bool:
        return source is not None and target is not None and _can_pass(source, target, rack_load, room)

    def can_pass(source: int, target: int) -> bool:
        # Replicas that do not move cannot be passed on.
        return count[source] > base[source] and racks_can_pass(rack_of.get(source), rack_of.get(target))

    return _windows(count, can_pass)


def _free_units(loads: dict[int, int], room: Sequence[int], depth: int) -> int:
    """Return how many more units fit wherever they go."""
    full = sorted(loads.values(), reverse=True)
    whole, least = 0, room[depth]
    for j in range(1, depth + 1):
        whole += full[j - 1]
        least = min(least, room[j] - whole) if j < depth else least
    return max(0, least)


def _can_pass(source: int, target: int, loads: dict[int, int], room: Sequence[int]) -> bool:
    """Whether a unit can go from one rack to another, or stay in it, with all racks within their room."""
    if source == target:
        return True
    changed = dict(loads)
    changed[source] -= 1
    changed[target] += 1
    whole = 0
    for j, load in enumerate(sorted(changed.values(), reverse=True), 1):
        whole += load
        if whole > room[j]:
            return False
    return True


def _windows(count: dict[int, int], can_pass: Callable[[int, int], bool]) -> Levels:
    """Widen the shares by what brokers of neighbouring shares can pass to each other."""
    low, high = dict(count), dict(count)
    by_share: dict[int, list[int]] = {}
    for broker, share in count.items():
        by_share.setdefault(share, []).append(broker)
    for share, brokers in by_share.items():
        for fuller in by_share.get(share + 1, ()):
            for broker in brokers:
                if can_pass(fuller, broker):
                    high[broker], low[fuller] = share + 1, share
    return Levels(low, high, _groups(count, low, high))


def _groups(count: dict[int, int], low: dict[int, int], high: dict[int, int]) -> tuple[Group, ...]:
    open_ones: dict[int, list[int]] = {}
    for broker in sorted(count):
        if low[broker] < high[broker]:
            open_ones.setdefault(low[broker], []).append(broker)
    return tuple(Group(tuple(brokers), sum(count[b] for b in brokers)) for _, brokers in sorted(open_ones.items()))


def _levels_by_exchange(problem: Problem, items: Sequence[Item], base: Sequence[int]) -> Levels:
    """Under any rules: exchange until no path leads from a broker to one that has two less."""
    placement = Placement(problem.brokers, items, problem.racks(), base)
    remaining = problem.remaining
    _even_out_directly(placement, remaining)
    for _ in range(_ROUNDS_MAX):
        if not _even_out_by_paths(placement, remaining):
            break
    reach = reachable(placement.arcs())
    count = {b: placement.count[b] for b in remaining}
    return _windows(count, lambda source, target: bool(reach[source] >> target & 1))


def _even_out_directly(placement: Placement, remaining: Sequence[int]) -> None:
    by_count: dict[int, int] = {}
    for broker in remaining:
        by_count[placement.count[broker]] = by_count.get(placement.count[broker], 0) | 1 << broker
    is_better = True
    while is_better:
        is_better = False
        for source in sorted(remaining, key=lambda b: (-placement.count[b], b)):
            for number in list(placement.on[source]):
                free = placement.targets(number, source)
                have = placement.count[source]
                level = next((c for c in sorted(by_count) if c <= have - 2 and by_count[c] & free), None)
                if level is None:
                    continue
                target = next(bits(by_count[level] & free))
                placement.hop(number, source, target)
                for broker, old, new in ((source, have, have - 1), (target, level, level + 1)):
                    by_count[old] &= ~(1 << broker)
                    by_count[new] = by_count.get(new, 0) | 1 << broker
                is_better = True


def _even_out_by_paths(placement: Placement, remaining: Sequence[int]) -> bool:
    arcs = placement.arcs()
    for source in sorted(remaining, key=lambda b: (-placement.count[b], b)):
        lower = mask_of([b for b in remaining if placement.count[b] <= placement.count[source] - 2])
        path = shortest_path(arcs, 1 << source, lower) if lower else None
        if path is not None and placement.follow(path):
            return True
    return False
