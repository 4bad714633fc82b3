"""Compares the replicas of partitions byte for byte, from the brokers' files and without the engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from patience import within

_CHUNK_BYTES = 1 << 20


def segments(folder: Path) -> list[Path]:
    """Return a partition's segment files in order."""
    return sorted(folder.glob("*.log"))


def record_bytes(folder: Path) -> Iterator[bytes]:
    """Yield the records of a partition. Each replica may divide them into segments differently."""
    for path in segments(folder):
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk


def differences(folders: Iterable[Path]) -> str | None:
    """Return how the replicas in these folders differ, or None if they are equal byte for byte."""
    first, *others = folders
    wanted = b"".join(record_bytes(first))
    for other in others:
        rest = b"".join(record_bytes(other))
        if rest != wanted:
            at = next((i for i, (a, b) in enumerate(zip(wanted, rest, strict=False)) if a != b), None)
            position = min(len(wanted), len(rest)) if at is None else at
            return f"{first} ({len(wanted)} bytes) and {other} ({len(rest)} bytes) part at byte {position}"
    return None


def replica_folder(log_dirs: Iterable[Path], topic: str, partition: int) -> Path:
    """Return the folder of a partition on one broker."""
    paths = [path for log_dir in log_dirs if (path := log_dir / f"{topic}-{partition}").is_dir()]
    assert len(paths) == 1, f"{topic}-{partition} is in {paths or 'no log dir'}"
    return paths[0]


def assert_identical(partitions: Iterable[list[Path]], *, timeout_s: float = 20.0) -> None:
    """Wait until all replicas of each partition are equal; followers may still be copying the last records."""
    is_in_time = within(timeout_s)
    for folders in partitions:
        while (difference := differences(folders)) is not None:
            assert is_in_time(), difference
            time.sleep(0.1)
