"""The checks of a cluster's health. Pure: facts in, findings out; each finding is a line that names its subject.

``topic_checks`` has those of topics and partitions. If findings differ in severity, the worst come first, because only
some are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter

from engine.admin.cluster.certificates import expiry_text
from engine.admin.cluster.remedies import Do, Give, Operation, Parameter, Part, Phrase, Words
from engine.admin.health.report import (
    EXAMPLES_MAX,
    LAST_RESORT,
    START_ONE,
    Check,
    HealthFacts,
    HealthReport,
    HoldingTransaction,
    report_of,
)
from engine.admin.health.topic_checks import TopicFindings, TopicMemory
from engine.admin.reassignment.throttle_settings import RATES, REPLICA_LISTS, is_mark_alone, marked_rates, read_list
from engine.common.assignment import lacking_rack
from engine.common.model import NO_CONTROLLER
from engine.common.quantities import counted, plural
from engine.common.snapshot import ClusterSnapshot, SnapshotSource
from engine.kafka.formats.transaction_state import TransactionState

IMBALANCE_PERCENT_MAX = 10
"""Kafka's default of leader.imbalance.per.broker.percentage."""
ALMOST_FULL_PERCENT = 95.0
DELETION_STUCK_MS = 60_000
CLOCK_AHEAD_MS = 2_000
"""A broker's clock that is further ahead of ZooKeeper's is reported."""
CLOCK_BEHIND_MS = 30_000
"""One that is further behind: less may be the time that a slow start took between the broker's note and ZooKeeper's."""
ZOOKEEPER_SLOW_MS = 100.0
HANGING_MS = 60_000
"""A transaction that no coordinator knows is reported after this time without a record."""
LONG_TRANSACTION_MS = 300_000
ENDING_MS = 60_000
"""For so long markers may be on their way."""

_ONGOING = TransactionState.ONGOING.kafka_name
_IN_SYNC = itemgetter(0)

_OF_TOPICS = (
    Check.UNKNOWN_SETTINGS,
    Check.OFFLINE_PARTITIONS,
    Check.UNDER_MIN_ISR,
    Check.MIN_ISR_ABOVE_FACTOR,
    Check.UNDER_REPLICATED_DEAD_BROKER,
    Check.UNDER_REPLICATED_LAGGING,
    Check.UNDER_REPLICATED_MOVING,
)
"""Findings that name a topic or a partition, in the order of the report."""


def assess(
    facts: HealthFacts, examples_max: int | None = EXAMPLES_MAX, *, memory: TopicMemory | None = None
) -> HealthReport:
    """Return what is wrong with a cluster.

    Args:
        examples_max: how many cases of each reason to name; None: all.
        memory: topics in it are not checked again.
    """
    topics = (memory or TopicMemory()).of(facts)
    throttles = leftover_throttles(facts, topics.moving_topics)
    lines = topics.found | {Check.UNDER_MIN_ISR: [line for _, line in sorted(topics.under_min_isr, key=_IN_SYNC)]}
    return report_of(
        examples_max=examples_max,
        advice={
            Check.LEAKED_THROTTLES: how_to_remove(throttles),
            Check.MISSING_BROKERS: _go_on_first(facts),
            Check.SILENT_BROKERS: _after_refusals(facts),
            Check.UNDER_REPLICATED_LAGGING: _failed_below(facts, topics),
            Check.OFFLINE_PARTITIONS: _mend_first(facts, topics),
            Check.UNDER_REPLICATED_DEAD_BROKER: f"{facts.start} each dead broker again",
        },
        findings=[
            *_controller(facts),
            (Check.MISSING_BROKERS, _missing_brokers(topics)),
            (Check.SILENT_BROKERS, _silent_brokers(facts)),
            (Check.UNREADABLE_TOPICS, list(facts.unreadable_topics)),
            # A failed log dir is the cause of what its replicas lack, so it comes before them.
            (Check.OFFLINE_LOG_DIRS, _log_dirs(facts)),
            *((check, lines.get(check, [])) for check in _OF_TOPICS),
            (Check.FULL_LOG_DIRS, _full_log_dirs(facts)),
            (Check.HANGING_TRANSACTIONS, _hanging(facts)),
            (Check.LONG_TRANSACTIONS, _long_transactions(facts)),
            (Check.RACK_VIOLATIONS, lines.get(Check.RACK_VIOLATIONS, [])),
            (Check.BROKERS_WITHOUT_RACK, _without_rack(facts)),
            (Check.PREFERRED_LEADER_IMBALANCE, _imbalance(topics)),
            (Check.RUNNING_REASSIGNMENTS, _running(facts, topics)),
            (Check.LEAKED_THROTTLES, [str(throttle) for throttle in throttles]),
            (Check.DELETION_STUCK, _deletions(facts)),
            (Check.BROKER_CLOCKS, _clocks(facts)),
            (Check.EXPIRING_CERTIFICATES, _certificates(facts)),
            (Check.ZOOKEEPER_UNREACHABLE, [facts.zookeeper_trouble] if facts.zookeeper_trouble else []),
            (Check.ZOOKEEPER_SERVERS_DOWN, list(facts.zookeepers_down)),
            (Check.ZOOKEEPER_SLOW, _zookeeper(facts)),
        ],
    )


