"""A cluster's health as values: what is wrong, how severely, how often, with examples. ``checks`` finds this out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.admin.cluster.remedies import Give, Operation, Parameter, Phrase, Words
from engine.common.metric import Metric
from engine.common.snapshot import ClusterSnapshot, LogDirSnapshot

EXAMPLES_MAX = 5
"""This many cases of each reason are named, unless the caller wants all."""


class Severity(StrEnum):
    """How bad it is. Critical: data or service is lost, or one more failure away from it."""

    WARNING = "warning"
    CRITICAL = "critical"


class HealthStatus(StrEnum):
    """A cluster as a whole: as bad as its worst reason."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"


class Check(StrEnum):
    NO_CONTROLLER = "no_controller"
    SEVERAL_CONTROLLERS = "several_controllers"
    MISSING_BROKERS = "missing_brokers"
    SILENT_BROKERS = "silent_brokers"
    UNREADABLE_TOPICS = "unreadable_topics"
    UNKNOWN_SETTINGS = "unknown_settings"
    OFFLINE_PARTITIONS = "offline_partitions"
    UNDER_MIN_ISR = "under_min_isr"
    MIN_ISR_ABOVE_FACTOR = "min_isr_above_factor"
    UNDER_REPLICATED_DEAD_BROKER = "under_replicated_dead_broker"
    UNDER_REPLICATED_LAGGING = "under_replicated_lagging"
    UNDER_REPLICATED_MOVING = "under_replicated_moving"
    OFFLINE_LOG_DIRS = "offline_log_dirs"
    FULL_LOG_DIRS = "full_log_dirs"
    RACK_VIOLATIONS = "rack_violations"
    BROKERS_WITHOUT_RACK = "brokers_without_rack"
    PREFERRED_LEADER_IMBALANCE = "preferred_leader_imbalance"
    RUNNING_REASSIGNMENTS = "running_reassignments"
    LEAKED_THROTTLES = "leaked_throttles"
    HANGING_TRANSACTIONS = "hanging_transactions"
    LONG_TRANSACTIONS = "long_transactions"
    DELETION_STUCK = "deletion_stuck"
    BROKER_CLOCKS = "broker_clocks"
    EXPIRING_CERTIFICATES = "expiring_certificates"
    ZOOKEEPER_UNREACHABLE = "zookeeper_unreachable"
    ZOOKEEPER_SERVERS_DOWN = "zookeeper_servers_down"
    ZOOKEEPER_SLOW = "zookeeper_slow"

    @property
    def severity(self) -> Severity:
        return Severity.WARNING if self in _WARNINGS else Severity.CRITICAL

    @property
    def advice(self) -> Words:
        """What the user should do next."""
        return _ADVICE[self]

    @property
    def meaning(self) -> str:
        """What it means to those who meet Kafka's words for the first time; empty where its own words do."""
        return _MEANINGS.get(self, "")


_WARNINGS = frozenset(
    {
        Check.MIN_ISR_ABOVE_FACTOR,
        Check.UNDER_REPLICATED_MOVING,
        Check.FULL_LOG_DIRS,
        Check.PREFERRED_LEADER_IMBALANCE,
        Check.RACK_VIOLATIONS,
        Check.BROKERS_WITHOUT_RACK,
        Check.RUNNING_REASSIGNMENTS,
        Check.LEAKED_THROTTLES,
        Check.LONG_TRANSACTIONS,
        Check.DELETION_STUCK,
        Check.BROKER_CLOCKS,
        Check.EXPIRING_CERTIFICATES,
        Check.ZOOKEEPER_SERVERS_DOWN,
        Check.ZOOKEEPER_SLOW,
    }
)

DELETE_TOPIC_SETTING = Phrase(Operation.ALTER_TOPIC_CONFIGS, " ", Give(Parameter.DELETE_CONFIG))
DELETE_BROKER_SETTING = Phrase(Operation.ALTER_BROKER_CONFIGS, " ", Give(Parameter.DELETE_CONFIG))

