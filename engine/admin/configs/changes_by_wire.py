"""Settings altered by the wire: IncrementalAlterConfigs, which touches only what is named (KIP-339)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.wire import WireCluster, refuse
from engine.admin.configs.by_wire import describe_entity
from engine.admin.configs.values import Entity, EntityType
from engine.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

_SET, _DELETE = 0, 1

SETTLE_S = 2.0
"""So long a broker may take to hear of its own settings, by a notification in ZooKeeper, before one counts as not set.

Topics' settings every broker reads in ZooKeeper when it is asked.
"""

_PAUSE_S = 0.05


async def alter_configs(
    wire: WireCluster,
    entity: Entity,
    additions: Mapping[str, str],
    deletions: Sequence[str],
    *,
    validate_only: bool = False,
) -> None:
    """Set and delete settings of an entity, all or none.

    Raises:
        BadRequest: a setting to be deleted is not set.
        NotFound: there is no such topic or broker.
        Refused: the cluster does not want it; the message is the cluster's.
    """
    if deletions:
        await _check_deletions(wire, entity, deletions)
    changes = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in additions.items()]
    changes += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in deletions]
    resource = AlterConfigsResource(
        resource_type=entity.type.resource_type, resource_name=entity.name or "", configs=changes
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    if entity.type is EntityType.TOPIC or entity.name is None:
        response = await wire.call_any(request)
    else:
        response = await wire.call_broker(int(entity.name), request)
    (result,) = response.responses
    refuse(result.error_code, result.error_message, str(entity))


async def _check_deletions(wire: WireCluster, entity: Entity, deletions: Sequence[str]) -> None:
    if entity.type is EntityType.BROKER_LOGGER:
        return
    deadline = time.monotonic() + (SETTLE_S if entity.type is EntityType.BROKER else 0.0)
    while True:
        present = {entry.name for entry in (await describe_entity(wire, entity, include_all=False)).configs}
        absent = [key for key in deletions if key not in present]
        if not absent:
            return
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(_PAUSE_S)
    hint = "see what is set with: klamm configs describe"
    raise BadRequest(f"invalid config(s): {', '.join(absent)} (not set)", where=str(entity), hint=hint)
