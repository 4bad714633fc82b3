"""How fast connections may come: to the broker, to each of its listeners, and from each address (KIP-612).

A listener that is above its rate, or whose broker is, lets connections in one by one, each after its wait. A connection
from an address that is above its own rate is closed after its wait. No wait is longer than one sample of the window.
Where there is no room, connections wait until others have ended; the server says where there is. Whoever's turn it is
is refused if its address already has as many as it may.
Source: ConnectionQuotas of Kafka 3.9, which closes those first whose wait ends last: under a steady stream, too late.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from engine.common.clock import Clock
from engine.common.windowed_rate import METRICS_WINDOW, Window, WindowedAverage, WindowedRate

logger = logging.getLogger(__name__)

UNLIMITED: Final = 2**31 - 1

ADDRESSES_MAX: Final = 10_000
"""From this many addresses on, those that the window holds nothing of are forgotten."""


@dataclass(frozen=True, slots=True)
class CreationLimits:
    """Connections a second."""

    broker: int = UNLIMITED
    listeners: Mapping[str, int] = field(default_factory=dict)


class Newcomer(Protocol):
    """A connection that has just been accepted."""

    @property
    def is_closed(self) -> bool: ...
    @property
    def is_let_in(self) -> bool: ...
    def hold(self) -> None:
        """Read nothing from it until ``let_in``."""

    def let_in(self) -> None: ...
    def turn_away(self, after_ms: int) -> None:
        """Close it after this time."""

    def refuse(self, most: int) -> None:
        """Close it: its address has ``most`` already, and may not have more."""


class _Rate:
    """One rate. It counts without a limit, too: as in Kafka, what came just before a limit was set uses some of it."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._counted: WindowedRate | None = None

    def count(self, limit: int, now_ms: int) -> int:
        """Count a connection; return for how many milliseconds the next must wait."""
        if self._counted is None:
            self._counted = WindowedRate(self._window, now_ms)
        self._counted.record(1, now_ms)
        if limit == UNLIMITED:
            return 0
        return round(min(self._counted.ms_until(limit, now_ms), self._window.sample_ms))

    def per_second(self, now_ms: int) -> float:
        return 0.0 if self._counted is None else self._counted.per_second(now_ms)

    def take_back(self, now_ms: int) -> None:
        """Stop counting a connection."""
        if self._counted is not None:
            self._counted.record(-1, now_ms)

    def is_idle(self, now_ms: int) -> bool:
        return self._counted is None or now_ms - self._counted.last_ms > self._window.whole_ms


class _Gate:
    """One listener's connections on their way in."""

    def __init__(self, window: Window, metrics_window: Window) -> None:
        self.rate = _Rate(window)
        self.inside = 0
        """How many were let in and have not ended."""
        self.waiting: dict[Newcomer, str] = {}
        """Those on their way in with their addresses, in their order."""
        self.is_first_counted = False
        """Whether the rates have the first of them."""
        self.full_since_ms: int | None = None
        """When the first of them was last found to lack room; None: it has some, or waits for its rate."""
        self.throttle_ms = WindowedAverage(metrics_window)
        self.address_throttle_ms = WindowedAverage(metrics_window)
        """How long connections from addresses above their own rates waited for their end."""
        self.timer: asyncio.TimerHandle | None = None
        self.blocked_ms = 0


