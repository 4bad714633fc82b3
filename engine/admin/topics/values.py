"""What every way to read topics needs: a topic as a listing shows it, its effective min.insync.replicas, partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.common.topic_names import INTERNAL_TOPICS

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


def topic_min_isrs(topics: Iterable[TopicSnapshot], cluster_default: str | None) -> dict[str, int]:
    """Return min.insync.replicas from the topic's override, the cluster's dynamic default or Kafka's default."""
    found = {}
    for topic in topics:
        if topic.configs is not None:
            texts = (topic.configs.get("min.insync.replicas"), cluster_default)
            numbers = (int(text) for text in texts if text is not None and text.strip().isdigit())
            found[topic.name] = next(numbers, DEFAULT_MIN_ISR)
    return found


def partitions_of(topics: Iterable[TopicSnapshot]) -> dict[TopicPartition, PartitionSnapshot]:
    """Return the partitions of topics under their full names."""
    return {TopicPartition(topic.name, p.partition): p for topic in topics for p in topic.partitions}
