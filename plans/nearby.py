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
from plans.layout import Layout
from plans.pairs import Pairs
from plans.round_program import LEADER, RoundProgram
from plans.work import Work

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
        """Whether it is worth to go on from there. A layout that keeps all rows is better than any that does not."""
        if bool(found.breach(self.model)) != bool(now.breach(self.model)):
            return not found.breach(self.model)
        return self._worth(found, breach_cost) < self._worth(now, breach_cost) - _GAIN

    def _worth(self, now: Layout, breach_cost: float) -> float:
        """Return what a layout costs, broken rows included."""
        first = now.first(self.model) / self._unit
        changes = now.leader_changes(self.model) if self.model.has_leader_rows else 0
        return first + LEADER * changes + breach_cost * now.breach(self.model)
