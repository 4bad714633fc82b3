"""AddPartitionsToTxn (24), versions 0–5: a transaction will write to these partitions.

Version notes
* 2: PRODUCER_FENCED   * 3: flexible   * 4: several transactions, verification; from brokers only (KIP-890)
* 5: TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT16, INT32, INT64, STRING, Array


class AddPartitionsToTxnTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field(STRING, since=4)
    producer_id: int = field(INT64, since=4)
    producer_epoch: int = field(INT16, since=4)
    verify_only: bool = field(BOOL, since=4)
    """Only check whether they belong to it."""
    topics: list[AddPartitionsToTxnTopic] = field(Array(AddPartitionsToTxnTopic), since=4)


class AddPartitionsToTxnRequest(Request, key=ApiKey.ADD_PARTITIONS_TO_TXN):
    transactions: list[AddPartitionsToTxnTransaction] = field(
        Array(AddPartitionsToTxnTransaction), since=4, ignorable=False
    )
    v3_and_below_transactional_id: str = field(STRING, until=3, ignorable=False)
    """Until version 3, as the next three; then ``transactions``."""
    v3_and_below_producer_id: int = field(INT64, until=3, ignorable=False)
    v3_and_below_producer_epoch: int = field(INT16, until=3, ignorable=False)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(Array(AddPartitionsToTxnTopic), until=3, ignorable=False)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


class AddPartitionsToTxnTopicResult(Struct):
    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(Array(AddPartitionsToTxnPartitionResult))


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = field(STRING, since=4)
    topic_results: list[AddPartitionsToTxnTopicResult] = field(Array(AddPartitionsToTxnTopicResult), since=4)


class AddPartitionsToTxnResponse(Response, key=ApiKey.ADD_PARTITIONS_TO_TXN):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=4)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        Array(AddPartitionsToTxnResult), since=4, ignorable=False
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        Array(AddPartitionsToTxnTopicResult), until=3, ignorable=False
    )
    """Until version 3; then ``results_by_transaction``."""
