"""Which pairs of a partition and a broker are worth deciding anew, by the prices of the linear program."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from plans.columns import Floats, Model
from plans.layout import Bools, Layout
from plans.options import Aim

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
