"""What the dashboard itself logs, kept for its own screen: the last lines, never on the terminal."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LINES_MAX = 5_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log."""

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

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, with the last line of its exception."""
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message}: {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        self._count += 1
        self.lines.append(LogLine(self._count, int(record.created * 1000), record.levelno, record.name, message))


@contextmanager
def logs_kept() -> Iterator[LogRing]:
    """Keep what klamm's parts log, and let nothing of it reach the terminal, as long as the context is open."""
    ring, root = LogRing(), logging.getLogger()
    before, level = list(root.handlers), root.level
    root.handlers = [ring]
    root.setLevel(logging.INFO)
    # ZooKeeper's client tells of every attempt; that there is no connection, the status line says.
    kazoo = logging.getLogger("kazoo")
    kazoo_level = kazoo.level
    kazoo.setLevel(logging.ERROR)
    try:
        yield ring
    finally:
        root.handlers, root.level = before, level
        kazoo.setLevel(kazoo_level)
