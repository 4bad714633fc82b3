"""Converts transactional ids to records of ``__transaction_state``, and loads them again. Pure: the caller paces it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import lru_cache

from engine.broker.coordinator.transactions.transaction import Transaction, Transition
from engine.common.errors import ErrorCode, KafkaError, KlammError
from engine.common.model import TopicPartition
from engine.kafka.formats.transaction_state import (
    TransactionLogValue,
    TransactionState,
    decode_key,
    decode_value,
    encode_key,
    encode_state,
)
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.encode import encode_batch, encode_single
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.record import Record

logger = logging.getLogger("kafka.coordinator.transaction.TransactionStateManager")

_key = lru_cache(maxsize=1_000)(encode_key)
"""Each transaction writes the same key three times."""


def transition_batch(transactional_id: str, transition: Transition, now_ms: int) -> memoryview:
    """Return the batch of one transition, into which a log may stamp its offset. It is never compressed."""
    value = encode_state(
        transition.state,
        transition.producer_id,
        transition.producer_epoch,
        transition.timeout_ms,
        transition.partitions,
        transition.last_update_ms,
        transition.start_ms,
    )
    return memoryview(encode_single(_key(transactional_id), value, now_ms))


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


class TransactionLoader:
    """The state from the records read so far. A record that cannot be read is skipped, counted and logged."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.loaded: dict[str, Transaction] = {}
        """The last state of each transactional id."""
        self.skipped = 0
        self.record_count = 0
        self.next_offset = 0

    def read(self, buffer: bytes) -> Iterator[None]:
        """Apply the batches of a buffer; yields now and then, so that the caller may do something else.

        Raises:
            KafkaError: CORRUPT_MESSAGE, if not even the next batch can be found.
        """
        for position, header in iter_batches(buffer):
            yield from self._read_batch(buffer, position, header)
            self.next_offset = header.next_offset

    def finish(self, now_ms: int) -> Iterator[None]:
        """Nothing is left to do: ``loaded`` is complete."""
        yield from ()

    def _read_batch(self, buffer: bytes, position: int, header: BatchHeader) -> Iterator[None]:
        if header.is_control:
            return
        try:
            for record in iter_batch_records(buffer, position, header):
                self._take(record)
                self.record_count += 1
                yield
        except KlammError as error:
            self._skip(header.base_offset, error)

    def _take(self, record: Record) -> None:
        try:
            if record.key is None:
                raise KlammError("it has no key")
            transactional_id = decode_key(record.key).transactional_id
            value = decode_value(record.value)
            transaction = None if value is None else transaction_of(transactional_id, value)
        except KlammError as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
                logger.warning(
                    "Unknown version of a record while loading transaction state from %s. Ignoring it. It could be a "
                    "left over from an aborted upgrade: %s",
                    self.topic_partition,
                    error,
                )
            else:
                self._skip(record.offset, error)
            return
        if transaction is None:
            self.loaded.pop(transactional_id, None)
        else:
            self.loaded[transactional_id] = transaction

    def _skip(self, offset: int, error: KlammError) -> None:
        self.skipped += 1
        logger.error(
            "A record of an internal topic cannot be read and is skipped: %s partition=%s offset=%d",
            error,
            self.topic_partition,
            offset,
        )
