"""Spark event logs: the names of their files, their lines, whatever Spark's codec, and the events of queries in them.

A line is one event as JSON. A log in progress may end anywhere: its last line may be cut off, and a compressed stream
has no end yet.

A log also has an event for each task; this module skips lines that are not about queries without parsing them.
klamm's own listener writes the same lines with ``"Listener": "klamm"`` in front.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import cramjam

from engine.common.errors import CorruptFileError
from engine.kafka.formats.spark_checkpoints import Offsets, kafka_offsets
from engine.kafka.protocol.records import snappy
from engine.kafka.protocol.records.faults import Corrupt, TooLarge

EVENT_CLASS = "org.apache.spark.sql.streaming.StreamingQueryListener$"
LISTENER_MARK = '"Listener":"klamm"'

_QUERY_EVENT = b"StreamingQueryListener$Query"
_HEAD_BYTES = 300

PLAIN_BYTES_MAX = 4 * 1024**3
"""Spark rolls a log over after 128 MB."""

_ROLLED = re.compile(r"events_(\d+)_(.+?)(?:\.(zstd|lz4|snappy|lzf))?(\.compact)?")
_CODECS = ("zstd", "lz4", "snappy", "lzf")

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_LAST_EMPTY_BLOCK = b"\x01\x00\x00"
_ZSTD_RLE = 1
_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBiiI")
_LZ4_RAW = 0x10
_SNAPPY_HEADER_BYTES = 16


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """What one source did in a batch. Offsets are None for sources that are not Kafka's.

    ``latest`` is where the log ended when the batch was planned; a batch that runs again has none.
    """

    description: str
    start: Offsets | None
    end: Offsets | None
    latest: Offsets | None
    row_count: int


@dataclass(frozen=True, slots=True)
class QueryStarted:
    query_id: str
    run_id: str
    name: str | None
    time_ms: int


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A batch is finished."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    started_ms: int
    duration_ms: int
    sources: Sequence[SourceProgress]


@dataclass(frozen=True, slots=True)
class QueryTerminated:
    """A run has ended; ``error`` is the first line of its error."""

    query_id: str
    run_id: str
    error: str | None


QueryEvent = QueryStarted | QueryProgress | QueryTerminated


def is_query_event(line: bytes) -> bool:
    """Return whether a line is about a query, judging by its first bytes."""
    return _QUERY_EVENT in line[:_HEAD_BYTES]


def is_by_listener(line: bytes) -> bool:
    """Return whether klamm's listener wrote the line."""
    return line.startswith(b"{" + LISTENER_MARK.encode())


def decode_query_event(line: bytes, location: str) -> QueryEvent | None:
    """Return a line's event; None for query events without offsets.

    Raises:
        CorruptFileError: it is cut off, or lacks a required field.
    """
    try:
        document = json.loads(line)
        match document["Event"].removeprefix(EVENT_CLASS):
            case "QueryStartedEvent":
                began_ms = _time_ms(document["timestamp"])
                return QueryStarted(document["id"], document["runId"], document.get("name"), began_ms)
            case "QueryProgressEvent":
                return _progress(document["progress"])
            case "QueryTerminatedEvent":
                error = str(document.get("exception") or "").strip().splitlines()
                return QueryTerminated(document["id"], document["runId"], error[0] if error else None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"{location}: not an event of a query: {error}", path=location) from error
    return None


def _progress(progress: Mapping[str, Any]) -> QueryProgress:
    # Spark 2 had no batchDuration.
    duration_ms = progress.get("batchDuration", progress.get("durationMs", {}).get("triggerExecution", 0))
    return QueryProgress(
        str(progress["id"]),
        str(progress["runId"]),
        progress.get("name"),
        int(progress["batchId"]),
        _time_ms(progress["timestamp"]),
        int(duration_ms),
        tuple(_source(source) for source in progress["sources"]),
    )


def _source(source: Mapping[str, Any]) -> SourceProgress:
    return SourceProgress(
        str(source.get("description", "")),
        kafka_offsets(source.get("startOffset")),
        kafka_offsets(source.get("endOffset")),
        kafka_offsets(source.get("latestOffset")),
        int(source.get("numInputRows", 0)),
    )


def _time_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def is_event_log_folder(name: str) -> bool:
    return name.startswith("eventlog_v2_")


def is_event_log_file(name: str) -> bool:
    """Return whether a file outside such a folder can be a log: anything but checksums and hidden files."""
    return not name.startswith((".", "_", "appstatus_"))


