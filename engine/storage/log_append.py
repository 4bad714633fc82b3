"""Appending to a log: what clients and coordinators send to a leader, and what a leader has sent to its follower.

The short way takes one version 2 batch of a client as it is: header and checksum are checked, offset and leader epoch
stamped into the received buffer, which is written by one call. No record is looked at.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from engine.common.errors import ErrorCode, KafkaError
from engine.formats.control_records import read_end_transaction_marker
from engine.protocol.records.checksum import verify_crc
from engine.protocol.records.convert import in_old_format
from engine.protocol.records.header import iter_batches
from engine.protocol.records.layout import ATTRIBUTES, BATCH_HEADER, BATCH_OVERHEAD, LOG_OVERHEAD
from engine.protocol.records.validate import check_batch, prepare_append
from engine.storage.append_origin import AppendOrigin
from engine.storage.log_core import LogCore
from engine.storage.placed_batches import (
    STAMP,
    PlacedBatches,
    PositionedHeader,
    replicated,
    segment_runs,
    stamp_append_time,
    stamped,
)
from engine.storage.preparation import Preparation, PreparationNeeded, is_long_work
from engine.storage.producer_entry import SEQUENCE_MODULUS, BatchMetadata, CompletedTransaction, ProducerAppend
from engine.storage.results import NO_APPEND_TIME, NO_OFFSET, AppendResult, OffsetsOutOfOrder, UnexpectedAppendOffset
from engine.storage.segment import LogSegment

_CLIENT = AppendOrigin.CLIENT
_REPLICATION = AppendOrigin.REPLICATION

# Bound once for the hot path.
_unpack_header = BATCH_HEADER.unpack_from
_stamp = STAMP.pack_into


class CheckedProducers(NamedTuple):
    """What the producers' checks found."""

    appends: dict[int, ProducerAppend]
    completed: list[CompletedTransaction]
    duplicate: BatchMetadata | None