def _controller(facts: HealthFacts) -> Iterator[tuple[Check, list[str]]]:
    snapshot = facts.snapshot
    if snapshot.controller_id == NO_CONTROLLER:
        is_absent = snapshot.source is SnapshotSource.ZOOKEEPER and snapshot.cluster_id is None
        why = ": no cluster is in this ZooKeeper, or not under this chroot (it has no /cluster/id)" if is_absent else ""
        yield Check.NO_CONTROLLER, [f"no broker is the controller{why}"]
    elif snapshot.controller_id not in snapshot.live_broker_ids:
        yield Check.NO_CONTROLLER, [f"broker {snapshot.controller_id} is the controller, but is not alive"]
    elif facts.idle_controller is not None:
        what = f"broker {snapshot.controller_id} is the controller, and answers, but not as the controller"
        yield Check.NO_CONTROLLER, [f"{what}: {facts.idle_controller}; is ZooKeeper up?"]
    if facts.is_kraft:
        return
    seen = {controller for controller in facts.seen_controllers.values() if controller is not None}
    if snapshot.controller_id != NO_CONTROLLER:
        seen.add(snapshot.controller_id)
    if len(seen) > 1:
        claims = [(f"broker {broker}", who) for broker, who in sorted(facts.seen_controllers.items())]
        if snapshot.source is SnapshotSource.ZOOKEEPER:
            claims = [("ZooKeeper", snapshot.controller_id), *claims]
        nobody = "does not name a controller"
        texts = [
            f"{who} {nobody if named in (None, NO_CONTROLLER) else f'names broker {named}'}" for who, named in claims
        ]
        yield Check.SEVERAL_CONTROLLERS, texts


def _missing_brokers(topics: TopicFindings) -> list[str]:
    counts = sorted(topics.missing.items(), key=lambda item: (-item[1], item[0]))
    return [f"broker {broker}: {counted(count, 'replica')}" for broker, count in counts]


def _silent_brokers(facts: HealthFacts) -> list[str]:
    """Say how many partitions each leads: nobody can read or write those until it answers or another leads."""
    if not facts.silent_brokers:
        return []
    led = Counter(partition.leader for topic in facts.snapshot.topics for partition in topic.partitions)
    return [
        f"broker {broker}: {why}; it leads {counted(led[broker], 'partition')}"
        for broker, why in sorted(facts.silent_brokers.items())
    ]


def _go_on_first(facts: HealthFacts) -> Words:
    """Return what to do about missing brokers if a process hangs: its port is taken, so no other can start there."""
    if not facts.hung_addresses:
        return ""
    what = f"no answer at {', '.join(facts.hung_addresses)}, where connections are taken"
    return f"{what}: continue the process that hangs there, or end it; then {Check.MISSING_BROKERS.advice}"


