"""Which reader is meant for a cluster: the snapshot's, ZooKeeper's or the wire's. Loads only the one that is used."""

from __future__ import annotations

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.observer import Complain
from engine.admin.cluster.target import Side
from engine.admin.topics.reader import SnapshotTopicReader, TopicReader


async def topic_reader(
    cluster: Cluster, *, on_unreadable: Complain | None = None, on_unknown_settings: Complain | None = None
) -> TopicReader:
    """Return the reader of topics for this cluster. What it cannot read raises, unless somebody wants to be told.

    Args:
        on_unreadable: told of topics whose znodes nobody understands, which are left out.
        on_unknown_settings: told of settings that no broker tells soon, which are None then.
    """
    if cluster.target.snapshot is not None:
        from engine.admin.snapshots.file import load_snapshot

        return SnapshotTopicReader(load_snapshot(cluster.target.snapshot))
    if cluster.reads_from is Side.ZOOKEEPER:
        from engine.admin.topics.by_znode import ZkTopicReader

        return ZkTopicReader(
            await cluster.zookeeper(), observe=cluster.observe, on_read=cluster.on_read, on_unreadable=on_unreadable
        )
    from engine.admin.topics.by_wire import WireTopicReader

    return WireTopicReader(await cluster.wire(), observe=cluster.observe, on_unknown=on_unknown_settings)
