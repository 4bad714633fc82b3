"""The log files of a broker: Kafka's files, in Kafka's pattern, rolled every hour as by Kafka's default.

``server.log`` has everything except the lines of ``controller.log``, ``state-change.log``, ``kafka-request.log``,
``kafka-authorizer.log`` and ``log-cleaner.log``. The thread that logs also writes the line, and each line is flushed.
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

TRACE = 5
"""Kafka's TRACE, below DEBUG."""

logging.addLevelName(TRACE, "TRACE")

_ESCAPED = {code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
"""Line ends and other controls: a name that a peer chose must not look like lines of the log."""

OF_LINES = {"is_of_lines": True}
"""The ``extra`` of a message that has several lines, as Kafka's has, and no word of a peer's."""

_LEVEL_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file, the loggers that write to it, and their lowest level."""

    name: str
    loggers: tuple[str, ...]
    level: int


SERVER_LOG = "server.log"
SEPARATE_FILES = (
    LogFile("controller.log", ("kafka.controller",), logging.DEBUG),
    LogFile("state-change.log", ("state.change.logger",), logging.INFO),
    LogFile("kafka-request.log", ("kafka.request.logger",), logging.WARNING),
    LogFile("kafka-authorizer.log", ("kafka.authorizer.logger",), logging.INFO),
    LogFile("log-cleaner.log", ("kafka.log.LogCleaner",), logging.INFO),
)
"""The files besides server.log, with the levels in Kafka 3.9's log4j.properties."""


class KafkaFormatter(logging.Formatter):
    """log4j's pattern ``[%d] %p %m (%c)%n``, stack traces on the lines below."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its end."""
        second = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        level = _LEVEL_NAMES.get(record.levelname, record.levelname)
        message = record.getMessage()
        if not hasattr(record, "is_of_lines"):
            message = message.translate(_ESCAPED)
        line = f"[{second},{int(record.msecs):03}] {level} {message} ({record.name})"
        if record.exc_info and record.exc_info[0] is not None:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


class ConsoleFormatter(KafkaFormatter):
    """The same for a terminal: only the last line of a fault, because a person cannot act on the trace."""

    def formatException(self, ei: object) -> str:
        """Return the exception without its trace."""
        error = cast("tuple[type[BaseException], BaseException, object]", ei)[1]
        return f"    {type(error).__name__}: {error}"


class HourlyFileHandler(logging.FileHandler):
    """A log file, renamed to ``<name>.<year>-<month>-<day>-<hour>`` when that hour is over."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, encoding="utf-8")
        self._path = path
        self._hour = _hour_of(path.stat().st_mtime if path.stat().st_size else time.time())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; roll first if a new hour has begun."""
        hour = _hour_of(record.created)
        if hour > self._hour:
            self._roll(hour)
        super().emit(record)

    def _roll(self, hour: str) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None  # FileHandler opens it again with the next line
        if self._path.exists():
            self._path.replace(self._path.with_name(f"{self._path.name}.{self._hour}"))
        self._hour = hour


def _hour_of(seconds: float) -> str:
    return time.strftime("%Y-%m-%d-%H", time.localtime(seconds))


def log_to_files(folder: Path | None) -> None:
    """Send log lines to Kafka's files in ``folder``; without a folder everything goes to stderr."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    root.addHandler(_handler(folder, SERVER_LOG))
    root.setLevel(logging.INFO)
    for file in SEPARATE_FILES:
        handler = _handler(folder, file.name)
        for name in file.loggers:
            logger = logging.getLogger(name)
            logger.setLevel(file.level)
            if folder is not None:
                logger.handlers[:] = [handler]
                logger.propagate = False


def _handler(folder: Path | None, name: str) -> logging.Handler:
    if folder is None:
        console = logging.StreamHandler(sys.stderr)
        console.setFormatter(ConsoleFormatter())
        return console
    handler = HourlyFileHandler(folder / name)
    handler.setFormatter(KafkaFormatter())
    return handler
