"""Converts transactional ids to records of ``__transaction_state`` and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from engine.broker.coordinator.transactions.transaction import Transaction, Transition
from engine.common.model import TopicPartition
from engine.kafka.formats.transaction_state import (
    TransactionLogValue,
    TransactionPartitions,
    TransactionState,
    encode_key,
    encode_value,
)
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

_key = lru_cache(maxsize=1_000)(encode_key)
"""Each transaction writes the same key three times."""


def transition_batch(transactional_id: str, transition: Transition, now_ms: int) -> memoryview:
    """Return the batch of one transition, into which a log may stamp its offset. It is never compressed."""
    record = Record(timestamp_ms=now_ms, key=_key(transactional_id), value=encode_value(_value(transition)))
    return memoryview(bytearray(encode_batch([record])))


def tombstone_batch(transactional_ids: Iterable[str], now_ms: int) -> memoryview:
    """Return the batch that forgets transactional ids."""
    records = [Record(timestamp_ms=now_ms, key=encode_key(transactional_id)) for transactional_id in transactional_ids]
    return memoryview(bytearray(encode_batch(records)))


def transaction_of(transactional_id: str, value: TransactionLogValue) -> Transaction:
    """Return the state that a record holds.

    Raises:
        KafkaError: CORRUPT_MESSAGE for a number that no state has.
    """
    state = value.state
    topics = value.transaction_partitions or () if state is not TransactionState.EMPTY else ()
    return Transaction(
        transactional_id,
        value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=(TopicPartition(topic.topic, index) for topic in topics for index in topic.partition_ids),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
    )


def _value(transition: Transition) -> TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transition.partitions):
        topics.setdefault(topic, []).append(index)
    is_empty = transition.state is TransactionState.EMPTY
    return TransactionLogValue(
        producer_id=transition.producer_id,
        producer_epoch=transition.producer_epoch,
        transaction_timeout_ms=transition.timeout_ms,
        transaction_status=transition.state,
        transaction_partitions=None
        if is_empty
        else [TransactionPartitions(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()],
        transaction_last_update_timestamp_ms=transition.last_update_ms,
        transaction_start_timestamp_ms=transition.start_ms,
    )
