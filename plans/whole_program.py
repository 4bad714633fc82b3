"""The smallest plan by one integer program over every choice, for clusters that are small enough.

The columns of ``column_program`` prove most plans with little work. If bytes are an aim, their bound is often too low,
because it allows parts of partitions to move. Here every partition has a variable for each broker, and HiGHS branches
until there is nothing better, or the work is used up. It minimises moves or bytes first, and then, without increasing
these, the leader changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, gcd, isfinite
from typing import Any

import highspy
import numpy as np

from plans.column_program import Outcome
from plans.columns import Model
from plans.construction import Solution, choose_leaders
from plans.highs import new_solver, run_limited
from plans.options import Aim
from plans.problem import Problem
from plans.work import Work

_VARIABLES_MAX = 12_000
"""With more variables it finds less than the program over columns does in the same time."""

_NOISE = 2e-6
"""By how much the solver's bound may be wrong, in units of the objective, which are near 1 for one partition."""

_NODES_MAX = 5_000

_SHARE = 2
"""If moves are counted, the first run gets one part in this many of the work; the rest is for one move less."""

_BYTES_LARGE, _BYTES_SHARE = 4_000, 3
"""With more variables, a run by bytes gets one part in this many of the work: it rarely ends with a proof."""

_PATIENCE = 20
"""After this many checks with the same bound, one below the result, it is time to ask for one move less."""

Entry = tuple[int, float]


def is_small(problem: Problem) -> bool:
    """Whether the program is small enough."""
    return variables_of(problem) <= _VARIABLES_MAX


def variables_of(problem: Problem) -> int:
    """Return how many variables it has: one for each movable partition and broker, two with leaders."""
    cells = len(problem.movable) * len(problem.brokers)
    return cells * (1 + (Aim.LEADERS in problem.aim))


@dataclass(slots=True)
class _Standstill:
    """Notices that the bound stays one below the result, so that a single question is left."""

    looks: int = 0
    bound: float = 0.0

    def is_over(self, cost: float, bound: float) -> bool:
        """Take one check of the solver into account; both figures are counts of moves."""
        least = ceil(bound - _NOISE) if isfinite(bound) else bound
        self.looks = self.looks + 1 if least == self.bound and cost - least == 1 else 0
        self.bound = least
        return self.looks >= _PATIENCE


