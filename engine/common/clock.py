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
