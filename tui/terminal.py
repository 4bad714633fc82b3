"""The terminal that the dashboard draws on, which may vanish or stop taking output while the dashboard runs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any, cast

from textual.drivers.linux_driver import LinuxDriver

INTERRUPTED = 130
TERMINATED = 143
_CODES: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: TERMINATED}


class Terminal(LinuxDriver):
    """Ends the dashboard when its terminal is gone: Textual would wait forever until somebody takes the output."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        assert self._file is not None
        self._file = cast("Any", _Output(self._file, self._on_gone))

    def _on_gone(self) -> None:
        with suppress(RuntimeError):  # the loop has ended before
            self._loop.call_soon_threadsafe(self._app.exit, TERMINATED)


class _Output:
    """A terminal's output, which takes everything once the terminal is gone, and drops it. A thread writes to it."""

    def __init__(self, file: IO[str], on_gone: Callable[[], None]) -> None:
        self._file = file
        self._on_gone = on_gone

    def write(self, text: str) -> None:
        self._attempt(lambda: self._file.write(text))

    def flush(self) -> None:
        self._attempt(self._file.flush)

    def fileno(self) -> int:
        return self._file.fileno()

    def _attempt(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError:
            # What the file has kept would fail again, at the latest when Python ends.
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._file.fileno())
            os.close(nothing)
            self._on_gone()


@contextmanager
def signals_taken(end: Callable[[int], object]) -> Iterator[None]:
    """Inside, call ``end`` with the exit code when a signal asks for the end; a second such signal kills.

    Python's own handlers take them, for the loop may be waiting until the terminal takes its output. A signal that is
    ignored stays so: ``nohup`` has HUP ignored. Outside the main thread there are no signals: the program that runs us
    there ends us in its own way.
    """
    loop = asyncio.get_running_loop()

    def take(number: int, _: FrameType | None) -> None:
        if number != signal.SIGHUP:  # the kernel may send it twice
            signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(end, _CODES[number])

    before = {number: signal.getsignal(number) for number in _CODES}
    with suppress(ValueError):
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, take)
    try:
        yield
    finally:
        with suppress(ValueError):
            for number, handler in before.items():
                signal.signal(number, handler)
