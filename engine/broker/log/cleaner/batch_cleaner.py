"""Decides what happens to one batch: it is dropped, kept as it is, kept with fewer records, or kept empty.

Offsets never change: a batch keeps its base offset and last offset delta. Timestamps count from the first record that
stays, or from the delete horizon, which takes the base timestamp's place (KIP-534). Where that changes nothing, the
records are copied byte for byte. Source: Cleaner.cleanInto and MemoryRecords.filterTo of Kafka 3.9.
"""

from __future__ import annotations

from engine.broker.log.cleaner.key_map import KeyMap, known_key
from engine.broker.log.cleaner.messages import CleaningPlan
from engine.broker.log.cleaner.record_scan import (
    NotRecordsError,
    Survivors,
    counted_from_later,
    find_live,
    find_survivors,
    max_timestamp_delta,
    timestamp_delta,
)
from engine.broker.log.cleaner.stats import CleaningStats
from engine.broker.log.cleaner.transactions import CleanedTransactions
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.compression import compress
from engine.kafka.protocol.records.decode import iter_section, record_section
from engine.kafka.protocol.records.encode import empty_batch, encode_batch, seal_batch
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.layout import BATCH_OVERHEAD
from engine.kafka.protocol.records.legacy import encode_message_set, iter_messages

UNPACKED_BYTES_MAX = 2**31 - 1
"""The largest size to which a batch may unpack, that of a Java buffer. A larger batch makes its log uncleanable."""


