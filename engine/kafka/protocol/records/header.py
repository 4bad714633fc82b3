"""Reads, walks and checks the headers of record batches without touching a record.

A message of format v0 or v1 becomes the same value: a single message is a batch of one, and a compressed wrapper is a
batch whose first offset and count are inside its compressed part (see ``BatchHeader``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec, TimestampType, codec_of
from engine.kafka.protocol.records.layout import Buffer

UNKNOWN_COUNT = -1
"""Record count of a compressed v0 or v1 wrapper: only the compressed part has it."""

_HEADER_SIZE_UP_TO_MAGIC = 17
_SEQUENCE_MODULUS = 2**31
_NO_PRODUCER = (layout.NO_PRODUCER_ID, layout.NO_PRODUCER_EPOCH, layout.NO_SEQUENCE)
_new = tuple.__new__


class BatchHeader(NamedTuple):
    """The header of a version 2 batch, field for field, or the part of it that a v0 or v1 message has.

    For magic 0 and 1 ``base_offset`` is the entry's own offset, which in a compressed wrapper is the *last* inner
    message's (``is_wrapper``); ``record_count`` is 1, or ``UNKNOWN_COUNT`` for a wrapper; producer fields and the
    leader epoch are -1; ``base_timestamp`` equals ``max_timestamp`` (v0: -1).
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch in the log, including base offset and length."""
        return layout.LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & layout.CODEC_MASK != 0

    @property
    def is_wrapper(self) -> bool:
        """A compressed message of v0 or v1: ``base_offset`` is the offset of its last inner message."""
        return self.magic < 2 and self.attributes & layout.CODEC_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return (
            TimestampType.LOG_APPEND_TIME if self.attributes & layout.TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME
        )

    @property
    def is_transactional(self) -> bool:
        return self.magic >= 2 and self.attributes & layout.TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.magic >= 2 and self.attributes & layout.CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """``base_timestamp`` is the time after which tombstones may go (KIP-534), not the first record's."""
        return self.magic >= 2 and self.attributes & layout.DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 if the batch has none. Wraps from 2^31-1 to 0."""
        if self.base_sequence == layout.NO_SEQUENCE:
            return layout.NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_MODULUS


def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at the position; its records need not be in the buffer.

    Raises:
        KafkaError: CORRUPT_MESSAGE if there are too few bytes, the magic is unknown or the length makes no sense.
    """
    try:
        magic = buffer[position + layout.MAGIC]
        if magic == 2:
            header: BatchHeader = _new(BatchHeader, layout.BATCH_HEADER.unpack_from(buffer, position))
        elif magic < 2:
            header = _read_legacy_header(buffer, position, magic)
        else:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown magic {magic} of the batch at position {position}")
    except (IndexError, struct.error):
        raise _too_short(buffer, position) from None
    if header.batch_length < _LENGTH_MIN[magic]:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch at position {position} has length {header.batch_length}, less than the minimum "
            f"{_LENGTH_MIN[magic]} of magic {magic}",
        )
    return header


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each complete batch; an incomplete one at the end just ends the walk.

    It neither reads nor checks records, and does not check the checksum.

    Raises:
        KafkaError: CORRUPT_MESSAGE if a length or magic makes no sense.
    """
    end = len(buffer)
    while end - position >= _HEADER_SIZE_UP_TO_MAGIC:
        (length,) = _LENGTH.unpack_from(buffer, position + layout.BATCH_LENGTH)
        if length < _LENGTH_MIN[0]:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"batch at position {position} has length {length}, less than any record's minimum {_LENGTH_MIN[0]}",
            )
        following = position + layout.LOG_OVERHEAD + length
        if following > end:
            return
        yield position, read_batch_header(buffer, position)
        position = following


_LENGTH = struct.Struct(">i")
_LENGTH_MIN = (14, 22, layout.BATCH_OVERHEAD - layout.LOG_OVERHEAD)


def _read_legacy_header(buffer: Buffer, position: int, magic: int) -> BatchHeader:
    if magic == 0:
        offset, length, crc, _, attributes = layout.LEGACY_HEADER_V0.unpack_from(buffer, position)
        timestamp = layout.NO_TIMESTAMP
    else:
        offset, length, crc, _, attributes, timestamp = layout.LEGACY_HEADER_V1.unpack_from(buffer, position)
    count = UNKNOWN_COUNT if attributes & layout.CODEC_MASK else 1
    # In the order of the fields; old producers send one such header per record.
    header: BatchHeader = _new(
        BatchHeader, (offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, *_NO_PRODUCER, count)
    )
    return header


def _too_short(buffer: Buffer, position: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{max(0, len(buffer) - position)} bytes at position {position} are too few for the header of a record batch",
    )
