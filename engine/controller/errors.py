"""What can go wrong inside the controller, beside what ZooKeeper says."""

from __future__ import annotations

from engine.common.errors import CoordinationError, KlammError


class ControllerMoved(CoordinationError):
    """Another broker is the controller now: the epoch check of a write failed, or an election was lost."""


class StateChangeFailed(KlammError):
    """A partition or replica could not be moved to the wanted state. The text is Kafka's."""


class IllegalTransition(StateChangeFailed):
    """The table of states does not allow the move."""