@dataclass(slots=True)
class WholeProgram:
    """One program. ``start`` is the best plan so far; ``is_start_good``: it meets the aim."""

    model: Model
    start: Solution
    is_start_good: bool
    work: Work
    _solver: Any = field(default_factory=lambda: new_solver())
    _has_leaders: bool = False
    _size: int = 0

    def run(self) -> Outcome:
        """Return the best plan found, with the proven bounds; ``leader_bound`` holds at the bound."""
        self._build()
        weights = [int(weight) for weight in self.model.weight]
        unit = max(1.0, float(self.model.weight.mean())) if weights else 1.0
        costs = np.where(self.model.is_held, 0.0, self.model.weight[:, None] / unit).ravel()
        is_counted = len(set(weights)) == 1
        by_bytes = _BYTES_SHARE if self._size > _BYTES_LARGE else 1
        is_near = self._is_near if self.work.gap else None
        share, is_enough = (_SHARE, _Standstill().is_over) if is_counted else (by_bytes, is_near)
        solution, dual = self._minimise(costs, share, is_enough)
        if self._is_impossible():
            return Outcome(None, None, None, is_impossible=True)
        grain = gcd(*weights) or 1
        least = max(0, ceil((dual - _NOISE) * unit / grain)) * grain
        if is_counted and solution is not None:
            solution, least = self._one_less(costs, solution, least)
        if solution is None or self._first(solution) > least or self.work.is_over:
            return Outcome(solution, least, None)
        # Half a unit more, so that no rounding forbids the result.
        self._begin_again(costs, (least + grain / 2) / unit)
        self.start, self.is_start_good = solution, True
        fewer, dual = self._minimise(self._leader_costs())
        changes = len(weights) + dual
        return Outcome(fewer or solution, least, max(0, ceil(changes - _NOISE)))

    def _is_near(self, cost: float, bound: float) -> bool:
        """Whether the result is near enough to the bound."""
        return isfinite(cost) and cost - bound <= cost * self.work.gap

    def _one_less(self, costs: Any, best: Solution, least: int) -> tuple[Solution, int]:
        """Ask for one move less until there is no such plan. That answer often comes before a bound that implies it."""
        while self._first(best) > least and not self.work.is_over:
            self.is_start_good = False
            self._begin_again(costs, self._first(best) - 0.5)
            fewer, _ = self._minimise(costs)
            if fewer is None:
                return best, self._first(best) if self._is_impossible() else least
            best = fewer
        return best, least

    def _is_impossible(self) -> bool:
        return bool(self._solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible)

    def _begin_again(self, costs: Any, most: float) -> None:
        """Limit the figure to this. It uses a new solver, because an interrupted one stays interrupted."""
        self._solver = new_solver()
        self._build()
        self._add_row(-highspy.kHighsInf, most, ((int(cell), float(costs[cell])) for cell in np.flatnonzero(costs)))

    def _first(self, solution: Solution) -> int:
        held = self.model.is_held
        return sum(
            int(self.model.weight[number]) * sum(not held[number, b] for b in range(held.shape[1]) if mask >> b & 1)
            for number, mask in enumerate(solution.held)
        )

    def _leader_costs(self) -> Any:
        """A leader that stays takes one off the count of partitions. Without levels it stays if its replica stays."""
        count, brokers = self.model.is_held.shape
        costs = np.zeros(self._size)
        offset = count * brokers if self._has_leaders else 0
        costs[offset + np.arange(count) * brokers + self.model.first] = -1.0
        return costs

    def _build(self) -> None:
        model = self.model
        count, brokers = model.is_held.shape
        cells = count * brokers
        self._has_leaders = model.has_leader_rows
        low, high = model.must.astype(float).ravel(), model.allowed.astype(float).ravel()
        if self._has_leaders:
            low = np.concatenate([low, np.zeros(cells)])
            high = np.concatenate([high, (model.allowed & model.leads).astype(float).ravel()])
        self._size = len(low)
        self._solver.addVars(self._size, low, high)
        every = np.arange(self._size, dtype=np.int32)
        self._solver.changeColsIntegrality(self._size, every, np.ones(self._size, np.uint8))
        for number in range(count):
            self._add_partition(number, brokers, cells)
        for row in model.rows:
            offset = cells if row.kind is Aim.LEADERS else 0
            sizes = model.size.tolist() if row.kind is Aim.BYTES else [1.0] * count
            self._add_row(
                row.low, row.high, ((offset + n * brokers + b, sizes[n]) for n in range(count) for b in row.brokers)
            )

    def _add_partition(self, number: int, brokers: int, cells: int) -> None:
        model, base = self.model, number * brokers
        factor, shared = int(model.factor[number]), int(model.shared[number])
        self._add_row(factor, factor, ((base + b, 1.0) for b in range(brokers)))
        racks = [[base + int(b) for b in rack] for rack in model.racks]
        if shared == 0:
            for rack in racks:
                if len(rack) > 1:
                    self._add_row(0, 1, ((cell, 1.0) for cell in rack))
        elif factor - shared > 1:
            # One more variable for each rack, which is at most 1 and at most the rack's replicas.
            first = self._solver.getNumCol()
            self._solver.addVars(len(racks), np.zeros(len(racks)), np.ones(len(racks)))
            for offset, rack in enumerate(racks):
                self._add_row(0, highspy.kHighsInf, [(first + offset, -1.0), *((cell, 1.0) for cell in rack)])
            self._add_row(factor - shared, highspy.kHighsInf, ((first + n, 1.0) for n in range(len(racks))))
        if self._has_leaders:
            self._add_row(1, 1, ((cells + base + b, 1.0) for b in range(brokers)))
            for broker in np.flatnonzero(model.allowed[number] & model.leads[number]).tolist():
                self._add_row(0, highspy.kHighsInf, [(base + broker, 1.0), (cells + base + broker, -1.0)])

    def _add_row(self, low: float, high: float, entries: Iterable[Entry]) -> None:
        terms = [(index, value) for index, value in entries if value]
        indexes = np.array([index for index, _ in terms], np.int32)
        self._solver.addRow(low, high, len(terms), indexes, np.array([value for _, value in terms]))

    def _minimise(
        self, costs: Any, share: int = 1, is_enough: Callable[[float, float], bool] | None = None
    ) -> tuple[Solution | None, float]:
        """Return the best plan and the solver's bound. It takes one part in ``share`` of the work that is left."""
        solver = self._solver
        solver.changeColsCost(len(costs), np.arange(len(costs), dtype=np.int32), np.asarray(costs, float))
        for name, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0), ("mip_max_nodes", _NODES_MAX)):
            solver.setOptionValue(name, value)
        if self.is_start_good:
            given = highspy.HighsSolution()
            given.col_value = self._values(self.start)
            solver.setSolution(given)
        run_limited(solver, self.work, share, is_enough)
        info = solver.getInfo()
        bound = float(info.mip_dual_bound)
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None, max(bound, -float(self._size))
        return self._solution(solver.getSolution().col_value), max(bound, -float(self._size))

    def _values(self, solution: Solution) -> list[float]:
        count, brokers = self.model.is_held.shape
        values = [0.0] * self._solver.getNumCol()
        for number, (mask, leader) in enumerate(zip(solution.held, solution.leaders, strict=True)):
            for broker in range(brokers):
                values[number * brokers + broker] = float(mask >> broker & 1)
            if self._has_leaders:
                values[count * brokers + number * brokers + leader] = 1.0
        return self._with_racks(values)

    def _with_racks(self, values: list[float]) -> list[float]:
        """Fill in the variables of racks, in the order in which they were added."""
        at, brokers = self._size, self.model.is_held.shape[1]
        for number in range(len(self.model.factor)):
            shared = int(self.model.shared[number])
            if shared and int(self.model.factor[number]) - shared > 1:
                for rack in self.model.racks:
                    values[at] = min(1.0, sum(values[number * brokers + int(b)] for b in rack))
                    at += 1
        return values

    def _solution(self, values: Sequence[float]) -> Solution:
        count, brokers = self.model.is_held.shape
        cells = np.array(values[: self._size]) > 0.5
        held = [
            sum(1 << int(b) for b in np.flatnonzero(row)) for row in cells[: count * brokers].reshape(count, brokers)
        ]
        if not self._has_leaders:
            return Solution(tuple(held), tuple(choose_leaders(self.model.problem, held, None)))
        leads = cells[count * brokers :].reshape(count, brokers)
        return Solution(tuple(held), tuple(int(row.argmax()) for row in leads))
