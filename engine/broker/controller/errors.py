"""What can go wrong inside the controller, apart from the errors of ``engine.kafka.zk.errors`` (ControllerMoved)."""

from __future__ import annotations

from engine.common.errors import KlammError


class StateChangeFailed(KlammError):
    """A partition or replica could not be moved to the target state. The text is Kafka's."""


class IllegalTransition(StateChangeFailed):
    """The table of states does not allow the move."""


class RecordsWouldBeLost(StateChangeFailed):
    """A reassignment would remove every replica that has all acknowledged records."""
