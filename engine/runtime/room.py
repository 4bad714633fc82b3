"""Room for what large requests take: all of one event loop share it, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HELD_S_MAX = 30
"""Whoever still holds room after this time waits for others, so its room is given on: else all might wait for ever."""


class Room:
    """So many bytes may be in use at once. What needs more than there are gets all of them, and is alone."""

    def __init__(self, size_bytes: int) -> None:
        self._size = self._free = size_bytes
        self._held: dict[object, int] = {}
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def held(self, size_bytes: int) -> AsyncIterator[None]:
        """Wait for room, and hold it inside."""
        size, place = min(size_bytes, self._size), object()
        await self._take(size)
        self._held[place] = size
        ending = asyncio.get_running_loop().call_later(HELD_S_MAX, self._give_back, place)
        try:
            yield
        finally:
            ending.cancel()
            self._give_back(place)

    async def _take(self, size: int) -> None:
        if not self._waiting and size <= self._free:
            self._free -= size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._free += size
            self._let_in()
            raise

    def _give_back(self, place: object) -> None:
        self._free += self._held.pop(place, 0)
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done():
                if size > self._free:
                    return
                self._free -= size
                turn.set_result(None)
            self._waiting.popleft()
