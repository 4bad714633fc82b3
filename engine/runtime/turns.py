"""Long work on one event loop, cut into turns: in each pass of the loop one of those who wait gets one.

``asyncio.sleep(0)`` lets all of them go on in the next pass, so ten pieces of work that hold the loop for a few
milliseconds each make everybody else wait ten times as long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary


class Turns:
    """Whoever has more to do on one event loop, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_due = False

    @staticmethod
    def of_loop() -> Turns:
        """Return the turns of the running event loop."""
        loop = asyncio.get_running_loop()
        turns = _TURNS.get(loop)
        if turns is None:
            turns = _TURNS[loop] = Turns(loop)
        return turns

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def put(self, work: Callable[[], object]) -> None:
        """Call ``work`` in a later pass of the loop, once those who wait already have had their turns."""
        self._waiting.append(work)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._next)

    async def wait(self) -> None:
        """Let everybody else go on, and return when it is the caller's turn."""
        turn = self._loop.create_future()

        def begin() -> None:
            if not turn.done():
                turn.set_result(None)

        self.put(begin)
        await turn

    def _next(self) -> None:
        work = self._waiting.popleft()
        try:
            work()
        finally:
            # Only now, behind the task that ``work`` may have woken. What it has put itself finds a turn due already.
            self._is_due = bool(self._waiting)
            if self._is_due:
                self._loop.call_soon(self._next)


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()
