"""The best plan within a cap on moves or bytes, as one integer program, for clusters that are small enough.

Every partition either stays as it is or gets a set of replicas that the whole plan could give it. The aims come one
after the other, in the order of ``capping.rank``: the result of one aim is a row when the next one is minimised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import highspy
import numpy as np

from plans.construction import choose_leaders
from plans.highs import new_solver, run_limited
from plans.levels import Levels, fixed_counts
from plans.loads import ByteLimits, byte_room, held_bytes
from plans.options import Aim
from plans.problem import Problem, ProblemPartition, bits, is_allowed, mask_of, ordered, shared_racks, undone_of
from plans.score import Lists
from plans.work import Work

_NODES_MAX = 5_000
_SHARE = 2
"""An aim may take one part in this many of the remaining work, so that each of them gets some."""

_BYTES_GAP = 1e-3
"""An improvement by less than this fraction of the bytes outside the tolerance is not worth seconds."""

_TOLERANCE = 1e-6

_HALF = 0.5
"""Rounding never cuts off a count plus this much, and no other count lies within it."""

Terms = dict[int, float]
"""The coefficient of each variable in a row or an aim."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """An aim: a sum to minimise. ``slack``: how much of it the later aims may give back. ``gap``: a fraction of the sum
    that is not worth searching for."""

    terms: Terms
    slack: float
    gap: float = 0.0


def narrowed(problem: Problem, masks: list[int], planned: Lists) -> Problem:
    """Return the problem with fewer choices: ``masks``, what is, and what the whole plan does."""
    parts = list(problem.partitions)
    for index, mask in zip(problem.movable, masks, strict=True):
        partition = parts[index]
        wanted = mask | partition.must_hold | mask_of(partition.current) | mask_of(planned[index])
        parts[index] = replace(partition, may_hold=partition.may_hold & wanted)
    return replace(problem, partitions=tuple(parts))


@dataclass(slots=True)
class CappedProgram:
    """One program. Its variables are the replicas, the leaders and whether a partition that has to change does so."""

    problem: Problem
    replica_levels: Levels | None
    leader_levels: Levels | None
    limits: ByteLimits
    work: Work
    is_relaxed: bool = False
    """A linear program: a part of a replica may be anywhere."""
    _parts: list[ProblemPartition] = field(init=False)
    _unit: float = 1.0
    _solver: Any = field(default_factory=lambda: new_solver())
    _holds: dict[tuple[int, int], int] = field(default_factory=dict)
    _leads: dict[tuple[int, int], int] = field(default_factory=dict)
    _done: dict[int, int] = field(default_factory=dict)
    _used: list[float] = field(default_factory=list)
    """The largest value of each variable in any answer of the relaxed program."""

    def run(self) -> tuple[tuple[int, ...], ...] | None:
        """Return the lists of all partitions; None if the work is not enough for a single plan."""
        values = self._reached()
        return None if values is None else self._lists(values)

    def promising(self, most: int) -> list[int]:
        """Return the brokers that matter to each movable partition: those of the relaxed program's answers, and those
        with the best prices, until there are ``most``."""
        values = self._reached()
        masks = [0] * len(self._parts)
        if values is None:
            return masks
        prices = self._solver.getSolution().col_dual
        ranked = []
        for cells in (self._holds, self._leads):
            for (number, broker), var in cells.items():
                if self._used[var] > _TOLERANCE:
                    masks[number] |= 1 << broker
                else:
                    ranked.append((prices[var], number, broker))
        for _, number, broker in sorted(ranked)[: max(0, most - sum(mask.bit_count() for mask in masks))]:
            masks[number] |= 1 << broker
        return masks

    def _reached(self) -> list[float] | None:
        """Take one aim after the other; return the values of all variables."""
        self._parts = [self.problem.partitions[index] for index in self.problem.movable]
        sizes = [part.size or 0 for part in self._parts]
        self._unit = max(1.0, sum(sizes) / len(sizes)) if sizes else 1.0
        for number, partition in enumerate(self._parts):
            self._add_partition(number, partition)
        self._add_caps()
        totals = None
        for stage in self._stages():
            value, values = self._relaxed(stage) if self.is_relaxed else self._minimise(stage, totals)
            if values is None:
                break
            totals = values
            self._add_row(-highspy.kHighsInf, value + stage.slack, stage.terms)
        return totals

    def _add_partition(self, number: int, partition: ProblemPartition) -> None:
        """Let the partition have any allowed set; if its present set is not allowed, it may keep that too."""
        held = mask_of(partition.current)
        done = None if is_allowed(self.problem, partition, held) else self._add_var(0, 1)
        if done is not None:
            self._done[number] = done
        for broker in bits(partition.may_hold | held):
            cell = self._holds[number, broker] = self._add_var(partition.must_hold >> broker & 1, 1)
            if done is None:
                continue
            if not held >> broker & 1:
                self._add_row(-highspy.kHighsInf, 0, {cell: 1, done: -1})
            else:
                self._add_row(1, highspy.kHighsInf if partition.may_hold >> broker & 1 else 1, {cell: 1, done: 1})
        cells = {self._holds[number, broker]: 1.0 for broker in bits(partition.may_hold | held)}
        change = {} if done is None else {done: float(len(partition.current) - partition.factor)}
        self._add_row(*2 * (partition.factor if done is None else len(partition.current),), cells | change)
        self._add_racks(number, partition, done)
        if self.leader_levels is not None:
            self._add_leader(number, partition, done)

    def _add_racks(self, number: int, partition: ProblemPartition, done: int | None) -> None:
        held = mask_of(partition.current)
        racks = [rack & (partition.may_hold | held) for rack in self.problem.racks()]
        if partition.shared_racks_max == 0:
            for rack in racks:
                # A partition that stays as it is may share the racks that it shares now.
                more = max(0, (held & rack).bit_count() - 1) if done is not None else 0
                terms = {self._holds[number, broker]: 1.0 for broker in bits(rack)}
                if done is not None:
                    terms[done] = float(more)
                self._add_row(-highspy.kHighsInf, 1 + more, terms)
        elif partition.factor - partition.shared_racks_max > 1:
            used = {}
            for rack in racks:
                taken = self._add_var(0, 1, is_whole=False)
                used[taken] = 1.0
                self._add_row(0, highspy.kHighsInf, {taken: -1, **{self._holds[number, b]: 1.0 for b in bits(rack)}})
            wanted = float(partition.factor - partition.shared_racks_max)
            if done is None:
                self._add_row(wanted, highspy.kHighsInf, used)
            else:
                self._add_row(0, highspy.kHighsInf, {**used, done: -wanted})

    def _add_leader(self, number: int, partition: ProblemPartition, done: int | None) -> None:
        first, able = partition.current[0], partition.may_hold & partition.may_lead
        vars_of = {}
        for broker in bits(able if done is None else able | 1 << first):
            vars_of[broker] = self._leads[number, broker] = self._add_var(0, 1)
            self._add_row(0, highspy.kHighsInf, {self._holds[number, broker]: 1, vars_of[broker]: -1})
        self._add_row(1, 1, dict.fromkeys(vars_of.values(), 1.0))
        if done is not None:
            most = highspy.kHighsInf if able >> first & 1 else 1
            self._add_row(1, most, {vars_of[first]: 1, done: 1})

    def _add_caps(self) -> None:
        problem = self.problem
        fresh = self._fresh()
        if problem.max_moves is not None:
            self._add_row(-highspy.kHighsInf, problem.max_moves, dict.fromkeys(fresh, 1.0))
        if problem.max_bytes is not None:
            self._add_row(-highspy.kHighsInf, problem.max_bytes / self._unit, self._sized(fresh))
        for broker, room in byte_room(problem).items():
            others = sum(
                partition.size or 0
                for partition in problem.partitions
                if not partition.is_movable and broker in partition.current
            )
            self._add_row(-highspy.kHighsInf, (room - others) / self._unit, self._sized(self._on(broker)))

    def _stages(self) -> Iterable[_Stage]:
        """Yield the aims in their order; an aim that the options do not name has no terms and is left out."""
        brokers = self.problem.brokers
        undone, shared = {}, {}
        for number, done in self._done.items():
            partition = self._parts[number]
            undone[done] = -float(undone_of(partition, partition.current))
            shared[done] = -float(max(0, shared_racks(brokers, partition.current) - partition.shared_racks_max))
        weights = [self.problem.weight(part) for part in self._parts]
        unit = max(1.0, sum(weights) / len(weights)) if weights else 1.0
        copied = {var: weights[number] / unit for var, number in self._fresh().items()}
        kept = self._leads if self.leader_levels is not None else self._holds
        changed = {
            kept[n, partition.current[0]]: -1.0
            for n, partition in enumerate(self._parts)
            if (n, partition.current[0]) in kept
        }
        for stage in (
            _Stage(undone, _HALF),
            _Stage(shared, _HALF),
            _Stage(self._above(self.replica_levels, Aim.REPLICAS), _HALF),
            _Stage(self._above(self.leader_levels, Aim.LEADERS), _HALF),
            _Stage(self._outside(), 1e-6, _BYTES_GAP),
            _Stage(copied, (gcd(*weights) or 1) / 2 / unit),
            _Stage(changed, _HALF),
        ):
            if any(stage.terms.values()):
                yield stage

    def _above(self, levels: Levels | None, kind: Aim) -> Terms:
        """Return variables for what brokers have above their shares; the brokers of a group share their surplus."""
        if levels is None:
            return {}
        base = fixed_counts(self.problem, leaders=kind is Aim.LEADERS)
        bounds, shares = {}, {}
        for broker, low in levels.low.items():
            cells = (
                self._on(broker) if kind is Aim.REPLICAS else {v: n for (n, b), v in self._leads.items() if b == broker}
            )
            above = self._add_var(0, highspy.kHighsInf)
            shares[broker] = self._add_var(low, levels.high[broker])
            bounds[above] = 1.0
            terms = {**dict.fromkeys(cells, 1.0), above: -1.0, shares[broker]: -1.0}
            self._add_row(-highspy.kHighsInf, -base[broker], terms)
        for group in levels.groups:
            self._add_row(group.total, group.total, {shares[broker]: 1.0 for broker in group.brokers})
        return bounds

    def _outside(self) -> Terms:
        """Return variables for the bytes by which brokers are outside their limits."""
        bounds = {}
        held = held_bytes(
            self.problem, [() if partition.is_movable else partition.current for partition in self.problem.partitions]
        )
        for limit, sign in ((self.limits.most, 1.0), (self.limits.least, -1.0)):
            for broker, value in limit.items():
                outside = self._add_var(0, highspy.kHighsInf, is_whole=False)
                bounds[outside] = 1.0
                terms = {var: sign * size for var, size in self._sized(self._on(broker)).items()}
                self._add_row(-highspy.kHighsInf, sign * (value - held[broker]) / self._unit, {**terms, outside: -1.0})
        return bounds

    def _fresh(self) -> dict[int, int]:
        """Return the variables of replicas that would be copied, with their partitions."""
        return {var: n for (n, broker), var in self._holds.items() if broker not in self._parts[n].current}

    def _on(self, broker: int) -> dict[int, int]:
        return {var: n for (n, b), var in self._holds.items() if b == broker}

    def _sized(self, cells: dict[int, int]) -> Terms:
        return {var: (self._parts[number].size or 0) / self._unit for var, number in cells.items()}

    def _add_var(self, low: float, high: float, *, is_whole: bool = True) -> int:
        self._solver.addVar(low, high)
        index = int(self._solver.getNumCol()) - 1
        if is_whole and not self.is_relaxed:
            self._solver.changeColIntegrality(index, highspy.HighsVarType.kInteger)
        return index

    def _add_row(self, low: float, high: float, terms: Terms) -> None:
        entries = {index: value for index, value in terms.items() if value}
        indexes, values = np.array(list(entries), np.int32), np.array(list(entries.values()), np.float64)
        self._solver.addRow(low, high, len(entries), indexes, values)

    def _relaxed(self, stage: _Stage) -> tuple[float, list[float] | None]:
        """Solve the linear program from the last answer, or from what is; return as ``_minimise`` does."""
        solver, size = self._solver, int(self._solver.getNumCol())
        costs = self._set_costs(stage)
        if not self._used:
            solver.setBasis(self._basis())
        solver.setOptionValue("simplex_iteration_limit", max(0, self.work.left))
        solver.run()
        self.work.spend(max(0, solver.getInfo().simplex_iteration_count))
        # What keeps the rows stays so when the costs change.
        solver.setOptionValue("simplex_strategy", 4)
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return 0.0, None
        values = list(solver.getSolution().col_value)
        self._used = [max(pair) for pair in zip(values, self._used or [0.0] * size, strict=False)]
        return float(np.dot(costs, values)), values

    def _basis(self) -> Any:
        """Return the basis of the cluster as it is: that is near to the best within a cap."""
        upper = {var for (n, broker), var in self._holds.items() if broker in self._parts[n].current}
        upper |= {var for (n, broker), var in self._leads.items() if broker == self._parts[n].current[0]}
        basis = highspy.HighsBasis()
        low, high, basic = (getattr(highspy.HighsBasisStatus, name) for name in ("kLower", "kUpper", "kBasic"))
        basis.col_status = [high if var in upper else low for var in range(self._solver.getNumCol())]
        basis.row_status = [basic] * int(self._solver.getNumRow())
        basis.valid = True
        return basis

    def _set_costs(self, stage: _Stage) -> Any:
        size = int(self._solver.getNumCol())
        costs = np.zeros(size)
        costs[list(stage.terms)] = list(stage.terms.values())
        self._solver.changeColsCost(size, np.arange(size, dtype=np.int32), costs)
        return costs

    def _minimise(self, stage: _Stage, start: list[float] | None) -> tuple[float, list[float] | None]:
        """Return the smallest sum found and the values of all variables."""
        solver, size = self._solver, int(self._solver.getNumCol())
        costs = self._set_costs(stage)
        for name, value in (("mip_rel_gap", stage.gap), ("mip_abs_gap", 0.0), ("mip_max_nodes", _NODES_MAX)):
            solver.setOptionValue(name, value)
        if start is not None and len(start) == size:
            given = highspy.HighsSolution()
            given.col_value = start
            solver.setSolution(given)
        run_limited(solver, self.work, _SHARE)
        if solver.getModelStatus() == highspy.HighsModelStatus.kInterrupt:
            # An interrupted solver stays interrupted; the aims that follow need another.
            self._solver = new_solver()
            self._solver.passModel(solver.getModel())
        if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return 0.0, None
        values = list(solver.getSolution().col_value)
        return float(np.dot(costs, values)), values

    def _lists(self, values: list[float]) -> tuple[tuple[int, ...], ...]:
        held, after = [0] * len(self._parts), [partition.current for partition in self.problem.partitions]
        for (number, broker), var in self._holds.items():
            held[number] |= (values[var] > _HALF) << broker
        leaders = choose_leaders(self.problem, held, None)
        for (number, broker), var in self._leads.items():
            if values[var] > _HALF:
                leaders[number] = broker
        for number, index in enumerate(self.problem.movable):
            if number not in self._done or values[self._done[number]] > _HALF:
                after[index] = ordered(self._parts[number].current, held[number], leaders[number])
        return tuple(after)
