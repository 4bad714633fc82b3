"""AllocateProducerIds (67), version 0: a broker asks the controller for a block of producer ids (KIP-730)."""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, field
from engine.kafka.protocol.types import INT16, INT32, INT64


class AllocateProducerIdsRequest(Request, key=ApiKey.ALLOCATE_PRODUCER_IDS):
    """Allocate a block."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    """czxid of the sender's registration."""


class AllocateProducerIdsResponse(Response, key=ApiKey.ALLOCATE_PRODUCER_IDS):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id_start: int = field(INT64)
    """Its first id."""
    producer_id_len: int = field(INT32)
