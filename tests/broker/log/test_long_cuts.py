"""Cuts that leave much to read: a job for a thread reads it, and meanwhile nothing is told that may be wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log_folders import StandIn, data_batch, marker_batch, open_log

from engine.broker.log import segment as segment_module
from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.cleaner.choice import may_be_cleaned
from engine.broker.log.disk_jobs import run_jobs
from engine.broker.log.log import Log
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig

BATCH = 512


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every batch whose header is read from a segment's file, by position."""
    positions: list[int] = []
    scan = segment_module.scan_batches

    def noted(*arguments: Any) -> Iterator[Any]:
        for result in scan(*arguments):
            positions.append(result[0])
            yield result

    monkeypatch.setattr(segment_module, "scan_batches", noted)
    return positions


def written(folder: Path, count: int, *, producer_id: int = 7) -> Log:
    log = open_log(folder / "t-0")
    for n in range(count):
        producer = (producer_id, 0 if producer_id >= 0 else -1, n if producer_id >= 0 else -1)
        log.append_as_leader(data_batch(bytes(BATCH), producer=producer, timestamp_ms=StandIn().clock.now_ms()), 0)
    return log


def run(log: Log) -> None:
    job = log.replay_job()
    run_jobs([] if job is None else [job])


def state_of(log: Log) -> Any:
    manager = log.producers
    entries = [
        (producer.to_snapshot(), tuple(producer.batches), producer.next_sequence)
        for producer in manager.producers.values()
    ]
    return sorted(entries), manager.map_end_offset, log.last_stable_offset


def test_cutting_one_record_reads_no_more_than_an_interval_of_the_index(tmp_path: Path, scanned: list[int]) -> None:
    """It used to read the whole segment on the event loop: 20 s for a full one of small batches."""
    count = 400
    log = written(tmp_path, count)
    scanned.clear()
    assert log.truncate_to(count - 1)
    assert log.has_stale_producers
    assert log.is_unsettled
    # All batches have one timestamp, so the time index has one entry: it is not where the reading begins.
    assert len(scanned) <= 4096 // BATCH + 2
    assert log.active_segment.load_max_timestamp().timestamp_ms == StandIn().clock.now_ms()
    scanned.clear()
    run(log)
    assert len(scanned) == count - 1
    assert not log.is_unsettled
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(data_batch(b"v", producer=(7, 0, count)), 0)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(data_batch(b"v", producer=(7, 0, count - 1)), 0).first_offset == count - 1


def test_a_short_cut_is_done_at_once(tmp_path: Path) -> None:
    log = written(tmp_path, 20)
    log.truncate_to(19)
    assert not log.is_unsettled
    assert log.replay_job() is None
    log = written(tmp_path / "without producers", 400, producer_id=-1)
    log.truncate_to(399)
    assert not log.is_unsettled, "there is no state to build"


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.REPLICATION])
def test_an_append_that_comes_first_builds_the_state(tmp_path: Path, origin: AppendOrigin) -> None:
    log = written(tmp_path, 400)
    log.truncate_to(399)
    job = log.replay_job()
    assert job is not None
    log.append_as_leader(data_batch(b"v", producer=(7, 0, 399)), 0, origin=origin)
    assert log.producers.producers[7].next_sequence == 400
    job.run()
    job.finish()
    assert log.producers.producers[7].next_sequence == 400, "the job's result is too old"


def test_a_replicated_marker_after_a_cut_ends_the_transaction_that_the_log_has_open(tmp_path: Path) -> None:
    """The state before the cut knows that transaction as ended: its abort would be in no index."""
    log = written(tmp_path, 400)
    now_ms = StandIn().clock.now_ms()
    log.append_as_leader(data_batch(b"v", producer=(9, 0, 0), transactional=True, timestamp_ms=now_ms), 0)
    marker = marker_batch(9, 0, commit=False, timestamp_ms=now_ms)
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    replicated = memoryview(bytes(marker))
    log.truncate_to(401)
    assert log.has_stale_producers
    assert log.collect_aborted_transactions(400, 402) == []
    log.append_as_follower(replicated)
    aborted = log.collect_aborted_transactions(400, 402)
    assert [
        (transaction.producer_id, transaction.first_offset, transaction.last_offset) for transaction in aborted
    ] == [(9, 400, 401)]
    log.update_high_watermark(402)
    assert log.last_stable_offset == 402


