"""A partition's producers, their open transactions, and the first offset whose outcome is still open.

The map is valid up to ``map_end_offset``. Snapshots of it lie beside the segments, so that a start need not read the
log from its beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.producer_sequences import (
    NO_TRANSACTION,
    CompletedTransaction,
    ProducerAppend,
    ProducerEntry,
    Verification,
)
from engine.broker.log.producer_snapshots import ProducerSnapshots
from engine.common.errors import CorruptFileError
from engine.common.model import TopicPartition
from engine.kafka.formats.control_records import read_end_transaction_marker
from engine.kafka.formats.index_entries import AbortedTransaction
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.layout import Buffer

logger = logging.getLogger(__name__)

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000


class ProducerStateManager:
    __slots__ = (
        "_last_snapshot_offset",
        "_ongoing",
        "_topic_partition",
        "expiration_ms",
        "map_end_offset",
        "producers",
        "snapshots",
        "unreplicated",
        "verifications",
    )

    def __init__(self, topic_partition: TopicPartition, snapshots: ProducerSnapshots, *, expiration_ms: int) -> None:
        """``expiration_ms`` is ``producer.id.expiration.ms``."""
        self._topic_partition = topic_partition
        self.expiration_ms = expiration_ms
        self.snapshots = snapshots
        self.producers: dict[int, ProducerEntry] = {}
        self.verifications: dict[int, Verification] = {}
        """Producers that want to begin a transaction here, by id, until they do."""
        self.map_end_offset = 0
        self._last_snapshot_offset = 0
        self._ongoing: dict[int, int] = {}
        """First offset and producer id of each open transaction, in ascending order."""
        self.unreplicated: dict[int, int] = {}
        """First and last offsets of transactions whose markers are not below the high watermark yet."""

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self.unreplicated

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is still open or has an unreplicated marker."""
        first = next(iter(self._ongoing), None)
        if self.unreplicated:
            unreplicated = min(self.unreplicated)
            return unreplicated if first is None else min(first, unreplicated)
        return first

    def has_late_transaction(self, now_ms: int, transaction_max_timeout_ms: int) -> bool:
        """Return whether the oldest open transaction has been silent for longer than any transaction may last."""
        producer_id = next(iter(self._ongoing.values()), None)
        entry = None if producer_id is None else self.producers.get(producer_id)
        if entry is None or entry.last_timestamp_ms <= 0:
            return False
        return now_ms - entry.last_timestamp_ms > transaction_max_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    # --- appends

    def prepare(self, producer_id: int, origin: AppendOrigin) -> ProducerAppend:
        """Start checking what a producer appends."""
        verification = self.verifications.get(producer_id) if self.verifications else None
        return ProducerAppend(self._topic_partition, producer_id, self.producers.get(producer_id), origin, verification)

    def begin_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, now_ms: int
    ) -> Verification | None:
        """Return what a first append to a transaction needs; None if a transaction is open here already.

        The caller asks the transaction's coordinator whether the partition belongs to it, and then appends inside
        ``with verification``. The next append or marker of the producer ends it, so an answer that comes too
        late is worth nothing (KIP-890).
        """
        entry = self.producers.get(producer_id)
        if entry is not None and entry.current_txn_first_offset != NO_TRANSACTION:
            return None
        verification = self.verifications.get(producer_id)
        if verification is None:
            verification = self.verifications[producer_id] = Verification(sequence, producer_epoch, now_ms)
        else:
            verification.note(sequence, producer_epoch)
        return verification

    def apply(self, append: ProducerAppend) -> None:
        """Apply a checked append."""
        updated = append.updated
        current = self.producers.get(updated.producer_id)
        if current is None:
            self.producers[updated.producer_id] = updated
        else:
            current = self.changeable(current)
            current.set_epoch(updated.producer_epoch)
            for batch in updated.batches:
                current.add_batch(*batch)
            current.coordinator_epoch = updated.coordinator_epoch
            current.current_txn_first_offset = updated.current_txn_first_offset
            current.last_timestamp_ms = updated.last_timestamp_ms
        for first_offset in append.started_transactions:
            self._ongoing[first_offset] = updated.producer_id
        if self.verifications:
            self.verifications.pop(updated.producer_id, None)

    def apply_all(self, appends: Collection[ProducerAppend]) -> None:
        """Apply what one append holds of several producers, in any order of producers."""
        for append in appends:
            self.apply(append)
        if len(appends) > 1 and any(append.started_transactions for append in appends):
            # A later producer of this append may have begun before an earlier one.
            self._ongoing = dict(sorted(self._ongoing.items()))

    def begin_transaction(self, entry: ProducerEntry, first_offset: int) -> None:
        """Note that a producer has begun a transaction, if none was open."""
        if entry.current_txn_first_offset == NO_TRANSACTION:
            entry.current_txn_first_offset = first_offset
            self._ongoing[first_offset] = entry.producer_id
            self.verifications.pop(entry.producer_id, None)

    def commit_transaction(
        self, entry: ProducerEntry, coordinator_epoch: int, marker_offset: int, timestamp_ms: int
    ) -> None:
        """Note that the open transaction has the marker of a commit; it is unstable until the marker is replicated."""
        first_offset = entry.current_txn_first_offset
        del self._ongoing[first_offset]
        self.unreplicated[first_offset] = marker_offset
        entry.coordinator_epoch = coordinator_epoch
        entry.current_txn_first_offset = NO_TRANSACTION
        entry.last_timestamp_ms = timestamp_ms
        self.verifications.pop(entry.producer_id, None)

    def changeable(self, entry: ProducerEntry) -> ProducerEntry:
        """Return an entry that may be changed: a copy if a snapshot still needs this one."""
        if entry.is_frozen:
            entry = self.producers[entry.producer_id] = entry.copy()
        return entry

    def aborted(self, completed: CompletedTransaction) -> AbortedTransaction:
        """Return the index entry for an aborted transaction that is not marked ``complete`` yet.

        Its last stable offset is the one that will apply once the marker is replicated. What began after the marker
        does not count: a follower may get it with the marker, and would stop its search for aborted transactions here.
        """
        others = (first for first in self._ongoing if first != completed.first_offset)
        last_stable_offset = min(next(others, completed.last_offset + 1), completed.last_offset + 1)
        return AbortedTransaction(
            completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
        )

    def complete(self, completed: CompletedTransaction) -> None:
        """Note that a transaction has its marker; it stays unstable until the marker is replicated."""
        del self._ongoing[completed.first_offset]
        self.unreplicated[completed.first_offset] = completed.last_offset

    def on_high_watermark(self, high_watermark: int) -> bool:
        """Forget completed transactions whose markers are replicated; return whether there were any."""
        is_any_done = False
        for first_offset, last_offset in tuple(self.unreplicated.items()):
            if last_offset < high_watermark:
                del self.unreplicated[first_offset]
                is_any_done = True
        return is_any_done

    def replay(self, buffer: Buffer, position: int, header: BatchHeader) -> CompletedTransaction | None:
        """Replay a batch from the log; return the transaction it ends, which the caller must ``complete``."""
        if not header.has_producer_id:
            return None
        entry = self.producers.get(header.producer_id)
        if entry is not None and entry.only_goes_on_with(header):
            last_sequence, last_offset = header.last_sequence, header.last_offset
            entry.add_batch(last_sequence, last_offset, header.last_offset_delta, header.max_timestamp)
            return None
        append = self.prepare(header.producer_id, AppendOrigin.REPLICATION)
        completed = None
        if header.is_control:
            marker = read_end_transaction_marker(buffer, position, header)
            if marker is not None:
                completed = append.end_transaction(marker, header)
        else:
            append.add_data(header, header.base_offset)
        self.apply(append)
        return completed

    def expire(self, now_ms: int) -> None:
        """Forget producers with no open transaction that have been silent for ``producer.id.expiration.ms``."""
        old = [
            i
            for i, verification in self.verifications.items()
            if now_ms - verification.timestamp_ms >= self.expiration_ms
        ]
        for producer_id in old:
            del self.verifications[producer_id]
        expired = [producer_id for producer_id, entry in self.producers.items() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.producers[producer_id]

    # --- snapshots and truncation

    def take_snapshot(self, *, is_written_later: bool = False) -> int | None:
        """Write a snapshot at ``map_end_offset`` unless there is one; return its offset.

        Leaving the write to the next flush blocks the event loop for a hundredth of the time: 50,000 producers take
        100 ms.
        """
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        entries = list(self.producers.values())
        for entry in entries:
            entry.is_frozen = True
        self.snapshots.add(self.map_end_offset, lambda: [entry.to_snapshot() for entry in entries])
        if not is_written_later:
            self.snapshots.write_pending()
        self._last_snapshot_offset = self.map_end_offset
        return self.map_end_offset

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the newest snapshot within the log. The caller must then replay what follows it."""
        self.drop_snapshots_outside(log_start_offset, log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset(log_start_offset)
            return
        self._clear()
        self._load_latest_snapshot(log_start_offset, now_ms)

    def drop_snapshots_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """Delete the snapshots of states that the log does not have any more."""
        for offset in self.snapshots.offsets:
            if offset > log_end_offset or offset <= log_start_offset:
                self.snapshots.delete(offset)

    def detached(self) -> ProducerStateManager:
        """Return an empty manager with a copy of the list of snapshots: a thread may build a state in it."""
        return ProducerStateManager(self._topic_partition, self.snapshots.copy(), expiration_ms=self.expiration_ms)

    def take_over(self, built: ProducerStateManager) -> None:
        """Take the state that was built in a ``detached`` manager."""
        self.producers = built.producers
        self._ongoing, self.unreplicated = built._ongoing, built.unreplicated
        self.map_end_offset, self._last_snapshot_offset = built.map_end_offset, built._last_snapshot_offset
        self.snapshots.take_over(built.snapshots)

    def hold_stable(self, log_start_offset: int, offset: int, *, is_committed_cut: bool) -> None:
        """Until the state is built again after a cut at ``offset``, keep no offset stable that may not be.

        A transaction whose marker was cut off is open again. Markers beyond the high watermark are still known.
        """
        self._ongoing = {first: producer_id for first, producer_id in self._ongoing.items() if first < offset}
        self.unreplicated = {first: last for first, last in self.unreplicated.items() if first < offset}
        if is_committed_cut:
            self.unreplicated[log_start_offset] = offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything: the log is empty and continues at ``offset``."""
        self._clear()
        for snapshot_offset in self.snapshots.offsets:
            self.snapshots.delete(snapshot_offset)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Adjust to the log's new start."""
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def move_to(self, folder: Path) -> None:
        """Take the new paths after a rename of the partition's folder."""
        self.snapshots.move_to(folder)

    def _clear(self) -> None:
        self.producers.clear()
        self._ongoing.clear()
        self.unreplicated.clear()

    def _load_latest_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        while (offset := self.snapshots.latest) is not None:
            try:
                stored = self.snapshots.read(offset)
            except CorruptFileError as error:
                logger.warning("Dropping a damaged producer snapshot path=%s: %s", self.snapshots.path(offset), error)
                self.snapshots.delete(offset)
                continue
            entries = [ProducerEntry.of_snapshot(entry) for entry in stored]
            self.producers = {entry.producer_id: entry for entry in entries if not self._is_expired(entry, now_ms)}
            open_transactions = [
                (producer.current_txn_first_offset, producer.producer_id)
                for producer in self.producers.values()
                if producer.current_txn_first_offset != NO_TRANSACTION
            ]
            self._ongoing = dict(sorted(open_transactions))
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        has_transaction = entry.current_txn_first_offset != NO_TRANSACTION
        return not has_transaction and now_ms - entry.last_timestamp_ms >= self.expiration_ms