def _after_refusals(facts: HealthFacts) -> Words:
    """Return what to do about silent brokers if TLS or the login failed at some: their process may be well."""
    refused = facts.silent_brokers.keys() & facts.refusals.keys()
    hints = dict.fromkeys(facts.refusals[broker] for broker in sorted(refused))
    others = () if len(refused) == len(facts.silent_brokers) else (f"for others: {Check.SILENT_BROKERS.advice}",)
    return "; ".join((*hints, *others)) if hints else ""


def _log_dirs(facts: HealthFacts) -> list[str]:
    return [f"broker {broker}: {path}" for broker, paths in sorted(facts.offline_log_dirs.items()) for path in paths]


def _failed_below(facts: HealthFacts, topics: TopicFindings) -> Words:
    """Return which failed log dirs took replicas that are behind with them; nothing if it was something else."""
    failed = [
        f"broker {b}: {', '.join(facts.offline_log_dirs[b])}"
        for b in sorted(topics.lagging & facts.offline_log_dirs.keys())
    ]
    if not failed:
        return ""
    others = (
        "" if len(failed) == len(topics.lagging) else f"; for other brokers: {Check.UNDER_REPLICATED_LAGGING.advice}"
    )
    return f"a failed log dir took its replicas with it ({'; '.join(failed)}): fix that first{others}"


def _mend_first(facts: HealthFacts, topics: TopicFindings) -> Words:
    """Return what brings offline partitions back, and an unclean election only if it can elect anybody.

    A broker whose log dir failed is up, so neither a start nor (Kafka 3.9) an unclean election of it helps.
    """
    way = start_one = START_ONE.replace("start", facts.start, 1)
    if topics.stranded:
        who = ", ".join(map(str, sorted(topics.stranded_on)))
        repair = f"repair the failed log dir of broker {who}, then restart it"
        is_all = len(topics.found.get(Check.OFFLINE_PARTITIONS, ())) <= topics.stranded
        way = repair if is_all else f"{start_one}; or {repair}"
    return Phrase(f"{way}; {LAST_RESORT}", Operation.ELECT_UNCLEAN) if topics.spare else way


def _full_log_dirs(facts: HealthFacts) -> list[str]:
    full = [
        (-percent, broker, path)
        for broker, dirs in facts.used_percents.items()
        for path, percent in dirs.items()
        if percent >= ALMOST_FULL_PERCENT
    ]
    return [f"broker {broker}: {path}, {-percent:.0f} % full" for percent, broker, path in sorted(full)]


def _hanging(facts: HealthFacts) -> list[str]:
    return [
        f"{txn.partition} (producer {txn.producer_id}, {_minutes(txn.held_ms)} without a record: nothing from offset "
        f"{txn.start_offset} on is read, and no coordinator will end it)"
        for txn in _longest_first(facts.holding)
        if txn.is_hanging and (txn.held_ms is None or txn.held_ms >= HANGING_MS)
    ]


def _long_transactions(facts: HealthFacts) -> list[str]:
    return [
        f"{txn.partition} (producer {txn.producer_id} of transactional id {txn.transactional_id!r}, {txn.state} for "
        f"{_minutes(txn.held_ms)}: nothing from offset {txn.start_offset} on is read)"
        for txn in _longest_first(facts.holding)
        if not txn.is_hanging
        and txn.held_ms is not None
        and txn.held_ms >= (LONG_TRANSACTION_MS if txn.state == _ONGOING else ENDING_MS)
    ]


def _longest_first(holding: Iterable[HoldingTransaction]) -> list[HoldingTransaction]:
    return sorted(holding, key=lambda transaction: (-(transaction.held_ms or 0), transaction.partition))


def _minutes(duration_ms: int | None) -> str:
    return "an unknown time" if duration_ms is None else f"{duration_ms // 60_000} min"


