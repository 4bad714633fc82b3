"""AddOffsetsToTxn (25), versions 0–4: a transaction will commit offsets of a group.

Version notes
* 2: PRODUCER_FENCED   * 3: flexible   * 4: TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING


class AddOffsetsToTxnRequest(Request, key=ApiKey.ADD_OFFSETS_TO_TXN):
    """Add this group's offsets partition."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


class AddOffsetsToTxnResponse(Response, key=ApiKey.ADD_OFFSETS_TO_TXN):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
