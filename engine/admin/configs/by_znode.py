"""Settings, quotas and credentials through the znodes: what is set for an entity, not what brokers have in their files.

A change is written, then announced to all brokers by a change notification. This checks it as a broker would, except
for what depends on a broker's own file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from engine.admin.cluster.advice import advice_for
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import SEE_TOPICS, USE_BROKERS, Operation, Phrase
from engine.admin.cluster.waits import Observer, ignore_line
from engine.admin.configs.quotas import (
    SCRAM_MECHANISMS,
    check_dropped,
    client_entity_configs,
    entity_of,
    parse_quotas,
    parts_of,
)
from engine.admin.configs.values import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    Entity,
    EntityConfigs,
    EntityType,
    not_set,
)
from engine.common.errors import ConfigError, ErrorCode
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic_keys import is_password, validate_dynamic_config
from engine.kafka.config.password_encoder import PasswordEncoder, encoded
from engine.kafka.config.quota_keys import QuotaKey
from engine.kafka.config.topic_config_values import validate_topic_config
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import double_text
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.configs import DEFAULT_ENTITY, ConfigType, desanitized, sanitized
from engine.kafka.zk.errors import NoAuth, ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.reads import or_raise

_TYPES = {EntityType.TOPIC: ConfigType.TOPIC, EntityType.BROKER: ConfigType.BROKER}
_SOURCES = {EntityType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG, EntityType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG}


class ZkConfigReader:
    """Reads settings from znodes."""

    def __init__(self, zk: ZkClient, *, observe: Observer = ignore_line) -> None:
        self._kafka = KafkaZkClient(zk)
        self._observe = observe

    async def describe_all(self, kind: EntityType, *, include_all: bool) -> list[EntityConfigs]:
        if kind.is_of_clients:
            return await describe_clients_zk(self._kafka, kind, None)
        entities = await self._entities(kind)
        _refuse_all_of(kind, include_all=include_all)
        reads = (await self._kafka.configs.get_entities_configs([entity_path(entity) for entity in entities])).values()
        described = []
        for entity, read in zip(entities, reads, strict=True):
            if isinstance(read, ZnodeFormatError | NoAuth):
                described.append(EntityConfigs(entity.type, entity.name, (), str(read)))
            else:
                described.append(_described(entity, or_raise(read), include_all=include_all))
        self._observe(f"ZooKeeper reported the settings of {len(described)} {kind.value}")
        return described

    async def _entities(self, kind: EntityType) -> list[Entity]:
        """Return all topics, or the brokers that have settings or are alive, and their default."""
        if kind is EntityType.TOPIC:
            return [Entity(kind, name) for name in await self._kafka.topics.get_all_topics()]
        if kind is not EntityType.BROKER:
            entity_path(Entity(kind, None))
        ids = {
            *map(str, await self._kafka.brokers.get_broker_ids()),
            *await self._kafka.configs.get_entity_names(ConfigType.BROKER),
        }
        return [*(Entity(kind, name) for name in sorted(filter(str.isdecimal, ids), key=int)), Entity(kind, None)]

    async def describe(self, entity: Entity, *, include_all: bool) -> EntityConfigs:
        if entity.type.is_of_clients:
            (described,) = await describe_clients_zk(self._kafka, entity.type, entity)
            return described
        path = entity_path(entity)
        if entity.type is EntityType.TOPIC and not await self._kafka.topics.topic_exists(entity.name or ""):
            raise NotFound(f"topic {entity.name!r} does not exist", hint=SEE_TOPICS, topics=entity.topics)
        settings = await self._kafka.configs.get_entity_configs(path)
        self._observe(f"ZooKeeper reported {len(settings)} settings of {entity}")
        _refuse_all_of(entity.type, include_all=include_all)
        return _described(entity, settings, include_all=include_all)


def _refuse_all_of(kind: EntityType, *, include_all: bool) -> None:
    if include_all and kind is not EntityType.TOPIC:
        raise BadRequest("ZooKeeper does not hold the settings of a broker's file", hint=USE_BROKERS)


def _described(entity: Entity, settings: Mapping[str, str], *, include_all: bool) -> EntityConfigs:
    entries = {key: _entry(entity, key, value) for key, value in settings.items()}
    if include_all:
        entries = {entry.name: entry for entry in _topic_defaults()} | entries
    return EntityConfigs(entity.type, entity.name, tuple(entries[name] for name in sorted(entries)))


def entity_path(entity: Entity) -> str:
    """Return the path of an entity's settings below ``/config``.

    Raises:
        BadRequest: its settings are not in ZooKeeper.
    """
    if entity.type not in _TYPES:
        raise BadRequest(f"{entity.type.value} are not in ZooKeeper", hint=USE_BROKERS)
    return f"{_TYPES[entity.type].value}/{DEFAULT_ENTITY if entity.name is None else entity.name}"


def _entry(entity: Entity, key: str, value: str) -> ConfigEntry:
    source = _SOURCES[entity.type] if entity.name is not None else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    # Brokers' secrets are stored encrypted: show neither form.
    is_sensitive = entity.type is EntityType.BROKER and is_password(key)
    shown = None if is_sensitive else value
    return ConfigEntry(key, shown, source, sensitive=is_sensitive, synonyms=(ConfigSynonym(key, shown, source),))


def _topic_defaults() -> list[ConfigEntry]:
    return [ConfigEntry(key.name, key.default_text, ConfigSource.DEFAULT_CONFIG) for key in TOPIC_CONFIG_DEF]


async def alter_configs_zk(
    kafka: KafkaZkClient,
    entity: Entity,
    additions: Mapping[str, str],
    deletions: Sequence[str],
    *,
    validate_only: bool = False,
) -> None:
    """Set and delete settings of an entity, all or none.

    Raises:
        BadRequest: a setting to be deleted is not set, or one to be set is unknown or has a bad value.
    """
    if entity.type.is_of_clients:
        await _alter_quotas(kafka, entity, additions, deletions, validate_only=validate_only)
        return
    path = entity_path(entity)
    if entity.type is EntityType.TOPIC:
        configs = await topic_configs_after(kafka, entity.name or "", additions, deletions)
    else:
        additions = await encoded_broker_configs(additions, is_default=entity.name is None)
        configs = changed_settings(await kafka.configs.get_entity_configs(path), additions, deletions, entity)
    if not validate_only:
        await kafka.configs.change_entity_configs(
            path, configs, check_controller=await kafka.controller.controller_exists()
        )


async def topic_configs_after(
    kafka: KafkaZkClient, topic: str, additions: Mapping[str, str], deletions: Sequence[str]
) -> dict[str, str]:
    """Return a topic's overrides as they will be; errors as ``alter_configs_zk``."""
    present = await kafka.configs.get_entity_configs(f"topics/{topic}")
    configs = changed_settings(present, additions, deletions, Entity(EntityType.TOPIC, topic))
    check_topic_configs({key: value for key, value in configs.items() if key in additions or key not in present})
    return configs


