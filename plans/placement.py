"""Sets of replicas that change by exchanges: a replica of one item goes from one broker to another, by its rules.

An item is a partition, or for leaders a partition with one place to give. The exchanges make a graph between brokers;
a path in it moves a load from its first broker to its last, however many items take part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from plans.problem import ProblemBroker, bits

Hop = tuple[int, int, int]
"""An item, the broker that loses it and the broker that gets it."""

Cost = Callable[[int, int, int], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Item:
    """The rules of one item; see ``problem`` for what the words mean."""

    held: int
    may_hold: int
    must_hold: int
    shared_racks_max: int


@dataclass(slots=True)
class Placement:
    """The items' sets, how many items each broker holds, and which."""

    brokers: Sequence[ProblemBroker]
    items: Sequence[Item]
    racks: Sequence[int]
    base: Sequence[int]
    held: list[int] = field(init=False)
    count: list[int] = field(init=False)
    on: list[dict[int, None]] = field(init=False)
    touched: int = 0
    """The brokers whose arcs may have changed since it was last set to 0."""

    def __post_init__(self) -> None:
        self.held = [item.held for item in self.items]
        self.count = list(self.base)
        self.on = [{} for _ in self.brokers]
        for number, mask in enumerate(self.held):
            for broker in bits(mask):
                self.count[broker] += 1
                self.on[broker][number] = None

    def targets(self, number: int, broker: int) -> int:
        """Return the brokers that the item's replica on ``broker`` may go to."""
        item, held = self.items[number], self.held[number]
        bit = 1 << broker
        if item.must_hold & bit:
            return 0
        free = item.may_hold & ~held
        if not free:
            return 0
        used, shared = 0, 0
        for other in bits(held & ~bit):
            rack = self.racks[self.brokers[other].rack]
            if used & rack:
                shared += 1
            used |= rack
        return free if shared < item.shared_racks_max else free & ~used

    def hop(self, number: int, source: int, target: int) -> None:
        """Move one replica of the item from ``source`` to ``target``."""
        self.touched |= self.held[number] | (1 << target)
        self.held[number] ^= (1 << source) | (1 << target)
        self.count[source] -= 1
        self.count[target] += 1
        del self.on[source][number]
        self.on[target][number] = None

    def arcs(self) -> list[int]:
        """Return for each broker the mask of the brokers that one of its items may go to."""
        return [self.arc(broker) for broker in range(len(self.brokers))]

    def arc(self, broker: int) -> int:
        mask = 0
        for number in self.on[broker]:
            mask |= self.targets(number, broker)
        return mask

    def follow(self, path: Sequence[int], cost: Cost | None = None) -> bool:
        """Move a load along a path of brokers; change nothing if an exchange is not possible after the others."""
        done: list[Hop] = []
        for source, target in zip(path[-2::-1], path[:0:-1], strict=True):
            bit = 1 << target
            able = (n for n in self.on[source] if self.targets(n, source) & bit)
            number = (
                next(able, None)
                if cost is None
                else min(able, key=lambda n: (cost(n, source, target), n), default=None)
            )
            if number is None:
                for undone, back, forth in reversed(done):
                    self.hop(undone, forth, back)
                return False
            self.hop(number, source, target)
            done.append((number, source, target))
        return True


def shortest_path(arcs: Sequence[int], sources: int, targets: int) -> list[int] | None:
    """Return a path of fewest exchanges from one of the sources to one of the targets, or None."""
    before: dict[int, int] = {}
    seen, front = sources, list(bits(sources))
    while front:
        reached: list[int] = []
        for broker in front:
            for target in bits(arcs[broker] & ~seen):
                before[target] = broker
                seen |= 1 << target
                reached.append(target)
                if targets >> target & 1:
                    path = [target]
                    while path[-1] in before:
                        path.append(before[path[-1]])
                    return path[::-1]
        front = reached
    return None


def reachable(arcs: Sequence[int]) -> list[int]:
    """Return for each broker the mask of the brokers that paths lead to, itself included."""
    reached = []
    for start in range(len(arcs)):
        seen, front = 1 << start, 1 << start
        while front:
            ahead = 0
            for broker in bits(front):
                ahead |= arcs[broker]
            front = ahead & ~seen
            seen |= ahead
        reached.append(seen)
    return reached
