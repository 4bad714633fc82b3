"""The transactional half of Produce: which appends the transaction's coordinator has to approve first (KIP-890)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.coordinator.transactions.verifier import Verified
from engine.broker.handlers.context import RequestContext
from engine.broker.log.log_append import AppendResult
from engine.broker.log.preparation import Preparation
from engine.broker.replication.partition import Partition
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.produce import ProduceRequest, TopicProduceData
from engine.kafka.protocol.records.layout import BATCH_OVERHEAD, TRANSACTIONAL_BIT

ABORTABLE_SINCE = 11
"""The first version whose clients understand TRANSACTION_ABORTABLE."""

_PRODUCER = struct.Struct(">16xb4xh20xqhi")
"""magic, attributes, producer_id, producer_epoch and base_sequence in a batch's header."""

_new: Callable[..., Any] = tuple.__new__

_TRY_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors after which an older producer would not send its records again. After NOT_ENOUGH_REPLICAS it does."""


def begin_verification(
    context: RequestContext, transactional_id: str, topics: Iterable[TopicProduceData]
) -> Verified | None:
    """Find out which partitions need the coordinator's approval; None if none of the batches is transactional.

    Raises:
        KafkaError: INVALID_PRODUCER_ID_MAPPING: the batches are of more than one producer.
    """
    if not context.broker.dynamic_configs.current.transaction_partition_verification_enable:
        return None
    producers: set[tuple[int, int]] = set()
    sequences: dict[TopicPartition, int] = {}
    for topic in topics:
        name = topic.name
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < BATCH_OVERHEAD:
                continue
            magic, attributes, producer_id, producer_epoch, base_sequence = _PRODUCER.unpack_from(records)
            if magic == 2 and producer_id >= 0 and attributes & TRANSACTIONAL_BIT:
                producers.add((producer_id, producer_epoch))
                # As TopicPartition(…), without its detour through Python.
                sequences[_new(TopicPartition, (name, data.index))] = base_sequence
    if not producers:
        return None
    if len(producers) > 1:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )
    return context.broker.transaction_verifier.begin(
        transactional_id,
        ProducerIdAndEpoch(*producers.pop()),
        sequences,
        knows_abortable=context.api_version >= ABORTABLE_SINCE,
    )


def check(verified: Verified, partition: TopicPartition) -> None:
    """Check that the coordinator does not refuse the partition.

    Raises:
        KafkaError: the error for the producer.
    """
    error = verified.errors.get(partition)
    if error is None:
        return
    if error is ErrorCode.INVALID_TXN_STATE:
        raise KafkaError(error, "Partition was not added to the transaction")
    if error in _TRY_AGAIN:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}",
        )
    raise KafkaError(error)


def append(
    verified: Verified, partition: Partition, records: memoryview, acks: int, prepared: Preparation | None = None
) -> AppendResult:
    """Append with the coordinator's approval, if that was needed. Raises what the partition raises."""
    verification = verified.verifications.get(partition.topic_partition)
    may_prepare = prepared is None
    if verification is None:
        return partition.append_records_to_leader(records, acks, may_prepare=may_prepare, prepared=prepared)
    # Same as ``with verification``, without its two calls for each partition.
    verification.is_presented = True
    try:
        return partition.append_records_to_leader(records, acks, may_prepare=may_prepare, prepared=prepared)
    finally:
        verification.is_presented = False


def keep_records(request: ProduceRequest) -> None:
    """Copy the records: the request waits for an answer of another broker, and its buffer is reused in the meantime."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))
