"""Messages to the user: everything that is not data, on stderr. Data never goes through here."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum

from cli.framework.failure import Failure
from cli.output.format import has_colour, is_terminal
from cli.output.values import escape_for_terminal


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end what blocks here: an event loop's own handler only takes note of the first one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Verbosity(IntEnum):
    """How much klamm writes to stderr."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


class Talk:
    """Says things on stderr. ``say`` is silenced by --quiet, ``detail`` needs --verbose, errors always come."""

    def __init__(
        self, verbosity: Verbosity = Verbosity.NORMAL, *, is_json: bool = False, is_terse: bool = False
    ) -> None:
        """``is_terse``: warnings and errors are all it says, since the report has Kafka's own words."""
        self.verbosity = verbosity
        self.is_json = is_json
        self.is_terse = is_terse
        self._has_line = False

    @property
    def is_verbose(self) -> bool:
        return self.verbosity >= Verbosity.VERBOSE and not self.is_terse

    @property
    def can_ask(self) -> bool:
        """Whether a user can answer: stdin and stderr are terminals."""
        return is_terminal(sys.stdin) and is_terminal(sys.stderr)

    @property
    def can_show(self) -> bool:
        """Whether a temporary line can be shown."""
        return self.verbosity > Verbosity.QUIET and not self.is_json and is_terminal(sys.stderr)

    def show(self, text: str) -> None:
        """Show on a terminal what is going on, in a line that the next message replaces."""
        if self.can_show:
            sys.stderr.write(f"\r\x1b[K{escape_for_terminal(text)}")
            sys.stderr.flush()
            self._has_line = True

    def clear(self) -> None:
        """Remove the line that ``show`` has left."""
        if self._has_line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._has_line = False

    def say(self, text: str) -> None:
        if self.verbosity > Verbosity.QUIET and not self.is_terse:
            self._write(escape_for_terminal(text))

    def remind(self, text: str) -> None:
        """Say what klamm leaves behind, such as a way back; even beside Kafka's own words."""
        if self.verbosity > Verbosity.QUIET:
            self._write(escape_for_terminal(text))

    def warn(self, text: str) -> None:
        if self.verbosity > Verbosity.QUIET:
            self._write(f"{self._styled('warning:', '33')} {escape_for_terminal(text)}")

    def detail(self, text: str) -> None:
        if self.is_verbose:
            self._write(self._styled(escape_for_terminal(text), "2"))

    def fail(self, failure: Failure) -> None:
        """Print an error: one line, then the hint; in JSON mode one object on one line."""
        if self.is_json:
            self.tell({"error": failure.as_json()})
            return
        self._write(f"{self._styled('error:', '1;31')} {failure.line}")
        if failure.hint:
            self._write(f"{self._styled('hint:', '36')} {escape_for_terminal(failure.hint)}")

    def echo(self, text: str) -> None:
        """Write text as it is, line ends included."""
        self.clear()
        sys.stderr.write(escape_for_terminal(text))
        sys.stderr.flush()

    def tell(self, said: Mapping[str, object]) -> None:
        """Print an object on one line, for programs."""
        self._write(json.dumps(said, ensure_ascii=False))

    def ask(self, question: str, *, is_yes_default: bool) -> bool:
        """Ask a yes-or-no question; an empty answer is the default, the end of input is no."""
        choice = "[Y/n]" if is_yes_default else "[y/N]"
        self.clear()
        with _interruptible():
            sys.stderr.write(f"{escape_for_terminal(question)} {choice} ")
            sys.stderr.flush()
            answer = sys.stdin.readline()
        if not answer:
            self._write("")
            return False
        word = answer.strip().lower()
        return is_yes_default if not word else word in ("y", "yes")

    def ask_secret(self, question: str) -> str:
        """Ask for a text that the terminal does not show."""
        from getpass import getpass

        self.clear()
        with _interruptible():
            return getpass(question)

    def _styled(self, text: str, codes: str) -> str:
        return f"\x1b[{codes}m{text}\x1b[0m" if has_colour(sys.stderr) else text

    def _write(self, text: str) -> None:
        self.clear()
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
