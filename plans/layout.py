"""Where every movable partition is, as arrays, and what that means for the rows of the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plans.columns import Column, Ints, Model
from plans.construction import Solution, choose_leaders
from plans.options import Aim
from plans.problem import bits

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Layout:
    """``held`` has partitions down and brokers across; ``leaders`` has the leader of each partition."""

    held: Bools
    leaders: Ints

    @classmethod
    def of(cls, model: Model, columns: Iterable[Column]) -> Layout:
        """Return the layout with a column for each partition."""
        held, leaders = np.zeros(model.is_held.shape, np.bool_), np.zeros(len(model.is_held), np.int64)
        for number, mask, leader in columns:
            held[number, list(bits(mask))] = True
            leaders[number] = leader
        return cls(held, leaders)

    def sums(self, model: Model, lines: Ints | None = None) -> list[float]:
        """Return the value of each row of the model; ``lines``: only what these partitions add."""
        which = np.arange(len(self.held)) if lines is None else lines
        held, brokers = self.held[which], self.held.shape[1]
        # In whole bytes, which are exact; in units, the last digits of a sum would depend on the machine.
        counts = {
            Aim.REPLICAS: held.sum(axis=0),
            Aim.BYTES: np.where(held, model.bytes[which, None], 0).sum(axis=0),
            Aim.LEADERS: np.bincount(self.leaders[which], minlength=brokers),
        }
        units = {Aim.REPLICAS: 1.0, Aim.BYTES: model.size_unit, Aim.LEADERS: 1.0}
        return [float(sum(int(counts[row.kind][b]) for b in row.brokers)) / units[row.kind] for row in model.rows]

    def breach(self, model: Model) -> float:
        """Return how far the rows are outside their limits, all together; a mean size counts as a replica does."""
        rows = zip(model.rows, self.sums(model), strict=True)
        return sum(max(0.0, row.low - value, value - row.high) for row, value in rows)

    def first(self, model: Model) -> int:
        """Return the figure that is minimised first."""
        copies = (self.held & ~model.is_held).sum(axis=1)
        return int((copies * model.weight).sum())

    def leader_changes(self, model: Model) -> int:
        return int((self.leaders != model.first).sum())

    def solution(self, model: Model) -> Solution:
        """Return it as a solution. Unless leaders have rows, they stay where they can."""
        held = tuple(sum(1 << int(b) for b in np.flatnonzero(line)) for line in self.held)
        if not model.has_leader_rows:
            return Solution(held, tuple(choose_leaders(model.problem, held, None)))
        return Solution(held, tuple(self.leaders.tolist()))
