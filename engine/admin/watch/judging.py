"""The health of a frame: the checks of ``klamm cluster health`` over what a feed knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engine.admin.cluster.certificates import short_lives_ms
from engine.admin.cluster.target import Side
from engine.admin.health.checks import assess
from engine.admin.health.report import Check, HealthFacts, HealthReport, Severity, report_of_reasons, used_percents
from engine.admin.health.topic_checks import TopicMemory
from engine.admin.log_dirs.describing import working_dirs
from engine.admin.watch.frame import Frame, LinkState, Stage
from engine.common.snapshot import SnapshotSource

ZOOKEEPER_PATIENCE_MS = 5_000
"""Opening a session again takes no longer."""

ELECTION_PATIENCE_MS = 5_000
"""A controller that sees a broker go elects in less; a new one has to take over first."""

CATCHING_UP_MS = 15_000
"""For so long after a broker came back, replicas behind are a warning: they are catching up."""


class HealthMemory:
    """Judges one frame after the other. Unchanged topics are not judged again."""

    def __init__(self) -> None:
        self._memory = TopicMemory()
        self._unelected_since_ms: int | None = None
        self._live: frozenset[int] | None = None
        self._came_back_ms: int | None = None

    def turns(self, frame: Frame) -> Iterator[None]:
        """Check the topics in turns of an event loop; after the last one ``judge`` has little to do."""
        return iter(()) if _is_unread(frame) else self._memory.turns(self._facts_of(frame))

    def _facts_of(self, frame: Frame) -> HealthFacts:
        since_ms = self._unelected_since_ms
        is_early = since_ms is None or 0 <= frame.at_ms - since_ms < ELECTION_PATIENCE_MS
        return replace(facts_of(frame), awaits_leaders=is_early)

    def judge(self, frame: Frame) -> HealthReport | None:
        """Return what the checks say about a frame; None until topics, partitions and moves have been read.

        What is wrong is reported then; that nothing is, only once all that the checks look at has been read.
        """
        if _is_unread(frame):
            return None
        facts = self._facts_of(frame)
        report = assess(facts, memory=self._memory)
        if not self._memory.of(facts).unelected:
            self._unelected_since_ms = None
        elif self._unelected_since_ms is None or frame.at_ms < self._unelected_since_ms:
            self._unelected_since_ms = frame.at_ms
        early = set()
        settings = frame.stage(Stage.SETTINGS)
        if not settings.error and not settings.missing:
            # They are read after everything else, and seldom: those that were not refused are of topics just created.
            early.add(Check.UNKNOWN_SETTINGS)
        if frame.plan is None:
            # A plan that is being carried out may need them.
            early.add(Check.LEAKED_THROTTLES)
        if any(reason.check in early for reason in report.reasons):
            report = report_of_reasons(reason for reason in report.reasons if reason.check not in early)
        if self._catches_up(frame):
            report = report_of_reasons(
                replace(reason, severity=Severity.WARNING) if reason.check is Check.UNDER_REPLICATED_LAGGING else reason
                for reason in report.reasons
            )
        is_all_read = all(_is_settled(frame, stage) for stage in (Stage.SETTINGS, Stage.PROBES))
        return report if report.reasons or is_all_read else None

    def _catches_up(self, frame: Frame) -> bool:
        """Whether a broker came back a moment ago."""
        live = frozenset() if frame.cluster is None else frame.cluster.live_broker_ids
        if self._live is not None and live - self._live:
            self._came_back_ms = frame.at_ms
        self._live = live
        return self._came_back_ms is not None and 0 <= frame.at_ms - self._came_back_ms < CATCHING_UP_MS


def _zookeeper_trouble(frame: Frame) -> str | None:
    """Return why ZooKeeper does not answer; None if brokers do not either: then klamm itself may be cut off."""
    zookeeper, wire = frame.links.get(Side.ZOOKEEPER), frame.links.get(Side.WIRE)
    if zookeeper is None or wire is None or wire.state is not LinkState.CONNECTED:
        return None
    has_lost = zookeeper.state is LinkState.LOST and frame.at_ms - zookeeper.since_ms >= ZOOKEEPER_PATIENCE_MS
    return zookeeper.cause if has_lost else None


def _is_unread(frame: Frame) -> bool:
    if frame.cluster is None or frame.stage(Stage.METADATA).read_at_ms is None:
        return True
    # A replica that a move adds would count as missing.
    return not _is_settled(frame, Stage.REASSIGNMENTS)


def _is_settled(frame: Frame, stage: Stage) -> bool:
    """Whether a stage was read once, or there is a reason why it was not."""
    status = frame.stage(stage)
    return status.read_at_ms is not None or bool(status.error)


def facts_of(frame: Frame) -> HealthFacts:
    """Return what the checks look at. Facts that were not read yet, or are not reported, are left out."""
    assert frame.cluster is not None
    # Brokers are probed only now and then: what one said before it went no longer counts.
    live = frame.cluster.live_broker_ids
    words = {broker: broker_words for broker, broker_words in frame.words.items() if broker in live}
    return HealthFacts(
        frame.cluster,
        min_isr=frame.min_isr,
        caps_min_isr=frame.caps_min_isr,
        listed_reassignments=frame.listed_reassignments,
        are_moves_known=frame.cluster.source is not SnapshotSource.WIRE or not frame.stage(Stage.REASSIGNMENTS).error,
        seen_controllers={
            broker: broker_words.controller_id for broker, broker_words in words.items() if not broker_words.trouble
        },
        offline_log_dirs={
            broker: broker_words.offline_log_dirs
            for broker, broker_words in words.items()
            if broker_words.offline_log_dirs
        },
        used_percents=used_percents(working_dirs(log_dir for log_dir in frame.log_dirs if log_dir.broker in live)),
        silent_brokers={broker: broker_words.trouble for broker, broker_words in words.items() if broker_words.trouble},
        refusals={broker: said.hint for broker, said in words.items() if said.hint},
        deletion_ages_ms=frame.deletion_ages_ms,
        certificates_left_ms=short_lives_ms(
            {broker: said.certificate for broker, said in words.items() if said.certificate}, frame.at_ms
        ),
        zookeeper_ms=frame.zookeeper_ms,
        zookeepers_down=frame.zookeepers_down,
        plan=frame.plan or None,
        zookeeper_trouble=_zookeeper_trouble(frame),
        unreadable_topics=frame.unreadable,
        holding=frame.holding,
        clocks_apart_ms={
            broker: broker_words.clock_apart_ms
            for broker, broker_words in frame.registrations.items()
            if broker_words.clock_apart_ms is not None and broker in live
        },
        hidden_settings=frozenset(right.name for right in frame.denied if right.is_of_settings and right.name),
    )
