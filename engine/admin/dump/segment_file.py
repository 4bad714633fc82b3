"""Reads batches of a segment file, a window at a time: of any size, and even while a broker is writing to it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from engine.kafka.protocol.records.header import BatchHeader, iter_batches

_WINDOW_BYTES = 1024 * 1024
_LENGTH = struct.Struct(">8xi")


class FileBatch(NamedTuple):
    """One whole batch: its position in the file, and its bytes."""

    position: int
    header: BatchHeader
    data: memoryview


def read_file_batches(file: BinaryIO, position: int = 0, end: int | None = None) -> Iterator[FileBatch]:
    """Yield the whole batches from the position on that end before ``end`` or the file's end.

    Raises:
        KafkaError: CORRUPT_MESSAGE at a batch whose length or magic is invalid.
    """
    window = _WINDOW_BYTES
    while True:
        file.seek(position)
        size = window if end is None else min(window, end - position)
        data = file.read(size)
        consumed = 0
        view = memoryview(data)
        for start, header in iter_batches(data):
            consumed = start + header.size_bytes
            yield FileBatch(position + start, header, view[start:consumed])
        if consumed:
            window = _WINDOW_BYTES
        elif len(data) < window or len(data) < _LENGTH.size:
            return
        else:
            # One batch is larger than the window.
            window = _LENGTH.size + _LENGTH.unpack_from(data)[0]
            if window <= len(data):
                return
        position += consumed
