"""Keeps a broker's DynamicConfigs in step with ZooKeeper: reads ``/config`` at start, then follows its changes.

A notification says whose settings changed, never what changed. The listener reads them all again, so a missed or
repeated notification does no harm. The handlers of the alter APIs and tools write the settings themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

from engine.common.clock import Clock
from engine.kafka.config.dynamic import BROKERS, ENTITY_TYPES, TOPICS, USERS, DynamicConfigs
from engine.kafka.config.dynamic_keys import broker_config_key
from engine.kafka.config.password_encoder import decoded
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import REDACTED
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
from engine.kafka.zk.watches import WatchEvent, WatchEventKind
from engine.runtime.supervisor import Supervisor

NOTIFICATION_AGE_MS_MAX: Final = 15 * 60 * 1000
"""Any broker removes older notifications: the others have read them, or read all settings at start."""

READ_AT_ONCE_MAX: Final = 500
"""Entities whose settings are asked for together: some milliseconds."""

_log = logging.getLogger("kafka.server.ZkConfigManager")
_notification_log = logging.getLogger("kafka.common.ZkNodeChangeNotificationListener")

Entity = tuple[str, str]
"""Type and name, as ``("topics", "orders")`` or ``("users", "alice/clients/app")``."""


class ConfigChangeListener:
    """Feeds one DynamicConfigs. Call ``start`` before loading logs, and ``stop`` before closing the client."""

    def __init__(self, client: ZkClient, configs: DynamicConfigs, clock: Clock) -> None:
        self._client = client
        self._configs = configs
        self._clock = clock
        self._supervisor = Supervisor("config-changes")
        self._wake = asyncio.Event()
        self._must_reload = False
        self._seen: dict[str, int] = {}
        """When notifications were made, the oldest first: their numbers rise."""
        self._reading = asyncio.Lock()
        """What is read is applied before anything is read again: what is older must not come later."""

    async def start(self) -> None:
        """Watch for changes, then read all settings.

        Raises:
            CoordinationError: they could not be read.
        """
        self._client.watch_children(ConfigEntityChangeNotificationZNode.path, self._on_event)
        await self._take_notifications(apply=False)
        await self.reload()
        self._supervisor.start(self._follow(), "follow")

    async def stop(self) -> None:
        """Stop following changes; the settings read so far stay in force."""
        self._client.unwatch(ConfigEntityChangeNotificationZNode.path, self._on_event)
        await self._supervisor.stop()

    async def reload(self) -> None:
        """Read the settings of every entity."""
        for entity_type in ENTITY_TYPES:
            names = await children_or_empty(self._client, ConfigEntityTypeZNode.path(entity_type))
            if entity_type == USERS:
                names += await self._clients_of_users(names)
            if entity_type != BROKERS:
                for name in self._configs.known_names(entity_type) - set(names):
                    self._configs.apply(entity_type, name, {})
            await self.load([(entity_type, name) for name in names])

    async def load_topics(self, topics: Iterable[str]) -> None:
        """Read topics' settings now: a topic created with settings causes no notification."""
        await self.load((TOPICS, topic) for topic in topics)

    async def load(self, entities: Iterable[Entity]) -> None:
        """Read and apply these entities' settings."""
        rest = iter(entities)
        while asked := list(islice(rest, READ_AT_ONCE_MAX)):
            async with self._reading:
                answers = await self._client.get_many([ConfigEntityZNode.path(*entity) for entity in asked])
                for entity, answer in zip(asked, answers, strict=True):
                    if isinstance(answer, SessionLost):
                        raise answer
                    await self._apply(entity, answer)

    async def _apply(self, entity: Entity, answer: tuple[bytes, ZnodeStat] | ZooKeeperError) -> None:
        texts = _texts(entity, answer)
        if texts is None:
            return
        if entity[0] == BROKERS:
            # Deriving the key of a password takes milliseconds. Done here, what follows finds the keys ready.
            await asyncio.to_thread(decoded, texts, self._configs.password_encoder)
        for problem in self._configs.apply(*entity, texts):
            _log.warning("A setting in ZooKeeper is not used. path=%s: %s", ConfigEntityZNode.path(*entity), problem)

    def _on_event(self, event: WatchEvent) -> None:
        # Between two sessions notifications may have come and gone.
        self._must_reload |= event.kind is WatchEventKind.NEW_SESSION
        self._wake.set()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._catch_up()
            except SessionLost as error:
                _log.info("The next session will read changes of settings again: %s", error)
                self._must_reload = True
            except Exception:
                # Whatever goes wrong with one change, the next one still arrives, and then this reads what it missed.
                _notification_log.exception("Error while processing notification change for path = /config/changes")
                self._must_reload = True

    async def _catch_up(self) -> None:
        must_reload, self._must_reload = self._must_reload, False
        await self._take_notifications(apply=not must_reload)
        if must_reload:
            await self.reload()
        await self._purge()

    async def _take_notifications(self, *, apply: bool) -> None:
        """Read new notifications; with ``apply``, also read the settings they refer to."""
        names = await children_or_empty(self._client, ConfigEntityChangeNotificationZNode.path)
        # There may be those of the last 15 minutes, each time.
        new = sorted(name for name in names if name not in self._seen)
        if len(names) - len(new) < len(self._seen):
            present = set(names)
            self._seen = {name: ctime_ms for name, ctime_ms in self._seen.items() if name in present}
        if not new:
            return
        if apply:
            _notification_log.info("Processing notification(s) to %s", ConfigEntityChangeNotificationZNode.path)
        entities: dict[Entity, None] = {}
        for name, (data, stat) in await self._read_notifications(new):
            self._seen[name] = stat.ctime_ms
            entity = _entity(name, data)
            if entity is not None:
                entities[entity] = None
        if apply:
            await self.load(list(entities))
            for entity in entities:
                self._log_override(entity)

    async def _read_notifications(self, names: Sequence[str]) -> list[tuple[str, tuple[bytes, ZnodeStat]]]:
        paths = [ConfigEntityChangeNotificationSequenceZNode.path(name) for name in names]
        read: list[tuple[str, tuple[bytes, ZnodeStat]]] = []
        for name, answer in zip(names, await self._client.get_many(paths), strict=True):
            if isinstance(answer, SessionLost):
                raise answer
            if isinstance(answer, ZooKeeperError):
                _notification_log.warning("read null data from %s: %s", name, answer)
            else:
                read.append((name, answer))
        return read

    async def _purge(self) -> None:
        """Remove notifications that every broker saw long ago."""
        oldest_ms = self._clock.now_ms() - NOTIFICATION_AGE_MS_MAX
        for name in [name for name, _ in takewhile(lambda seen: seen[1] < oldest_ms, self._seen.items())]:
            try:
                await self._client.delete(ConfigEntityChangeNotificationSequenceZNode.path(name))
            except NoNode:
                _notification_log.debug("Another broker removed %s first", name)
            del self._seen[name]

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


def _entity(name: str, data: bytes) -> Entity | None:
    try:
        entity_path = ConfigEntityChangeNotificationSequenceZNode.decode(name, data)
    except ZnodeFormatError as error:
        _notification_log.error("error processing change notification %s: %s", name, error)
        return None
    entity_type, _, entity_name = entity_path.partition("/")
    if entity_type not in ENTITY_TYPES or not entity_name:
        _notification_log.error(
            "error processing change notification %s: entity_path '%s' must start with one of %s",
            name,
            entity_path,
            ", ".join(f"'{known}'/" for known in ENTITY_TYPES),
        )
        return None
    return entity_type, entity_name


def _loggable(entity_type: str, name: str, text: str) -> str:
    """Hide possible secrets: SCRAM credentials, passwords, and unknown settings of brokers and topics."""
    if entity_type not in (TOPICS, BROKERS):
        return REDACTED if name.startswith("SCRAM-") else text
    key = TOPIC_CONFIG_DEF.get(name) if entity_type == TOPICS else broker_config_key(name)
    return REDACTED if key is None or key.is_sensitive else text
