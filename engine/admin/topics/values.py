"""What every way to read topics needs: a topic as a listing shows it, its effective min.insync.replicas, partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.common.model import TopicPartition
from engine.common.quantities import counted
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.common.topic_names import INTERNAL_TOPICS

MIN_ISR = "min.insync.replicas"
DEFAULT_MIN_ISR = 1
"""Kafka's default of min.insync.replicas, used if nothing overrides it."""


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic as a listing shows it; ``size_bytes`` is that of all its replicas. What was not asked for is None."""

    topic: str
    internal: bool = False
    marked_for_deletion: bool = False
    partition_count: int | None = None
    replication_factor: int | None = None
    size_bytes: int | None = None


def topic_name(name: str, is_marked: bool) -> TopicName:
    return TopicName(name, name in INTERNAL_TOPICS, is_marked)


def default_min_isr(
    broker_configs: Mapping[int | None, Mapping[str, str]], by_brokers: Iterable[int | None] = ()
) -> int | None:
    """Return the min.insync.replicas of topics that do not set it, the strictest if brokers differ; None if unknown.

    It is a dynamic setting of brokers, or else in their files, which only they know.
    """
    dynamic = max(map(min_isr_in, broker_configs.values()), key=lambda min_isr: min_isr or 0, default=None)
    return dynamic or max((min_isr for min_isr in by_brokers if min_isr is not None), default=None)


def min_isr_in(configs: Mapping[str, str]) -> int | None:
    """Return the min ISR that settings name."""
    text = configs.get(MIN_ISR, "").strip()
    return int(text) if text.isdigit() else None


def min_isr_warnings(configs: Mapping[str, str], replicas: int | None) -> tuple[str, ...]:
    """Return what to say before a topic gets settings that want more replicas in sync than a partition has.

    Args:
        replicas: how many a partition has; None if that is not known.
    """
    min_isr = min_isr_in(configs)
    if min_isr is None or replicas is None or min_isr <= replicas:
        return ()
    refused = "brokers before Kafka 3.7 refuse all writes with acks=all, later ones while a replica is out of sync"
    return (f"{MIN_ISR}={min_isr}, but a partition has {counted(replicas, 'replica')}: {refused}",)


def topic_min_isrs(topics: Iterable[TopicSnapshot], default: int | None) -> dict[str, int]:
    """Return the min ISR of each topic: its own, else the default, else Kafka's default."""
    return {
        topic.name: min_isr_in(topic.configs) or default or DEFAULT_MIN_ISR
        for topic in topics
        if topic.configs is not None
    }


def partitions_of(topics: Iterable[TopicSnapshot]) -> dict[TopicPartition, PartitionSnapshot]:
    """Return the partitions of topics under their full names."""
    return {TopicPartition(topic.name, p.partition): p for topic in topics for p in topic.partitions}
