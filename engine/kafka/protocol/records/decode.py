"""Decodes the records of batches: those of version 2 here, messages of v0 and v1 by ``legacy``.

Pure Python, written for speed: hot code reads varints inline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from engine.kafka.protocol.records.faults import (
    BadRecord,
    ends_early,
    invalid_records,
    left_over,
    past_the_end,
    wrong_length,
)
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.layout import Buffer
from engine.kafka.protocol.records.legacy import iter_messages
from engine.kafka.protocol.records.record import Header, Record
from engine.kafka.protocol.records.varint import read_tail, read_varint


def record_section(buffer: Buffer, position: int, header: BatchHeader, size_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return the decompressed record bytes of the version 2 batch at the position, which has this ``header``.

    Raises:
        KafkaError: CORRUPT_MESSAGE if the bytes do not decompress or some are missing, MESSAGE_TOO_LARGE if they
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
    # An emptied batch of a compacted log keeps its codec bits, but has no compressed stream.
    return decompress(codec, section, magic=2, size_max=size_max) if section else b""


def iter_section(header: BatchHeader, section: bytes) -> Iterator[Record]:
    """Yield a version 2 batch's records from its uncompressed record section.

    Raises:
        KafkaError: INVALID_RECORD if the bytes are not exactly ``header.record_count`` well-formed records.
    """
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    count = _count(header)
    try:
        yield from _records(section, count, header.base_offset, header.base_timestamp, append_time)
    except (BadRecord, IndexError) as error:
        raise _fault(header, error) from None


def section_values(header: BatchHeader, section: bytes) -> list[bytes | None]:
    """Return the values of a version 2 batch's records. Raises as ``iter_section`` does."""
    count = _count(header)
    try:
        return _values(section, count)
    except (BadRecord, IndexError) as error:
        raise _fault(header, error) from None


def _count(header: BatchHeader) -> int:
    if header.record_count < 0:
        raise invalid_records(header, f"it declares {header.record_count} records")
    return header.record_count


def _fault(header: BatchHeader, error: Exception) -> KafkaError:
    return invalid_records(header, str(error)) if isinstance(error, BadRecord) else ends_early(header)


def _records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Iterator[Record]:
    """Yield the records. Raises BadRecord or IndexError if the bytes are not exactly ``count`` records.

    Numbers stay in zig-zag form until they are used: odd means negative, and a negative length means null.
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
            raise past_the_end(number >> 1, size)
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
            headers, position = read_headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise wrong_length(position - end)
        yield Record(base_offset + (delta >> 1 ^ -(delta & 1)), timestamp, key, value, headers)
    if position != size:
        raise left_over(size - position, count)


def _values(data: bytes, count: int) -> list[bytes | None]:
    """Return the records' values; otherwise as ``_records``."""
    values: list[bytes | None] = []
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
            raise past_the_end(number >> 1, size)
        position += 1
        number = data[position]
        position += 1
        if number > 127:
            _, position = read_tail(data, position, number)
        number = data[position]
        position += 1
        if number > 127:
            _, position = read_tail(data, position, number)
        number = data[position]
        position += 1
        if number > 127:
            number, position = read_tail(data, position, number)
        if not number & 1:
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
        values.append(value)
        if data[position]:
            _, position = read_headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise wrong_length(position - end)
    if position != size:
        raise left_over(size - position, count)
    return values


def read_headers(data: bytes, position: int, end: int) -> tuple[list[Header], int]:
    """Return (headers, position after them). A key that is not UTF-8 keeps its bytes as surrogate escapes.

    Raises:
        BadRecord, IndexError: as in the loops over records.
    """
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise BadRecord(f"a record declares {count} headers, and has {end - position} bytes for them")
    headers: list[Header] = []
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise BadRecord("a record header has no key")
        key = data[position : position + size].decode("utf-8", "surrogateescape")
        position += size
        size, position = read_varint(data, position)
        value = None
        if size >= 0:
            value = data[position : position + size]
            position += size
        headers.append((key, value))
    return headers, position


def iter_records(buffer: Buffer, *, size_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yield every record of the complete batches in the buffer, including control records, with absolute offsets.

    It does not verify checksums (``verify_crc`` does). ``size_max`` limits the size of one decompressed batch.

    Raises:
        KafkaError: CORRUPT_MESSAGE, INVALID_RECORD or MESSAGE_TOO_LARGE for bytes that are not records.
    """
    for position, header in iter_batches(buffer):
        yield from iter_batch_records(buffer, position, header, size_max=size_max)


def iter_batch_records(
    buffer: Buffer, position: int, header: BatchHeader, *, size_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Yield the records of the one batch at the position, which has this header. Same errors as ``iter_records``."""
    if header.magic >= 2:
        return iter_section(header, record_section(buffer, position, header, size_max))
    return iter_messages(buffer, position, header, size_max=size_max)


def iter_batch_values(
    buffer: Buffer, position: int, header: BatchHeader, *, size_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterable[bytes | None]:
    """Return the values of the batch's records; keys, times and headers cost nothing. Same errors as ``iter_records``.

    They are raised at once or by the iteration.
    """
    if header.magic >= 2:
        return section_values(header, record_section(buffer, position, header, size_max))
    return (record.value for record in iter_messages(buffer, position, header, size_max=size_max))
