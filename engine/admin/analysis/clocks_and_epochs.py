"""Clocks and epochs: what cannot be right, with the evidence. Pure. Brokers' clocks are among the checks of health."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from engine.admin.watch.frame import Frame, Stage, StageSource
from engine.common.model import NO_CONTROLLER, TopicPartition
from engine.common.snapshot import TopicSnapshot
from engine.common.turns import topics_in_turns

CLOCK_SKEW_MS = 2_000
"""A registration that is further in the future is reported."""

LASTS_MS = 15_000
"""What has not been so for this long may be two readings of which one is older: brokers' words are read every 10 s."""

WENT_BACK_MAX = 100
"""This many findings of epochs that went backwards are kept."""


class Doubt(StrEnum):
    """What is wrong."""

    FUTURE_REGISTRATION = "future_registration"
    TWO_CONTROLLERS = "two_controllers"
    CONTROLLER_NOT_ALIVE = "controller_not_alive"
    CONTROLLER_EPOCH_AHEAD = "controller_epoch_ahead"
    CONTROLLER_EPOCH_WENT_BACK = "controller_epoch_went_back"
    LEADER_EPOCH_WENT_BACK = "leader_epoch_went_back"
    LEADER_NOT_IN_ISR = "leader_not_in_isr"
    LEADER_NOT_A_REPLICA = "leader_not_a_replica"


_OF_TWO_READINGS = frozenset((
    Doubt.TWO_CONTROLLERS, Doubt.CONTROLLER_NOT_ALIVE, Doubt.CONTROLLER_EPOCH_AHEAD, Doubt.LEADER_NOT_A_REPLICA,
))  # fmt: skip
"""Its two sides are read at different times, so a change makes them differ for a moment."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One doubt, its subject, and the evidence for a person. ``at_ms`` is when it was seen first."""

    doubt: Doubt
    subject: str
    evidence: str
    at_ms: int
    partition: TopicPartition | None = None
    """The partition that it is about."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """A topic, what cannot be right in it, and the highest controller epoch that wrote a state of its partitions."""

    topic: TopicSnapshot
    found: tuple[Finding, ...]
    controller_epoch_max: int


class SanityCheck:
    """Looks at one frame after the other. It skips topics that have not changed.

    A state is shown as long as it holds, and where it comes from two readings, once it has held for ``LASTS_MS``. A
    figure that went backwards stays shown, because it is over in a moment. States read in turn may be much older than
    the replicas: those of a partition count once its state has been read again.
    """

    def __init__(self) -> None:
        self._before: Frame | None = None
        self._topics: dict[str, _Looked] = {}
        self._went_back: deque[Finding] = deque(maxlen=WENT_BACK_MAX)
        self._lasting: dict[tuple[Doubt, str, str], int] = {}

    def turns(self, frame: Frame) -> Iterator[None]:
        """Look at the topics in turns of an event loop; after the last one ``check`` has little to do."""
        before = self._before
        if frame.cluster is None or (before is not None and frame.sequence <= before.sequence):
            return iter(())

        def look(topic: TopicSnapshot) -> bool:
            known = self._topics.get(topic.name)
            if known is not None and known.topic is topic:
                return False
            self._topics[topic.name] = _look_at(topic, frame.at_ms)
            return True

        return topics_in_turns(frame.cluster.topics, look)

    def check(self, frame: Frame) -> list[Finding]:
        """Return what cannot be right. A frame that is not newer than the last one says nothing new."""
        before = self._before
        if frame.cluster is None or (before is not None and frame.sequence <= before.sequence):
            frame = before or frame
        if frame.cluster is None:
            return []
        if before is not frame:
            if before is not None and before.cluster is not None and before.at_ms <= frame.at_ms:
                self._went_back.extend(_went_back(frame, before))
            self._before = frame
            self._look_at_topics(frame)
        findings = [*_clocks(frame), *_controllers(frame)]
        epoch = frame.cluster.controller_epoch
        for looked in self._topics.values():
            findings += looked.found
            if epoch is not None and epoch < looked.controller_epoch_max:
                findings += _ahead(looked.topic, epoch, frame.at_ms)
        findings = [self._since(finding) for finding in findings]
        self._lasting = {_identity(finding): finding.at_ms for finding in findings}
        return [*(finding for finding in findings if _counts(finding, frame)), *self._went_back]

    def _since(self, finding: Finding) -> Finding:
        return replace(finding, at_ms=self._lasting.get(_identity(finding), finding.at_ms))

    def _look_at_topics(self, frame: Frame) -> None:
        assert frame.cluster is not None
        looked = {}
        for topic in frame.cluster.topics:
            known = self._topics.get(topic.name)
            if known is None or known.topic is not topic:
                known = _look_at(topic, frame.at_ms)
            looked[topic.name] = known
        self._topics = looked


def _identity(finding: Finding) -> tuple[Doubt, str, str]:
    """Return what makes a later finding the same one. Other replicas, or another leader, begin a new one."""
    evidence = finding.evidence if finding.doubt is Doubt.LEADER_NOT_A_REPLICA else ""
    return finding.doubt, finding.subject, evidence


def _counts(finding: Finding, frame: Frame) -> bool:
    """Whether a finding has lasted, if its two sides are read at different times."""
    name, is_in_turn = finding.partition, frame.stage(Stage.METADATA).source is StageSource.ROTATION
    # In turn, a leader may have been read long before the replicas changed.
    is_read_since = not is_in_turn or name is None or frame.read_at_ms.get(name, 0) > finding.at_ms
    if finding.doubt is Doubt.LEADER_NOT_A_REPLICA and not is_read_since:
        return False
    return finding.doubt not in _OF_TWO_READINGS or frame.at_ms - finding.at_ms >= LASTS_MS


def _clocks(frame: Frame) -> list[Finding]:
    findings = []
    for broker, times in sorted(frame.registrations.items()):
        if times.created_ms is not None and times.created_ms - frame.at_ms > CLOCK_SKEW_MS:
            ahead_s = (times.created_ms - frame.at_ms) / 1000
            evidence = f"it registered {ahead_s:.1f} s from now: ZooKeeper's clock is ahead of this machine's"
            findings.append(Finding(Doubt.FUTURE_REGISTRATION, f"broker {broker}", evidence, frame.at_ms))
    return findings


def _controllers(frame: Frame) -> list[Finding]:
    cluster = frame.cluster
    assert cluster is not None
    findings = []
    taken = {broker: words.controller_id for broker, words in frame.words.items() if words.controller_id is not None}
    if cluster.controller_id == NO_CONTROLLER:
        return []
    if len({*taken.values(), cluster.controller_id}) > 1:
        claims = ", ".join(f"broker {broker} believes it is {who}" for broker, who in sorted(taken.items()))
        evidence = f"{cluster.controller_id} is the controller; {claims}"
        findings.append(Finding(Doubt.TWO_CONTROLLERS, "controller", evidence, frame.at_ms))
    if cluster.controller_id not in cluster.live_broker_ids:
        evidence = f"broker {cluster.controller_id} is the controller, and is not alive"
        findings.append(Finding(Doubt.CONTROLLER_NOT_ALIVE, "controller", evidence, frame.at_ms))
    return findings


def _look_at(topic: TopicSnapshot, at_ms: int) -> _Looked:
    """Look at the states of a topic's partitions, without anything that may change while they do not."""
    findings = []
    for p in topic.partitions:
        name = TopicPartition(topic.name, p.partition)
        if p.leader >= 0 and p.leader not in p.isr:
            evidence = f"{p.leader} leads, and the ISR is {_ids(p.isr)}"
            findings.append(Finding(Doubt.LEADER_NOT_IN_ISR, str(name), evidence, at_ms, name))
        if p.leader >= 0 and p.leader not in p.replicas:
            evidence = f"{p.leader} leads, and the replicas are {_ids(p.replicas)}"
            findings.append(Finding(Doubt.LEADER_NOT_A_REPLICA, str(name), evidence, at_ms, name))
    return _Looked(topic, tuple(findings), max((p.controller_epoch or 0 for p in topic.partitions), default=0))


