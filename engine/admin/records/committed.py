"""Which batches of a fetched range a reader of committed records sees (KIP-98). Pure.

With each answer the broker lists the aborted transactions in the range: producer and first offset. A transaction's
records run from there to its abort marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from engine.kafka.protocol.records.buffers import Buffer
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.iterate import iter_batch_records

_ABORT = b"\x00\x00"
_MARKER_TYPE = slice(2, 4)


class Aborted(Protocol):
    """One aborted transaction, as Fetch reports it."""

    producer_id: int
    first_offset: int


def visible_batches(buffer: Buffer, aborted: Iterable[Aborted] | None) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield each batch's position and header, and whether its records are for the reader.

    Markers never are. With ``aborted`` None (READ_UNCOMMITTED) everything else is.
    """
    waiting = sorted(aborted or (), key=lambda transaction: transaction.first_offset, reverse=True)
    aborting: set[int] = set()
    for position, header in iter_batches(buffer):
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborting.add(waiting.pop().producer_id)
        if header.is_control:
            if header.producer_id in aborting and _is_abort_marker(buffer, position, header):
                aborting.discard(header.producer_id)
            yield position, header, False
        else:
            yield position, header, not (header.is_transactional and header.producer_id in aborting)


def _is_abort_marker(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    for record in iter_batch_records(buffer, position, header):
        return record.key is not None and record.key[_MARKER_TYPE] == _ABORT
    return False
