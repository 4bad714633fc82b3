"""Carries out the group state machine's outbox: answers, stores, and one loop timer for all deadlines.

Deadlines of thousands of members are on one wheel. Moving a deadline later, which each heartbeat does, is one
dictionary write: the place on the wheel stays, and is checked again when its time comes.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

from engine.broker.coordinator.groups.group import Group
from engine.broker.coordinator.groups.outbox import StoreGroup, TimerKey, TimerKind
from engine.broker.coordinator.groups.state_machine import GroupMachine
from engine.common.clock import Clock
from engine.common.errors import ErrorCode

Store = Callable[[Group, StoreGroup, Callable[[ErrorCode], None]], None]
"""Writes a group and reports the result, at once or later."""


TICK_MS: Final = 10
"""Width of a slot: a timer is due at most this much late."""

K = TypeVar("K", bound=Hashable)


class TimerWheel(Generic[K]):
    """Timers by key: a value without a clock. Times are milliseconds on any clock that never goes back."""

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


class MachineDriver:
    """Empties the machine's outbox after each event. Create it on the running event loop."""

    def __init__(
        self, machine: GroupMachine, clock: Clock, *, find: Callable[[str], Group | None], store: Store
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._find = find
        self._store = store
        self._wheel: TimerWheel[TimerKey] = TimerWheel()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_running = False

    def run(self) -> None:
        """Carry out the consequences of the events so far, and what follows from them."""
        if self._is_running:
            # A store that ends at once, or an answer, has caused an event: the outer call processes it.
            return
        outbox = self._machine.outbox
        if outbox.is_empty:
            return
        self._is_running = True
        try:
            while not outbox.is_empty:
                replies, outbox.replies = outbox.replies, []
                timers, outbox.timers = outbox.timers, {}
                stores, outbox.stores = outbox.stores, []
                self._set_timers(timers)
                for reply, result in replies:
                    reply(result)
                for store in stores:
                    self._write(store)
        finally:
            self._is_running = False
        self._arm()

    def waiting(self) -> Counter[TimerKind]:
        """Return how many deadlines of each kind run."""
        return Counter(key.kind for key in self._wheel)

    def stop(self) -> None:
        """Cancel all deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self, store: StoreGroup) -> None:
        group = self._find(store.group_id)
        if group is None:
            return

        def stored(error: ErrorCode) -> None:
            self._machine.stored(group, store, error)
            self.run()

        self._store(group, store, stored)

    def _set_timers(self, timers: dict[TimerKey, int | None]) -> None:
        now_ms = self._clock.monotonic_ms()
        for key, delay_ms in timers.items():
            if delay_ms is None:
                self._wheel.stop(key)
            else:
                self._wheel.start(key, now_ms + delay_ms)

    def _arm(self) -> None:
        next_ms = self._wheel.next_ms()
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        self.stop()
        self._timer_ms = next_ms
        delay_ms = max(0, next_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for key in self._wheel.take_due(self._clock.monotonic_ms()):
            group = self._find(key.group_id)
            if group is not None:
                self._machine.timer_is_due(group, key)
        self.run()
        self._arm()
