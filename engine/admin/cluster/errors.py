"""Why a tool's operation failed, in kinds that a caller can act on.

Each error says what is wrong and where, usually with a hint. Texts that name an operation or a parameter are phrases,
which an interface spells. A command line maps the kind to its exit code, a dashboard to a colour. This is not the table
of Kafka's wire errors: those are ``ErrorCode``, and ``Refused`` contains the one that the cluster answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.admin.cluster.advice import ACCESS_DENIED, advice_for
from engine.admin.cluster.remedies import Part, Phrase, Words, words
from engine.common.errors import ErrorCode, KlammError, error_code, said_by

if TYPE_CHECKING:
    from engine.admin.cluster.rights import Right


class FailureKind(StrEnum):
    USAGE = "usage"
    """The caller asked for something invalid: bad value, bad file, options that contradict each other."""
    NOT_FOUND = "not_found"
    """The caller named a topic, broker, path or profile that does not exist."""
    AUTHENTICATION = "authentication"
    """TLS or the login failed, so nothing was sent."""
    UNREACHABLE = "unreachable"
    """The cluster could not be reached or did not answer in time; nothing was accepted."""
    REFUSED = "refused"
    """The cluster answered with an error."""
    AUTHORIZATION = "authorization"
    """The cluster knows who asks, and does not allow it."""
    UNDER_WAY = "under_way"
    """The cluster accepted the change, which had not ended when the deadline passed."""


class AdminError(KlammError):
    """An operation failed. ``where`` names the thing, the address or the parameter it failed at.

    ``str()`` is the message in plain words.
    """

    kind = FailureKind.USAGE

    def __init__(
        self, message: Part, *, where: Part | None = None, hint: Part | None = None, topics: Sequence[str] = ()
    ) -> None:
        """``topics`` are those that do not exist as far as is known; a missing right may also hide them."""
        super().__init__(str(words(message)))
        self.topics = tuple(topics)
        self.message: Words = words(message)
        self.where: Words | None = None if where is None else words(where)
        self.hint: Words | None = None if hint is None else words(hint)


class BadRequest(AdminError):
    """The request makes no sense; nothing was sent."""

    kind = FailureKind.USAGE


class MixedClusters(BadRequest):
    """The named brokers are not those of the named ZooKeeper, so what was read there says nothing about them."""

    def __init__(self, brokers: str, zookeeper: str, *, where: str | None = None) -> None:
        """``brokers`` and ``zookeeper`` are the two clusters' ids."""
        message = f"the brokers are of cluster {brokers}, but ZooKeeper has cluster {zookeeper}"
        hint = "one of the addresses is out of date: correct it, in the profile or where it was given"
        super().__init__(message, where=where, hint=hint)


class NotFound(AdminError):
    """A thing that the caller named does not exist."""

    kind = FailureKind.NOT_FOUND


def no_live_broker(broker_id: object, live: Iterable[int], where: Part | None = None) -> NotFound:
    """Return the error for a broker that is not among the live ones."""
    known = ", ".join(map(str, sorted(live))) or "none"
    return NotFound(f"no live broker has the id {broker_id}", where=where, hint=f"live brokers: {known}")


class Unreachable(AdminError):
    """Nobody answered in time, and nothing was accepted."""

    kind = FailureKind.UNREACHABLE


class LoginRefused(Unreachable):
    """A broker can be reached, but TLS or the login failed: nothing was sent, and trying again would not help."""

    kind = FailureKind.AUTHENTICATION


class ZnodeForbidden(AdminError):
    """The access list of a znode does not allow it."""

    kind = FailureKind.AUTHORIZATION


class ZooKeeperDead(Unreachable):
    """Every ZooKeeper server refuses connections or stays silent: most likely the brokers wait for it too."""


class ZooKeeperUnreachable(Unreachable):
    """ZooKeeper did not answer, nothing was sent, and the named brokers may answer instead."""

    @property
    def counts_as_dead(self) -> bool:
        """Whether brokers are not asked either for what they would read from ZooKeeper."""
        return isinstance(self.__cause__, ZooKeeperDead)


class AnswerLost(Unreachable):
    """The request may have been sent, but its answer never came: whether it was carried out is unknown."""


class OutcomeUnknown(AnswerLost):
    """A change was sent, and its answer never came: it may have been carried out, or still be."""

    kind = FailureKind.UNDER_WAY


class StillUnderWay(AdminError):
    """Accepted, but not done within the time given."""

    kind = FailureKind.UNDER_WAY


class Refused(AdminError):
    """The cluster answered with ``code``. Without a text, the code's name is the message."""

    kind = FailureKind.REFUSED

    def __init__(
        self, code: ErrorCode, message: Part | None = None, *, where: Part | None = None, hint: Part | None = None
    ) -> None:
        hint = hint or advice_for(code, str(words(message or "")), str(words(where or "")))
        super().__init__(message or code.name, where=where, hint=hint)
        self.code = code
        self.right: Right | None = None
        """What was missing, where the cluster has found out: see ``Cluster.explain``."""
        self.principal: str | None = None
        if code in ACCESS_DENIED:
            self.kind = FailureKind.AUTHORIZATION

    def for_want_of(self, right: Right, principal: str | None) -> Refused:
        """Add which right is missing, who lacks it, and how an administrator grants it; return the error itself."""
        self.right, self.principal = right, principal
        lacks = f"{principal or 'this login'} lacks {right}"
        # A broker's own text says less than this. An operation's text says what it was for.
        is_said = self.message == self.code.name or "authoriz" in str(self.message).lower()
        self.message = lacks if is_said else Phrase(self.message, ": ", lacks)
        self.where, self.hint = None, right.remedy(principal)
        return self


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