def changed_settings(
    present: Mapping[str, str], additions: Mapping[str, str], deletions: Sequence[str], entity: Entity
) -> dict[str, str]:
    """Return settings with the changes made; raises BadRequest if one to be deleted is not set."""
    absent = [key for key in deletions if key not in present]
    if absent:
        raise not_set(entity, absent)
    return {key: value for key, value in present.items() if key not in deletions} | dict(additions)


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """Raise BadRequest if a topic cannot have these settings."""
    # A broker's file is not known here, so use Kafka's defaults.
    anybody = BrokerConfig.from_properties({"zookeeper.connect": "unknown"})
    try:
        validate_topic_config(configs, anybody)
    except ConfigError as error:
        hint = advice_for(ErrorCode.INVALID_CONFIG, str(error), "topic")
        raise BadRequest(str(error), hint=hint) from error


async def encoded_broker_configs(configs: Mapping[str, str], *, is_default: bool) -> dict[str, str]:
    """Check what a broker, or all of them by default, is to be given at run time, and encrypt the passwords in it.

    As in kafka-configs, ``password.encoder.secret`` and its kin say how, and are not stored themselves.

    Raises:
        BadRequest: a setting is not allowed here, or there is a password and no secret to encrypt it with.
    """
    own = {key: value for key, value in configs.items() if key.startswith("password.encoder.")}
    others = {key: value for key, value in configs.items() if key not in own}
    try:
        validate_dynamic_config(others, is_per_broker=not is_default)
        encoder = PasswordEncoder.of(BrokerConfig.from_properties({"zookeeper.connect": "unknown", **own}))
        passwords = sorted(filter(is_password, others))
        if passwords and encoder is None:
            hint = Phrase("or let the running broker do it: ", USE_BROKERS)
            raise BadRequest(
                f"{passwords[0]} is stored encrypted: add password.encoder.secret=… of the broker's file", hint=hint
            )
        return await asyncio.to_thread(encoded, others, encoder)
    except ConfigError as error:
        hint = Phrase("what is set now: ", Operation.DESCRIBE_BROKER_CONFIGS)
        raise BadRequest(str(error), hint=hint) from error


