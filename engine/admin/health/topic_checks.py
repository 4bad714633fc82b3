"""The checks of topics and partitions: leaders, ISRs, min ISR, racks, settings. Pure; ``checks`` has the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from engine.admin.health.report import Check, HealthFacts
from engine.admin.topics.values import DEFAULT_MIN_ISR
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.quantities import counted
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.common.turns import topics_in_turns


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
    start: str = "start"

    @staticmethod
    def of(facts: HealthFacts) -> _Setting:
        snapshot = facts.snapshot
        racks = {broker.id: broker.rack for broker in snapshot.brokers if broker.rack is not None}
        known = racks if len(racks) == len(snapshot.brokers) else {}
        live, hidden = frozenset(snapshot.live_broker_ids), facts.hidden_settings
        failed = frozenset(facts.offline_log_dirs)
        return _Setting(live, known, facts.caps_min_isr, hidden, facts.awaits_leaders, failed, facts.start)


@dataclass(slots=True)
class TopicFindings:
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

    def add(self, other: TopicFindings) -> None:
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
        self._topics: dict[str, tuple[TopicSnapshot, int, TopicFindings]] = {}
        self._all: tuple[tuple[TopicSnapshot, ...], Mapping[str, int], TopicFindings] | None = None

    def turns(self, facts: HealthFacts) -> Iterator[None]:
        """Check what has to be checked, in turns of an event loop; after the last one ``of`` has little to do."""
        setting = self._setting_of(facts)

        def check(topic: TopicSnapshot) -> bool:
            min_isr = facts.min_isr.get(topic.name, DEFAULT_MIN_ISR)
            is_known = self._known(topic, min_isr) is not None
            self._of_topic(topic, setting, min_isr)
            return not is_known

        return topics_in_turns(facts.snapshot.topics, check)

    def of(self, facts: HealthFacts) -> TopicFindings:
        """Return the findings about all topics together."""
        setting = self._setting_of(facts)
        topics = facts.snapshot.topics
        if self._all is not None and self._all[0] is topics and self._all[1] is facts.min_isr:
            return self._all[2]
        if len(self._topics) > len(topics):
            existing = {topic.name for topic in topics}
            self._topics = {name: known for name, known in self._topics.items() if name in existing}
        total = TopicFindings()
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

    def _known(self, topic: TopicSnapshot, min_isr: int) -> TopicFindings | None:
        known = self._topics.get(topic.name)
        return known[2] if known is not None and known[0] is topic and known[1] == min_isr else None

    def _of_topic(self, topic: TopicSnapshot, setting: _Setting, min_isr: int) -> TopicFindings:
        findings = self._known(topic, min_isr)
        if findings is None:
            findings = _topic(topic, setting, min_isr)
            self._topics[topic.name] = topic, min_isr, findings
        return findings


def partition_checks(facts: HealthFacts) -> Callable[[TopicSnapshot, PartitionSnapshot], set[Check]]:
    """Return a function that names the checks that find fault with a partition, by the rules of ``assess``."""
    setting = _Setting.of(facts)

    def checks(topic: TopicSnapshot, partition: PartitionSnapshot) -> set[Check]:
        if topic.is_marked_for_deletion:
            return set()
        min_isr = facts.min_isr.get(topic.name, DEFAULT_MIN_ISR)
        checks = {check for check, _ in _troubles(partition, setting, min_isr)}
        return checks | {Check.RACK_VIOLATIONS} if _shares_rack(partition, setting.racks) else checks

    return checks


def _topic(topic: TopicSnapshot, setting: _Setting, min_isr: int) -> TopicFindings:
    """Return the findings about one topic; for one that is being deleted, only that its settings are unknown."""
    findings = TopicFindings()
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
        # Without a leader, a live follower has nothing to catch up with.
        if is_led or cause is not Check.UNDER_REPLICATED_LAGGING:
            yield cause, f"broker {', '.join(map(str, who))} not in sync"


def _count_brokers(findings: TopicFindings, partition: PartitionSnapshot, live: Set[int]) -> None:
    for broker in partition.replicas:
        if broker not in live:
            findings.missing[broker] += 1
    preferred = partition.preferred_leader
    if preferred in live and not partition.assignment.is_being_reassigned:
        findings.preferred[preferred] += 1
        # Nobody leads where its log dir failed, though it is alive and alone in sync: no election helps there.
        if partition.leader in live and partition.leader != preferred and preferred in partition.isr:
            findings.elsewhere[preferred] += 1


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
    return f"{line}; {setting.start} broker {last}, last in sync" if last else line


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


def _held_up(partition: PartitionSnapshot, live: Set[int]) -> str:
    assignment = partition.assignment
    dead = [str(b) for b in assignment.adding_replicas if b not in partition.isr and b not in live]
    return f" (waits for {', '.join(dead)}, dead)" if dead else ""


def _leader(partition: PartitionSnapshot) -> str:
    return "none" if partition.leader == NO_LEADER else f"{partition.leader}, dead"


def _ids(partition: PartitionSnapshot) -> str:
    return ",".join(map(str, partition.replicas))
