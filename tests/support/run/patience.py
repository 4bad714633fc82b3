"""Deadlines that grow with the load of the machine, for what takes seconds of CPU: JVMs, sessions and jobs of Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def slowness() -> float:
    """Return how many times as long work takes as on an idle machine: processes that want to run, for each core."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def within(seconds: float) -> Callable[[], bool]:
    """Return a function that says whether the deadline is still to come, with the load of the moment it is asked."""
    started = time.monotonic()
    return lambda: time.monotonic() - started < seconds * slowness()


def wait_for(look: Callable[[], T], what: str = "the condition", seconds: float = 90.0) -> T:
    """Look until there is something true, and return it. To look costs CPU, so it happens less and less often.

    Raises:
        AssertionError: the time is up.
    """
    is_in_time, began = within(seconds), time.monotonic()
    while not (result := look()):
        assert is_in_time(), f"not within {seconds:.0f} s, or longer on a busy machine: {what}"
        time.sleep(min(0.02 + 0.05 * (time.monotonic() - began), 0.2))
    return result
