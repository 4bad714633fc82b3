"""Files that a command writes before it changes something, so that there is a way back."""

from __future__ import annotations

import os
from pathlib import Path


def write_new_file(path: Path, text: str) -> None:
    """Write a file that must not be there yet, and have it on the disk before going on."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
