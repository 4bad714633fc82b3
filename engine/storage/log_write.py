"""Writing batches that have their place: what appends of leaders and followers have in common.

It checks what the batches' producers did before, writes all with one call, and takes over what follows from it. Where
the disk fails the log is cut back, so that no half batch is ever served.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.common.errors import ErrorCode, KafkaError
from engine.formats.control_records import read_end_transaction_marker
from engine.protocol.records.header import BatchHeader
from engine.storage.append_origin import AppendOrigin
from engine.storage.log_core import LogCore
from engine.storage.producer_entry import BatchMetadata, CompletedTransaction, ProducerAppend
from engine.storage.results import NO_APPEND_TIME, NO_OFFSET, AppendResult
from engine.storage.segment import LogSegment


class PlacedBatches(NamedTuple):
    """Whole batches that are about to be written."""

    records: memoryview
    headers: list[tuple[int, BatchHeader]]
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    log_append_time_ms: int


class CheckedProducers(NamedTuple):
    """What the producers' checks found."""

    appends: dict[int, ProducerAppend]
    completed: list[CompletedTransaction]
    duplicate: BatchMetadata | None


class LogWrites(LogCore):
    """The part of ``Log`` that both kinds of append end in."""

    __slots__ = ()

    def _check_producers(self, batches: PlacedBatches, origin: AppendOrigin) -> CheckedProducers:
        appends: dict[int, ProducerAppend] = {}
        completed: list[CompletedTransaction] = []
        for position, header in batches.headers:
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            if origin is AppendOrigin.CLIENT:
                known = self.producers.producers.get(producer_id)
                duplicate = (
                    None
                    if known is None
                    else known.find_duplicate(header.producer_epoch, header.base_sequence, header.last_sequence)
                )
                if duplicate is not None:
                    return CheckedProducers(appends, completed, duplicate)
            append = appends.get(producer_id)
            if append is None:
                append = appends[producer_id] = self.producers.prepare(producer_id, origin)
            if not header.is_control:
                append.add_data(header, header.base_offset)
                continue
            marker = read_end_transaction_marker(batches.records, position, header)
            ended = None if marker is None else append.end_transaction(marker, header)
            if ended is not None:
                completed.append(ended)
        return CheckedProducers(appends, completed, None)

    def _write(self, batches: PlacedBatches, checked: CheckedProducers) -> None:
        """Write placed batches to the active segment, or to a new one, and take over all that follows from it."""
        size_bytes = len(batches.records)
        now_ms = self._environment.clock.now_ms()
        if self._active.must_roll(size_bytes, batches.max_timestamp_ms, batches.last_offset, now_ms):
            self.roll(batches.first_offset)
        segment = self._active.segment
        position = segment.size_bytes
        try:
            if len(batches.headers) > 1:
                segment.append_batches(batches.records, size_bytes, batches.headers)
            else:
                segment.append(
                    batches.records,
                    size_bytes,
                    batches.last_offset,
                    batches.max_timestamp_ms,
                    batches.max_timestamp_offset,
                )
            self._set_log_end_offset(batches.last_offset + 1)
            for append in checked.appends.values():
                self.producers.apply(append)
            for completed in checked.completed:
                self._complete_transaction(segment, completed)
        except OSError as error:
            raise self._append_failed(segment, position, error) from error
        self._active.note_append(batches.first_offset, position)
        self.producers.map_end_offset = self.log_end_offset
        if checked.appends:
            self._refresh_first_unstable()

    def _complete_transaction(self, segment: LogSegment, completed: CompletedTransaction) -> None:
        if completed.is_aborted:
            segment.add_aborted(self.producers.aborted(completed))
        self.producers.complete(completed)

    def assign_leader_epoch(self, leader_epoch: int, offset: int) -> None:
        """Note that a leader epoch begins at ``offset``. Raises KafkaError KAFKA_STORAGE_ERROR."""
        try:
            self.leader_epochs.assign(leader_epoch, offset)
        except OSError as error:
            raise self._storage_error("noting a leader epoch", error) from error

    def clear_leader_epochs(self) -> None:
        """Forget all epochs: messages of v0 and v1 have none. Raises KafkaError KAFKA_STORAGE_ERROR."""
        if self.leader_epochs.entries:
            try:
                self.leader_epochs.clear()
            except OSError as error:
                raise self._storage_error("clearing the leader epochs", error) from error

    def _append_failed(self, segment: LogSegment, position: int, error: OSError) -> KafkaError:
        """Take back what was written, so that no half batch is served, and report the log dir."""
        segment.size_bytes = position
        try:
            segment.cut_back(position)
        except OSError as second:
            error.add_note(f"What was written could not be cut off either: {second}")
        return self._storage_error("appending records", error)

    def _check_batch_size(self, size_bytes: int) -> None:
        if size_bytes > self.config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size in the append to {self.topic_partition} is {size_bytes} bytes which exceeds "
                f"the maximum configured value of {self.config.max_message_bytes}.",
            )

    def _corrupt(self, crc: int) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {crc}) in topic partition {self.topic_partition}.",
        )

    def _nothing(self, leader_epoch: int) -> AppendResult:
        return AppendResult(NO_OFFSET, NO_OFFSET, NO_APPEND_TIME, self.log_start_offset, 0, 0, leader_epoch)
