"""How fast connections may come: to the broker, to each of its listeners, and from each address (KIP-612).

A listener that is above its rate, or whose broker is, lets connections in one by one, each after its wait. A connection
from an address that is above its own rate is closed after its wait. No wait is longer than one sample of the window.
Source: ConnectionQuotas of Kafka 3.9, which closes those first whose wait ends last: under a steady stream, too late.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping
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
    def hold(self) -> None:
        """Read nothing from it until ``let_in``."""

    def let_in(self) -> None: ...
    def turn_away(self, after_ms: int) -> None:
        """Close it after this time."""


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

    def __init__(self, window: Window) -> None:
        self.rate = _Rate(window)
        self.waiting: deque[tuple[Newcomer, str]] = deque()
        self.throttle_ms = WindowedAverage(METRICS_WINDOW)
        self.address_throttle_ms = WindowedAverage(METRICS_WINDOW)
        """How long connections from addresses above their own rates waited for their end."""
        self.timer: asyncio.TimerHandle | None = None
        self.blocked_ms = 0


class ConnectionRates:
    """Lets connections in as fast as the limits allow. Belongs to the event loop's thread."""

    def __init__(self, window: Window, clock: Clock, protected: frozenset[str]) -> None:
        """``protected`` are the listeners to which the broker's own limit does not apply."""
        self.limits = CreationLimits()
        self._window = window
        self._clock = clock
        self.protected = protected
        self._broker = _Rate(window)
        self._gates: dict[str, _Gate] = {}
        self._addresses: dict[str, _Rate] = {}
        self._limit_of_address: dict[str | None, int] = {}

    @property
    def waiting(self) -> int:
        """How many connections wait."""
        return sum(len(gate.waiting) for gate in self._gates.values())

    def throttle_times_ms(self, listener: str) -> tuple[float, float]:
        """Return how long connections waited on average: for a listener or the broker, and for their own address."""
        gate, now_ms = self._gates.get(listener), self._clock.monotonic_ms()
        if gate is None:
            return math.nan, math.nan
        return gate.throttle_ms.value(now_ms), gate.address_throttle_ms.value(now_ms)

    def blocked_ms(self, listener: str) -> int:
        """Return for how long a listener has let no connection in since the start, because of a rate."""
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
            gate = self._gates[listener] = _Gate(self._window)
        gate.waiting.append((newcomer, address))
        if gate.timer is None:
            self._open(gate, listener)
        if gate.waiting and gate.waiting[-1][0] is newcomer:
            newcomer.hold()

    def stop(self) -> None:
        """Let no connection in any more."""
        for gate in self._gates.values():
            gate.waiting.clear()
            if gate.timer is not None:
                gate.timer.cancel()

    def _open(self, gate: _Gate, listener: str) -> None:
        """Let in those whose turn it is; each is counted when it comes to the front, and then waits."""
        gate.timer = None
        while gate.waiting:
            newcomer, _ = gate.waiting[0]
            wait_ms = 0 if newcomer.is_closed else self._count(gate, listener)
            if wait_ms > 0:
                gate.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._after_wait, gate, listener)
                return
            self._let_first_in(gate, listener)

    def _after_wait(self, gate: _Gate, listener: str) -> None:
        self._let_first_in(gate, listener)
        self._open(gate, listener)

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
        newcomer, address = gate.waiting.popleft()
        if newcomer.is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        wait_ms = self._count_address(address, now_ms)
        if wait_ms == 0:
            newcomer.let_in()
            return
        gate.address_throttle_ms.record(wait_ms, now_ms)
        gate.rate.take_back(now_ms)
        if listener not in self.protected:
            self._broker.take_back(now_ms)
        newcomer.turn_away(wait_ms)

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