def files_in_order(names: list[str]) -> list[str]:
    """Return the event files of a rolling log, oldest first; for compacted files, only the compact file."""
    files = []
    for name in names:
        match = _ROLLED.fullmatch(name)
        if match is not None:
            files.append((int(match[1]), match[4] is not None, name))
    compact = max((number for number, is_compact, _ in files if is_compact), default=0)
    return [
        name
        for number, is_compact, name in sorted(files)
        if number > compact or (number == compact and is_compact) or not compact
    ]


def codec_of(name: str) -> str | None:
    """Return the codec in a file's name."""
    suffix = name.removesuffix(".compact").removesuffix(".inprogress").rpartition(".")[2]
    return suffix if suffix in _CODECS else None


def whole_lines(content: bytes, name: str) -> list[bytes]:
    """Return the complete lines of a file; a line in progress has no line feed yet.

    Raises:
        CorruptFileError: its codec is unknown here, or it is damaged in the middle.
    """
    lines = _plain(content, name).split(b"\n")
    lines.pop()
    return lines


def _plain(content: bytes, name: str) -> bytes:
    codec = codec_of(name)
    try:
        match codec:
            case None:
                return content
            case "zstd":
                return _unzstd(content)
            case "lz4":
                return _unlz4(content)
            case "snappy":
                whole = _whole_snappy(content)
                return snappy.decompress(whole, PLAIN_BYTES_MAX) if whole else b""
    except (Corrupt, TooLarge, OSError, ValueError, cramjam.DecompressionError) as error:
        raise CorruptFileError(f"{name}: damaged: {str(error) or 'too large'}", path=name) from error
    raise CorruptFileError(f"{name}: event logs in {codec} cannot be read; zstd, lz4 and snappy can", path=name)


def _unzstd(content: bytes) -> bytes:
    """Decompress complete blocks: a frame without an end gets one."""
    parts, position = [], 0
    while content.startswith(_ZSTD_MAGIC, position):
        end, is_ended = _end_of_blocks(content, position)
        frame = content[position:end]
        if not is_ended:
            frame += _ZSTD_LAST_EMPTY_BLOCK
            # A checksum would follow the last block.
            frame = frame[:4] + bytes([frame[4] & ~0x04]) + frame[5:] if len(frame) > 8 else b""
        if frame:
            parts.append(bytes(cramjam.zstd.decompress(frame)))
        position = end
        if not is_ended:
            break
    if not parts and content and not content.startswith(_ZSTD_MAGIC[: len(content)]):
        raise Corrupt("no zstd frame")
    return b"".join(parts)


def _end_of_blocks(content: bytes, start: int) -> tuple[int, bool]:
    """Return where a frame, or its available part, ends (RFC 8878), and whether it is complete."""
    if len(content) < start + 5:
        return start, False
    descriptor = content[start + 4]
    is_single = descriptor & 0x20
    position = start + 5 + (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 3]
    position += (1 if is_single else 0, 2, 4, 8)[descriptor >> 6]
    while position + 3 <= len(content):
        block = int.from_bytes(content[position : position + 3], "little")
        size = 1 if block >> 1 & 3 == _ZSTD_RLE else block >> 3
        if position + 3 + size > len(content):
            return position, False
        position += 3 + size
        if block & 1:
            return position + (4 if descriptor & 0x04 else 0), True
    return position, False


def _unlz4(content: bytes) -> bytes:
    """Decompress the blocks of lz4-java's own stream, which is not the LZ4 frame format."""
    parts, position = [], 0
    while position + _LZ4_HEADER.size <= len(content):
        magic, token, packed_size, plain_size, _ = _LZ4_HEADER.unpack_from(content, position)
        if magic != _LZ4_MAGIC or packed_size < 0 or not 0 <= plain_size <= PLAIN_BYTES_MAX:
            raise Corrupt(f"no lz4 block at {position}")
        position += _LZ4_HEADER.size
        packed = content[position : position + packed_size]
        if len(packed) < packed_size:
            break
        if packed_size:
            is_raw = token & 0xF0 == _LZ4_RAW
            parts.append(packed if is_raw else bytes(cramjam.lz4.decompress_block(packed, output_len=plain_size)))
        position += packed_size
    return b"".join(parts)


def _whole_snappy(content: bytes) -> bytes:
    """Return the complete blocks of snappy-java's stream."""
    position = _SNAPPY_HEADER_BYTES
    while position + 4 <= len(content):
        size = int.from_bytes(content[position : position + 4], "big", signed=True)
        if size < 0 or position + 4 + size > len(content):
            break
        position += 4 + size
    return content[:position] if position > _SNAPPY_HEADER_BYTES else b""
