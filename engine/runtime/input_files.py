"""Files that users name and that klamm reads as a whole; ``-`` is stdin."""

from __future__ import annotations

import codecs
import io
import sys
from functools import lru_cache
from pathlib import Path
from typing import TextIO

from engine.common.errors import OperationError

STDIN = Path("-")


def read_input_bytes(path: Path) -> bytes:
    """Return the content of a file, or of stdin.

    Raises:
        OperationError: stdin is meant, and it is a terminal.
        OSError: the file cannot be read.
    """
    return _whole(sys.stdin) if path == STDIN else path.read_bytes()


def read_input(path: Path, encoding: str = "utf-8", *, errors: str = "replace") -> str:
    """Return the text of a file, or of stdin, without a byte order mark. Bytes that are not text become marks, which
    every parser rejects.

    Raises:
        OperationError: stdin is meant, and it is a terminal.
        OSError: the file cannot be read.
    """
    content = read_input_bytes(path).removeprefix(codecs.BOM_UTF8)
    return io.TextIOWrapper(io.BytesIO(content), encoding, errors).read()


def name_of(path: Path) -> str:
    """Return what errors call the file."""
    return "stdin" if path == STDIN else str(path)


@lru_cache(maxsize=1)
def _whole(stream: TextIO) -> bytes:
    """Read a stream to its end, once: a command may ask for its input again."""
    if stream.isatty():
        raise OperationError("- means stdin, and nothing is piped into it")
    return stream.buffer.read()
