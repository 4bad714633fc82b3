"""Converts entries of a segment's three index files (offset, time, transactions) between bytes and values.

All entries are big-endian and have a fixed size. In the first two files, offsets are relative to the base offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from engine.common.errors import CorruptFileError

OFFSET_ENTRY = struct.Struct(">ii")
"""relative_offset, position"""

TIME_ENTRY = struct.Struct(">qi")
"""timestamp_ms, relative_offset"""

ABORTED_TRANSACTION_ENTRY = struct.Struct(">hqqqq")
"""version, producer_id, first_offset, last_offset, last_stable_offset"""

ABORTED_TRANSACTION_VERSION = 0

RELATIVE_OFFSET_MAX = 2**31 - 1


class OffsetPosition(NamedTuple):
    """The batch with last offset ``offset`` (or the append that ended with it) starts at ``position``."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """``timestamp_ms`` is the largest so far; the batch that has it ends with ``offset``."""

    timestamp_ms: int
    offset: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction. ``last_stable_offset`` is the value right after the write of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def iter_offset_index(data: bytes, base_offset: int) -> Iterator[OffsetPosition]:
    """Yield every whole entry, those of a preallocated tail too."""
    for relative_offset, position in OFFSET_ENTRY.iter_unpack(_whole(data, OFFSET_ENTRY.size)):
        yield OffsetPosition(base_offset + relative_offset, position)


def iter_time_index(data: bytes, base_offset: int) -> Iterator[TimestampOffset]:
    """Yield every whole entry, those of a preallocated tail too."""
    for timestamp_ms, relative_offset in TIME_ENTRY.iter_unpack(_whole(data, TIME_ENTRY.size)):
        yield TimestampOffset(timestamp_ms, base_offset + relative_offset)


def encode_aborted_transaction(transaction: AbortedTransaction) -> bytes:
    """Return the 34 bytes of an entry."""
    return ABORTED_TRANSACTION_ENTRY.pack(ABORTED_TRANSACTION_VERSION, *transaction)


def iter_aborted_transactions(data: bytes) -> Iterator[AbortedTransaction]:
    """Yield every whole entry.

    Raises:
        CorruptFileError: an entry has a version that this code does not know.
    """
    entries = ABORTED_TRANSACTION_ENTRY.iter_unpack(_whole(data, ABORTED_TRANSACTION_ENTRY.size))
    for version, producer_id, first_offset, last_offset, last_stable_offset in entries:
        if version > ABORTED_TRANSACTION_VERSION:
            raise CorruptFileError(
                f"Unexpected aborted transaction version {version}; the newest known is {ABORTED_TRANSACTION_VERSION}"
            )
        yield AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset)


def _whole(data: bytes, entry_size: int) -> bytes:
    return data[: len(data) - len(data) % entry_size]
