"""Turns the bytes of a produce request into those of the log: what Kafka's leader checks, changes and refuses.

The log's hot path (one version 2 batch that keeps its codec and timestamps) needs only ``check_batch``; everything
else goes through ``prepare_append``. The caller checks checksums before, and sizes before and after.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.common.errors import ErrorCode
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.append_checks import check_batch, invalid_append
from engine.kafka.protocol.records.append_rules import (
    REFUSED_MAX,
    AppendRules,
    RecordError,
    RefusedAppend,
    RefusedAs,
    refuse_records,
)
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.buffers import Buffer
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.compression import DECOMPRESSED_BYTES_MAX, compress
from engine.kafka.protocol.records.convert import to_v2
from engine.kafka.protocol.records.decode import iter_section, record_section
from engine.kafka.protocol.records.encode import encode_batch, seal_batch, write_header
from engine.kafka.protocol.records.header import BatchHeader, iter_batches, read_batch_header
from engine.kafka.protocol.records.legacy import Message, read_messages
from engine.kafka.protocol.records.scan import SectionFacts, scan_section

__all__ = ["AppendRules", "PreparedRecords", "check_batch", "prepare_append"]

_NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class PreparedRecords:
    """One version 2 batch, ready to write, with offsets, leader epoch, timestamps and checksum."""

    records: Buffer
    """The caller's own buffer, stamped, if nothing had to be rebuilt and it is writable; else new bytes."""
    first_offset: int
    last_offset: int
    record_count: int
    max_timestamp: int
    offset_of_max_timestamp: int
    """The batch's last offset, to which a time index points; -1 if no record has a timestamp."""
    log_append_time_ms: int
    """-1 unless the topic has LogAppendTime."""
    is_rebuilt: bool
    """The size may have changed: check it against ``max.message.bytes`` again."""


