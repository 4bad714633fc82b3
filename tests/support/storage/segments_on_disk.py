"""Reads a partition's segment files with nothing but struct: tests must not trust the code they test."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_HEADER = struct.Struct(">qiibIhiqqqhii")


class StoredBatch(NamedTuple):
    """The header of a v2 batch as the file has it."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def codec(self) -> str:
        """Name of the codec in the attributes."""
        return CODECS[self.attributes & 7]


def stored_batches(log_dir: Path, topic: str, partition: int = 0) -> Iterator[StoredBatch]:
    """Yield the headers of all batches of a partition, in order."""
    for path in sorted((log_dir / f"{topic}-{partition}").glob("*.log")):
        data, position = path.read_bytes(), 0
        while position + _HEADER.size <= len(data):
            batch = StoredBatch(*_HEADER.unpack_from(data, position))
            yield batch
            position += 12 + batch.length


def codecs_on_disk(log_dir: Path, topic: str, partition: int = 0) -> set[str]:
    """Return the codecs of a partition's batches."""
    return {batch.codec for batch in stored_batches(log_dir, topic, partition)}
