"""ListTransactions (66), versions 0–1: the transactions a broker coordinates (KIP-664).

Version notes
* 1: duration (KIP-994)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING, Array


class ListTransactionsRequest(Request, key=ApiKey.LIST_TRANSACTIONS):
    state_filters: list[str] = field(Array(STRING))
    """Empty: all."""
    producer_id_filters: list[int] = field(Array(INT64))
    """Empty: all."""
    duration_filter: int = field(INT64, since=1, default=-1, ignorable=False)
    """Only transactions that run longer than this many milliseconds; negative: all."""


class TransactionState(Struct):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


class ListTransactionsResponse(Response, key=ApiKey.LIST_TRANSACTIONS):
    """The transactions of this broker only."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    unknown_state_filters: list[str] = field(Array(STRING))
    """Filters that are not states."""
    transaction_states: list[TransactionState] = field(Array(TransactionState))
