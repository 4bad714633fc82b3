"""Producer rules that appends seldom exercise: what a snapshot keeps, and what a log with a new start forgets."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_folders import data_batch

from engine.broker.log.append_origin import AppendOrigin, CommitMarker
from engine.broker.log.placed_batches import AppendTerms
from engine.broker.log.producer_sequences import CompletedTransaction, ProducerAppend, ProducerEntry, Verification
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


@pytest.mark.parametrize(
    ("first_offset", "last_sequence", "epoch", "sequence", "must_verify", "is_next"),
    [
        (20, 4, 3, 5, True, True),
        (20, 4, 3, 6, True, False),
        (20, 4, 2, 5, True, False),
        (20, 4, 4, 5, True, False),
        (20, 2**31 - 1, 3, 0, True, True),
        (20, 2**31 - 2, 3, 2**31 - 1, True, True),
        (20, 0, 3, 1, True, True),
        (-1, 4, 3, 5, True, False),
        (-1, 4, 3, 5, False, True),
        (20, 4, 3, 5, False, True),
    ],
)
def test_which_batches_plainly_go_on_in_a_transaction(
    first_offset: int, last_sequence: int, epoch: int, sequence: int, must_verify: bool, is_next: bool
) -> None:
    entry = ProducerEntry(7, 3, current_txn_first_offset=first_offset, batches=[(last_sequence, 24, 4, 100)])
    assert entry.is_continued_in_transaction(epoch, sequence, None, must_verify=must_verify) is is_next


def test_a_batch_without_a_sequence_goes_on_in_no_transaction() -> None:
    entry = ProducerEntry(7, 3, current_txn_first_offset=20)
    assert not entry.is_continued_in_transaction(3, entry.next_sequence, None, must_verify=True)


@pytest.mark.parametrize(("is_presented", "lowest", "is_next"), [(True, 5, True), (False, 5, False), (True, 4, False)])
def test_an_approval_counts_while_it_is_presented_and_for_the_lowest_sequence(
    is_presented: bool, lowest: int, is_next: bool
) -> None:
    entry = ProducerEntry(7, 3, batches=[(4, 24, 4, 100)])
    verification = Verification(lowest, 3, 0)
    assert not verification.is_presented
    verification.is_presented = is_presented
    assert entry.is_continued_in_transaction(3, 5, verification, must_verify=True) is is_next


@pytest.mark.parametrize(
    ("epoch", "first_offset", "coordinator_epoch", "is_committed"),
    [
        (3, 20, 6, True),
        (3, 20, 5, True),
        (3, 20, 4, False),
        (2, 20, 6, False),
        (4, 20, 6, False),
        (3, -1, 6, False),
    ],
)
def test_which_markers_plainly_commit(
    epoch: int, first_offset: int, coordinator_epoch: int, is_committed: bool
) -> None:
    entry = ProducerEntry(7, 3, 5, current_txn_first_offset=first_offset)
    assert entry.is_committed_by(CommitMarker(7, epoch, coordinator_epoch)) is is_committed


@pytest.mark.parametrize(
    ("sequence", "epoch", "waits"),
    [(4, 3, (4, 3)), (6, 3, (5, 3)), (5, 3, (5, 3)), (4, 2, (5, 3)), (9, 4, (9, 4)), (1, 4, (1, 4))],
)
def test_of_appends_that_wait_the_first_of_the_newest_epoch_counts(
    sequence: int, epoch: int, waits: tuple[int, int]
) -> None:
    verification = Verification(5, 3, 0)
    verification.note(sequence, epoch)
    assert (verification.lowest_sequence, verification.producer_epoch) == waits


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("approval", ["none", "asked", "presented"])
def test_a_transaction_may_be_written_if_it_is_open_or_approved(is_open: bool, approval: str) -> None:
    verification = None if approval == "none" else Verification(5, 3, 0)
    append = ProducerAppend(
        A, 7, ProducerEntry(7, 3, current_txn_first_offset=20 if is_open else -1), AppendOrigin.CLIENT, verification
    )
    assert append.may_write_transaction is is_open
    if verification is not None and approval == "presented":
        with verification:
            assert append.may_write_transaction
        assert append.may_write_transaction is is_open


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
        assert (Codec.NONE in terms.coordinators_attributes) is is_taken, version


def test_a_coordinators_records_have_keys_and_need_no_look_in_a_compacted_topic() -> None:
    for compression, codecs in (("producer", set(Codec)), ("lz4", {Codec.LZ4})):
        terms = AppendTerms.of(LogConfig(cleanup_policy=("compact",), compression_type=compression))
        assert terms.in_place_attributes == set()
        assert terms.coordinators_attributes == codecs
    stamped = LogConfig(cleanup_policy=("compact",), message_timestamp_type="LogAppendTime")
    assert AppendTerms.of(stamped).coordinators_attributes == set()
    assert not AppendTerms.of(stamped).takes_as_it_is(header_of(), AppendOrigin.COORDINATOR)
    plain = AppendTerms.of(LogConfig(message_timestamp_type="LogAppendTime"))
    assert plain.coordinators_attributes == plain.in_place_attributes == set(Codec)
    assert not plain.takes_as_it_is(header_of(), AppendOrigin.COORDINATOR)
