"""Handles what must be ready before anything else is loaded: Ctrl-C and missing streams. Loads next to nothing.

It handles Ctrl-C before and after a command runs, when there is nothing to undo.

Python's own way, an exception between any two instructions, would show a traceback from the middle of an import. Here
the program prints one line and exits. While a command runs, ``interruptible`` restores Python's way, because the
command must close connections and say what it leaves running in the cluster.
"""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""The exit code: the value of ``ExitCode.INTERRUPTED``, without loading enums."""

_PLAINER = "klamm.plainer"
_PLAIN = {"→": "->", "←": "<-", "…": "...", "–": "-", "—": "-", "·": "-", "×": "x", "≥": ">=", "≤": "<=", "−": "-"}
_PLAIN |= {"’": "'", "“": '"', "”": '"', "•": "*", "✓": "ok", "▲": "^", "▼": "v", "│": "|", "─": "-", "░": "."}
"""Replacements for characters of ours that a stream's encoding lacks. In data, an escape replaces them."""

_JSON = ("json", "jsonl")
_LINE = b"error: interrupted\n"
_OBJECT = b'{"error": {"code": 130, "kind": "interrupted", "message": "interrupted", "hint": null}}\n'


def guard_start() -> None:
    """From now on Ctrl-C ends the program at once, with one line. If the caller ignores it, it stays ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end_at_once)


def open_missing_streams() -> None:
    """Open the null device in place of a closed stdin, stdout or stderr: daemons and ``>&-`` close them.

    Otherwise Python has None there, and the next socket gets that descriptor: printed text would go into it. Data for
    a closed stdout fails the command, as it does in coreutils, so that no script takes its absence for an answer.
    """
    for number, name, mode, access in (
        (0, "stdin", "r", os.O_RDONLY),
        (1, "stdout", "w", os.O_RDONLY),
        (2, "stderr", "w", os.O_WRONLY),
    ):
        try:
            os.fstat(number)
        except OSError:
            # Those below are open by now, so it gets this number.
            os.open(os.devnull, access)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def soften_encodings() -> None:
    """On a terminal or pipe that is not UTF-8, write plainer characters, so that no character fails a command."""
    codecs.register_error(_PLAINER, _plainer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not (stream.encoding or "").lower().startswith("utf"):
            stream.reconfigure(errors=_PLAINER)


def _plainer(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    wanted = error.object[error.start : error.end]
    return "".join(
        _PLAIN.get(character) or character.encode("ascii", "backslashreplace").decode() for character in wanted
    ), error.end


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C be a KeyboardInterrupt inside; outside the real program it is one anyway."""
    if signal.getsignal(signal.SIGINT) is not _end_at_once:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _end_at_once)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether errors must be JSON, judged by the raw words: parsing them may be what failed."""
    for index, word in enumerate(arguments):
        name, has_value, value = word.partition("=")
        if name in ("-o", "--output"):
            return (value if has_value else "".join(arguments[index + 1 : index + 2])) in _JSON
        if word.startswith("-o") and not word.startswith("--"):
            return word[2:] in _JSON
    return False


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os.write(2, _OBJECT if wants_json(sys.argv[1:]) else _LINE)
    os._exit(INTERRUPTED)
