"""Columns and their prices: the ways to place one partition, and the cheapest of them at given prices of brokers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from plans.levels import Levels
from plans.options import Aim
from plans.problem import Problem, bits

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_FORBIDDEN = 1 << 60
_FORCED = -(1 << 57)


@dataclass(slots=True)
class Row:
    """A bound on the sum over brokers of replicas, leaders or sizes."""

    kind: Aim
    brokers: tuple[int, ...]
    low: float
    high: float


Column = tuple[int, int, int]
"""Partition, mask of replicas, leader."""


@dataclass(slots=True)
class Model:
    """The arrays of a problem: partitions down, brokers across."""

    problem: Problem
    rows: list[Row]
    weight: Ints
    size: Floats
    factor: Ints
    shared: Ints
    allowed: npt.NDArray[np.bool_]
    must: npt.NDArray[np.bool_]
    leads: npt.NDArray[np.bool_]
    is_held: npt.NDArray[np.bool_]
    first: Ints
    racks: list[npt.NDArray[np.int64]] = field(default_factory=list)
    rack_of: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    bytes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """The sizes in bytes; ``size`` has them in units."""
    size_unit: float = 1.0
    """The unit for rows of bytes, so that all numbers of the program have a similar magnitude."""

    @property
    def has_leader_rows(self) -> bool:
        return any(row.kind is Aim.LEADERS for row in self.rows)


def model_of(problem: Problem, replica_levels: Levels | None, leader_levels: Levels | None, rows: list[Row]) -> Model:
    """Return the arrays and rows; ``rows`` bounds bytes."""
    parts = [problem.partitions[index] for index in problem.movable]
    shape = (len(parts), len(problem.brokers))

    def matrix(masks: Iterable[int]) -> npt.NDArray[np.bool_]:
        flags = np.zeros(shape, np.bool_)
        for number, mask in enumerate(masks):
            flags[number, list(bits(mask))] = True
        return flags

    held = np.zeros(shape, np.bool_)
    for number, part in enumerate(parts):
        held[number, list(part.current)] = True
    racks = [np.array(list(bits(mask)), np.int64) for mask in problem.racks() if mask]
    rack_of = np.zeros(shape[1], np.int64)
    for number, members in enumerate(racks):
        rack_of[members] = number
    size = np.array([part.size or 0 for part in parts], np.float64)
    unit = max(1.0, float(size.mean())) if len(size) else 1.0
    return Model(
        problem=problem,
        rows=[
            *_level_rows(problem, Aim.REPLICAS, replica_levels),
            *_level_rows(problem, Aim.LEADERS, leader_levels),
            *(Row(row.kind, row.brokers, row.low / unit, row.high / unit) for row in rows),
        ],
        weight=np.array([problem.weight(part) for part in parts], np.int64),
        size=size / unit,
        bytes=np.array([part.size or 0 for part in parts], np.int64),
        size_unit=unit,
        factor=np.array([part.factor for part in parts], np.int64),
        shared=np.array([part.shared_racks_max for part in parts], np.int64),
        allowed=matrix(part.may_hold for part in parts),
        must=matrix(part.must_hold for part in parts),
        leads=matrix(part.may_lead for part in parts),
        is_held=held,
        first=np.array([part.current[0] for part in parts], np.int64),
        racks=racks,
        rack_of=rack_of,
    )


def _level_rows(problem: Problem, kind: Aim, levels: Levels | None) -> list[Row]:
    if levels is None:
        return []
    base = [0] * len(problem.brokers)
    for partition in problem.partitions:
        if not partition.is_movable:
            for broker in partition.current if kind is Aim.REPLICAS else partition.current[:1]:
                base[broker] += 1
    rows = [Row(kind, (b,), levels.low[b] - base[b], levels.high[b] - base[b]) for b in sorted(levels.low)]
    for group in levels.groups:
        total = group.total - sum(base[b] for b in group.brokers)
        rows.append(Row(kind, group.brokers, total, total))
    return rows


def price(model: Model, replica_price: Ints, leader_price: Ints) -> tuple[Ints, list[Column]]:
    """Return the least cost of every partition and a column that has it.

    ``replica_price`` and ``leader_price`` are what a replica or the leader on a broker costs the partition.
    """
    held = np.where(model.allowed, replica_price, _FORBIDDEN)
    held[model.must] += _FORCED
    led = np.where(model.leads, leader_price, _FORBIDDEN)
    count = len(model.factor)
    best = np.zeros(count, np.int64)
    columns: list[Column] = [(0, 0, 0)] * count
    plain = np.flatnonzero(model.shared == 0)
    if len(plain):
        _price_plain(model, plain, held[plain], led[plain], best, columns)
    for number in np.flatnonzero(model.shared > 0):
        best[number], columns[number] = _price_shared(model, int(number), held[number], led[number])
    best -= _FORCED * model.must.sum(axis=1)
    return best, columns


def _price_plain(model: Model, which: Ints, held: Ints, led: Ints, best: Ints, columns: list[Column]) -> None:
    """No two replicas share a rack: the cheapest broker of each rack, and the cheapest racks."""
    lines = np.arange(len(which))
    cheapest = np.stack([held[:, rack].min(axis=1) for rack in model.racks], axis=1)
    argmin = np.stack([rack[held[:, rack].argmin(axis=1)] for rack in model.racks], axis=1)
    order = np.argsort(cheapest, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(order.shape[1]), order.shape), axis=1)
    # A sum of several forbidden racks must not overflow; one alone is enough to forbid.
    capped = np.minimum(np.take_along_axis(cheapest, order, axis=1), _FORBIDDEN >> 2)
    sums = np.concatenate([np.zeros((len(which), 1), np.int64), np.cumsum(capped, axis=1)], axis=1)
    factor = model.factor[which]
    less, full = sums[lines, factor - 1], sums[lines, np.minimum(factor, order.shape[1])]
    others = np.where(
        rank >= (factor - 1)[:, None], less[:, None], full[:, None] - np.minimum(cheapest, _FORBIDDEN >> 2)
    )
    whole = np.minimum(held, _FORBIDDEN) + np.minimum(led, _FORBIDDEN) + others[:, model.rack_of]
    leader = whole.argmin(axis=1)
    best[which] = whole[lines, leader]
    rows_order, rows_argmin = order.tolist(), argmin.tolist()
    racks = model.rack_of[leader].tolist()
    for line, (number, chosen, wanted) in enumerate(zip(which.tolist(), leader.tolist(), factor.tolist(), strict=True)):
        mask, left = 1 << chosen, wanted - 1
        for rack in rows_order[line]:
            if not left:
                break
            if rack != racks[line]:
                mask |= 1 << rows_argmin[line][rack]
                left -= 1
        columns[number] = (number, mask, chosen)


def _price_shared(model: Model, number: int, held: Ints, led: Ints) -> tuple[int, Column]:
    """Racks may be shared this often: a matroid, so the greedy set is best, and one exchange brings a leader in."""
    costs, leader_costs = held.tolist(), led.tolist()
    factor, limit = int(model.factor[number]), int(model.shared[number])
    rack_of = model.rack_of.tolist()
    order = sorted((b for b, cost in enumerate(costs) if cost < _FORBIDDEN >> 1), key=lambda b: (costs[b], b))

    def greedy(start: list[int]) -> list[int]:
        chosen, used = list(start), {rack_of[b] for b in start}
        shared = len(chosen) - len(used)
        for broker in order:
            if len(chosen) == factor:
                break
            if broker in chosen or (rack_of[broker] in used and shared == limit):
                continue
            shared += rack_of[broker] in used
            used.add(rack_of[broker])
            chosen.append(broker)
        return chosen

    base = greedy([])
    cheapest: tuple[int, int, list[int]] | None = None
    for leader in order:
        if leader_costs[leader] >= _FORBIDDEN >> 1:
            continue
        members = base if leader in base else greedy([leader])
        whole = sum(costs[b] for b in members) + leader_costs[leader]
        if len(members) == factor and (cheapest is None or whole < cheapest[0]):
            cheapest = (whole, leader, members)
    assert cheapest is not None
    return cheapest[0], (number, sum(1 << b for b in cheapest[2]), cheapest[1])
