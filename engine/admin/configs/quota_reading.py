"""All quotas of a cluster, and which of them count for one client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import NotFound
from engine.admin.cluster.target import Source
from engine.admin.configs.access import describe_entities, describe_entity, told_of
from engine.admin.configs.quotas import parts_of
from engine.admin.configs.values import ConfigSource, Entity, EntityConfigs, EntityType
from engine.kafka.zk.errors import NoAuth

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
