"""EndTxn (26), versions 0–4: commit or abort a transaction.

Version notes
* 2: PRODUCER_FENCED   * 3: flexible   * 4: TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, field
from engine.kafka.protocol.types import BOOL, INT16, INT32, INT64, STRING


class EndTxnRequest(Request, key=ApiKey.END_TXN):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)
    """False: abort."""


class EndTxnResponse(Response, key=ApiKey.END_TXN):
    """Whether the end was accepted; the markers follow."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
