"""Settings as the znodes hold them: what is set for an entity. What brokers have in their files is not there."""

from __future__ import annotations

from engine.admin.configs import ConfigEntry, ConfigSource, ConfigSynonym, Entity, EntityConfigs, EntityType
from engine.admin.errors import BadRequest, NotFound
from engine.admin.observer import Observer, tell_nobody
from engine.admin.zookeeper_side import children_or_none, get_or_none
from engine.config.dynamic_keys import is_password
from engine.config.topic_config_keys import TOPIC_CONFIG_DEF
from engine.zk.client import ZkClient
from engine.zk.znodes.broker_znodes import BrokerIdsZNode
from engine.zk.znodes.config_znodes import DEFAULT_ENTITY, ConfigEntityZNode, ConfigType
from engine.zk.znodes.topic_znodes import TopicsZNode, TopicZNode

_TYPES = {EntityType.TOPIC: ConfigType.TOPIC, EntityType.BROKER: ConfigType.BROKER}
_SOURCES = {EntityType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG, EntityType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG}


class ZkConfigReader:
    """Reads settings from znodes."""

    def __init__(self, zk: ZkClient, *, observe: Observer = tell_nobody) -> None:
        self._zk = zk
        self._observe = observe

    async def names(self, entity_type: EntityType) -> list[str]:
        if entity_type is EntityType.TOPIC:
            return sorted(await children_or_none(self._zk, TopicsZNode.path))
        return sorted(await children_or_none(self._zk, BrokerIdsZNode.path), key=int)

    async def describe(self, entity: Entity, *, include_all: bool) -> EntityConfigs:
        path = config_path(entity)
        data = await get_or_none(self._zk, path)
        if entity.type is EntityType.TOPIC and await self._zk.exists(TopicZNode.path(entity.name or "")) is None:
            raise NotFound(f"topic {entity.name!r} does not exist", hint="list the topics with: klamm topics list")
        settings = {} if data is None else ConfigEntityZNode.decode(path, data)
        self._observe(f"ZooKeeper told {len(settings)} settings of {entity}")
        entries = {key: _entry(entity, key, value) for key, value in settings.items()}
        if include_all:
            if entity.type is not EntityType.TOPIC:
                raise BadRequest("what a broker has in its file is not in ZooKeeper", hint="use --bootstrap-server")
            entries = {entry.name: entry for entry in _topic_defaults()} | entries
        return EntityConfigs(entity.type, entity.name, tuple(entries[name] for name in sorted(entries)))


def config_path(entity: Entity) -> str:
    """Return the path of an entity's settings.

    Raises:
        BadRequest: its settings are not in ZooKeeper.
    """
    if entity.type not in _TYPES:
        raise BadRequest(f"{entity.type.value} are not in ZooKeeper", hint="use --bootstrap-server")
    return ConfigEntityZNode.path(_TYPES[entity.type], DEFAULT_ENTITY if entity.name is None else entity.name)


def _entry(entity: Entity, key: str, value: str) -> ConfigEntry:
    source = _SOURCES[entity.type] if entity.name is not None else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    # Secrets of brokers are stored encrypted: neither form is anybody's business.
    is_sensitive = entity.type is EntityType.BROKER and is_password(key)
    shown = None if is_sensitive else value
    return ConfigEntry(key, shown, source, sensitive=is_sensitive, synonyms=(ConfigSynonym(key, shown, source),))


def _topic_defaults() -> list[ConfigEntry]:
    return [ConfigEntry(key.name, key.default_text, ConfigSource.DEFAULT_CONFIG) for key in TOPIC_CONFIG_DEF]
