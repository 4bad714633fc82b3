"""Data on its way out, and what happens when the reader has gone (``klamm … | head``)."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from cli.exit_codes import ExitCode
from cli.output.format import is_terminal
from cli.output.values import escape_for_terminal

STDOUT = "stdout"
_LOSSES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class OutputClosed(Exception):
    """Nobody reads our output any more; the command ends, and that is not an error."""


class TerminalData:
    """Data that a terminal shows: its control characters are escaped, so that it cannot give the terminal orders."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(escape_for_terminal(text))

    def writelines(self, texts: Iterable[str]) -> None:
        """Write pieces of data one after the other."""
        for text in texts:
            self.write(text)


@contextmanager
def data_stream() -> Iterator[TextIO | TerminalData]:
    """Yield where data goes, and flush it at the end: stdout, as it is in a file or pipe, escaped on a terminal.

    Raises OutputClosed if the reader has gone.
    """
    with drawing_stream() as stream:
        yield TerminalData(stream) if is_terminal(stream) else stream


@contextmanager
def drawing_stream() -> Iterator[TextIO]:
    """Yield stdout for what moves the cursor or has colours, and escapes its data itself; flush it at the end.

    Raises OutputClosed if the reader has gone.
    """
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error
    except OSError as error:
        if error.errno in _LOSSES and error.filename is None:
            error.filename = STDOUT
            _discard_the_rest()
        raise


def write_bytes(chunks: Iterable[bytes]) -> None:
    """Write data that need not be text to stdout, as ``data_stream`` does."""
    with data_stream() as stream:
        for chunk in chunks:
            if isinstance(stream, TerminalData):
                stream.write(chunk.decode("utf-8", "backslashreplace"))
            else:
                stream.buffer.write(chunk)


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
    _discard_the_rest()
    return ExitCode.DONE


def _discard_the_rest() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
