"""The checks of a cluster's health. Pure: facts in, findings out; each finding is a line that names its subject.

Where one finding can be worse than another, the worst come first, because only some are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from operator import itemgetter

from engine.admin.cluster.remedies import Operation, Phrase, Words
from engine.admin.health.leftover_throttles import how_to_remove, leftover_throttles
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
from engine.admin.topics.values import DEFAULT_MIN_ISR
from engine.common.model import NO_CONTROLLER, NO_LEADER, TopicPartition
from engine.common.quantities import counted
from engine.common.snapshot import PartitionSnapshot, SnapshotSource, TopicSnapshot
from engine.common.turns import topics_in_turns
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


@dataclass(frozen=True, slots=True)
class _Setting:
    """What the findings of every topic depend on. ``racks`` is empty if a live broker has none."""

    live: frozenset[int]
    racks: Mapping[int, str]
    caps_min_isr: bool
    hidden: frozenset[str] = frozenset()
    awaits_leaders: bool = False
    failed: frozenset[int] = frozenset()
    """Brokers with a failed log dir: what they have there they cannot lead."""

    @staticmethod
    def of(facts: HealthFacts) -> _Setting:
        snapshot = facts.snapshot
        racks = {broker.id: broker.rack for broker in snapshot.brokers if broker.rack is not None}
        known = racks if len(racks) == len(snapshot.brokers) else {}
        live, hidden = frozenset(snapshot.live_broker_ids), facts.hidden_settings
        failed = frozenset(facts.offline_log_dirs)
        return _Setting(live, known, facts.caps_min_isr, hidden, facts.awaits_leaders, failed)


@dataclass(slots=True)
class _TopicFindings:
    """The findings about one topic, or the sums over all of them."""

    found: dict[Check, list[str]] = field(default_factory=dict)
    missing: Counter[int] = field(default_factory=Counter)
    """Replicas on brokers that do not live."""
    preferred: Counter[int] = field(default_factory=Counter)
    """Partitions by the live broker that should lead them."""
    elsewhere: Counter[int] = field(default_factory=Counter)
    """Those of them that another one leads."""
    moving: dict[str, str] = field(default_factory=dict)
    """Partitions that are being reassigned, and why one gets no further."""
    moving_topics: set[str] = field(default_factory=set)
    lagging: set[int] = field(default_factory=set)
    """Live brokers with replicas that are behind."""
    under_min_isr: list[tuple[int, str]] = field(default_factory=list)
    """How many replicas are in sync, and the finding."""
    unelected: int = 0
    """Partitions without a leader of which a replica in sync is alive."""
    spare: int = 0
    """Partitions without a leader of which a live broker has a replica, and no failed log dir took it."""
    stranded: int = 0
    """Partitions without a leader of which live brokers with a failed log dir were in sync."""
    stranded_on: set[int] = field(default_factory=set)
    """These brokers."""

    def add(self, other: _TopicFindings) -> None:
        for check, lines in other.found.items():
            self.found.setdefault(check, []).extend(lines)
        for mine, theirs in (
            (self.missing, other.missing),
            (self.preferred, other.preferred),
            (self.elsewhere, other.elsewhere),
        ):
            for broker, count in theirs.items():
                mine[broker] += count
        self.under_min_isr += other.under_min_isr
        self.unelected += other.unelected
        self.stranded += other.stranded
        self.spare += other.spare
        self.stranded_on |= other.stranded_on
        self.lagging |= other.lagging
        if other.moving:
            self.moving |= other.moving
            self.moving_topics |= other.moving_topics


class TopicMemory:
    """Remembers the findings about each topic, for callers that check a series of snapshots with shared parts.

    A topic that is the same object, with the same live brokers in the same racks and the same min ISR, is not checked
    again.
    """

    def __init__(self) -> None:
        self._setting: _Setting | None = None
        self._topics: dict[str, tuple[TopicSnapshot, int, _TopicFindings]] = {}
        self._all: tuple[tuple[TopicSnapshot, ...], Mapping[str, int], _TopicFindings] | None = None

    def turns(self, facts: HealthFacts) -> Iterator[None]:
        """Check what has to be checked, in turns of an event loop; after the last one ``of`` has little to do."""
        setting = self._setting_of(facts)

        def check(topic: TopicSnapshot) -> bool:
            min_isr = facts.min_isr.get(topic.name, DEFAULT_MIN_ISR)
            is_known = self._known(topic, min_isr) is not None
            self._of_topic(topic, setting, min_isr)
            return not is_known

        return topics_in_turns(facts.snapshot.topics, check)

    def of(self, facts: HealthFacts) -> _TopicFindings:
        """Return the findings about all topics together."""
        setting = self._setting_of(facts)
        topics = facts.snapshot.topics
        if self._all is not None and self._all[0] is topics and self._all[1] is facts.min_isr:
            return self._all[2]
        if len(self._topics) > len(topics):
            existing = {topic.name for topic in topics}
            self._topics = {name: known for name, known in self._topics.items() if name in existing}
        total = _TopicFindings()
        for topic in topics:
            total.add(self._of_topic(topic, setting, facts.min_isr.get(topic.name, DEFAULT_MIN_ISR)))
        self._all = topics, facts.min_isr, total
        return total

    def _setting_of(self, facts: HealthFacts) -> _Setting:
        """Return what the findings depend on now; if that is something else than before, forget them."""
        setting = _Setting.of(facts)
        if setting != self._setting:
            self._setting, self._all = setting, None
            self._topics.clear()
        return setting

    def _known(self, topic: TopicSnapshot, min_isr: int) -> _TopicFindings | None:
        known = self._topics.get(topic.name)
        return known[2] if known is not None and known[0] is topic and known[1] == min_isr else None

    def _of_topic(self, topic: TopicSnapshot, setting: _Setting, min_isr: int) -> _TopicFindings:
        found = self._known(topic, min_isr)
        if found is None:
            found = _topic(topic, setting, min_isr)
            self._topics[topic.name] = topic, min_isr, found
        return found


def assess(
    facts: HealthFacts, examples_max: int | None = EXAMPLES_MAX, *, memory: TopicMemory | None = None
) -> HealthReport:
    """Return what is wrong with a cluster.

    Args:
        examples_max: this many cases of each reason are named; None: all.
        memory: topics that it knows are not checked again.
    """
    topics = (memory or TopicMemory()).of(facts)
    throttles = leftover_throttles(facts, topics.moving_topics)
    found = topics.found | {Check.UNDER_MIN_ISR: [line for _, line in sorted(topics.under_min_isr, key=_IN_SYNC)]}
    return report_of(
        examples_max=examples_max,
        advice={
            Check.LEAKED_THROTTLES: how_to_remove(throttles),
            Check.UNDER_REPLICATED_LAGGING: _failed_below(facts, topics),
            Check.OFFLINE_PARTITIONS: _mend_first(topics),
        },
        findings=[
            *_controller(facts),
            (Check.MISSING_BROKERS, _missing_brokers(topics)),
            (Check.SILENT_BROKERS, _silent_brokers(facts)),
            (Check.UNREADABLE_TOPICS, list(facts.unreadable_topics)),
            # A failed log dir is the cause of what its replicas lack, so it comes before them.
            (Check.OFFLINE_LOG_DIRS, _log_dirs(facts)),
            *((check, found.get(check, [])) for check in _OF_TOPICS),
            (Check.FULL_LOG_DIRS, _full_log_dirs(facts)),
            (Check.HANGING_TRANSACTIONS, _hanging(facts)),
            (Check.LONG_TRANSACTIONS, _long_transactions(facts)),
            (Check.RACK_VIOLATIONS, found.get(Check.RACK_VIOLATIONS, [])),
            (Check.PREFERRED_LEADER_IMBALANCE, _imbalance(topics)),
            (Check.RUNNING_REASSIGNMENTS, _running(facts, topics)),
            (Check.LEAKED_THROTTLES, [str(throttle) for throttle in throttles]),
            (Check.DELETION_STUCK, _deletions(facts)),
            (Check.BROKER_CLOCKS, _clocks(facts)),
            (Check.ZOOKEEPER_UNREACHABLE, [facts.zookeeper_trouble] if facts.zookeeper_trouble else []),
            (Check.ZOOKEEPER_SLOW, _zookeeper(facts)),
        ],
    )


def partition_checks(facts: HealthFacts) -> Callable[[TopicSnapshot, PartitionSnapshot], set[Check]]:
    """Return a function that names the checks that find fault with a partition, by the rules of ``assess``."""
    setting = _Setting.of(facts)

    def checks(topic: TopicSnapshot, partition: PartitionSnapshot) -> set[Check]:
        if topic.is_marked_for_deletion:
            return set()
        min_isr = facts.min_isr.get(topic.name, DEFAULT_MIN_ISR)
        found = {check for check, _ in _troubles(partition, setting, min_isr)}
        return found | {Check.RACK_VIOLATIONS} if _shares_rack(partition, setting.racks) else found

    return checks


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
        told = [(f"broker {broker}", who) for broker, who in sorted(facts.seen_controllers.items())]
        if snapshot.source is SnapshotSource.ZOOKEEPER:
            told = [("ZooKeeper", snapshot.controller_id), *told]
        nobody = "does not name a controller"
        texts = [
            f"{who} {nobody if named in (None, NO_CONTROLLER) else f'names broker {named}'}" for who, named in told
        ]
        yield Check.SEVERAL_CONTROLLERS, texts


def _missing_brokers(topics: _TopicFindings) -> list[str]:
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


def _topic(topic: TopicSnapshot, setting: _Setting, min_isr: int) -> _TopicFindings:
    """Return the findings about one topic; for one that is being deleted, only that its settings are unknown."""
    findings = _TopicFindings()
    if topic.configs is None and topic.name not in setting.hidden:
        findings.found[Check.UNKNOWN_SETTINGS] = [f"topic {topic.name}"]
    if topic.is_marked_for_deletion:
        return findings
    for partition in topic.partitions:
        _count_brokers(findings, partition, setting.live)
        is_moving = partition.assignment.is_being_reassigned
        shares_rack = _shares_rack(partition, setting.racks)
        is_well = partition.leader in setting.live and len(partition.isr) >= min_isr
        if is_well and not partition.is_under_replicated and not is_moving and not shares_rack:
            continue
        name = str(TopicPartition(topic.name, partition.partition))
        findings.unelected += bool(_electable(partition, setting))
        if not partition.is_led(setting.live):
            stranded = _stranded(partition, setting)
            findings.stranded += bool(stranded)
            findings.stranded_on.update(stranded)
            findings.spare += not setting.live.difference(stranded).isdisjoint(partition.replicas)
        for check, line in _troubles(partition, setting, min_isr):
            if check is Check.UNDER_MIN_ISR:
                findings.under_min_isr.append((len(partition.isr), f"{name} ({line})"))
            else:
                findings.found.setdefault(check, []).append(f"{name} ({line})")
            if check is Check.UNDER_REPLICATED_LAGGING:
                findings.lagging.update(_cause(partition, setting.live)[1])
        if shares_rack:
            line = ", ".join(f"{b} in {setting.racks[b]}" for b in partition.assignment.target_replicas)
            findings.found.setdefault(Check.RACK_VIOLATIONS, []).append(f"{name} (replicas {line})")
        if is_moving:
            findings.moving[name] = _held_up(partition, setting.live)
            findings.moving_topics.add(topic.name)
    return findings


def _troubles(partition: PartitionSnapshot, setting: _Setting, min_isr: int) -> Iterator[tuple[Check, str]]:
    in_sync, replicas = len(partition.isr), len(partition.replicas)
    is_led = partition.is_led(setting.live)
    if not is_led:
        if not (setting.awaits_leaders and _electable(partition, setting)):
            yield Check.OFFLINE_PARTITIONS, _offline(partition, setting)
    elif partition.is_under_min_isr(min_isr, setting.live, is_capped=setting.caps_min_isr):
        yield Check.UNDER_MIN_ISR, f"{in_sync} in sync, {min_isr} wanted"
    elif replicas < min_isr:
        yield Check.MIN_ISR_ABOVE_FACTOR, f"{counted(replicas, 'replica')}, {min_isr} wanted in sync"
    if partition.is_under_replicated:
        cause, who = _cause(partition, setting.live)
        # Without a leader there is nobody for a live follower to catch up with.
        if is_led or cause is not Check.UNDER_REPLICATED_LAGGING:
            yield cause, f"broker {', '.join(map(str, who))} not in sync"


def _count_brokers(told: _TopicFindings, partition: PartitionSnapshot, live: Set[int]) -> None:
    for broker in partition.replicas:
        if broker not in live:
            told.missing[broker] += 1
    preferred = partition.preferred_leader
    if preferred in live and not partition.assignment.is_being_reassigned:
        told.preferred[preferred] += 1
        if partition.leader != preferred and preferred in partition.isr:
            told.elsewhere[preferred] += 1


def _electable(partition: PartitionSnapshot, setting: _Setting) -> list[int]:
    """Return who may lead a partition that nobody leads now."""
    able = setting.live - setting.failed
    return [] if partition.is_led(setting.live) else [broker for broker in partition.isr if broker in able]


def _stranded(partition: PartitionSnapshot, setting: _Setting) -> list[int]:
    """Return the live brokers with a failed log dir that were in sync, if nobody can lead the partition."""
    if partition.is_led(setting.live) or _electable(partition, setting):
        return []
    return [broker for broker in partition.isr if broker in setting.live]


def _offline(partition: PartitionSnapshot, setting: _Setting) -> str:
    """Say who led, who has a replica, whether all are down, and which broker has all that was acknowledged."""
    live, line = setting.live, f"leader {_leader(partition)}, replicas {_ids(partition)}"
    if electable := _electable(partition, setting):
        return f"{line}; the controller has not elected {', '.join(map(str, electable))}, in sync"
    if stranded := _stranded(partition, setting):
        return f"{line}; a log dir of broker {', '.join(map(str, stranded))}, last in sync, has failed"
    line += ", all down" if live.isdisjoint(partition.replicas) else ""
    last = ", ".join(map(str, partition.last_in_sync(live)))
    return f"{line}; start broker {last}, last in sync" if last else line


def _shares_rack(partition: PartitionSnapshot, racks: Mapping[int, str]) -> bool:
    """Whether replicas are in fewer racks than they could be; unknown if a replica's broker is dead."""
    replicas = partition.assignment.target_replicas
    used = {racks.get(broker) for broker in replicas}
    return None not in used and len(used) < len(replicas) and len(used) < len(set(racks.values()))


