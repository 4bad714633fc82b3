"""Records out of version 2 batches. Pure Python, written for speed: the varint reading is spelt out where it is hot."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from engine.common.errors import ErrorCode, KafkaError
from engine.protocol.records import layout
from engine.protocol.records.attributes import Codec, TimestampType
from engine.protocol.records.buffers import Buffer
from engine.protocol.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from engine.protocol.records.header import BatchHeader
from engine.protocol.records.record import Header, Record
from engine.protocol.records.varint import read_tail, read_varint


def record_section(buffer: Buffer, position: int, header: BatchHeader, size_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return the bytes of a version 2 batch's records, decompressed; ``header`` is the batch's at the position.

    Raises:
        KafkaError: CORRUPT_MESSAGE when the bytes do not decompress or are not all there, MESSAGE_TOO_LARGE when they
            would take more than ``size_max``.
    """
    end = position + header.size_bytes
    if end > len(buffer):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch at position {position} needs {header.size_bytes} bytes, {len(buffer) - position} are there",
        )
    section = memoryview(buffer)[position + layout.BATCH_OVERHEAD : end]
    codec = header.codec
    if codec is Codec.NONE:
        return bytes(section)
    # An emptied batch of a compacted log keeps its codec bits, but there is no compressed stream in it.
    return decompress(codec, section, magic=2, size_max=size_max) if section else b""


def iter_section(header: BatchHeader, section: bytes) -> Iterator[Record]:
    """Yield the records of a version 2 batch from its uncompressed record section.

    Raises:
        KafkaError: INVALID_RECORD when the bytes are not exactly ``header.record_count`` well-formed records.
    """
    count = header.record_count
    if count < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"invalid record count {count} in the batch at {header.base_offset}")
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    try:
        position = yield from _records(section, count, header.base_offset, header.base_timestamp, append_time)
    except IndexError:
        raise _invalid(header, f"its bytes end before the {count} records that it declares") from None
    except (UnicodeDecodeError, _BadRecord) as error:
        raise _invalid(header, str(error)) from None
    if position != len(section):
        raise _invalid(header, f"{len(section) - position} bytes are left after the {count} records that it declares")


class _BadRecord(Exception):
    """A record contradicts its own length; ``iter_section`` makes the wire error of it."""


def _records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Generator[Record, None, int]:
    """Yield the records and return the position after the last one. IndexError when the bytes end early.

    Numbers are kept in zig-zag form until they are used: odd means negative, which for a length means null.
    """
    position = 0
    size = len(data)
    for _ in range(count):
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
            raise _BadRecord(f"a record's length of {number >> 1} reaches past the {size} bytes of all records")
        position += 1
        number = data[position]
        position += 1
        if number > 127:
            number, position = read_tail(data, position, number)
        timestamp = base_timestamp + (number >> 1 ^ -(number & 1)) if append_time is None else append_time
        delta = data[position]
        position += 1
        if delta > 127:
            second = data[position]
            if second < 128:
                delta += (second << 7) - 128
                position += 1
            else:
                delta, position = read_tail(data, position, delta)
        number = data[position]
        position += 1
        if number > 127:
            number, position = read_tail(data, position, number)
        key = None
        if not number & 1:
            key = data[position : position + (number >> 1)]
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
        value = None
        if not number & 1:
            value = data[position : position + (number >> 1)]
            position += number >> 1
        headers: list[Header] | tuple[()] = ()
        if data[position]:
            headers, position = _read_headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise _BadRecord(f"a record's fields take {position - end:+} bytes beside the length it declares")
        yield Record(base_offset + (delta >> 1 ^ -(delta & 1)), timestamp, key, value, headers)
    return position


def _read_headers(data: bytes, position: int, end: int) -> tuple[list[Header], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise _BadRecord(f"a record declares {count} headers, and has {end - position} bytes for them")
    headers: list[Header] = []
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise _BadRecord("a record header has no key")
        key = data[position : position + size].decode()
        position += size
        size, position = read_varint(data, position)
        value = None
        if size >= 0:
            value = data[position : position + size]
            position += size
        headers.append((key, value))
    return headers, position


def _invalid(header: BatchHeader, what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"invalid records in the batch at offset {header.base_offset}: {what}")
