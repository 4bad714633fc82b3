"""What is large is freed a little in each turn of the event loop, in order, whoever lets go of it."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable

import pytest
from event_loop import in_event_loop

from engine.runtime import discards
from engine.runtime.discards import Discards


class Large:
    """Something whose end can be noted."""


@in_event_loop
async def test_one_goes_after_the_other_and_others_run_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discards, "HOLD_MS_MAX", 0)
    freed: list[int] = []
    pile, pieces = Discards(), [Large() for _ in range(5)]
    for number, piece in enumerate(pieces):
        weakref.finalize(piece, freed.append, number)
    pile.put(pieces[:3])
    pile.put(pieces[3:])
    del pieces, piece
    seen = []
    while len(pile):
        before = len(freed)
        await asyncio.sleep(0)
        seen.append(len(freed) - before)
    assert freed == [0, 1, 2, 3, 4]
    assert max(seen) == 1


@in_event_loop
async def test_small_ones_go_together_and_a_thread_may_put_them() -> None:
    pile = Discards()
    thread = threading.Thread(target=pile.put, args=([object() for _ in range(100)],))
    thread.start()
    thread.join()
    assert len(pile) == 100
    async with asyncio.timeout(60):
        while len(pile):
            await asyncio.sleep(0)
    pile.put([object()])
    async with asyncio.timeout(60):
        while len(pile):
            await asyncio.sleep(0)


@in_event_loop
async def test_nothing_scans_all_objects_until_all_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discards, "HOLD_MS_MAX", 0)
    # Loops of other tests may have ended while something was freed.
    gc.collect()
    young, old, full = gc.get_threshold()
    piles = Discards(), Discards()
    piles[0].put([Large()])
    piles[1].put([Large() for _ in range(20)])
    while len(piles[1]):
        await asyncio.sleep(0)
        assert gc.get_threshold() == (young, old, (100 if len(piles[1]) else 1) * full)
    assert gc.get_threshold() == (young, old, full)


@pytest.mark.parametrize("make", [Discards, Discards.of_loop])
def test_a_loop_that_ends_before_all_is_freed_puts_off_no_collection(make: Callable[[], Discards]) -> None:
    async def leave_some() -> None:
        pile = make()
        pile.put(Large() for _ in range(100_000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(pile)
        assert gc.get_threshold() != before

    gc.collect()
    before = gc.get_threshold()
    asyncio.run(leave_some())
    gc.collect()
    assert gc.get_threshold() == before


@pytest.mark.parametrize("beside_lasting", [True, False])
@in_event_loop
async def test_what_is_made_meanwhile_does_not_wait_for_the_collector(
    monkeypatch: pytest.MonkeyPatch, beside_lasting: bool
) -> None:
    """What is freed counts against what is made: a collection of the youngest took 90 ms, and once 445.

    Nothing is hidden from later collections, unless what is made lasts.
    """
    monkeypatch.setattr(discards, "HOLD_MS_MAX", 0)
    pile, turns, made_per_turn = Discards(beside_lasting=beside_lasting), 200, 500
    hidden = gc.get_freeze_count()
    pieces = [[[] for _ in range(2 * made_per_turn)] for _ in range(turns)]
    gc.collect()
    pile.put(pieces)
    pieces = []
    kept: list[list[object]] = []
    youngest = 0
    try:
        while len(pile):
            kept += [[] for _ in range(made_per_turn)]
            await asyncio.sleep(0)
            youngest = max(youngest, len(gc.get_objects(generation=0)))
        assert (gc.get_freeze_count() > hidden) == beside_lasting
    finally:
        gc.unfreeze()
    assert len(kept) >= turns * made_per_turn
    assert youngest < turns * made_per_turn / 4


def test_what_comes_after_the_loop_is_not_an_error() -> None:
    async def make() -> Discards:
        return Discards()

    pile = asyncio.run(make())
    pile.put([object()])
    assert len(pile) == 1