def _cause(partition: PartitionSnapshot, live: Set[int]) -> tuple[Check, list[int]]:
    """Return why a partition has fewer replicas in sync than wanted, and which are not.

    Replicas that a reassignment adds are not missing yet; those that it removes no longer count.
    """
    assignment = partition.assignment
    out = [replica for replica in partition.osr if replica not in assignment.adding_replicas]
    dead = [replica for replica in out if replica not in live]
    if dead:
        return Check.UNDER_REPLICATED_DEAD_BROKER, dead
    if assignment.is_being_reassigned and all(replica in assignment.removing_replicas for replica in out):
        return Check.UNDER_REPLICATED_MOVING, out
    return Check.UNDER_REPLICATED_LAGGING, out


def _log_dirs(facts: HealthFacts) -> list[str]:
    return [f"broker {broker}: {path}" for broker, paths in sorted(facts.offline_log_dirs.items()) for path in paths]


def _failed_below(facts: HealthFacts, topics: _TopicFindings) -> Words:
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


def _mend_first(topics: _TopicFindings) -> Words:
    """Return what brings offline partitions back, and an unclean election only if it can elect anybody.

    A broker whose log dir failed is up, so neither a start nor (Kafka 3.9) an unclean election of it helps.
    """
    way = START_ONE
    if topics.stranded:
        who = ", ".join(map(str, sorted(topics.stranded_on)))
        mend = f"mend the failed log dir of broker {who}, then restart it"
        is_all = len(topics.found.get(Check.OFFLINE_PARTITIONS, ())) <= topics.stranded
        way = mend if is_all else f"{START_ONE}; or {mend}"
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


