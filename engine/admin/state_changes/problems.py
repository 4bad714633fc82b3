"""Problems of the logs themselves: counted while they are read, and always reported at the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ProblemKind(StrEnum):
    """What kind of problem a log has."""

    UNREADABLE = "unreadable"
    """It could not be opened, or reading it failed."""
    NOT_A_LOG = "not_a_log"
    """It is binary, or none of its lines has a time; none of it is in the result."""
    DAMAGED = "damaged"
    """It breaks off; the result contains what comes before that."""
    WITHOUT_TIME = "without_time"
    """Lines before the first one with a time; they stay next to their neighbours."""
    UNPARSED = "unparsed"
    """Lines with a time but without a level; they are kept as they are."""
    ZERO_BYTES = "zero_bytes"
    """Zero bytes, which a crash leaves in a file, were left out."""
    REORDERED = "reordered"
    """Lines were slightly out of order and were sorted."""
    LATE = "late"
    """Lines were so far out of order that they come later than their time."""

    NO_MENTION = "no_mention"
    """None of the logs read names the requested topic."""

    @property
    def loses_lines(self) -> bool:
        """Whether something is missing from the result."""
        return self in (
            ProblemKind.UNREADABLE,
            ProblemKind.NOT_A_LOG,
            ProblemKind.DAMAGED,
            ProblemKind.UNPARSED,
            ProblemKind.NO_MENTION,
        )


@dataclass(frozen=True, slots=True)
class LogProblem:
    """One problem of one log. ``count`` counts lines, or zero bytes."""

    source: str
    kind: ProblemKind
    message: str
    count: int = 0


class ProblemCounter:
    """Counts the problems of one log while it is read."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.topics_met: set[bytes] = set()
        """The wanted topics that the log names, in any partition."""
        self._told: list[LogProblem] = []
        self._counts: dict[ProblemKind, int] = {}

    def tell(self, kind: ProblemKind, message: str) -> None:
        """Note a problem that happens once."""
        self._told.append(LogProblem(self.source, kind, message))

    def count(self, kind: ProblemKind, number: int = 1) -> None:
        """Count lines, or bytes, of a kind."""
        if number:
            self._counts[kind] = self._counts.get(kind, 0) + number

    @property
    def problems(self) -> list[LogProblem]:
        """All that was noted so far."""
        counted = [
            LogProblem(self.source, kind, _SENTENCES[kind].format(_amount(kind, number)), number)
            for kind in ProblemKind
            if (number := self._counts.get(kind, 0))
        ]
        return [*self._told, *counted]


_SENTENCES = {
    ProblemKind.WITHOUT_TIME: "{} at the beginning, before any that has a time",
    ProblemKind.UNPARSED: "{} that cannot be parsed: no level after the time",
    ProblemKind.ZERO_BYTES: "{} left out",
    ProblemKind.REORDERED: "{} out of order, sorted",
    ProblemKind.LATE: "{} too far out of order to sort: later than the time says",
}


def _amount(kind: ProblemKind, number: int) -> str:
    noun = "zero byte" if kind is ProblemKind.ZERO_BYTES else "line"
    return f"{number} {noun}{'' if number == 1 else 's'}"
