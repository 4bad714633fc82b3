"""Files that options name; ``-`` is stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from typer._click.exceptions import UsageError


def read_input(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file, or of stdin. Bytes that are not text become marks, which every parser rejects.

    Raises:
        UsageError: stdin is meant, and it is a terminal.
        OSError: the file cannot be read.
    """
    if str(path) != "-":
        return path.read_text(encoding=encoding, errors="replace")
    if sys.stdin.isatty():
        raise UsageError("- means stdin, and nothing is piped into it")
    return sys.stdin.buffer.read().decode(encoding, errors="replace")


def name_of(path: Path) -> str:
    """Return what errors call the file."""
    return "stdin" if str(path) == "-" else str(path)
