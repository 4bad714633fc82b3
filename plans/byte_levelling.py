"""Brings bytes within their limits by single moves and swaps. This is the simple way; the solver finds the smallest."""

from __future__ import annotations

from collections.abc import Iterator

from plans.levels import Levels
from plans.loads import ByteLimits
from plans.placement import Hop, Placement
from plans.problem import Problem, bits

_STEPS_MAX = 2_000
_TRIALS_MAX = 20_000
"""Exchanges examined in one step."""


def level_bytes(problem: Problem, placement: Placement, limits: ByteLimits, levels: Levels | None) -> None:
    """Exchange replicas until all brokers are within their limits, or no exchange brings them nearer."""
    sizes = [problem.partitions[index].size or 0 for index in problem.movable]
    held = [0] * len(problem.brokers)
    for one in problem.partitions:
        if not one.is_movable:
            for broker in one.current:
                held[broker] += one.size or 0
    for number, mask in enumerate(placement.held):
        for broker in bits(mask):
            held[broker] += sizes[number]
    for _ in range(_STEPS_MAX):
        if not limits.violation(held):
            return
        best: tuple[int, int, list[Hop]] | None = None
        for trial, hops in enumerate(_exchanges(placement, held, limits, levels, sizes)):
            gain = _gain(limits, held, hops, sizes)
            cost = sum(sizes[number] for number, _, _ in hops)
            if gain > 0 and (best is None or (-gain, cost) < best[:2]):
                best = (-gain, cost, hops)
            if trial >= _TRIALS_MAX:
                break
        if best is None:
            return
        for number, source, target in best[2]:
            placement.hop(number, source, target)
            held[source] -= sizes[number]
            held[target] += sizes[number]


def _exchanges(
    placement: Placement, held: list[int], limits: ByteLimits, levels: Levels | None, sizes: list[int]
) -> Iterator[list[Hop]]:
    """Yield moves and swaps between the broker farthest outside and others, those with the most room first."""

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
        for number in gives:
            if is_free:
                yield [(number, source, target)]
            for back in takes:
                if sizes[back] < sizes[number]:
                    yield [(number, source, target), (back, target, source)]


def _gain(limits: ByteLimits, held: list[int], hops: list[Hop], sizes: list[int]) -> int:
    change: dict[int, int] = {}
    for number, source, target in hops:
        change[source] = change.get(source, 0) - sizes[number]
        change[target] = change.get(target, 0) + sizes[number]
    gain = 0
    for broker, amount in change.items():
        for sign, value in ((1, held[broker]), (-1, held[broker] + amount)):
            gain += sign * max(0, value - limits.most.get(broker, value), limits.least.get(broker, value) - value)
    return gain
