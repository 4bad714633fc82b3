"""Who appends. This decides which checks apply."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class AppendOrigin(Enum):
    """Kafka's AppendOrigin, without KRaft's."""

    CLIENT = "client"
    """A produce request: the log checks everything."""

    COORDINATOR = "coordinator"
    """A group or transaction coordinator of this broker. It may write control records; nobody checks its sequences."""

    REPLICATION = "replication"
    """A follower's fetch, or a log that is read at start: the leader has already checked it."""


# The next two are not frozen, because Python would take four times as long to make them.


@dataclass(slots=True)
class CommitMarker:
    """Whose transaction the marker in a batch commits, and the epoch of the coordinator that wrote it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


@dataclass(slots=True)
class OwnBatch:
    """What a coordinator knows of a batch that it has just made: given this, a log need not parse the batch."""

    record_count: int
    timestamp_ms: int
    """That of each record."""
    attributes: int = 0
    commit: CommitMarker | None = None
    """Set if the batch is the marker of a commit. Other control batches do not count."""
