"""Reads the records of any batch: version 2, or messages of v0 and v1, compressed or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.kafka.protocol.records.buffers import Buffer
from engine.kafka.protocol.records.compression import DECOMPRESSED_BYTES_MAX
from engine.kafka.protocol.records.decode import iter_section, record_section, section_values
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.legacy import iter_messages
from engine.kafka.protocol.records.record import Record


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
