"""What a check of state-change logs finds: one row per kind, with severity, time range, count and examples."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum, StrEnum
from operator import itemgetter


class Severity(StrEnum):
    """How bad it is. ``INFO`` is what a healthy cluster does too."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Check(Enum):
    """What to look for: its name in results, how bad it is, and what it means in a sentence."""

    UNCLEAN_ELECTION = (
        "unclean_election",
        Severity.CRITICAL,
        "a leader was elected that was not in sync: records that only others had are lost",
    )
    LEFT_OFFLINE = ("left_offline", Severity.CRITICAL, "partitions had no leader when the logs ended")
    TWO_CONTROLLERS = ("two_controllers", Severity.CRITICAL, "two brokers were controller with the same epoch")
    OFFLINE_LOG_DIR = ("offline_log_dir", Severity.CRITICAL, "a broker's log dir failed, and replicas with it")
    DIFFERS_FROM_CLUSTER = (
        "differs_from_cluster",
        Severity.CRITICAL,
        "the cluster's state contradicts the last one in the logs",
    )
    POSSIBLY_UNCLEAN_ELECTION = (
        "possibly_unclean_election",
        Severity.WARNING,
        "a leader was not in the last ISR that was logged; what came between is not in the logs",
    )
    OFFLINE_PARTITIONS = ("offline_partitions", Severity.WARNING, "partitions had no leader for a while")
    ISR_FLAPPING = ("isr_flapping", Severity.WARNING, "replicas fell out of sync, came back, and fell out again")
    LEADER_PING_PONG = ("leader_ping_pong", Severity.WARNING, "leadership went back and forth between two brokers")
    STALE_CONTROLLER = (
        "stale_controller",
        Severity.WARNING,
        "a controller went on after another had taken over; brokers reject such requests",
    )
    MISSED_CHANGES = (
        "missed_changes",
        Severity.WARNING,
        "the controller sent a broker changes that its log does not have",
    )
    CLOCKS_APART = (
        "clocks_apart",
        Severity.WARNING,
        "a broker's clock or time zone is wrong: the order of its lines among others is wrong, and so are durations",
    )
    UNDER_MIN_ISR = ("under_min_isr", Severity.WARNING, "leaders began with fewer replicas in sync than configured")
    FAILED_CHANGES = (
        "failed_changes",
        Severity.WARNING,
        "the controller found no leader, or a broker could not carry out a request",
    )
    ERRORS = ("errors", Severity.WARNING, "other errors were logged")
    GONE_FROM_CLUSTER = (
        "gone_from_cluster",
        Severity.WARNING,
        "partitions that exist in the logs are not in the cluster",
    )
    CONTROLLER_CHANGES = ("controller_changes", Severity.INFO, "another broker became controller")
    LEADER_CHANGES = ("leader_changes", Severity.INFO, "partitions got another leader")
    REPLICAS_MOVED = ("replicas_moved", Severity.INFO, "replicas left because their partitions were reassigned")
    ISR_SHRINKS = ("isr_shrinks", Severity.INFO, "replicas left the ISR")
    ISR_EXPANDS = ("isr_expands", Severity.INFO, "replicas joined the ISR")
    UNLOGGED_CHANGES = (
        "unlogged_changes",
        Severity.INFO,
        "states that were written but not logged, such as an ISR that its leader changed",
    )
    OVERTAKEN_REQUESTS = (
        "overtaken_requests",
        Severity.INFO,
        "requests that a broker's log lacks, but later ones replaced them",
    )
    LEADER_UNAVAILABLE = (
        "leader_unavailable",
        Severity.INFO,
        "brokers were told to follow no leader, or one that they did not know yet",
    )
    LATE_REQUESTS = ("late_requests", Severity.INFO, "requests came after newer ones and were rightly ignored")
    LOGS_NOT_GIVEN = ("logs_not_given", Severity.INFO, "brokers that were sent changes, but whose logs are missing")
    CHANGED_SINCE = ("changed_since", Severity.INFO, "the cluster has changed since the logs ended")

    def __init__(self, label: str, severity: Severity, meaning: str) -> None:
        self.label = label
        self.severity = severity
        self.meaning = meaning


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of thing that happened. Times are starts of lines in UTC; the cluster's own state has none."""

    check: Check
    count: int
    first_start: bytes | None
    last_start: bytes | None
    examples: tuple[str, ...]


_GRAVITY, _TEXT = itemgetter(0), itemgetter(1)


@dataclass(slots=True)
class _Noted:
    count: int = 0
    first_start: bytes | None = None
    last_start: bytes | None = None


class FindingBook:
    """Where the parts of a check note what they find. Examples are the gravest few of each kind, then the first."""

    def __init__(self, examples_max: int) -> None:
        self._examples_max = examples_max
        self._noted: dict[Check, _Noted] = {}
        self._examples: dict[Check, list[tuple[float, str]]] = {}

    def note(self, check: Check, start: bytes | None, example: str, *, count: int = 1, gravity: float = 0.0) -> None:
        """Note that something happened at ``start``, ``count`` times; 0: the previous one continues.

        ``gravity`` compares it with others of its kind.
        """
        noted = self._noted.setdefault(check, _Noted())
        noted.count += count
        if start is not None:
            noted.first_start = start if noted.first_start is None else min(noted.first_start, start)
            noted.last_start = start if noted.last_start is None else max(noted.last_start, start)
        examples = self._examples.setdefault(check, [])
        place = bisect_right(examples, -gravity, key=_GRAVITY)
        if count and place < self._examples_max:
            examples.insert(place, (-gravity, example if start is None else f"{time_text(start)} {example}"))
            del examples[self._examples_max :]

    @property
    def findings(self) -> list[Finding]:
        """All findings, the most severe first, in the order of the checks."""
        return [
            Finding(check, noted.count, noted.first_start, noted.last_start, tuple(map(_TEXT, self._examples[check])))
            for check in Check
            if (noted := self._noted.get(check)) is not None
        ]


def time_text(start: bytes) -> str:
    """Return a start as an example shows it."""
    return start[1:-1].decode("ascii").replace(",", ".")