class BatchCleaner:
    """Cleans one batch after the other, in the order of the log."""

    def __init__(self, plan: CleaningPlan, keys: KeyMap, stats: CleaningStats) -> None:
        self.transactions = CleanedTransactions(plan.aborted)
        self._plan = plan
        self._keys = keys
        self._stats = stats
        self._horizon_ms = plan.now_ms + plan.limits.delete_retention_ms

    def clean(self, data: bytes, position: int, header: BatchHeader, *, keeps_legacy_deletes: bool) -> bytes:
        """Return what stays of the batch at ``position``; empty if nothing stays.

        ``keeps_legacy_deletes`` says whether tombstones of the old formats stay, because these have no delete horizon.

        Raises:
            KafkaError: CORRUPT_MESSAGE or INVALID_RECORD if the batch does not match its header; MESSAGE_TOO_LARGE
                if it unpacks to more than ``UNPACKED_BYTES_MAX``.
        """
        if header.magic < 2:
            return self._clean_legacy(data, position, header, keeps_legacy_deletes)
        if header.is_control:
            kept = self._clean_control(data, position, header)
        elif self.transactions.on_data(header) or header.record_count == 0:
            kept = b""
        else:
            try:
                kept = self._clean_data(data, position, header)
            except NotRecordsError:
                raise not_records(header) from None
        if not kept and self._must_stay(header):
            kept = empty_batch(header)
        return kept

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the batch's header is needed: it has a producer's last sequence, or marks the cleaned part's end."""
        if header.next_offset == self._plan.first_uncleanable_offset:
            return True
        last = self._plan.producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _clean_control(self, data: bytes, position: int, header: BatchHeader) -> bytes:
        """A marker is removed ``delete.retention.ms`` after all data of its transaction is gone."""
        marks_nothing = self.transactions.on_control(data, position, header)
        horizon_ms = header.delete_horizon_ms
        if header.record_count == 0 or (marks_nothing and horizon_ms is not None and horizon_ms <= self._plan.now_ms):
            return b""
        self._count(header.record_count, header.record_count)
        whole = data[position : position + header.size_bytes]
        if not marks_nothing or horizon_ms is not None:
            return whole
        return self._rewritten(header, record_section(data, position, header, UNPACKED_BYTES_MAX), self._horizon_ms)

    def _clean_data(self, data: bytes, position: int, header: BatchHeader) -> bytes:
        keys, base_offset = self._keys, header.base_offset
        whole_end = position + header.size_bytes
        if header.last_offset > keys.latest_offset:
            # Beyond what fitted into the map: another round cleans it.
            self._count(header.record_count, header.record_count)
            return data[position:whole_end]
        first_place = keys.first_place(base_offset)
        is_dirty = base_offset >= self._plan.first_dirty_offset
        live = keys.live_places(base_offset) if is_dirty else []
        if is_dirty and not live:
            self._count(header.record_count, 0)
            return b""
        section, start, end = data, position + BATCH_OVERHEAD, whole_end
        if header.is_compressed:
            section = record_section(data, position, header, UNPACKED_BYTES_MAX)
            start, end = 0, len(section)
        horizon_ms = header.delete_horizon_ms
        keeps_tombstones = horizon_ms is None or self._plan.now_ms < horizon_ms
        if is_dirty:
            starts = [start - first_place + place for place in live]
            found = find_live(section, starts, end, keeps_tombstones=keeps_tombstones)
        else:
            found = find_survivors(
                section, start, end, header.record_count, first_place, keys.places, keeps_tombstones=keeps_tombstones
            )
        self._count(header.record_count, found.record_count)
        if not is_dirty:
            self._stats.invalid_messages_read += found.null_keys
        if not found.record_count:
            return b""
        needs_horizon = found.has_tombstone and horizon_ms is None
        if found.record_count == header.record_count and not needs_horizon:
            return data[position:whole_end]
        kept = b"".join(section[start:end] for start, end in zip(found.bounds[::2], found.bounds[1::2], strict=True))
        header = header._replace(record_count=found.record_count)
        if needs_horizon:
            return self._rewritten(header, kept, self._horizon_ms)
        return self._with_fewer(header, kept, section, found)

    def _with_fewer(self, header: BatchHeader, kept: bytes, section: bytes, found: Survivors) -> bytes:
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return self._rewritten(header, kept, header.delete_horizon_ms)
        enough = header.max_timestamp - header.base_timestamp
        max_timestamp = header.base_timestamp + max_timestamp_delta(section, found, enough)
        header = header._replace(max_timestamp=max(max_timestamp, -1))
        shift_ms = 0 if header.has_delete_horizon else timestamp_delta(section, found.bounds[0])
        if shift_ms:
            header = header._replace(base_timestamp=header.base_timestamp + shift_ms)
            kept = counted_from_later(section, found, shift_ms)
        codec = header.codec
        return seal_batch(header, kept if codec is Codec.NONE else compress(codec, kept))

    def _rewritten(self, header: BatchHeader, section: bytes, delete_horizon_ms: int | None) -> bytes:
        return encode_batch(
            iter_section(header, section),
            base_offset=header.base_offset,
            codec=header.codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            partition_leader_epoch=header.partition_leader_epoch,
            timestamp_type=header.timestamp_type,
            log_append_time_ms=(
                header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
            ),
            last_offset=header.last_offset,
            delete_horizon_ms=delete_horizon_ms,
        )

    def _clean_legacy(self, data: bytes, position: int, header: BatchHeader, keeps_deletes: bool) -> bytes:
        """Clean messages of v0 and v1, which have no producers or transactions; a wrapper hides its first offset."""
        records = list(iter_messages(data, position, header, size_max=UNPACKED_BYTES_MAX))
        kept = []
        places = self._keys.places
        for place, record in enumerate(records, self._keys.first_place(header.base_offset)):
            if record.offset > self._keys.latest_offset:
                kept.append(record)
            elif record.key is None:
                self._stats.invalid_messages_read += record.offset < self._plan.first_dirty_offset
            elif record.value is None and not keeps_deletes:
                continue
            elif place >= places.get(known_key(record.key), place):
                kept.append(record)
        self._count(len(records), len(kept))
        if len(kept) == len(records):
            return data[position : position + header.size_bytes]
        is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        return encode_message_set(
            kept,
            header.magic,
            codec=header.codec,
            timestamp_type=header.timestamp_type,
            log_append_time_ms=header.max_timestamp if is_append_time else None,
        )

    def _count(self, read: int, kept: int) -> None:
        self._stats.messages_read += read
        self._stats.messages_written += kept


def not_records(header: BatchHeader) -> KafkaError:
    """Return the error of a batch that makes its log uncleanable."""
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} does not hold the records it says"
    )
