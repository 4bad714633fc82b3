"""A throttle that adapts to what the cluster can bear: halved in trouble, raised step by step in calm. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Give, Parameter
from engine.admin.reassignment.throttle_settings import RATE_MIN

STEPS = 8
"""From nothing to the ceiling in this many steps. Each rate leaves a mark in topics' settings, so they are few."""

CALM_LOOKS = 3
"""After this many looks without trouble the rate is raised."""

_FLOOR_SHARE = 4


@dataclass(frozen=True, slots=True)
class ThrottleRange:
    """Bytes a second at the start, and the limits of the rate.

    ``p99_limit_s``: a broker whose answers have a larger p99 is in trouble; None does not measure any.
    """

    start: int
    floor: int
    ceiling: int
    p99_limit_s: float | None = None

    @classmethod
    def of(
        cls, start: int, floor: int | None = None, ceiling: int | None = None, p99_limit_s: float | None = None
    ) -> ThrottleRange:
        """Return the range; without limits it goes down to a quarter of the start, and never above it.

        Raises:
            BadRequest: a rate is invalid, or the rates are not in order.
        """
        least = max(start // _FLOOR_SHARE, RATE_MIN) if floor is None else floor
        throttle_range = cls(start, least, ceiling or start, p99_limit_s)
        if min(throttle_range.start, throttle_range.floor) < RATE_MIN:
            hint = "the unit is bytes a second: 50M is 50 MB/s"
            raise BadRequest(f"a throttle below {RATE_MIN} B/s", where=Give(Parameter.THROTTLE, str(start)), hint=hint)
        if not throttle_range.floor <= throttle_range.start <= throttle_range.ceiling:
            bounds = f"{throttle_range.floor}, {throttle_range.start}, {throttle_range.ceiling}"
            raise BadRequest(f"floor, throttle and ceiling are not in order: {bounds} B/s")
        return throttle_range

    @property
    def step(self) -> int:
        return max(self.ceiling // STEPS, 1)

    def halved(self, rate: int) -> int:
        """Return half of a rate, down to a whole step, but not below the floor."""
        return max(self.floor, rate // 2 // self.step * self.step)

    def raised(self, rate: int) -> int:
        """Return the next whole step above a rate, but not above the ceiling."""
        return min(self.ceiling, (rate // self.step + 1) * self.step)


class AdaptiveThrottle:
    """Decides on the rate, look after look. Belongs to one execution."""

    def __init__(self, limits: ThrottleRange) -> None:
        self.rate = limits.start
        self._limits = limits
        self._calm_looks = 0

    def next_rate(self, *, is_in_trouble: bool) -> int:
        """Take one look into account and return the rate from now on."""
        if is_in_trouble:
            self._calm_looks = 0
            self.rate = self._limits.halved(self.rate)
            return self.rate
        self._calm_looks += 1
        if self._calm_looks >= CALM_LOOKS:
            self._calm_looks = 0
            self.rate = self._limits.raised(self.rate)
        return self.rate
