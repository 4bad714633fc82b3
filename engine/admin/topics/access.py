"""The interfaces to read and to change a cluster's topics, and the only place that chooses the side for each.

A reader reads only what it is asked for: a command about one topic reads only that topic. Only the modules of the
chosen side are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.target import Side, Source
from engine.admin.cluster.waits import Complain
from engine.admin.configs.values import ConfigChange, Entity, EntityType
from engine.admin.topics.changes import NewTopic, TopicAlteration, TopicChange
from engine.admin.topics.values import MIN_ISR, TopicName, default_min_isr, min_isr_warnings, topic_min_isrs, topic_name
from engine.common.snapshot import ClusterSnapshot, TopicSnapshot


class TopicReader(Protocol):
    """Reads topics of one cluster."""

    async def names(self) -> list[TopicName]:
        """Return all topics by name."""

    async def shapes(self, names: Sequence[str]) -> Mapping[str, tuple[int, int]]:
        """Return how many partitions each of the named topics has, and its replication factor."""

    async def topics(self, names: Sequence[str]) -> list[TopicSnapshot]:
        """Return the named topics that exist, by name."""

    async def live_brokers(self) -> frozenset[int]:
        """Return the ids of the brokers that are alive."""

    async def min_isr(self, topics: Sequence[TopicSnapshot]) -> Mapping[str, int]:
        """Return each topic's effective min.insync.replicas; topics whose settings are not known are left out."""


class TopicChanger(Protocol):
    """Changes topics of one cluster and waits, within the operation's time, until the change is done."""

    async def exists(self, name: str, *, if_exists: bool) -> bool:
        """Whether the topic exists; raises NotFound if it does not, unless ``if_exists``."""

    async def create(self, topic: NewTopic, *, if_not_exists: bool = False, validate_only: bool = False) -> TopicChange:
        """Create a topic, or only check that it could be."""

    async def alter(self, wanted: TopicAlteration, *, validate_only: bool = False) -> TopicChange:
        """Add partitions and change settings, or only check that it could be done."""

    async def to_be_deleted(self, texts: Sequence[str], *, if_exists: bool) -> list[str]:
        """Return the names that a deletion of ``texts`` means; patterns never match Kafka's own topics."""

    async def delete(self, names: Sequence[str], *, waits: bool) -> tuple[list[TopicChange], Sequence[AdminError]]:
        """Delete topics; return the outcome for each, and the refusals."""


async def topic_reader(
    cluster: Cluster, *, on_unreadable: Complain | None = None, on_unknown_settings: Complain | None = None
) -> TopicReader:
    """Return the reader of topics for this cluster. What it cannot read raises, unless a callback takes it.

    Args:
        on_unreadable: called with topics whose znodes are unreadable, which are left out.
        on_unknown_settings: called with settings that no broker returns soon, or whose znodes are unreadable; they
            are None then.
    """
    match cluster.source:
        case Source.SNAPSHOT:
            return SnapshotTopicReader(cluster.snapshot())
        case Source.ZOOKEEPER:
            from engine.admin.topics.by_znode import ZkTopicReader

            return ZkTopicReader(
                await cluster.zookeeper(),
                observe=cluster.observe,
                on_read=cluster.on_read,
                on_unreadable=on_unreadable,
                on_unknown_settings=on_unknown_settings,
            )
        case Source.WIRE:
            from engine.admin.topics.by_wire import WireTopicReader

            return WireTopicReader(await cluster.wire(), observe=cluster.observe, on_unknown=on_unknown_settings)


async def topic_changer(cluster: Cluster, *, is_rack_aware: bool = True) -> TopicChanger:
    if cluster.changes_by is Side.ZOOKEEPER:
        from engine.admin.topics.by_znode import ZkTopicChanger

        return ZkTopicChanger(cluster, await cluster.zookeeper(), is_rack_aware=is_rack_aware)
    from engine.admin.topics.by_wire import WireTopicChanger

    return WireTopicChanger(cluster, await cluster.wire())


async def with_warnings(cluster: Cluster, entity: Entity, changes: list[ConfigChange]) -> list[ConfigChange]:
    """Return changes of settings with what ``min_isr_warnings`` says of them; nothing if nobody may see the topic."""
    wanted = next((change for change in changes if change.name == MIN_ISR and change.new is not None), None)
    if wanted is None or entity.type is not EntityType.TOPIC or entity.name is None:
        return changes
    shape = None
    with suppress(AdminError):
        shape = (await (await topic_reader(cluster)).shapes([entity.name])).get(entity.name)
    warnings = min_isr_warnings({MIN_ISR: wanted.new or ""}, None if shape is None else shape[1])
    return [replace(change, warnings=warnings) if change is wanted else change for change in changes]


class SnapshotTopicReader:
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
        return topic_min_isrs(topics, default_min_isr(self._snapshot.broker_configs))
