"""The complete logs of a broker: they roll at every full hour, even in the middle of a test."""

from __future__ import annotations

from pathlib import Path


def server_log(folder: Path) -> str:
    """Return server.log with its rolled files, in order; empty if there is none yet."""
    return whole_log(folder, "server.log")


def cleaner_log(folder: Path) -> str:
    """Return log-cleaner.log in the same way."""
    return whole_log(folder, "log-cleaner.log")


def whole_log(folder: Path, name: str) -> str:
    """Return any log of a broker in the same way."""
    rolled = sorted(folder.glob(f"{name}.*"))
    return "".join(path.read_text() for path in [*rolled, folder / name] if path.exists())


def assert_no_fault(folder: Path) -> None:
    """Check that no handler failed, and that no unexpected exception was raised."""
    log = server_log(folder)
    for sign in ("Cannot handle a request", "Traceback"):
        where = log.find(sign)
        assert where < 0, log[where : where + 3000]
