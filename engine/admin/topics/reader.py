"""The ways to read topics: one seam, and behind it ZooKeeper, the wire or a snapshot file.

A reader reads what it is asked for and no more: a command about one topic reads that topic only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.admin.cluster.errors import Unreachable
from engine.common.snapshot import ClusterSnapshot, TopicSnapshot
from engine.common.topic_names import INTERNAL_TOPICS

DEFAULT_MIN_ISR = 1
"""Kafka's default of min.insync.replicas, used where nobody says otherwise."""

UNKNOWN_SETTINGS_HINT = "brokers read them from ZooKeeper: is it up? klamm zk get / --zookeeper HOST:PORT tells"


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
        """Return each topic's effective min.insync.replicas; topics whose settings are not known are left out."""


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
        return topic_min_isrs(topics, default)


def topic_name(name: str, is_marked: bool) -> TopicName:
    return TopicName(name, name in INTERNAL_TOPICS, is_marked)


def topic_min_isrs(topics: Iterable[TopicSnapshot], cluster_default: str | None) -> dict[str, int]:
    """Return min.insync.replicas as the topic's override, the cluster's dynamic default or Kafka's default say."""
    found = {}
    for topic in topics:
        if topic.configs is not None:
            texts = (topic.configs.get("min.insync.replicas"), cluster_default)
            numbers = (int(text) for text in texts if text is not None and text.strip().isdigit())
            found[topic.name] = next(numbers, DEFAULT_MIN_ISR)
    return found


def known_configs(topic: TopicSnapshot) -> Mapping[str, str]:
    """Return a topic's overrides.

    Raises:
        Unreachable: nobody told them.
    """
    if topic.configs is None:
        raise Unreachable(f"the settings of topic {topic.name} are not known", hint=UNKNOWN_SETTINGS_HINT)
    return topic.configs
