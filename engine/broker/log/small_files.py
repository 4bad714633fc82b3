"""Writes small text files so that a reader finds the old content or the new, never a part."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from engine.runtime.descriptors import open_file

TEMPORARY_SUFFIX = ".tmp"

_numbers = itertools.count()


def replace_file(path: Path, text: str, *, sync: bool) -> None:
    """Write ``text`` beside ``path``, under a unique name, and rename it into place.

    With ``sync`` it is on disk when this returns, including the folder entry. Without, only a crash of the whole
    machine can lose it. Two threads may write the same file: the one that finishes last wins.
    """
    temporary = path.with_name(f"{path.name}.{next(_numbers)}{TEMPORARY_SUFFIX}")
    fd = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        remaining = memoryview(text.encode("utf-8"))
        while remaining:
            remaining = remaining[os.write(fd, remaining) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
    if sync:
        sync_path(path.parent)


def is_blank_text(text: str) -> bool:
    """Return whether a file exists by name only: the machine crashed before its content was on disk."""
    return not text.strip("\0 \r\n")


def sync_path(path: Path) -> None:
    """Bring a file or folder to the disk; do nothing if it is gone by now (renamed, deleted)."""
    try:
        fd = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_temporary_files(folder: Path) -> None:
    """Remove the temporary files that a crash left behind."""
    for path in folder.glob(f"*{TEMPORARY_SUFFIX}"):
        if path.is_file():
            path.unlink()
