"""Plans near the solution of the linear program over columns, for problems whose columns prove too little.

The linear program splits only a few partitions. An integer program over pairs of partition and broker places these
again, and those that could be elsewhere at almost the same price; all others stay where they are. It begins with the
linear program's solution, which breaks rows, and continues from each better layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from plans.columns import Column, Floats, Ints, Model
from plans.construction import Solution, choose_leaders
from plans.highs import new_solver, run_limited
from plans.options import Aim
from plans.problem import bits
from plans.work import Work

_PUSH = 1.0
"""What it is worth, in mean copies of a partition, to bring a replica or a mean size back into a row."""

_TARGETS = 3
"""At most this many changes of a partition are free: otherwise a few partitions would have them all."""

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
to be exact as well: otherwise its tolerances would leave a few bytes outside."""

Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Pairs:
    """``prices`` are those of the model's rows; ``unit`` is the mean weight of a copy."""

    model: Model
    prices: Floats
    unit: float
    _prices: tuple[Floats, Floats] = field(init=False)
    """What a replica costs each partition on each broker, and what a leader costs on each broker."""

    def __post_init__(self) -> None:
        model, by_kind = self.model, self._by_broker(self.prices.tolist())
        copies = np.where(model.is_held, 0.0, (model.weight / self.unit)[:, None])
        replicas = copies - by_kind[Aim.REPLICAS] - model.size[:, None] * by_kind[Aim.BYTES]
        self._prices = replicas, -by_kind[Aim.LEADERS]

    def freed(self, now: Layout, most: int, noise: Floats) -> Bools:
        """Return the pairs to decide again: the ``most`` changes that cost the least, and what else such a partition
        holds or held. If rows are broken, there are half as many that help them, and those that go the other way, for
        an exchange. ``noise`` is added to the costs."""
        cells = _least(self._costs(now, *self._prices) + noise, most)
        for push in self._pushes(now):
            replicas, leaders = (price + extra for price, extra in zip(self._prices, push, strict=True))
            cells |= _least(self._costs(now, replicas, leaders) + noise, most // 2)
        lines = cells.any(axis=1)
        cells[lines] |= now.held[lines] | (self.model.is_held[lines] & self.model.allowed[lines])
        return cells

    def _costs(self, now: Layout, replicas: Floats, leaders: Floats) -> Floats:
        """Return what it costs that a replica comes, or that one that is there leads."""
        change = self._changes(now, replicas)
        return np.minimum(change, self._leader_changes(now, leaders)) if self.model.has_leader_rows else change

    def _pushes(self, now: Layout) -> list[tuple[Floats, Floats]]:
        """Return what a replica and a leader cost more where rows have too much, and less where they have too little.

        A size counts up to what the row is off: otherwise the largest partitions would always be the ones to move.
        """
        rows = zip(self.model.rows, now.sums(self.model), strict=True)
        off = [max(0.0, value - row.high) - max(0.0, row.low - value) for row, value in rows]
        if not any(off):
            return []
        by_kind = self._by_broker(off)
        sizes, counts, leads = (by_kind[kind] for kind in (Aim.BYTES, Aim.REPLICAS, Aim.LEADERS))
        replicas = np.sign(sizes) * np.minimum(np.abs(sizes), self.model.size[:, None]) + np.clip(counts, -1, 1)
        back = np.broadcast_to(-np.sign(sizes + counts), replicas.shape)
        return [(_PUSH * replicas, _PUSH * np.clip(leads, -1, 1)), (_PUSH * back, -_PUSH * np.clip(leads, -1, 1))]

    def _by_broker(self, values: list[float]) -> dict[Aim, Floats]:
        sums = {kind: np.zeros(self.model.is_held.shape[1]) for kind in Aim}
        for row, value in zip(self.model.rows, values, strict=True):
            sums[row.kind][list(row.brokers)] += value
        return sums

    def _changes(self, now: Layout, replicas: Floats) -> Floats:
        """Return what it costs that a replica comes. The one in its rack leaves, or else the one that costs most."""
        model = self.model
        kept = np.where(now.held & ~model.must, replicas, -np.inf)
        leaves = np.broadcast_to(kept.max(axis=1)[:, None], kept.shape).copy()
        for rack in model.racks:
            lines = now.held[:, rack].any(axis=1) & (model.shared == 0)
            leaves[np.ix_(lines, rack)] = kept[lines][:, rack].max(axis=1)[:, None]
        return np.where(model.allowed & ~now.held, replicas - leaves, np.inf)

    def _leader_changes(self, now: Layout, leaders: Floats) -> Floats:
        """Return what it costs that another replica leads."""
        costs = np.where(now.held & self.model.leads, leaders[None, :], np.inf) - leaders[now.leaders][:, None]
        costs[np.arange(len(costs)), now.leaders] = np.inf
        return costs


def _least(costs: Floats, most: int) -> Bools:
    """Mark the ``most`` smallest finite costs, but only a few of each partition."""
    if costs.shape[1] > _TARGETS:
        costs = np.where(costs <= np.partition(costs, _TARGETS - 1, axis=1)[:, _TARGETS - 1, None], costs, np.inf)
    flat = costs.ravel()
    count = min(most, int(np.isfinite(flat).sum()))
    mask = np.zeros(len(flat), np.bool_)
    if count:
        mask[flat <= np.partition(flat, count - 1)[count - 1]] = np.True_
    return mask.reshape(costs.shape)


_PAIRS = 150
"""This many changes are free in a round; with more, HiGHS finds less in the same time."""

_PAIRS_MIN, _GROWS, _SHRINKS = 100, 1.6, 1.25
"""After a fruitless round there are more if HiGHS could solve the program, and fewer if not."""

_PATIENCE = 6
"""The search ends after this many fruitless rounds."""

_TIES, _NOISE, _NOISE_GROWS = 1e-6, 0.04, 1.5
"""The costs of changes get noise, in mean copies: at first just so that equal ones are chosen evenly, and after each
fruitless round half as much again."""

_BREACH, _BREACH_GROWS, _BREACH_MAX = 20.0, 3.0, 540.0
"""What a replica, or a mean size, outside a row costs, in mean copies; after a fruitless round it costs more."""

_SMALL = 3.0
"""If no more than this is outside the rows, every second round has to keep them all."""

_SHARE = 12
"""A round may take one part in this many of the whole search's work."""

_CELLS_A_STEP = 10_000
"""To rank the changes of this many pairs takes as long as a step of work."""

_GAIN = 1e-6


@dataclass(slots=True)
class Nearby:
    """``prices`` are those of the model's rows; ``placed`` is where the linear program has most of each partition."""

    model: Model
    prices: Floats
    placed: Sequence[Column]
    start: Sequence[Column] | None
    work: Work
    progress: Callable[[str], None]
    _pairs: Pairs = field(init=False)
    _unit: float = field(init=False)

    def __post_init__(self) -> None:
        self._unit = max(1.0, float(self.model.weight.mean()))
        self._pairs = Pairs(self.model, self.prices, self._unit)

    def run(self) -> Solution | None:
        """Return a plan that keeps all rows; None if none is found."""
        for origin in (self.placed, self.start):
            layout = self._from(Layout.of(self.model, origin)) if origin is not None else None
            if layout is not None and not layout.breach(self.model):
                return layout.solution(self.model)
        return None

    def _from(self, now: Layout) -> Layout:
        """Return the best layout found from this one on."""
        # These numbers are the same in every version of NumPy.
        chance = np.random.RandomState(0)
        in_vain, pairs, breach_cost = 0, float(_PAIRS), _BREACH
        while in_vain < _PATIENCE and not self.work.is_over:
            noise = chance.random_sample(now.held.shape) * (_TIES + _NOISE * (_NOISE_GROWS**in_vain - 1))
            cells = self._pairs.freed(now, int(pairs), noise)
            self.work.spend(now.held.size // _CELLS_A_STEP)
            breach = now.breach(self.model)
            may_break = breach > _SMALL or (breach > 0 and in_vain % 2)
            part = self.work.part(self.work.whole // _SHARE)
            program = RoundProgram(self.model, now, cells, self._unit, breach_cost if may_break else None, part)
            candidate, is_solved = program.run()
            if candidate.breach(self.model) >= breach:
                breach_cost = min(_BREACH_MAX, breach_cost * _BREACH_GROWS)
            if self._is_better(candidate, now, breach_cost):
                now, in_vain = candidate, 0
            else:
                in_vain += 1
                pairs = pairs * _GROWS if is_solved else max(_PAIRS_MIN, pairs / _SHRINKS)
        return now

    def _is_better(self, candidate: Layout, now: Layout, breach_cost: float) -> bool:
        """Whether it is worth going on from there. A layout that keeps all rows is better than any that does not."""
        if bool(candidate.breach(self.model)) != bool(now.breach(self.model)):
            return not candidate.breach(self.model)
        return self._worth(candidate, breach_cost) < self._worth(now, breach_cost) - _GAIN

    def _worth(self, now: Layout, breach_cost: float) -> float:
        """Return what a layout costs, broken rows included."""
        first = now.first(self.model) / self._unit
        changes = now.leader_changes(self.model) if self.model.has_leader_rows else 0
        return first + LEADER * changes + breach_cost * now.breach(self.model)


@dataclass(slots=True)
class RoundProgram:
    """The integer program of one round. ``cells`` are the pairs to decide.

    Partitions that have none stay as they are in ``now``.
    """

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
        """Return the layout with the partitions placed again, or ``now``, and whether there is nothing better."""
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
                present = sum(value * self._start[cell] for cell, value in zip(indexes, values, strict=True))
                indexes += [self._add_var(self.breach_cost, highspy.kHighsInf, off) for off in _off(low, high, present)]
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
