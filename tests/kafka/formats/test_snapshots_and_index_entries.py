"""Producer snapshots and index entries: round trips, damage, and what Kafka wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_folders import RECORDED

from engine.common.errors import CorruptFileError
from engine.kafka.formats.index_entries import (
    ABORTED_TRANSACTION_ENTRY,
    AbortedTransaction,
    encode_aborted_transaction,
    iter_aborted_transactions,
    iter_offset_index,
    iter_time_index,
)
from engine.kafka.formats.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)

INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
ENTRIES = st.builds(ProducerSnapshotEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64)
ABORTED = st.builds(AbortedTransaction, INT64, INT64, INT64, INT64)


@given(st.lists(ENTRIES, max_size=5))
def test_snapshots_read_back(entries: list[ProducerSnapshotEntry]) -> None:
    assert decode_producer_snapshot(encode_producer_snapshot(entries)) == entries


@given(st.lists(ENTRIES, min_size=1, max_size=3), st.data())
def test_a_flipped_bit_in_a_snapshot_is_noticed(entries: list[ProducerSnapshotEntry], data: st.DataObject) -> None:
    encoded = bytearray(encode_producer_snapshot(entries))
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptFileError):
        decode_producer_snapshot(bytes(encoded))


@given(st.binary(max_size=60))
def test_garbage_is_no_snapshot(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        decode_producer_snapshot(data)


def test_kafkas_snapshots_are_written_the_same() -> None:
    paths = sorted((RECORDED / "clean" / "data").rglob("*.snapshot"))
    assert len(paths) > 20
    for path in paths:
        assert encode_producer_snapshot(decode_producer_snapshot(path.read_bytes())) == path.read_bytes()


@given(st.lists(ABORTED, max_size=5))
def test_aborted_transactions_read_back(transactions: list[AbortedTransaction]) -> None:
    data = b"".join(map(encode_aborted_transaction, transactions))
    assert list(iter_aborted_transactions(data)) == transactions
    assert list(iter_aborted_transactions(data + b"torn")) == transactions


def test_an_aborted_transaction_of_a_later_version_is_refused() -> None:
    with pytest.raises(CorruptFileError, match="version 1"):
        list(iter_aborted_transactions(ABORTED_TRANSACTION_ENTRY.pack(1, 1, 2, 3, 4)))


def test_index_entries_are_relative_to_the_segment() -> None:
    assert list(iter_offset_index(bytes([0, 0, 0, 5, 0, 0, 1, 0]) + b"torn", 100)) == [(105, 256)]
    assert list(iter_time_index(bytes([0] * 7) + bytes([9, 0, 0, 0, 5]) + b"torn", 100)) == [(9, 105)]
