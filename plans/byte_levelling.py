"""Brings bytes within their limits by single moves and swaps. This is the simple way; the solver finds the smallest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plans.levels import Levels
from plans.loads import ByteLimits
from plans.placement import Placement
from plans.problem import Problem, bits

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
    for one in problem.partitions:
        if not one.is_movable:
            for broker in one.current:
                held[broker] += one.size or 0
    for number, mask in enumerate(placement.held):
        for broker in bits(mask):
            held[broker] += sizes[number]
    examined = 0
    for _ in range(_STEPS_MAX):
        if examined >= exchanges_max or not limits.violation(held):
            break
        best: tuple[int, int] | None = None
        exchange: _Exchange | None = None
        for trial, (gain, cost, found) in enumerate(_exchanges(placement, held, limits, levels, sizes), 1):
            if gain > 0 and (best is None or (-gain, cost) < best):
                best, exchange = (-gain, cost), found
            examined += 1
            if trial > _TRIALS_MAX:
                break
        if exchange is None:
            break
        there, back, source, target = exchange
        for number, old, new in ((there, source, target), (back, target, source))[: 1 + (back >= 0)]:
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
