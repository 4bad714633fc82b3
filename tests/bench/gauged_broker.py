"""``python gauged_broker.py FILE.properties``: a broker that notes how long its event loop is held, for benchmarks.

Every 10 ms it asks for a callback, and notes how late that came and how much CPU the loop's thread used meanwhile. On a
shared machine only the second figure is the broker's own. SIGUSR1 writes the maxima of both since the last time to
``loop-held.json`` beside the properties. Once a file ``idle`` exists there, the gauge stops for good.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

from engine.broker.server.process import main
from engine.runtime.loop_lag import LoopLagGauge

INTERVAL_S = 0.01
HERE = Path(sys.argv[-1]).parent


class _HeldGauge:
    """The largest hold of the loop: wall clock, and CPU time of its thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wall_ms = self._cpu_ms = 0.0
        self._due_s = self._cpu_s = 0.0
        self._loop.add_signal_handler(signal.SIGUSR1, self._tell)
        self._arm()

    def _arm(self) -> None:
        self._due_s, self._cpu_s = self._loop.time() + INTERVAL_S, time.thread_time()
        self._loop.call_at(self._due_s, self._probe)

    def _probe(self) -> None:
        self._wall_ms = max(self._wall_ms, (self._loop.time() - self._due_s) * 1000)
        self._cpu_ms = max(self._cpu_ms, (time.thread_time() - self._cpu_s) * 1000)
        if not (HERE / "idle").exists():
            self._arm()

    def _tell(self) -> None:
        partial = HERE / "loop-held.part"
        partial.write_text(json.dumps({"wall_ms": self._wall_ms, "cpu_ms": self._cpu_ms}), "utf-8")
        partial.rename(HERE / "loop-held.json")
        self._wall_ms = self._cpu_ms = 0.0


def _gauge_along(self: LoopLagGauge) -> None:
    _start(self)
    _HeldGauge()


_start = LoopLagGauge.start
LoopLagGauge.start = _gauge_along  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main())