def _imbalance(topics: TopicFindings) -> list[str]:
    """Return the brokers that lead too few of the partitions they are preferred for.

    Only partitions that they could lead count: no election helps a broker that is dead or not in sync.
    """
    return [
        f"broker {broker} does not lead {count} of the {topics.preferred[broker]} partitions it is preferred for"
        for broker, count in sorted(topics.elsewhere.items(), key=lambda item: (-item[1], item[0]))
        if count * 100 > topics.preferred[broker] * IMBALANCE_PERCENT_MAX
    ]


def _without_rack(facts: HealthFacts) -> list[str]:
    """Return the brokers that keep the controller from placing replicas; that of KRaft places them all the same."""
    lacking = lacking_rack({broker.id: broker.rack for broker in facts.snapshot.brokers})
    return [] if facts.is_kraft else [f"broker {broker}" for broker in lacking]


def _running(facts: HealthFacts, topics: TopicFindings) -> list[str]:
    # Those that make no progress come first, because only some are shown.
    lines = [f"{name}{why}" for name, why in sorted(topics.moving.items(), key=lambda item: not item[1])]
    lines += [name for name in facts.listed_reassignments if name not in topics.moving]
    if facts.plan is None:
        return lines
    # The plan is no reassignment, so it is no line of its own beside theirs: lines are counted.
    first = f"{lines[0]}; under " if lines else ""
    return [f"{first}a plan, which holds the throttle until it ends: {facts.plan}", *lines[1:]]


def _deletions(facts: HealthFacts) -> list[str]:
    stuck = {topic: age_ms for topic, age_ms in facts.deletion_ages_ms.items() if age_ms > DELETION_STUCK_MS}
    live = facts.snapshot.live_broker_ids
    dead = {
        topic.name: sorted({broker for p in topic.partitions for broker in p.assignment.replicas} - set(live))
        for topic in facts.snapshot.topics
        if topic.name in stuck
    }
    return [
        f"topic {topic}, for {age_ms // 1000} s{_held_up_by(dead.get(topic, ()))}"
        for topic, age_ms in sorted(stuck.items(), key=lambda item: (-item[1], item[0]))
    ]


def _held_up_by(dead: Sequence[int]) -> str:
    return f": it waits for {plural('broker', len(dead))} {', '.join(map(str, dead))}" if dead else ""


def _clocks(facts: HealthFacts) -> list[str]:
    return [
        f"broker {broker} ({abs(apart_ms) / 1000:.1f} s {'ahead of' if apart_ms > 0 else 'behind'} ZooKeeper's when it "
        "registered)"
        for broker, apart_ms in sorted(facts.clocks_apart_ms.items(), key=lambda item: (-abs(item[1]), item[0]))
        if not -CLOCK_BEHIND_MS <= apart_ms <= CLOCK_AHEAD_MS
    ]


def _certificates(facts: HealthFacts) -> list[str]:
    lives = sorted(facts.certificates_left_ms.items(), key=lambda item: (item[1], item[0]))
    return [f"broker {broker}: its certificate {expiry_text(left_ms)}" for broker, left_ms in lives]


def _zookeeper(facts: HealthFacts) -> list[str]:
    slow = facts.zookeeper_ms is not None and facts.zookeeper_ms > ZOOKEEPER_SLOW_MS
    return [f"a read takes {facts.zookeeper_ms:.0f} ms"] if slow else []


def has_throttles(snapshot: ClusterSnapshot) -> bool:
    """Whether any topic or broker is throttled, needed or not."""
    of_topics = (topic.configs for topic in snapshot.topics if topic.configs)
    return any(not configs.keys().isdisjoint(REPLICA_LISTS) for configs in of_topics) or any(
        not configs.keys().isdisjoint(RATES) for configs in snapshot.broker_configs.values()
    )


