"""Which reader is meant for a cluster: the snapshot's, ZooKeeper's or the wire's. Loads only the one that is used."""

from __future__ import annotations

from engine.admin.connection import Cluster
from engine.admin.observer import Complain
from engine.admin.target import Side
from engine.admin.topic_reader import SnapshotTopicReader, TopicReader


async def topic_reader(
    cluster: Cluster, *, on_unreadable: Complain | None = None, on_unknown_settings: Complain | None = None
) -> TopicReader:
    """Return the reader of topics for this cluster. What it cannot read raises, unless somebody wants to be told.

    Args:
        on_unreadable: told of topics whose znodes nobody understands, which are left out.
        on_unknown_settings: told of settings that no broker tells soon, which are None then.
    """
    if cluster.target.snapshot is not None:
        from engine.admin.snapshot_file import load_snapshot

        return SnapshotTopicReader(load_snapshot(cluster.target.snapshot))
    if cluster.reads_from is Side.ZOOKEEPER:
        from engine.admin.topic_reader_zk import ZkTopicReader

        return ZkTopicReader(
            await cluster.zookeeper(), observe=cluster.observe, on_read=cluster.on_read, on_unreadable=on_unreadable
        )
    from engine.admin.topic_reader_wire import WireTopicReader

    return WireTopicReader(await cluster.wire(), observe=cluster.observe, on_unknown=on_unknown_settings)
