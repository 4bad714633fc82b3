"""Quotas of users, clients and addresses, and users' SCRAM credentials, as settings. Values only.

Of a credential they show only the iterations, never anything from which a password could be guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, unquote_plus

from engine.admin.cluster.errors import BadRequest
from engine.admin.configs.values import ConfigEntry, ConfigSource, Entity, EntityConfigs, EntityType, not_set
from engine.kafka.config.quota_keys import CLIENT_QUOTAS, IP_QUOTAS, QuotaKey

SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""By the wire's number."""

_KEYS: dict[EntityType, tuple[QuotaKey, ...]] = {
    EntityType.USER: CLIENT_QUOTAS,
    EntityType.CLIENT: CLIENT_QUOTAS,
    EntityType.USER_CLIENT: CLIENT_QUOTAS,
    EntityType.IP: IP_QUOTAS,
}
_PARTS = {
    EntityType.USER: ("user",),
    EntityType.CLIENT: ("client-id",),
    EntityType.USER_CLIENT: ("user", "client-id"),
    EntityType.IP: ("ip",),
}
_DEFAULT = "<default>"


def user_and_client(user: str | None, client: str | None) -> Entity:
    """Return a client of a user; None is the default of all."""
    return Entity(EntityType.USER_CLIENT, f"{written(user)}/{written(client)}")


def parts_of(entity: Entity) -> list[tuple[str, str | None]]:
    """Return the wire's parts of an entity, type and name; a name None is the default."""
    kinds = _PARTS[entity.type]
    if entity.type is not EntityType.USER_CLIENT:
        return [(kinds[0], entity.name)]
    names = (entity.name or "").split("/")
    return [(kind, None if name == _DEFAULT else unquote_plus(name)) for kind, name in zip(kinds, names, strict=True)]


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity | None:
    """Return the entity of the wire's parts; None if it is of a kind not known here."""
    named = dict(parts)
    match sorted(named):
        case ["client-id", "user"]:
            return user_and_client(named["user"], named["client-id"])
        case ["user"]:
            return Entity(EntityType.USER, named["user"])
        case ["client-id"]:
            return Entity(EntityType.CLIENT, named["client-id"])
        case ["ip"]:
            return Entity(EntityType.IP, named["ip"])
        case _:
            return None


def part_names(kind: EntityType) -> tuple[str, ...]:
    """Return the wire's types of the parts that an entity of a kind has."""
    return _PARTS[kind]


def client_entity_configs(
    entity: Entity, quotas: Mapping[str, str], iterations: Mapping[str, int | None]
) -> EntityConfigs:
    """Return quotas as texts, and the iterations of credentials by mechanism, as settings."""
    entries = [ConfigEntry(key, value, ConfigSource.CLIENT_QUOTA) for key, value in quotas.items()]
    entries += [
        ConfigEntry(key, None if count is None else f"iterations={count}", ConfigSource.SCRAM_CREDENTIAL)
        for key, count in iterations.items()
    ]
    return EntityConfigs(entity.type, entity.name, tuple(sorted(entries, key=lambda entry: entry.name)))


def parse_quotas(entity: Entity, additions: Mapping[str, str]) -> dict[str, float]:
    """Return quotas as numbers.

    Raises:
        BadRequest: a key is not a quota of such an entity, or it cannot have this value.
    """
    _refuse_credentials(additions)
    known = _KEYS[entity.type]
    unknown = sorted(set(additions) - set(known))
    if unknown:
        message = f"only quotas can be set for {entity.type.value}, not {', '.join(unknown)}"
        raise BadRequest(message, hint=f"quotas: {', '.join(known)}")
    return {key: _number(key, text) for key, text in additions.items()}


def check_dropped(entity: Entity, deletions: Sequence[str], present: Iterable[str]) -> None:
    """Raise BadRequest if a quota to drop is not set, or is not a quota."""
    _refuse_credentials(deletions)
    existing = set(present)
    absent = [key for key in deletions if key not in existing]
    if absent:
        raise not_set(entity, absent)


def _refuse_credentials(keys: Iterable[str]) -> None:
    credentials = sorted(key for key in keys if key in SCRAM_MECHANISMS.values())
    if credentials:
        hint = "a credential belongs to one user: name that user alone"
        raise BadRequest(f"credentials cannot be altered: {', '.join(credentials)}", hint=hint)


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadRequest(f"cannot parse quota configuration value for {key}: {text}") from None
    if not math.isfinite(value):
        raise BadRequest(f"{key} must be a number, not {text}")
    if QuotaKey(key).is_whole and (not value.is_integer() or value < 0):
        raise BadRequest(f"{key} must be a whole number, 0 or more, not {text}")
    return value


def limits_nobody(key: str, text: str | None) -> bool:
    """Whether brokers ignore this value: Kafka's arithmetic overflows where no byte at all is allowed."""
    return text is not None and key in (QuotaKey.PRODUCE, QuotaKey.FETCH) and float(text) == 0


def written(name: str | None) -> str:
    """Return a user's or a client's name as it is written in the name of a client of a user."""
    return _DEFAULT if name is None else quote(name, safe="").replace("~", "%7E")
