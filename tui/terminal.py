"""The terminal that the dashboard draws on, which may vanish or stop taking output while the dashboard runs.

And the keys that come from it, where Textual takes ``esc`` and the next key for one.

Two private parts of Textual (8.2) are replaced here, and nowhere else. To do without them it would need:

* ``XTermParser``, which makes keys of bytes: a method of the driver that makes the parser, or a setting that tells
  ``esc`` and the key behind it as two. ``process_message``, which is public, comes too late: there ``esc`` before
  ``enter`` is gone, and before ``1`` it is ``¡``. To rewrite the bytes before they are read would take a thread that
  knows pastes, replies of the terminal and time-outs as the parser does.
* ``_file``, the output of the driver: an argument for it. The driver takes ``sys.__stderr__``, which is final.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import IO, Any, cast

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

OPENING = " klamm  opening the dashboard"
INTERRUPTED = 130
TERMINATED = 143
_CODES: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: TERMINATED}
_ESC = "\x1b"
_NOT_AFTER_ESC = frozenset("[Obf\t\x7f")
"""What may follow ``esc`` in one key: sequences of more bytes begin with ``[`` and ``O``, and in a field alt with
``b``, ``f`` and backspace goes by words.
"""


class KeyParser(XTermParser):
    """Reads ``esc`` and a key that follows at once as these two keys.

    A terminal sends the same bytes for both as for alt and the key, which Textual makes of them: it would lose ``esc``
    before ``enter``, and both before a letter or a digit. Alt means something only where ``keys.toml`` says so.
    """

    def __init__(self, bound: Collection[str], debug: bool = False) -> None:
        self._bound = bound
        super().__init__(debug)

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        # Textual waits for the rest of what begins with ``O``, and reports it as ``alt`` if none comes.
        is_cut = alt and sequence == "O"
        if is_cut or (len(sequence) == 2 and sequence[0] == _ESC and sequence[1] not in _NOT_AFTER_ESC):
            with_alt = super()._sequence_to_key_events(sequence[-1], alt=True)
            alt = any(event.key in self._bound for event in with_alt if event.key.startswith("alt+"))
            if not alt:
                yield events.Key("escape", _ESC)
            sequence = sequence[-1]
        yield from super()._sequence_to_key_events(sequence, alt)


class Terminal(LinuxDriver):
    """Ends the dashboard when its terminal is gone: Textual would wait forever for its output to be taken."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self._dashboard, self._runs_in = app, asyncio.get_running_loop()
        assert self._file is not None
        self._file = cast("Any", _Output(self._file, self._on_gone))

    def start_application_mode(self) -> None:
        """Take the screen, and say so at once: the first picture may take some tenths of a second."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.write(f"\x1b[H{OPENING}")
        self.flush()

    def run_input_thread(self) -> None:
        """Read keys with a parser of our own; Textual makes the parser in the loop that this begins."""
        linux_driver.XTermParser = partial(KeyParser, self._dashboard.session.registry.keys)  # type: ignore[attr-defined, assignment]
        super().run_input_thread()

    def _on_gone(self) -> None:
        with suppress(RuntimeError):  # the loop has ended before
            self._runs_in.call_soon_threadsafe(self._dashboard.exit, TERMINATED)


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
