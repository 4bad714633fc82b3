"""Who appends: it decides which checks apply."""

from __future__ import annotations

from enum import Enum


class AppendOrigin(Enum):
    """Kafka's AppendOrigin, without KRaft's."""

    CLIENT = "client"
    """A produce request: everything is checked."""

    COORDINATOR = "coordinator"
    """A group or transaction coordinator of this broker: may write control records, sequences are not checked."""

    REPLICATION = "replication"
    """A follower's fetch, or a log that is read at start: the leader has checked already."""
