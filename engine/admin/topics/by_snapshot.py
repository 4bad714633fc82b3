"""Topics as a snapshot file has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.admin.topics.values import TopicName, topic_min_isrs, topic_name
from engine.common.snapshot import ClusterSnapshot, TopicSnapshot


class SnapshotTopicReader:
    """Reads from a snapshot."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    async def names(self) -> list[TopicName]:
        return [topic_name(topic.name, topic.is_marked_for_deletion) for topic in self._snapshot.topics]

    async def shapes(self, names: Sequence[str]) -> Mapping[str, tuple[int, int]]:
        return {topic.name: (len(topic.partitions), topic.replication_factor) for topic in await self.topics(names)}

    async def topics(self, names: Sequence[str]) -> list[TopicSnapshot]:
        wanted = set(names)
        return [topic for topic in self._snapshot.topics if topic.name in wanted]

    async def live_brokers(self) -> frozenset[int]:
        return self._snapshot.live_broker_ids

    async def min_isr(self, topics: Sequence[TopicSnapshot]) -> Mapping[str, int]:
        default = self._snapshot.broker_configs.get(None, {}).get("min.insync.replicas")
        return topic_min_isrs(topics, default)
