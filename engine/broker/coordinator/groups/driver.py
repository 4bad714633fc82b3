"""Carries out the group state machine's outbox: answers, stores, and one loop timer for all deadlines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from engine.broker.coordinator.groups.group import Group
from engine.broker.coordinator.groups.machine import GroupMachine
from engine.broker.coordinator.groups.outbox import StoreGroup, TimerKey, TimerKind
from engine.broker.coordinator.timers import TimerWheel
from engine.common.clock import Clock
from engine.common.errors import ErrorCode

Store = Callable[[Group, StoreGroup, Callable[[ErrorCode], None]], None]
"""Writes a group and reports the result, at once or later."""


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
