"""What can go wrong inside the controller, beside what ``engine.zk.errors`` has; ControllerMoved among it."""

from __future__ import annotations

from engine.common.errors import KlammError


class StateChangeFailed(KlammError):
    """A partition or replica could not be moved to the wanted state. The text is Kafka's."""


class IllegalTransition(StateChangeFailed):
    """The table of states does not allow the move."""


class RecordsWouldBeLost(StateChangeFailed):
    """A reassignment would take away every replica that has all acknowledged records."""
