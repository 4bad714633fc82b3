"""The work that a plan may take. Work is counted in what the solver does, never in seconds, so that it is the same
everywhere: a run that is cut short ends at the same step on every machine."""

from __future__ import annotations

from dataclasses import dataclass

_DEFAULT_S = 30.0
_A_SECOND, _FEW = 3_000_000, 1_000
"""A second is worth 3,000 steps if there are few partitions; with more, each step takes longer."""


@dataclass(slots=True)
class Work:
    """The remaining steps of the simplex method on the program over columns; other steps count as several of these."""

    left: int

    @classmethod
    def within(cls, seconds: float | None, partitions: int) -> Work:
        """Return the work for a time limit, computed for a slow machine; None has a limit of its own."""
        return cls(int((_DEFAULT_S if seconds is None else seconds) * _A_SECOND / (partitions + _FEW)))

    @property
    def is_over(self) -> bool:
        return self.left <= 0

    def spend(self, steps: int) -> None:
        self.left -= steps
