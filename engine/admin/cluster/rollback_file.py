"""Rollback files, written before a change."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path


def new_rollback_path(stem: str, suffix: str, folder: Path = Path()) -> Path:
    """Return the whole path of a file that does not exist yet, in the working folder if none is named."""
    return folder.absolute() / f"{stem}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z{suffix}"


def write_rollback(path: Path, text: str) -> None:
    """Write a file that must not exist yet, and flush it to disk before going on.

    Raises:
        OSError: it exists already, or cannot be written.
    """
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def drop_rollback(path: Path) -> None:
    """Remove the file of a change that was refused as a whole."""
    path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Flush the names of a folder's files to disk before going on."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
