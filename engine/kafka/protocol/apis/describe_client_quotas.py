"""DescribeClientQuotas (48), versions 0–1: list quotas (KIP-546).

Version notes
* 1: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Array


class ComponentData(Struct):
    """One condition on the entity."""

    entity_type: str = field(STRING)
    """user, client-id or ip."""
    match_type: int = field(INT8)
    """0 the name in ``match``, 1 the default, 2 any name."""
    match: str | None = field(STRING, nullable_since=0)


class DescribeClientQuotasRequest(Request, key=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    """List the quotas that meet all conditions."""

    components: list[ComponentData] = field(Array(ComponentData))
    strict: bool = field(BOOL)
    """Leave out entities with parts that no condition names."""


class EntityData(Struct):
    """One part of an entity."""

    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable_since=0)
    """None: the default."""


class ValueData(Struct):
    """One quota."""

    key: str = field(STRING)
    value: float = field(FLOAT64)


class EntryData(Struct):
    """One entity's quotas."""

    entity: list[EntityData] = field(Array(EntityData))
    values: list[ValueData] = field(Array(ValueData))


class DescribeClientQuotasResponse(Response, key=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    """The quotas, by entity."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    entries: list[EntryData] | None = field(Array(EntryData), nullable_since=0)
