"""Data on its way out, and what happens when the reader has gone (``klamm … | head``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from cli.exit_codes import ExitCode


class OutputClosed(Exception):
    """Nobody reads our output any more; the command ends, and that is no error."""


@contextmanager
def data_stream() -> Iterator[TextIO]:
    """Yield stdout, and flush it at the end. Raises OutputClosed if its reader has gone."""
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error


def check_reader() -> None:
    """Raise OutputClosed if stdout's reader has gone: a command with nothing to write would not notice."""
    import select

    try:
        stdout = sys.stdout.fileno()
    except (OSError, ValueError):
        # Not a system file: it has no reader that can go away.
        return
    poll = select.poll()
    poll.register(stdout, 0)
    if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        raise OutputClosed


def closed_pipe() -> int:
    """Make the interpreter's last flush harmless and return the exit code of a command whose reader has gone."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return ExitCode.DONE
