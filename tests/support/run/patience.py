"""Deadlines that grow with the load of the machine, for what takes seconds of CPU: JVMs, sessions and jobs of Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def slowness() -> float:
    """Return how many times as long work takes as on an idle machine: processes that want to run, for each core."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def within(seconds: float) -> Callable[[], bool]:
    """Return a function that says whether the deadline is still to come, with the load of the moment it is asked."""
    started = time.monotonic()
    return lambda: time.monotonic() - started < seconds * slowness()
