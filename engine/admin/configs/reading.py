"""One seam for reading settings, and behind it ZooKeeper, the wire or a snapshot file."""

from __future__ import annotations

from typing import Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import Side
from engine.admin.configs.values import Entity, EntityConfigs, EntityType


class ConfigReader(Protocol):
    """Reads settings of one cluster."""

    async def describe(self, entity: Entity, *, include_all: bool) -> EntityConfigs:
        """Return what is set for an entity, or (``include_all``) everything that holds for it."""

    async def describe_all(self, kind: EntityType, *, include_all: bool) -> list[EntityConfigs]:
        """Return the same of all entities of a kind, the defaults of brokers among them."""


async def config_reader(cluster: Cluster, *, wants_brokers: bool = False) -> ConfigReader:
    """Return the reader of settings for this cluster.

    With ``wants_brokers`` brokers are asked where they are named beside ZooKeeper: they know their files and defaults.
    """
    if cluster.target.snapshot is not None:
        from engine.admin.configs.by_snapshot import SnapshotConfigReader
        from engine.admin.snapshots.file import load_snapshot

        return SnapshotConfigReader(load_snapshot(cluster.target.snapshot))
    is_by_brokers = wants_brokers and cluster.target.via is None and bool(cluster.target.bootstrap)
    if cluster.reads_from is Side.ZOOKEEPER and not is_by_brokers:
        from engine.admin.configs.by_znode import ZkConfigReader

        return ZkConfigReader(await cluster.zookeeper(), observe=cluster.observe)
    from engine.admin.configs.by_wire import WireConfigReader

    return WireConfigReader(await cluster.wire())
