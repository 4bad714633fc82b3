"""The smallest plan, with proof: column generation and integer programs by HiGHS (the extra ``plan``).

A column is one placement of a partition. A linear program over the columns gives prices of the brokers' rows. At these
prices, each partition gets a better column if there is one, until there is none. The prices, rounded to whole numbers,
give a bound in exact arithmetic that does not depend on the solver. Columns that cost nothing beyond the bound make up
all best plans; among them an integer program looks for the fewest leader changes, with a bound found in the same way.

Deterministic: one thread, a fixed seed, and limits on work instead of time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from plans.columns import Column, Floats, Ints, Model, Row, price
from plans.construction import Solution
from plans.highs import new_solver, run_limited
from plans.nearby_program import Nearby
from plans.options import Aim, Minimise
from plans.problem import bits
from plans.work import Work

_ROUNDS_MAX = 200

_COLUMNS_MAX = 5_000
"""Columns of the integer program that proves nothing. With more, the first solution alone may take minutes."""

_SCALES, _SMALL_UNIT = (1, 2, 6, 60, 1 << 16), 4096
"""Prices are rounded to whole numbers and to these fractions; if numbers are large anyway, to the coarsest only."""

_LEADERS_VAIN = 2
"""If the integer program of leader changes finds nothing, it ends after one part in this many of the work."""

_NEARBY_PART, _NEARBY_PARTS = 2, 3
"""So much of the work is for the plans near the linear program's answer; the rest is left in case none is found."""

_NODES_MAX = 400

_LINEAR_STEPS = 3
"""This many steps of a linear program count as one: it continues from its last answer, so each is short."""

ENTRIES_MAX = 40_000
"""With more numbers in an integer program, HiGHS may take minutes between two checks of its limits."""

_PATIENCE, _PATIENCE_FOUND, _NEWS = 12, 40, 1e-6
"""In a larger program HiGHS ends after this many looks without news, which is a change by this fraction at least.

If it has no result yet, each look may take a second, and the start is usually the best there is. If it has one, looks
are short, and a better result may come twenty looks later.
"""

_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Outcome:
    """The best plan found; ``bound`` and ``leader_bound`` are None if they are not known.

    ``leader_bound`` holds among plans whose first figure is ``bound``. ``is_impossible``: no plan keeps all rows.
    """

    solution: Solution | None
    bound: int | None
    leader_bound: int | None
    is_impossible: bool = False


