"""Time as a dependency, so that pure code and tests can do without the real one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the engine takes its time from."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 (wall clock; may jump)."""

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never goes back; only differences mean something."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Move both clocks forward by ``ms`` milliseconds."""
        self._now_ms += ms
        self._monotonic_ms += ms
