"""What the broker must know about a batch's records before an append, without creating any record object.

It checks the same structure as ``decode``, field by field, at about half the cost.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.decode import read_headers
from engine.kafka.protocol.records.faults import (
    BadRecord,
    ends_early,
    invalid_records,
    left_over,
    past_the_end,
    wrong_length,
)
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.varint import read_tail


class SectionFacts(NamedTuple):
    """Facts about all records of one batch. Timestamps are the records' own, even under LogAppendTime."""

    min_timestamp: int
    """Smallest timestamp of a record that has one; -1 if none has."""
    max_timestamp: int
    has_null_key: bool
    offsets_in_order: bool
    """Whether the offset deltas are 0, 1, 2 …: then stamping the base offset is enough to place the batch."""


def scan_section(header: BatchHeader, section: bytes) -> SectionFacts:
    """Walk through the uncompressed record section of a version 2 batch.

    Raises:
        KafkaError: INVALID_RECORD if the bytes are not exactly ``header.record_count`` well-formed records.
    """
    if header.record_count < 0:
        raise invalid_records(header, f"it declares {header.record_count} records")
    try:
        min_delta, max_delta, has_null_key, in_order = _scan(section, header.record_count, -1 - header.base_timestamp)
    except IndexError:
        raise ends_early(header) from None
    except BadRecord as error:
        raise invalid_records(header, str(error)) from None
    base = header.base_timestamp
    return SectionFacts(
        min_timestamp=layout.NO_TIMESTAMP if min_delta is None else base + min_delta,
        max_timestamp=layout.NO_TIMESTAMP if max_delta is None else max(layout.NO_TIMESTAMP, base + max_delta),
        has_null_key=has_null_key,
        offsets_in_order=in_order,
    )


def _scan(data: bytes, count: int, no_timestamp_delta: int) -> tuple[int | None, int | None, bool, bool]:
    """Return (smallest delta, largest delta, a key is null, offsets in order). Reads numbers as ``decode`` does.

    ``no_timestamp_delta`` is the delta of a record that has no timestamp.
    """
    position = 0
    size = len(data)
    min_delta = max_delta = None
    has_null_key = False
    in_order = True
    for index in range(count):
        number = data[position]
        position += 1
        if number > 127:
            second = data[position]
            if second < 128:
                number += (second << 7) - 128
                position += 1
            else:
                number, position = read_tail(data, position, number)
        end = position + (number >> 1)
        if number & 1 or end > size:
            raise past_the_end(number >> 1, size)
        position += 1
        number = data[position]
        position += 1
        if number > 127:
            number, position = read_tail(data, position, number)
        delta = number >> 1 ^ -(number & 1)
        if delta != no_timestamp_delta:
            if max_delta is None or delta > max_delta:
                max_delta = delta
            if min_delta is None or delta < min_delta:
                min_delta = delta
        number = data[position]
        position += 1
        if number > 127:
            number, position = read_tail(data, position, number)
        if number != index << 1:
            in_order = False
        number = data[position]
        position += 1
        if number > 127:
            number, position = read_tail(data, position, number)
        if number & 1:
            has_null_key = True
        else:
            position += number >> 1
        number = data[position]
        position += 1
        if number > 127:
            second = data[position]
            if second < 128:
                number += (second << 7) - 128
                position += 1
            else:
                number, position = read_tail(data, position, number)
        if not number & 1:
            position += number >> 1
        if data[position]:
            _, position = read_headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise wrong_length(position - end)
    if position != size:
        raise left_over(size - position, count)
    return min_delta, max_delta, has_null_key, in_order
