"""Reports what the engine logs while a command runs, in the command's own way instead of Python's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from cli.framework.talk import Talk


class _Told(logging.Handler):
    """Reports each warning once: a waiting command polls again and again, and may be drawing its progress."""

    def __init__(self, talk: Talk) -> None:
        super().__init__(logging.WARNING)
        self._talk = talk
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            self._talk.warn(text)


@contextmanager
def engine_log_told(talk: Talk) -> Iterator[None]:
    """Report the engine's warnings as the command's own while the context is open."""
    logger, told = logging.getLogger("engine"), _Told(talk)
    logger.addHandler(told)
    try:
        yield
    finally:
        logger.removeHandler(told)
