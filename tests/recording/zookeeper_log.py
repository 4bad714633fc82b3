"""ZooKeeper's transaction log as plain entries: what was committed, in order, and which write was refused.

An entry is a dict: ``zxid``, ``session`` (its id), ``op`` and what belongs to it. ``version`` of setData is the new
one, of check the one that was expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zk_txn_log import (
    CHECK,
    CREATE,
    CREATE2,
    DELETE,
    ERROR,
    ERRORS,
    MULTI,
    SET_DATA,
    Reader,
    transactions,
)

_CREATE_SESSION, _CLOSE_SESSION = -10, -11


def entries(data_dir: Path) -> Iterator[dict[str, Any]]:
    """Yield every transaction that a client or a session made."""
    for zxid, session, kind, body in transactions(data_dir):
        operation = _operation(kind, Reader(body))
        if operation is not None:
            yield {"zxid": zxid, "session": session, **operation}


def _operation(kind: int, reader: Reader) -> dict[str, Any] | None:
    match kind:
        case _ if kind == _CREATE_SESSION:
            return {"op": "createSession", "timeout": reader.take("i")}
        case _ if kind == _CLOSE_SESSION:
            paths = reader.take("i") if reader.data else 0
            return {"op": "closeSession", "deletes": [reader.text() for _ in range(paths)]}
        case _ if kind == MULTI:
            parts = [(reader.take("i"), reader.buffer() or b"") for _ in range(reader.take("i"))]
            return {"op": "multi", "ops": [_operation(part, Reader(body)) for part, body in parts]}
        case _ if kind == ERROR:
            code = reader.take("i")
            return {"op": "error", "error": ERRORS.get(code, str(code))}
        case _ if kind in (CREATE, CREATE2, SET_DATA, CHECK, DELETE):
            return _write(kind, reader)
    return None


def _write(kind: int, reader: Reader) -> dict[str, Any]:
    path = reader.text()
    if kind == DELETE:
        return {"op": "delete", "path": path}
    if kind == CHECK:
        # The log holds the version that a write would have made; what was expected is one less.
        return {"op": "check", "path": path, "version": reader.take("i") - 1}
    data = reader.buffer()
    text = None if data is None else data.decode()
    if kind == SET_DATA:
        return {"op": "setData", "path": path, "data": text, "version": reader.take("i")}
    for _ in range(reader.take("i")):
        reader.take("i"), reader.text(), reader.text()
    return {"op": "create", "path": path, "data": text, "ephemeral": bool(reader.take("b"))}
