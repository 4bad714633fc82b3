"""Reads what was really written from ZooKeeper's own transaction log, to compare it with what Apache Kafka wrote.

It understands only what Kafka's clients write. There is one line per transaction, in commit order. Times, ids and
addresses are masked and JSON is parsed, so that two runs can be compared.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ERRORS = {0: "OK", -2: "RUNTIMEINCONSISTENCY", -101: "NONODE", -103: "BADVERSION", -110: "NODEEXISTS"}
CREATE, DELETE, SET_DATA, CHECK, MULTI, CREATE2, ERROR = 1, 2, 5, 13, 14, 15, -1


class Reader:
    """Jute's few types."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, layout: str) -> Any:
        (value,) = struct.unpack_from(">" + layout, self.data, self.position)
        self.position += struct.calcsize(">" + layout)
        return value

    def buffer(self) -> bytes | None:
        size = self.take("i")
        if size < 0:
            return None
        self.position += size
        return self.data[self.position - size : self.position]

    def text(self) -> str:
        return (self.buffer() or b"").decode()


def transactions(data_dir: Path) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield zxid, session id, type and body of every transaction, in order."""
    for file in sorted(data_dir.glob("**/log.*"), key=lambda path: int(path.suffix[1:], 16)):
        reader = Reader(file.read_bytes())
        reader.position = 16
        while reader.position + 12 <= len(reader.data):
            reader.take("q")
            body = reader.buffer()
            if not body:
                break
            reader.take("b")
            inner = Reader(body)
            session, _, zxid, _, kind = (inner.take(layout) for layout in "qiqqi")
            yield zxid, session, kind, body[inner.position :]


def writes_of(data_dir: Path, session_id: int, chroot: str) -> list[str]:
    """Return what one session wrote, one line each."""
    lines: list[str] = []
    for _, session, kind, body in transactions(data_dir):
        if session == session_id & (2**63 - 1) and kind in (CREATE, CREATE2, DELETE, SET_DATA, MULTI, ERROR):
            lines.append(_line(kind, Reader(body), chroot))
    return lines


def _line(kind: int, reader: Reader, chroot: str) -> str:
    if kind == MULTI:
        parts = []
        for _ in range(reader.take("i")):
            part_kind = reader.take("i")
            parts.append(_line(part_kind, Reader(reader.buffer() or b""), chroot))
        return line_of({"op": "multi", "ops": parts})
    if kind == ERROR:
        code = reader.take("i")
        return line_of({"op": "error", "error": ERRORS.get(code, str(code))})
    path = reader.text().removeprefix(chroot) or "/"
    if kind in (CREATE, CREATE2):
        data = reader.buffer()
        for _ in range(reader.take("i")):
            reader.take("i"), reader.text(), reader.text()
        return line_of({"op": "create", "path": path, "data": data, "ephemeral": bool(reader.take("b"))})
    if kind == SET_DATA:
        data = reader.buffer()
        return line_of({"op": "setData", "path": path, "data": data, "version": reader.take("i")})
    if kind == CHECK:
        # The log holds the version a write would have made; what was expected is one less.
        return line_of({"op": "check", "path": path, "version": reader.take("i") - 1})
    return line_of({"op": "delete", "path": path})


def line_of(entry: Any) -> str:
    """Return one operation as a line; it also accepts the recordings' JSON."""
    if isinstance(entry, str):
        return entry
    match entry["op"]:
        case "multi":
            return "multi{" + " | ".join(line_of(op) for op in entry["ops"]) + "}"
        case "error":
            return f"error {entry['error']}"
        case "check":
            return f"check {entry['path']} v{entry['version']}"
        case "create":
            ephemeral = " ephemeral" if entry.get("ephemeral") else ""
            return f"create {entry['path']}{ephemeral} {masked(entry.get('data'))}".rstrip()
        case "setData":
            return f"setData {entry['path']} v{entry['version']} {masked(entry.get('data'))}".rstrip()
        case other:
            return f"{other} {entry.get('path', '')}"


def masked(data: bytes | str | None) -> str:
    """Return data as text in one canonical form, without what differs from run to run."""
    if not data:
        return ""
    text = data.decode() if isinstance(data, bytes) else data
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, dict):
        for key in ("timestamp", "topic_id", "id", "port", "host", "endpoints"):
            if key in value:
                value[key] = "masked"
        order = list(value)
        return re.sub(r"\s", "", json.dumps({key: value[key] for key in order}))
    return text


def recorded(path: Path) -> list[str]:
    """Return a recorded scene's writes of broker 0, as lines."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    wanted = ("create", "delete", "setData", "multi", "error")
    return [line_of(e) for e in entries if e.get("by") == "broker 0" and e.get("op") in wanted]
