"""The smallest plan, with proof: column generation and integer programs by HiGHS (the extra ``plan``).

A column is a way to place one partition. A linear program over the columns gives prices of the brokers' rows. At these
prices each partition looks for a better column, until there is none. The prices, rounded to whole numbers, give a bound
in exact arithmetic that does not depend on the solver. Columns that cost nothing beyond the bound make up all best
plans; among them an integer program looks for the fewest leader changes, with a bound found in the same way.

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
from plans.options import Aim, Minimise
from plans.problem import bits
from plans.work import Work

_ROUNDS_MAX = 200
_NODES_MAX = 400
_LOOK_ENTRIES, _LOOK_STEPS_MIN = 400, 4
"""Between two checks of its limits, HiGHS does about one step of work for this many entries of the program."""

_LOOK_GROWS = 64
"""From so many steps on, a look's work grows with the square of the entries: each step of the simplex takes longer."""

_LINEAR_STEPS = 3
"""So many steps of a linear program alone count as one: it continues from its last answer, so each of them is short."""

_COLUMNS_MAX = 5_000
"""Columns of the integer program that proves nothing. With more, the first solution alone may take minutes."""

_ENTRIES_MAX = 40_000
"""Up to this many numbers in such a program, every partition may have any of its columns within a cap."""

_PATIENCE, _PATIENCE_FOUND, _NEWS = 12, 40, 1e-6
"""In a larger program HiGHS ends after this many looks without news, which is a change by this fraction at least.

If it has no result yet, each look may take a second, and the start is usually the best there is. If it has one, looks
are short, and a better result may come twenty looks later.
"""

_TOLERANCE = 1e-6
_SCALES = (1, 2, 6, 60)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The best plan found; ``bound`` and ``leader_bound`` are None if they are not known.

    ``leader_bound`` holds among plans whose first figure is ``bound``. ``is_impossible``: no plan keeps all rows.
    """

    solution: Solution | None
    bound: int | None
    leader_bound: int | None
    is_impossible: bool = False


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
        self._scale = [1.0] * len(model.rows)
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

    def whole(self) -> set[Column]:
        """Return the columns that the linear program takes whole."""
        values = self.solver.getSolution().col_value[self._slacks :]
        return {column for column, value in zip(self.columns, values, strict=True) if value > 1 - _TOLERANCE}

    def _run(self) -> None:
        self.solver.setOptionValue("simplex_iteration_limit", max(0, self._work.left) * _LINEAR_STEPS)
        self.solver.run()
        self._work.spend(-(-max(0, self.solver.getInfo().simplex_iteration_count) // _LINEAR_STEPS))

    def _forbid_slacks(self) -> None:
        self._is_whole = True
        for column in range(self._slacks):
            self.solver.changeColBounds(column, 0.0, 0.0)
            self.solver.changeColCost(column, 0.0)

    def solve_integer(self, share: int = 1) -> list[Column] | None:
        """Return one column per partition that together keep all rows, or None.

        It takes one part in ``share`` of the work left.
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
        is_over = _Standstill().is_over if self.solver.getNumNz() > _ENTRIES_MAX else None
        run_limited(self.solver, self._work, share, is_over)
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


