"""Which batches of a log belong to aborted transactions, and which markers no longer mark anything.

It sees every batch in order. Source: CleanedTransactionMetadata of Kafka 3.9's LogCleaner.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.kafka.formats.control_records import ControlRecordType, control_record_type
from engine.kafka.formats.index_entries import AbortedTransaction
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.layout import Buffer


class _Aborted:
    __slots__ = ("has_data", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_data = False


class CleanedTransactions:
    """State of the transactions at one point of a scan through a log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """``aborted`` are the transactions of the log's transaction indexes, in any order."""
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions that still have data or markers; the writer of the index takes them out."""

    def on_data(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to an aborted transaction, so that its records may be dropped."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.has_data = True
        return True

    def on_control(self, buffer: Buffer, position: int, header: BatchHeader) -> bool:
        """Return whether the control batch no longer marks anything, because all data before it is gone.

        Raises:
            KafkaError: INVALID_RECORD if the control record is malformed.
        """
        self._reach(header.last_offset)
        record = next(iter(iter_batch_records(buffer, position, header)), None)
        if record is None:
            return True
        kind = control_record_type(record.key)
        if kind is ControlRecordType.ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is None or not aborted.has_data:
                return True
            self.kept.append(aborted.transaction)
            return False
        if kind is ControlRecordType.COMMIT:
            is_empty = header.producer_id not in self._committed
            self._committed.discard(header.producer_id)
            return is_empty
        return False

    def _reach(self, offset: int) -> None:
        while self._waiting and self._waiting[-1].first_offset <= offset:
            transaction = self._waiting.pop()
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))
