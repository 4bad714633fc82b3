"""Control records that end a transaction, as the log needs them. The codec of all control records is in formats."""

from __future__ import annotations

import struct
from typing import NamedTuple

from engine.common.errors import ErrorCode, KafkaError
from engine.protocol.records.buffers import Buffer
from engine.protocol.records.header import BatchHeader
from engine.protocol.records.iterate import iter_batch_records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")

_ABORT, _COMMIT = 0, 1


class EndTransactionMarker(NamedTuple):
    """A commit or abort marker."""

    is_abort: bool
    coordinator_epoch: int
    timestamp_ms: int


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None where the cleaner has taken it, or where it is of another kind.

    Raises:
        KafkaError: INVALID_RECORD where the control record is malformed.
    """
    record = next(iter(iter_batch_records(buffer, position, header)), None)
    if record is None:
        return None
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error as error:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"the control record at offset {header.base_offset} is malformed"
        ) from error
    return EndTransactionMarker(kind == _ABORT, coordinator_epoch, record.timestamp_ms)
