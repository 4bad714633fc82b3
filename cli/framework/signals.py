"""In the foreground, TERM, INT and HUP end a start at once; after it, the program waits for them."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_LOOK_EVERY_S = 0.5
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """Catches the signals that ask to stop, from the first moment on, so that none ends the program unhandled.

    While something is being started each of them is a KeyboardInterrupt, which undoes the start. After ``hold`` they
    are kept for ``wait``.
    """

    def __init__(self) -> None:
        self._awake, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._is_held = False
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._handle) for number in _STOP_SIGNALS}
        self._wakeup_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._awake)
        os.close(self._wake)

    def hold(self) -> None:
        """From now on keep signals for ``wait``."""
        self._is_held = True

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Inside, a signal is a KeyboardInterrupt again; so is one that was kept until now."""
        self._is_held = False
        try:
            if select.select([self._awake], [], [], 0)[0] and self._is_stop_asked():
                raise KeyboardInterrupt
            yield
        finally:
            self._is_held = True

    def wait_for_input(self, descriptor: int) -> bool:
        """Wait until there is input or its end; return False when a signal asks to stop."""
        readable, _, _ = select.select([self._awake, descriptor], [], [])
        return not (self._awake in readable and self._is_stop_asked())

    def wait(self, is_running: Callable[[], bool]) -> bool:
        """Return True when a signal asks to stop, even a kept one; False when what is watched has ended by itself."""
        while is_running():
            readable, _, _ = select.select([self._awake], [], [], _LOOK_EVERY_S)
            if readable and self._is_stop_asked():
                return True
        return False

    def _is_stop_asked(self) -> bool:
        return bool(set(os.read(self._awake, 64)) & set(_STOP_SIGNALS))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Do nothing for a held signal: Python has written its byte into the pipe."""
        if not self._is_held:
            raise KeyboardInterrupt
