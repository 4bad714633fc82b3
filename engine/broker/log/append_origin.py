"""Who appends. This decides which checks apply."""

from __future__ import annotations

from enum import Enum


class AppendOrigin(Enum):
    """Kafka's AppendOrigin, without KRaft's."""

    CLIENT = "client"
    """A produce request: the log checks everything."""

    COORDINATOR = "coordinator"
    """A group or transaction coordinator of this broker. It may write control records; nobody checks its sequences."""

    REPLICATION = "replication"
    """A follower's fetch, or a log that is read at start: the leader has already checked it."""
