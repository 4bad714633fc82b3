"""Which reader is meant for a cluster: the snapshot's, ZooKeeper's or the wire's. Loads only the one that is used."""

from __future__ import annotations

from engine.admin.connection import Cluster
from engine.admin.observer import Complain
from engine.admin.target import Side
from engine.admin.topic_reader import SnapshotTopicReader, TopicReader


async def topic_reader(cluster: Cluster, *, on_unreadable: Complain | None = None) -> TopicReader:
    """Return the reader of topics for this cluster.

    With ``on_unreadable`` a topic whose znodes nobody understands is told and left out; otherwise reading it raises.
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

    return WireTopicReader(await cluster.wire(), observe=cluster.observe)
