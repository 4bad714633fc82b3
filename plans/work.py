"""The work that a plan may take.

It counts the solver's steps, never seconds, so a run that reaches its limit ends at the same step on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_S = 30.0
_A_SECOND, _FEW = 3_000_000, 1_000
"""A second is worth 3,000 steps if there are few partitions; with more, each step takes longer."""

_EXCHANGES_A_SECOND = 300_000
"""The construction has these for itself, beside the steps of the solver."""


@dataclass(slots=True)
class Work:
    """The remaining steps of the simplex method on the program over columns; other steps count as several of these."""

    left: int
    seconds: float | None = None
    """The time limit that the work is counted for, if there is one."""
    exchanges: int = 9_000_000
    """The exchanges that the construction may still examine; they take no steps."""
    gap: float = 0.0
    """A plan by bytes that is proven to be no further than this from the least is good enough."""
    whole: int = field(init=False)
    _of: Work | None = None

    def __post_init__(self) -> None:
        self.whole = self.left

    @classmethod
    def within(cls, seconds: float | None, partitions: int) -> Work:
        """Return the work for a time limit, computed for a slow machine; None has a limit of its own."""
        limit = DEFAULT_S if seconds is None else seconds
        return cls(int(limit * _A_SECOND / (partitions + _FEW)), seconds, int(limit * _EXCHANGES_A_SECOND))

    def part(self, most: int) -> Work:
        """Return a part of what is left; what it spends is spent here as well."""
        return Work(min(self.left, most), self.seconds, self.exchanges, self.gap, self)

    @property
    def is_over(self) -> bool:
        return self.left <= 0

    def spend_exchanges(self, count: int) -> None:
        self.exchanges = max(0, self.exchanges - count)

    def spend(self, steps: int) -> None:
        # The last step of a part may be larger than what it has left. That is not taken from the other parts.
        if self._of is not None:
            self._of.spend(min(steps, max(0, self.left)))
        self.left -= steps