@dataclass(slots=True)
class Search:
    """One run: the first figure, then the leader changes."""

    model: Model
    start: Solution
    is_start_level: bool
    work: Work
    progress: Callable[[str], None]
    share: int = 1
    """The last program may take one part in this many of the remaining work."""
    unit: float = 1.0
    bound: int | None = None
    columns: list[Column] = field(default_factory=list)
    cheapest: list[Column] = field(default_factory=list)
    prices: Floats = field(default_factory=lambda: np.zeros(0))
    placed: list[Column] = field(default_factory=list)

    def run(self) -> Outcome:
        """Return the best solution found, and the bounds that hold for it."""
        weights = self.model.weight
        self.unit = max(1.0, float(weights.mean())) if len(weights) else 1.0
        achieved = sum(map(self.first_cost, self._start_columns()[: len(weights)])) if self.is_start_level else 1 << 62
        self.bound, scale, first_prices = max(
            (self._best_bound(prices) for prices in self._guesses()), key=lambda bounded: bounded[0]
        )
        if self.bound < achieved:
            self.bound, scale, first_prices = self._best_bound(self._first_prices(achieved))
        is_priced = any(first_prices[n] for n, row in enumerate(self.model.rows) if row.kind is Aim.BYTES)
        if not is_priced and self.bound * scale == self._scaled_bound(first_prices, scale)[0]:
            solution, leader_bound = self._leader_changes(first_prices, scale)
            if solution is not None:
                return Outcome(_solution(solution), self.bound, leader_bound)
        near = self._near_by() if self.placed else None
        return Outcome(near or self._any_integer(), self.bound, None)

    def _near_by(self) -> Solution | None:
        """Return a plan near the linear program's answer that keeps all rows."""
        work = self.work.part(self.work.left * _NEARBY_PART // _NEARBY_PARTS // self.share)
        start = self._start_columns()[: len(self.placed)] if self.is_start_level else None
        return Nearby(self.model, self.prices, self.placed, start, work, self.progress).run()

    def first_cost(self, column: Column) -> int:
        number, mask, _ = column
        held = self.model.problem.partitions[self.model.problem.movable[number]].current
        fresh = mask
        for broker in held:
            fresh &= ~(1 << broker)
        return int(self.model.weight[number]) * fresh.bit_count()

    def leader_cost(self, column: Column) -> int:
        return int(column[2] != self.model.first[column[0]])

    def _start_columns(self) -> list[Column]:
        columns = [
            (n, mask, leader) for n, (mask, leader) in enumerate(zip(self.start.held, self.start.leaders, strict=True))
        ]
        for number, index in enumerate(self.model.problem.movable):
            partition = self.model.problem.partitions[index]
            mask = sum(1 << b for b in partition.current)
            if (
                not mask & ~partition.may_hold
                and len(partition.current) == partition.factor
                and partition.may_lead >> partition.current[0] & 1
            ):
                racks = len({int(self.model.rack_of[b]) for b in partition.current})
                if partition.factor - racks <= partition.shared_racks_max:
                    columns.append((number, mask, partition.current[0]))
        return columns

    def _guesses(self) -> list[Floats]:
        """Return prices that often prove the start optimal: surplus over the shares must go, missing must come."""
        model = self.model
        held = model.is_held.sum(axis=0)
        rows = model.rows
        guesses = [np.zeros(len(rows))]
        for is_fuller in (True, False):
            guess = np.zeros(len(rows))
            for number, row in enumerate(rows):
                if row.kind is Aim.REPLICAS and len(row.brokers) == 1:
                    count = held[row.brokers[0]]
                    guess[number] = -1.0 * (count > row.high) if is_fuller else 1.0 * (count < row.low)
            guesses.append(guess)
        return guesses if self.model.problem.minimise is Minimise.MOVES else guesses[:1]

    def _first_prices(self, achieved: int) -> Floats:
        """Solve the linear program of the first figure by column generation; return the prices of the rows.

        It ends early if prices prove that the start, which achieves ``achieved``, is optimal.
        """
        master = Master(self.model, self.work)
        master.add(self._start_columns(), lambda column: self.first_cost(column) / self.unit)
        prices = np.zeros(len(self.model.rows))
        for round_number in range(_ROUNDS_MAX):
            prices = master.solve()
            scale = max(1, int(_SMALL_UNIT / self.unit))
            whole = self._whole(prices * self.unit * scale)
            bound, columns = self._scaled_bound(whole, scale)
            if -(-bound // scale) >= achieved:
                break
            added = master.add(columns, lambda column: self.first_cost(column) / self.unit)
            self.progress(f"round {round_number + 1}: {len(master.columns)} ways, {added} new")
            if not added or self.work.is_over:
                break
        self.columns, self.cheapest = master.columns, master.cheapest(_COLUMNS_MAX)
        self.prices, self.placed = prices, master.placed()
        return prices

    def _priced(self, prices: Floats, scale: int) -> tuple[Ints, list[Column]]:
        model = self.model
        replicas = np.where(model.is_held, 0, (scale * model.weight)[:, None])
        replicas = replicas - self._by_broker(prices, Aim.REPLICAS)
        sizes = self._by_broker(prices, Aim.BYTES)
        if sizes.any():
            replicas = replicas - _rounded(model.size[:, None] * sizes)
        leaders = np.broadcast_to(-self._by_broker(prices, Aim.LEADERS), replicas.shape)
        return price(model, replicas, leaders)

    def _whole(self, prices: Floats) -> Floats:
        """Round the prices of replicas and leaders; those of bytes are for parts of a byte."""
        return np.where(self._is_counted(), np.rint(prices), prices)

    def _is_counted(self) -> npt.NDArray[np.bool_]:
        return np.array([row.kind is not Aim.BYTES for row in self.model.rows], np.bool_)

    def _by_broker(self, prices: Floats, kind: Aim) -> Any:
        sums = np.zeros(len(self.model.problem.brokers), np.float64)
        for row, value in zip(self.model.rows, prices, strict=True):
            if row.kind is kind:
                sums[list(row.brokers)] += value
        return sums if kind is Aim.BYTES else _rounded(sums)

    def _scaled_bound(self, prices: Floats, scale: int) -> tuple[int, list[Column]]:
        """Return what the prices prove, times ``scale``, and the columns that are best at them."""
        best, columns = self._priced(prices, scale)
        whole = int(best.sum())
        parts = 0.0
        for row, value in zip(self.model.rows, prices.tolist(), strict=True):
            if row.kind is Aim.BYTES:
                parts += value * (row.low if value > 0 else row.high) if value else 0.0
            else:
                whole += _row_term(row, int(value))
        if parts:
            # The most that rounding may have added to every partition's price of bytes.
            parts -= 0.5 * float(self.model.factor.sum()) + abs(parts) * 1e-9
        return whole + math.floor(parts), columns

    def _best_bound(self, prices: Floats) -> tuple[int, int, Floats]:
        """Return the largest bound that rounded prices prove, with the scale and the prices that do."""
        best: tuple[int, int, Floats] | None = None
        for scale in _SCALES if self.unit < _SMALL_UNIT else _SCALES[:2]:
            whole = self._whole(prices * self.unit * scale)
            bound = -(-self._scaled_bound(whole, scale)[0] // scale)
            if best is None or bound > best[0]:
                best = (bound, scale, whole)
        assert best is not None
        return best

    def _leader_changes(self, first: Floats, scale: int) -> tuple[list[Column] | None, int | None]:
        """Return the fewest leader changes among all plans whose first figure is the bound, and their bound."""
        model = self.model
        largest = int(np.abs(first).max(initial=0)) + scale * int(model.weight.max(initial=0))
        step = 1 << max(0, min(40, 57 - (2 * largest).bit_length()))
        fine = 240 if step >= 1 << 20 else 12
        master = Master(model, self.work, is_integer=True, slack_cost=64.0)
        least, columns = self._priced(first, scale)
        for number, (row, value) in enumerate(zip(model.rows, first.tolist(), strict=True)):
            if value:
                master.fix(number, row.low if value > 0 else row.high)
        master.add(
            self._on_face([*self._start_columns(), *self.columns, *columns], first, scale, least), self.leader_cost
        )
        bound: int | None = None
        is_counted = self._is_counted()
        for round_number in range(_ROUNDS_MAX):
            prices = master.solve()
            second = np.where(is_counted, np.rint(prices * fine), 0.0)
            improving, whole = self._priced_second(first, scale, second, step, fine)
            if 8 * (int(np.abs(second).max(initial=0)) + fine) < step:
                bound = max(-(-whole // fine), -1 if bound is None else bound)
            added = master.add(improving, self.leader_cost)
            self.progress(f"leaders, round {round_number + 1}: {len(master.columns)} ways, {added} new")
            if not added or self.work.is_over:
                break
        return master.solve_integer(vain_share=_LEADERS_VAIN), bound

    def _on_face(self, columns: Sequence[Column], first: Floats, scale: int, least: Ints) -> list[Column]:
        """Return the columns that cost nothing beyond the bound."""
        replicas, leaders = self._by_broker(first, Aim.REPLICAS).tolist(), self._by_broker(first, Aim.LEADERS).tolist()
        limits = least.tolist()
        return [
            column
            for column in columns
            if scale * self.first_cost(column) - sum(replicas[b] for b in bits(column[1])) - leaders[column[2]]
            == limits[column[0]]
        ]

    def _priced_second(
        self, first: Floats, scale: int, second: Floats, step: int, fine: int
    ) -> tuple[list[Column], int]:
        """Price by the first figure, then by leader changes in units of 1 / ``fine``; return columns and the bound."""
        model = self.model
        replicas = np.where(model.is_held, 0, (scale * model.weight)[:, None]) - self._by_broker(first, Aim.REPLICAS)
        replicas = replicas * step - self._by_broker(second, Aim.REPLICAS)
        leaders = np.broadcast_to(-self._by_broker(first, Aim.LEADERS), replicas.shape) * step
        leaders = leaders - self._by_broker(second, Aim.LEADERS)
        leaders = leaders + fine * (np.arange(replicas.shape[1])[None, :] != model.first[:, None])
        best, columns = price(model, replicas, leaders)
        rest = best - step * ((best + step // 2) // step)
        whole = int(rest.sum())
        for row, major, minor in zip(model.rows, first.tolist(), second.tolist(), strict=True):
            whole += int(minor * (row.low if major > 0 else row.high)) if major else _row_term(row, int(minor))
        return columns, whole

    def _any_integer(self) -> Solution | None:
        """Return whole columns that keep all rows. A large program takes minutes and rarely ends below a good start."""
        master = Master(self.model, self.work, is_integer=True)
        heavy = len(self.model.factor) + 1 if self.unit < 2 else 1e6
        columns = [*self.cheapest, *self._start_columns()]
        master.add(columns, lambda column: self.first_cost(column) / self.unit * heavy + self.leader_cost(column))
        if self.is_start_level and master.solver.getNumNz() > ENTRIES_MAX:
            return None
        columns_chosen = master.solve_integer(self.share)
        return None if columns_chosen is None else _solution(columns_chosen)


def _row_term(row: Row, value: int) -> int:
    return int(value * (row.low if value > 0 else row.high)) if value else 0


def _rounded(values: Any) -> Ints:
    rounded: Ints = np.rint(values).astype(np.int64)
    return rounded


def _solution(columns: Sequence[Column]) -> Solution:
    ordered = sorted(columns)
    return Solution(tuple(column[1] for column in ordered), tuple(column[2] for column in ordered))


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

    def is_over(self, cost: float, bound: float) -> bool:
        """Take one check of the solver into account."""
        is_higher = math.isinf(self.bound) or bound > self.bound + abs(self.bound) * _NEWS
        if is_higher or cost < self.found * (1 - _NEWS):
            self.looks, self.found, self.bound = 0, cost, bound
        self.looks += 1
        return self.looks > (_PATIENCE if math.isinf(self.found) else _PATIENCE_FOUND)
