"""Keeps a broker's DynamicConfigs in step with ZooKeeper: reads ``/config`` at start, then follows its changes.

A notification says whose settings changed; the listener reads them all again. The handlers of the alter APIs and tools
write the settings themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from engine.common.clock import Clock
from engine.kafka.config.dynamic import BROKERS, ENTITY_TYPES, TOPICS, USERS, DynamicConfigs, raise_first
from engine.kafka.config.dynamic_keys import broker_config_key
from engine.kafka.config.password_encoder import decoded
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import REDACTED
from engine.kafka.zk.change_follower import ChangeFollower
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.configs import (
    ConfigEntityChangeNotificationSequenceZNode,
    ConfigEntityChangeNotificationZNode,
    ConfigEntityTypeZNode,
    ConfigEntityZNode,
    client_folder,
)
from engine.kafka.zk.errors import NoNode, SessionLost, ZnodeFormatError, ZooKeeperError
from engine.kafka.zk.operations import ZnodeStat
from engine.kafka.zk.reads import children_or_empty

READ_AT_ONCE_MAX: Final = 500
"""Entities whose settings are asked for together: some milliseconds."""

_log = logging.getLogger("kafka.server.ZkConfigManager")

Entity = tuple[str, str]
"""Type and name, as ``("topics", "orders")`` or ``("users", "alice/clients/app")``."""


class ConfigChangeListener:
    """Feeds one DynamicConfigs. Call ``start`` before loading logs, and ``stop`` before closing the client."""

    def __init__(self, client: ZkClient, configs: DynamicConfigs, clock: Clock) -> None:
        self._client = client
        self._configs = configs
        self._reading = asyncio.Lock()
        """What is read is applied before anything is read again: what is older must not come later."""
        folders = {ConfigEntityChangeNotificationZNode.path: _entity}
        self._follower = ChangeFollower(client, clock, folders, self._refresh, self.reload, subject="settings")

    async def start(self) -> None:
        """Watch for changes, then read all settings.

        Raises:
            CoordinationError: they could not be read.
        """
        await self._follower.start()

    async def stop(self) -> None:
        """Stop following changes; the settings read so far stay in force."""
        await self._follower.stop()

    async def reload(self) -> None:
        """Read the settings of every entity, also of those that are gone."""
        entities: list[Entity] = []
        for entity_type in ENTITY_TYPES:
            names = await children_or_empty(self._client, ConfigEntityTypeZNode.path(entity_type))
            if entity_type == USERS:
                names += await self._clients_of_users(names)
            if entity_type != BROKERS:
                names += self._configs.known_names(entity_type) - set(names)
            entities += [(entity_type, name) for name in names]
        await self.load(entities)

    async def load_topics(self, topics: Iterable[str]) -> None:
        """Read topics' settings now: a topic created with settings causes no notification."""
        await self.load((TOPICS, topic) for topic in topics)

    async def load(self, entities: Iterable[Entity]) -> None:
        """Read and apply the settings of these entities, of the others too if a part of the broker fails over one."""
        failures: list[Exception] = []
        rest = iter(entities)
        while asked := list(islice(rest, READ_AT_ONCE_MAX)):
            async with self._reading:
                answers = await self._client.get_many([ConfigEntityZNode.path(*entity) for entity in asked])
                for entity, answer in zip(asked, answers, strict=True):
                    if isinstance(answer, SessionLost):
                        raise answer
                    try:
                        await self._apply(entity, answer)
                    except Exception as error:
                        failures.append(error)
        raise_first(failures)

    async def _apply(self, entity: Entity, answer: tuple[bytes, ZnodeStat] | ZooKeeperError) -> None:
        texts = _texts(entity, answer)
        if texts is None:
            return
        if entity[0] == BROKERS:
            # Deriving the key of a password takes milliseconds. Done here, what follows finds the keys ready.
            await asyncio.to_thread(decoded, texts, self._configs.password_encoder)
        for problem in self._configs.apply(*entity, texts):
            _log.warning("A setting in ZooKeeper is not used. path=%s: %s", ConfigEntityZNode.path(*entity), problem)

    async def _refresh(self, entities: Sequence[Entity]) -> None:
        await self.load(entities)
        for entity in entities:
            self._log_override(entity)

    async def _clients_of_users(self, users: Sequence[str]) -> list[str]:
        names: list[str] = []
        for user, answer in zip(users, await self._client.children_many(map(client_folder, users)), strict=True):
            if isinstance(answer, SessionLost):
                raise answer
            if not isinstance(answer, ZooKeeperError):
                names += [f"{user}/clients/{client}" for client in answer]
        return names

    def _log_override(self, entity: Entity) -> None:
        texts = self._configs.stored_texts(*entity)
        shown = ", ".join(f"{name} -> {_loggable(entity[0], name, text)}" for name, text in texts.items())
        _log.info("Processing override for entityPath: %s/%s with config: HashMap(%s)", *entity, shown)


def _texts(entity: Entity, answer: tuple[bytes, ZnodeStat] | ZooKeeperError) -> Mapping[str, str] | None:
    """Return the settings in a znode, none if it is gone; None: they cannot be read, which is logged."""
    path = ConfigEntityZNode.path(*entity)
    if isinstance(answer, NoNode):
        return {}
    if isinstance(answer, ZooKeeperError):
        _log.error("The settings cannot be read and stay as they were: path=%s: %s", path, answer)
        return None
    try:
        return ConfigEntityZNode.decode(path, answer[0])
    except ZnodeFormatError as error:
        _log.error("The settings cannot be read and stay as they were: %s", error)
        return None


def _entity(name: str, data: bytes) -> Entity:
    """Return whose settings a notification is about.

    Raises:
        ZnodeFormatError: it names no entity that has settings.
    """
    entity_path = ConfigEntityChangeNotificationSequenceZNode.decode(name, data)
    entity_type, _, entity_name = entity_path.partition("/")
    if entity_type not in ENTITY_TYPES or not entity_name:
        known = ", ".join(f"'{known}'/" for known in ENTITY_TYPES)
        path = ConfigEntityChangeNotificationSequenceZNode.path(name)
        raise ZnodeFormatError(path, f"entity_path '{entity_path}' must start with one of {known}")
    return entity_type, entity_name


def _loggable(entity_type: str, name: str, text: str) -> str:
    """Hide possible secrets: SCRAM credentials, passwords, and unknown settings of brokers and topics."""
    if entity_type not in (TOPICS, BROKERS):
        return REDACTED if name.startswith("SCRAM-") else text
    key = TOPIC_CONFIG_DEF.get(name) if entity_type == TOPICS else broker_config_key(name)
    return REDACTED if key is None or key.is_sensitive else text
