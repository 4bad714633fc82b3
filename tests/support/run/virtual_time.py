"""An event loop whose clock jumps to the next timer instead of waiting; and a clock that a test moves.

Tests of time-outs take no time, and always run the same way. It works only for code without threads and sockets.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Never waits, but tells the loop how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everything waits and no timer is set: the test would hang forever")
        self.waited_s += max(0.0, timeout)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time, which starts at one hour."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return 3600.0 + self._jumping.waited_s


class LoopClock:
    """A ``Clock`` on the loop where it is made, which other threads may also read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return 1_795_000_000_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)


def in_virtual_time(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a coroutine as a test, on virtual time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(lambda: test(*args, **kwargs))

    return run


def run_virtual(test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test())  # type: ignore[arg-type]


class ManualClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Move both clocks forward by ``ms`` milliseconds."""
        self._now_ms += ms
        self._monotonic_ms += ms