def _ahead(topic: TopicSnapshot, epoch: int, at_ms: int) -> Iterator[Finding]:
    """Return the states that a controller after the one with this epoch wrote."""
    for p in topic.partitions:
        if p.controller_epoch is not None and epoch < p.controller_epoch:
            name = TopicPartition(topic.name, p.partition)
            evidence = f"controller epoch {p.controller_epoch} wrote its state; the controller has epoch {epoch}"
            yield Finding(Doubt.CONTROLLER_EPOCH_AHEAD, str(name), evidence, at_ms, name)


def _went_back(frame: Frame, before: Frame) -> list[Finding]:
    """Return the epochs that are lower than they were."""
    findings: list[Finding] = []
    assert frame.cluster is not None and before.cluster is not None
    was, now = before.cluster.controller_epoch, frame.cluster.controller_epoch
    if was is not None and now is not None and now < was:
        evidence = f"the controller epoch went from {was} to {now}"
        findings.append(Finding(Doubt.CONTROLLER_EPOCH_WENT_BACK, "controller", evidence, frame.at_ms))
    if before.cluster.topics is frame.cluster.topics:
        return findings
    old_topics = {topic.name: topic for topic in before.cluster.topics}
    for topic in frame.cluster.topics:
        old_topic = old_topics.get(topic.name)
        if old_topic is None or old_topic is topic or old_topic.topic_id != topic.topic_id:
            continue
        old = {p.partition: p.leader_epoch for p in old_topic.partitions}
        for p in topic.partitions:
            first = old.get(p.partition)
            if first is not None and p.leader_epoch is not None and p.leader_epoch < first:
                subject = str(TopicPartition(topic.name, p.partition))
                evidence = f"the leader epoch went from {first} to {p.leader_epoch}"
                findings.append(Finding(Doubt.LEADER_EPOCH_WENT_BACK, subject, evidence, frame.at_ms))
    return findings


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "empty"