@dataclass(frozen=True, slots=True)
class Throttle:
    """A setting that throttles a topic, a broker, or all brokers (neither)."""

    key: str
    value: str
    topic: str | None = None
    broker: int | None = None
    is_dead: bool = False
    is_ours: bool = False
    """Whether klamm has set it."""

    def __str__(self) -> str:
        """Say what is set, without the entries by which klamm knows its own: they name no replica."""
        if self.key not in REPLICA_LISTS or not (throttled := read_list(self.value)).marks:
            return f"{self.whose}: {self.key}={self.value}"
        return (
            f"{self.whose}: {self.key}={','.join((*throttled.others, *throttled.ours)) or 'no replica'} (set by klamm)"
        )

    @property
    def whose(self) -> str:
        if self.topic is not None:
            return f"topic {self.topic}"
        return "all brokers" if self.broker is None else f"broker {self.broker}{', dead' if self.is_dead else ''}"


def leftover_throttles(facts: HealthFacts, moving_topics: Set[str]) -> list[Throttle]:
    """Return throttles that serve no reassignment: on topics that do not move, and on brokers while nothing moves.

    While something moves, a topic may keep just the mark of a rate that brokers still have. While a plan is carried
    out, nothing is left behind: between two waves nothing moves, and the next one needs the throttle. Nor is anything
    called so while nobody knows what moves: to remove it would let a move take all of the network.

    Args:
        moving_topics: those with partitions that are being reassigned.
    """
    if facts.plan is not None or not facts.are_moves_known:
        return []
    is_anything_moving = bool(moving_topics or facts.listed_reassignments)
    throttles = [
        Throttle(key, topic.configs[key], topic=topic.name, is_ours=bool(read_list(topic.configs[key]).marks))
        for topic in facts.snapshot.topics
        if topic.configs and topic.name not in moving_topics
        for key in REPLICA_LISTS
        if topic.configs.get(key)
        if not is_anything_moving or not is_mark_alone(topic.configs[key])
    ]
    if is_anything_moving:
        return throttles
    snapshot = facts.snapshot
    ours = marked_rates(topic.configs for topic in snapshot.topics if topic.configs)
    for broker, configs in sorted(snapshot.broker_configs.items(), key=lambda item: -1 if item[0] is None else item[0]):
        is_dead = broker is not None and broker not in snapshot.live_broker_ids
        throttles += [
            Throttle(key, configs[key], broker=broker, is_dead=is_dead, is_ours=configs[key] in ours[key])
            for key in RATES
            if key in configs
        ]
    return throttles


def how_to_remove(throttles: Sequence[Throttle]) -> Words:
    """Return how to remove throttles: klamm's all at once, those of others by name."""
    others: dict[str, list[Throttle]] = {}
    for throttle in throttles:
        if not throttle.is_ours:
            others.setdefault(throttle.whose, []).append(throttle)
    deletions = [_deletion(of_one) for of_one in others.values()]
    steps: list[Words] = deletions[:EXAMPLES_MAX]
    if len(deletions) > EXAMPLES_MAX:
        steps.append(f"and so on, for {len(deletions) - EXAMPLES_MAX} more")
    if any(throttle.is_ours for throttle in throttles):
        steps.insert(0, Phrase(Operation.VERIFY_REASSIGNMENT, " removes klamm's"))
    return Phrase(*[part for step in steps for part in ("; ", step)][1:])


def _deletion(throttles: Sequence[Throttle]) -> Words:
    """Return how to delete the settings of one topic or broker."""
    throttle = throttles[0]
    if throttle.topic is not None:
        whose: Part = Do(Operation.ALTER_TOPIC_CONFIGS, throttle.topic)
    elif throttle.broker is not None:
        whose = Do(Operation.ALTER_BROKER_CONFIGS, str(throttle.broker))
    else:
        whose = Operation.ALTER_BROKER_DEFAULTS
    via = (" ", Give(Parameter.VIA, "zookeeper")) if throttle.is_dead else ()
    return Phrase(whose, " ", Give(Parameter.DELETE_CONFIG, ",".join(throttle.key for throttle in throttles)), *via)
