"""Deadlines of thousands of members on one wheel: a value that says what is due. It has no clock and no timer.

Moving a deadline later, which each heartbeat does, is one dictionary write: the place on the wheel stays, and is
checked again when its time comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

TICK_MS: Final = 10
"""Width of a slot: a timer is due at most this much late."""

K = TypeVar("K", bound=Hashable)


class TimerWheel(Generic[K]):
    """Timers by key. Times are milliseconds on any clock that never goes back."""

    def __init__(self) -> None:
        self._deadlines_ms: dict[K, int] = {}
        self._placed: dict[K, int] = {}
        self._slots: dict[int, list[K]] = {}
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._deadlines_ms)

    def __iter__(self) -> Iterator[K]:
        return iter(self._deadlines_ms)

    def start(self, key: K, deadline_ms: int) -> None:
        """Make the key due at ``deadline_ms``, whatever was set before."""
        self._deadlines_ms[key] = deadline_ms
        slot = -(-deadline_ms // TICK_MS)
        placed = self._placed.get(key)
        if placed is None or slot < placed:
            self._place(key, slot)

    def stop(self, key: K) -> None:
        """Forget the key. Its place on the wheel will be found empty."""
        self._deadlines_ms.pop(key, None)

    def deadline_ms(self, key: K) -> int | None:
        """Return when the key is due, or None."""
        return self._deadlines_ms.get(key)

    def next_ms(self) -> int | None:
        """Return when to check again: no timer is due before. None if there is nothing to wait for."""
        return self._heap[0] * TICK_MS if self._heap else None

    def take_due(self, now_ms: int) -> list[K]:
        """Return the keys that are due, and forget them."""
        now_slot = now_ms // TICK_MS
        due: list[K] = []
        while self._heap and self._heap[0] <= now_slot:
            slot = heapq.heappop(self._heap)
            for key in self._slots.pop(slot):
                # A key may be in several slots; only the latest one counts.
                if self._placed.get(key) == slot:
                    del self._placed[key]
                    self._take(key, now_ms, due)
        return due

    def _take(self, key: K, now_ms: int, due: list[K]) -> None:
        deadline_ms = self._deadlines_ms.get(key)
        if deadline_ms is None:
            return
        if deadline_ms <= now_ms:
            del self._deadlines_ms[key]
            due.append(key)
        else:
            self._place(key, -(-deadline_ms // TICK_MS))

    def _place(self, key: K, slot: int) -> None:
        self._placed[key] = slot
        members = self._slots.get(slot)
        if members is None:
            self._slots[slot] = [key]
            heapq.heappush(self._heap, slot)
        else:
            members.append(key)
