"""Memory for large requests: all requests of an event loop share it, in the order in which they arrived.

A request that waits for others, not for the processor, gives its room back. The memory that it keeps meanwhile has a
limit, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from engine.common.errors import ErrorCode, KafkaError

HELD_S_MAX = 30
"""Whoever still holds room after this time waits for others: its room goes to them, or all might wait forever."""


class _Place:
    """What a task has of a room."""

    __slots__ = ("end_wait", "has_waited_enough", "kept_bytes", "owner", "room", "size_bytes")

    def __init__(self, room: Room, size_bytes: int, kept_bytes: int, owner: object) -> None:
        self.room, self.size_bytes, self.kept_bytes, self.owner = room, size_bytes, kept_bytes, owner
        self.end_wait: Callable[[], None] | None = None
        self.has_waited_enough = False


_PLACE: ContextVar[_Place | None] = ContextVar("_PLACE", default=None)
"""That of the current task."""


@contextmanager
def waiting_for_others(end: Callable[[], None], *, keeps_all: bool = False) -> Iterator[None]:
    """Mark that the current task waits for what is not the processor: others get the room that it holds, for good.

    Args:
        end: ends the wait. It is called when those who wait keep more than the room's size together, perhaps at once.
        keeps_all: the task keeps as much memory as while it is at work.
    """
    place = _PLACE.get()
    if place is None:
        yield
        return
    place.end_wait = end
    if keeps_all:
        place.kept_bytes = place.size_bytes
    try:
        place.room.begin_wait(place)
        yield
    finally:
        place.end_wait = None


def ask_others() -> None:
    """Mark that the current task asks others, such as ZooKeeper, perhaps very often. It counts as one who waits.

    Raises:
        KafkaError: REQUEST_TIMED_OUT: those who wait keep too much together, and this is the one that must end.
    """
    place = _PLACE.get()
    if place is None:
        return
    if not place.has_waited_enough:
        place.room.begin_wait(place)
    if place.has_waited_enough:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


class Room:
    """At most this many bytes may be in use at once. What needs more than there are gets all of them, and is alone.

    As many may be kept by those who wait for others. If they keep more, the wait ends of one whose owner keeps most.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size = self._free = size_bytes
        self._held: dict[_Place, int] = {}
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._kept: dict[_Place, int] = {}

    @asynccontextmanager
    async def held(self, size_bytes: int, kept_bytes: int, owner: object) -> AsyncIterator[None]:
        """Wait for room, and hold it inside.

        Args:
            kept_bytes: what the task keeps while it waits for others.
            owner: to whom that is charged.
        """
        size = min(size_bytes, self._size)
        place = _Place(self, size, min(kept_bytes, size), owner)
        await self._take(size)
        self._held[place] = size
        ending = asyncio.get_running_loop().call_later(HELD_S_MAX, self._give_back, place)
        _PLACE.set(place)
        try:
            yield
        finally:
            _PLACE.set(None)
            ending.cancel()
            self._kept.pop(place, None)
            self._give_back(place)

    def begin_wait(self, place: _Place) -> None:
        """Count what a place keeps among those who wait, and give its room on."""
        self._give_back(place)
        if not place.has_waited_enough:
            self._kept[place] = place.kept_bytes
        elif place.end_wait is not None:
            place.end_wait()
        while sum(self._kept.values()) > self._size:
            self._end_a_wait()

    def _end_a_wait(self) -> None:
        """End the oldest wait of the owner who keeps most."""
        by_owner: Counter[object] = Counter()
        for place, kept_bytes in self._kept.items():
            by_owner[place.owner] += kept_bytes
        ((owner, _),) = by_owner.most_common(1)
        ended = next(place for place in self._kept if place.owner == owner)
        del self._kept[ended]
        ended.has_waited_enough = True
        if ended.end_wait is not None:
            ended.end_wait()

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

    def _give_back(self, place: _Place) -> None:
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