_CLIENT_TYPES = {
    EntityType.USER: (ConfigType.USER, "user"),
    EntityType.CLIENT: (ConfigType.CLIENT, "client-id"),
    EntityType.IP: (ConfigType.IP, "ip"),
}
_ITERATIONS = re.compile(r"(?:^|,)iterations=(\d+)")


async def describe_clients_zk(kafka: KafkaZkClient, kind: EntityType, entity: Entity | None) -> list[EntityConfigs]:
    """Return what is set for one entity, or (None) for all of a kind that have anything.

    Raises:
        ZnodeFormatError: what is set for the one cannot be understood.
        NoAuth: it may not be read.
    """
    if entity is not None:
        wanted = {_client_path(entity): entity}
    elif kind is EntityType.USER_CLIENT:
        wanted = await _clients_of_users(kafka)
    else:
        wanted = await _all_of(kafka, kind)
    described = []
    for path, read in (await kafka.configs.get_entities_configs(list(wanted))).items():
        if isinstance(read, ZnodeFormatError | NoAuth) and entity is None:
            described.append(EntityConfigs(kind, wanted[path].name, (), str(read)))
            continue
        settings = or_raise(read)
        if settings or entity is not None:
            described.append(_described_client(wanted[path], settings))
    return described


async def _all_of(kafka: KafkaZkClient, kind: EntityType) -> dict[str, Entity]:
    entity_type, part = _CLIENT_TYPES[kind]
    names = await kafka.configs.get_entity_names(entity_type)
    entities = {name: entity_of([(part, _named(name))]) for name in names}
    return {f"{entity_type.value}/{name}": quotas for name, quotas in entities.items() if quotas is not None}


async def _clients_of_users(kafka: KafkaZkClient) -> dict[str, Entity]:
    entities = {}
    for user, client in await kafka.configs.get_clients_of_users():
        entity = entity_of([("user", _named(user)), ("client-id", _named(client))])
        if entity is not None:
            entities[_path_of_client(user, client)] = entity
    return entities


async def _alter_quotas(
    kafka: KafkaZkClient, entity: Entity, additions: Mapping[str, str], deletions: Sequence[str], *, validate_only: bool
) -> None:
    wanted = parse_quotas(entity, additions)
    path = _client_path(entity)
    present = await kafka.configs.get_entity_configs(path)
    check_dropped(entity, deletions, present)
    if validate_only:
        return
    kept = {key: text for key, text in present.items() if key not in deletions}
    kept |= {key: str(int(value)) if QuotaKey(key).is_whole else double_text(value) for key, value in wanted.items()}
    await kafka.configs.change_entity_configs(path, kept, check_controller=await kafka.controller.controller_exists())


def _client_path(entity: Entity) -> str:
    """Return the path of an entity's settings below ``/config``."""
    parts = [DEFAULT_ENTITY if name is None else sanitized(name) for _, name in parts_of(entity)]
    if entity.type is EntityType.USER_CLIENT:
        return _path_of_client(*parts)
    return f"{_CLIENT_TYPES[entity.type][0].value}/{parts[0]}"


def _path_of_client(user: str, client: str) -> str:
    return f"{ConfigType.USER.value}/{user}/{ConfigType.CLIENT.value}/{client}"


def _named(znode: str) -> str | None:
    return None if znode == DEFAULT_ENTITY else desanitized(znode)


def _described_client(entity: Entity, settings: Mapping[str, str]) -> EntityConfigs:
    quotas: dict[str, str] = {}
    credentials: dict[str, int | None] = {}
    for key, text in settings.items():
        if key in SCRAM_MECHANISMS.values():
            match = _ITERATIONS.search(text)
            credentials[key] = None if match is None else int(match[1])
        else:
            quotas[key] = _as_by_wire(text)
    return client_entity_configs(entity, quotas, credentials)


def _as_by_wire(text: str) -> str:
    """Return a quota as brokers report it, always with a fraction; anything but a number stays as it is."""
    try:
        return str(float(text))
    except ValueError:
        return text
