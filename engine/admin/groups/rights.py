"""For dry runs: what a coordinator would refuse this principal. The change itself does not check this beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.admin.cluster.asking import ask_all
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Refused
from engine.admin.cluster.rights import NOT_TOLD, Right
from engine.admin.groups.group_reading import find_coordinators
from engine.common.acl import AclOperation, ResourceType
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest

_GROUPS_PER_REQUEST = 200
_DESCRIBE_WITH_RIGHTS = 3
"""The first version of DescribeGroups in which a broker says what a principal may do with a group (KIP-430)."""


async def lacking_on_groups(
    cluster: Cluster, operation: AclOperation, groups: Sequence[str], *, coordinators: Mapping[str, int] | None = None
) -> dict[str, Refused]:
    """Return a refusal for each of these groups at brokers with which this principal may not do that, if they say so.

    Args:
        coordinators: where groups are, if that is known.
    """
    if not groups:
        return {}
    wire = await cluster.wire()

    async def ask(broker_id: int, names: list[str]) -> dict[str, int]:
        if await wire.version(await wire.client_of(broker_id), ApiKey.DESCRIBE_GROUPS) < _DESCRIBE_WITH_RIGHTS:
            return dict.fromkeys(names, NOT_TOLD)
        request = DescribeGroupsRequest(groups=names, include_authorized_operations=True)
        answer = await wire.call_broker(broker_id, request)
        return {group.group_id: group.authorized_operations for group in answer.groups}

    allowed = await ask_all(
        wire, groups, lambda names: find_coordinators(wire, names), ask, batch=_GROUPS_PER_REQUEST, known=coordinators
    )
    return cluster.refusals_for_want_of(
        [
            Right(operation, ResourceType.GROUP, group)
            for group, bits in allowed.items()
            if isinstance(bits, int) and bits != NOT_TOLD and not bits >> operation & 1
        ]
    )
