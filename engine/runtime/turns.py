"""Long work on one event loop, cut into turns: in each pass of the loop, one of the waiting tasks gets a turn.

``asyncio.sleep(0)`` lets all of them continue in the next pass, so ten tasks that hold the loop for a few milliseconds
each make everything else wait ten times as long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar
from weakref import WeakKeyDictionary

from engine.common.collection import leave_uncollected

R = TypeVar("R")

HOLD_MS_MAX = 5
"""How long one piece of work may hold the event loop without a break."""

TURNS_BETWEEN_FREEZES = 5
"""After this many turns, 25 ms of work, what creates long-lived values has created tens of thousands. A collection that
scans a hundred thousand takes 30 ms, and one that scans what is known of 200,000 partitions 400 ms.
"""


class Turns:
    """Those who have more to do on one event loop, in the order in which they came."""

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
        """Let all other work run, and return when it is the caller's turn."""
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


class Breather:
    """Gives way to the event loop once its owner has held it for long enough.

    Args:
        makes_what_lasts: the work creates long-lived values, so the garbage collector need not scan them repeatedly.
    """

    def __init__(self, *, makes_what_lasts: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._since_s = self._loop.time()
        self._makes_what_lasts = makes_what_lasts
        self.turns = 0
        """How often it has given way."""

    async def give_way(self) -> None:
        """Wait for the owner's next turn, if the present one is over."""
        if (self._loop.time() - self._since_s) * 1000 >= HOLD_MS_MAX:
            self.turns += 1
            if self._makes_what_lasts and self.turns % TURNS_BETWEEN_FREEZES == 0:
                leave_uncollected()
            await Turns.of_loop().wait()
            self._since_s = self._loop.time()


def begin(steps: Iterator[None]) -> None:
    """Carry out steps for as long as a turn lasts, at least one of them, and go on in later turns of the event loop."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + HOLD_MS_MAX / 1000
    for _ in steps:
        if loop.time() >= until_s:
            Turns.of_loop().put(lambda: begin(steps))
            return


async def carry_out(steps: Generator[None, None, R]) -> R:
    """Carry out all steps in turns with others, and return their result. ``engine.common.turns.at_once`` does not."""
    breather = Breather()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        await breather.give_way()
