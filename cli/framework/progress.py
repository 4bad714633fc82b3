"""How far long work has come: a line that is rewritten on a terminal, else a line at a bounded pace."""

from __future__ import annotations

import sys
import time

from cli.framework.talk import Talk, Verbosity
from cli.framework.terminal import is_terminal

_TERMINAL_PACE_S = 0.2
_LOG_PACE_S = 10.0
_BAR_WIDTH = 24


class Progress:
    """Tells of work on stderr: done, of how many if that is known, rate and time left. Quick work says nothing."""

    def __init__(self, talk: Talk, verb: str, unit: str, total: int | None = None) -> None:
        self._verb = verb
        self._unit = unit
        self._total = total
        self._is_shown = talk.verbosity > Verbosity.QUIET
        self._is_terminal = is_terminal(sys.stderr)
        self._pace_s = _TERMINAL_PACE_S if self._is_terminal else _LOG_PACE_S
        self._started = self._told = time.monotonic()
        self._has_line = False

    def update(self, done: int, total: int | None = None) -> None:
        """Say how far it is, unless that was said a moment ago; ``total`` where it is learnt on the way."""
        now = time.monotonic()
        if not self._is_shown or now - self._told < self._pace_s:
            return
        self._told = now
        text = progress_line(self._verb, self._unit, done, total or self._total, now - self._started)
        sys.stderr.write(f"\r\x1b[K{text}" if self._is_terminal else f"{text}\n")
        sys.stderr.flush()
        self._has_line = self._is_terminal

    def end(self) -> None:
        """Take the line away."""
        if self._has_line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._has_line = False


def progress_line(verb: str, unit: str, done: int, total: int | None, elapsed_s: float) -> str:
    """Return one line: ``sent 1200 of 5000 records [####----] 400/s, 9 s left``."""
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    if total is None or total <= 0:
        return f"{verb} {done} {unit} ({rate:.0f}/s)"
    filled = _BAR_WIDTH * min(done, total) // total
    bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
    left = f", {(total - done) / rate:.0f} s left" if rate > 0 else ""
    return f"{verb} {done} of {total} {unit} [{bar}] {rate:.0f}/s{left}"
