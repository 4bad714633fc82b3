"""InitProducerId (22), versions 0–5: give a producer its id and epoch.

Version notes
* 2: flexible   * 3: go on after an epoch error (KIP-360)   * 4: PRODUCER_FENCED
* 5: TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING


class InitProducerIdRequest(Request, key=ApiKey.INIT_PRODUCER_ID):
    transactional_id: str | None = field(STRING, nullable_since=0)
    """None for a producer that is only idempotent."""
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1, ignorable=False)
    """The id it has and wants to keep; -1: a new one."""
    producer_epoch: int = field(INT16, since=3, default=-1, ignorable=False)


class InitProducerIdResponse(Response, key=ApiKey.INIT_PRODUCER_ID):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
