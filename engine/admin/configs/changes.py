"""What an alteration of settings changes, setting by setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.configs.access import config_reader, describe_entity
from engine.admin.configs.credentials import is_credential
from engine.admin.configs.quota_reading import described_quotas
from engine.admin.configs.values import ConfigChange, ConfigEntry, Entity, EntityConfigs, EntityType, may_cost_records
from engine.kafka.config.dynamic_keys import is_password


async def read_changes(
    cluster: Cluster,
    entity: Entity,
    additions: Mapping[str, str],
    deletions: Sequence[str],
    *,
    tells_inherited: bool = False,
) -> list[ConfigChange]:
    """Return what each setting is now and would be, by name. Changes nothing, and does not check the new values.

    ``tells_inherited``: also what applies to those that are not set, as far as it is known. This is looked up too where
    it decides whether records may be lost.
    """
    present: dict[str, ConfigEntry] = {}
    if not all(map(is_credential, (*additions, *deletions))):
        present = {entry.name: entry for entry in (await _described(cluster, entity)).configs}
    inherited: dict[str, str | None] = {}
    tells_inherited = tells_inherited or any(map(may_cost_records, (*additions, *deletions)))
    if tells_inherited and any(name not in present for name in (*additions, *deletions)):
        with suppress(AdminError):
            everything = (await describe_entity(cluster, entity, include_all=True)).configs
            inherited = {entry.name: entry.value for entry in everything}
    changes = []
    for name in sorted({*additions, *deletions}):
        before, new = present.get(name), additions.get(name)
        if is_password(name) or is_credential(name) or (before is not None and before.sensitive):
            changes.append(ConfigChange(name, None, None, sensitive=True))
        else:
            old = None if before is None else before.value
            if entity.type.is_of_clients and old is not None:
                old = old.removesuffix(".0")  # brokers tell numbers as Java writes them: 1048576.0
            changes.append(ConfigChange(name, old, new, inherited=inherited.get(name) if before is None else None))
    return changes


async def _described(cluster: Cluster, entity: Entity) -> EntityConfigs:
    if entity.type.is_of_clients:
        (quotas,) = await described_quotas(cluster, entity.type, entity)
        return quotas
    reader = await config_reader(cluster, wants_brokers=entity.type is EntityType.BROKER_LOGGER)
    return await reader.describe(entity, include_all=False)
