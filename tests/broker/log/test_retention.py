"""Retention by time, size and log start offset; delayed removal; the limits of truncation and retention."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_folders import StandIn, data_batch, folder_content, open_log, values_of

from engine.broker.log.log import Log
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig

SIZE = len(data_batch(b"x" * 50))
SEGMENT_BYTES = 2 * SIZE


def filled(folder: Path, environment: StandIn, config: LogConfig, count: int = 9) -> Log:
    """Return a log with two batches a segment and a second between batches, all replicated."""
    log = open_log(folder, config, environment)
    start_ms = environment.clock.now_ms()
    for n in range(count):
        log.append_as_leader(data_batch(b"x" * 50, timestamp_ms=start_ms + 1000 * n), 0)
    log.update_high_watermark(log.log_end_offset)
    environment.clock.advance(1000 * count)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_segments_older_than_retention_ms_go(tmp_path: Path) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment, LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=5000))
    # It is 9 s after the first record. The segments end with the records of 1 s, 3 s, 5 s, 7 s and 8 s.
    assert log.delete_old_segments(environment.clock.now_ms()) == 2
    assert bases(log) == [4, 6, 8]
    assert (log.log_start_offset, log.log_end_offset) == (4, 9)
    assert log.leader_epochs.entries == ((0, 4),)
    environment.clock.advance(1_000_000)
    assert log.delete_old_segments(environment.clock.now_ms()) == 3
    assert bases(log) == [9], "the active segment goes too, and a new one begins"
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert log.delete_old_segments(environment.clock.now_ms()) == 0


def test_without_timestamps_the_files_age_counts(tmp_path: Path) -> None:
    environment = StandIn(now_ms=1_000_000)
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=5000), environment)
    for _ in range(4):
        log.append_as_leader(data_batch(b"x" * 50, timestamp_ms=-1), 0)
    log.update_high_watermark(4)
    written_ms = log.segments[0].last_modified_ms()
    assert log.delete_old_segments(written_ms + 5000) == 0
    assert log.delete_old_segments(written_ms + 3_600_000) == 2


def test_the_log_shrinks_to_retention_bytes(tmp_path: Path) -> None:
    environment = StandIn()
    config = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1, retention_bytes=5 * SIZE)
    log = filled(tmp_path / "t-0", environment, config)
    assert log.delete_old_segments(environment.clock.now_ms()) == 2
    assert (bases(log), log.size_bytes) == ([4, 6, 8], 5 * SIZE)
    assert log.delete_old_segments(environment.clock.now_ms()) == 0


def test_retention_bytes_of_zero_leave_nothing(tmp_path: Path) -> None:
    environment = StandIn()
    config = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1, retention_bytes=0)
    log = filled(tmp_path / "t-0", environment, config)
    assert log.delete_old_segments(environment.clock.now_ms()) == 5
    assert (bases(log), log.size_bytes) == ([9], 0)


def test_an_active_segment_without_records_stays_however_old_its_file_is(tmp_path: Path) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment, LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=5000))
    log.roll()
    much_later_ms = log.active_segment.last_modified_ms() + 3_600_000
    assert log.delete_old_segments(much_later_ms) == 5
    assert log.delete_old_segments(much_later_ms) == 0
    assert bases(log) == [9]
    assert log.append_as_leader(data_batch(b"next"), 0).first_offset == 9


def test_what_is_not_replicated_stays(tmp_path: Path) -> None:
    environment = StandIn()
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=0), environment)
    for n in range(6):
        log.append_as_leader(data_batch(b"x" * 50, timestamp_ms=n), 0)
    for high_watermark, left in ((0, [0, 2, 4]), (1, [0, 2, 4]), (2, [2, 4]), (5, [4]), (6, [6])):
        log.update_high_watermark(high_watermark)
        log.delete_old_segments(environment.clock.now_ms())
        assert bases(log) == left


@pytest.mark.parametrize("config", [LogConfig(retention_ms=-1), LogConfig(cleanup_policy=("compact",), retention_ms=0)])
def test_without_a_limit_nothing_goes(tmp_path: Path, config: LogConfig) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment, config)
    environment.clock.advance(10**12)
    assert log.delete_old_segments(environment.clock.now_ms()) == 0
    assert log.log_start_offset == 0


def test_files_are_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    environment = StandIn()
    config = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=5000, file_delete_delay_ms=777)
    log = filled(tmp_path / "t-0", environment, config)
    log.flush()
    read = log.read(0, 10_000, limit_offset=2, min_one_batch=True)
    log.delete_old_segments(environment.clock.now_ms())
    deleted = set(folder_content(log.dir, ".deleted"))
    assert deleted == {
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "00000000000000000000.timeindex.deleted",
        "00000000000000000002.log.deleted",
        "00000000000000000002.index.deleted",
        "00000000000000000002.timeindex.deleted",
        "00000000000000000002.snapshot.deleted",
    }
    assert [delay_ms for _, _, delay_ms in environment.deletions] == [777]
    environment.delete_now()
    assert folder_content(log.dir, ".deleted") == {}
    assert read.records is not None
    assert len(read.records.read()) == 2 * SIZE, "a reader that is under way is not disturbed"


def test_leftovers_of_a_crash_are_removed_at_the_next_start(tmp_path: Path) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment, LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=5000))
    log.delete_old_segments(environment.clock.now_ms())
    (log.dir / "leader-epoch-checkpoint.7.tmp").write_text("half")
    (log.dir / "00000000000000000999.index").write_bytes(b"")
    again = open_log(log.dir, log.config, clean=False)
    assert folder_content(log.dir, ".deleted", ".tmp") == {}
    assert not (log.dir / "00000000000000000999.index").exists()
    assert values_of(again) == values_of(log)


def test_deleting_records_moves_the_start_and_frees_whole_segments(tmp_path: Path) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment, LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1))
    assert log.increment_log_start_offset(5)
    assert not log.increment_log_start_offset(3)
    assert [offset for offset, _ in values_of(log)] == [5, 6, 7, 8]
    assert bases(log) == [0, 2, 4, 6, 8]
    assert log.delete_old_segments(environment.clock.now_ms()) == 2
    assert bases(log) == [4, 6, 8]
    assert log.log_start_offset == 5
    assert log.leader_epochs.entries == ((0, 5),)
    with pytest.raises(KafkaError) as caught:
        log.increment_log_start_offset(10)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_deleting_all_records_of_a_segment_frees_it(tmp_path: Path) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment, LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1))
    log.increment_log_start_offset(4)
    assert log.delete_old_segments(environment.clock.now_ms()) == 2
    assert bases(log) == [4, 6, 8]


def test_deleting_all_records_leaves_an_empty_log(tmp_path: Path) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment, LogConfig(retention_ms=-1))
    log.increment_log_start_offset(9)
    assert log.read(9, 100, limit_offset=9, min_one_batch=True).records is None
    assert log.append_as_leader(data_batch(b"next"), 0).first_offset == 9
    assert values_of(log) == [(9, b"next")]
    log.flush()
    log.close()
    again = open_log(log.dir, log.config, environment, log_start_offset=9)
    assert (again.log_start_offset, values_of(again)) == (9, [(9, b"next")])


def test_a_start_beyond_the_files_begins_anew(tmp_path: Path) -> None:
    """Somebody deleted segment files by hand."""
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment, LogConfig(segment_bytes=SEGMENT_BYTES))
    log.flush()
    log.close()
    again = open_log(log.dir, log.config, environment, log_start_offset=50)
    assert (again.log_start_offset, again.log_end_offset, bases(again)) == (50, 50, [50])
    assert again.append_as_leader(data_batch(b"a"), 0).first_offset == 50


def test_truncating_everything_starts_where_the_leader_says(tmp_path: Path) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment, LogConfig(segment_bytes=SEGMENT_BYTES))
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)
    assert (log.recovery_point, log.leader_epochs.entries, log.size_bytes) == (100, (), 0)
    assert log.append_as_leader(data_batch(b"a"), 3).first_offset == 100
    log.truncate_fully_and_start_at(200, log_start_offset=150)
    assert (log.log_start_offset, log.log_end_offset) == (150, 200)


def test_truncating_below_the_start_takes_the_start_along(tmp_path: Path) -> None:
    """Records were deleted up to offset 5 here, but the new leader's log ends at 3."""
    log = filled(tmp_path / "t-0", StandIn(), LogConfig())
    log.increment_log_start_offset(5)
    assert log.truncate_to(3)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 3, 3)
    assert log.append_as_leader(data_batch(b"next"), 1).first_offset == 3
    assert values_of(log) == [(3, b"next")]


