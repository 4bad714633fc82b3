"""Frees large values little by little, a part in each turn of the event loop.

Freeing a value of 200,000 partitions takes Python more than a hundred milliseconds, and the code that drops the last
reference blocks the loop for as long. This module drops such values piece by piece.

Python's collector counts created objects minus freed ones, whatever their age. While very many are freed, it does not
notice how many are created, and its next run has to look at all of those. So this module lets it collect young objects
in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary, finalize, ref

from engine.common.collection import allow_full_collections, leave_uncollected, put_off_full_collections

HOLD_MS_MAX = 1
"""How long a turn lasts. It frees at least one piece."""

TURNS_BETWEEN_FREEZES = 5
"""How many turns free something before the collector looks at what was made since."""


class Discards:
    """Values that are no longer needed, freed in the order in which they came."""

    def __init__(self, *, beside_lasting: bool = False) -> None:
        """``beside_lasting``: very many values that last are made meanwhile, and no collection should scan them."""
        self._look_at_the_young = leave_uncollected if beside_lasting else _collect_the_young
        self._loop = ref(asyncio.get_running_loop())
        self._pieces: deque[object] = deque()
        self._is_freeing = False
        self._turns = 0

    @staticmethod
    def of_loop() -> Discards:
        """Return what the running event loop frees."""
        loop = asyncio.get_running_loop()
        discards = _DISCARDS.get(loop)
        if discards is None:
            discards = _DISCARDS[loop] = Discards()
        return discards

    def __len__(self) -> int:
        """Number of pieces that are not freed yet."""
        return len(self._pieces)

    def put(self, pieces: Iterable[object]) -> None:
        """Let go of pieces one after the other; each should take a few milliseconds at most. Any thread may call."""
        self._pieces.extend(pieces)
        # A loop that has ended frees nothing: that is up to Python.
        with contextlib.suppress(RuntimeError):
            if (loop := self._loop()) is not None:
                loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if not self._is_freeing:
            self._is_freeing = True
            put_off_full_collections()
            # The loop may end before everything is freed.
            self._allow = finalize(self, allow_full_collections)
            asyncio.get_running_loop().call_soon(self._free)

    def _free(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + HOLD_MS_MAX / 1000
        while self._pieces:
            self._pieces.popleft()
            if loop.time() >= until_s:
                break
        self._turns += 1
        if self._turns % TURNS_BETWEEN_FREEZES == 0:
            self._look_at_the_young()
        self._is_freeing = bool(self._pieces)
        if self._is_freeing:
            loop.call_soon(self._free)
        else:
            self._allow()


def _collect_the_young() -> None:
    """Hide nothing: clients decide how often this runs, and a hidden cycle is never freed."""
    gc.collect(0)


_DISCARDS: WeakKeyDictionary[asyncio.AbstractEventLoop, Discards] = WeakKeyDictionary()

PIECE_SIZE = 100
"""Elements of an array in a piece. Each may have as many of its own: some milliseconds."""


def in_pieces(items: Iterable[object]) -> Iterator[object]:
    """Yield what a large collection holds, so that freeing the collection itself frees none of it."""
    rest = iter(items)
    while piece := tuple(islice(rest, PIECE_SIZE)):
        yield piece


def message_in_pieces(message: Any) -> Iterator[object]:
    """Yield what the long arrays of a message hold, at whatever depth. Nothing changes: others may share them."""
    for name in getattr(message, "__slots__", ()):
        value = getattr(message, name, None)
        if type(value) is list and value:
            if hasattr(value[0], "__slots__"):
                for element in value:
                    yield from message_in_pieces(element)
            if len(value) > PIECE_SIZE:
                yield from in_pieces(value)
