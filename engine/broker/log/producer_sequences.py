"""What a partition remembers about one producer, and the checks of what that producer appends next (KIP-98)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from engine.broker.log.append_origin import AppendOrigin, CommitMarker
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.formats.control_records import EndTransactionMarker
from engine.kafka.formats.producer_snapshot import ProducerSnapshotEntry
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.layout import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

logger = logging.getLogger(__name__)

BATCHES_TO_RETAIN = 5
NO_TRANSACTION = -1
SEQUENCE_MODULUS = 2**31

BatchMetadata = tuple[int, int, int, int]
"""last_sequence, last_offset, offset_delta, timestamp_ms. A plain tuple: each append makes one."""


class CompletedTransaction(NamedTuple):
    """A transaction whose marker has just been appended at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerEntry:
    """A producer's epoch, its last five batches and its open transaction.

    ``next_sequence`` is -1 if there is no batch.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "is_frozen",
        "last_timestamp_ms",
        "next_sequence",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = NO_TIMESTAMP,
        current_txn_first_offset: int = NO_TRANSACTION,
        batches: Iterable[BatchMetadata] = (),
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: deque[BatchMetadata] = deque(batches, maxlen=BATCHES_TO_RETAIN)
        self.next_sequence = (self.batches[-1][0] + 1) % SEQUENCE_MODULUS if self.batches else NO_SEQUENCE
        self.is_frozen = False
        """A snapshot that is not written yet holds this entry: a copy must replace it before anything changes."""

    def copy(self) -> ProducerEntry:
        return ProducerEntry(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp_ms,
            self.current_txn_first_offset,
            self.batches,
        )

    @classmethod
    def of_snapshot(cls, stored: ProducerSnapshotEntry) -> ProducerEntry:
        """Make an entry from a snapshot, which holds the last batch only."""
        batch = (stored.last_sequence, stored.last_offset, stored.offset_delta, stored.timestamp_ms)
        return cls(
            stored.producer_id,
            stored.producer_epoch,
            stored.coordinator_epoch,
            stored.timestamp_ms,
            stored.current_txn_first_offset if stored.current_txn_first_offset >= 0 else NO_TRANSACTION,
            (batch,) if stored.last_offset >= 0 else (),
        )

    def to_snapshot(self) -> ProducerSnapshotEntry:
        """Return the part that a snapshot keeps."""
        last_sequence, last_offset, offset_delta, _ = self.batches[-1] if self.batches else (NO_SEQUENCE, -1, 0, 0)
        return ProducerSnapshotEntry(
            self.producer_id,
            self.producer_epoch,
            last_sequence,
            last_offset,
            offset_delta,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            self.current_txn_first_offset,
        )

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][0] if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Offset of the last record remembered; -1 if there is none."""
        return self.batches[-1][1] if self.batches else -1

    def is_continued_by(self, producer_epoch: int, base_sequence: int) -> bool:
        """Return whether a non-transactional batch is plainly the next one, so that it needs no further check."""
        return (
            self.next_sequence == base_sequence >= 0
            and self.producer_epoch == producer_epoch
            and self.current_txn_first_offset == NO_TRANSACTION
        )

    def is_continued_in_transaction(
        self, producer_epoch: int, base_sequence: int, verification: Verification | None, *, must_verify: bool
    ) -> bool:
        """Return whether a transactional batch is plainly the next one, in a transaction that is, or may be, open."""
        if self.next_sequence != base_sequence or base_sequence < 0 or self.producer_epoch != producer_epoch:
            return False
        if verification is not None:
            return verification.is_presented and verification.lowest_sequence == base_sequence
        return self.current_txn_first_offset != NO_TRANSACTION or not must_verify

    def takes_offsets(
        self, producer_epoch: int, base_sequence: int, verification: Verification | None, *, must_verify: bool
    ) -> bool:
        """Return whether offsets that a coordinator writes plainly belong to a transaction that is, or may be, open.

        All such batches have the same sequence, so none says which is next.
        """
        if base_sequence < 0 or self.producer_epoch != producer_epoch:
            return False
        if verification is not None:
            return verification.is_presented
        return self.current_txn_first_offset != NO_TRANSACTION or not must_verify

    def is_committed_by(self, marker: CommitMarker) -> bool:
        """Return whether a marker plainly commits the open transaction, so that it needs no further check."""
        return (
            self.producer_epoch == marker.producer_epoch
            and self.current_txn_first_offset != NO_TRANSACTION
            and self.coordinator_epoch <= marker.coordinator_epoch
        )

    def only_goes_on_with(self, header: BatchHeader) -> bool:
        """Return whether a batch in the log changes nothing but the entry's last batches."""
        return (
            self.producer_epoch == header.producer_epoch
            and not self.is_frozen
            and not header.is_control
            and header.is_transactional == (self.current_txn_first_offset != NO_TRANSACTION)
        )

    def find_duplicate(self, producer_epoch: int, base_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return the remembered batch with exactly these sequences, or None."""
        if producer_epoch != self.producer_epoch:
            return None
        for batch in self.batches:
            if batch[0] == last_sequence and (batch[0] - batch[2]) % SEQUENCE_MODULUS == base_sequence:
                return batch
        return None

    def add_batch(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp_ms: int) -> None:
        """Remember a batch of the current epoch, and forget the sixth last."""
        self.batches.append((last_sequence, last_offset, offset_delta, timestamp_ms))
        self.next_sequence = (last_sequence + 1) % SEQUENCE_MODULUS
        self.last_timestamp_ms = timestamp_ms

    def set_epoch(self, producer_epoch: int) -> None:
        """Forget the batches of another epoch."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.next_sequence = NO_SEQUENCE
            self.producer_epoch = producer_epoch


class Verification:
    """A producer's first append to a transaction, which waits for the approval of the coordinator (KIP-890)."""

    __slots__ = ("is_presented", "lowest_sequence", "producer_epoch", "timestamp_ms")

    def __init__(self, sequence: int, producer_epoch: int, now_ms: int) -> None:
        self.lowest_sequence = sequence
        """The first sequence of those that wait: a later one must not come before it."""
        self.producer_epoch = producer_epoch
        self.timestamp_ms = now_ms
        self.is_presented = False
        """An append that the coordinator has approved is under way."""

    def note(self, sequence: int, producer_epoch: int) -> None:
        """Note a further append that waits."""
        is_earlier = producer_epoch == self.producer_epoch and sequence < self.lowest_sequence
        if producer_epoch > self.producer_epoch or is_earlier:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence

    def __enter__(self) -> None:
        """Let the appends inside begin the transaction. Only with the coordinator's approval, and without a wait."""
        self.is_presented = True

    def __exit__(self, *_: object) -> None:
        self.is_presented = False


class ProducerAppend:
    """One producer's part of an append under check. Nothing is visible until the manager applies it."""

    __slots__ = ("_current", "_origin", "_topic_partition", "_verification", "started_transactions", "updated")

    def __init__(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        current: ProducerEntry | None,
        origin: AppendOrigin,
        verification: Verification | None = None,
    ) -> None:
        self._topic_partition = topic_partition
        self._origin = origin
        self._verification = verification
        self._current = ProducerEntry(producer_id) if current is None else current
        self.updated = ProducerEntry(
            producer_id,
            self._current.producer_epoch,
            self._current.coordinator_epoch,
            self._current.last_timestamp_ms,
            self._current.current_txn_first_offset,
        )
        self.started_transactions: list[int] = []

    @property
    def may_write_transaction(self) -> bool:
        """Whether the coordinator knows that the producer's transaction writes here."""
        is_open = self.updated.current_txn_first_offset != NO_TRANSACTION
        return is_open or (self._verification is not None and self._verification.is_presented)

    def add_data(self, header: BatchHeader, base_offset: int) -> None:
        """Check a batch of data that will begin at ``base_offset``.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE.
        """
        self._check_epoch(header.producer_epoch, base_offset)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(header.producer_epoch, header.base_sequence, base_offset)
        updated, delta = self.updated, header.last_offset_delta
        updated.set_epoch(header.producer_epoch)
        updated.add_batch(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        if header.is_transactional:
            if updated.current_txn_first_offset == NO_TRANSACTION:
                updated.current_txn_first_offset = base_offset
                self.started_transactions.append(base_offset)
        elif updated.current_txn_first_offset != NO_TRANSACTION:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {updated.producer_id} at offset {base_offset} "
                f"in partition {self._topic_partition}",
            )

    def end_transaction(self, marker: EndTransactionMarker, header: BatchHeader) -> CompletedTransaction | None:
        """Check the marker of a placed control batch; return the transaction it ends, if one was open here.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        producer_epoch, offset = header.producer_epoch, header.base_offset
        self._check_epoch(producer_epoch, offset)
        self._check_coordinator_epoch(marker, offset)
        updated = self.updated
        completed = None
        if updated.current_txn_first_offset != NO_TRANSACTION:
            completed = CompletedTransaction(
                updated.producer_id, updated.current_txn_first_offset, offset, marker.is_abort
            )
        updated.set_epoch(producer_epoch)
        updated.coordinator_epoch = marker.coordinator_epoch
        updated.current_txn_first_offset = NO_TRANSACTION
        # A control batch has one record.
        updated.last_timestamp_ms = header.max_timestamp
        return completed

    def _check_epoch(self, producer_epoch: int, offset: int) -> None:
        if producer_epoch >= self.updated.producer_epoch:
            return
        message = (
            f"Epoch of producer {self.updated.producer_id} at offset {offset} in {self._topic_partition} is "
            f"{producer_epoch}, which is smaller than the last seen epoch {self.updated.producer_epoch}"
        )
        if self._origin is AppendOrigin.REPLICATION:
            logger.warning(message)
            return
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message)

    def _check_sequence(self, producer_epoch: int, base_sequence: int, offset: int) -> None:
        updated, current = self.updated, self._current
        where = f"producer {updated.producer_id} at offset {offset} in partition {self._topic_partition}"
        if self._verification is not None and base_sequence > self._verification.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for {where}: {base_sequence} (incoming seq. number), "
                f"{self._verification.lowest_sequence} (earliest seen sequence)",
            )
        if producer_epoch != updated.producer_epoch:
            if base_sequence != 0 and updated.producer_epoch != NO_PRODUCER_EPOCH:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of {where}: {producer_epoch} (request epoch), "
                    f"{base_sequence} (seq. number), {updated.producer_epoch} (current producer epoch)",
                )
            return
        if current.producer_epoch == NO_PRODUCER_EPOCH:
            # Nothing is known about it, perhaps because its records were deleted: any sequence is accepted.
            return
        known = updated if updated.batches or producer_epoch != current.producer_epoch else current
        expected = known.next_sequence if known.batches else 0
        if base_sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for {where}: {base_sequence} (incoming seq. number), "
                f"{known.last_sequence} (current end sequence number)",
            )

    def _check_coordinator_epoch(self, marker: EndTransactionMarker, offset: int) -> None:
        if marker.coordinator_epoch >= self.updated.coordinator_epoch:
            return
        message = (
            f"Invalid coordinator epoch for producerId {self.updated.producer_id} at offset {offset} in partition "
            f"{self._topic_partition}: {marker.coordinator_epoch} (zombie), {self.updated.coordinator_epoch} (current)"
        )
        if self._origin is AppendOrigin.REPLICATION:
            logger.info(message)
            return
        raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
