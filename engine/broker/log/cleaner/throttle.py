"""Keeps the cleaner's reads and writes below ``log.cleaner.io.max.bytes.per.second``, and reports that it is alive."""

from __future__ import annotations

import time
from collections.abc import Callable

LOOK_BYTES = 1024 * 1024
PAUSE_S_MAX = 0.3
PROGRESS_INTERVAL_S = 0.5
SAVED_S_MAX = 1.0


class Pace:
    """Accounts for every read and write; sleeps if they are too fast, and calls ``on_progress`` now and then."""

    def __init__(self, bytes_per_second: float, on_progress: Callable[[int], None]) -> None:
        self._rate = bytes_per_second
        self._on_progress = on_progress
        self._total_bytes = 0
        self._unseen_bytes = 0
        self._paid_until_s = self._told_s = time.monotonic()

    def spend(self, size_bytes: int) -> None:
        """Account for bytes that were read or written."""
        self._unseen_bytes += size_bytes
        if self._unseen_bytes >= min(LOOK_BYTES, self._rate * PAUSE_S_MAX):
            self._look()

    def _look(self) -> None:
        self._total_bytes += self._unseen_bytes
        # Only the last second's unused budget is saved up: no long burst may follow a pause.
        begin_s = max(self._paid_until_s, time.monotonic() - SAVED_S_MAX)
        self._paid_until_s = begin_s + self._unseen_bytes / self._rate
        self._unseen_bytes = 0
        while True:
            now_s = time.monotonic()
            if now_s - self._told_s >= PROGRESS_INTERVAL_S:
                self._told_s = now_s
                self._on_progress(self._total_bytes)
            if now_s >= self._paid_until_s:
                return
            time.sleep(min(self._paid_until_s - now_s, PAUSE_S_MAX))
