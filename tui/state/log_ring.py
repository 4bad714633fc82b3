"""What the dashboard itself logs: the last lines for its own screen, all of them in a file, none on the terminal."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from engine.admin.cluster.profiles import user_folder

LINES_MAX = 5_000
FILE_BYTES_MAX = 2_000_000
FILES_KEPT = 3
"""Beside the file that is written to."""


@dataclass(frozen=True, slots=True)
class LogLine:
    number: int
    at_ms: int
    level: int
    logger: str
    message: str

    @property
    def level_name(self) -> str:
        return logging.getLevelName(self.level).lower()


class LogRing(logging.Handler):
    """Keeps the last lines. Any thread may log; the screen reads a copy."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[LogLine] = deque(maxlen=LINES_MAX)
        self._count = 0
        self.path: Path | None = None
        """The file that keeps the lines too; None if none can be written, and ``why_no_file`` says why."""
        self.why_no_file = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, with the last line of its exception."""
        try:
            message = record.getMessage()
        except Exception:  # a line that does not fit its values must not fail the caller
            message = f"{record.msg} {record.args}"
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message}: {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        self._count += 1
        self.lines.append(LogLine(self._count, int(record.created * 1000), record.levelno, record.name, message))


class _OneLine(logging.Formatter):
    """Time in UTC, process, level, part, message; a traceback on the lines below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_file_path(environment: Mapping[str, str]) -> Path:
    """Return the file for the dashboard's own log, below ``$XDG_STATE_HOME`` or ``~/.local/state``."""
    return user_folder(environment, "XDG_STATE_HOME", ".local/state") / "top.log"


def _file_of(ring: LogRing, path: Path) -> logging.Handler | None:
    """Open the file; if that fails, the dashboard works without it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT, encoding="utf-8")
    except OSError as error:
        ring.why_no_file = f"no file keeps it: {path}: {error.strerror or error}"
        return None
    handler.setFormatter(_OneLine())
    ring.path = path
    return handler


@contextmanager
def logs_kept(path: Path | None = None) -> Iterator[LogRing]:
    """Keep what klamm's parts log, away from the terminal, as long as the context is open; ``path`` keeps it, too."""
    ring, root = LogRing(), logging.getLogger()
    before, level = list(root.handlers), root.level
    file = None if path is None else _file_of(ring, path)
    root.handlers = [ring] if file is None else [ring, file]
    root.setLevel(logging.INFO)
    # ZooKeeper's client logs every attempt; the status line says that there is no connection.
    kazoo = logging.getLogger("kazoo")
    kazoo_level = kazoo.level
    kazoo.setLevel(logging.ERROR)
    try:
        yield ring
    finally:
        root.handlers, root.level = before, level
        if file is not None:
            file.close()
        kazoo.setLevel(kazoo_level)
