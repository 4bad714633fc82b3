"""Which batches belong to aborted transactions, and which markers have nothing left to mark."""

from __future__ import annotations

import struct

import pytest
from log_folders import marker_batch

from engine.broker.log.cleaner.transactions import CleanedTransactions
from engine.kafka.formats.index_entries import AbortedTransaction
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import BatchHeader, read_batch_header
from engine.kafka.protocol.records.record import Record

FIRST = AbortedTransaction(7, first_offset=10, last_offset=19, last_stable_offset=20)
SECOND = AbortedTransaction(7, first_offset=30, last_offset=39, last_stable_offset=40)


def data(offset: int, producer_id: int = 7, *, transactional: bool = True) -> BatchHeader:
    records = [Record(key=b"k", value=b"v", timestamp_ms=1)]
    return read_batch_header(
        encode_batch(
            records,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
    )


def is_unneeded(walk: CleanedTransactions, offset: int, *, commit: bool, producer_id: int = 7) -> bool:
    """Pass a marker to the walk, and return whether it is unneeded."""
    batch = bytearray(marker_batch(producer_id, 0, commit=commit))
    struct.pack_into(">q", batch, 0, offset)
    return walk.on_control(batch, 0, read_batch_header(batch))


def test_data_from_an_abort_s_first_offset_to_its_marker_is_aborted() -> None:
    walk = CleanedTransactions([SECOND, FIRST])
    assert [walk.on_data(data(offset)) for offset in (9, 10, 19)] == [False, True, True]
    assert not walk.on_data(data(15, 8)), "another producer's"
    assert not walk.on_data(data(15, transactional=False))
    assert not is_unneeded(walk, 20, commit=False)
    assert not walk.on_data(data(25)), "between the two"
    assert walk.on_data(data(30))
    assert not is_unneeded(walk, 40, commit=False)
    assert walk.kept == [FIRST, SECOND]


@pytest.mark.parametrize("order", [[FIRST, SECOND], [SECOND, FIRST]])
def test_an_abort_whose_data_is_gone_needs_no_marker(order: list[AbortedTransaction]) -> None:
    walk = CleanedTransactions(order)
    assert is_unneeded(walk, 20, commit=False)
    assert walk.on_data(data(30))
    assert not is_unneeded(walk, 40, commit=False)
    assert walk.kept == [SECOND]


def test_an_abort_is_reached_by_its_marker_too() -> None:
    """All data of the first transaction is gone, so only its marker ends it: what follows belongs to the next one."""
    walk = CleanedTransactions([FIRST])
    assert is_unneeded(walk, 20, commit=False)
    assert not walk.on_data(data(21))


def test_a_commit_marker_is_needed_while_there_is_data_before_it() -> None:
    walk = CleanedTransactions([])
    assert not walk.on_data(data(1))
    assert not is_unneeded(walk, 2, commit=True)
    assert is_unneeded(walk, 3, commit=True), "the data stood before the first"


def test_a_marker_without_its_record_and_one_of_an_unknown_kind() -> None:
    walk = CleanedTransactions([])
    empty = encode_batch([], base_offset=5, last_offset=5, producer_id=7, transactional=True, control=True)
    assert walk.on_control(empty, 0, read_batch_header(empty))
    record = Record(key=struct.pack(">hh", 0, 5), value=b"", timestamp_ms=1)
    other = encode_batch([record], producer_id=7, transactional=True, control=True)
    assert not walk.on_control(other, 0, read_batch_header(other)), "what nobody here understands stays"
