"""The interfaces to read and to alter a cluster's settings, and the only place that chooses the side for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, LoginRefused, NotFound
from engine.admin.cluster.members import check_broker_lives, holds_replicas
from engine.admin.cluster.remedies import SEE_TOPICS, USE_BROKERS, Give, Parameter, Phrase
from engine.admin.cluster.target import Side, Source
from engine.admin.configs.values import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    Entity,
    EntityConfigs,
    EntityType,
    known_configs,
)
from engine.common.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from engine.admin.configs.credentials import UserCredential


class ConfigReader(Protocol):
    """Reads settings of one cluster."""

    async def describe(self, entity: Entity, *, include_all: bool) -> EntityConfigs:
        """Return what is set for an entity, or (``include_all``) everything in force for it."""

    async def describe_all(self, kind: EntityType, *, include_all: bool) -> list[EntityConfigs]:
        """Return the same for all entities of a kind, including the defaults of brokers."""


async def config_reader(
    cluster: Cluster, *, wants_brokers: bool = False, keys: Sequence[str] | None = None
) -> ConfigReader:
    """Return the reader of settings for this cluster.

    With ``wants_brokers`` this asks brokers if they are named besides ZooKeeper: they know their files and defaults.
    With ``keys``, brokers are asked for these settings only when one entity is described.
    """
    source = cluster.source
    if source is Source.ZOOKEEPER and wants_brokers and cluster.changes_by is Side.WIRE:
        source = Source.WIRE
    match source:
        case Source.SNAPSHOT:
            return SnapshotConfigReader(cluster.snapshot())
        case Source.ZOOKEEPER:
            from engine.admin.configs.by_znode import ZkConfigReader

            return ZkConfigReader(await cluster.zookeeper(), observe=cluster.observe)
        case Source.WIRE:
            from engine.admin.configs.by_wire import WireConfigReader

            return WireConfigReader(await cluster.wire(), keys)


async def describe_entity(cluster: Cluster, entity: Entity, *, include_all: bool) -> EntityConfigs:
    """Return what is set for an entity, or (``include_all``) everything in force for it.

    Raises:
        NotFound: there is no such topic or broker.
    """
    reader = await config_reader(cluster, wants_brokers=include_all or entity.type is EntityType.BROKER_LOGGER)
    with _pointing_to_zookeeper(cluster, entity):
        entity_configs = await reader.describe(entity, include_all=include_all)
    if entity.type is EntityType.BROKER and entity.name is not None and not entity_configs.configs:
        # ZooKeeper has nothing for a broker that never existed either: an empty answer may be a typo.
        try:
            await check_broker_lives(cluster, int(entity.name))
        except NotFound:
            if not await holds_replicas(cluster, int(entity.name)):
                raise
            cluster.complain(f"{entity} is dead")
    return entity_configs


@contextmanager
def _pointing_to_zookeeper(cluster: Cluster, entity: Entity) -> Iterator[None]:
    """Let an error say that ZooKeeper has the settings of a broker that cannot be asked.

    That may be dead, or its certificate may have expired: it hears of a new one from ZooKeeper.
    """
    try:
        yield
    except (NotFound, LoginRefused) as error:
        if entity.type is EntityType.BROKER and entity.name is not None:
            via = Give(Parameter.VIA, "zookeeper") if cluster.target.zookeeper else Give(Parameter.ZOOKEEPER)
            which = "a dead broker" if isinstance(error, NotFound) else "a broker that cannot be asked"
            error.hint = Phrase(error.hint or "", f"; the settings of {which} are in ZooKeeper: ", via)
        raise


async def describe_entities(cluster: Cluster, kind: EntityType, *, include_all: bool) -> list[EntityConfigs]:
    """Return the same for all entities of a kind, including the defaults of brokers."""
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
        Refused: the cluster rejects it.
    """
    if not validate_only:
        cluster.check_may_change()
    both = sorted(set(additions) & set(deletions))
    if both:
        raise BadRequest(f"both set and deleted: {', '.join(both)}")
    if not additions and not deletions:
        hint = Phrase("give ", Parameter.ADD_CONFIG, ", ", Parameter.ADD_CONFIG_FILE, " or ", Parameter.DELETE_CONFIG)
        raise BadRequest("nothing to alter", hint=hint)
    if entity.type is EntityType.USER and entity.name is not None:
        additions, deletions = await _alter_credentials(cluster, entity.name, additions, deletions, validate_only)
        if not additions and not deletions:
            return
    if cluster.changes_by is Side.WIRE:
        with _pointing_to_zookeeper(cluster, entity):
            from engine.admin.configs.by_wire import alter_configs

            await alter_configs(await cluster.wire(), entity, additions, deletions, validate_only=validate_only)
        return
    if entity.type is EntityType.BROKER_LOGGER:
        raise BadRequest("loggers are not in ZooKeeper", hint=USE_BROKERS)
    from engine.admin.configs.by_znode import alter_configs_zk
    from engine.kafka.zk.kafka_client import KafkaZkClient

    kafka = KafkaZkClient(await cluster.zookeeper())
    if entity.type is EntityType.TOPIC and not await kafka.topics.topic_exists(entity.name or ""):
        raise NotFound(f"topic {entity.name!r} does not exist", hint=SEE_TOPICS, topics=entity.topics)
    await alter_configs_zk(kafka, entity, additions, deletions, validate_only=validate_only)


