"""Idempotent producers and transactions as a partition's log sees them: sequences, epochs, markers, stable offset."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from log_folders import StandIn, data_batch, marker_batch, open_log

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.log import Log
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.producer_snapshot import ProducerSnapshotEntry, decode_producer_snapshot

INT_MAX = 2**31 - 1


def send(log: Log, count: int, producer_id: int, producer_epoch: int, base_sequence: int, **options: object) -> int:
    """Append ``count`` records; return the first offset, or minus the error code."""
    batch = data_batch(*[b"v"] * count, producer=(producer_id, producer_epoch, base_sequence), **options)  # type: ignore[arg-type]
    try:
        return log.append_as_leader(batch, 0).first_offset
    except KafkaError as error:
        return -error.code


def end(log: Log, producer_id: int, *, commit: bool, producer_epoch: int = 0, coordinator_epoch: int = 0) -> int:
    marker = marker_batch(producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch)
    offset = log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR).first_offset
    log.update_high_watermark(log.log_end_offset)
    return offset


def reopened(log: Log, environment: StandIn | None = None) -> Log:
    log.flush()
    log.close()
    return open_log(log.dir, log.config, environment)


def crashed(log: Log, environment: StandIn | None = None) -> Log:
    log.abandon()
    return open_log(log.dir, log.config, environment, clean=False)


def test_duplicates_of_the_last_five_batches_are_answered_with_their_offsets(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    firsts = [send(log, 3, 1, 0, 3 * n) for n in range(7)]
    assert firsts == [0, 3, 6, 9, 12, 15, 18]
    assert [send(log, 3, 1, 0, 3 * n) for n in range(2, 7)] == firsts[2:]
    for forgotten in (0, 1):
        assert send(log, 3, 1, 0, 3 * forgotten) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # Part of a batch is not a duplicate.
    assert send(log, 2, 1, 0, 18) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 21


def test_a_batch_that_does_not_fit_begins_a_new_segment_even_if_it_is_not_written(tmp_path: Path) -> None:
    """Kafka rolls before it looks at producers. Where we did not, the segments would differ from here on."""
    for name, again in (("d-0", 0), ("g-0", 7)):
        log = open_log(tmp_path / name, LogConfig(segment_bytes=100))
        send(log, 1, 1, 0, 0)
        assert send(log, 1, 1, 0, again) == (0 if again == 0 else -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert [(segment.base_offset, segment.size_bytes > 0) for segment in log.segments] == [(0, True), (1, False)]


def test_a_duplicate_tells_when_it_was_written(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 2, 1, 0, 0, timestamp_ms=500)
    result = log.append_as_leader(data_batch(b"v", b"v", producer=(1, 0, 0), timestamp_ms=900), 0)
    assert result.is_duplicate
    assert (result.first_offset, result.last_offset, result.log_append_time_ms) == (0, 1, 501)


def test_gaps_are_refused_and_producers_do_not_mix(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    assert send(log, 2, 1, 0, 0) == 0
    assert send(log, 2, 2, 0, 0) == 2
    assert send(log, 1, 1, 0, 3) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1, 1, 0, 2) == 4
    assert send(log, 1, 2, 0, 2) == 5


def test_sequences_wrap(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    assert send(log, 4, 1, 0, INT_MAX - 5) == 0
    assert send(log, 4, 1, 0, INT_MAX - 1) == 4
    assert send(log, 4, 1, 0, INT_MAX - 1) == 4
    assert send(log, 1, 1, 0, 1) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1, 1, 0, 2) == 8
    log = reopened(log)
    assert send(log, 1, 1, 0, 3) == 9


def as_it_is(log: Log) -> Log:
    return log


@pytest.mark.parametrize("again", [as_it_is, reopened, crashed])
def test_after_the_last_sequence_comes_zero(tmp_path: Path, again: Callable[[Log], Log]) -> None:
    now_ms = StandIn().clock.now_ms()
    log = open_log(tmp_path / "t-0")
    assert send(log, 2, 1, 0, INT_MAX - 1, timestamp_ms=now_ms) == 0
    log = again(log)
    assert send(log, 2, 1, 0, INT_MAX - 1, timestamp_ms=now_ms) == 0, "sent again, it is not written again"
    assert send(log, 1, 1, 0, 1, timestamp_ms=now_ms) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 2, 1, 0, 0, timestamp_ms=now_ms) == 2
    assert send(log, 1, 1, 0, 2, timestamp_ms=now_ms) == 4


def test_a_new_epoch_begins_with_sequence_zero_and_fences_the_old(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    assert send(log, 2, 1, 5, 0) == 0
    assert send(log, 1, 1, 6, 2) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1, 1, 6, 0) == 2
    assert send(log, 1, 1, 5, 2) == -ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 1, 1, 6, 1) == 3


@pytest.mark.parametrize("again", [as_it_is, reopened, crashed])
def test_a_batch_of_a_new_epoch_is_never_taken_for_one_of_the_old(tmp_path: Path, again: Callable[[Log], Log]) -> None:
    """Its sequences start over. A batch mistaken for a duplicate would be lost."""
    now_ms = StandIn().clock.now_ms()
    log = open_log(tmp_path / "t-0")
    assert send(log, 1, 1, 0, 0, timestamp_ms=now_ms) == 0
    log = again(log)
    assert send(log, 1, 1, 1, 0, timestamp_ms=now_ms) == 1
    assert send(log, 1, 1, 1, 0, timestamp_ms=now_ms) == 1
    log = again(log)
    assert send(log, 1, 1, 1, 1, timestamp_ms=now_ms) == 2
    assert log.log_end_offset == 3


def test_of_an_unknown_producer_any_sequence_is_taken(tmp_path: Path) -> None:
    """Its records may have been deleted (KIP-360)."""
    log = open_log(tmp_path / "t-0")
    assert send(log, 1, 1, 3, 77) == 0
    assert send(log, 1, 1, 3, 78) == 1


def test_only_clients_are_checked_for_sequences(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 1, 1, 0, 0)
    batch = data_batch(b"v", producer=(1, 0, 40))
    assert log.append_as_leader(batch, 0, origin=AppendOrigin.COORDINATOR).first_offset == 1


@pytest.mark.parametrize("again", [reopened, crashed])
def test_producers_survive_restart_and_kill(tmp_path: Path, again: object) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=300))
    for n in range(12):
        assert send(log, 1, 1, 0, n, timestamp_ms=StandIn().clock.now_ms()) == n
    assert len(log.segments) > 2
    log = again(log)  # type: ignore[operator]
    assert send(log, 1, 1, 0, 11) == 11
    assert send(log, 1, 1, 0, 13) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1, 1, 0, 12, timestamp_ms=StandIn().clock.now_ms()) == 12


def test_a_follower_that_becomes_leader_knows_the_producers(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "t-0"), open_log(tmp_path / "u-0")
    send(leader, 3, 1, 0, 0)
    send(leader, 2, 1, 0, 3)
    follower.append_as_follower(memoryview(leader.segments[0].path.read_bytes()))
    assert send(follower, 2, 1, 0, 3) == 3
    assert send(follower, 1, 1, 0, 4) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(follower, 1, 1, 0, 5) == 5


def test_a_follower_takes_what_its_leader_has_written_whatever_the_epochs(tmp_path: Path) -> None:
    """The leader has decided. A follower that refused would be stuck forever."""
    follower = open_log(tmp_path / "t-0")
    batches = [
        data_batch(b"v", producer=(1, 5, 0), transactional=True),
        marker_batch(1, 5, commit=True, coordinator_epoch=3),
        data_batch(b"v", producer=(1, 4, 7), transactional=True),
        marker_batch(1, 4, commit=True, coordinator_epoch=2),
    ]
    for offset, batch in enumerate(batches):
        batch[0:8] = offset.to_bytes(8, "big")
        batch[12:16] = bytes(4)
        follower.append_as_follower(batch)
    follower.update_high_watermark(4)
    assert (follower.log_end_offset, follower.last_stable_offset) == (4, 4)


def test_truncation_takes_the_producers_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=400))
    now_ms = StandIn().clock.now_ms()
    for n in range(10):
        send(log, 1, 1, 0, n, timestamp_ms=now_ms)
    log.truncate_to(4)
    assert send(log, 1, 1, 0, 9) == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1, 1, 0, 4, timestamp_ms=now_ms) == 4
    log.truncate_fully_and_start_at(100)
    assert log.producers.producers == {}
    assert send(log, 1, 1, 0, 9) == 100


def test_a_log_that_begins_anew_keeps_no_snapshot_of_what_it_was(tmp_path: Path) -> None:
    """It would bring back producers that wrote nothing that is here. New ones are accepted from the start."""
    config, now_ms = LogConfig(segment_bytes=400), StandIn().clock.now_ms()
    log = open_log(tmp_path / "t-0", config)
    for n in range(10):
        send(log, 1, 1, 0, n, timestamp_ms=now_ms)
    log = reopened(log)
    assert log.producers.snapshots.offsets == (5, 10)
    log.truncate_fully_and_start_at(2)
    assert log.producers.snapshots.offsets == ()
    assert list(log.dir.glob("*.snapshot")) == []
    for n in range(9):
        assert send(log, 1, 2, 0, n, timestamp_ms=now_ms) == 2 + n
    assert log.producers.snapshots.offsets == (7,)
    log.flush()
    log.abandon()
    log = open_log(log.dir, config, recovery_point=11)
    assert set(log.producers.producers) == {2}
    assert send(log, 1, 2, 0, 8, timestamp_ms=now_ms) == 10


@pytest.mark.parametrize("again", [reopened, crashed])
def test_what_stands_at_offset_zero_is_remembered(tmp_path: Path, again: Callable[[Log], Log]) -> None:
    now_ms = StandIn().clock.now_ms()
    plain, open_transaction = open_log(tmp_path / "t-0"), open_log(tmp_path / "u-0")
    assert send(plain, 1, 1, 0, 0, timestamp_ms=now_ms) == 0
    assert send(open_transaction, 1, 1, 0, 0, timestamp_ms=now_ms, transactional=True) == 0
    plain, open_transaction = again(plain), again(open_transaction)
    assert send(plain, 1, 1, 0, 0, timestamp_ms=now_ms) == 0, "it was sent before"
    for log in (plain, open_transaction):
        log.update_high_watermark(1)
    assert (plain.last_stable_offset, open_transaction.last_stable_offset) == (1, 0)


def test_silent_producers_expire(tmp_path: Path) -> None:
    environment = StandIn()
    log = open_log(tmp_path / "t-0", environment=environment)
    now_ms = environment.clock.now_ms()
    send(log, 1, 1, 0, 0, timestamp_ms=now_ms)
    send(log, 1, 2, 0, 0, timestamp_ms=now_ms, transactional=True)
    environment.clock.advance(environment.producer_id_expiration_ms - 1)
    log.producers.expire(environment.clock.now_ms())
    assert set(log.producers.producers) == {1, 2}
    environment.clock.advance(1)
    log.producers.expire(environment.clock.now_ms())
    assert set(log.producers.producers) == {2}, "an open transaction is not forgotten"
    assert send(log, 1, 1, 0, 50) == 2
    assert set(reopened(log, environment).producers.producers) == {2}


def test_snapshots_stand_at_segments_and_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=400))
    for n in range(7):
        send(log, 1, 1, 0, n)
    assert log.producers.snapshots.offsets == tuple(segment.base_offset for segment in log.segments[1:])
    log = reopened(log)
    assert log.producers.snapshots.offsets[-1] == 7
    send(log, 1, 2, 0, 0)
    log = reopened(log)
    assert log.producers.snapshots.offsets[-2:] == (log.segments[-1].base_offset, 8)


def snapshot_of(log: Log) -> list[ProducerSnapshotEntry]:
    return sorted(entry.to_snapshot() for entry in log.producers.producers.values())


def written_snapshot(log: Log, offset: int) -> list[ProducerSnapshotEntry]:
    return sorted(decode_producer_snapshot(log.producers.snapshots.path(offset).read_bytes()))


def test_a_snapshot_is_written_after_the_roll_and_tells_of_the_roll(tmp_path: Path) -> None:
    """A thread writes it while producers go on in every way they can: the next batch, a new epoch, transactions."""
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=1000))
    for producer_id in range(1, 7):
        assert send(log, 1, producer_id, 0, 0) >= 0
    send(log, 1, 8, 0, 0, transactional=True)
    before = snapshot_of(log)
    log.roll()
    at = log.log_end_offset
    job = log.begin_flush(at)
    assert job is not None
    assert not log.producers.snapshots.path(at).exists(), "nobody waits for it"

    send(log, 1, 1, 0, 1)
    send(log, 1, 2, 1, 0)
    send(log, 1, 3, 0, 1, transactional=True)
    end(log, 8, commit=False)
    send(log, 1, 9, 0, 0)
    batch = data_batch(b"v", producer=(4, 0, 1))
    struct.pack_into(">q", batch, 0, log.log_end_offset)
    log.append_as_follower(batch)
    log.producers.expire(2**60)
    after = snapshot_of(log)
    job.run()
    job.finish()
    assert written_snapshot(log, at) == before
    assert snapshot_of(log) == after != before
    log.roll()
    log.flush()
    assert written_snapshot(log, log.log_end_offset) == after


def test_a_snapshot_that_is_not_written_yet_counts_for_a_cut(tmp_path: Path) -> None:
    log, now_ms = open_log(tmp_path / "t-0"), StandIn().clock.now_ms()
    for n in range(3):
        send(log, 1, 1, 0, n, timestamp_ms=now_ms)
    log.roll()
    before = snapshot_of(log)
    for n in range(3, 6):
        send(log, 1, 1, 0, n, timestamp_ms=now_ms)
    log.truncate_to(3)
    assert snapshot_of(log) == before
    assert send(log, 1, 1, 0, 3, timestamp_ms=now_ms) == 3


def test_a_snapshot_that_was_cut_off_is_not_written_by_a_flush_under_way(tmp_path: Path) -> None:
    """It would tell the next start about records that the log no longer has."""
    log, now_ms = open_log(tmp_path / "t-0"), StandIn().clock.now_ms()
    for n in range(3):
        send(log, 1, 1, 0, n, timestamp_ms=now_ms)
    log.roll()
    job = log.begin_flush()
    assert job is not None
    log.truncate_to(2)
    job.run()
    job.finish()
    for n in range(3):
        assert send(log, 1, 2, 0, n, timestamp_ms=now_ms) == 2 + n
    log.flush()
    log.abandon()
    log = open_log(log.dir, recovery_point=5)
    assert {(producer.producer_id, producer.last_offset) for producer in snapshot_of(log)} == {(1, 1), (2, 4)}


def test_a_flush_that_a_rename_overtakes_leaves_the_snapshot_to_the_next(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 1, 1, 0, 0)
    log.roll()
    job = log.begin_flush()
    assert job is not None
    expected, (snapshot,) = snapshot_of(log), log.producers.snapshots.pending
    old_path = snapshot.path
    log.rename_dir("t-1")
    snapshot.path = old_path
    job.run()
    job.finish()
    assert job.error is None
    snapshot.path = log.producers.snapshots.path(1)
    assert log.recovery_point == 0
    log.flush()
    assert written_snapshot(log, 1) == expected
    assert log.recovery_point == 1


def test_a_damaged_snapshot_is_replaced_by_reading_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    now_ms = StandIn().clock.now_ms()
    for n in range(3):
        send(log, 1, 1, 0, n, timestamp_ms=now_ms)
    log.flush()
    log.close()
    snapshot = log.producers.snapshots.path(3)
    damaged = bytearray(snapshot.read_bytes())
    damaged[20] ^= 1
    snapshot.write_bytes(damaged)
    log = open_log(log.dir)
    assert send(log, 1, 1, 0, 2) == 2
    assert send(log, 1, 1, 0, 3, timestamp_ms=now_ms) == 3


def test_many_producers_are_written_in_the_order_of_javas_hash_map(tmp_path: Path) -> None:
    """HashMap<Long, …> of 16 buckets: 33 and 1 share bucket 1, 16 is in bucket 0."""
    log = open_log(tmp_path / "t-0")
    for producer_id in (33, 5, 16, 1, 2**32 + 3):
        send(log, 1, producer_id, 0, 0)
    log.producers.take_snapshot()
    stored = log.producers.snapshots.read(5)
    assert [entry.producer_id for entry in stored] == [16, 33, 1, 2**32 + 3, 5]


# --- transactions


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 1, 9, 0, 0)
    send(log, 1, 1, 0, 0, transactional=True)
    send(log, 1, 2, 0, 0, transactional=True)
    send(log, 1, 1, 0, 1, transactional=True)
    log.update_high_watermark(4)
    assert (log.high_watermark, log.last_stable_offset) == (4, 1)
    end(log, 2, commit=True)
    assert log.last_stable_offset == 1
    end(log, 1, commit=False)
    assert log.last_stable_offset == log.high_watermark == 6
    aborted = log.collect_aborted_transactions(0, 6)
    assert [
        (transaction.producer_id, transaction.first_offset, transaction.last_offset, transaction.last_stable_offset)
        for transaction in aborted
    ] == [(1, 1, 5, 6)]


def test_a_producers_next_transaction_is_unstable_from_its_first_batch_to_its_replicated_marker(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 1, 1, 0, 0, transactional=True)
    end(log, 1, commit=True)
    for sequence in (1, 2):
        send(log, 1, 1, 0, sequence, transactional=True)
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 2
    log.append_as_leader(marker_batch(1, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    assert log.last_stable_offset == 2
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 5


def test_a_compacted_topic_needs_keys_in_a_transaction_that_goes_on_too(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(cleanup_policy=("compact",)))
    assert send(log, 1, 1, 0, 0, transactional=True) == 0
    assert send(log, 1, 1, 0, 1, transactional=True, key=None) == -ErrorCode.INVALID_RECORD
    assert send(log, 1, 1, 0, 1, transactional=True) == 1


def test_a_client_cannot_commit_by_a_marker_of_its_own(tmp_path: Path) -> None:
    """It is just what the coordinator would write."""
    log = open_log(tmp_path / "t-0")
    send(log, 1, 1, 0, 0, transactional=True)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(marker_batch(1, 0, commit=True), 0)
    assert refused.value.code == ErrorCode.INVALID_RECORD
    log.update_high_watermark(log.log_end_offset)
    assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
    assert end(log, 1, commit=True) == 1
    assert log.last_stable_offset == 2


def test_a_transaction_is_unstable_until_its_marker_is_replicated(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 2, 1, 0, 0, transactional=True)
    log.append_as_leader(marker_batch(1, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 0
    log.update_high_watermark(3)
    assert log.last_stable_offset == 3


def test_until_its_marker_is_replicated_a_transaction_counts_with_the_open_ones(tmp_path: Path) -> None:
    """The transaction that began first holds the last stable offset back."""
    log = open_log(tmp_path / "t-0")
    for producer_id in (1, 2, 3):
        send(log, 1, producer_id, 0, 0, transactional=True)
    stable = []
    for producer_id, high_watermark in ((2, 4), (1, 5), (3, 6)):
        marker = marker_batch(producer_id, 0, commit=True)
        log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
        stable.append(log.last_stable_offset)
        log.update_high_watermark(high_watermark - 1)
        stable.append(log.last_stable_offset)
        log.update_high_watermark(high_watermark)
        stable.append(log.last_stable_offset)
    assert stable == [0, 0, 0, 0, 0, 2, 2, 2, 6]


def test_of_several_markers_that_are_not_replicated_the_first_transaction_counts(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for producer_id in (1, 2):
        send(log, 1, producer_id, 0, 0, transactional=True)
    for producer_id in (1, 2):
        log.append_as_leader(marker_batch(producer_id, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    stable = [(log.update_high_watermark(offset), log.last_stable_offset)[1] for offset in (2, 3, 4)]
    assert stable == [0, 1, 4]


def test_a_transaction_whose_marker_was_cut_off_holds_nothing_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 1, 1, 0, 0, transactional=True)
    log.append_as_leader(marker_batch(1, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    log.truncate_to(0)
    log.append_as_leader(data_batch(b"v"), 0)
    log.update_high_watermark(1)
    assert log.last_stable_offset == 1


@pytest.mark.parametrize("again", [as_it_is, reopened, crashed])
def test_a_marker_of_a_new_epoch_fences_the_old_and_begins_with_sequence_zero(
    tmp_path: Path, again: Callable[[Log], Log]
) -> None:
    """The coordinator aborts for a producer that is gone. Its successor has a new epoch (KIP-447, KIP-588)."""
    log = open_log(tmp_path / "t-0")
    now_ms = StandIn().clock.now_ms()
    send(log, 2, 1, 0, 0, transactional=True, timestamp_ms=now_ms)
    marker = marker_batch(1, 1, commit=False, timestamp_ms=now_ms)
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    log = again(log)
    assert send(log, 1, 1, 0, 2, transactional=True, timestamp_ms=now_ms) == -ErrorCode.INVALID_PRODUCER_EPOCH
    for transactional in (True, False):
        refused = send(log, 1, 1, 1, 2, transactional=transactional, timestamp_ms=now_ms)
        assert refused == -ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 2, 1, 1, 0, transactional=True, timestamp_ms=now_ms) == 3, "it is no duplicate of the old one's"


def test_a_producer_is_not_silent_while_markers_come(tmp_path: Path) -> None:
    environment = StandIn()
    log = open_log(tmp_path / "t-0", environment=environment)
    now_ms = environment.clock.now_ms()
    send(log, 1, 1, 0, 0, transactional=True, timestamp_ms=now_ms)
    marker = marker_batch(1, 0, commit=True, timestamp_ms=now_ms + 60_000)
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    log.producers.expire(now_ms + environment.producer_id_expiration_ms)
    assert send(log, 1, 1, 0, 0, transactional=True) == 0, "its batch is known"
    log.producers.expire(now_ms + 60_000 + environment.producer_id_expiration_ms)
    assert log.producers.producers == {}


def test_a_marker_without_records_here_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    end(log, 1, commit=False)
    assert (log.last_stable_offset, log.collect_aborted_transactions(0, 1)) == (1, [])
    assert not log.segments[0].path.with_suffix(".txnindex").exists()


def test_writes_outside_of_an_open_transaction_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 1, 1, 0, 0, transactional=True)
    assert send(log, 1, 1, 0, 1) == -ErrorCode.INVALID_TXN_STATE
    assert send(log, 1, 1, 0, 1, transactional=True) == 1


def test_a_zombie_coordinator_is_fenced(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 1, 1, 0, 0, transactional=True)
    end(log, 1, commit=True, coordinator_epoch=7)
    with pytest.raises(KafkaError) as caught:
        end(log, 1, commit=True, coordinator_epoch=6)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(KafkaError) as caught:
        end(log, 1, commit=True, producer_epoch=-1, coordinator_epoch=7)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("again", [reopened, crashed])
def test_open_and_aborted_transactions_survive_restart_and_kill(tmp_path: Path, again: object) -> None:
    now_ms = StandIn().clock.now_ms()
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=400))
    sequence = 0
    for n in range(4):
        send(log, 1, 1, 0, sequence, transactional=True, timestamp_ms=now_ms)
        sequence += 1
        end(log, 1, commit=n % 2 == 0)
    send(log, 1, 1, 0, sequence, transactional=True, timestamp_ms=now_ms)
    expected = log.collect_aborted_transactions(0, 100)
    assert [transaction.first_offset for transaction in expected] == [2, 6]
    log = again(log)  # type: ignore[operator]
    log.update_high_watermark(log.log_end_offset)
    assert log.collect_aborted_transactions(0, 100) == expected
    assert (log.last_stable_offset, log.high_watermark) == (8, 9)
    end(log, 1, commit=True)
    assert log.last_stable_offset == 10


def test_truncation_takes_aborted_transactions_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 1, 1, 0, 0, transactional=True)
    end(log, 1, commit=False)
    send(log, 1, 1, 0, 1, transactional=True)
    end(log, 1, commit=False)
    log.truncate_to(3)
    assert [transaction.first_offset for transaction in log.collect_aborted_transactions(0, 10)] == [0]
    assert log.first_unstable_offset == 2
    log.truncate_to(1)
    assert log.collect_aborted_transactions(0, 10) == []
    assert log.first_unstable_offset == 0


def test_deleting_records_moves_the_unstable_offset_along(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    send(log, 5, 1, 0, 0, transactional=True)
    log.update_high_watermark(5)
    log.increment_log_start_offset(3)
    assert log.last_stable_offset == 3


def test_hanging_transactions_are_noticed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    now_ms = StandIn().clock.now_ms()
    assert not log.producers.has_late_transaction(now_ms, 900_000)
    send(log, 1, 1, 0, 0, transactional=True, timestamp_ms=now_ms)
    assert not log.producers.has_late_transaction(now_ms + 1_200_000, 900_000)
    assert log.producers.has_late_transaction(now_ms + 1_200_001, 900_000)


def test_what_a_read_may_hide_reaches_as_far_as_its_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(index_interval_bytes=0))
    for n in range(6):
        send(log, 1, 1, 0, n, transactional=True)
        end(log, 1, commit=False)
    read = log.read(0, 100, limit_offset=log.last_stable_offset, min_one_batch=True)
    bound = log.upper_bound_offset(read)
    assert 0 < bound < log.log_end_offset
    assert [transaction.first_offset for transaction in log.collect_aborted_transactions(0, bound)] == [0]
    whole = log.read(0, 10_000, limit_offset=log.last_stable_offset, min_one_batch=True)
    assert len(log.collect_aborted_transactions(0, log.upper_bound_offset(whole))) == 6
