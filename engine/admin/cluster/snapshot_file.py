"""Snapshots on disk."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Operation, Phrase
from engine.common.collection import collector_paused
from engine.common.snapshot import ClusterSnapshot
from engine.common.snapshot_json import snapshot_from_json, snapshot_to_json
from engine.runtime.input_files import name_of, read_input_bytes

_OPEN_FILES = ("/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/")


def load_snapshot(path: Path) -> ClusterSnapshot:
    """Read a snapshot. The last one is kept: a command asks for it several times, and a large one takes a second.

    Raises:
        NotFound: there is no such file.
        BadRequest: it does not hold a snapshot that this klamm can read.
    """
    try:
        return _parsed(read_input_bytes(path))
    except FileNotFoundError as error:
        raise NotFound("no such snapshot file", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        hint = Phrase("write one: ", Operation.TAKE_SNAPSHOT)
        raise BadRequest(f"not a snapshot: {error}", where=name_of(path), hint=hint) from error


@lru_cache(maxsize=1)
def _parsed(content: bytes) -> ClusterSnapshot:
    with collector_paused():
        return snapshot_from_json(content.decode())


def save_snapshot(snapshot: ClusterSnapshot, path: Path) -> None:
    """Write a snapshot; an existing file is replaced as a whole, also behind a link.

    A pipe or a device is written to, and so is a file that this process has open already, such as ``/dev/stdout``.

    Raises:
        BadRequest: it cannot be written there.
    """
    real = path.resolve()
    is_replaced = not str(path).startswith(_OPEN_FILES) and (real.is_file() or not real.exists())
    target = real.with_name(f".{real.name}.tmp") if is_replaced else path
    try:
        target.write_text(snapshot_to_json(snapshot), encoding="utf-8")
        if is_replaced:
            target.replace(real)
    except OSError as error:
        if is_replaced:
            with suppress(OSError):
                target.unlink()
        raise BadRequest(f"cannot be written: {error.strerror}", where=str(path)) from error
