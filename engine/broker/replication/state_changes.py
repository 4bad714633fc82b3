"""One state change at a time: LeaderAndIsr and StopReplica requests wait for each other, in order of arrival.

A change gives way to the event loop now and then, so that creating a thousand logs does not block producers. Without
this queue the next request could come in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StateChangeQueue:
    """Runs changes one after the other, each in its caller's task."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_busy = False

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    async def run(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for this change's turn, carry it out, and return its result."""
        if self._is_busy:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next()
                raise
        self._is_busy = True
        try:
            return await change()
        finally:
            self._next()

    def _next(self) -> None:
        """Hand over without a gap: the first in the queue gets the turn, not the next one to ask."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_busy = False