START_ONE = "start a broker that has a replica"
LAST_RESORT = "as a last resort, where another replica is up, "

_ADVICE: Mapping[Check, Words] = {
    Check.NO_CONTROLLER: Phrase(
        "meanwhile nothing is elected or moved: see who is alive with ", Operation.LIST_BROKERS
    ),
    Check.SEVERAL_CONTROLLERS: "brokers disagree: check again soon; if they still do, restart the one that is wrong",
    Check.MISSING_BROKERS: "start each missing broker, or move its replicas away",
    Check.SILENT_BROKERS: "registered but not answering: check the process and its server.log",
    Check.UNREADABLE_TOPICS: Phrase("a damaged znode is of no use to controllers either: ", Operation.READ_RAW_ZNODE),
    Check.UNKNOWN_SETTINGS: "their settings cannot be read, so min ISR and throttles are not checked: is ZooKeeper up? "
    "is their znode whole?",
    Check.OFFLINE_PARTITIONS: Phrase(f"{START_ONE}; {LAST_RESORT}", Operation.ELECT_UNCLEAN),
    Check.UNDER_MIN_ISR: Phrase("producers with acks=all are refused: ", Operation.DESCRIBE_UNDER_MIN_ISR),
    Check.MIN_ISR_ABOVE_FACTOR: Phrase(
        "these brokers require no more in-sync replicas than exist; older ones refuse every write with acks=all: ",
        Operation.DESCRIBE_TOPIC_CONFIGS,
    ),
    Check.UNDER_REPLICATED_DEAD_BROKER: "start each dead broker again",
    Check.UNDER_REPLICATED_LAGGING: "after a restart it catches up by itself; if not, check disk, network, server.log",
    Check.UNDER_REPLICATED_MOVING: Phrase("wait for the reassignment: ", Operation.LIST_REASSIGNMENTS),
    Check.OFFLINE_LOG_DIRS: (
        "the disk has failed or is full: make room or replace it, then restart the broker; or move its replicas away"
    ),
    Check.FULL_LOG_DIRS: "a full disk fails: move partitions away, or shorten the retention of large topics",
    Check.BROKERS_WITHOUT_RACK: "other brokers have racks, so Kafka places no new replicas, not even those of its own "
    "topics: set broker.rack and restart them",
    Check.RACK_VIOLATIONS: "a failing rack takes more copies with it than it should: move replicas to other racks",
    Check.PREFERRED_LEADER_IMBALANCE: Phrase(Operation.ELECT_PREFERRED_OF_ALL),
    Check.RUNNING_REASSIGNMENTS: Phrase(Operation.LIST_REASSIGNMENTS, "; ", Operation.AWAIT_REASSIGNMENT),
    Check.LEAKED_THROTTLES: Phrase(
        Operation.VERIFY_REASSIGNMENT,
        " removes klamm's; others: ",
        DELETE_TOPIC_SETTING,
        ", or ",
        DELETE_BROKER_SETTING,
    ),
    Check.HANGING_TRANSACTIONS: Phrase(
        "readers of committed records wait there forever: ", Operation.FIND_HANGING_TRANSACTIONS
    ),
    Check.LONG_TRANSACTIONS: Phrase(
        "readers of committed records wait there: is its producer slow, or gone? ", Operation.DESCRIBE_TRANSACTION
    ),
    Check.DELETION_STUCK: "a broker with a replica of it is dead, or delete.topic.enable is off",
    Check.BROKER_CLOCKS: "retention goes by this clock, and so do the times in its logs: set it, and keep it set (NTP)",
    Check.EXPIRING_CERTIFICATES: Phrase(
        "then nobody can connect to it any more: give it another key store while it runs: ",
        Operation.ALTER_BROKER_CONFIGS,
        " ",
        Give(Parameter.ADD_CONFIG, "listener.name.LISTENER.ssl.keystore.location=FILE"),
    ),
    Check.ZOOKEEPER_UNREACHABLE: "without it no leader is elected and no ISR changes: start it, or check its log",
    Check.ZOOKEEPER_SERVERS_DOWN: "start it again before another one fails: without most of its servers ZooKeeper does "
    "not serve",
    Check.ZOOKEEPER_SLOW: "check its disk and its garbage collection",
}


