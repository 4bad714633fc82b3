"""The integer program of one round of ``nearby``: some partitions are placed anew, all others stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np

from plans.columns import Ints, Model
from plans.highs import new_solver, run_limited
from plans.layout import Bools, Layout
from plans.options import Aim
from plans.work import Work

LEADER = 1e-3
"""What a leader change costs, in mean copies of a partition: the first figure comes first."""

_GAP = 0.005
"""An improvement by less than this, in mean copies of a partition, is not worth a longer search."""

_NODES_MAX = 100

_LOOK_COST, _FEW = 5_000, 1_000
"""With few partitions, a look takes five times the work that its numbers say: most of it goes to heuristics. With more,
it takes as long, but a step of work is longer."""

_FINE_GAP, _MARGIN = 1e-3, 2e-6
"""Where rows are broken, those of bytes are narrower by this margin, in units. If rows may stay broken, the solver has
to be exact as well: else its tolerances would leave a few bytes outside."""


@dataclass(slots=True)
class RoundProgram:
    """One program. ``cells`` are the pairs to decide: partitions that have none stay as they are in ``now``."""

    model: Model
    now: Layout
    cells: Bools
    unit: float
    breach_cost: float | None
    """What a replica, or a mean size, outside a row costs, in mean copies of a partition; None: all rows are kept."""
    work: Work
    _solver: Any = field(default_factory=lambda: new_solver())
    _lines: Ints = field(init=False)
    _brokers: Ints = field(init=False)
    _free: Ints = field(init=False)
    _led: Ints = field(init=False)
    """Those of the pairs that may lead; each has one more variable, after those of all pairs."""
    _start: list[float] = field(default_factory=list)
    _rows: list[tuple[float, float, Any, Any]] = field(default_factory=list)

    def run(self) -> tuple[Layout, bool]:
        """Return the layout with the partitions placed anew, or ``now``, and whether there is nothing better."""
        self._add_variables()
        for number in self._free.tolist():
            self._add_partition(number)
        self._add_leaders()
        self._add_model_rows()
        self._pass_rows()
        gap = _GAP if self.breach_cost is None else _FINE_GAP
        for name, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", gap), ("mip_max_nodes", _NODES_MAX)):
            self._solver.setOptionValue(name, value)
        given = highspy.HighsSolution()
        given.col_value = self._start
        self._solver.setSolution(given)
        run_limited(self._solver, self.work, look_cost=_LOOK_COST / (len(self.model.factor) + _FEW))
        ends = highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible
        is_solved = self._solver.getModelStatus() in ends
        if self._solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return self.now, is_solved
        return self._layout(np.array(self._solver.getSolution().col_value) > 0.5), is_solved

    def _add_variables(self) -> None:
        model, now = self.model, self.now
        self._free = np.flatnonzero(self.cells.any(axis=1))
        self._lines, self._brokers = lines, brokers = np.nonzero(self.cells)
        leads = model.leads[lines, brokers] & model.has_leader_rows
        self._led = led = np.flatnonzero(leads)
        costs = np.concatenate(
            [
                np.where(model.is_held[lines, brokers], 0.0, model.weight[lines] / self.unit),
                np.where(model.first[lines[led]] == brokers[led], 0.0, LEADER),
            ]
        )
        size = len(costs)
        every = np.arange(size, dtype=np.int32)
        low = np.concatenate([model.must[lines, brokers], np.zeros(len(led), np.bool_)])
        self._solver.addVars(size, low.astype(np.float64), np.ones(size))
        self._solver.changeColsCost(size, every, costs)
        self._solver.changeColsIntegrality(size, every, np.ones(size, np.uint8))
        self._start = [
            *now.held[lines, brokers].astype(np.float64).tolist(),
            *(now.leaders[lines[led]] == brokers[led]).astype(np.float64).tolist(),
        ]

    def _add_partition(self, number: int) -> None:
        """Give the partition its replicas, in as many racks as it has to be in."""
        mine = np.arange(*np.searchsorted(self._lines, [number, number + 1]))
        factor, shared = int(self.model.factor[number]), int(self.model.shared[number])
        self._add_row(factor, factor, mine)
        rack_of = self.model.rack_of[self._brokers[mine]]
        racks = [mine[rack_of == rack] for rack in np.unique(rack_of)]
        if shared == 0:
            for rack in racks:
                self._add_row(0, 1, rack)
        elif factor - shared > 1:
            used = [self._add_var(0.0, 1.0, max(self._start[cell] for cell in rack.tolist())) for rack in racks]
            for var, rack in zip(used, racks, strict=True):
                self._add_row(0, highspy.kHighsInf, [var, *rack], [-1.0] + [1.0] * len(rack))
            self._add_row(factor - shared, highspy.kHighsInf, used)

    def _add_leaders(self) -> None:
        """Let one of the replicas lead."""
        if not self.model.has_leader_rows:
            return
        size, lines = len(self._lines), self._lines[self._led]
        for number in self._free.tolist():
            self._add_row(1, 1, size + np.arange(*np.searchsorted(lines, [number, number + 1])))
        for offset, cell in enumerate(self._led.tolist()):
            self._add_row(0, highspy.kHighsInf, [cell, size + offset], [1.0, -1.0])

    def _add_model_rows(self) -> None:
        is_broken = self.now.breach(self.model) > 0
        fixed = np.flatnonzero(~self.cells.any(axis=1))
        for row, rest in zip(self.model.rows, self.now.sums(self.model, fixed), strict=True):
            is_sized = row.kind is Aim.BYTES
            if row.kind is Aim.LEADERS:
                mine = len(self._lines) + np.flatnonzero(np.isin(self._brokers[self._led], row.brokers))
            else:
                mine = np.flatnonzero(np.isin(self._brokers, row.brokers))
            values = self.model.size[self._lines[mine]].tolist() if is_sized else [1.0] * len(mine)
            margin = _MARGIN if is_broken and is_sized and row.high - row.low > 2 * _MARGIN else 0.0
            low, high, indexes = row.low - rest + margin, row.high - rest - margin, mine.tolist()
            if self.breach_cost is not None:
                found = sum(value * self._start[cell] for cell, value in zip(indexes, values, strict=True))
                indexes += [self._add_var(self.breach_cost, highspy.kHighsInf, off) for off in _off(low, high, found)]
                values += [1.0, -1.0]
            self._add_row(low, high, indexes, values)

    def _add_var(self, cost: float, high: float, start: float) -> int:
        """Add a variable that need not be whole."""
        self._solver.addVar(0.0, high)
        index = int(self._solver.getNumCol()) - 1
        self._solver.changeColCost(index, cost)
        self._start.append(start)
        return index

    def _add_row(self, low: float, high: float, indexes: Any, values: Any = None) -> None:
        self._rows.append((low, high, indexes, np.ones(len(indexes)) if values is None else values))

    def _pass_rows(self) -> None:
        lows, highs, indexes, values = zip(*self._rows, strict=True)
        starts = np.cumsum([0, *map(len, indexes)])
        self._solver.addRows(
            len(lows),
            np.array(lows, np.float64),
            np.array(highs, np.float64),
            int(starts[-1]),
            starts[:-1].astype(np.int32),
            np.concatenate(indexes).astype(np.int32),
            np.concatenate(values).astype(np.float64),
        )

    def _layout(self, is_one: Bools) -> Layout:
        size = len(self._lines)
        held, leaders = self.now.held.copy(), self.now.leaders.copy()
        held[self._free] = False
        cells = is_one[:size]
        held[self._lines[cells], self._brokers[cells]] = True
        led = self._led[is_one[size : size + len(self._led)]]
        leaders[self._lines[led]] = self._brokers[led]
        return Layout(held, leaders)


def _off(low: float, high: float, value: float) -> tuple[float, float]:
    """Return how far a value is below and above its limits."""
    return max(0.0, low - value), max(0.0, value - high)
