"""Plans near the answer of the linear program over columns, for problems whose columns prove too little.

The linear program places all but a few partitions whole. Here those few, and the partitions that could be elsewhere
at almost the same price, are placed anew by an integer program over pairs of partition and broker; all others stay
where they are. It begins with the linear program's answer, which breaks rows, and goes on from each better layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from plans.columns import Column, Floats, Model
from plans.construction import Solution
from plans.layout import Bools, Layout
from plans.options import Aim
from plans.round_program import LEADER, RoundProgram
from plans.work import Work

_PUSH = 1.0
"""What it is worth, in mean copies of a partition, to bring a replica or a mean size back into a row."""

_TARGETS = 3
"""So many changes of a partition are free at most: else a few partitions would have them all."""


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
        """Return the pairs to decide anew: the ``most`` changes that cost the least, and what else such a partition
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

        A size counts up to what the row is off, else the largest partitions would always be the ones to move.
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
        found = {kind: np.zeros(self.model.is_held.shape[1]) for kind in Aim}
        for row, value in zip(self.model.rows, values, strict=True):
            found[row.kind][list(row.brokers)] += value
        return found

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
        found = np.where(now.held & self.model.leads, leaders[None, :], np.inf) - leaders[now.leaders][:, None]
        found[np.arange(len(found)), now.leaders] = np.inf
        return found


def _least(costs: Floats, most: int) -> Bools:
    """Mark the ``most`` smallest finite costs, but only a few of each partition."""
    if costs.shape[1] > _TARGETS:
        costs = np.where(costs <= np.partition(costs, _TARGETS - 1, axis=1)[:, _TARGETS - 1, None], costs, np.inf)
    flat = costs.ravel()
    count = min(most, int(np.isfinite(flat).sum()))
    found = np.zeros(len(flat), np.bool_)
    if count:
        found[flat <= np.partition(flat, count - 1)[count - 1]] = np.True_
    return found.reshape(costs.shape)


_PAIRS = 150
"""So many changes are free in a round; with more, HiGHS finds less in the same time."""

_PAIRS_MIN, _GROWS, _SHRINKS = 100, 1.6, 1.25
"""After a round in vain there are more if HiGHS could solve the program, and fewer if not."""

_PATIENCE = 6
"""The search ends after this many rounds in vain."""

_TIES, _NOISE, _NOISE_GROWS = 1e-6, 0.04, 1.5
"""The costs of changes get noise, in mean copies: at first just so that equal ones are chosen evenly, and after each
round in vain half as much again."""

_BREACH, _BREACH_GROWS, _BREACH_MAX = 20.0, 3.0, 540.0
"""What a replica, or a mean size, outside a row costs, in mean copies; after a round in vain it costs more."""

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
            found = self._from(Layout.of(self.model, origin)) if origin is not None else None
            if found is not None and not found.breach(self.model):
                return found.solution(self.model)
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
            found, is_solved = program.run()
            if found.breach(self.model) >= breach:
                breach_cost = min(_BREACH_MAX, breach_cost * _BREACH_GROWS)
            if self._is_better(found, now, breach_cost):
                now, in_vain = found, 0
            else:
                in_vain += 1
                pairs = pairs * _GROWS if is_solved else max(_PAIRS_MIN, pairs / _SHRINKS)
        return now

    def _is_better(self, found: Layout, now: Layout, breach_cost: float) -> bool:
        """Whether it is worth going on from there. A layout that keeps all rows is better than any that does not."""
        if bool(found.breach(self.model)) != bool(now.breach(self.model)):
            return not found.breach(self.model)
        return self._worth(found, breach_cost) < self._worth(now, breach_cost) - _GAIN

    def _worth(self, now: Layout, breach_cost: float) -> float:
        """Return what a layout costs, broken rows included."""
        first = now.first(self.model) / self._unit
        changes = now.leader_changes(self.model) if self.model.has_leader_rows else 0
        return first + LEADER * changes + breach_cost * now.breach(self.model)