def prepare_append(
    records: Buffer,
    rules: AppendRules,
    *,
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
    from_client: bool = True,
    size_max: int = DECOMPRESSED_BYTES_MAX,
) -> PreparedRecords:
    """Check the records of one append, and return them as the one batch for the log.

    Messages of v0 and v1 become version 2. It decodes and rebuilds the batch only if its codec is not the topic's, or
    its inner offsets do not count 0, 1, 2 …. Otherwise it stamps the batch in place, and renews the checksum if the
    timestamps had to change. ``size_max`` limits the size of the decompressed records.

    Raises:
        RecordValidationError: INVALID_RECORD or INVALID_TIMESTAMP, with the bad records.
        KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    batches = list(iter_batches(records))
    if not batches:
        raise invalid_append("there is no record batch at all", None)
    magic = batches[0][1].magic
    if len(batches) > 1 and (magic >= 2 or any(header.is_compressed for _, header in batches)):
        raise invalid_append("there is more than one batch, which only uncompressed messages of v0 and v1 may be", None)
    for _, header in batches:
        if header.magic != magic:
            raise invalid_append(
                f"a batch of magic {header.magic} follows one of magic {magic}", RefusedAs.INVALID_MAGIC
            )
        check_batch(header, from_client=from_client)
    append = _Append(rules, first_offset, leader_epoch, now_ms, size_max)
    if magic < 2:
        return append.messages(records, batches)
    return append.batch(records, *batches[0])


@dataclass(frozen=True, slots=True)
class _Append:
    rules: AppendRules
    first_offset: int
    leader_epoch: int
    now_ms: int
    size_max: int

    @property
    def _log_append_time_ms(self) -> int | None:
        return self.now_ms if self.rules.timestamp_type is TimestampType.LOG_APPEND_TIME else None

    def batch(self, records: Buffer, position: int, header: BatchHeader) -> PreparedRecords:
        section = record_section(records, position, header, self.size_max)
        facts = scan_section(header, section)
        if self._is_suspect(header, facts):
            self._refuse(header, section)
        codec = header.codec if self.rules.codec is None else self.rules.codec
        if not facts.offsets_in_order:
            return self._prepared(self._rebuilt(header, section, codec), is_rebuilt=True)
        # Control records belong to the coordinators, and stay as they wrote them.
        if codec is header.codec or (header.is_control and not header.is_compressed):
            return self._prepared(self._stamped(records, position, header, facts.max_timestamp), is_rebuilt=False)
        return self._prepared(self._recompressed(header, section, codec, facts.max_timestamp), is_rebuilt=True)

    def messages(self, records: Buffer, batches: list[tuple[int, BatchHeader]]) -> PreparedRecords:
        messages: list[Message] = []
        for position, header in batches:
            messages += read_messages(records, position, header, size_max=self.size_max)
        source = batches[0][1]
        refused = []
        for index, message in enumerate(messages):
            if source.is_wrapper and not message.is_valid:
                what = f"the checksum of inner message {index} does not match"
                raise RefusedAppend(ErrorCode.CORRUPT_MESSAGE, what, {RefusedAs.INVALID_CRC: 1})
            if message.magic != source.magic:
                what = f"magic {message.magic} of the record does not match magic {source.magic} around it"
                refused.append((ErrorCode.INVALID_RECORD, RecordError(index, what, RefusedAs.INVALID_MAGIC)))
            elif (fault := self._fault(index, message.key, message.timestamp_ms, source.timestamp_type)) is not None:
                refused.append(fault)
            if len(refused) > REFUSED_MAX:
                break
        refuse_records(refused)
        codec = source.codec if self.rules.codec is None else self.rules.codec
        return self._prepared(
            to_v2(
                messages,
                base_offset=self.first_offset,
                codec=codec,
                level=self.rules.level,
                partition_leader_epoch=self.leader_epoch,
                timestamp_type=self.rules.timestamp_type,
                log_append_time_ms=self._log_append_time_ms,
            ),
            is_rebuilt=True,
        )

    def _is_suspect(self, header: BatchHeader, facts: SectionFacts) -> bool:
        """Return whether some record may need to be refused; this cheap check runs for every batch."""
        rules = self.rules
        if rules.is_compacted and facts.has_null_key:
            return True
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return True
        if rules.timestamp_type is not TimestampType.CREATE_TIME or facts.max_timestamp == layout.NO_TIMESTAMP:
            return False
        return self._is_out_of_bounds(facts.min_timestamp) or self._is_out_of_bounds(facts.max_timestamp)

    def _refuse(self, header: BatchHeader, section: bytes) -> None:
        refused = []
        for index, record in enumerate(iter_section(header, section)):
            fault = self._fault(index, record.key, record.timestamp_ms, header.timestamp_type)
            if fault is not None:
                refused.append(fault)
            if len(refused) > REFUSED_MAX:
                break
        refuse_records(refused)

    def _fault(
        self, index: int, key: bytes | None, timestamp_ms: int, timestamp_type: TimestampType
    ) -> tuple[ErrorCode, RecordError] | None:
        rules = self.rules
        if rules.is_compacted and key is None:
            what = "a compacted topic cannot accept a record without key"
            return ErrorCode.INVALID_RECORD, RecordError(index, what, RefusedAs.NO_KEY)
        if rules.timestamp_type is TimestampType.CREATE_TIME and timestamp_ms != layout.NO_TIMESTAMP:
            if not self._is_out_of_bounds(timestamp_ms):
                return None
            earliest = self.now_ms - rules.timestamp_before_max_ms
            latest = self.now_ms + rules.timestamp_after_max_ms
            what = f"timestamp {timestamp_ms} is out of range: it should be within [{earliest}, {latest}]"
            return ErrorCode.INVALID_TIMESTAMP, RecordError(index, what)
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            what = "a producer must not set the timestamp type to LogAppendTime"
            return ErrorCode.INVALID_TIMESTAMP, RecordError(index, what)
        return None

    def _is_out_of_bounds(self, timestamp_ms: int) -> bool:
        age = self.now_ms - timestamp_ms
        return age > self.rules.timestamp_before_max_ms or -age > self.rules.timestamp_after_max_ms

    def _stamped(self, records: Buffer, position: int, header: BatchHeader, max_timestamp: int) -> Buffer:
        target = memoryview(records)[position : position + header.size_bytes]
        if target.readonly:
            target = memoryview(bytearray(target))
        stamped = self._placed(header, max_timestamp)
        write_header(target, stamped)
        if (stamped.attributes, stamped.max_timestamp) != (header.attributes, header.max_timestamp):
            stamp_crc(target, 0, header.size_bytes)
        return target

    def _recompressed(self, header: BatchHeader, section: bytes, codec: Codec, max_timestamp: int) -> bytes:
        """Return the batch with another codec; the records' bytes stay, because they are relative to the header."""
        placed = self._placed(header, max_timestamp)
        attributes = placed.attributes & ~layout.CODEC_MASK | codec
        return seal_batch(placed._replace(attributes=attributes), compress(codec, section, self.rules.level))

    def _rebuilt(self, header: BatchHeader, section: bytes, codec: Codec) -> bytes:
        records = list(iter_section(header, section))
        for index, record in enumerate(records):
            record.offset = self.first_offset + index
        return encode_batch(
            records,
            base_offset=self.first_offset,
            codec=codec,
            level=self.rules.level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            partition_leader_epoch=self.leader_epoch,
            timestamp_type=self.rules.timestamp_type,
            log_append_time_ms=self._log_append_time_ms,
        )

    def _placed(self, header: BatchHeader, max_timestamp: int) -> BatchHeader:
        """Return the header with its place in the log and the topic's timestamp type."""
        attributes = header.attributes & ~layout.TIMESTAMP_TYPE_BIT
        if self.rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
            attributes |= layout.TIMESTAMP_TYPE_BIT
            max_timestamp = self.now_ms
        return header._replace(
            base_offset=self.first_offset,
            partition_leader_epoch=self.leader_epoch,
            attributes=attributes,
            max_timestamp=max_timestamp,
        )

    def _prepared(self, records: Buffer, *, is_rebuilt: bool) -> PreparedRecords:
        header = read_batch_header(records)
        has_timestamp = header.max_timestamp != layout.NO_TIMESTAMP
        return PreparedRecords(
            records=records,
            first_offset=header.base_offset,
            last_offset=header.last_offset,
            record_count=header.record_count,
            max_timestamp=header.max_timestamp,
            offset_of_max_timestamp=header.last_offset if has_timestamp else _NO_OFFSET,
            log_append_time_ms=self.now_ms if self._log_append_time_ms is not None else -1,
            is_rebuilt=is_rebuilt,
        )
