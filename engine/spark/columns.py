"""Fetched record batches turned into Arrow columns, without a Python object per record.

The records of a chunk are found one after the other, because each begins where the previous one ends; runs of records
of equal size are found at once. Everything else is read for all records together: numpy reads the numbers, and Arrow
takes keys and values out of the chunk. pyarrow, which every Python of a Spark executor has, decompresses sections.
Messages of the formats v0 and v1 take the slow way, record by record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from engine.admin.records.fetching import Aborted, visible_batches
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.faults import ends_early, invalid_records
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.legacy import read_messages
from engine.kafka.protocol.records.varint import read_tail

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)
"""The columns of Spark's own Kafka source, in its order; ``headers`` only on request."""

_LATEST_MS = (2**63 - 1) // 1000
"""Spark counts microseconds. A later time, such as nanoseconds that a client took for milliseconds, becomes this."""

RecordBatch = pa.RecordBatch

_Ints = np.ndarray[Any, np.dtype[np.int64]]

_BASE_OFFSET, _ATTRIBUTES, _BASE_TIMESTAMP, _MAX_TIMESTAMP, _RECORD_COUNT = (
    BatchHeader._fields.index(name)
    for name in ("base_offset", "attributes", "base_timestamp", "max_timestamp", "record_count")
)

_RECORD_BYTES_MIN = 7
"""The size of an empty record: length, attributes, time, offset, key, value and number of headers."""

_ABREAST_MIN = 256
"""From this many batches on, walking through all of them in parallel is faster than one after the other."""

_RUN_MIN = 16
_NO_RUN_PAUSE = 64
_ROWS_MAX = 65_536

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_LENGTH = struct.Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"
_STREAMS = {Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}
_SNAPPY = pa.Codec("snappy")


@dataclass(slots=True)
class _Group:
    """Batches of format v2 that are decoded together: the places of their records, and the values of each batch."""

    headers: list[BatchHeader] = field(default_factory=list)
    sections: list[memoryview | bytes] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    is_in_place: bool = True


@dataclass(frozen=True, slots=True)
class Frame:
    """The target for the records of a chunk: columns by name, of one partition, within a range of offsets."""

    topic: str
    partition: int
    start: int
    stop: int
    columns: tuple[str, ...]


