"""Waiting in the foreground: until TERM, INT or HUP, or until what is watched has ended."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType

_LOOK_EVERY_S = 0.5
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def until_signal(is_running: Callable[[], bool]) -> bool:
    """Wait; return True when a signal asked to stop, False when what is watched has ended by itself."""
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    before = {number: signal.signal(number, _nothing_more) for number in _STOP_SIGNALS}
    wakeup_before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        while is_running():
            readable, _, _ = select.select([awake], [], [], _LOOK_EVERY_S)
            if readable and set(os.read(awake, 64)) & set(_STOP_SIGNALS):
                return True
        return False
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(awake)
        os.close(wake)


def _nothing_more(number: int, frame: FrameType | None) -> None:
    """The byte in the wake-up pipe says it all."""
