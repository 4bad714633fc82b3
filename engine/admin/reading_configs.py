"""One seam for reading settings, and behind it ZooKeeper and the wire."""

from __future__ import annotations

from typing import Protocol

from engine.admin.configs import Entity, EntityConfigs, EntityType
from engine.admin.connection import Cluster
from engine.admin.errors import BadRequest
from engine.admin.target import Side


class ConfigReader(Protocol):
    """Reads settings of one cluster."""

    async def names(self, entity_type: EntityType) -> list[str]:
        """Return the names of all topics, or the ids of all brokers."""

    async def describe(self, entity: Entity, *, include_all: bool) -> EntityConfigs:
        """Return what is set for an entity, or (``include_all``) everything that holds for it."""


async def config_reader(cluster: Cluster) -> ConfigReader:
    """Return the reader of settings for this cluster.

    Raises:
        BadRequest: a snapshot is meant.
    """
    if cluster.target.snapshot is not None:
        raise BadRequest("settings are not read from a snapshot", hint="klamm topics describe --snapshot has overrides")
    if cluster.reads_from is Side.ZOOKEEPER:
        from engine.admin.config_reader_zk import ZkConfigReader

        return ZkConfigReader(await cluster.zookeeper(), observe=cluster.observe)
    from engine.admin.config_reader_wire import WireConfigReader

    return WireConfigReader(await cluster.wire())
