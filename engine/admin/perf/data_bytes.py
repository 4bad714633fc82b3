"""How many bytes of keys and values a batch has, as kafka-consumer-perf-test counts them. Pure.

Walks through the records without building any: a consumer that only counts needs no more.
"""

from __future__ import annotations

from engine.kafka.protocol.records.buffers import Buffer
from engine.kafka.protocol.records.compression import DECOMPRESSED_BYTES_MAX
from engine.kafka.protocol.records.decode import record_section
from engine.kafka.protocol.records.faults import ends_early
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.iterate import iter_batch_records
from engine.kafka.protocol.records.varint import read_tail, read_varint


def count_data(buffer: Buffer, position: int, header: BatchHeader) -> tuple[int, int]:
    """Return how many records the batch at the position has, and the bytes of their keys and values.

    Raises:
        KafkaError: the bytes are not records.
    """
    if header.magic < 2:
        sizes = [len(r.key or b"") + len(r.value or b"") for r in iter_batch_records(buffer, position, header)]
        return len(sizes), sum(sizes)
    section = record_section(buffer, position, header, DECOMPRESSED_BYTES_MAX)
    try:
        return header.record_count, _walk(section, header.record_count)
    except IndexError:
        raise ends_early(header) from None


def _walk(data: bytes, count: int) -> int:
    position = total = 0
    for _ in range(count):
        size, position = read_varint(data, position)
        end = position + size
        position += 1
        # Only the ends of time and offset matter.
        while data[position] > 127:
            position += 1
        position += 1
        while data[position] > 127:
            position += 1
        position += 1
        for _part in (0, 1):
            number = data[position]
            position += 1
            if number > 127:
                number, position = read_tail(data, position, number)
            if not number & 1:
                total += number >> 1
                position += number >> 1
        position = end
    return total