_MEANINGS: Mapping[Check, str] = {
    Check.UNDER_REPLICATED_DEAD_BROKER: "replicas on brokers that are down are not in sync: they have left the ISR",
    Check.UNDER_REPLICATED_LAGGING: "replicas do not keep up with their leaders: they have left the ISR",
    Check.UNDER_MIN_ISR: "fewer replicas are in sync (the ISR) than min.insync.replicas wants",
    Check.PREFERRED_LEADER_IMBALANCE: "the first replica of a partition should lead it; after a restart others do",
}


@dataclass(frozen=True, slots=True)
class HealthReason:
    """One check that failed. ``count`` counts all findings, ``examples`` name some of them.

    ``advice`` says what to do next; if it is empty, the check's own advice is used.
    """

    check: Check
    severity: Severity
    count: int
    examples: tuple[str, ...]
    advice: Words = ""

    def __post_init__(self) -> None:
        if not self.advice:
            object.__setattr__(self, "advice", self.check.advice)


@dataclass(frozen=True, slots=True)
class HealthReport:
    """A cluster's health."""

    status: HealthStatus
    reasons: tuple[HealthReason, ...]

    def is_as_bad_as(self, limit: HealthStatus) -> bool:
        """Whether the status is that bad or worse; a cluster that is OK is never bad."""
        ranks = tuple(HealthStatus)
        return self.status is not HealthStatus.OK and ranks.index(self.status) >= ranks.index(limit)


@dataclass(frozen=True, slots=True)
class HoldingTransaction:
    """The transaction that holds a partition's last stable offset back.

    ``held_ms`` counts from its first partition, or (hanging) from its last record; None if unknown.
    """

    partition: str
    start_offset: int
    producer_id: int
    held_ms: int | None
    is_hanging: bool
    transactional_id: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """What the checks look at; unknown facts are empty or None.

    Attributes:
        min_isr: by topic.
        listed_reassignments: names that are still in ``/admin/reassign_partitions``.
        are_moves_known: False if nobody said which reassignments are under way, or klamm may not see them.
        seen_controllers: by broker, which broker it considers the controller (None: none).
        offline_log_dirs: by broker.
        used_percents: by broker and log dir, how full its volume is, other data included.
        silent_brokers: registered brokers that did not answer, and what they did instead. refusals: what to do about
            those of them that klamm could reach, while TLS or the login failed.
        hung_addresses: those that the caller named, where something takes connections and answers nothing; only asked
            if a broker is missing.
        idle_controller: what the controller did instead of its work, though it answers as a broker.
        deletion_ages_ms: for how long topics have been marked for deletion.
        clocks_apart_ms: by broker, how far its clock was ahead of ZooKeeper's when it registered.
        certificates_left_ms: by broker, how long the certificate of its listener is still valid, if that is not long.
        zookeeper_ms: how long a read takes.
        zookeepers_down: which of the ZooKeeper servers that the caller named do not serve, and why.
        zookeeper_trouble: why ZooKeeper was not asked, although the caller named it.
        caps_min_isr: all brokers are of Kafka 3.7 or newer, where min.insync.replicas wants no more in sync than a
            partition has replicas.
        is_kraft: the controllers are not brokers, and each broker names some live broker (Kafka 3.3 and newer).
        unreadable_topics: what is wrong with znodes of topics that could not be read, so that nothing else is known.
        hidden_settings: topics whose settings are not known because klamm may not see them: no fault of theirs.
        plan: who carries out a plan, and which; only asked for if something is throttled.
        holding: what holds readers of committed records up, by partition.
        awaits_leaders: a partition without a leader is not offline yet if a replica in sync is alive: a controller is
            about to elect that.
    """

    snapshot: ClusterSnapshot
    min_isr: Mapping[str, int] = field(default_factory=dict)
    listed_reassignments: tuple[str, ...] = ()
    are_moves_known: bool = True
    seen_controllers: Mapping[int, int | None] = field(default_factory=dict)
    offline_log_dirs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    used_percents: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    silent_brokers: Mapping[int, str] = field(default_factory=dict)
    refusals: Mapping[int, str] = field(default_factory=dict)
    hung_addresses: tuple[str, ...] = ()
    idle_controller: str | None = None
    deletion_ages_ms: Mapping[str, int] = field(default_factory=dict)
    clocks_apart_ms: Mapping[int, int] = field(default_factory=dict)
    certificates_left_ms: Mapping[int, int] = field(default_factory=dict)
    zookeeper_ms: float | None = None
    zookeepers_down: tuple[str, ...] = ()
    zookeeper_trouble: str | None = None
    unreadable_topics: tuple[str, ...] = ()
    hidden_settings: frozenset[str] = frozenset()
    caps_min_isr: bool = False
    is_kraft: bool = False
    plan: str | None = None
    holding: tuple[HoldingTransaction, ...] = ()
    awaits_leaders: bool = False

    @property
    def start(self) -> str:
        """What to do with a broker that is missing: the process of one that hangs has not ended."""
        return "continue or start" if self.hung_addresses else "start"


