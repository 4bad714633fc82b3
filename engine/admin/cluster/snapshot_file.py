"""Snapshots on disk."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Operation, Phrase
from engine.common.collection import collector_paused
from engine.common.snapshot import ClusterSnapshot
from engine.common.snapshot_json import snapshot_from_json, snapshot_to_json


def load_snapshot(path: Path) -> ClusterSnapshot:
    """Read a snapshot file. The last one is kept: a command asks for it several times, and a large one takes a second.

    Raises:
        NotFound: there is no such file.
        BadRequest: it does not hold a snapshot that this klamm can read.
    """
    try:
        stat = path.stat()
        return _read(path, stat.st_mtime_ns, stat.st_size, stat.st_ino)
    except FileNotFoundError as error:
        raise NotFound("no such snapshot file", where=str(path)) from error
    except ValueError as error:
        hint = Phrase("write one: ", Operation.TAKE_SNAPSHOT)
        raise BadRequest(f"not a snapshot: {error}", where=str(path), hint=hint) from error


@lru_cache(maxsize=1)
def _read(path: Path, modified_ns: int, size_bytes: int, inode: int) -> ClusterSnapshot:
    with collector_paused():
        return snapshot_from_json(path.read_text(encoding="utf-8"))


def save_snapshot(snapshot: ClusterSnapshot, path: Path) -> None:
    """Write a snapshot; an existing file is replaced as a whole.

    Raises:
        BadRequest: it cannot be written there.
    """
    scratch = path.with_name(f".{path.name}.tmp")
    try:
        scratch.write_text(snapshot_to_json(snapshot), encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise BadRequest(f"cannot be written: {error.strerror}", where=str(path)) from error
