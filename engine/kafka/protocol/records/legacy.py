"""Messages of the formats v0 and v1: single ones, and wrappers that hold a compressed message set.

Reading follows Kafka 3.9, including its tolerance for wrappers with offset 0 (early librdkafka). Writing is for old
consumers: the log itself gets only version 2.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.compression import DECOMPRESSED_BYTES_MAX, compress, decompress
from engine.kafka.protocol.records.header import BatchHeader, read_batch_header
from engine.kafka.protocol.records.layout import Buffer
from engine.kafka.protocol.records.record import Record

_INT32 = struct.Struct(">i")


class Message(NamedTuple):
    """One message of v0 or v1 as encoded, for callers that need more than a ``Record``."""

    offset: int
    magic: int
    crc: int
    attributes: int
    timestamp_type: TimestampType
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    is_valid: bool
    """Whether the message's own checksum matches."""


def iter_messages(
    buffer: Buffer, position: int, header: BatchHeader, *, size_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Yield the records of the message at the position, or of the set inside a wrapper.

    Raises:
        KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, or UNSUPPORTED_COMPRESSION_TYPE for zstd.
    """
    for message in read_messages(buffer, position, header, size_max=size_max):
        yield Record(message.offset, message.timestamp_ms, message.key, message.value)


def read_messages(
    buffer: Buffer, position: int, header: BatchHeader, *, size_max: int = DECOMPRESSED_BYTES_MAX
) -> list[Message]:
    """Return the message at the position, or the messages in its wrapper, with absolute offsets. Errors as above.

    Inner messages of a v1 wrapper have relative offsets, and the wrapper has the last one's absolute offset. Under
    LogAppendTime they take the wrapper's timestamp. In v0, inner offsets are absolute.
    """
    outer = _parse(buffer, position, header)
    if not header.is_wrapper:
        return [outer]
    if outer.value is None:
        raise _invalid(header, "the compressed message has a null value")
    plain = decompress(header.codec, outer.value, magic=header.magic, size_max=size_max)
    inner = _inner_messages(plain, header)
    base = _absolute_base(inner[-1].offset, header)
    if header.magic == 0:
        return inner
    append_time = outer.timestamp_ms if outer.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    return [_placed(message, base, append_time) for message in inner]


def encode_message(
    offset: int,
    magic: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    *,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Return one log entry of format v0 or v1. With a codec, it is a wrapper and ``value`` is its compressed set.

    Raises:
        KafkaError: INVALID_RECORD for an offset or timestamp that does not fit in 64 bits.
    """
    attributes = int(codec)
    if magic == 1 and timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= layout.TIMESTAMP_TYPE_BIT
    try:
        timestamp = struct.pack(">q", timestamp_ms) if magic == 1 else b""
        body = b"".join((bytes((magic, attributes)), timestamp, _sized(key), _sized(value)))
        return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
    except struct.error as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"offset {offset}, time {timestamp_ms}: {error}") from None


def encode_message_set(
    records: Sequence[Record],
    magic: int,
    *,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int | None = None,
    level: int | None = None,
) -> bytes:
    """Return the records as messages, one by one or compressed in one wrapper, without headers and, in v0, timestamps.

    Offsets are the records' own; in a v1 wrapper they are relative to the first.

    Raises:
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE for zstd.
    """
    if not records:
        return b""
    is_relative = magic == 1 and codec is not Codec.NONE
    base = records[0].offset if is_relative else 0
    messages = b"".join(
        encode_message(
            record.offset - base,
            magic,
            record.timestamp_ms if log_append_time_ms is None else log_append_time_ms,
            record.key,
            record.value,
            timestamp_type=timestamp_type,
        )
        for record in records
    )
    if codec is Codec.NONE:
        return messages
    max_timestamp = max(record.timestamp_ms for record in records) if log_append_time_ms is None else log_append_time_ms
    packed = compress(codec, messages, level, magic=magic)
    return encode_message(
        records[-1].offset, magic, max_timestamp, None, packed, codec=codec, timestamp_type=timestamp_type
    )


def _parse(buffer: Buffer, position: int, header: BatchHeader) -> Message:
    """Read one message's key and value. The caller has read the header and checked its length."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise _corrupt(header, f"needs {header.size_bytes} bytes, of which {len(buffer) - position} are there")
    key_at = position + (layout.LEGACY_KEY_V0 if header.magic == 0 else layout.LEGACY_KEY_V1)
    key, value_at = _read_sized(buffer, key_at, end, header)
    value, after = _read_sized(buffer, value_at, end, header)
    if after != end:
        raise _corrupt(header, f"has {end - after} bytes after its value")
    crc = zlib.crc32(memoryview(buffer)[position + layout.MAGIC : end])
    return Message(
        header.base_offset,
        header.magic,
        header.crc,
        header.attributes,
        header.timestamp_type,
        header.max_timestamp,
        key,
        value,
        crc == header.crc,
    )


def _read_sized(buffer: Buffer, position: int, end: int, header: BatchHeader) -> tuple[bytes | None, int]:
    if position + 4 > end:
        raise _corrupt(header, "ends inside a length")
    (size,) = _INT32.unpack_from(buffer, position)
    position += 4
    if size < 0:
        return None, position
    if position + size > end:
        raise _corrupt(header, f"has a key or value of {size} bytes, with {end - position} left")
    return bytes(buffer[position : position + size]), position + size


def _inner_messages(plain: bytes, wrapper: BatchHeader) -> list[Message]:
    messages = []
    position = 0
    # If a set ends in the middle of a message, read up to there, as in Kafka.
    while position + layout.LOG_OVERHEAD <= len(plain):
        (length,) = _INT32.unpack_from(plain, position + layout.BATCH_LENGTH)
        if length >= 0 and position + layout.LOG_OVERHEAD + length > len(plain):
            break
        header = read_batch_header(plain, position)
        if header.magic > 1 or header.is_compressed:
            raise _invalid(wrapper, f"it holds a message of magic {header.magic}, attributes {header.attributes:#x}")
        messages.append(_parse(plain, position, header))
        position += header.size_bytes
    if not messages:
        raise _invalid(wrapper, "the compressed message holds no message")
    return messages


def _absolute_base(last_inner_offset: int, wrapper: BatchHeader) -> int:
    # Early librdkafka leaves the wrapper's offset at 0: then the inner offsets count from 0.
    if wrapper.magic == 0 or wrapper.base_offset == 0:
        return 0
    if wrapper.base_offset < last_inner_offset:
        raise _invalid(wrapper, f"its offset is less than its last message's {last_inner_offset}, and not zero")
    return wrapper.base_offset - last_inner_offset


def _placed(message: Message, base: int, append_time: int | None) -> Message:
    if append_time is None or message.magic == 0:
        return message._replace(offset=base + message.offset)
    return message._replace(
        offset=base + message.offset, timestamp_ms=append_time, timestamp_type=TimestampType.LOG_APPEND_TIME
    )


def _sized(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else _INT32.pack(len(data)) + data


def _corrupt(header: BatchHeader, fault: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the message at offset {header.base_offset} {fault}")


def _invalid(header: BatchHeader, fault: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"invalid message set at offset {header.base_offset}: {fault}")
