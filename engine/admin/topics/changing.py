"""One seam for changing topics, and behind it the two ways: by the wire, or through the znodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.target import Side
from engine.admin.topics.changes import NewTopic, TopicAlteration, TopicChange


class TopicChanger(Protocol):
    """Changes topics of one cluster and waits, within the operation's time, until the change is done."""

    async def exists(self, name: str, *, if_exists: bool) -> bool:
        """Whether the topic is there; raises NotFound where it is not, unless ``if_exists``."""

    async def create(self, topic: NewTopic, *, if_not_exists: bool = False, validate_only: bool = False) -> TopicChange:
        """Create a topic, or only check that it could be."""

    async def alter(self, wanted: TopicAlteration, *, validate_only: bool = False) -> TopicChange:
        """Add partitions and change settings, or only check that it could be done."""

    async def to_be_deleted(self, texts: Sequence[str], *, if_exists: bool) -> list[str]:
        """Return the names that a deletion of ``texts`` means; patterns never take Kafka's own topics."""

    async def delete(self, names: Sequence[str], *, waits: bool) -> tuple[list[TopicChange], Sequence[AdminError]]:
        """Delete topics; return what became of each, and the refusals."""


async def topic_changer(cluster: Cluster, *, is_rack_aware: bool = True) -> TopicChanger:
    """Return the changer that changes of this cluster go by."""
    if cluster.changes_by is Side.ZOOKEEPER:
        from engine.admin.topics.changes_by_znode import ZkTopicChanger

        return ZkTopicChanger(cluster, await cluster.zookeeper(), is_rack_aware=is_rack_aware)
    from engine.admin.topics.changes_by_wire import WireTopicChanger

    return WireTopicChanger(cluster, await cluster.wire())
