"""The smallest plan, with proof: column generation and integer programs by HiGHS (the extra ``plan``).

A column is a way to place one partition. A linear program over the columns gives prices of the brokers' rows. At these
prices each partition looks for a better column, until there is none. The prices, rounded to whole numbers, give a bound
in exact arithmetic that does not depend on the solver. Columns that cost nothing beyond the bound make up all best
plans; among them an integer program looks for the fewest leader changes, with a bound found in the same way.

Deterministic: one thread, a fixed seed, and limits on work instead of time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from plans.columns import Column, Floats, Ints, Model, Row, price
from plans.construction import Solution
from plans.master import ENTRIES_MAX, Master
from plans.nearby import Nearby
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
            (self._best_bound(prices) for prices in self._guesses()), key=lambda found: found[0]
        )
        if self.bound < achieved:
            self.bound, scale, first_prices = self._best_bound(self._first_prices(achieved))
        is_priced = any(first_prices[n] for n, row in enumerate(self.model.rows) if row.kind is Aim.BYTES)
        if not is_priced and self.bound * scale == self._scaled_bound(first_prices, scale)[0]:
            found, leader_bound = self._leader_changes(first_prices, scale)
            if found is not None:
                return Outcome(_solution(found), self.bound, leader_bound)
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
        found = [
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
                    found.append((number, mask, partition.current[0]))
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
            found, whole = self._priced_second(first, scale, second, step, fine)
            if 8 * (int(np.abs(second).max(initial=0)) + fine) < step:
                bound = max(-(-whole // fine), -1 if bound is None else bound)
            added = master.add(found, self.leader_cost)
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
        for row, one, two in zip(model.rows, first.tolist(), second.tolist(), strict=True):
            whole += int(two * (row.low if one > 0 else row.high)) if one else _row_term(row, int(two))
        return columns, whole

    def _any_integer(self) -> Solution | None:
        """Return whole columns that keep all rows. A large program takes minutes and rarely ends below a good start."""
        master = Master(self.model, self.work, is_integer=True)
        heavy = len(self.model.factor) + 1 if self.unit < 2 else 1e6
        columns = [*self.cheapest, *self._start_columns()]
        master.add(columns, lambda column: self.first_cost(column) / self.unit * heavy + self.leader_cost(column))
        if self.is_start_level and master.solver.getNumNz() > ENTRIES_MAX:
            return None
        found = master.solve_integer(self.share)
        return None if found is None else _solution(found)


def _row_term(row: Row, value: int) -> int:
    return int(value * (row.low if value > 0 else row.high)) if value else 0


def _rounded(values: Any) -> Ints:
    found: Ints = np.rint(values).astype(np.int64)
    return found


def _solution(columns: Sequence[Column]) -> Solution:
    ordered = sorted(columns)
    return Solution(tuple(column[1] for column in ordered), tuple(column[2] for column in ordered))
