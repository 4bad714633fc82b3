"""Settings as a snapshot has them: overrides of topics, dynamic settings of brokers."""

from __future__ import annotations

from collections.abc import Mapping

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import SEE_TOPICS, Parameter, Phrase
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


class SnapshotConfigReader:
    """Reads settings from a snapshot."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    async def describe(self, entity: Entity, *, include_all: bool) -> EntityConfigs:
        _refuse(entity.type, include_all=include_all)
        if entity.type is EntityType.TOPIC:
            topic = self._snapshot.topic(entity.name or "")
            if topic is None:
                raise NotFound(f"topic {entity.name!r} does not exist", hint=SEE_TOPICS)
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
