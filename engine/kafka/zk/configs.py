"""Dynamic settings of topics, brokers, users, clients and addresses in ZooKeeper, and notices of their changes.

An entity's name is its path below ``/config``: ``topics/orders``, ``brokers/0``, ``brokers/<default>``,
``users/alice/clients/app``. Names of users, clients and addresses are sanitized (``sanitized``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final
from urllib.parse import quote, unquote_plus

from engine.common.errors import CoordinationError
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.controller import ControllerZNode
from engine.kafka.zk.errors import (
    BadVersion,
    ControllerMoved,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    ZnodeFormatError,
    ZooKeeperError,
)
from engine.kafka.zk.operations import Check, Create, Delete, SetData
from engine.kafka.zk.reads import children_or_empty, decoded, or_raise, read_znode
from engine.kafka.zk.znode_json import Fields, encode_json

DEFAULT_ENTITY = "<default>"
"""Name of the znode whose settings apply to all entities without their own."""


class ConfigType(Enum):
    """Types of entities that have settings; the value is the znode's name."""

    TOPIC = "topics"
    CLIENT = "clients"
    USER = "users"
    BROKER = "brokers"
    IP = "ips"


def sanitized(name: str) -> str:
    """Return a user's, client's or address's name as Kafka puts it into paths: percent-encoded, ``*`` and ``~`` too."""
    return quote(name, safe="").replace("~", "%7E")


def desanitized(name: str) -> str:
    """Return the name that ``sanitized`` was given."""
    return unquote_plus(name)


class ConfigEntityTypeZNode:
    """Parent of the settings of one type of entity."""

    @staticmethod
    def path(entity_type: ConfigType | str) -> str:
        return f"/config/{entity_type.value if isinstance(entity_type, ConfigType) else entity_type}"


class ConfigEntityZNode:
    """Settings of one entity: strings by key, exactly as set.

    The entity's path is ``topics/orders``, ``users/alice``, ``users/alice/clients/app`` and so on, names sanitized.
    """

    @staticmethod
    def path(entity_type: ConfigType | str, entity_name: str) -> str:
        return f"{ConfigEntityTypeZNode.path(entity_type)}/{entity_name}"

    @staticmethod
    def encode(configs: Mapping[str, str]) -> bytes:
        return encode_json({"version": 1, "config": dict(configs)})

    @staticmethod
    def decode(path: str, data: bytes) -> dict[str, str]:
        """Read settings; as for Kafka, a znode without data, without settings, or with other JSON has none."""
        if not data:
            return {}
        try:
            if not isinstance(json.loads(data), dict):
                return {}
        except (ValueError, RecursionError):
            pass
        fields = Fields.parse(path, data)
        return fields.text_map("config") if "config" in fields else {}


class ConfigEntityChangeNotificationZNode:
    """Parent of the notifications; every broker watches its children."""

    path: Final = "/config/changes"


class ConfigEntityChangeNotificationSequenceZNode:
    """Tells every broker whose settings changed, not what changed."""

    prefix: Final = "config_change_"
    create_path: Final = "/config/changes/config_change_"

    @staticmethod
    def path(name: str) -> str:
        return f"{ConfigEntityChangeNotificationZNode.path}/{name}"

    @staticmethod
    def encode(entity_path: str) -> bytes:
        """Return version 2 (Kafka 0.10.1 and newer); ``entity_path`` as ``topics/orders``."""
        return encode_json({"version": 2, "entity_path": entity_path})

    @staticmethod
    def decode(name: str, data: bytes) -> str:
        """Return the entity path; also reads version 1 (0.9: type and name) and 0.8 (a topic's name in quotes)."""
        path = ConfigEntityChangeNotificationSequenceZNode.path(name)
        if data.lstrip().startswith(b'"'):
            return f"topics/{_bare_topic(path, data)}"
        fields = Fields.parse(path, data)
        match fields.integer("version"):
            case 1:
                entity_type, entity_name = fields.text("entity_type"), fields.text("entity_name")
                if entity_type not in ("topics", "clients"):
                    raise fields.complaint("entity_type", "topics or clients")
                return f"{entity_type}/{entity_name}"
            case 2:
                return fields.text("entity_path")
            case _:
                raise fields.complaint("version", "1 or 2")


