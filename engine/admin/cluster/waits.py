"""What a command waits for: shown while it waits, and when its time is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.admin.cluster.remedies import Words

_JUST_NOW_S = 1.0


class Waits:
    """Which brokers, or ZooKeeper, klamm has asked and that have not answered yet."""

    def __init__(self) -> None:
        self._awaited: dict[object, tuple[str, float]] = {}
        self._cut_short: list[tuple[float, float, str]] = []

    @contextmanager
    def on(self, address: str) -> Iterator[None]:
        """Count the time inside as a wait for an address; note when it ends early."""
        key, started = object(), time.monotonic()
        self._awaited[key] = address, started
        try:
            yield
        except asyncio.CancelledError:
            self._cut_short_now(address, time.monotonic() - started)
            raise
        finally:
            del self._awaited[key]

    def _cut_short_now(self, address: str, waited_s: float) -> None:
        now = time.monotonic()
        # A dashboard abandons questions as long as it runs: old ones are of no use.
        self._cut_short = [wait for wait in self._cut_short if now - wait[0] < _JUST_NOW_S]
        self._cut_short.append((now, waited_s, address))

    def silent(self, least_s: float) -> dict[str, float]:
        """Return the addresses that have been silent for at least this many seconds, and how long."""
        now = time.monotonic()
        silent_s: dict[str, float] = {}
        for address, since in self._awaited.values():
            if now - since >= least_s:
                silent_s[address] = max(silent_s.get(address, 0.0), now - since)
        return silent_s

    def longest(self) -> str | None:
        """Return who had been silent longest when the caller's time ran out just now."""
        now = time.monotonic()
        just_now = [(waited_s, address) for ended, waited_s, address in self._cut_short if now - ended < _JUST_NOW_S]
        return max(just_now)[1] if just_now else None


# Callbacks: which request goes where (``--verbose``), and that a change was accepted.

Accepted = Callable[[Words], None]
"""Called, once the cluster has accepted a change, with what continues there and how to check it."""

Observer = Callable[[str], None]
"""Called with one line for each request: what is asked of whom."""


def ignore_line(line: Words) -> None:
    """Do nothing: the observer of callers that need no messages."""


Complain = Callable[[str], None]
"""Called with what is wrong with something that was skipped to show the rest."""

OnRead = Callable[[int, int], None]
"""Called with how many topics were read so far, and of how many."""


def ignore_progress(done: int, total: int) -> None:
    """Does nothing."""
