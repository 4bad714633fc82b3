"""Frees what is large a little in each turn of the event loop.

Freeing a value of 200,000 partitions takes Python more than a hundred milliseconds, and whoever lets go of it last
holds the loop for as long. Put here piece by piece, nobody holds it at once.

Python's collector counts what is made minus what is freed, whatever its age. While very much is freed it does not see
how much is made, and its next run takes as long as all of that does. So what is young is looked at in between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable

from engine.common.collection import leave_uncollected

HOLD_MS_MAX = 1
"""How long a turn goes on. It frees at least one piece."""

TURNS_BETWEEN_FREEZES = 5
"""How many turns free something before the collector looks at what was made meanwhile."""


class Discards:
    """Values that nobody needs any more, freed in the order in which they came."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[object] = deque()
        self._is_freeing = False
        self._turns = 0

    def __len__(self) -> int:
        """Number of pieces that are not freed yet."""
        return len(self._pieces)

    def put(self, pieces: Iterable[object]) -> None:
        """Let go of pieces one after the other; each should take a few milliseconds at most. Any thread may call."""
        self._pieces.extend(pieces)
        # Without a loop the process is about to end.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if not self._is_freeing:
            self._is_freeing = True
            self._loop.call_soon(self._free)

    def _free(self) -> None:
        until_s = self._loop.time() + HOLD_MS_MAX / 1000
        while self._pieces:
            self._pieces.popleft()
            if self._loop.time() >= until_s:
                break
        self._turns += 1
        if self._turns % TURNS_BETWEEN_FREEZES == 0:
            leave_uncollected()
        self._is_freeing = bool(self._pieces)
        if self._is_freeing:
            self._loop.call_soon(self._free)