def _imbalance(topics: _TopicFindings) -> list[str]:
    """Return the brokers that lead too few of the partitions they are preferred for.

    Only partitions that they could lead count: no election helps a broker that is dead or not in sync.
    """
    return [
        f"broker {broker} does not lead {count} of the {topics.preferred[broker]} partitions it is preferred for"
        for broker, count in sorted(topics.elsewhere.items(), key=lambda item: (-item[1], item[0]))
        if count * 100 > topics.preferred[broker] * IMBALANCE_PERCENT_MAX
    ]


def _running(facts: HealthFacts, topics: _TopicFindings) -> list[str]:
    # Those that make no progress come first, because only some are shown.
    lines = [f"{name}{why}" for name, why in sorted(topics.moving.items(), key=lambda item: not item[1])]
    lines += [name for name in facts.listed_reassignments if name not in topics.moving]
    if facts.plan is None:
        return lines
    # The plan is no reassignment, so it is no line of its own beside theirs: lines are counted.
    first = f"{lines[0]}; under " if lines else ""
    return [f"{first}a plan, which holds the throttle until it ends: {facts.plan}", *lines[1:]]


def _held_up(partition: PartitionSnapshot, live: Set[int]) -> str:
    assignment = partition.assignment
    dead = [str(b) for b in assignment.adding_replicas if b not in partition.isr and b not in live]
    return f" (waits for {', '.join(dead)}, dead)" if dead else ""


