"""Producer rules that appends seldom exercise: what a snapshot keeps, and what a log with a new start forgets."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_folders import data_batch

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.placed_batches import AppendTerms
from engine.broker.log.producer_entry import CompletedTransaction, ProducerAppend, ProducerEntry
from engine.broker.log.producer_snapshots import ProducerSnapshots
from engine.broker.log.producer_state import LATE_TRANSACTION_BUFFER_MS, ProducerStateManager
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.producer_snapshot import ProducerSnapshotEntry
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.header import BatchHeader, read_batch_header
from engine.kafka.protocol.records.layout import CONTROL_BIT

A = TopicPartition("t", 0)


def state(folder: Path) -> ProducerStateManager:
    return ProducerStateManager(A, ProducerSnapshots.list_folder(folder), expiration_ms=1_000)


def snapshot_at(producers: ProducerStateManager, offset: int) -> int | None:
    producers.map_end_offset = offset
    return producers.take_snapshot()


def open_transaction(producers: ProducerStateManager, first_offset: int, timestamp_ms: int) -> None:
    append = ProducerAppend(A, 7, None, AppendOrigin.CLIENT)
    append.updated.current_txn_first_offset = first_offset
    append.updated.last_timestamp_ms = timestamp_ms
    append.started_transactions.append(first_offset)
    producers.apply(append)


def test_an_entry_tells_of_its_last_batch() -> None:
    entry = ProducerEntry(7, 3, batches=[(4, 20, 4, 100), (9, 31, 4, 200)])
    assert (entry.last_sequence, entry.last_offset, entry.next_sequence) == (9, 31, 10)
    empty = ProducerEntry(7, 3)
    assert (empty.last_sequence, empty.last_offset) == (-1, -1)


def test_a_snapshot_of_a_producer_without_batches_has_kafkas_values() -> None:
    """After a marker alone, ProducerStateManager.writeSnapshot of Kafka 3.9 writes -1, -1 and 0."""
    kept = ProducerEntry(7, 3, 5, 100).to_snapshot()
    assert kept == ProducerSnapshotEntry(7, 3, -1, -1, 0, 100, 5, -1)


@pytest.mark.parametrize(("timestamp_ms", "is_late"), [(0, False), (1, True), (2, True)])
def test_a_transaction_without_a_time_is_never_late(tmp_path: Path, timestamp_ms: int, is_late: bool) -> None:
    producers = state(tmp_path)
    open_transaction(producers, 10, timestamp_ms)
    assert producers.has_late_transaction(LATE_TRANSACTION_BUFFER_MS + 10_000, 1_000) is is_late


def test_a_snapshot_at_the_logs_start_goes_for_nothing_is_before_it(tmp_path: Path) -> None:
    producers = state(tmp_path)
    for offset in (5, 10, 15):
        snapshot_at(producers, offset)
    producers.truncate_and_reload(5, 12, now_ms=0)
    assert producers.snapshots.offsets == (10,)


def test_a_log_that_begins_anew_has_no_snapshots_and_takes_the_next_one(tmp_path: Path) -> None:
    producers = state(tmp_path)
    for offset in (5, 10):
        snapshot_at(producers, offset)
    producers.truncate_fully_and_start_at(1)
    assert producers.snapshots.offsets == ()
    assert producers.take_snapshot() == 1


def test_a_transaction_before_the_logs_start_is_stable(tmp_path: Path) -> None:
    producers = state(tmp_path)
    open_transaction(producers, 10, 100)
    producers.complete(CompletedTransaction(7, 10, 14, False))
    assert producers.first_unstable_offset == 10
    producers.on_log_start_offset(14)
    assert producers.first_unstable_offset == 10
    producers.on_log_start_offset(15)
    assert producers.first_unstable_offset is None


def header_of(attributes: int = 0) -> BatchHeader:
    batch = data_batch(b"v")
    batch[22] = attributes
    return read_batch_header(batch, 0)


def test_which_batches_are_stored_without_a_look_at_their_records() -> None:
    terms = AppendTerms.of(LogConfig())
    for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
        assert terms.takes_as_it_is(header_of(), origin)
    assert terms.takes_as_it_is(header_of(CONTROL_BIT), AppendOrigin.COORDINATOR)
    assert not terms.takes_as_it_is(header_of(CONTROL_BIT), AppendOrigin.CLIENT)


def test_a_topic_in_an_old_format_takes_no_batch_as_it_is() -> None:
    for version, is_taken in (("0.9.0", False), ("0.10.0", False), ("0.11.0", True)):
        terms = AppendTerms.of(LogConfig(message_format_version=version))
        assert terms.takes_from_coordinator(Codec.NONE, AppendOrigin.COORDINATOR) is is_taken, version
