"""The program over the columns found so far, linear or integer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import highspy
import numpy as np

from plans.columns import Column, Floats, Model
from plans.highs import new_solver, run_limited
from plans.options import Aim
from plans.problem import bits
from plans.work import Work

_NODES_MAX = 400

_LINEAR_STEPS = 3
"""So many steps of a linear program alone count as one: it continues from its last answer, so each of them is short."""

ENTRIES_MAX = 40_000
"""With more numbers in an integer program, HiGHS may take minutes between two checks of its limits."""

_PATIENCE, _PATIENCE_FOUND, _NEWS = 12, 40, 1e-6
"""In a larger program HiGHS ends after this many looks without news, which is a change by this fraction at least.

If it has no result yet, each look may take a second, and the start is usually the best there is. If it has one, looks
are short, and a better result may come twenty looks later.
"""

_TOLERANCE = 1e-6


class Master:
    """The program over the columns found so far: a row per partition, then the rows of the model."""

    def __init__(self, model: Model, work: Work, *, is_integer: bool = False, slack_cost: float = 1e4) -> None:
        self.model = model
        self._work = work
        self.columns: list[Column] = []
        self.known: set[Column] = set()
        self.solver = new_solver()
        count = len(model.factor)
        lows = [1.0] * count + [row.low for row in model.rows]
        highs = [1.0] * count + [row.high for row in model.rows]
        self._rows_of: dict[Aim, list[list[int]]] = {}
        for kind in Aim:
            by_broker: list[list[int]] = [[] for _ in model.problem.brokers]
            for number, row in enumerate(model.rows):
                if row.kind is kind:
                    for broker in row.brokers:
                        by_broker[broker].append(number)
            self._rows_of[kind] = by_broker
        empty = np.zeros(0)
        self.solver.addRows(
            len(lows), np.array(lows), np.array(highs), 0, np.zeros(len(lows), np.int32), empty.astype(np.int32), empty
        )
        self._slacks = 2 * len(model.rows)
        first = count
        for number in range(len(model.rows)):
            for sign in (1.0, -1.0):
                self.solver.addCol(
                    slack_cost, 0.0, highspy.kHighsInf, 1, np.array([first + number], np.int32), np.array([sign])
                )
        self._is_integer = is_integer
        self._is_whole = False

    def add(self, columns: Iterable[Column], cost: Callable[[Column], float]) -> int:
        """Add the columns that are missing; return how many."""
        costs: list[float] = []
        starts: list[int] = []
        indexes: list[int] = []
        values: list[float] = []
        count = len(self.model.factor)
        for column in columns:
            if column in self.known:
                continue
            self.known.add(column)
            self.columns.append(column)
            number, mask, leader = column
            starts.append(len(indexes))
            costs.append(cost(column))
            entries: dict[int, float] = {number: 1.0}
            for broker in bits(mask):
                for row in self._rows_of[Aim.REPLICAS][broker]:
                    entries[count + row] = entries.get(count + row, 0.0) + 1.0
                for row in self._rows_of[Aim.BYTES][broker]:
                    entries[count + row] = entries.get(count + row, 0.0) + self.model.size[number]
            for row in self._rows_of[Aim.LEADERS][leader]:
                entries[count + row] = entries.get(count + row, 0.0) + 1.0
            indexes += entries.keys()
            values += entries.values()
        size = len(costs)
        if size:
            self.solver.addCols(
                size,
                np.array(costs),
                np.zeros(size),
                np.full(size, 1.0 if self._is_integer else highspy.kHighsInf),
                len(indexes),
                np.array(starts, np.int32),
                np.array(indexes, np.int32),
                np.array(values, np.float64),
            )
        return size

    def fix(self, row: int, value: float) -> None:
        """Let one row of the model have exactly this value."""
        self.solver.changeRowBounds(len(self.model.factor) + row, value, value)

    def solve(self) -> Floats:
        """Solve the linear program, as far as the work allows; return the prices of the model's rows."""
        self._run()
        if not self._is_whole and sum(self.solver.getSolution().col_value[: self._slacks]) < _TOLERANCE:
            # All rows can be kept, so from now on they must be: prices of slacks would only blur those of columns.
            self._forbid_slacks()
            self._run()
        # New columns leave the last basis feasible, so from now on the primal simplex continues from there.
        self.solver.setOptionValue("simplex_strategy", 4)
        return np.array(self.solver.getSolution().row_dual[len(self.model.factor) :])

    def cheapest(self, most: int) -> list[Column]:
        """Return the columns that are best at the last prices; those that the linear program uses are among them."""
        duals = self.solver.getSolution().col_dual[self._slacks :]
        ranked = sorted(zip(duals, range(len(duals)), strict=True))[:most]
        return [self.columns[number] for _, number in ranked]

    def placed(self) -> list[Column]:
        """Return the column of each partition that the linear program takes most of, in the order of partitions."""
        values = self.solver.getSolution().col_value[self._slacks :]
        most: dict[int, tuple[float, Column]] = {}
        for column, value in zip(self.columns, values, strict=True):
            if column[0] not in most or value > most[column[0]][0] + _TOLERANCE:
                most[column[0]] = value, column
        return [most[number][1] for number in sorted(most)]

    def _run(self) -> None:
        self.solver.setOptionValue("simplex_iteration_limit", max(0, self._work.left) * _LINEAR_STEPS)
        self.solver.run()
        self._work.spend(-(-max(0, self.solver.getInfo().simplex_iteration_count) // _LINEAR_STEPS))

    def _forbid_slacks(self) -> None:
        self._is_whole = True
        for column in range(self._slacks):
            self.solver.changeColBounds(column, 0.0, 0.0)
            self.solver.changeColCost(column, 0.0)

    def solve_integer(self, share: int = 1, *, vain_share: int = 1) -> list[Column] | None:
        """Return one column per partition that together keep all rows, or None.

        It takes one part in ``share`` of the work left, and one in ``vain_share`` of that if it finds nothing.
        """
        size = len(self.columns)
        if not size or self._work.is_over:
            return None if len(self.model.factor) else []
        which = np.arange(self._slacks, self._slacks + size, dtype=np.int32)
        self.solver.changeColsIntegrality(size, which, np.full(size, 1, np.uint8))
        self._forbid_slacks()
        self.solver.setOptionValue("mip_max_nodes", _NODES_MAX)
        self.solver.setOptionValue("mip_rel_gap", 0.0)
        self.solver.setOptionValue("mip_abs_gap", 0.0)
        self.solver.setOptionValue("simplex_iteration_limit", highspy.kHighsIInf)
        is_over = _Standstill().is_over if self.solver.getNumNz() > ENTRIES_MAX else None
        run_limited(self.solver, self._work, share, is_over, vain_share=vain_share)
        if self.solver.getInfo().primal_solution_status != 2:
            return None
        values = self.solver.getSolution().col_value[self._slacks :]
        chosen = [column for column, value in zip(self.columns, values, strict=True) if value > 0.5]
        return chosen if len(chosen) == len(self.model.factor) else None


@dataclass(slots=True)
class _Standstill:
    """Notices that neither the result nor the bound gets better. In a large program each look may take a second."""

    looks: int = 0
    found: float = math.inf
    bound: float = -math.inf

    def is_over(self, found: float, bound: float) -> bool:
        """Take one check of the solver into account."""
        is_higher = math.isinf(self.bound) or bound > self.bound + abs(self.bound) * _NEWS
        if is_higher or found < self.found * (1 - _NEWS):
            self.looks, self.found, self.bound = 0, found, bound
        self.looks += 1
        return self.looks > (_PATIENCE if math.isinf(self.found) else _PATIENCE_FOUND)
