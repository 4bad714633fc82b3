"""Measures how long the event loop was blocked: the engine promises that nothing blocks it for 50 ms."""

from __future__ import annotations

import asyncio

PROBE_INTERVAL_MS = 100


class LoopLagGauge:
    """Asks the loop for callbacks at a fixed interval and notes how late they come."""

    def __init__(self) -> None:
        self.lag_ms_max = 0.0
        self.lag_ms_last = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Start probing the running loop."""
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + PROBE_INTERVAL_MS / 1000
        self._handle = loop.call_at(self._due_s, self._probe)

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
        loop = asyncio.get_running_loop()
        self.lag_ms_last = max(0.0, (loop.time() - self._due_s) * 1000)
        self.lag_ms_max = max(self.lag_ms_max, self.lag_ms_last)
        self._due_s = loop.time() + PROBE_INTERVAL_MS / 1000
        self._handle = loop.call_at(self._due_s, self._probe)