def _bare_topic(path: str, data: bytes) -> str:
    try:
        return str(json.loads(data))
    except ValueError as error:
        raise ZnodeFormatError(path, f"not JSON: {data[:40]!r}") from error


_KEPT_WITHOUT_SETTINGS = ("topics/", "brokers/")


class ConfigZnodes:
    """Reads and writes below ``/config``."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy) -> None:
        self._client = client
        self._acl = acl_policy.acl

    async def get_entity_configs(self, entity_path: str) -> dict[str, str]:
        """Return an entity's settings; empty if it has none.

        Raises:
            ZnodeFormatError: they cannot be understood.
        """
        path = f"/config/{entity_path}"
        return await read_znode(self._client, path, lambda data, _: ConfigEntityZNode.decode(path, data)) or {}

    async def get_entities_configs(self, entity_paths: Sequence[str]) -> dict[str, dict[str, str] | CoordinationError]:
        """Return the settings of many entities, empty if an entity has none; errors are values in the result."""
        paths = [f"/config/{entity_path}" for entity_path in entity_paths]
        configs = await self._client.read_many(
            paths,
            lambda position, outcome: (
                decoded(outcome, lambda data, _: ConfigEntityZNode.decode(paths[position], data)) or {}
            ),
        )
        return dict(zip(entity_paths, configs, strict=True))

    async def get_topic_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str] | CoordinationError]:
        """Return many topics' overrides by topic; errors are values in the result."""
        configs = await self.get_entities_configs([f"{ConfigType.TOPIC.value}/{topic}" for topic in topics])
        return dict(zip(topics, configs.values(), strict=True))

    async def get_entity_names(self, entity_type: ConfigType) -> list[str]:
        """Return the names (sanitized) of the entities of a type that have a znode, sorted."""
        return sorted(await children_or_empty(self._client, ConfigEntityTypeZNode.path(entity_type)))

    async def get_clients_of_users(self) -> list[tuple[str, str]]:
        """Return sorted (user, client) pairs, sanitized, of all clients that have a znode below a user's."""
        users = await self.get_entity_names(ConfigType.USER)
        clients = await self._client.children_many(map(client_folder, users))
        return [
            (user, client)
            for user, names in zip(users, clients, strict=True)
            if not isinstance(names, NoNode)
            for client in sorted(or_raise(names))
        ]

    async def set_entity_configs(
        self, entity_path: str, configs: Mapping[str, str], *, check_controller: bool = True
    ) -> None:
        """Replace an entity's settings without telling brokers; ``change_entity_configs`` does both.

        The write fails while a KRaft controller takes over the cluster. For this it also checks the controller's
        znode, as Kafka 3.4 and newer do. With concurrent writers, the last one wins.

        Args:
            check_controller: False for a tool that prepares a cluster before its first start.

        Raises:
            ControllerMoved: there is no controller, or a KRaft one, or it has just changed.
        """
        await self._set(entity_path, configs, check_controller, ())

    async def _set(
        self, entity_path: str, configs: Mapping[str, str], check_controller: bool, notices: Sequence[Create]
    ) -> None:
        path, data = f"/config/{entity_path}", ConfigEntityZNode.encode(configs)
        checks = [await self._check_of_controller(entity_path)] if check_controller else []
        while not await self._set_if_there(path, data, checks, notices):
            if await self._create_if_missing(path, data, notices):
                return

    async def _check_of_controller(self, entity_path: str) -> Check:
        try:
            data, stat = await self._client.get(ControllerZNode.path)
        except NoNode:
            raise ControllerMoved(f"cannot change the settings of {entity_path}: there is no controller") from None
        if (ControllerZNode.decode(data).kraft_controller_epoch or 0) > 0:
            raise ControllerMoved(f"cannot change the settings of {entity_path}: a KRaft controller owns them")
        return Check(ControllerZNode.path, stat.version)

    async def _set_if_there(self, path: str, data: bytes, checks: Sequence[Check], notices: Sequence[Create]) -> bool:
        try:
            await self._client.multi([*checks, SetData(path, data), *notices])
        except MultiFailed as refusal:
            if refusal.index < len(checks):
                raise ControllerMoved("the controller changed while writing settings; try again") from refusal
            if refusal.index == len(checks) and isinstance(refusal.error, NoNode):
                return False
            raise refusal.error from refusal
        return True

    async def _create_if_missing(self, path: str, data: bytes, notices: Sequence[Create]) -> bool:
        error: ZooKeeperError
        try:
            # No notice tells of a new topic's settings, and Kafka writes them without a multi.
            if notices:
                await self._client.multi([Create(path, data, acl=self._acl(path)), *notices])
            else:
                await self._client.create(path, data, acl=self._acl(path))
            return True
        except MultiFailed as refusal:
            if refusal.index > 0:
                raise refusal.error from refusal
            error = refusal.error
        except (NodeExists, NoNode) as refusal:
            error = refusal
        if isinstance(error, NodeExists):
            return False
        if not isinstance(error, NoNode):
            raise error
        parent = path.rpartition("/")[0]
        await self._client.ensure_path(parent, self._acl(parent))
        return await self._create_if_missing(path, data, notices)

    async def change_entity_configs(
        self, entity_path: str, configs: Mapping[str, str], *, check_controller: bool = True
    ) -> None:
        """Replace an entity's settings and notify all brokers, both or neither.

        The znodes of users, clients and addresses without settings are removed, unless a user's clients have some;
        those of topics and brokers stay, as in Kafka 3.9.
        """
        parent, path = ConfigEntityChangeNotificationZNode.path, ConfigEntityChangeNotificationSequenceZNode.create_path
        await self._client.ensure_path(parent, self._acl(parent))
        data = ConfigEntityChangeNotificationSequenceZNode.encode(entity_path)
        notice = Create(path, data, sequential=True, acl=self._acl(path))
        if configs or entity_path.startswith(_KEPT_WITHOUT_SETTINGS) or not await self._is_removed(entity_path, notice):
            await self._set(entity_path, configs, check_controller, [notice])

    async def _is_removed(self, entity_path: str, notice: Create) -> bool:
        """Remove an entity's znode, and a user's that is left with nothing; False: it has clients, so it stays."""
        try:
            await self._client.multi([Delete(f"/config/{entity_path}"), notice])
        except MultiFailed as refusal:
            if refusal.index == 0 and isinstance(refusal.error, NotEmpty):
                return False
            if refusal.index > 0 or not isinstance(refusal.error, NoNode):
                raise refusal.error from refusal
            await self._client.create(notice.path, notice.data, sequential=True, acl=notice.acl)
        user, is_client, _ = entity_path.partition(f"/{ConfigType.CLIENT.value}/")
        if is_client:
            await self._remove_if_left_with_nothing(f"/config/{user}")
        return True

    async def _remove_if_left_with_nothing(self, user_path: str) -> None:
        try:
            await self._client.delete(f"{user_path}/{ConfigType.CLIENT.value}")
            data, stat = await self._client.get(user_path)
            if not ConfigEntityZNode.decode(user_path, data):
                await self._client.delete(user_path, stat.version)
        except (NoNode, NotEmpty, BadVersion):
            return


def client_folder(user: str) -> str:
    """Return the path whose children are a user's clients (sanitized) that have their own settings."""
    return f"{ConfigEntityZNode.path(ConfigType.USER, user)}/{ConfigType.CLIENT.value}"
