"""The two seams to a cluster's settings, reading and altering, and the one place that chooses the side behind each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.members import check_broker_lives
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
        from engine.admin.cluster.snapshot_file import load_snapshot
        from engine.admin.configs.by_snapshot import SnapshotConfigReader

        return SnapshotConfigReader(load_snapshot(cluster.target.snapshot))
    is_by_brokers = wants_brokers and cluster.target.via is None and bool(cluster.target.bootstrap)
    if cluster.reads_from is Side.ZOOKEEPER and not is_by_brokers:
        from engine.admin.configs.by_znode import ZkConfigReader

        return ZkConfigReader(await cluster.zookeeper(), observe=cluster.observe)
    from engine.admin.configs.by_wire import WireConfigReader

    return WireConfigReader(await cluster.wire())


async def describe_entity(cluster: Cluster, entity: Entity, *, include_all: bool) -> EntityConfigs:
    """Return what is set for an entity, or (``include_all``) everything that holds for it.

    Raises:
        NotFound: there is no such topic or broker.
    """
    reader = await config_reader(cluster, wants_brokers=include_all or entity.type is EntityType.BROKER_LOGGER)
    found = await reader.describe(entity, include_all=include_all)
    if entity.type is EntityType.BROKER and entity.name is not None and not found.configs:
        # ZooKeeper tells nothing of a broker that was never there either: an empty answer may be a slip.
        await check_broker_lives(cluster, int(entity.name))
    return found


async def describe_entities(cluster: Cluster, kind: EntityType, *, include_all: bool) -> list[EntityConfigs]:
    """Return the same of all entities of a kind, the defaults of brokers among them."""
    reader = await config_reader(cluster, wants_brokers=include_all or kind is EntityType.BROKER_LOGGER)
    return await reader.describe_all(kind, include_all=include_all)


async def alter_entity(
    cluster: Cluster,
    entity: Entity,
    additions: Mapping[str, str],
    deletions: Sequence[str],
    *,
    validate_only: bool = False,
) -> None:
    """Set and delete settings of an entity, all or none; with ``validate_only`` only check that it could be done.

    Raises:
        BadRequest: there is nothing to do, or it contradicts itself, or ZooKeeper alone cannot do it.
        NotFound: there is no such topic or broker.
        Refused: the cluster does not want it.
    """
    both = sorted(set(additions) & set(deletions))
    if both:
        raise BadRequest(f"both set and deleted: {', '.join(both)}")
    if not additions and not deletions:
        raise BadRequest("nothing to alter", hint="give --add-config, --add-config-file or --delete-config")
    if entity.type.is_of_clients:
        if cluster.changes_by is not Side.WIRE:
            raise BadRequest("quotas are altered by the brokers alone", hint="use --bootstrap-server")
        from engine.admin.configs.quotas_by_wire import alter_quotas

        await alter_quotas(await cluster.wire(), entity, additions, deletions, validate_only=validate_only)
        return
    if cluster.changes_by is Side.WIRE:
        from engine.admin.configs.by_wire import alter_configs

        await alter_configs(await cluster.wire(), entity, additions, deletions, validate_only=validate_only)
        return
    if entity.type is EntityType.BROKER_LOGGER:
        raise BadRequest("loggers are not in ZooKeeper", hint="use --bootstrap-server")
    from engine.admin.configs.by_znode import alter_configs_zk
    from engine.zk.kafka_client import KafkaZkClient

    kafka = KafkaZkClient(await cluster.zookeeper())
    if entity.type is EntityType.TOPIC and not await kafka.topic_exists(entity.name or ""):
        raise NotFound(f"topic {entity.name!r} does not exist", hint="list the topics with: klamm topics list")
    await alter_configs_zk(kafka, entity, additions, deletions, validate_only=validate_only)
