"""Spreads topics more evenly at no cost: replicas that move anyway swap their targets.

Two copied replicas swap their new brokers if the rules of both allow it. Moves, bytes copied, the counts of brokers
and the leaders per broker stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plans.construction import Solution
from plans.problem import Problem, bits, mask_of, shared_racks

_PASSES_MAX = 4
_TRIALS_MAX = 200
"""Partners examined for one replica."""

_WORK_MAX = 5_000_000
"""Swaps are searched for up to this many copies times brokers; beyond that it would take minutes."""


@dataclass(slots=True)
class _Spread:
    problem: Problem
    held: list[int]
    leaders: list[int]
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    shares: dict[int, int] = field(default_factory=dict)
    fresh: dict[tuple[int, bool], dict[int, None]] = field(default_factory=dict)
    """The partitions that are copied to a broker, separated by whether it leads them."""

    def count(self) -> None:
        """Count the replicas of each topic on each broker, and each topic's even share."""
        problem = self.problem
        after = [mask_of(one.current) for one in problem.partitions]
        for number, index in enumerate(problem.movable):
            after[index] = self.held[number]
            for broker in bits(self.held[number] & ~mask_of(problem.partitions[index].current)):
                self.fresh.setdefault((broker, self.leaders[number] == broker), {})[number] = None
        remaining = mask_of(problem.remaining)
        whole: dict[int, int] = {}
        for one, mask in zip(problem.partitions, after, strict=True):
            whole[one.topic] = whole.get(one.topic, 0) + (mask & remaining).bit_count()
            for broker in bits(mask):
                self.counts[one.topic, broker] = self.counts.get((one.topic, broker), 0) + 1
        self.shares = {topic: -(-total // max(1, len(problem.remaining))) for topic, total in whole.items()}

    def improve(self) -> bool:
        """Go through all copies once; return whether any swap was made."""
        is_better = False
        for broker, leads in sorted(self.fresh):
            for number in list(self.fresh[broker, leads]):
                if self._excess(number, broker) and self._swap(number, broker, leads):
                    is_better = True
        return is_better

    def _excess(self, number: int, broker: int) -> bool:
        topic = self._topic(number)
        return self.counts.get((topic, broker), 0) > self.shares[topic]

    def _topic(self, number: int) -> int:
        return self.problem.partitions[self.problem.movable[number]].topic

    def _swap(self, number: int, broker: int, leads: bool) -> bool:
        topic, trials = self._topic(number), 0
        for (other, other_leads), partners in self.fresh.items():
            if other_leads != leads or other == broker or self.counts.get((topic, other), 0) >= self.shares[topic]:
                continue
            if not self._may(number, broker, other):
                continue
            for partner in partners:
                trials += 1
                if trials > _TRIALS_MAX:
                    return False
                theirs = self._topic(partner)
                if theirs == topic or self.counts.get((theirs, broker), 0) >= self.shares[theirs]:
                    continue
                if self._may(partner, other, broker):
                    self._move(number, broker, other, leads)
                    self._move(partner, other, broker, leads)
                    return True
        return False

    def _may(self, number: int, source: int, target: int) -> bool:
        """Whether a copy may go to ``target`` instead, and would be a copy there as well."""
        one = self.problem.partitions[self.problem.movable[number]]
        held = self.held[number] & ~(1 << source)
        if (held | mask_of(one.current)) >> target & 1 or not one.may_hold >> target & 1:
            return False
        if self.leaders[number] == source and not one.may_lead >> target & 1:
            return False
        return shared_racks(self.problem.brokers, [*bits(held), target]) <= one.shared_racks_max

    def _move(self, number: int, source: int, target: int, leads: bool) -> None:
        topic = self._topic(number)
        self.held[number] ^= (1 << source) | (1 << target)
        if leads:
            self.leaders[number] = target
        self.counts[topic, source] -= 1
        self.counts[topic, target] = self.counts.get((topic, target), 0) + 1
        del self.fresh[source, leads][number]
        self.fresh.setdefault((target, leads), {})[number] = None


def spread_topics(problem: Problem, solution: Solution) -> Solution:
    """Return a solution of the same cost whose topics are spread at least as evenly."""
    spread = _Spread(problem, list(solution.held), list(solution.leaders))
    spread.count()
    if sum(map(len, spread.fresh.values())) * len(spread.fresh) > _WORK_MAX:
        return solution
    for _ in range(_PASSES_MAX):
        if not spread.improve():
            break
    return Solution(tuple(spread.held), tuple(spread.leaders))
