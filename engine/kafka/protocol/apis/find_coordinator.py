"""FindCoordinator (10), versions 0–6: which broker coordinates a group or a transactional id.

Version notes
* 1: transactions, messages   * 3: flexible   * 4: several keys (KIP-699)   * 5: TRANSACTION_ABORTABLE
* 6: share groups
"""

from __future__ import annotations

from enum import IntEnum

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT8, INT16, INT32, STRING, Array


class KeyType(IntEnum):
    """What the keys are."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class FindCoordinatorRequest(Request, key=ApiKey.FIND_COORDINATOR):
    key: str = field(STRING, until=3, ignorable=False)
    """Until version 3; then ``coordinator_keys``."""
    key_type: int = field(INT8, since=1, ignorable=False)
    """0 group, 1 transactional id."""
    coordinator_keys: list[str] = field(Array(STRING), since=4, ignorable=False)


class Coordinator(Struct):
    """One key's coordinator, or why there is none."""

    key: str = field(STRING, since=4)
    node_id: int = field(INT32, since=4)
    host: str = field(STRING, since=4)
    port: int = field(INT32, since=4)
    error_code: int = field(INT16, since=4)
    error_message: str | None = field(STRING, since=4, nullable_since=4)


class FindCoordinatorResponse(Response, key=ApiKey.FIND_COORDINATOR):
    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16, until=3, ignorable=False)
    error_message: str | None = field(STRING, since=1, until=3, nullable_since=1)
    node_id: int = field(INT32, until=3, ignorable=False)
    """Until version 3, as the other fields of one coordinator; then ``coordinators``."""
    host: str = field(STRING, until=3, ignorable=False)
    port: int = field(INT32, until=3, ignorable=False)
    coordinators: list[Coordinator] = field(Array(Coordinator), since=4, ignorable=False)
