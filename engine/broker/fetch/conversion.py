"""Converts records for readers from before format 2 (Fetch 0–3) to the old format, off the event loop.

One batch may unpack to a hundred times its size. So a thread does all the work, one portion at most per answer; the
reader asks again for the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from time import perf_counter

from engine.broker.fetch.reads import BATCHES_VERSION, FetchReads
from engine.broker.log.file_range import OpenFile, read_fully
from engine.broker.replication.partition_read import PartitionRead
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.convert import down_convert
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.layout import LOG_OVERHEAD

DOWN_CONVERTED_BYTES_MAX = 128 * 1024
"""Bytes in the log to convert for one answer: usually a few milliseconds' work."""

Converted = list[tuple[PartitionRead, bytes | None]]
"""For each partition: what was read, or why it cannot be returned, and its records in the old format."""

_SIZE_OF_ENTRY = struct.Struct(">qi")


def needs_conversion(api_version: int, reads: FetchReads) -> bool:
    """Return whether the reader would not understand some of the records."""
    return api_version < BATCHES_VERSION and any(read.records is not None for read in reads.reads)


class Conversion:
    """The conversion of what was read for one answer."""

    def __init__(self, api_version: int, fetch_offsets: Sequence[int], reads: Sequence[PartitionRead]) -> None:
        self._magic = 0 if api_version < 2 else 1
        self._wanted = list(zip(fetch_offsets, reads, strict=True))
        self.counts: list[int] = []
        """The number of records that were converted, for each partition."""
        self.took_s = 0.0

    def run(self) -> Converted:
        """Convert, within the limits of one answer. Safe in any thread: the files stay open until it is done."""
        begun_s = perf_counter()
        budget = DOWN_CONVERTED_BYTES_MAX
        results: Converted = []
        for fetch_offset, read in self._wanted:
            records: bytes | None = None
            count = 0
            try:
                records, used_bytes, count = _records(read, self._magic, fetch_offset, budget)
                budget -= used_bytes
            except KafkaError as error:
                read = PartitionRead(error.code)
            except OSError:
                read = PartitionRead(ErrorCode.KAFKA_STORAGE_ERROR)
            results.append((read, records))
            self.counts.append(count)
        self.took_s = perf_counter() - begun_s
        return results


def _records(read: PartitionRead, magic: int, fetch_offset: int, budget: int) -> tuple[bytes | None, int, int]:
    """Return records in the old format, their size in the log and their number; None if there are none for now.

    A portion with nothing for such a reader (control batches) must not end the answer, or the reader would ask forever.
    """
    used_bytes = 0
    if read.records is None:
        return None, used_bytes, 0
    position, end = read.records.position, read.records.position + read.records.size_bytes
    while position < end and used_bytes < budget:
        portion = _whole_batches(read.records.file, position, end, budget - used_bytes)
        if not portion:
            break
        position += len(portion)
        used_bytes += len(portion)
        records = down_convert(portion, magic, fetch_offset)
        if records:
            headers = [header for _, header in iter_batches(portion)]
            count = sum(h.record_count for h in headers if h.magic > magic and not h.is_control)
            return records, used_bytes, count
    return None, used_bytes, 0


def _whole_batches(file: OpenFile, position: int, end: int, size_wanted: int) -> bytes:
    """Return about ``size_wanted`` bytes of whole batches, at least one batch if one is whole before ``end``."""
    if end - position < LOG_OVERHEAD:
        return b""
    _, length = _SIZE_OF_ENTRY.unpack(read_fully(file.fd, position, LOG_OVERHEAD))
    size = min(end - position, max(size_wanted, LOG_OVERHEAD + length))
    data = read_fully(file.fd, position, size)
    whole = sum(header.size_bytes for _, header in iter_batches(data))
    return data[:whole]
