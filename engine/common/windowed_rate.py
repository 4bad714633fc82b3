"""Rates and means over a sliding window, and token buckets, exactly as Kafka's quotas and metrics count them.

Sources: Rate, Avg, SampledStat and TokenBucket of Kafka 3.9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """How many samples are kept, and how long one lasts: ``quota.window.num`` and ``quota.window.size.seconds``, or
    ``metrics.num.samples`` and ``metrics.sample.window.ms``.
    """

    samples: int = 11
    sample_ms: int = 1000

    @property
    def whole_ms(self) -> int:
        return self.samples * self.sample_ms


METRICS_WINDOW = Window(samples=2, sample_ms=30_000)
"""Kafka's default for figures that limit nothing."""


class _Sample:
    __slots__ = ("count", "last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.restart(now_ms)

    def restart(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0
        self.count = 0


class _Windowed:
    """The samples of one figure. Times are those of any one clock, in milliseconds, and never go back."""

    __slots__ = ("_current", "_samples", "_window", "last_ms")

    def __init__(self, window: Window, now_ms: int) -> None:
        self._window = window
        self._samples = [_Sample(now_ms)]
        self._current = 0
        self.last_ms = now_ms
        """When something was last recorded."""

    def record(self, amount: float, now_ms: int) -> None:
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window.sample_ms:
            sample = self._advance(now_ms)
        sample.total += amount
        sample.count += 1
        sample.last_ms = self.last_ms = now_ms

    def _advance(self, now_ms: int) -> _Sample:
        # One sample more than the window has: the oldest still overlaps it.
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].restart(now_ms)
        return self._samples[self._current]

    def _forget_old(self, now_ms: int) -> None:
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._window.whole_ms:
                sample.restart(now_ms)


class WindowedRate(_Windowed):
    """Amount per second."""

    __slots__ = ()

    def per_second(self, now_ms: int) -> float:
        self._forget_old(now_ms)
        return sum(sample.total for sample in self._samples) * 1000 / self.covered_ms(now_ms)

    def covered_ms(self, now_ms: int) -> int:
        """Return the time that the rate is taken over: at least all samples but one."""
        elapsed_ms = now_ms - min(sample.start_ms for sample in self._samples)
        missing = self._window.samples - 1 - elapsed_ms // self._window.sample_ms
        return max(elapsed_ms + max(missing, 0) * self._window.sample_ms, 1)

    def ms_until(self, limit: float, now_ms: int) -> float:
        """Return how long nothing may be counted until the rate is down at the limit; 0 if it is not above."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0.0
        return (rate - limit) / limit * self.covered_ms(now_ms) if limit else math.inf


class WindowedAverage(_Windowed):
    """Mean of the values in the window; nan if there are none. Source: Avg of Kafka 3.9."""

    __slots__ = ()

    def __init__(self, window: Window) -> None:
        super().__init__(window, 0)

    def value(self, now_ms: int) -> float:
        self._forget_old(now_ms)
        count = sum(sample.count for sample in self._samples)
        return sum(sample.total for sample in self._samples) / count if count else math.nan


class TokenBucket:
    """Tokens that come back at the limit's rate; a window's worth of them at most (KIP-599)."""

    __slots__ = ("_tokens", "_window", "last_ms")

    def __init__(self, window: Window, now_ms: int) -> None:
        self._window = window
        self._tokens = math.inf
        self.last_ms = now_ms

    def record(self, amount: float, limit: float, now_ms: int) -> None:
        """Take tokens, even if there are too few: the bucket is in debt then."""
        self._tokens = self.tokens(limit, now_ms) - amount
        self.last_ms = now_ms

    def tokens(self, limit: float, now_ms: int) -> float:
        burst = limit * self._window.whole_ms / 1000
        return min(burst, self._tokens + limit * (now_ms - self.last_ms) / 1000)

    def ms_until(self, limit: float, now_ms: int) -> float:
        """Return how long until no token is owed; 0 if none is."""
        owed = -self.tokens(limit, now_ms)
        if owed <= 0:
            return 0.0
        return owed / limit * 1000 if limit else math.inf
