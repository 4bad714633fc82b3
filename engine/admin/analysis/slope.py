"""How fast a number changes, with the spread that the samples leave: a line through them (least squares). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.admin.analysis.history import Sample

SAMPLES_MIN = 3
"""With fewer samples there is no result."""


class Slope(NamedTuple):
    """Change per second; the samples place the true one between ``low`` and ``high`` (two sigma)."""

    per_s: float
    low: float
    high: float

    @property
    def is_rising(self) -> bool:
        return self.low > 0


def slope_of(samples: Sequence[Sample], window_ms: int) -> Slope | None:
    """Return the slope over the last ``window_ms`` before the newest sample; None: too few samples."""
    if not samples:
        return None
    since_ms = samples[-1].at_ms - window_ms
    points = [(sample.at_ms / 1000, sample.value) for sample in samples if sample.at_ms >= since_ms]
    count = len(points)
    if count < SAMPLES_MIN:
        return None
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread_x = sum((x - mean_x) ** 2 for x, _ in points)
    if spread_x <= 0:
        return None
    per_s = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread_x
    residue = sum((y - mean_y - per_s * (x - mean_x)) ** 2 for x, y in points)
    error = (residue / (count - 2) / spread_x) ** 0.5 if count > 2 else 0.0
    return Slope(per_s, per_s - 2 * error, per_s + 2 * error)
