"""Wakes waiting requests, at most once per partition and turn of the event loop.

Many appends and follower fetches of one turn change the same partition; a waiting request checks it only once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from engine.runtime.purgatory import Purgatory


class Wakeups:
    """Collects partitions that changed and lets the purgatories check them in the loop's next turn."""

    def __init__(self, *purgatories: Purgatory[Hashable]) -> None:
        self._purgatories = purgatories
        self._watched = [purgatory.watched_keys for purgatory in purgatories]
        self._marked: dict[Hashable, None] = {}
        self._loop = asyncio.get_running_loop()

    def mark(self, key: Hashable) -> None:
        """Note that a partition, or one of a session, has changed (``Partition.changed``). Cheap if nobody waits."""
        # A key's hash costs more than all the rest, and most purgatories are empty.
        if self._marked and key in self._marked:
            return
        for watched in self._watched:
            if watched and key in watched:
                if not self._marked:
                    self._loop.call_soon(self.flush)
                self._marked[key] = None
                return

    def flush(self) -> None:
        """Check every marked partition now. Partitions marked meanwhile wait for the next turn."""
        marked, self._marked = self._marked, {}
        for purgatory in self._purgatories:
            purgatory.check_and_complete_all(marked)