def decode(chunk: bytes, frame: Frame, aborted: Iterable[Aborted] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the records of the chunk's complete batches within the frame's range, without markers.

    If ``aborted`` is None, records of open and aborted transactions are included.

    Raises:
        KafkaError: the bytes are not record batches, or do not match their headers.
    """
    group = _Group()
    for position, header, is_visible in visible_batches(chunk, aborted):
        if not is_visible or header.last_offset < frame.start:
            continue
        if header.magic < 2:
            yield from _decode_group(chunk, group, frame)
            group = _Group()
            yield from _decode_messages(chunk, position, header, frame)
        elif header.base_offset < frame.stop and header.record_count:
            _add(group, chunk, position, header)
    yield from _decode_group(chunk, group, frame)


def _add(group: _Group, chunk: bytes, position: int, header: BatchHeader) -> None:
    start, end = position + layout.BATCH_OVERHEAD, position + header.size_bytes
    section: memoryview | bytes = memoryview(chunk)[start:end]
    if header.is_compressed:
        section = decompress(header.codec, memoryview(chunk)[start:end])
        group.is_in_place = False
    if not 0 <= header.record_count * _RECORD_BYTES_MIN <= len(section):
        raise invalid_records(header, f"it declares {header.record_count} records in {len(section)} bytes")
    group.headers.append(header)
    group.sections.append(section)
    group.places.append((start, end))


def _decode_group(chunk: bytes, group: _Group, frame: Frame) -> Iterator[pa.RecordBatch]:
    if not group.headers:
        return
    data, places = chunk, group.places
    if not group.is_in_place:
        data = b"".join(group.sections)
        ends = np.cumsum([len(section) for section in group.sections]).tolist()
        places = list(zip([0, *ends[:-1]], ends, strict=True))
    try:
        yield from _batches(data, places, group.headers, frame)
    except IndexError:
        raise ends_early(group.headers[-1]) from None


def _batches(
    data: bytes, places: Sequence[tuple[int, int]], headers: Sequence[BatchHeader], frame: Frame
) -> Iterator[pa.RecordBatch]:
    octets = np.frombuffer(data, np.uint8)
    facts = np.array(headers, np.int64).T
    counts, ends = facts[_RECORD_COUNT], np.array([end for _, end in places])
    starts = _record_starts(data, octets, np.array([start for start, _ in places]), ends, counts, headers)
    times, position = _varints(octets, starts + 1)
    deltas, position = _varints(octets, position)
    key_sizes, key_starts = _varints(octets, position)
    key_ends = key_starts + np.maximum(key_sizes, 0)
    value_sizes, value_starts = _varints(octets, key_ends)
    value_ends = value_starts + np.maximum(value_sizes, 0)
    _check_ends(value_ends, ends, counts, headers)
    offsets = np.repeat(facts[_BASE_OFFSET], counts) + deltas
    # Offsets rise within a partition.
    low, high = np.searchsorted(offsets, (frame.start, frame.stop)).tolist()
    for first in range(low, high, _ROWS_MAX):
        part = slice(first, min(first + _ROWS_MAX, high))
        columns: dict[str, Any] = {"offset": offsets[part]}
        if "key" in frame.columns or "value" in frame.columns:
            bounds = (key_starts[part], key_ends[part], value_starts[part], value_ends[part])
            columns["key"], columns["value"] = _taken(data, bounds, key_sizes[part] < 0, value_sizes[part] < 0)
        if "timestamp" in frame.columns or "timestampType" in frame.columns:
            columns |= _timestamps(facts, counts, times, part)
        if "headers" in frame.columns:
            columns["headers"] = _headers(data, octets, value_ends[part])
        yield _record_batch(frame, part.stop - part.start, columns)


def _record_starts(
    data: bytes,
    octets: np.ndarray[Any, Any],
    position: _Ints,
    ends: _Ints,
    counts: _Ints,
    headers: Sequence[BatchHeader],
) -> _Ints:
    """Return where each record begins, after its length.

    Each begins where the previous one ends, so a batch is walked through; many batches are walked through in parallel.
    """
    firsts = np.cumsum(counts) - counts
    starts = np.empty(int(counts.sum()), np.int64)
    order = np.argsort(-counts, kind="stable")
    lanes, done = len(order), 0
    position, ends, firsts, counts = position[order], ends[order], firsts[order], counts[order]
    while lanes >= _ABREAST_MIN:
        sizes, position[:lanes] = _varints(octets, position[:lanes])
        starts[firsts[:lanes] + done] = position[:lanes]
        position[:lanes] += sizes
        if (sizes < 0).any() or (position[:lanes] > ends[:lanes]).any():
            number = int(np.flatnonzero((sizes < 0) | (position[:lanes] > ends[:lanes]))[0])
            raise invalid_records(headers[order[number]], "a record reaches past its end")
        done += 1
        lanes = int(np.searchsorted(-counts[:lanes], -done))
    for lane in range(lanes):
        first, count = int(firsts[lane]), int(counts[lane])
        walk = _Walk(data, octets, int(ends[lane]), headers[order[lane]])
        position[lane] = walk.write_starts(starts[first + done : first + count], int(position[lane]))
    left = np.flatnonzero(position != ends)
    if left.size:
        number = int(left[0])
        raise invalid_records(headers[order[number]], f"{ends[number] - position[number]} bytes are left after them")
    return starts


@dataclass(frozen=True, slots=True)
class _Walk:
    """Walks through one batch."""

    data: bytes
    octets: np.ndarray[Any, Any]
    end: int
    header: BatchHeader

    def write_starts(self, target: _Ints, position: int) -> int:
        """Fill ``target`` with the starts of the records from ``position`` on; return the position after them.

        Their lengths alone prove a run of records of equal size: each length is where the previous record ends.
        """
        data, wanted, done = self.data, len(target), 0
        singles: list[int] = []
        last_size = pause = 0
        while done < wanted:
            begin = position
            length = data[position]
            position += 1
            if length > 127:
                second = data[position]
                if second < 128:
                    length += (second << 7) - 128
                    position += 1
                else:
                    length, position = read_tail(data, position, length)
            size = position - begin + (length >> 1)
            if length & 1 or begin + size > self.end:
                raise invalid_records(self.header, f"a record's length of {length >> 1} reaches past its end")
            if size == last_size and done >= pause:
                target[done - len(singles) : done] = singles
                singles.clear()
                run = self._run_length(begin, size, position - begin, wanted - done)
                target[done : done + run] = np.arange(position, position + run * size, size)
                done += run
                pause = done + (0 if run >= _RUN_MIN else _NO_RUN_PAUSE)
                position, last_size = begin + run * size, 0
                continue
            singles.append(position)
            position, last_size = begin + size, size
            done += 1
        if singles:
            target[done - len(singles) : done] = singles
        return position

    def _run_length(self, begin: int, size: int, prefix: int, most: int) -> int:
        """Return how many records from ``begin`` on have the same length, and so the same size."""
        stop = begin + min(most, (self.end - begin) // size) * size
        same = self.octets[begin:stop:size] == self.octets[begin]
        for place in range(1, prefix):
            same &= self.octets[begin + place : stop : size] == self.octets[begin + place]
        return len(same) if same.all() else int(same.argmin())


def _varints(octets: np.ndarray[Any, Any], position: _Ints) -> tuple[_Ints, _Ints]:
    """Read a zig-zag varint at each position; return the numbers and the positions after them."""
    first = octets[position]
    value = (first & 0x7F).astype(np.int64)
    position = position + 1
    more = np.flatnonzero(first > 127)
    shift = 7
    while more.size:
        if shift > 63:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a varint is longer than ten bytes")
        following = octets[position[more]].astype(np.int64)
        value[more] |= (following & 0x7F) << shift
        position[more] += 1
        more = more[following > 127]
        shift += 7
    # The shift must not spread the sign bit of a 64-bit number.
    return ((value >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(value & 1), position


def _check_ends(value_ends: _Ints, ends: _Ints, counts: _Ints, headers: Sequence[BatchHeader]) -> None:
    past = np.flatnonzero(value_ends >= np.repeat(ends, counts))
    if past.size:
        number = int(np.searchsorted(np.cumsum(counts), past[0], side="right"))
        raise invalid_records(headers[number], "a key or value reaches past its record")


def _taken(
    data: bytes, bounds: tuple[_Ints, _Ints, _Ints, _Ints], *is_null: np.ndarray[Any, Any]
) -> tuple[pa.Array, pa.Array]:
    """Return two columns of pieces of ``data``: those between the first two and the last two bounds of each row.

    Arrow sees the chunk as one column of keys, gaps, values and gaps, and copies the pieces that are needed.
    """
    count = len(bounds[0])
    edges = np.stack(bounds, axis=1).astype(np.int32).reshape(-1)
    if (np.diff(edges) < 0).any():
        raise KafkaError(ErrorCode.INVALID_RECORD, "a key or value reaches past its record")
    pieces = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    first, second = (_chosen(pieces, count, place, null) for place, null in zip((0, 2), is_null, strict=True))
    return first, second


def _chosen(pieces: pa.Array, count: int, place: int, is_null: np.ndarray[Any, Any]) -> pa.Array:
    if is_null.all():
        return pa.nulls(count, pa.binary())
    indices = np.arange(place, 4 * count, 4)
    return pieces.take(pa.array(indices, mask=is_null) if is_null.any() else pa.array(indices))


def _timestamps(facts: _Ints, counts: _Ints, deltas: _Ints, part: slice) -> dict[str, Any]:
    kinds = (facts[_ATTRIBUTES] & layout.TIMESTAMP_TYPE_BIT) // layout.TIMESTAMP_TYPE_BIT
    kind = np.repeat(kinds, counts)[part]
    time = (np.repeat(facts[_BASE_TIMESTAMP], counts) + deltas)[part]
    if kinds.any():
        time = np.where(kind == TimestampType.LOG_APPEND_TIME, np.repeat(facts[_MAX_TIMESTAMP], counts)[part], time)
    return {"timestamp": time, "timestampType": kind.astype(np.int32)}


def _headers(data: bytes, octets: np.ndarray[Any, Any], position: _Ints) -> pa.Array:
    """Read the headers at each position; a record without headers has null, as in Spark's own source."""
    counts, position = _varints(octets, position)
    if (counts < 0).any():
        raise KafkaError(ErrorCode.INVALID_RECORD, "a record declares a negative number of headers")
    total = int(counts.sum())
    if not total:
        return pa.nulls(len(counts), HEADERS_TYPE)
    firsts = np.cumsum(counts) - counts
    bounds, is_null = np.empty((4, total), np.int64), np.zeros(total, bool)
    for number in range(int(counts.max())):
        rows = np.flatnonzero(counts > number)
        at = firsts[rows] + number
        key_sizes, key_starts = _varints(octets, position[rows])
        value_sizes, value_starts = _varints(octets, key_starts + key_sizes)
        if (key_sizes < 0).any():
            raise KafkaError(ErrorCode.INVALID_RECORD, "a record header has no key")
        ends = value_starts + np.maximum(value_sizes, 0)
        bounds[:, at] = key_starts, key_starts + key_sizes, value_starts, ends
        is_null[at] = value_sizes < 0
        position[rows] = ends
    keys, values = _taken(data, (bounds[0], bounds[1], bounds[2], bounds[3]), np.zeros(total, bool), is_null)
    pairs = pa.StructArray.from_arrays([_text(keys), values], fields=list(HEADERS_TYPE.value_type))
    edges = pa.array(np.append(firsts, total).astype(np.int32), mask=np.append(counts == 0, False))
    return pa.ListArray.from_arrays(edges, pairs, type=HEADERS_TYPE)


def _text(keys: pa.Array) -> pa.Array:
    """Return header keys as text; invalid UTF-8 is replaced, as in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.as_py().decode("utf-8", "replace") for key in keys], pa.string())


def _decode_messages(chunk: bytes, position: int, header: BatchHeader, frame: Frame) -> Iterator[pa.RecordBatch]:
    """Decode a message of v0 or v1, or the set that it wraps; they have no headers."""
    messages = [
        message for message in read_messages(chunk, position, header) if frame.start <= message.offset < frame.stop
    ]
    if messages:
        columns = {
            "key": pa.array([message.key for message in messages], pa.binary()),
            "value": pa.array([message.value for message in messages], pa.binary()),
            "offset": np.array([message.offset for message in messages]),
            "timestamp": np.array([message.timestamp_ms for message in messages]),
            "timestampType": np.array([message.timestamp_type for message in messages], np.int32),
            "headers": pa.nulls(len(messages), HEADERS_TYPE),
        }
        yield _record_batch(frame, len(messages), columns)


def _record_batch(frame: Frame, count: int, columns: dict[str, Any]) -> pa.RecordBatch:
    columns["topic"] = pa.repeat(pa.scalar(frame.topic), count)
    columns["partition"] = np.full(count, frame.partition, np.int32)
    if "timestamp" in columns:
        columns["timestamp"] = np.minimum(columns["timestamp"], _LATEST_MS) * 1000
    schema = pa.schema([SCHEMA.field(name) for name in frame.columns])
    arrays = [_array(columns[each.name], each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    if not isinstance(column, np.ndarray):
        return column
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(np.ascontiguousarray(column))])


def decompress(codec: Codec, section: memoryview) -> bytes:
    """Return the plain records of a version 2 batch.

    Raises:
        KafkaError: CORRUPT_MESSAGE when the bytes are not the codec's.
    """
    if not section:
        # An emptied batch of a compacted log keeps its codec bits, but has no compressed stream in it.
        return b""
    try:
        if codec is Codec.GZIP:
            return _gunzip(bytes(section))
        if codec is Codec.SNAPPY:
            return b"".join(_snappy(block) for block in _snappy_blocks(bytes(section)))
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(section)), _STREAMS[codec]) as stream:
            return bytes(stream.read())
    except (OSError, pa.ArrowException, zlib.error, struct.error, IndexError, ValueError) as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{len(section)} bytes cannot be decompressed as {codec.kafka_name}: {error}"
        ) from None


def _gunzip(data: bytes) -> bytes:
    parts = []
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW)
        parts.append(member.decompress(data))
        if not member.eof:
            raise ValueError("the gzip stream ends early")
        data = member.unused_data
        if not data.startswith(_GZIP_MAGIC):
            return b"".join(parts)


def _snappy_blocks(data: bytes) -> list[bytes]:
    """Split the framing of xerial's snappy-java; without it the data is one raw block."""
    if not data.startswith(_XERIAL_MAGIC):
        return [data]
    blocks, position = [], _XERIAL_HEADER_BYTES
    while position < len(data):
        if data.startswith(_XERIAL_MAGIC, position):
            position += _XERIAL_HEADER_BYTES
            continue
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise ValueError(f"a snappy block of {length} bytes, with {len(data) - position} left")
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _snappy(block: bytes) -> Any:
    """A raw block begins with its plain size, as an unsigned varint."""
    size = shift = position = 0
    while True:
        octet = block[position]
        position += 1
        size |= (octet & 127) << shift
        if octet < 128:
            break
        shift += 7
    if size > len(block) * 64:
        raise ValueError(f"a snappy block of {len(block)} bytes says that it holds {size}")
    return _SNAPPY.decompress(block, size, asbytes=True)
