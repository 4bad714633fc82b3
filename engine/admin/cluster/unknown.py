"""Why something about a cluster could not be read: a value that stands in the place of the answer, never a guess."""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.cluster.errors import AdminError, OutcomeUnknown, Refused
from engine.common.errors import ErrorCode, error_code, said_by

_PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Conditions that usually pass in a moment, unlike a deleted topic or a missing right."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why something could not be read; ``code`` is Kafka's, or None if nobody gave a sensible answer."""

    message: str
    code: ErrorCode | None = None
    may_still_happen: bool = False
    """A change was sent, and its outcome is unknown."""

    @staticmethod
    def of_code(number: int, message: str | None = None) -> Unknown:
        """Return what an error code in an answer means."""
        code = error_code(number)
        return Unknown(f"{code.name}: {message}" if message else code.name, code)

    @staticmethod
    def of_error(error: Exception) -> Unknown:
        """Return what a failed request means."""
        message = said_by(error)
        if isinstance(error, AdminError) and error.where:
            message = f"{message}: {error.where}"
        code = error.code if isinstance(error, Refused) else None
        return Unknown(message, code, isinstance(error, OutcomeUnknown))

    @property
    def is_passing(self) -> bool:
        """Whether asking again soon may help; somebody else may coordinate or lead by then."""
        return self.code is None or self.code in _PASSING

    def __str__(self) -> str:
        return self.message
