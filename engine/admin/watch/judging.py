"""The health of a frame: the checks of ``klamm cluster health`` over what a feed knows."""

from __future__ import annotations

from engine.admin.health.checks import assess
from engine.admin.health.report import HealthFacts, HealthReport
from engine.admin.watch.frame import Frame, Stage


def health_of(frame: Frame) -> HealthReport | None:
    """Return what the checks say of a frame; None while topics and partitions were never read."""
    if frame.cluster is None or frame.stage(Stage.METADATA).read_at_ms is None:
        return None
    return assess(facts_of(frame))


def facts_of(frame: Frame) -> HealthFacts:
    """Return what the checks look at. What a feed has not read yet is left out, as where nobody tells it."""
    assert frame.cluster is not None
    return HealthFacts(
        frame.cluster,
        min_isr=frame.min_isr,
        listed_reassignments=frame.listed_reassignments,
        seen_controllers={broker: said.controller_id for broker, said in frame.words.items() if not said.trouble},
        offline_log_dirs={
            broker: said.offline_log_dirs for broker, said in frame.words.items() if said.offline_log_dirs
        },
        silent_brokers={broker: said.trouble for broker, said in frame.words.items() if said.trouble},
        deletion_ages_ms=frame.deletion_ages_ms,
        zookeeper_ms=frame.zookeeper_ms,
        unreadable_topics=frame.unreadable,
    )
