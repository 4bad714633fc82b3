"""AlterClientQuotas (49), versions 0–1: set or remove quotas (KIP-546).

Version notes
* 1: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, FLOAT64, INT16, INT32, STRING, Array


class RequestEntityData(Struct):
    """One part of an entity."""

    entity_type: str = field(STRING)
    """user, client-id or ip."""
    entity_name: str | None = field(STRING, nullable_since=0)
    """None: the default."""


class OpData(Struct):
    """One change."""

    key: str = field(STRING)
    value: float = field(FLOAT64)
    """Ignored if ``remove``."""
    remove: bool = field(BOOL)


class RequestEntryData(Struct):
    """One entity's changes."""

    entity: list[RequestEntityData] = field(Array(RequestEntityData))
    ops: list[OpData] = field(Array(OpData))


class AlterClientQuotasRequest(Request, key=ApiKey.ALTER_CLIENT_QUOTAS):
    entries: list[RequestEntryData] = field(Array(RequestEntryData))
    validate_only: bool = field(BOOL)


class ResponseEntityData(Struct):
    """One part of an entity."""

    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable_since=0)
    """None: the default."""


class ResponseEntryData(Struct):
    """The outcome for one entity."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    entity: list[ResponseEntityData] = field(Array(ResponseEntityData))


class AlterClientQuotasResponse(Response, key=ApiKey.ALTER_CLIENT_QUOTAS):
    throttle_time_ms: int = field(INT32)
    entries: list[ResponseEntryData] = field(Array(ResponseEntryData))