def used_percent(total_bytes: int | None, usable_bytes: int | None) -> float | None:
    """Return how full a volume is; None if its broker does not say (before Kafka 3.3)."""
    if total_bytes is None or usable_bytes is None or total_bytes <= 0:
        return None
    return 100 * (total_bytes - usable_bytes) / total_bytes


def used_percents(log_dirs: Iterable[LogDirSnapshot]) -> dict[int, dict[str, float]]:
    """Return by broker and log dir how full the volume is, as far as brokers say."""
    percents: dict[int, dict[str, float]] = {}
    for log_dir in log_dirs:
        percent = used_percent(log_dir.total_bytes, log_dir.usable_bytes)
        if percent is not None:
            percents.setdefault(log_dir.broker, {})[log_dir.log_dir] = percent
    return percents


def report_of(
    findings: Iterable[tuple[Check, list[str]]],
    examples_max: int | None = EXAMPLES_MAX,
    advice: Mapping[Check, Words] | None = None,
) -> HealthReport:
    """Return the report of what the checks found, the worst first; each names ``examples_max`` cases, or (None) all.

    ``advice`` is what these cases need, for checks whose own advice does not say it all.
    """
    return report_of_reasons(
        HealthReason(check, check.severity, len(cases), tuple(cases[:examples_max]), (advice or {}).get(check, ""))
        for check, cases in findings
        if cases
    )


def report_of_reasons(unsorted: Iterable[HealthReason]) -> HealthReport:
    """Return the report of these reasons, the worst first."""
    reasons = sorted(unsorted, key=lambda reason: reason.severity is not Severity.CRITICAL)
    status = HealthStatus(reasons[0].severity.value) if reasons else HealthStatus.OK
    return HealthReport(status, tuple(reasons))


def health_metrics(health: HealthReport) -> list[Metric]:
    """Return the status, and a sample for every check: one that finds nothing is 0, so that alerts end."""
    by_check = {reason.check: reason for reason in health.reasons}
    samples = [
        (
            {"check": check.value, "severity": by_check.get(check, check).severity.value},
            float(by_check[check].count if check in by_check else 0),
        )
        for check in Check
    ]
    status = float(tuple(HealthStatus).index(health.status))
    return [
        Metric("klamm_cluster_health", "0 is ok, 1 warning, 2 critical.", [({}, status)]),
        Metric("klamm_cluster_health_findings", "How much each check has found.", samples),
    ]
