"""The terminal that the dashboard draws on, which may vanish or stop taking output while the dashboard runs.

And the keys that come from it, where Textual takes ``esc`` and the next key for one.

One private part of Textual (8.2) is replaced here, and nowhere else: ``XTermParser``, which makes keys of bytes. To do
without that, Textual would need a method of the driver that makes the parser, or a setting that reports ``esc`` and the
key behind it as two. ``process_message``, which is public, comes too late: there ``esc`` before ``enter`` is gone, and
before ``1`` it is ``¡``. To rewrite the bytes before they are read would take a thread that knows pastes, replies of
the terminal and time-outs as the parser does.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from types import FrameType
from typing import Any, TextIO

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

OPENING = " klamm  opening the dashboard"
INTERRUPTED = 130
TERMINATED = 143
_CODES: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: TERMINATED}
ON_THE_WAY_MAX = 16_384
"""This many characters may be on their way to the terminal: a whole screen."""
_ORDER_MAX = 40
"""What is longer draws something; what is shorter may be an order to the terminal, which must not be lost."""
_TO_CLIPBOARD = "\x1b]"
_PIECE = 512
_LAST_WRITES_S = 1.0
_FULL_S = 0.1
_END_OF_UPDATE = "\x1b[?2026l"
"""What was dropped may have begun an update that the terminal shows only at its end."""
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
    """Writes without ever waiting for the terminal, which may be gone, or at the end of a line of a few kB a second.

    Textual's driver waits once 30 writes are on their way: no key is heard meanwhile, and all of them come before the
    end.
    """

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self._dashboard, self._runs_in, self._context = app, asyncio.get_running_loop(), copy_context()
        self._output: Output | None = None
        self._waiting: Callable[[], object] | None = None
        self._was_dropped = False
        """Something that was drawn did not reach the screen."""
        app.terminal = self

    def start_application_mode(self) -> None:
        """Take the screen, and say so at once: the first picture may take some tenths of a second."""
        assert sys.__stderr__ is not None
        self._output = Output(sys.__stderr__, partial(self._call, self._draw_waiting), self._on_gone)
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.write(f"\x1b[H{OPENING}")

    def write(self, data: str) -> None:
        """Write. While very much is on its way, what is drawn is left out, and then the whole screen is drawn."""
        output = self._output
        assert output is not None
        if output.left > ON_THE_WAY_MAX and len(data) > _ORDER_MAX and not data.startswith(_TO_CLIPBOARD):
            self._was_dropped = True
        else:
            output.put(data)

    def when_free(self, draw: Callable[[], object]) -> None:
        """Draw once the terminal has taken what was written; if more wishes come until then, the last one counts."""
        self._waiting = draw
        if self._output is not None and not self._output.left:
            self._draw_waiting()

    def _draw_waiting(self) -> None:
        draw, self._waiting = self._waiting, None
        if draw is not None:
            draw()
        if self._was_dropped:
            self._was_dropped = False
            self._dashboard.refresh()

    def stop_application_mode(self) -> None:
        """Give the screen back at once: nobody needs to see what is still on its way to it."""
        self._waiting = None
        if self._output is not None and self._output.drop():
            self.write(_END_OF_UPDATE)
        super().stop_application_mode()

    def close(self) -> None:
        """Wait for the last writes, but not long."""
        super().close()
        if self._output is not None:
            self._output.close()

    def run_input_thread(self) -> None:
        """Read keys with a parser of our own; Textual makes the parser in the loop that this begins."""
        linux_driver.XTermParser = partial(KeyParser, self._dashboard.session.registry.keys)  # type: ignore[attr-defined, assignment]
        super().run_input_thread()

    def _on_gone(self) -> None:
        self._call(self._dashboard.exit, TERMINATED)

    def _call(self, do: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop has ended before
            self._runs_in.call_soon_threadsafe(do, *arguments, context=self._context)


class Output:
    """A thread that writes to a terminal. A terminal that is gone takes everything, and drops it.

    Args:
        on_free: called in the thread when all is written.
        on_gone: called in the thread when the terminal is gone.
    """

    def __init__(self, file: TextIO, on_free: Callable[[], object], on_gone: Callable[[], object]) -> None:
        self._to, self._encoding = file.fileno(), file.encoding
        self._on_free, self._on_gone = on_free, on_gone
        self._texts: deque[str | None] = deque()
        self._changed = threading.Condition()
        self._drops = 0
        self._is_late = False
        """What goes to the clipboard has had its time."""
        self.left = 0
        """How many characters are still to be written."""
        self._thread = threading.Thread(target=self._run, name="terminal", daemon=True)
        self._thread.start()

    def put(self, text: str | None) -> None:
        """Have a text written after all others; None ends the thread."""
        with self._changed:
            self._texts.append(text)
            self.left += len(text or "")
            self._changed.notify()

    def drop(self) -> bool:
        """Forget what is not written yet, even the rest of what is being written; return whether there was any.

        What goes to the clipboard is not forgotten: it was said to be there.
        """
        with self._changed:
            had_any = self.left > 0
            kept = [text for text in self._texts if text is None or text.startswith(_TO_CLIPBOARD)]
            self._texts = deque(kept)
            self.left = sum(len(text or "") for text in kept)
            self._drops += 1
        return had_any

    def close(self) -> None:
        """Have the rest written; a terminal that takes nothing is left after a moment.

        A line that is too slow gets only a part of what goes to the clipboard: the screen is given back behind that.
        """
        self.put(None)
        self._thread.join(_LAST_WRITES_S)
        self._is_late = True
        self._thread.join(_LAST_WRITES_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._texts)
                text, drops = self._texts.popleft(), self._drops
            if text is None:
                return
            self._write(text.encode(self._encoding, "replace"), None if text.startswith(_TO_CLIPBOARD) else drops)
            with self._changed:
                if drops == self._drops:
                    self.left -= len(text)
                is_free = not self.left
            if is_free:
                self._on_free()

    def _write(self, data: bytes, drops: int | None) -> None:
        """Write in pieces: to take a whole screen may take a slow line seconds. None: it goes to the clipboard."""
        at = 0
        try:
            while at < len(data) and (not self._is_late if drops is None else drops == self._drops):
                try:
                    at += os.write(self._to, data[at : at + _PIECE])
                except BlockingIOError:
                    # Another program that has this terminal set it so. It is full, not gone.
                    select.select((), (self._to,), (), _FULL_S)
        except OSError:
            # Whatever is written later, by Python at its end too, would fail again.
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._to)
            os.close(nothing)
            self._on_gone()


@contextmanager
def signals_taken(end: Callable[[int], object]) -> Iterator[None]:
    """Inside, call ``end`` with the exit code when a signal asks for the end; a second such signal kills.

    Python's own handlers take them, so that the second one kills whatever the loop does. A signal that is ignored stays
    so: ``nohup`` has HUP ignored. Outside the main thread there are no signals: the program that runs us there ends us
    in its own way.
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