def test_a_cut_at_the_high_watermark_leaves_what_is_committed_stable(tmp_path: Path) -> None:
    """As a follower cuts that its leader has overtaken: no committed transaction loses its marker."""
    log = written(tmp_path, 400)
    log.update_high_watermark(399)
    log.truncate_to(399)
    assert log.has_stale_producers
    assert log.last_stable_offset == 399
    log.truncate_to(398)
    assert log.last_stable_offset == 0, "a marker may be gone"


def test_a_snapshot_beyond_the_cut_spares_no_reading(tmp_path: Path, scanned: list[int]) -> None:
    log = written(tmp_path, 400)
    log.producers.take_snapshot()
    scanned.clear()
    log.truncate_to(399)
    assert log.has_stale_producers, "all of it is to be read, and not on the event loop"
    assert list(log.dir.glob("*.snapshot")) == []
    run(log)
    assert log.producers.producers[7].next_sequence == 399


def test_a_second_cut_makes_the_first_job_worth_nothing(tmp_path: Path) -> None:
    log = written(tmp_path, 400)
    log.truncate_to(399)
    first = log.replay_job()
    assert first is not None
    first.run()
    log.truncate_to(300)
    first.finish()
    assert log.has_stale_producers
    run(log)
    assert log.producers.producers[7].next_sequence == 300


