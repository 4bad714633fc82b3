"""Large requests share what they may take: in their order, and nobody for ever."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from event_loop import in_event_loop

from engine.common.errors import ErrorCode, KafkaError
from engine.runtime import room
from engine.runtime.room import Room, ask_others, waiting_for_others


class Holders:
    """Tasks that hold room until they are told to end."""

    def __init__(self, size: int) -> None:
        self.room = Room(size)
        self.inside: list[str] = []
        self.waiting: set[str] = set()
        self.cut: list[str] = []
        """Whose waits others have ended."""
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, **sizes: int) -> None:
        for name, size in sizes.items():
            self._tasks[name] = asyncio.create_task(self._hold(name, size))
            await self.settled()

    async def _hold(self, name: str, size: int) -> None:
        end = self._ends[name] = asyncio.Event()
        async with self.room.held(size, size, owner=name[0]):
            self.inside.append(name)
            await end.wait()
            self.inside.remove(name)
            for _ in range(2 if name in self.waiting else 0):
                # As a handler that waits for one topic after the other.
                end = self._ends[name] = asyncio.Event()
                with waiting_for_others(partial(self._cut, name)):
                    await end.wait()

    def _cut(self, name: str) -> None:
        self.cut.append(name)
        self._ends[name].set()

    async def wait_for_others(self, name: str) -> None:
        """Let one who is inside wait twice for others. ``end`` ends a wait."""
        self.waiting.add(name)
        await self.end(name)

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


@in_event_loop
async def test_one_who_waits_for_others_gives_its_room_on() -> None:
    """For good: it does not come back for more."""
    holders = Holders(10)
    await holders.begin(a=10, b=10, c=10)
    await holders.wait_for_others("a")
    assert holders.inside == ["b"]
    for _ in range(2):
        await holders.end("a")
        assert holders.inside == ["b"], "what it gave on already is not given back once more"
    await holders.end("b")
    assert holders.inside == ["c"]
    assert not holders.cut


@in_event_loop
async def test_those_who_wait_for_others_keep_no_more_than_the_room() -> None:
    """The one whose peer keeps most waits no more, for nothing; of its requests the oldest comes first."""
    holders = Holders(10)
    for name in ("b1", "a1", "a2"):
        await holders.begin(**{name: 3})
        await holders.wait_for_others(name)
    assert not holders.cut
    await holders.begin(a3=3)
    await holders.wait_for_others("a3")
    assert holders.cut == ["a1", "a1"]
    await holders.begin(c1=1)
    await holders.wait_for_others("c1")
    assert holders.cut == ["a1", "a1"], "what has ended counts no more"


@in_event_loop
async def test_what_one_has_kept_is_free_again_when_it_is_done() -> None:
    holders = Holders(10)
    for name in ("a", "b", "c"):
        await holders.begin(**{name: 10})
        await holders.wait_for_others(name)
        await holders.end(name)
        await holders.end(name)
    assert not holders.cut


@in_event_loop
async def test_one_who_keeps_all_while_it_waits_counts_for_all() -> None:
    """But never for more than there is: what needs more may wait, too, if it is alone."""
    holders, cut = Holders(10), []
    await holders.begin(a=1)
    await holders.wait_for_others("a")
    async with holders.room.held(20, 1, "b"):
        with waiting_for_others(lambda: cut.append("little")):
            pass
        with waiting_for_others(lambda: cut.append("all"), keeps_all=True):
            pass
    assert cut == ["all"]
    await holders.end("a")
    await holders.end("a")
    async with holders.room.held(20, 20, "c"):
        with waiting_for_others(lambda: cut.append("alone")):
            pass
    assert cut == ["all"]


@in_event_loop
async def test_outside_of_a_room_anybody_may_wait() -> None:
    with waiting_for_others(lambda: pytest.fail("nobody needs its memory")):
        pass


@in_event_loop
async def test_one_who_asks_others_gives_its_room_on() -> None:
    """Who keeps most must end once those who ask or wait keep too much."""
    shared = Room(10)

    async def ask_in_it(kept_bytes: int) -> None:
        async with shared.held(10, kept_bytes, kept_bytes):
            ask_others()

    ask_others()
    async with shared.held(10, 6, "a"), asyncio.timeout(10):
        ask_others()
        await asyncio.create_task(ask_in_it(4))
        ask_others()
        await asyncio.create_task(ask_in_it(5))
        with pytest.raises(KafkaError) as refused:
            ask_others()
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
