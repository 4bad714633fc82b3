"""Znodes of dynamic settings: ``/config/<type>/<name>`` and the notifications in ``/config/changes``. Codecs only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Final
from urllib.parse import quote, unquote_plus

from engine.kafka.zk.errors import ZnodeFormatError
from engine.kafka.zk.znodes.fields import Fields, encode_json

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