def test_a_job_that_was_not_run_or_failed_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(tmp_path, 400)
    log.truncate_to(399)
    job = log.replay_job()
    assert job is not None
    job.finish()
    assert log.has_stale_producers

    def fails(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(segment_module, "scan_batches", fails)
        run(log)
        assert log.has_stale_producers
    assert log.producers.producers[7].next_sequence == 399


def test_the_producers_of_an_offline_log_are_not_read(tmp_path: Path, scanned: list[int]) -> None:
    log = written(tmp_path, 400)
    log.truncate_to(399)
    log.folder.is_offline = True
    scanned.clear()
    for read in (log.build_producers, log.replay_job):
        with pytest.raises(KafkaError) as refused:
            read()
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not scanned


def test_a_log_that_begins_anew_has_nothing_to_read(tmp_path: Path) -> None:
    log = written(tmp_path, 400)
    log.truncate_to(399)
    log.truncate_fully_and_start_at(1000)
    assert not log.is_unsettled
    assert log.producers.producers == {}


@pytest.mark.parametrize(("log_start", "snapshots"), [(None, []), (900, [1000])])
def test_a_log_that_begins_anew_has_the_snapshots_that_kafka_has(
    tmp_path: Path, log_start: int | None, snapshots: list[int]
) -> None:
    """Kafka 3.9.1: truncateFullyAndStartAt drops all, and rebuildProducerState writes one above the log's start."""
    log = written(tmp_path, 400)
    log.truncate_to(399)
    log.truncate_fully_and_start_at(1000, log_start)
    manager = log.producers
    assert (list(manager.producers), manager.map_end_offset, list(manager.snapshots.offsets)) == ([], 1000, snapshots)
    assert (log.high_watermark, log.last_stable_offset, log.is_unsettled) == (1000, 1000, False)


def test_the_cleaner_leaves_a_log_alone_whose_producers_are_still_to_be_read(
    tmp_path: Path, scanned: list[int]
) -> None:
    log = written(tmp_path, 400)
    log.update_config(LogConfig(cleanup_policy=("compact",)))
    log.truncate_to(399)
    scanned.clear()
    assert not may_be_cleaned(log)
    assert scanned == [], "nothing is read on the event loop"
    run(log)
    assert may_be_cleaned(log)


def test_a_log_that_is_closed_before_its_producers_were_read_has_them_at_its_next_start(tmp_path: Path) -> None:
    """A clean shutdown without any snapshot would stand for a log without producers."""
    log = written(tmp_path, 400)
    log.truncate_to(399)
    expected = [
        producer.to_snapshot() for producer in written(tmp_path / "never cut", 399).producers.producers.values()
    ]
    assert log.has_stale_producers
    log.close()
    job = log.begin_flush(is_closing=True)
    run_jobs([] if job is None else [job])
    again = open_log(tmp_path / "t-0")
    assert list(again.producers.snapshots.offsets)[-1] == 399
    assert [producer.to_snapshot() for producer in again.producers.producers.values()] == expected


def test_silent_producers_expire_later(tmp_path: Path) -> None:
    log = written(tmp_path, 400)
    log.truncate_to(399)
    log.expire_producers(2**60)
    assert log.has_stale_producers, "expiring reads nothing"
    run(log)
    log.expire_producers(2**60)
    assert log.producers.producers == {}


def history(folder: Path, chance: random.Random) -> Log:
    """Write a log with idempotent and transactional producers, some of it replicated."""
    environment = StandIn()
    config = LogConfig(segment_bytes=chance.choice((500, 2000, 100_000)), index_interval_bytes=100)
    log = open_log(folder / "t-0", config, environment)
    sequences: dict[int, int] = {}
    open_ids: set[int] = set()
    for _ in range(60):
        producer_id, now_ms = chance.randrange(4), environment.clock.now_ms()
        if producer_id in open_ids and chance.random() < 0.3:
            open_ids.discard(producer_id)
            marker = marker_batch(producer_id, 0, commit=chance.random() < 0.5, timestamp_ms=now_ms)
            log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
        else:
            sequence, count = sequences.get(producer_id, 0), chance.randrange(1, 4)
            producer = (producer_id, 0, sequence)
            batch = data_batch(*[b"v"] * count, producer=producer, transactional=producer_id > 1, timestamp_ms=now_ms)
            log.append_as_leader(batch, 0)
            sequences[producer_id] = sequence + count
            if producer_id > 1:
                open_ids.add(producer_id)
        if chance.random() < 0.3:
            log.update_high_watermark(chance.randrange(log.high_watermark, log.log_end_offset + 1))
        if chance.random() < 0.1:
            log.increment_log_start_offset(chance.randrange(log.high_watermark + 1))
    return log


@pytest.mark.parametrize("seed", range(40))
def test_a_job_builds_the_state_that_is_built_at_once(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, later = (history(tmp_path / name, random.Random(seed)) for name in ("at once", "later"))
    chance = random.Random(seed)
    for _ in range(3):
        offset = chance.randrange(at_once.log_start_offset, at_once.log_end_offset + 1)
        at_once.truncate_to(offset)
        with monkeypatch.context() as patch:
            patch.setattr("engine.broker.log.log.REPLAY_BYTES_MAX", -1)
            later.truncate_to(offset)
        # What a consumer may read meanwhile is never more than what is known later.
        assert later.last_stable_offset <= at_once.last_stable_offset
        if chance.random() < 0.7:
            run(later)
            assert not later.has_stale_producers
        elif chance.random() < 0.5 and later.log_start_offset < later.high_watermark:
            for log in (at_once, later):
                log.increment_log_start_offset(later.high_watermark)
    assert state_of(later) == state_of(at_once)
    assert later.producers.snapshots.latest == at_once.producers.snapshots.latest
    later.flush()
    at_once.flush()
    for log in (at_once, later):
        log.abandon()
    restarts = [
        open_log(log.dir, log.config, clean=False, log_start_offset=log.log_start_offset) for log in (at_once, later)
    ]
    assert state_of(restarts[0]) == state_of(restarts[1])
