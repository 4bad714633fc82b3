"""Waking of waiting requests, at most once per partition and turn of the event loop.

Many appends and follower fetches of one turn change the same partition; what waits for it looks only once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from engine.runtime.purgatory import Purgatory


class Wakeups:
    """Collects partitions that changed and lets the purgatories look at them when the loop comes round."""

    def __init__(self, *purgatories: Purgatory[Hashable]) -> None:
        self._purgatories = purgatories
        self._marked: dict[Hashable, None] = {}
        self._loop = asyncio.get_running_loop()

    def mark(self, key: Hashable) -> None:
        """Note that a partition changed (``Partition.changed``), or one of a session's. Cheap when nobody waits."""
        if key in self._marked:
            return
        for purgatory in self._purgatories:
            if purgatory.is_watched(key):
                if not self._marked:
                    self._loop.call_soon(self.flush)
                self._marked[key] = None
                return

    def flush(self) -> None:
        """Look at every marked partition now. What is marked meanwhile waits for the next turn."""
        marked, self._marked = self._marked, {}
        for purgatory in self._purgatories:
            purgatory.check_and_complete_all(marked)
