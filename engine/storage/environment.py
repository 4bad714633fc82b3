"""What a log needs of those around it. The log manager is it in a broker; tests and tools bring their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engine.common.clock import Clock
from engine.common.errors import KlammError

if TYPE_CHECKING:
    from engine.storage.log_core import LogCore


class LoadingStopped(KlammError):
    """Logs were being recovered when the broker was to end. The next start recovers them anew."""


class LogEnvironment(Protocol):
    """Clock, and where to turn with what must not be done on the event loop or concerns more than one log."""

    @property
    def clock(self) -> Clock: ...

    @property
    def producer_id_expiration_ms(self) -> int:
        """``producer.id.expiration.ms``"""

    @property
    def is_stopping(self) -> bool:
        """Whether the broker is to end: a recovery under way ends with ``LoadingStopped``."""

    def fail_dir(self, log_dir: Path, message: str, error: OSError) -> None:
        """Take note that a log dir cannot be used any more. Called on the event loop; must not raise."""

    def delete_later(self, log_dir: Path, paths: list[Path], delay_ms: int) -> None:
        """Remove files, which have been renamed already, after ``delay_ms``."""

    def flush_soon(self, log: LogCore, offset: int) -> None:
        """Flush a log up to ``offset`` as soon as may be: it has rolled there."""

    def checkpoint_soon(self, log_dir: Path) -> None:
        """Write a dir's checkpoints as soon as may be: a log was cut below what they say is on the disk."""