def run_limited(
    solver: Any, work: Work, share: int = 1, is_enough: Callable[[float, float], bool] | None = None
) -> None:
    """Run an integer program until it is solved, or has used one part in ``share`` of the work that is left.

    HiGHS checks whether to go on at fixed points of its work: after a pass of cuts, a heuristic, a dive, a node.
    At each of them ``is_enough`` receives the best result and the bound, and may end the run.
    """
    size = int(solver.getNumNz()) // _LOOK_ENTRIES
    steps = max(_LOOK_STEPS_MIN, size, size * size // _LOOK_GROWS)
    checks, checks_max = 0, max(0, work.left) // steps // share

    def look(event: Any) -> None:
        nonlocal checks
        checks += 1
        found, bound = event.data_out.mip_primal_bound, event.data_out.mip_dual_bound
        if checks > checks_max or (is_enough is not None and is_enough(found, bound)):
            event.interrupt()

    solver.cbMipInterrupt += look
    try:
        solver.run()
    finally:
        solver.cbMipInterrupt -= look
    work.spend(steps * checks)


def new_solver() -> Any:
    """Return HiGHS with the settings used everywhere here: silent, and the same on every machine."""
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    return solver


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
    whole: set[Column] = field(default_factory=set)

    def run(self) -> Outcome:
        """Return the best solution found, and the bounds that hold for it."""
        weights = self.model.weight
        self.unit = max(1.0, float(weights.mean())) if len(weights) else 1.0
        achieved = sum(map(self.first_cost, self._start_columns()[: len(weights)])) if self.is_start_level else 1 << 62
        self.bound, scale, first_prices = max(
            (self._best_bound(prices) for prices in self._guesses()), key=lambda found: found[0]
        )
        if self.bound < achieved:
            self.bound, scale, first_prices = self._best_bound(self._first_prices(achieved))
        is_priced = any(first_prices[n] for n, row in enumerate(self.model.rows) if row.kind is Aim.BYTES)
        if not is_priced and self.bound * scale == self._scaled_bound(first_prices, scale)[0]:
            found, leader_bound = self._leader_changes(first_prices, scale)
            if found is not None:
                return Outcome(_solution(found), self.bound, leader_bound)
        return Outcome(self._any_integer(), self.bound, None)

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
        found = [
            (n, mask, leader) for n, (mask, leader) in enumerate(zip(self.start.held, self.start.leaders, strict=True))
        ]
        for number, index in enumerate(self.model.problem.movable):
            one = self.model.problem.partitions[index]
            mask = sum(1 << b for b in one.current)
            if not mask & ~one.may_hold and len(one.current) == one.factor and one.may_lead >> one.current[0] & 1:
                racks = len({int(self.model.rack_of[b]) for b in one.current})
                if one.factor - racks <= one.shared_racks_max:
                    found.append((number, mask, one.current[0]))
        return found

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
            scale = max(1, int(4096 / self.unit)) if self.unit < 4096 else 1
            whole = self._whole(prices * self.unit * scale)
            bound, columns = self._scaled_bound(whole, scale)
            if -(-bound // scale) >= achieved:
                break
            added = master.add(columns, lambda column: self.first_cost(column) / self.unit)
            self.progress(f"round {round_number + 1}: {len(master.columns)} ways, {added} new")
            if not added or self.work.is_over:
                break
        self.columns, self.cheapest, self.whole = master.columns, master.cheapest(_COLUMNS_MAX), master.whole()
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
        found = np.zeros(len(self.model.problem.brokers), np.float64)
        for row, value in zip(self.model.rows, prices, strict=True):
            if row.kind is kind:
                found[list(row.brokers)] += value
        return found if kind is Aim.BYTES else _rounded(found)

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
        for scale in _SCALES if self.unit < 2 else _SCALES[:2]:
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
            found, whole = self._priced_second(first, scale, second, step, fine)
            if 8 * (int(np.abs(second).max(initial=0)) + fine) < step:
                bound = max(-(-whole // fine), -1 if bound is None else bound)
            added = master.add(found, self.leader_cost)
            self.progress(f"leaders, round {round_number + 1}: {len(master.columns)} ways, {added} new")
            if not added or self.work.is_over:
                break
        return master.solve_integer(), bound

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
        for row, one, two in zip(model.rows, first.tolist(), second.tolist(), strict=True):
            whole += int(two * (row.low if one > 0 else row.high)) if one else _row_term(row, int(two))
        return columns, whole

    def _any_integer(self) -> Solution | None:
        """Return whole columns that keep all rows.

        In a large program HiGHS takes minutes between two checks of its limits. A cap takes a small part of the plan
        anyway, so there the partitions that the linear program places whole stay there, or as they were at the start.
        """
        start = self._start_columns()
        master = self._of_any([*self.cheapest, *start])
        if self.model.problem.is_capped and master.solver.getNumNz() > _ENTRIES_MAX:
            placed = {column[0] for column in self.whole}
            others = [column for column in self.cheapest if column[0] not in placed]
            master = self._of_any([*sorted(self.whole), *start, *others])
        found = master.solve_integer(self.share)
        return None if found is None else _solution(found)

    def _of_any(self, columns: Iterable[Column]) -> Master:
        """Return the program that picks from these columns."""
        master = Master(self.model, self.work, is_integer=True)
        heavy = len(self.model.factor) + 1 if self.unit < 2 else 1e6
        master.add(columns, lambda column: self.first_cost(column) / self.unit * heavy + self.leader_cost(column))
        return master


def _row_term(row: Row, value: int) -> int:
    return int(value * (row.low if value > 0 else row.high)) if value else 0


def _rounded(values: Any) -> Ints:
    found: Ints = np.rint(values).astype(np.int64)
    return found


def _solution(columns: Sequence[Column]) -> Solution:
    ordered = sorted(columns)
    return Solution(tuple(column[1] for column in ordered), tuple(column[2] for column in ordered))
