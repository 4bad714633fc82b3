"""Batches made in advance, to be sent repeatedly with new times and sequence numbers. Pure.

Encoding a record in Python costs more than a broker needs to store it. So some batches are encoded once; each send only
rewrites the header and computes the checksum. All records of a batch have the same timestamp.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Protocol

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Parameter, Phrase
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.compression import compress
from engine.kafka.protocol.records.varint import VARINTS
from engine.runtime.input_files import name_of, read_input_bytes

_MAGIC = 2
_POOL_BYTES_MAX = 8 * 1024 * 1024
_POOL_BATCHES_MAX = 64
_SHORT_RECORD_BYTES = 16


class BatchTemplate:
    """One batch, encoded; its first records alone can be sent, too."""

    __slots__ = ("_codec", "_compressed", "_level", "_payload_ends", "_section", "_section_ends")

    def __init__(self, values: list[bytes], codec: Codec, level: int | None) -> None:
        self._codec = codec
        self._level = level
        self._section, self._section_ends = _encode(values)
        self._payload_ends: list[int] = []
        total = 0
        for value in values:
            total += len(value)
            self._payload_ends.append(total)
        self._compressed = None if codec is Codec.NONE else compress(codec, self._section, level)

    @property
    def record_count(self) -> int:
        return len(self._section_ends)

    def payload_bytes(self, count: int) -> int:
        """Return how many bytes the values of the first ``count`` records have."""
        return self._payload_ends[count - 1]

    def stamped(
        self,
        count: int,
        timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        transactional: bool = False,
    ) -> bytearray:
        """Return the batch of the first ``count`` records as it goes over the wire."""
        batch = bytearray(layout.BATCH_OVERHEAD)
        batch += self._records(count)
        layout.BATCH_HEADER.pack_into(
            batch,
            0,
            0,
            len(batch) - layout.LOG_OVERHEAD,
            -1,
            _MAGIC,
            0,
            self._codec | (layout.TRANSACTIONAL_BIT if transactional else 0),
            count - 1,
            timestamp_ms,
            timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        stamp_crc(batch, 0, len(batch))
        return batch

    def _records(self, count: int) -> bytes | bytearray | memoryview:
        if count == self.record_count:
            return self._section if self._compressed is None else self._compressed
        first = memoryview(self._section)[: self._section_ends[count - 1]]
        return first if self._codec is Codec.NONE else compress(self._codec, first, self._level)


class Templates(Protocol):
    """Where a producer gets its batches from. ``typical_record_count`` is the approximate size of a full batch."""

    typical_record_count: int

    def next_template(self, record_count_max: int) -> BatchTemplate: ...


class TemplatePool:
    """Gives the templates to send, one after the other."""

    def __init__(self, values: Iterator[bytes], batch_bytes: int, codec: Codec, level: int | None = None) -> None:
        pool = _make_pool(values, batch_bytes, codec, level)
        self.typical_record_count = min(template.record_count for template in pool)
        self._templates = cycle(pool)

    def next_template(self, record_count_max: int) -> BatchTemplate:
        """Return the template for the next batch; it may have more records than are wanted."""
        return next(self._templates)


class FreshTemplates:
    """Encodes every batch on demand: for payloads that must not be sent twice. Slower."""

    def __init__(self, values: Iterator[bytes], batch_bytes: int, codec: Codec, level: int | None = None) -> None:
        self._values = _Ahead(values)
        self.typical_record_count = max(1, batch_bytes // _SHORT_RECORD_BYTES)
        self._batch_bytes = batch_bytes
        self._codec = codec
        self._level = level

    def next_template(self, record_count_max: int) -> BatchTemplate:
        """Return a template of values that no other has, with at most the wanted number."""
        return BatchTemplate(_take(self._values, self._batch_bytes, record_count_max), self._codec, self._level)


class _Ahead:
    """An iterator whose next value can be seen before it is taken."""

    def __init__(self, values: Iterator[bytes]) -> None:
        self._values = values
        self.next_value = next(values)

    def take(self) -> bytes:
        value, self.next_value = self.next_value, next(self._values)
        return value


def _make_pool(values: Iterator[bytes], batch_bytes: int, codec: Codec, level: int | None) -> list[BatchTemplate]:
    ahead, pool, used = _Ahead(values), list[BatchTemplate](), 0
    while not pool or (len(pool) < _POOL_BATCHES_MAX and used < _POOL_BYTES_MAX):
        template = BatchTemplate(_take(ahead, batch_bytes), codec, level)
        used += template.payload_bytes(template.record_count)
        pool.append(template)
    return pool


def _take(values: _Ahead, batch_bytes: int, record_count_max: int = 2**31 - 1) -> list[bytes]:
    """Return as many values as fit a batch of that size, at least one."""
    taken = [values.take()]
    used = layout.BATCH_OVERHEAD + _size(taken[0], 0)
    while len(taken) < record_count_max and used + (more := _size(values.next_value, len(taken))) <= batch_bytes:
        taken.append(values.take())
        used += more
    return taken


def _size(value: bytes, index: int) -> int:
    body = len(value) + len(VARINTS[len(value)]) + len(VARINTS[index]) + 4
    return body + len(VARINTS[body])


def _encode(values: list[bytes]) -> tuple[bytearray, list[int]]:
    """Return the record section of values without keys, and where each record ends."""
    section, ends = bytearray(), []
    for index, value in enumerate(values):
        # Attributes, time, offset, no key, value, no headers.
        body = b"".join((b"\x00\x00", VARINTS[index], b"\x01", VARINTS[len(value)], value, b"\x00"))
        section += VARINTS[len(body)]
        section += body
        ends.append(len(section))
    return section, ends


# The values that a performance test sends: random letters, payloads of a file, or rising numbers.

_LETTERS = bytes(65 + byte % 26 for byte in range(256))
_SEED = 0


def random_letters(size_bytes: int) -> Iterator[bytes]:
    """Yield values of A to Z without end, the same ones in every run, as kafka-producer-perf-test does."""
    source = random.Random(_SEED)
    while True:
        yield source.randbytes(size_bytes).translate(_LETTERS)


def drawn_from(payloads: list[bytes]) -> Iterator[bytes]:
    """Yield payloads drawn at random without end, the same ones in every run."""
    source = random.Random(_SEED)
    while True:
        yield source.choice(payloads)


def rising_numbers() -> Iterator[bytes]:
    """Yield 0, 1, 2 … as text."""
    return (b"%d" % number for number in count())


def read_payloads(path: Path, delimiter: str) -> list[bytes]:
    """Read the payloads of a file; an end of line after the last one does not add an empty payload.

    Raises:
        NotFound: there is no such file.
        BadRequest: it is empty, or the delimiter is.
    """
    separator = delimiter.replace("\\n", "\n").replace("\\t", "\t").encode()
    if not separator:
        hint = Phrase("leave ", Parameter.PAYLOAD_DELIMITER, " out for one payload per line")
        raise BadRequest("the delimiter of payloads is empty", hint=hint)
    try:
        data = read_input_bytes(path)
    except FileNotFoundError as error:
        raise NotFound("no such file", where=str(path)) from error
    if not data:
        raise BadRequest("the file of payloads is empty", where=name_of(path))
    return data.removesuffix(separator).split(separator)
