"""Appending to a leader's log: the short way for what clients send as a rule, and the long way for everything else.

The short way takes one version 2 batch of a client as it is: header and checksum are checked, offset and leader epoch
stamped into the received buffer, which is written by one call. No record is looked at.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from engine.common.errors import ErrorCode, KafkaError
from engine.protocol.records.checksum import stamp_crc, verify_crc
from engine.protocol.records.convert import in_old_format
from engine.protocol.records.header import BatchHeader, iter_batches, read_batch_header
from engine.protocol.records.layout import (
    ATTRIBUTES,
    BATCH_HEADER,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from engine.protocol.records.validate import check_batch, prepare_append
from engine.storage.append_origin import AppendOrigin
from engine.storage.log_write import LogWrites, PlacedBatches
from engine.storage.preparation import Preparation, PreparationNeeded, is_long_work
from engine.storage.producer_entry import SEQUENCE_MODULUS, BatchMetadata
from engine.storage.results import NO_APPEND_TIME, AppendResult

_STAMP = struct.Struct(">qii")
"""base_offset, batch_length, partition_leader_epoch: one call for the two fields that the leader sets."""

_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")

_CLIENT = AppendOrigin.CLIENT
_IN_PLACE = (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR)
"""Whose batches may go the short way: those without records that only a log can judge."""


class LeaderAppends(LogWrites):
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
        size_bytes = len(records)
        if not BATCH_OVERHEAD <= size_bytes <= self._in_place_bytes_max or records.readonly or origin not in _IN_PLACE:
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        base, size, _, magic, crc, attributes, delta, base_ms, max_ms, producer_id, producer_epoch, sequence, count = (
            BATCH_HEADER.unpack_from(records)
        )
        if magic != 2 or size != size_bytes - LOG_OVERHEAD or base != 0 or delta < 0 or count != delta + 1:
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        if self.is_offline or max_ms < base_ms or max_ms < 0:
            # Such timestamps are not what a client sends as a rule: the records tell what the largest one really is.
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        if attributes not in self._in_place_attributes and (
            origin is _CLIENT or not self._takes_from_coordinator(attributes)
        ):
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        producer = None
        if producer_id >= 0:
            producer = self.producers.producers.get(producer_id)
            if producer is None or not producer.is_continued_by(producer_epoch, sequence):
                return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        if crc32c(records[ATTRIBUTES:]) != crc:
            raise self._corrupt(crc)
        append_time_ms = NO_APPEND_TIME
        if self._stamps_append_time:
            append_time_ms = max_ms = self._stamp_append_time(records, 0, size_bytes, attributes)
        offset = self.log_end_offset
        last_offset = offset + delta
        active = self._active
        segment = active.segment
        position = segment.size_bytes
        if (
            position + size_bytes > self.config.segment_bytes
            or max_ms > active.roll_after_ms
            or segment.is_index_full
            or last_offset > active.last_offset_max
        ) and active.must_roll(size_bytes, max_ms, last_offset, self._environment.clock.now_ms()):
            segment, position = self.roll(), 0
        _STAMP.pack_into(records, 0, offset, size, leader_epoch)
        try:
            if leader_epoch != self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(leader_epoch, offset)
            segment.append(records, size_bytes, last_offset, max_ms, last_offset)
        except OSError as error:
            raise self._append_failed(segment, position, error) from error
        active.note_append(offset, position)
        self.log_end_offset = self.producers.map_end_offset = last_offset + 1
        if producer is not None:
            if producer.is_frozen:
                producer = self.producers.changeable(producer)
            producer.add_batch((sequence + delta) % SEQUENCE_MODULUS, last_offset, delta, max_ms)
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
        is_prepared = prepared is not None and prepared.rules is self._rules
        if is_prepared or all(self._is_taken_as_it_is(header, origin) for _, header in headers):
            batches = self._stamped(records, headers, leader_epoch)
        elif may_prepare and self._rules.magic >= 2 and is_long_work(headers):
            raise PreparationNeeded(Preparation(records, self._rules, self._environment.clock.now_ms()))
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
        if self._rules.magic < 2:
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

    def _check_sent(self, records: memoryview, headers: list[tuple[int, BatchHeader]], origin: AppendOrigin) -> None:
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
        prepared = prepare_append(
            records,
            self._rules,
            first_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=self._environment.clock.now_ms(),
            from_client=origin is _CLIENT,
        )
        stored = prepared.records
        if self._rules.magic < 2:
            stored = in_old_format(prepared.records, self._rules.magic)
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

    def _is_taken_as_it_is(self, header: BatchHeader, origin: AppendOrigin) -> bool:
        if header.magic != 2 or self._rules.magic < 2:
            return False
        attributes = header.attributes
        if origin is _CLIENT:
            if not self._stamps_append_time and (
                header.max_timestamp < header.base_timestamp or header.max_timestamp < 0
            ):
                return False
            return attributes & ~TRANSACTIONAL_BIT in self._in_place_attributes
        if attributes & CONTROL_BIT:
            return not self._stamps_append_time
        return self._takes_from_coordinator(attributes & CODEC_MASK)

    def _takes_from_coordinator(self, codec: int) -> bool:
        """Whether a coordinator's records, none of which lacks a key, are taken as they are."""
        rules = self._rules
        return not self._stamps_append_time and codec <= CODEC_MASK and rules.codec in (None, codec) and rules.magic > 1

    def _stamped(self, records: memoryview, headers: list[tuple[int, BatchHeader]], leader_epoch: int) -> PlacedBatches:
        """Give batches that are stored as they are their offsets."""
        next_offset = self.log_end_offset
        max_timestamp_ms, max_timestamp_offset, append_time_ms = NO_TIMESTAMP, next_offset, NO_APPEND_TIME
        placed = []
        for position, header in headers:
            _STAMP.pack_into(records, position, next_offset, header.batch_length, leader_epoch)
            if self._stamps_append_time:
                append_time_ms = self._stamp_append_time(records, position, header.size_bytes, header.attributes)
            header = read_batch_header(records, position)
            if header.max_timestamp > max_timestamp_ms:
                max_timestamp_ms, max_timestamp_offset = header.max_timestamp, header.last_offset
            placed.append((position, header))
            next_offset = header.next_offset
        end = headers[-1][0] + headers[-1][1].size_bytes
        return PlacedBatches(
            records[:end],
            placed,
            self.log_end_offset,
            next_offset - 1,
            max_timestamp_ms,
            max_timestamp_offset,
            append_time_ms,
        )

    def _stamp_append_time(self, records: memoryview, position: int, size_bytes: int, attributes: int) -> int:
        now_ms = self._environment.clock.now_ms()
        _ATTRIBUTES.pack_into(records, position + ATTRIBUTES, attributes | TIMESTAMP_TYPE_BIT)
        _TIMESTAMP.pack_into(records, position + MAX_TIMESTAMP, now_ms)
        stamp_crc(records, position, size_bytes)
        return now_ms

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
