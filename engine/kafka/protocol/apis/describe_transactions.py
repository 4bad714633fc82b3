"""DescribeTransactions (65), version 0: state of transactions (KIP-664)."""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING, Array


class DescribeTransactionsRequest(Request, key=ApiKey.DESCRIBE_TRANSACTIONS):
    transactional_ids: list[str] = field(Array(STRING))


class TopicData(Struct):
    """One topic's partitions that take part."""

    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class TransactionState(Struct):
    error_code: int = field(INT16)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    """Kafka's word, for example Ongoing."""
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    """-1 if none is open."""
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[TopicData] = field(Array(TopicData))
    """While it ends: only partitions that lack their marker."""


class DescribeTransactionsResponse(Response, key=ApiKey.DESCRIBE_TRANSACTIONS):
    throttle_time_ms: int = field(INT32)
    transaction_states: list[TransactionState] = field(Array(TransactionState))
