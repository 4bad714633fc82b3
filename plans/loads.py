"""What brokers may hold in bytes: the tolerance around the share where bytes are an aim, and capacities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plans.errors import Infeasible
from plans.options import Aim
from plans.problem import Problem, mask_of

if TYPE_CHECKING:
    from plans.columns import Row


@dataclass(frozen=True, slots=True)
class ByteLimits:
    """Least and most bytes by broker index; a broker that is in neither may hold any."""

    least: dict[int, int]
    most: dict[int, int]

    def violation(self, held: Sequence[int]) -> int:
        """Return by how much brokers are outside of their limits, all together."""
        return sum(max(0, held[b] - most) for b, most in self.most.items()) + sum(
            max(0, least - held[b]) for b, least in self.least.items()
        )

    def is_kept(self, problem: Problem, after: Sequence[tuple[int, ...]]) -> bool:
        return not self.violation(held_bytes(problem, after))

    def rows(self, problem: Problem) -> list[Row]:
        """Return the rows of the solver: what movable partitions may add to those that do not move."""
        from plans.columns import Row

        base = held_bytes(problem, [() if one.is_movable else one.current for one in problem.partitions])
        return [
            Row(Aim.BYTES, (b,), float(self.least.get(b, base[b]) - base[b]), float(most - base[b]))
            for b, most in sorted(self.most.items())
        ]

    def check(self, problem: Problem, after: Sequence[tuple[int, ...]]) -> None:
        """Raise Infeasible where a broker is outside of its limits, with by how much."""
        held = held_bytes(problem, after)
        for broker, most in sorted(self.most.items()):
            capacity = problem.capacities[broker]
            name = problem.brokers[broker].id
            if capacity is not None and held[broker] > max(capacity, most):
                raise Infeasible(
                    f"broker {name} would hold {held[broker]} bytes, {held[broker] - capacity} above its capacity",
                    hint=f"add a broker{_rack_of(problem, broker)}, or raise its capacity",
                )
            if held[broker] > most or held[broker] < self.least.get(broker, 0):
                share = (most + self.least.get(broker, most)) / 2
                off = 100 * abs(held[broker] - share) / share if share else 100
                raise Infeasible(
                    f"no plan was found that brings bytes within {problem.tolerance_percent:g} %:"
                    f" broker {name} would be {off:.1f} % away from its share",
                    hint="allow more with --tolerance, or take --aim bytes away",
                )


def byte_limits(problem: Problem) -> ByteLimits:
    """Return the limits of a problem.

    Raises:
        Infeasible: the capacities together are too small.
    """
    least: dict[int, int] = {}
    most: dict[int, int] = {}
    remaining = problem.remaining
    if Aim.BYTES in problem.aim:
        for broker, share in _shares(problem).items():
            slack = share * problem.tolerance_percent / 100
            least[broker], most[broker] = -int(-(share - slack) // 1), int(share + slack)
        _spare_givers(problem, least, most)
    whole = sum((one.size or 0) * one.factor for one in problem.partitions)
    capacities = [problem.capacities[b] for b in remaining]
    room = sum(capacity for capacity in capacities if capacity is not None)
    if capacities and None not in capacities and room < whole:
        raise Infeasible(
            f"{whole} bytes of replicas do not fit on {len(remaining)} brokers: {whole - room} bytes too many",
            hint=f"add a broker with room for {whole - room} bytes, or raise the capacities",
        )
    held = held_bytes(problem, [one.current for one in problem.partitions])
    for broker in remaining:
        capacity = problem.capacities[broker]
        if capacity is not None:
            # A plan that only does what is forced empties no broker that was too full before.
            bound = capacity if problem.aim else max(capacity, held[broker])
            most[broker] = min(most.get(broker, bound), bound)
    return ByteLimits(least, most)


def _spare_givers(problem: Problem, least: dict[int, int], most: dict[int, int]) -> None:
    """Let brokers that can get nothing stay below their share, and above it by what the others cannot take.

    ``expand`` moves data onto new brokers only: one new broker may be too small a change to level all the others.
    """
    may_get = 0
    for one in problem.partitions:
        if one.is_movable:
            may_get |= one.may_hold & ~mask_of(one.current)
    held = held_bytes(problem, [one.current for one in problem.partitions])
    givers = [broker for broker in most if not may_get >> broker & 1]
    room = sum(max(0, most[broker] - held[broker]) for broker in most if broker not in givers)
    low, high = 0, max((held[broker] for broker in givers), default=0)
    while low < high:
        level = (low + high) // 2
        if sum(max(0, held[broker] - max(most[broker], level)) for broker in givers) > room:
            low = level + 1
        else:
            high = level
    for broker in givers:
        least[broker] = 0
        most[broker] = max(most[broker], low)


def held_bytes(problem: Problem, after: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the bytes on each broker."""
    held = [0] * len(problem.brokers)
    for one, lists in zip(problem.partitions, after, strict=True):
        for broker in lists:
            held[broker] += one.size or 0
    return held


def _shares(problem: Problem) -> dict[int, float]:
    """Return each broker's share of the bytes: the mean, where no rack has to hold more or can only hold less.

    A rack holds no more than one replica of every partition while replicas do not share racks.
    """
    racks: dict[int, list[int]] = {}
    for broker in problem.remaining:
        racks.setdefault(problem.brokers[broker].rack, []).append(broker)
    whole = float(sum((one.size or 0) * one.factor for one in problem.partitions))
    is_shared = any(one.shared_racks_max for one in problem.partitions if one.is_movable)
    room = float("inf") if is_shared else float(sum(one.size or 0 for one in problem.partitions))
    shares: dict[int, float] = {}
    for members in sorted(racks.values(), key=lambda ones: (-len(ones), ones)):
        left = sum(len(ones) for ones in racks.values()) - len(shares)
        share = min(whole / left, room / len(members))
        shares.update(dict.fromkeys(members, share))
        whole -= share * len(members)
    return shares


def _rack_of(problem: Problem, broker: int) -> str:
    rack = problem.brokers[broker].rack_name
    return f" in rack {rack}" if rack is not None and problem.rack_count > 1 else ""
