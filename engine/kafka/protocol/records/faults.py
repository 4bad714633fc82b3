"""The errors for bytes that are not records: inner exceptions, and the wire error made from one."""

from __future__ import annotations

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.header import BatchHeader


class BadRecord(Exception):
    """A record contradicts itself; the text says how. It never leaves the record code."""


def invalid_records(header: BatchHeader, fault: str) -> KafkaError:
    """Return INVALID_RECORD naming the batch."""
    return KafkaError(ErrorCode.INVALID_RECORD, f"invalid records in the batch at offset {header.base_offset}: {fault}")


def ends_early(header: BatchHeader) -> KafkaError:
    """Return INVALID_RECORD for a batch with fewer bytes than its records need."""
    return invalid_records(header, f"its bytes end before the {header.record_count} records that it declares")


def past_the_end(length: int, size: int) -> BadRecord:
    return BadRecord(f"a record's length of {length} reaches past the {size} bytes of all records")


def wrong_length(difference: int) -> BadRecord:
    return BadRecord(f"a record's fields take {difference:+} bytes beside the length it declares")


def left_over(size: int, count: int) -> BadRecord:
    return BadRecord(f"{size} bytes are left after the {count} records that it declares")


class Corrupt(Exception):
    """The compressed bytes are not what their codec says; the text says how."""


class TooLarge(Exception):
    """The plain bytes would not fit the limit."""
