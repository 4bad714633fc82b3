"""Snapshots on disk."""

from __future__ import annotations

from pathlib import Path

from engine.admin.errors import BadRequest, NotFound
from engine.common.collection import collector_paused
from engine.common.snapshot import ClusterSnapshot
from engine.common.snapshot_json import snapshot_from_json, snapshot_to_json


def load_snapshot(path: Path) -> ClusterSnapshot:
    """Read a snapshot file.

    Raises:
        NotFound: there is no such file.
        BadRequest: it does not hold a snapshot that this klamm can read.
    """
    try:
        with collector_paused():
            return snapshot_from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFound("no such snapshot file", where=str(path)) from error
    except ValueError as error:
        raise BadRequest(
            f"not a snapshot: {error}", where=str(path), hint="write one: klamm cluster snapshot"
        ) from error


def save_snapshot(snapshot: ClusterSnapshot, path: Path) -> None:
    """Write a snapshot; a file that is there is replaced whole."""
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_text(snapshot_to_json(snapshot), encoding="utf-8")
    scratch.replace(path)