async def list_credentials(cluster: Cluster, user: str | None = None) -> list[UserCredential]:
    """Return the credentials of all users, or of one.

    Raises:
        Refused: the cluster does not show them.
    """
    from engine.admin.configs.credentials import credentials_in

    kind = EntityType.USER
    if cluster.source is Source.WIRE:
        from engine.admin.configs.by_wire import describe_clients

        entity = None if user is None else Entity(kind, user)
        return credentials_in(await describe_clients(await cluster.wire(), kind, entity, has_quotas=False))
    reader = await config_reader(cluster)
    if user is None:
        return credentials_in(told_of(cluster, await reader.describe_all(kind, include_all=False)))
    return credentials_in([await reader.describe(Entity(kind, user), include_all=False)])


async def _alter_credentials(
    cluster: Cluster, user: str, additions: Mapping[str, str], deletions: Sequence[str], validate_only: bool
) -> tuple[dict[str, str], list[str]]:
    """Change the credentials among a user's settings; return the others."""
    from engine.admin.configs.credentials import change_credentials, is_credential, parse_credentials

    wanted = parse_credentials({key: value for key, value in additions.items() if is_credential(key)})
    removed = [key for key in deletions if is_credential(key)]
    if (wanted or removed) and not validate_only:
        await change_credentials(cluster, user, wanted, removed)
    others = {key: value for key, value in additions.items() if not is_credential(key)}
    return others, [key for key in deletions if not is_credential(key)]


def told_of(cluster: Cluster, entities: list[EntityConfigs]) -> list[EntityConfigs]:
    """Complain about the entities whose settings are not known, for callers that show only what is known."""
    for entity in entities:
        if entity.error is not None:
            cluster.complain(
                f"the settings of {Entity(entity.entity_type, entity.entity_name)} are not known: {entity.error}"
            )
    return entities


class SnapshotConfigReader:
    """Reads settings from a snapshot."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    async def describe(self, entity: Entity, *, include_all: bool) -> EntityConfigs:
        _refuse(entity.type, include_all=include_all)
        if entity.type is EntityType.TOPIC:
            topic = self._snapshot.topic(entity.name or "")
            if topic is None:
                raise NotFound(f"topic {entity.name!r} does not exist", hint=SEE_TOPICS, topics=entity.topics)
            return _described(entity, known_configs(topic))
        broker_id = None if entity.name is None else int(entity.name)
        return _described(entity, self._snapshot.broker_configs.get(broker_id, {}))

    async def describe_all(self, kind: EntityType, *, include_all: bool) -> list[EntityConfigs]:
        _refuse(kind, include_all=include_all)
        if kind is EntityType.TOPIC:
            return [_described(Entity(kind, topic.name), known_configs(topic)) for topic in self._snapshot.topics]
        known = {broker.id for broker in self._snapshot.brokers} | {
            broker for broker in self._snapshot.broker_configs if broker is not None
        }
        entities = [*(Entity(kind, str(broker_id)) for broker_id in sorted(known)), Entity(kind, None)]
        return [await self.describe(entity, include_all=False) for entity in entities]


def _refuse(kind: EntityType, *, include_all: bool) -> None:
    if kind not in (EntityType.TOPIC, EntityType.BROKER):
        hint = Phrase("name the cluster with ", Parameter.BOOTSTRAP_SERVERS, " or ", Parameter.ZOOKEEPER)
        raise BadRequest(f"a snapshot has no settings of {kind.value}", hint=hint)
    if include_all:
        hint = Phrase("leave ", Parameter.ALL_CONFIGS, " out, or ask the cluster")
        raise BadRequest("a snapshot has only what is set, no defaults", hint=hint)


def _described(entity: Entity, settings: Mapping[str, str]) -> EntityConfigs:
    source = (
        ConfigSource.DYNAMIC_TOPIC_CONFIG if entity.type is EntityType.TOPIC else ConfigSource.DYNAMIC_BROKER_CONFIG
    )
    if entity.name is None:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = (
        ConfigEntry(name, value, source, synonyms=(ConfigSynonym(name, value, source),))
        for name, value in sorted(settings.items())
    )
    return EntityConfigs(entity.type, entity.name, tuple(entries))
