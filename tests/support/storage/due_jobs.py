"""What a broker's log manager writes from time to time, written at once."""

from __future__ import annotations

from engine.broker.log.disk_jobs import run_jobs
from engine.broker.log.log_manager import LogManager


def run_due(logs: LogManager) -> None:
    """Do everything that is due."""
    run_jobs(logs.due_jobs())


def write_checkpoints(logs: LogManager) -> None:
    """Write all checkpoint files."""
    for path in logs.live_dirs:
        run_jobs(logs._checkpoints.jobs(path))
