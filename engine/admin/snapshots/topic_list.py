"""The list of topics with their sizes: partitions, replication factor, bytes on the brokers' disks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.topics.access import TopicReader
from engine.admin.topics.values import TopicName

_SIZES_LIMIT_S = 3.0


async def with_shapes(
    cluster: Cluster, reader: TopicReader, topics: Sequence[TopicName], choose: Callable[[Iterable[str]], Iterable[str]]
) -> list[TopicName]:
    """Return the topics with their shapes; a size that not all brokers report is None.

    ``choose`` picks the topics that the list was to have: the cluster notes those that it hides.
    """
    shapes = await reader.shapes([topic.topic for topic in topics])
    sizes = await _sizes(cluster, topics, choose)
    shaped = []
    for topic in topics:
        count, factor = shapes.get(topic.topic, (None, None))
        size = sizes.get(topic.topic)
        shaped.append(replace(topic, partition_count=count, replication_factor=factor, size_bytes=size))
    return shaped


async def _sizes(
    cluster: Cluster, topics: Sequence[TopicName], choose: Callable[[Iterable[str]], Iterable[str]]
) -> Mapping[str, int]:
    """Return the bytes of each topic, over all its replicas; nothing if a log dir is missing."""
    from engine.admin.log_dirs.describing import (
        NOT_ALLOWED,
        note_hidden_topics,
        read_log_dirs,
        topics_in,
        totals_by_topic,
    )

    if not cluster.target.may_ask_brokers or not (topics or cluster.may_hide_topics):
        return {}
    try:
        dirs = await read_log_dirs(cluster, limit_s=_SIZES_LIMIT_S)
    except AdminError as error:
        cluster.observe(f"sizes are not known: {error}")
        cluster.may_lack_unseen = cluster.may_hide_topics
        return {}
    if cluster.may_hide_topics:
        await note_hidden_topics(cluster, set(choose(topics_in(dirs))), (topic.topic for topic in topics))
    for log_dir in dirs:
        if log_dir.error is not None:
            # A missing right is reported as one.
            if log_dir.error != NOT_ALLOWED:
                cluster.complain(f"sizes are unknown: broker {log_dir.broker}: {log_dir.error}")
            return {}
    empty = {topic.topic: 0 for topic in topics}
    return empty | {total.topic: total.size_bytes for total in totals_by_topic(dirs) if total.topic is not None}
