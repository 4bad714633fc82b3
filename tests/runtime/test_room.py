"""Large requests share what they may take: in their order, and nobody for ever."""

from __future__ import annotations

import asyncio

import pytest
from event_loop import in_event_loop

from engine.runtime import room
from engine.runtime.room import Room


class Holders:
    """Tasks that hold room until they are told to end."""

    def __init__(self, size: int) -> None:
        self.room = Room(size)
        self.inside: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, **sizes: int) -> None:
        for name, size in sizes.items():
            self._tasks[name] = asyncio.create_task(self._hold(name, size))
            await self.settled()

    async def _hold(self, name: str, size: int) -> None:
        end = self._ends[name] = asyncio.Event()
        async with self.room.held(size):
            self.inside.append(name)
            await end.wait()
            self.inside.remove(name)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.settled()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await self.settled()

    async def settled(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


@in_event_loop
async def test_no_more_are_inside_than_there_is_room_for() -> None:
    holders = Holders(10)
    await holders.begin(a=4, b=6, c=1, d=9)
    assert holders.inside == ["a", "b"]
    await holders.end("a")
    assert holders.inside == ["b", "c"]
    await holders.end("b")
    assert holders.inside == ["c", "d"]


@in_event_loop
async def test_nobody_overtakes_one_who_needs_more() -> None:
    holders = Holders(10)
    await holders.begin(a=4, large=8, small=1)
    assert holders.inside == ["a"]
    await holders.end("a")
    assert holders.inside == ["large", "small"]


@in_event_loop
async def test_what_needs_more_than_there_is_is_alone() -> None:
    holders = Holders(10)
    await holders.begin(a=1, huge=1000, b=1)
    assert holders.inside == ["a"]
    await holders.end("a")
    assert holders.inside == ["huge"]
    await holders.end("huge")
    assert holders.inside == ["b"]


@in_event_loop
async def test_one_who_gives_up_leaves_the_room_to_others() -> None:
    """Whether it waits, has just been let in, or is inside."""
    holders = Holders(10)
    await holders.begin(a=6, waits=8, b=4)
    await holders.cancel("waits")
    assert holders.inside == ["a", "b"]
    await holders.begin(let_in=6, c=6)
    holders._ends["a"].set()
    while "a" in holders.inside:
        await asyncio.sleep(0)
    await holders.cancel("let_in")
    assert holders.inside == ["b", "c"]
    await holders.cancel("b")
    await holders.begin(d=4, e=1)
    assert [name for name in holders.inside if name != "b"] == ["c", "d"]


@in_event_loop
async def test_one_who_waits_for_others_holds_no_room_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CreateTopics may wait for leaders for as long as its client likes."""
    monkeypatch.setattr(room, "HELD_S_MAX", 0.05)
    holders = Holders(10)
    await holders.begin(slow=10, a=10, b=10)
    assert holders.inside == ["slow"]
    async with asyncio.timeout(10):
        while holders.inside != ["slow", "a"]:
            await asyncio.sleep(0.001)
    await holders.end("slow")
    assert holders.inside == ["a"], "what it gave on already is not given back once more"
