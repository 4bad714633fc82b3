"""Quotas of users, clients and addresses: all that are set, which count for one client, and how they are written.

A user's SCRAM credentials are settings like these. Only their iterations are shown, never what a password could be
guessed from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote_plus

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.target import Source
from engine.admin.configs.access import describe_entities, describe_entity, told_of
from engine.admin.configs.values import ConfigEntry, ConfigSource, Entity, EntityConfigs, EntityType, not_set
from engine.kafka.config.quota_keys import CLIENT_QUOTAS, IP_QUOTAS, QuotaKey
from engine.kafka.zk.errors import NoAuth

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
    """Return a user's or a client's name as it stands in the name of a client of a user."""
    return _DEFAULT if name is None else quote(name, safe="").replace("~", "%7E")


DEFAULT = "<default>"
"""Stands for all users, client ids or addresses that have no quota of their own."""


@dataclass(frozen=True, slots=True)
class OwnedQuota:
    """One quota. ``user``, ``client_id`` and ``ip`` are None where it names none."""

    user: str | None
    client_id: str | None
    ip: str | None
    quota: str
    value: float | str
    """Text where ZooKeeper holds something that is not a number."""


_KINDS = (EntityType.USER, EntityType.USER_CLIENT, EntityType.CLIENT, EntityType.IP)


async def all_quotas(cluster: Cluster) -> list[OwnedQuota]:
    """Return every quota that is set; the cluster notes the znodes that hide some.

    Raises:
        NoAuth: ZooKeeper hides all of them.
    """
    quotas: list[OwnedQuota] = []
    refusals: list[NoAuth] = []
    for kind in _KINDS:
        try:
            quotas += await _quotas_of_kind(cluster, kind)
        except NoAuth as error:
            # Kafka keeps users' quotas beside their passwords, where only brokers may read.
            refusals.append(error)
    if len(refusals) == len(_KINDS):
        raise refusals[0]
    for refusal in refusals:
        cluster.note_hidden_znode(refusal.path or "")
    return quotas


async def quotas_that_count(cluster: Cluster, entity: Entity) -> list[OwnedQuota]:
    """Return the quotas that count for an entity, as ``in_force``.

    Raises:
        NoAuth: ZooKeeper hides a level that counts before others, so these may not count.
    """
    alone = (EntityType.IP, EntityType.CLIENT)
    kinds = [entity.type] if entity.type in alone else [kind for kind in _KINDS if kind is not EntityType.IP]
    quotas = [quota for kind in kinds for quota in await _quotas_of_kind(cluster, kind)]
    return in_force(entity, quotas)


async def _quotas_of_kind(cluster: Cluster, kind: EntityType) -> list[OwnedQuota]:
    return [quota for configs in await described_quotas(cluster, kind, None) for quota in _owned(configs)]


async def described_quotas(cluster: Cluster, kind: EntityType, entity: Entity | None) -> list[EntityConfigs]:
    """Return what is set for one entity, or (None) for all of a kind, without users' credentials where these are asked
    for by themselves: they need another right.
    """
    if cluster.source is Source.WIRE:
        from engine.admin.configs.by_wire import describe_clients

        return await describe_clients(await cluster.wire(), kind, entity, has_credentials=False)
    if entity is None:
        return told_of(cluster, await describe_entities(cluster, kind, include_all=False))
    return [await describe_entity(cluster, entity, include_all=False)]


async def quotas_of(cluster: Cluster, entity: Entity) -> dict[str, float | str]:
    """Return what is set for one entity.

    Raises:
        NotFound: nothing is.
    """
    (configs,) = await described_quotas(cluster, entity.type, entity)
    quotas = {quota.quota: quota.value for quota in _owned(configs)}
    if not quotas:
        raise NotFound(f"no quota is set for {entity}")
    return quotas


def in_force(entity: Entity, quotas: Sequence[OwnedQuota]) -> list[OwnedQuota]:
    """Return the quotas in force for an entity: of each kind, that of the first level that sets one."""
    parts = dict(parts_of(entity))
    if "ip" in parts:
        levels: list[tuple[str | None, str | None, str | None]] = [(None, None, _name(parts["ip"]))]
        levels.append((None, None, DEFAULT))
    else:
        user = _name(parts["user"]) if "user" in parts else None
        client = _name(parts["client-id"]) if "client-id" in parts else None
        levels = [
            (u, c, None)
            for u in dict.fromkeys((user, DEFAULT if user else None))
            if u is not None
            for c in dict.fromkeys((client, DEFAULT if client else None, None))
        ]
        levels += [(None, c, None) for c in (client, DEFAULT) if client is not None]
    by_name: dict[str, OwnedQuota] = {}
    for level in levels:
        for quota in quotas:
            if (quota.user, quota.client_id, quota.ip) == level:
                by_name.setdefault(quota.quota, quota)
    return list(by_name.values())


def _owned(configs: EntityConfigs) -> list[OwnedQuota]:
    parts = {kind: _name(name) for kind, name in parts_of(Entity(configs.entity_type, configs.entity_name))}
    owner = (parts.get("user"), parts.get("client-id"), parts.get("ip"))
    return [
        OwnedQuota(*owner, entry.name, _value(entry.value or ""))
        for entry in configs.configs
        if entry.source is ConfigSource.CLIENT_QUOTA
    ]


def _name(name: str | None) -> str:
    return DEFAULT if name is None else name


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
