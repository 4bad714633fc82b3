"""What a cleaning keeps of producers and transactions, by Kafka's rules."""

from __future__ import annotations

from pathlib import Path

from cleaning import CONFIG, DAY_MS, changed, clean_once, close_segment, dirty, headers_of, new_log, pairs_of, put
from log_folders import NOW_MS, marker_batch, open_log, read_all

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.log import Log
from engine.kafka.protocol.records.header import iter_batches


def test_the_last_batch_of_an_active_producer_stays_as_an_empty_one(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"1"), producer_id=5, producer_epoch=2, base_sequence=0)
    put(log, (b"a", b"2"), (b"a", b"3"), producer_id=5, producer_epoch=2, base_sequence=1)
    put(log, (b"a", b"4"))
    put(log, (b"z", b"1"))
    close_segment(log)
    clean_once(log)
    assert pairs_of(log) == [(3, b"a", b"4"), (4, b"z", b"1")]
    assert headers_of(log) == [(1, 2, 0), (3, 3, 1), (4, 4, 1)]
    header = next(iter_batches(read_all(log)))[1]
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (5, 2, 2)
    for path in log.dir.glob("*.snapshot"):
        path.unlink()
    log.abandon()
    again = open_log(log.dir, CONFIG, clean=False)
    assert again.producers.producers[5].last_sequence == 2
    again.producers.producers.clear()
    put(again, (b"a", b"5"))
    close_segment(again)
    clean_once(again)
    assert headers_of(again) == [(4, 4, 1), (5, 5, 1)]


def test_the_end_of_what_was_cleaned_stays(tmp_path: Path) -> None:
    """Otherwise a log whose newest records are gone would end earlier after a recovery."""
    log = new_log(tmp_path, changed(cleanup_policy=("delete",)))
    put(log, (b"a", None))
    close_segment(log)
    put(log, (None, b"no key"), (None, b"no key"))
    close_segment(log)
    log.update_config(CONFIG)
    clean_once(log)
    assert headers_of(log) == [(0, 0, 1), (1, 2, 0)]


def transaction(log: Log, producer_id: int, *pairs: tuple[bytes, bytes | None], commit: bool | None) -> None:
    known = log.producers.producers.get(producer_id)
    sequence = 0 if known is None or known.last_sequence < 0 else known.last_sequence + 1
    put(log, *pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    if commit is not None:
        end(log, producer_id, commit=commit)


def end(log: Log, producer_id: int, *, commit: bool) -> None:
    marker = marker_batch(producer_id, 0, commit=commit, timestamp_ms=NOW_MS)
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)


def markers_of(log: Log) -> list[int]:
    return [batch.base_offset for _, batch in iter_batches(read_all(log)) if batch.is_control and batch.record_count]


def test_aborted_records_go_and_their_marker_follows_later(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"good"))
    transaction(log, 1, (b"a", b"bad"), (b"b", b"bad"), commit=False)
    transaction(log, 2, (b"c", b"good"), commit=True)
    put(log, (b"end", b"1"))
    close_segment(log)
    assert len(log.collect_aborted_transactions(0, log.log_end_offset)) == 1
    clean_once(log)
    assert [pair for pair in pairs_of(log) if pair[0] not in markers_of(log)] == [
        (0, b"a", b"good"),
        (4, b"c", b"good"),
        (6, b"end", b"1"),
    ]
    # The emptied batch keeps the producer's sequence, and no longer counts as data.
    assert (1, 2, 0) in headers_of(log)
    assert markers_of(log) == [3, 5]
    assert [transaction.first_offset for transaction in log.collect_aborted_transactions(0, 4)] == [1]
    log.producers.producers.clear()
    for round_number, now_ms in enumerate((NOW_MS, NOW_MS, NOW_MS + DAY_MS)):
        put(log, (b"more", b"%d" % round_number))
        close_segment(log)
        clean_once(log, now_ms=now_ms)
    assert markers_of(log) == [5]
    assert log.collect_aborted_transactions(0, 4) == []
    assert (4, b"c", b"good") in pairs_of(log)


def test_a_commit_marker_goes_after_the_last_of_its_records(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    transaction(log, 1, (b"a", b"1"), commit=True)
    put(log, (b"a", b"2"))
    put(log, (b"end", b"1"))
    close_segment(log)
    log.producers.producers.clear()
    clean_once(log)
    assert markers_of(log) == [1]
    for now_ms in (NOW_MS, NOW_MS, NOW_MS + DAY_MS):
        put(log, (b"more", b"%d" % now_ms))
        close_segment(log)
        clean_once(log, now_ms=now_ms)
    assert markers_of(log) == []


def test_a_producer_of_which_only_a_marker_is_known_keeps_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    end(log, 4, commit=False)
    put(log, (b"a", b"1"))
    close_segment(log)
    for now_ms in (NOW_MS, NOW_MS + DAY_MS, NOW_MS + 2 * DAY_MS):
        put(log, (b"a", b"%d" % now_ms))
        close_segment(log)
        clean_once(log, now_ms=now_ms)
    assert next((batch.base_offset, batch.is_control) for _, batch in iter_batches(read_all(log))) == (0, True)


def test_an_open_transaction_ends_what_may_be_cleaned(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll()
    transaction(log, 1, (b"a", b"3"), commit=None)
    log.roll()
    put(log, (b"a", b"4"))
    close_segment(log)
    assert dirty(log).first_uncleanable_offset == 2
    clean_once(log)
    assert pairs_of(log) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]
    end(log, 1, commit=False)
    close_segment(log)
    clean_once(log)
    assert [pair for pair in pairs_of(log) if pair[1] == b"a"] == [(3, b"a", b"4")]


def test_an_abort_marker_beyond_the_cleaned_part_counts(tmp_path: Path) -> None:
    """Its entry is in a later segment's index. The records before it still count as aborted."""
    log = new_log(tmp_path)
    put(log, (b"a", b"good"))
    transaction(log, 1, (b"a", b"bad"), commit=None)
    log.roll()
    transaction(log, 2, (b"b", b"open"), commit=None)
    end(log, 1, commit=False)
    close_segment(log)
    clean_once(log)
    assert (0, b"a", b"good") in pairs_of(log)
    assert (1, b"a", b"bad") not in pairs_of(log)
    assert [transaction.first_offset for transaction in log.collect_aborted_transactions(0, 10)] == [1]
