"""The leader's checks of produced batch headers, before it looks at any record."""

from __future__ import annotations

from engine.common.errors import ErrorCode
from engine.kafka.protocol.records.append_rules import RefusedAppend, RefusedAs
from engine.kafka.protocol.records.header import BatchHeader


def check_batch(header: BatchHeader, *, from_client: bool = True) -> None:
    """Check a batch's header as the leader does before it appends the batch.

    Raises:
        KafkaError: INVALID_RECORD if counts and offsets contradict each other, or a client sends control records, a
            base offset other than 0, or a producer id without a sequence.
    """
    if not from_client or header.magic < 2:
        return
    if header.base_offset != 0:
        raise invalid_append(f"the base offset of an appended batch must be 0, but it is {header.base_offset}", None)
    if header.record_count <= 0:
        raise invalid_append(f"a batch says that it has {header.record_count} records")
    if header.last_offset_delta + 1 != header.record_count:
        raise invalid_append(
            f"a batch's offsets [{header.base_offset}, {header.last_offset}] and its count of records "
            f"{header.record_count} contradict each other"
        )
    if header.is_control:
        raise invalid_append("clients are not allowed to write control records")
    if header.has_producer_id and header.base_sequence < 0:
        raise invalid_append(f"producer id {header.producer_id} comes with the invalid sequence {header.base_sequence}")


def invalid_append(message: str, counted: RefusedAs | None = RefusedAs.INVALID_SEQUENCE) -> RefusedAppend:
    """Return INVALID_RECORD with the text."""
    return RefusedAppend(ErrorCode.INVALID_RECORD, message, {} if counted is None else {counted: 1})
