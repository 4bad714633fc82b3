"""Converts between message formats: old producers' messages to version 2, and batches to v0 or v1 for old consumers.

A conversion to an old format loses what that format has no field for: headers, control batches, producer state, and
in v0 timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.compression import DECOMPRESSED_BYTES_MAX
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.layout import Buffer
from engine.kafka.protocol.records.legacy import Message, encode_message_set
from engine.kafka.protocol.records.record import Record

DOWN_CONVERTED_RECORDS_MAX = 1_000_000
"""Maximum records in a batch to convert: all of them are in memory then, at some 200 bytes each."""


def down_convert(buffer: Buffer, magic: int, first_offset: int, *, size_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return the buffer's complete batches as messages of format v0 or v1, for Fetch 0-1 (magic 0) and 2-3 (magic 1).

    It leaves out control batches and keeps all other records, whatever the outcome of their transaction, because
    these clients read uncommitted. Compressed batches keep their codec. From an uncompressed batch it drops the
    records below ``first_offset``: such clients take the first message for the one they asked for. Batches that
    already have an old enough format stay as they are.

    Raises:
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE if the first batch is zstd (before a later one the answer just ends,
            as in Kafka); MESSAGE_TOO_LARGE for a batch of more than ``DOWN_CONVERTED_RECORDS_MAX`` records; or the
            errors of ``iter_records``.
    """
    parts: list[bytes] = []
    for position, header in iter_batches(buffer):
        if header.is_control:
            continue
        if header.codec is Codec.ZSTD:
            if parts:
                break
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"the batch at offset {header.base_offset} is zstd, which this version of Fetch cannot carry",
            )
        if header.magic <= magic:
            parts.append(bytes(buffer[position : position + header.size_bytes]))
        else:
            parts.append(_down_convert_batch(buffer, position, header, magic, first_offset, size_max))
    return b"".join(parts)


def in_old_format(buffer: Buffer, magic: int) -> bytes:
    """Return an append's one version 2 batch as messages of v0 or v1, for a log in that format.

    Raises:
        KafkaError: UNSUPPORTED_FOR_MESSAGE_FORMAT if the old format has no field for something in the batch: a
            producer's sequences, a transaction, headers. UNSUPPORTED_COMPRESSION_TYPE for zstd.
    """
    for position, header in iter_batches(buffer):
        if header.has_producer_id or header.is_transactional or header.is_control:
            kind = "Transactional" if header.is_transactional else "Idempotent"
            raise _has_no_place(f"{kind} records cannot be used with magic version {magic}")
        if any(record.headers for record in iter_batch_records(buffer, position, header)):
            raise _has_no_place(f"Magic v{magic} does not support record headers")
    return down_convert(buffer, magic, 0)


def to_v2(
    messages: Iterable[Message],
    *,
    base_offset: int,
    codec: Codec,
    level: int | None = None,
    partition_leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int | None = None,
) -> bytes:
    """Return one version 2 batch with all messages of an old producer, numbered from ``base_offset``."""
    return encode_batch(
        (Record(timestamp_ms=message.timestamp_ms, key=message.key, value=message.value) for message in messages),
        base_offset=base_offset,
        codec=codec,
        level=level,
        partition_leader_epoch=partition_leader_epoch,
        timestamp_type=timestamp_type,
        log_append_time_ms=log_append_time_ms,
    )


def _has_no_place(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, sentence)


def _down_convert_batch(
    buffer: Buffer, position: int, header: BatchHeader, magic: int, first_offset: int, size_max: int
) -> bytes:
    if header.record_count > DOWN_CONVERTED_RECORDS_MAX:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch at offset {header.base_offset} has {header.record_count} records, and no more than "
            f"{DOWN_CONVERTED_RECORDS_MAX} are converted for an old reader",
        )
    records = list(iter_batch_records(buffer, position, header, size_max=size_max))
    if not header.is_compressed:
        records = [record for record in records if record.offset >= first_offset]
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return encode_message_set(
        records,
        magic,
        codec=header.codec,
        timestamp_type=TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
        log_append_time_ms=header.max_timestamp if is_append_time else None,
    )
