"""Loads transactional ids from a partition of ``__transaction_state``, record by record. Pure: the caller paces it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from engine.broker.coordinator.transactions.records import transaction_of
from engine.broker.coordinator.transactions.transaction import Transaction
from engine.common.errors import ErrorCode, KafkaError, KlammError
from engine.common.model import TopicPartition
from engine.kafka.formats.transaction_state import decode_key, decode_value
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.iterate import iter_batch_records
from engine.kafka.protocol.records.record import Record

logger = logging.getLogger("kafka.coordinator.transaction.TransactionStateManager")


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
