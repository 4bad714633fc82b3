"""What an append reports about records, bytes and epochs, and what a log notes about each batch."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from log_folders import StandIn, data_batch, open_log

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.layout import BASE_OFFSET, PARTITION_LEADER_EPOCH


def replicated(offset: int, *values: bytes, leader_epoch: int = 0) -> bytes:
    """Return a batch as a leader sends it to its followers."""
    batch = data_batch(*values)
    batch[BASE_OFFSET : BASE_OFFSET + 8] = offset.to_bytes(8, "big")
    batch[PARTITION_LEADER_EPOCH : PARTITION_LEADER_EPOCH + 4] = leader_epoch.to_bytes(4, "big")
    return bytes(batch)


def test_a_duplicate_has_its_records_and_writes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for is_duplicate in (False, True):
        batch = data_batch(b"a", b"b", b"c", producer=(7, 0, 0))
        size = len(batch)
        result = log.append_as_leader(batch, 0)
        assert (result.is_duplicate, result.record_count) == (is_duplicate, 3)
        assert result.size_bytes == size
    assert log.size_bytes == size


def test_a_follower_reports_what_it_has_written(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    records = replicated(0, b"a", b"b") + replicated(2, b"c", leader_epoch=3)
    result = log.append_as_follower(memoryview(bytearray(records)))
    assert (result.record_count, result.size_bytes, result.leader_epoch) == (3, len(records), 3)
    nothing = log.append_as_follower(memoryview(b""))
    assert (nothing.first_offset, nothing.record_count, nothing.size_bytes, nothing.leader_epoch) == (-1, 0, 0, -1)


def test_a_follower_notes_the_first_epoch_of_all(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_follower(memoryview(bytearray(replicated(0, b"a"))))
    assert log.leader_epochs.entries == ((0, 0),)


@pytest.mark.parametrize("count", [2, 3])
def test_the_index_knows_each_of_the_batches_that_a_follower_writes_together(tmp_path: Path, count: int) -> None:
    """As in Kafka 3.9.1. The first batch of a segment needs no entry."""
    log = open_log(tmp_path / "t-0", LogConfig(index_interval_bytes=0))
    log.append_as_follower(memoryview(bytearray(b"".join(replicated(n, b"a") for n in range(count)))))
    assert log.active_segment.offset_index.count == count - 1


def test_flush_messages_may_be_changed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"a"), 0)
    assert not log.is_flush_due
    log.update_config(replace(log.config, flush_messages=1))
    assert log.is_flush_due


def test_only_a_cut_below_what_was_flushed_has_to_be_settled(tmp_path: Path) -> None:
    environment = StandIn()
    log = open_log(tmp_path / "t-0", environment=environment)
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(data_batch(value), 0)
    log.flush(2)
    assert not log.has_unsettled_cut
    log.truncate_to(2)
    assert (log.has_unsettled_cut, environment.checkpoints) == (False, [])
    log.truncate_to(1)
    assert (log.has_unsettled_cut, environment.checkpoints) == (True, [tmp_path])


def test_an_offset_belongs_to_the_segment_that_begins_before_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(data_batch(value), 0)
        log.roll()
    assert [log.segment_of(offset).base_offset for offset in range(-1, 4)] == [0, 0, 1, 2, 3]


def test_the_log_start_moves_forward_only_and_says_so(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(data_batch(value), 0)
    log.update_high_watermark(3)
    starts: list[int] = []
    log.on_start_moved = lambda: starts.append(log.log_start_offset)
    assert [log.increment_log_start_offset(offset) for offset in (2, 2, 1, 3)] == [True, False, False, True]
    assert starts == [2, 3]


def test_an_empty_log_may_go_on_later(tmp_path: Path) -> None:
    """The follower's leader may have removed what came before."""
    log = open_log(tmp_path / "t-0")
    log.roll(7)
    assert [segment.base_offset for segment in log.segments] == [0, 7]
    assert log.roll(7) is log.active_segment


def test_a_cut_to_the_start_keeps_what_a_copy_has_before_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.truncate_fully_and_start_at(5)
    log.append_as_leader(data_batch(b"a"), 0)
    log.take_lowest_cut()
    log.truncate_to(5)
    assert log.take_lowest_cut() == 5
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)


def test_no_producer_outlives_a_log_that_starts_over(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"a", producer=(7, 0, 0)), 0)
    log.roll()
    log.flush()
    assert len(list(log.dir.glob("*.snapshot"))) == 1
    log.truncate_fully_and_start_at(100)
    assert log.producers.producers == {}
    log.flush()
    assert [path.name for path in log.dir.glob("*.snapshot")] in ([], [f"{100:020d}.snapshot"])


def test_a_flush_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"a"), 0)

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(KafkaError) as caught:
        log.flush()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0
