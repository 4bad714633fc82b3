"""The progress of long work: a line that is rewritten on a terminal, else a line at a bounded pace."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from cli.framework.talk import Talk, Verbosity
from cli.output.format import can_show_blocks, is_terminal
from engine.common.quantities import counted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_TERMINAL_PACE_S = 0.2
_LOG_PACE_S = 10.0
_BAR_WIDTH = 24


class _Line:
    """A line about work in progress: rewritten on a terminal, else written again, each at a bounded pace."""

    def __init__(self, talk: Talk) -> None:
        self._is_shown = talk.verbosity > Verbosity.QUIET
        self._is_terminal = is_terminal(sys.stderr)
        self._pace_s = _TERMINAL_PACE_S if self._is_terminal else _LOG_PACE_S
        self._started = self._shown_at = time.monotonic()
        self._has_line = False

    def _show(self, text_after: Callable[[float], str]) -> None:
        """Show the text for this many seconds, unless another one was shown a moment ago."""
        now = time.monotonic()
        if not self._is_shown or now - self._shown_at < self._pace_s:
            return
        self._shown_at = now
        text = text_after(now - self._started)
        sys.stderr.write(f"\r\x1b[K{text}" if self._is_terminal else f"{text}\n")
        sys.stderr.flush()
        self._has_line = self._is_terminal

    def end(self) -> None:
        if self._has_line:
            _clear_line()
            self._has_line = False


class Progress(_Line):
    """Shows work on stderr: how much is done, of how much if known, rate and time left. Quick work shows nothing."""

    def __init__(self, talk: Talk, verb: str, unit: str, total: int | None = None) -> None:
        super().__init__(talk)
        self._verb = verb
        self._unit = unit
        self._total = total

    def update(self, done: int, total: int | None = None) -> None:
        """Show the progress, unless it was shown a moment ago; ``total`` may become known on the way."""
        self._show(lambda elapsed_s: progress_line(self._verb, self._unit, done, total or self._total, elapsed_s))


class Activity(_Line):
    """Shows what long work without a known end is doing."""

    def __init__(self, talk: Talk, what: str) -> None:
        super().__init__(talk)
        self._what = what

    def update(self, text: str) -> None:
        """Say what is being done, unless something was said a moment ago."""
        self._show(lambda elapsed_s: f"{self._what}: {text}, {elapsed_s:.0f} s")


class Countdown:
    """How long something lasts: a line that counts down on a terminal, else one line. Needs a running event loop."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._is_terminal = is_terminal(sys.stderr) and talk.verbosity > Verbosity.QUIET
        self._task: asyncio.Task[None] | None = None
        self._has_shown = False

    def restart(self, what: str, left_s: float, more: str = "") -> None:
        """From now on it lasts this many seconds."""
        if not self._is_terminal:
            if not self._has_shown:
                self._talk.say(f"{what} for {left_s:g} s more{more}")
            self._has_shown = True
            return
        import asyncio

        self._stop()
        self._task = asyncio.get_running_loop().create_task(self._count(what, left_s, more), name="countdown")

    def __enter__(self) -> Countdown:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
            _clear_line()

    async def _count(self, what: str, left_s: float, more: str) -> None:
        import asyncio

        end = time.monotonic() + left_s
        while (left := end - time.monotonic()) > 0:
            sys.stderr.write(f"\r\x1b[K{what}: {left:.0f} s left{more}")
            sys.stderr.flush()
            await asyncio.sleep(min(1.0, left))


def _clear_line() -> None:
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()


def progress_line(verb: str, unit: str, done: int, total: int | None, elapsed_s: float) -> str:
    """Return one line: ``sent 1200 of 5000 records [####----] 400/s, 9 s left``."""
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    if total is None or total <= 0:
        named = counted(done, unit.removesuffix("s")) if unit.endswith("s") else f"{done} {unit}"
        return f"{verb} {named} ({rate:.0f}/s)"
    from cli.output.drawing import gauge

    bar = gauge(done / total, _BAR_WIDTH, has_blocks=can_show_blocks(sys.stderr))
    left = f", {max(total - done, 0) / rate:.0f} s left" if rate > 0 else ""
    return f"{verb} {done} of {total} {unit} {bar} {rate:.0f}/s{left}"