def _deletions(facts: HealthFacts) -> list[str]:
    ages = sorted(facts.deletion_ages_ms.items(), key=lambda item: (-item[1], item[0]))
    return [f"topic {topic}, for {age_ms // 1000} s" for topic, age_ms in ages if age_ms > DELETION_STUCK_MS]


def _clocks(facts: HealthFacts) -> list[str]:
    return [
        f"broker {broker} ({abs(apart_ms) / 1000:.1f} s {'ahead of' if apart_ms > 0 else 'behind'} ZooKeeper's when it "
        "registered)"
        for broker, apart_ms in sorted(facts.clocks_apart_ms.items(), key=lambda item: (-abs(item[1]), item[0]))
        if not -CLOCK_BEHIND_MS <= apart_ms <= CLOCK_AHEAD_MS
    ]


def _zookeeper(facts: HealthFacts) -> list[str]:
    slow = facts.zookeeper_ms is not None and facts.zookeeper_ms > ZOOKEEPER_SLOW_MS
    return [f"a read takes {facts.zookeeper_ms:.0f} ms"] if slow else []


def _leader(partition: PartitionSnapshot) -> str:
    return "none" if partition.leader == NO_LEADER else f"{partition.leader}, dead"


def _ids(partition: PartitionSnapshot) -> str:
    return ",".join(map(str, partition.replicas))
