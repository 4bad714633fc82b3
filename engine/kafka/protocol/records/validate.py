"""Turns the bytes of a produce request into those of the log: what Kafka's leader checks, changes and refuses.

The log's hot path (one version 2 batch that keeps its codec and timestamps) needs only ``check_batch``; everything
else goes through ``prepare_append``. The caller checks checksums before, and sizes before and after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.common.errors import ErrorCode
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.append_rules import (
    REFUSED_MAX,
    AppendRules,
    RecordError,
    RefusedAppend,
    RefusedAs,
    refuse_records,
)
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.compression import DECOMPRESSED_BYTES_MAX, compress
from engine.kafka.protocol.records.convert import to_v2
from engine.kafka.protocol.records.decode import iter_section, read_headers, record_section
from engine.kafka.protocol.records.encode import encode_batch, seal_batch, write_header
from engine.kafka.protocol.records.faults import (
    BadRecord,
    ends_early,
    invalid_records,
    left_over,
    past_the_end,
    wrong_length,
)
from engine.kafka.protocol.records.header import BatchHeader, iter_batches, read_batch_header
from engine.kafka.protocol.records.layout import Buffer
from engine.kafka.protocol.records.legacy import Message, read_messages
from engine.kafka.protocol.records.varint import read_tail


class SectionFacts(NamedTuple):
    """Facts about all records of one batch. Timestamps are the records' own, even under LogAppendTime."""

    min_timestamp: int
    """Smallest timestamp of a record that has one; -1 if none has."""
    max_timestamp: int
    has_null_key: bool
    offsets_in_order: bool
    """Whether the offset deltas are 0, 1, 2 …: then stamping the base offset is enough to place the batch."""


def scan_section(header: BatchHeader, section: bytes) -> SectionFacts:
    """Walk through the uncompressed record section of a version 2 batch.

    Raises:
        KafkaError: INVALID_RECORD if the bytes are not exactly ``header.record_count`` well-formed records.
    """
    if header.record_count < 0:
        raise invalid_records(header, f"it declares {header.record_count} records")
    try:
        min_delta, max_delta, has_null_key, in_order = _scan(section, header.record_count, -1 - header.base_timestamp)
    except IndexError:
        raise ends_early(header) from None
    except BadRecord as error:
        raise invalid_records(header, str(error)) from None
    base = header.base_timestamp
    return SectionFacts(
        min_timestamp=layout.NO_TIMESTAMP if min_delta is None else base + min_delta,
        max_timestamp=layout.NO_TIMESTAMP if max_delta is None else max(layout.NO_TIMESTAMP, base + max_delta),
        has_null_key=has_null_key,
        offsets_in_order=in_order,
    )


def _scan(data: bytes, count: int, no_timestamp_delta: int) -> tuple[int | None, int | None, bool, bool]:
    """Return (smallest delta, largest delta, a key is null, offsets in order). Reads numbers as ``decode`` does.

    ``no_timestamp_delta`` is the delta of a record that has no timestamp.
    """
    position = 0
    size = len(data)
    min_delta = max_delta = None
    has_null_key = False
    in_order = True
    for index in range(count):
        number = data[position]
        position += 1
        if number > 127:
            second = data[position]
            if second < 128:
                number += (second << 7) - 128
                position += 1
            else:
                number, position = read_tail(data, position, number)
        end = position + (number >> 1)
        if number & 1 or end > size:
            raise past_the_end(number >> 1, size)
        position += 1
        number = data[position]
        position += 1
        if number > 127:
            number, position = read_tail(data, position, number)
        delta = number >> 1 ^ -(number & 1)
        if delta != no_timestamp_delta:
            if max_delta is None or delta > max_delta:
                max_delta = delta
            if min_delta is None or delta < min_delta:
                min_delta = delta
        number = data[position]
        position += 1
        if number > 127:
            number, position = read_tail(data, position, number)
        if number != index << 1:
            in_order = False
        number = data[position]
        position += 1
        if number > 127:
            number, position = read_tail(data, position, number)
        if number & 1:
            has_null_key = True
        else:
            position += number >> 1
        number = data[position]
        position += 1
        if number > 127:
            second = data[position]
            if second < 128:
                number += (second << 7) - 128
                position += 1
            else:
                number, position = read_tail(data, position, number)
        if not number & 1:
            position += number >> 1
        if data[position]:
            _, position = read_headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise wrong_length(position - end)
    if position != size:
        raise left_over(size - position, count)
    return min_delta, max_delta, has_null_key, in_order


def check_batch(header: BatchHeader, *, from_client: bool = True) -> None:
    """Check a batch's header as the leader does before it appends the batch.

    Raises:
        KafkaError: INVALID_RECORD if counts and offsets contradict each other, or a client sends control records, a
            base offset other than 0, or a producer id without a sequence.
    """
    if not from_client or header.magic < 2:
        return
    if header.base_offset != 0:
        raise invalid_append(f"the base offset of an appended batch must be 0, but it is {header.base_offset}", None)
    if header.record_count <= 0:
        raise invalid_append(f"a batch says that it has {header.record_count} records")
    if header.last_offset_delta + 1 != header.record_count:
        raise invalid_append(
            f"a batch's offsets [{header.base_offset}, {header.last_offset}] and its count of records "
            f"{header.record_count} contradict each other"
        )
    if header.is_control:
        raise invalid_append("clients are not allowed to write control records")
    if header.has_producer_id and header.base_sequence < 0:
        raise invalid_append(f"producer id {header.producer_id} comes with the invalid sequence {header.base_sequence}")


def invalid_append(message: str, counted: RefusedAs | None = RefusedAs.INVALID_SEQUENCE) -> RefusedAppend:
    """Return INVALID_RECORD with the text."""
    return RefusedAppend(ErrorCode.INVALID_RECORD, message, {} if counted is None else {counted: 1})


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
                message_text = f"the checksum of inner message {index} does not match"
                raise RefusedAppend(ErrorCode.CORRUPT_MESSAGE, message_text, {RefusedAs.INVALID_CRC: 1})
            if message.magic != source.magic:
                message_text = f"magic {message.magic} of the record does not match magic {source.magic} around it"
                refused.append((ErrorCode.INVALID_RECORD, RecordError(index, message_text, RefusedAs.INVALID_MAGIC)))
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
            message = "a compacted topic cannot accept a record without key"
            return ErrorCode.INVALID_RECORD, RecordError(index, message, RefusedAs.NO_KEY)
        if rules.timestamp_type is TimestampType.CREATE_TIME and timestamp_ms != layout.NO_TIMESTAMP:
            if not self._is_out_of_bounds(timestamp_ms):
                return None
            earliest = self.now_ms - rules.timestamp_before_max_ms
            latest = self.now_ms + rules.timestamp_after_max_ms
            message = f"timestamp {timestamp_ms} is out of range: it should be within [{earliest}, {latest}]"
            return ErrorCode.INVALID_TIMESTAMP, RecordError(index, message)
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            message = "a producer must not set the timestamp type to LogAppendTime"
            return ErrorCode.INVALID_TIMESTAMP, RecordError(index, message)
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
