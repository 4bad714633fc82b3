"""Reserves file descriptors for files, so that sockets never take the last ones.

A process has a limited number (``ulimit -n``). ``open_file`` opens the files of a log: if no descriptor is left, it
takes a spare, and closes files that are unused at the moment. Sockets stay below ``descriptors_for_sockets``. The
kernel gives the lowest free number, so a socket's number shows how many are in use.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

SPARES = 32
"""Spare descriptors: more than the number of threads that open files at the same time."""

RESERVED_MIN = 256
"""Descriptors for files, ZooKeeper and other brokers, but at most half of the limit; a quarter of high limits."""

THREAD_PATIENCE_S = 2.0
"""How long a thread waits for the event loop to close files."""

_PAUSE_S = 0.01

_MODE = 0o666
"""As for Kafka's files, the process's umask alone says who may read and write a new one."""


def is_out_of_descriptors(error: BaseException) -> bool:
    """Return whether the process or the system has no descriptor left, so that no disk is at fault.

    An error raised from such an error counts too.
    """
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return True
    return error.__cause__ is not None and is_out_of_descriptors(error.__cause__)


def descriptor_limit() -> int:
    """Return this process's limit of descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else soft


def descriptors_for_sockets(limit: int) -> int:
    """Return the first descriptor number that a client's socket must not have."""
    return limit - min(limit // 2, max(RESERVED_MIN, limit // 4))


def descriptors_for_duplicates(for_sockets: int) -> int:
    """Return the descriptor number from which no connection gets the second descriptor that a slow peer needs."""
    limit = descriptor_limit()
    return limit - max(0, limit - for_sockets) // 2


class DescriptorReserve:
    """The spares of this process. ``relieve`` closes files that can be reopened; it belongs to the event loop."""

    def __init__(self) -> None:
        self._spares: list[int] = []
        self._relieve: Callable[[], None] | None = None
        self._thread = 0

    def start(self, relieve: Callable[[], None]) -> None:
        """Start keeping spares. Call it on the thread whose files ``relieve`` closes."""
        self._relieve = relieve
        self._thread = threading.get_ident()
        self.fill()

    def stop(self) -> None:
        """Release all spares."""
        self._relieve = None
        while self._give_up_one():
            pass

    def fill(self) -> None:
        """Open the missing spares, as far as descriptors are left."""
        while self._relieve is not None and len(self._spares) < SPARES:
            try:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return

    def open(self, path: Path, flags: int) -> int:
        """Open a file, with a spare descriptor if no other is left.

        Raises:
            OSError: it cannot be opened.
        """
        deadline = time.monotonic() + THREAD_PATIENCE_S
        has_relieved = False
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, _MODE)
            except OSError as error:
                if not is_out_of_descriptors(error) or self._relieve is None:
                    raise
                if self._give_up_one():
                    continue
                if threading.get_ident() == self._thread:
                    if has_relieved:
                        raise
                    self._relieve()
                    has_relieved = True
                elif time.monotonic() >= deadline:
                    raise
                else:
                    time.sleep(_PAUSE_S)

    def _give_up_one(self) -> bool:
        try:
            os.close(self._spares.pop())
        except IndexError:
            return False
        return True


RESERVE = DescriptorReserve()
"""Descriptors belong to the process, and so do its spares."""


def open_file(path: Path, flags: int) -> int:
    """Open a file of a log as ``os.open`` does; child processes do not inherit it."""
    try:
        return os.open(path, flags | os.O_CLOEXEC, _MODE)
    except OSError as error:
        if not is_out_of_descriptors(error):
            raise
        return RESERVE.open(path, flags)


def make_room_for_a_file() -> None:
    """Make sure that any call can open one file now.

    Raises:
        OSError: there is no room.
    """
    os.close(open_file(Path(os.devnull), os.O_RDONLY))