class ConnectionRates:
    """Lets connections in as fast as the limits allow. Belongs to the event loop's thread."""

    def __init__(
        self,
        window: Window,
        clock: Clock,
        protected: frozenset[str],
        find_room: Callable[[str], bool] = lambda listener: True,
        metrics_window: Window = METRICS_WINDOW,
        most_from: Callable[[str], int] = lambda address: UNLIMITED,
    ) -> None:
        """``protected`` are the listeners to which the broker's own limit does not apply.

        ``find_room`` says whether a listener may have one more connection now, ``most_from`` how many an address may
        have. ``metrics_window`` is for the means of how long connections waited.
        """
        self.limits = CreationLimits()
        self._find_room = find_room
        self._most_from = most_from
        self._window = window
        self._metrics_window = metrics_window
        self._clock = clock
        self.protected = protected
        self._broker = _Rate(window)
        self._gates: dict[str, _Gate] = {}
        self._addresses: dict[str, _Rate] = {}
        self._inside_from: Counter[str] = Counter()
        """By address."""
        self._limit_of_address: dict[str | None, int] = {}

    @property
    def waiting(self) -> int:
        """How many connections wait."""
        return sum(len(gate.waiting) for gate in self._gates.values())

    @property
    def inside(self) -> int:
        """How many connections were let in and have not ended."""
        return sum(gate.inside for gate in self._gates.values())

    def inside_of(self, listener: str) -> int:
        """Return how many of them a listener has."""
        gate = self._gates.get(listener)
        return 0 if gate is None else gate.inside

    def waiting_at(self, listener: str) -> int:
        """Return how many of them wait at a listener, for room or for a rate."""
        gate = self._gates.get(listener)
        return 0 if gate is None else len(gate.waiting)

    def accept_rate(self, listener: str | None = None) -> float:
        """Return the connections a second of a listener, or (None) of all to which the broker's own limit applies.

        It is the rate that the limits are compared with, over the window of quotas.
        """
        gate = None if listener is None else self._gates.get(listener)
        rate = self._broker if listener is None else None if gate is None else gate.rate
        return 0.0 if rate is None else rate.per_second(self._clock.monotonic_ms())

    def throttle_times_ms(self, listener: str) -> tuple[float, float]:
        """Return how long connections waited on average: for a listener or the broker, and for their own address."""
        gate, now_ms = self._gates.get(listener), self._clock.monotonic_ms()
        if gate is None:
            return math.nan, math.nan
        return gate.throttle_ms.value(now_ms), gate.address_throttle_ms.value(now_ms)

    def blocked_ms(self, listener: str) -> int:
        """Return for how long a listener has let no connection in since the start, because of a rate or for want of
        room.
        """
        gate = self._gates.get(listener)
        return 0 if gate is None else gate.blocked_ms

    def of_addresses(self) -> Iterator[tuple[str, float]]:
        """Yield each address that has a limit and came lately, with its connections per second."""
        now_ms = self._clock.monotonic_ms()
        for address, rate in list(self._addresses.items()):
            if not rate.is_idle(now_ms):
                yield address, rate.per_second(now_ms)

    def limit_address(self, address: str | None, limit: int | None) -> None:
        """Set or (None) drop the limit of one address, or (address None) of all that have none of their own."""
        if limit is None:
            self._limit_of_address.pop(address, None)
        else:
            self._limit_of_address[address] = limit

    def admit(self, newcomer: Newcomer, listener: str, address: str) -> None:
        """Let a connection in, now or later, or turn it away."""
        gate = self._gates.get(listener)
        if gate is None:
            gate = self._gates[listener] = _Gate(self._window, self._metrics_window)
        gate.waiting[newcomer] = address
        if gate.timer is None:
            self._open(gate, listener)
        if newcomer in gate.waiting:
            newcomer.hold()

    def ended(self, newcomer: Newcomer, listener: str, address: str) -> None:
        """Note that a connection has ended, whether it was let in or not: others may have its place."""
        gate = self._gates.get(listener)
        if gate is None:
            return
        if newcomer.is_let_in:
            gate.inside -= 1
            self._inside_from[address] -= 1
            if not self._inside_from[address]:
                del self._inside_from[address]
        elif newcomer in gate.waiting:
            gate.is_first_counted = gate.is_first_counted and newcomer is not next(iter(gate.waiting))
            del gate.waiting[newcomer]
        self.look_for_room()

    def look_for_room(self) -> None:
        """Let in those who wait for room, where there is some now; brokers first, for whom clients would go again."""
        full = [listener for listener, gate in self._gates.items() if gate.full_since_ms is not None]
        for listener in sorted(full, key=lambda name: name not in self.protected):
            self._open(self._gates[listener], listener)

    def stop(self) -> None:
        """Let no connection in any more."""
        for gate in self._gates.values():
            gate.waiting.clear()
            if gate.timer is not None:
                gate.timer.cancel()

    def _open(self, gate: _Gate, listener: str) -> None:
        """Let in those whose turn it is; each is counted when it comes to the front, waits, and then needs room."""
        gate.timer = None
        if gate.full_since_ms is not None:
            gate.blocked_ms += self._clock.monotonic_ms() - gate.full_since_ms
            gate.full_since_ms = None
        while gate.waiting:
            newcomer = next(iter(gate.waiting))
            if not gate.is_first_counted and not newcomer.is_closed:
                gate.is_first_counted = True
                wait_ms = self._count(gate, listener)
                if wait_ms > 0:
                    gate.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._open, gate, listener)
                    return
            if not newcomer.is_closed and not self._find_room(listener):
                gate.full_since_ms = self._clock.monotonic_ms()
                return
            gate.is_first_counted = False
            self._let_first_in(gate, listener)

    def _count(self, gate: _Gate, listener: str) -> int:
        now_ms = self._clock.monotonic_ms()
        wait_ms = gate.rate.count(self.limits.listeners.get(listener, UNLIMITED), now_ms)
        if listener not in self.protected:
            wait_ms = max(wait_ms, self._broker.count(self.limits.broker, now_ms))
        if wait_ms > 0:
            gate.throttle_ms.record(wait_ms, now_ms)
            gate.blocked_ms += wait_ms
        return wait_ms

    def _let_first_in(self, gate: _Gate, listener: str) -> None:
        newcomer = next(iter(gate.waiting))
        address = gate.waiting.pop(newcomer)
        if newcomer.is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        wait_ms = self._count_address(address, now_ms)
        if wait_ms == 0:
            self._let_in_or_refuse(newcomer, gate, address)
            return
        gate.address_throttle_ms.record(wait_ms, now_ms)
        gate.rate.take_back(now_ms)
        if listener not in self.protected:
            self._broker.take_back(now_ms)
        newcomer.turn_away(wait_ms)

    def _let_in_or_refuse(self, newcomer: Newcomer, gate: _Gate, address: str) -> None:
        if self._inside_from[address] >= (most := self._most_from(address)):
            newcomer.refuse(most)
            return
        gate.inside += 1
        self._inside_from[address] += 1
        newcomer.let_in()

    def _count_address(self, address: str, now_ms: int) -> int:
        limit = self._limit_of_address.get(address, self._limit_of_address.get(None, UNLIMITED))
        if limit == UNLIMITED:
            return 0
        if address not in self._addresses and len(self._addresses) >= ADDRESSES_MAX:
            self._addresses = {name: rate for name, rate in self._addresses.items() if not rate.is_idle(now_ms)}
        rate = self._addresses.setdefault(address, _Rate(self._window))
        wait_ms = rate.count(limit, now_ms)
        if wait_ms > 0:
            rate.take_back(now_ms)
        return wait_ms
