"""Measures how long the event loop was blocked: the engine promises that nothing blocks it for 50 ms."""

from __future__ import annotations

import asyncio

PROBE_INTERVAL_S = 0.1


class LoopLagGauge:
    """Asks the loop for callbacks at a fixed interval and notes how late they come."""

    def __init__(self) -> None:
        self.lag_ms_max = 0.0
        self.lag_ms_last = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Start probing the running loop."""
        self._loop = asyncio.get_running_loop()
        self._due_s = self._loop.time() + PROBE_INTERVAL_S
        self._handle = self._loop.call_at(self._due_s, self._probe)

    def take_max_ms(self) -> float:
        """Return the largest lag since the last call, in milliseconds, and start over."""
        lag_ms, self.lag_ms_max = self.lag_ms_max, 0.0
        return lag_ms

    def stop(self) -> None:
        """Stop probing."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _probe(self) -> None:
        # Of what an idle broker does, this is done most often.
        now_s = self._loop.time()
        self.lag_ms_last = lag_ms = (now_s - self._due_s) * 1000 if now_s > self._due_s else 0.0
        if lag_ms > self.lag_ms_max:
            self.lag_ms_max = lag_ms
        self._due_s = now_s + PROBE_INTERVAL_S
        self._handle = self._loop.call_at(self._due_s, self._probe)
