"""Files that are written before a change, so that there is a way back."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path


def new_rollback_path(stem: str, suffix: str) -> Path:
    """Return a name in the working folder that no earlier file has."""
    return Path(f"{stem}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z{suffix}")


def write_rollback(path: Path, text: str) -> None:
    """Write a file that must not be there yet, and have it on the disk before going on.

    Raises:
        OSError: it is there already, or cannot be written.
    """
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Have the names of a folder's files on the disk before going on."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
