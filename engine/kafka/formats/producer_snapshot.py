"""The ``.snapshot`` file: what a partition knows about its producers at the offset in the file's name.

Layout (Kafka's ProducerSnapshot, version 1): version i16, crc u32 (CRC-32C of all after it), then an array of entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from engine.common.errors import CorruptFileError

SNAPSHOT_VERSION = 1

_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6


class ProducerSnapshotEntry(NamedTuple):
    """One producer. ``last_offset`` and ``current_txn_first_offset`` are -1 if there is none.

    It is a tuple in the order of the file: a roll creates one per producer, and blocks the event loop while it does.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_producer_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """Return a file's bytes; the entries keep their order."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    data = bytearray(_HEADER.pack(SNAPSHOT_VERSION, 0, len(packed)) + b"".join(packed))
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CRC_START:]))
    return bytes(data)


def decode_producer_snapshot(data: bytes) -> list[ProducerSnapshotEntry]:
    """Return a file's entries.

    Raises:
        CorruptFileError: unknown version, wrong size or wrong CRC.
    """
    if len(data) < _HEADER.size:
        raise CorruptFileError(f"Producer snapshot has {len(data)} bytes, fewer than its header")
    version, crc, count = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptFileError(f"Producer snapshot has the unknown version {version}")
    computed_crc = crc32c(memoryview(data)[_CRC_START:])
    if crc != computed_crc:
        raise CorruptFileError(f"Producer snapshot is corrupt: stored crc {crc}, computed crc {computed_crc}")
    if count < 0 or len(data) < _HEADER.size + count * _ENTRY.size:
        raise CorruptFileError(f"Producer snapshot has {len(data)} bytes, too few for its {count} entries")
    body = memoryview(data)[_HEADER.size : _HEADER.size + count * _ENTRY.size]
    return [ProducerSnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(body)]
