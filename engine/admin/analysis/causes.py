"""Under-replication by cause: which broker the under-replicated partitions miss. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.admin.analysis.tallies import Tally
from engine.admin.watch.frame import Frame


class Cause(StrEnum):
    """Why a broker's replicas are out of sync."""

    DOWN = "down"
    SILENT = "registered, but does not answer"
    LOG_DIR_FAILED = "a log dir has failed"
    LAGGING = "alive, does not keep up"


@dataclass(frozen=True, slots=True)
class MissingBroker:
    """A broker that under-replicated partitions miss. ``detail`` names the log dirs, or what it did instead."""

    broker: int
    missed_by: int
    of: int
    cause: Cause
    detail: str = ""

    def __str__(self) -> str:
        return f"broker {self.broker} is out of the ISR of {self.missed_by} of {self.of} under-replicated partitions"


def missing_brokers(frame: Frame, tally: Tally) -> list[MissingBroker]:
    """Return the brokers that under-replicated partitions miss, the most missed first."""
    causes = [
        MissingBroker(broker, count, tally.under_replicated, *_cause(frame, broker))
        for broker, count in tally.missing.items()
    ]
    return sorted(causes, key=lambda cause: (-cause.missed_by, cause.broker))


def _cause(frame: Frame, broker: int) -> tuple[Cause, str]:
    if frame.cluster is not None and broker not in frame.cluster.live_broker_ids:
        return Cause.DOWN, ""
    words = frame.words.get(broker)
    if words is not None and words.trouble:
        return Cause.SILENT, words.trouble
    failed = frame.failed_log_dirs(broker)
    failed += [path for path in (words.offline_log_dirs if words is not None else ()) if path not in failed]
    if failed:
        return Cause.LOG_DIR_FAILED, ", ".join(failed)
    return Cause.LAGGING, ""
