"""The ways to read topics: one seam, and behind it ZooKeeper, the wire or a snapshot file.

A reader reads what it is asked for and no more: a command about one topic reads that topic only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.common.snapshot import ClusterSnapshot, TopicSnapshot
from engine.common.topic_names import INTERNAL_TOPICS

DEFAULT_MIN_ISR = 1
"""Kafka's default of min.insync.replicas, used where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic as a listing shows it."""

    topic: str
    internal: bool = False
    marked_for_deletion: bool = False


class TopicReader(Protocol):
    """Reads topics of one cluster."""

    async def names(self) -> list[TopicName]:
        """Return all topics by name."""

    async def topics(self, names: Sequence[str]) -> list[TopicSnapshot]:
        """Return those of the named topics that exist, by name."""

    async def live_brokers(self) -> frozenset[int]:
        """Return the ids of the brokers that are alive."""

    async def min_isr(self, topics: Sequence[TopicSnapshot]) -> Mapping[str, int]:
        """Return each topic's effective min.insync.replicas."""


class SnapshotTopicReader:
    """Reads from a snapshot."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    async def names(self) -> list[TopicName]:
        return [topic_name(topic.name, topic.is_marked_for_deletion) for topic in self._snapshot.topics]

    async def topics(self, names: Sequence[str]) -> list[TopicSnapshot]:
        wanted = set(names)
        return [topic for topic in self._snapshot.topics if topic.name in wanted]

    async def live_brokers(self) -> frozenset[int]:
        return self._snapshot.live_broker_ids

    async def min_isr(self, topics: Sequence[TopicSnapshot]) -> Mapping[str, int]:
        default = self._snapshot.broker_configs.get(None, {}).get("min.insync.replicas")
        return {topic.name: topic_min_isr(topic, default) for topic in topics}


def topic_name(name: str, is_marked: bool) -> TopicName:
    return TopicName(name, name in INTERNAL_TOPICS, is_marked)


def topic_min_isr(topic: TopicSnapshot, cluster_default: str | None) -> int:
    """Return min.insync.replicas as the topic's override, the cluster's dynamic default or Kafka's default say."""
    for text in (topic.configs.get("min.insync.replicas"), cluster_default):
        if text is not None and text.strip().isdigit():
            return int(text)
    return DEFAULT_MIN_ISR
