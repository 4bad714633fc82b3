"""Commits a Spark query's position to a Kafka group, so that tools that know only groups can see it.

Only finished batches count. Spark never reads the group: commits to it move no query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest
from engine.admin.groups.committing import reset_offsets
from engine.admin.groups.group_reading import committed_offsets
from engine.admin.groups.reset_plan import GroupReset, PartitionReset
from engine.admin.groups.values import CommittedOffset, GroupType
from engine.admin.lag.positions import Query
from engine.common.model import TopicPartition


def groups_of(query: Query, group: str) -> dict[str, Mapping[TopicPartition, int]]:
    """Return what to commit, by group: one group, or one per source if two sources read the same topic.

    Raises:
        BadRequest: the query has not finished a batch.
    """
    sources = {source: offsets for source in query.kafka_sources if (offsets := query.committed(source))}
    if not sources:
        raise BadRequest("no batch is finished yet, there is nothing to commit", where=query.path)
    topics = Counter(topic for offsets in sources.values() for topic in {name.topic for name in offsets})
    if max(topics.values()) == 1:
        return {group: {name: offset for offsets in sources.values() for name, offset in offsets.items()}}
    return {f"{group}-{source}": offsets for source, offsets in sources.items()}


async def plan_mirror(cluster: Cluster, query: Query, group: str) -> list[GroupReset]:
    """Return the commits to make, with what is committed now."""
    wanted = groups_of(query, group)
    present = await committed_offsets(await cluster.wire(), wanted)
    plans = []
    for name, offsets in wanted.items():
        before = present[name]
        resets = []
        for partition, offset in sorted(offsets.items()):
            one = before.get(partition) if isinstance(before, Mapping) else None
            current = one.offset if isinstance(one, CommittedOffset) else None
            resets.append(PartitionReset(name, *partition, current, offset))
        plans.append(GroupReset(name, GroupType.CLASSIC, -1, tuple(resets)))
    return plans


async def mirror(cluster: Cluster, plans: list[GroupReset]) -> tuple[list[PartitionReset], list[AdminError]]:
    """Commit; return the outcome for each partition, and the failures. A group with members is refused."""
    return await reset_offsets(cluster, plans)