def test_whoever_copies_a_log_hears_of_its_lowest_cut_once(tmp_path: Path) -> None:
    """The copy is good up to that cut. If the log started over, none of the copy is good."""
    log = filled(tmp_path / "t-0", StandIn(), LogConfig(segment_bytes=SEGMENT_BYTES))
    assert (log.take_lowest_cut(), log.truncation_count) == (None, 0)
    log.truncate_to(7)
    log.truncate_to(4)
    log.append_as_leader(data_batch(b"other", b"other"), 1)
    log.truncate_to(5)
    assert (log.take_lowest_cut(), log.take_lowest_cut(), log.truncation_count) == (4, None, 3)
    log.truncate_fully_and_start_at(9)
    assert (log.take_lowest_cut(), log.truncation_count) == (0, 4)


def test_truncating_before_the_first_segment_starts_there(tmp_path: Path) -> None:
    environment = StandIn()
    log = filled(tmp_path / "t-0", environment, LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=5000))
    log.delete_old_segments(environment.clock.now_ms())
    assert bases(log)[0] == 4
    assert log.truncate_to(2)
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([2], 2, 2)


def test_truncating_beyond_the_end_only_drops_epochs_without_records(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"a", b"b"), 1)
    log.leader_epochs.assign(5, 2)
    assert not log.truncate_to(2)
    assert not log.truncate_to(7)
    assert log.leader_epochs.entries == ((1, 0),)
    assert log.log_end_offset == 2
    with pytest.raises(ValueError, match="negative"):
        log.truncate_to(-1)


def test_the_high_watermark_never_leaves_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"a", b"b", b"c"), 0)
    assert log.update_high_watermark(99) == 3
    log.increment_log_start_offset(1)
    assert log.update_high_watermark(0) == 1
    log.update_high_watermark(3)
    log.truncate_to(2)
    assert log.high_watermark == 2
