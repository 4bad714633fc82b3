"""What has to be done before anything else is loaded: Ctrl-C and missing streams. Loads next to nothing.

Ctrl-C here is that before a command runs, and after it, while there is nothing to undo.

Python's own way, an exception between any two instructions, would show a traceback out of the middle of an import. Here
the program says one line and is gone. While a command runs ``interruptible`` gives Python's way back, for then
connections are to be closed, and what was left running in the cluster is to be told.
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
"""The exit code; ``ExitCode.INTERRUPTED`` for those who may load enums."""

_PLAINER = "klamm.plainer"
_PLAIN = {"→": "->", "←": "<-", "…": "...", "–": "-", "—": "-", "·": "-", "×": "x", "≥": ">=", "≤": "<=", "−": "-"}
_PLAIN |= {"’": "'", "“": '"', "”": '"', "•": "*", "✓": "ok", "▲": "^", "▼": "v", "│": "|", "─": "-", "░": "."}
"""What stands for characters of ours where a stream does not know them; of data, an escape stands there."""

_JSON = ("json", "jsonl")
_LINE = b"error: interrupted\n"
_OBJECT = b'{"error": {"code": 130, "kind": "interrupted", "message": "interrupted", "hint": null}}\n'


def guard_start() -> None:
    """From now on Ctrl-C ends the program at once, in one line; where the caller has it ignored, it stays ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end_at_once)


def open_missing_streams() -> None:
    """Put the null device where the caller has closed stdin, stdout or stderr, as daemons and ``>&-`` do.

    Otherwise Python has None there, and the next socket gets the number: what is printed would go into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # Those below are open by now, so it gets this number.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def soften_encodings() -> None:
    """Let no character end a command on a terminal or in a pipe that is not UTF-8: plainer ones stand for it."""
    codecs.register_error(_PLAINER, _plainer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not (stream.encoding or "").lower().startswith("utf"):
            stream.reconfigure(errors=_PLAINER)


def _plainer(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    wanted = error.object[error.start : error.end]
    return "".join(_PLAIN.get(one) or one.encode("ascii", "backslashreplace").decode() for one in wanted), error.end


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
    """Whether errors must be JSON, told from the raw words: parsing them may be what failed."""
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
