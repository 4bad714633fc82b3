"""What brokers may hold in bytes: the tolerance around the share if bytes are an aim, and capacities."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING

from plans.errors import Infeasible
from plans.options import Aim
from plans.problem import Problem, bits, mask_of

if TYPE_CHECKING:
    from plans.columns import Row


_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class ByteLimits:
    """Least and most bytes by broker index; a broker in neither has no limit. ``shares``: level bytes.

    ``missing``: by how much the capacities together are too small, so that no plan can keep them.
    """

    least: dict[int, int]
    most: dict[int, int]
    shares: dict[int, float] = field(default_factory=dict)
    missing: int = 0

    def violation(self, held: Sequence[int]) -> int:
        """Return by how much brokers are outside their limits, all together."""
        return sum(max(0, held[b] - most) for b, most in self.most.items()) + sum(
            max(0, least - held[b]) for b, least in self.least.items()
        )

    def is_kept(self, problem: Problem, after: Sequence[tuple[int, ...]]) -> bool:
        return not self.violation(held_bytes(problem, after))

    def rows(self, problem: Problem) -> list[Row]:
        """Return the rows of the solver: what movable partitions may add to those that do not move."""
        from plans.columns import Row

        base = held_bytes(
            problem, [() if partition.is_movable else partition.current for partition in problem.partitions]
        )
        return [
            Row(Aim.BYTES, (b,), float(self.least.get(b, base[b]) - base[b]), float(most - base[b]))
            for b, most in sorted(self.most.items())
        ]

    def check(self, problem: Problem, after: Sequence[tuple[int, ...]]) -> None:
        """Raise Infeasible if a broker would hold more than its capacity, and say by how much."""
        held = held_bytes(problem, after)
        above = _above_capacity(problem, held, self.most)
        if self.missing or above:
            each = [
                f"broker {problem.brokers[b].id} would hold {held[b]:,} bytes, {amount:,} above its capacity"
                for b, amount in above.items()
            ]
            if self.missing:
                count, too_many = len(problem.remaining), f"{self.missing} byte{'s' * (self.missing != 1)} too many"
                each.insert(0, f"the replicas do not fit on {count} broker{'s' * (count != 1)}: {too_many}")
            raise Infeasible("; ".join(each[:_NAMED_MAX]), hint=_more_room(problem, after, above))

    def notes(self, problem: Problem, after: Sequence[tuple[int, ...]], *, is_impossible: bool = False) -> list[str]:
        """Say how far from its share a broker stays, if the aim is not met, and why.

        ``is_impossible``: it is proven that no plan keeps all limits. If not, a longer search may still find one.
        """
        held = held_bytes(problem, after)
        outside = [b for b in sorted(self.most) if not self.least.get(b, 0) <= held[b] <= self.most[b]]
        if not outside:
            return []
        off = {b: self._percent_off(b, held[b]) for b in outside}
        worst = max(outside, key=lambda b: (off[b], -b))
        start, search = "no plan was found that brings", ", a higher --time-limit searches longer"
        if is_impossible:
            start, search = "no plan brings", ""
        notes = [
            f"{start} bytes within {problem.tolerance_percent:g} % of their shares: in this one, the best found,"
            f" broker {problem.brokers[worst].id} stays {off[worst]:g} % away"
            f" (--tolerance {off[worst]:g} would allow that{search})"
        ]
        lumps = [partition for partition in problem.partitions if (partition.size or 0) > max(self.most.values())]
        if lumps:
            largest = max(lumps, key=lambda lump: (lump.size or 0, lump.name))
            notes.append(f"{largest.name} alone has {largest.size:,} bytes, more than any broker should hold")
        return notes

    def _percent_off(self, broker: int, held: int) -> float:
        """Return how far from its share a broker is, rounded up to a tenth."""
        share = self.shares.get(broker, 0.0)
        return ceil(1000 * abs(held - share) / share) / 10 if share else 100.0


def byte_limits(problem: Problem) -> ByteLimits:
    least: dict[int, int] = {}
    most: dict[int, int] = {}
    shares = _shares(problem) if Aim.BYTES in problem.aim else {}
    if shares:
        # A broker that is not a target can hold less once it gives replicas away, and so the others' shares rise.
        # Targets need not get more because of that: otherwise the same plan, made again on its own result, would go on.
        first = _shares(problem, all_may_get=True)
        for broker, share in shares.items():
            wanted = min(share, first[broker])
            slack, less = (each * problem.tolerance_percent / 100 for each in (share, wanted))
            least[broker] = -int(-(wanted - less) // 1) if problem.targets >> broker & 1 else 0
            most[broker] = int(share + slack)
    held = held_bytes(problem, [partition.current for partition in problem.partitions])
    # A plan that only does what is forced empties no broker that was too full before.
    bounds = {
        broker: capacity if problem.aim else max(capacity, held[broker])
        for broker in problem.remaining
        if (capacity := problem.capacities[broker]) is not None
    }
    most.update({broker: min(most.get(broker, bound), bound) for broker, bound in bounds.items()})
    missing = 0
    if len(bounds) == len(problem.remaining):
        missing = max(0, _least_on_remaining(problem) - sum(bounds.values()))
    return ByteLimits(least, most, shares, missing)


def _least_on_remaining(problem: Problem) -> int:
    """Return the least bytes that the remaining brokers hold; replicas that may stay on others take no room there."""
    others = ~mask_of(problem.remaining)
    return sum(
        (partition.size or 0) * max(0, partition.factor - (partition.may_hold & others).bit_count())
        for partition in problem.partitions
    )


def _above_capacity(problem: Problem, held: Sequence[int], most: Mapping[int, int]) -> dict[int, int]:
    """Return by how much brokers would be above their capacity, or above what they hold now."""
    above = {}
    for broker, limit in sorted(most.items()):
        capacity = problem.capacities[broker]
        if capacity is not None and held[broker] > max(capacity, limit):
            above[broker] = held[broker] - capacity
    return above


def _more_room(problem: Problem, after: Sequence[tuple[int, ...]], above: Mapping[int, int]) -> str:
    """Say which brokers to add, and with how much room: brokers of a rack may take any replica from each other."""
    wanted: dict[str, int] = {}
    for broker, amount in above.items():
        sizes = [
            partition.size or 0
            for partition, lists in zip(problem.partitions, after, strict=True)
            if broker in lists and not partition.must_hold >> broker & 1
        ]
        if sum(sizes) < amount:
            return (
                f"raise the capacity of broker {problem.brokers[broker].id}: too little of what it holds may leave it"
            )
        rack = _rack_of(problem, broker)
        wanted[rack] = wanted.get(rack, 0) + whole_replicas(sizes, amount)
    brokers = " and ".join(f"a broker{rack} with room for {room:,} bytes" for rack, room in wanted.items())
    return f"add {brokers or 'a broker'}, or raise the capacities"


def whole_replicas(sizes: Sequence[int], amount: int) -> int:
    """Return the sum of the whole replicas that are enough to remove an amount."""
    alone = min((size for size in sizes if size >= amount), default=None)
    if alone is not None:
        return alone
    whole = 0
    for size in sorted(sizes, reverse=True):
        if whole >= amount:
            break
        whole += size
    return whole


def held_bytes(problem: Problem, after: Sequence[tuple[int, ...]]) -> list[int]:
    held = [0] * len(problem.brokers)
    for partition, lists in zip(problem.partitions, after, strict=True):
        for broker in lists:
            held[broker] += partition.size or 0
    return held


def _shares(problem: Problem, *, all_may_get: bool = False) -> dict[int, float]:
    """Return each broker's level share of the bytes: the mean, as far as racks, pins and targets allow it.

    The j largest racks hold no more than j replicas of a partition, and as many more as it may share racks. Those that
    can hold the least for each broker are filled first; the others share what is left. ``all_may_get``: as if every
    broker were a target.
    """
    racks: dict[int, list[int]] = {}
    for broker in problem.remaining:
        racks.setdefault(problem.brokers[broker].rack, []).append(broker)
    ordered = sorted(racks.values(), key=lambda brokers: (-len(brokers), brokers))
    low, high = _least_and_most(problem)
    if all_may_get:
        whole = sum((partition.size or 0) for partition in problem.partitions)
        high = [most if problem.targets >> b & 1 else whole for b, most in enumerate(high)]
    room = _room(problem, [len(brokers) for brokers in ordered])
    shares: dict[int, float] = {}
    start = 0
    while start < len(ordered):
        filled = sum(shares.values())
        ends = range(start + 1, len(ordered) + 1)
        members = {end: [b for brokers in ordered[start:end] for b in brokers] for end in ends}
        levels = {end: _water_level([(low[b], high[b]) for b in members[end]], room[end] - filled) for end in ends}
        start = min(ends, key=lambda end: (levels[end], -end))
        shares.update({b: min(high[b], max(low[b], levels[start])) for b in members[start]})
    return shares


def _least_and_most(problem: Problem) -> tuple[list[int], list[int]]:
    """Return what brokers hold whatever the plan does, and what they would hold with everything they may get."""
    low, high = [0] * len(problem.brokers), [0] * len(problem.brokers)
    for partition in problem.partitions:
        size = partition.size or 0
        for broker in bits(partition.must_hold):
            low[broker] += size
        for broker in bits(partition.may_hold):
            high[broker] += size
    return low, high


def _room(problem: Problem, rack_sizes: Sequence[int]) -> list[int]:
    """Return what the first j racks can hold, for every j from 0 on; the last is the total of all brokers."""
    remaining = mask_of(problem.remaining)
    wanted: dict[tuple[int, int], int] = {}
    for partition in problem.partitions:
        count = partition.factor - (partition.must_hold & ~remaining).bit_count()
        wanted[count, partition.shared_racks_max] = wanted.get((count, partition.shared_racks_max), 0) + (
            partition.size or 0
        )
    room = [0]
    for racks, brokers in enumerate(accumulate(rack_sizes), 1):
        is_last = racks == len(rack_sizes)
        room.append(
            sum(
                size * (count if is_last else min(count, racks + shared, brokers))
                for (count, shared), size in wanted.items()
            )
        )
    return room


def _water_level(bounds: Sequence[tuple[int, int]], whole: float) -> float:
    """Return the level at which brokers, each within its bounds, hold ``whole`` together."""
    ends = sorted({float(end) for pair in bounds for end in pair})

    def held(level: float) -> float:
        return sum(min(high, max(low, level)) for low, high in bounds)

    place = bisect_left(ends, whole, key=held)
    if place == 0:
        return ends[0]
    if place == len(ends):
        return ends[-1]
    below, above = ends[place - 1], ends[place]
    rising = sum(low <= below and high >= above for low, high in bounds)
    return below + (whole - held(below)) / rising if rising else below


def _rack_of(problem: Problem, broker: int) -> str:
    rack = problem.brokers[broker].rack_name
    return f" in rack {rack}" if rack is not None and problem.rack_count > 1 else ""


def byte_room(problem: Problem) -> dict[int, int]:
    """Return what brokers with a capacity may hold: one that is already too full gets no fuller."""
    held = held_bytes(problem, [partition.current for partition in problem.partitions])
    capacities = enumerate(problem.capacities)
    return {broker: max(capacity, held[broker]) for broker, capacity in capacities if capacity is not None}