class LogAppends(LogCore):
    """The appending side of ``Log``."""

    __slots__ = ()

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        may_prepare: bool = False,
        prepared: Preparation | None = None,
    ) -> AppendResult:
        """Append what a producer or coordinator sent, at the log's end.

        Offsets, leader epoch and, with LogAppendTime, timestamps are stamped into ``records``. A batch that is there
        already is answered as a duplicate with its old offsets.

        Raises:
            PreparationNeeded: only with ``may_prepare``: a thread should do long work first, for ``prepared``.
            KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE (one batch),
                RECORD_LIST_TOO_LARGE (all together), OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
                INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED; KAFKA_STORAGE_ERROR when the disk fails.
        """
        size_bytes, terms = len(records), self._terms
        if not BATCH_OVERHEAD <= size_bytes <= terms.in_place_bytes_max or records.readonly or origin is _REPLICATION:
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        base, size, _, magic, crc, attributes, delta, base_ms, max_ms, producer_id, producer_epoch, sequence, count = (
            _unpack_header(records)
        )
        if magic != 2 or size != size_bytes - LOG_OVERHEAD or base != 0 or delta < 0 or count != delta + 1:
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        if self.is_offline or max_ms < base_ms or max_ms < 0:
            # Such timestamps are not what a client sends as a rule: the records tell what the largest one really is.
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        if attributes not in terms.in_place_attributes and not terms.takes_from_coordinator(attributes, origin):
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        producer = None
        if producer_id >= 0:
            producer = self.producers.producers.get(producer_id)
            if producer is None or not producer.is_continued_by(producer_epoch, sequence):
                return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        if crc32c(records[ATTRIBUTES:]) != crc:
            raise self._corrupt(crc)
        append_time_ms = NO_APPEND_TIME
        if terms.stamps_append_time:
            append_time_ms = max_ms = self._environment.clock.now_ms()
            stamp_append_time(records, 0, size_bytes, attributes, max_ms)
        offset = self.log_end_offset
        last_offset = offset + delta
        active = self._active
        segment = active.segment
        position = segment.size_bytes
        if (
            position + size_bytes > active.size_bytes_max
            or max_ms > active.roll_after_ms
            or segment.is_index_full
            or last_offset > active.last_offset_max
        ) and active.must_roll(size_bytes, max_ms, last_offset, self._environment.clock.now_ms()):
            segment, position = self.roll(), 0
        _stamp(records, 0, offset, size, leader_epoch)
        try:
            if leader_epoch != self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(leader_epoch, offset)
            segment.append(records, size_bytes, last_offset, max_ms, last_offset)
        except OSError as error:
            raise self._append_failed(segment, position, error) from error
        active.note_append(offset, position)
        self.log_end_offset = self.producers.map_end_offset = last_offset + 1
        if producer is not None:
            changeable = self.producers.changeable(producer) if producer.is_frozen else producer
            changeable.add_batch((sequence + delta) % SEQUENCE_MODULUS, last_offset, delta, max_ms)
        return AppendResult(offset, last_offset, append_time_ms, self.log_start_offset, count, size_bytes, leader_epoch)

    # --- the long way of a leader

    def _append_the_long_way(
        self,
        records: memoryview,
        leader_epoch: int,
        origin: AppendOrigin,
        may_prepare: bool,
        prepared: Preparation | None,
    ) -> AppendResult:
        self._check_online()
        if records.readonly:
            records = memoryview(bytearray(records))
        headers = list(iter_batches(records))
        if not headers:
            return self._nothing(leader_epoch)
        self._check_sent(records, headers, origin)
        terms, now_ms = self._terms, self._environment.clock.now_ms()
        is_prepared = prepared is not None and prepared.rules is terms.rules
        if is_prepared or all(terms.takes_as_it_is(header, origin) for _, header in headers):
            batches = stamped(
                records,
                headers,
                first_offset=self.log_end_offset,
                leader_epoch=leader_epoch,
                append_time_ms=now_ms if terms.stamps_append_time else NO_APPEND_TIME,
            )
        elif may_prepare and terms.rules.magic >= 2 and is_long_work(headers):
            raise PreparationNeeded(Preparation(records, terms.rules, now_ms))
        else:
            batches = self._prepared(records, leader_epoch, origin)
        size_bytes = len(batches.records)
        if size_bytes > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size_bytes} bytes in append to partition {self.topic_partition}, which "
                f"exceeds the maximum configured segment size of {self.config.segment_bytes}.",
            )
        checked = self._check_producers(batches, origin)
        if checked.duplicate is not None:
            return self._duplicate(checked.duplicate, leader_epoch)
        if terms.rules.magic < 2:
            self.clear_leader_epochs()
        elif leader_epoch != self.leader_epochs.latest_epoch:
            self.assign_leader_epoch(leader_epoch, batches.first_offset)
        self._write(batches, checked)
        return AppendResult(
            batches.first_offset,
            batches.last_offset,
            batches.log_append_time_ms,
            self.log_start_offset,
            batches.last_offset + 1 - batches.first_offset,
            size_bytes,
            leader_epoch,
        )

    def _check_sent(self, records: memoryview, headers: list[PositionedHeader], origin: AppendOrigin) -> None:
        """Check sizes, headers and checksums of what was sent."""
        for position, header in headers:
            if header.magic >= 2 and origin is _CLIENT and header.base_offset != 0:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"The baseOffset of the record batch in the append to {self.topic_partition} should be 0, but it "
                    f"is {header.base_offset}",
                )
            self._check_batch_size(header.size_bytes)
            if not verify_crc(records, position, header.size_bytes):
                raise self._corrupt(header.crc)
            check_batch(header, from_client=origin is _CLIENT)
        if len(headers) > 1 and origin is _CLIENT and headers[0][1].magic >= 2:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"A producer sent {len(headers)} batches for {self.topic_partition} at once; only one is allowed",
            )

    def _prepared(self, records: memoryview, leader_epoch: int, origin: AppendOrigin) -> PlacedBatches:
        """Give the batches their offsets where their headers do not say all."""
        rules = self._terms.rules
        prepared = prepare_append(
            records,
            rules,
            first_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=self._environment.clock.now_ms(),
            from_client=origin is _CLIENT,
        )
        stored = prepared.records
        if rules.magic < 2:
            stored = in_old_format(prepared.records, rules.magic)
        if prepared.is_rebuilt or stored is not prepared.records:
            self._check_batch_size(len(stored))
        return PlacedBatches(
            memoryview(stored),
            list(iter_batches(stored)),
            prepared.first_offset,
            prepared.last_offset,
            prepared.max_timestamp,
            prepared.last_offset,
            prepared.log_append_time_ms,
        )

    def _duplicate(self, batch: BatchMetadata, leader_epoch: int) -> AppendResult:
        _, last_offset, delta, timestamp_ms = batch
        return AppendResult(
            last_offset - delta,
            last_offset,
            timestamp_ms,
            self.log_start_offset,
            delta + 1,
            0,
            leader_epoch,
            is_duplicate=True,
        )

    # --- a follower

    def append_as_follower(self, records: memoryview) -> AppendResult:
        """Append batches of the leader as they are, offsets and leader epochs included.

        Messages of v0 and v1 are taken too; they clear the epoch cache. An incomplete batch at the end is left away.

        Raises:
            UnexpectedAppendOffset: they begin before the log's end.
            OffsetsOutOfOrder: they do not ascend.
            KafkaError: CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR when the disk fails.
        """
        self._check_online()
        headers = list(iter_batches(records))
        if not headers:
            return self._nothing(-1)
        self._check_replicated(records, headers)
        appended_bytes = 0
        for run in segment_runs(headers, self.config.segment_bytes):
            self._follow_epochs(run)
            batches = replicated(records, run)
            self._write(batches, self._check_producers(batches, AppendOrigin.REPLICATION))
            appended_bytes += len(batches.records)
        first, last = headers[0][1], headers[-1][1]
        count = sum(max(header.record_count, 0) for _, header in headers)
        return AppendResult(
            first.base_offset,
            last.last_offset,
            NO_APPEND_TIME,
            self.log_start_offset,
            count,
            appended_bytes,
            last.partition_leader_epoch,
        )

    def _check_replicated(self, records: memoryview, headers: list[PositionedHeader]) -> None:
        last_offset = -1
        for position, header in headers:
            if header.last_offset <= last_offset:
                raise OffsetsOutOfOrder(
                    f"Out of order offsets found in append to {self.topic_partition}: {header.last_offset} follows "
                    f"{last_offset}"
                )
            last_offset = header.last_offset
            if not verify_crc(records, position, header.size_bytes):
                raise self._corrupt(header.crc)
        first_offset = headers[0][1].base_offset
        if first_offset < self.log_end_offset:
            raise UnexpectedAppendOffset(
                f"Unexpected offset in append to {self.topic_partition}. First offset {first_offset} is less than the "
                f"next offset {self.log_end_offset}. Last offset in append: {last_offset}. "
                f"Log start offset = {self.log_start_offset}",
                first_offset=first_offset,
                last_offset=last_offset,
            )

    def _follow_epochs(self, headers: list[PositionedHeader]) -> None:
        latest_epoch = self.leader_epochs.latest_epoch
        for _, header in headers:
            if header.magic < 2:
                self.clear_leader_epochs()
            elif header.partition_leader_epoch >= 0 and header.partition_leader_epoch != latest_epoch:
                self.assign_leader_epoch(header.partition_leader_epoch, header.base_offset)
            else:
                continue
            latest_epoch = self.leader_epochs.latest_epoch

    # --- what both end in

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
