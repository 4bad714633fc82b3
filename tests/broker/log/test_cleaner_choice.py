"""Which log the cleaner takes next, how far it cleans, and how it handles its limits: memory, rate, a full disk."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cleaning import clean_once, dirty, prepare
from log_folders import NOW_MS, StandIn, data_batch, open_log, read_all

from engine.broker.log.cleaner import cleaning, worker
from engine.broker.log.cleaner.choice import filthiest, may_be_cleaned
from engine.broker.log.cleaner.cleaning import Pace, _Cleaning
from engine.broker.log.cleaner.job import RATE_MAX, CleanerSettings
from engine.broker.log.cleaner.key_map import LOOK_KEYS, KeyMap
from engine.broker.log.cleaner.messages import Failed, FailureKind, Finished, decode_report, encode_plan
from engine.broker.log.log import Log
from engine.broker.log.segment_swap import NewSegment
from engine.common.errors import KafkaError, StorageError
from engine.kafka.config.log_config import LogConfig
from engine.runtime.own_process import module_command

CONFIG = LogConfig(cleanup_policy=("compact",), retention_ms=-1, min_cleanable_dirty_ratio=0.5)


def log_of(folder: Path, *segments: int, config: LogConfig = CONFIG, replicated: bool = True) -> Log:
    """Make a log of segments with this many records each, an hour apart, and an empty active one."""
    log = open_log(folder, config, StandIn())
    for index, count in enumerate(segments):
        for number in range(count):
            timestamp_ms = NOW_MS - 3_600_000 * (len(segments) - index)
            log.append_as_leader(data_batch(b"x" * 100, key=b"k%d" % number, timestamp_ms=timestamp_ms), 0)
        log.roll()
    if replicated:
        log.update_high_watermark(log.log_end_offset)
    return log


def ends(log: Log) -> tuple[int, int]:
    dirty_end = dirty(log)
    return dirty_end.first_dirty_offset, dirty_end.first_uncleanable_offset


def test_all_but_the_active_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 10, 10)
    log.append_as_leader(data_batch(b"active"), 0)
    assert ends(log) == (0, 20)
    assert dirty(log).cleanable_ratio == 1.0
    assert dirty(log).is_due


def test_not_beyond_the_high_watermark(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 10, 10, replicated=False)
    for high_watermark, expected in ((0, 0), (9, 0), (10, 10), (19, 10), (20, 20)):
        log.update_high_watermark(high_watermark)
        assert ends(log) == (0, expected)


@pytest.mark.parametrize(("lag_h", "expected"), [(0, 30), (0.5, 30), (1.5, 20), (2.5, 10), (9, 0)])
def test_young_records_are_safe(tmp_path: Path, lag_h: float, expected: int) -> None:
    config = replace(CONFIG, min_compaction_lag_ms=int(lag_h * 3_600_000))
    assert ends(log_of(tmp_path / "t-0", 10, 10, 10, config=config)) == (0, expected)


def test_old_records_are_due_however_few(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 100, 1)
    log.cleaning.first_dirty_offset = 100
    assert not dirty(log).is_due
    log.update_config(replace(CONFIG, max_compaction_lag_ms=1_800_000))
    assert dirty(log).compaction_delay_ms == 1_800_000
    assert dirty(log).is_due
    log.update_config(replace(CONFIG, max_compaction_lag_ms=7_200_000))
    assert not dirty(log).is_due


@pytest.mark.parametrize(("policy", "segments"), [(("compact",), 2), (("delete",), 1)])
def test_a_compacted_segment_is_closed_when_it_must_be_cleaned(
    tmp_path: Path, policy: tuple[str, ...], segments: int
) -> None:
    config = replace(CONFIG, cleanup_policy=policy, max_compaction_lag_ms=60_000)
    log = open_log(tmp_path / "t-0", config)
    for waited_ms in (0, 59_000, 61_000):
        log.append_as_leader(data_batch(b"x", timestamp_ms=NOW_MS + waited_ms), 0)
    assert len(log.segments) == segments


def test_the_ratio_decides(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 50, 40)
    log.cleaning.first_dirty_offset = 50
    assert dirty(log).cleanable_ratio == pytest.approx(4 / 9, abs=0.01)
    assert not dirty(log).is_due
    log.update_config(replace(CONFIG, min_cleanable_dirty_ratio=0.4))
    assert dirty(log).is_due
    log.cleaning.first_dirty_offset = 90
    assert (dirty(log).cleanable_bytes, dirty(log).is_due) == (0, False)


def test_the_filthiest_first(tmp_path: Path) -> None:
    logs = [log_of(tmp_path / f"t-{n}", 10, 10 * n) for n in range(1, 4)]
    for log in logs:
        log.cleaning.first_dirty_offset = 10
    measured = [dirty(log) for log in logs]
    choice = filthiest(measured)
    assert choice is not None
    assert choice.log is logs[2]
    assert filthiest(measured[:1]) is None
    assert filthiest([]) is None


@pytest.mark.parametrize(
    ("checkpoint", "policy", "expected", "is_said"),
    [
        (None, ("compact",), 10, False),
        (5, ("compact",), 10, True),
        (5, ("compact", "delete"), 10, False),
        (15, ("compact",), 15, False),
        (31, ("compact",), 10, True),
    ],
)
def test_a_checkpoint_that_the_log_contradicts(
    tmp_path: Path,
    checkpoint: int | None,
    policy: tuple[str, ...],
    expected: int,
    is_said: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = log_of(tmp_path / "t-0", 10, 10, 10, config=replace(CONFIG, cleanup_policy=policy))
    log.increment_log_start_offset(10)
    log.cleaning.first_dirty_offset = checkpoint
    assert ends(log)[0] == expected
    assert log.cleaning.first_dirty_offset == (None if checkpoint is None else expected)
    assert ("to log start offset" in caplog.text or "to the log start offset" in caplog.text) is is_said


def test_a_truncation_takes_the_checkpoint_back_to_its_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 10, 10, 10)
    clean_once(log)
    log.update_high_watermark(30)
    assert log.cleaning.first_dirty_offset == 30
    again = log_of(tmp_path / "u-0", 10, 10, 10)
    again.cleaning.first_dirty_offset = 30
    again.truncate_to(15)
    assert again.cleaning.first_dirty_offset == 10
    again.truncate_fully_and_start_at(100)
    assert ends(again) == (100, 100)


def test_who_may_not_be_cleaned(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 10)
    assert may_be_cleaned(log)
    log.update_config(replace(CONFIG, cleanup_policy=("delete",)))
    assert not may_be_cleaned(log)
    log.update_config(replace(CONFIG, cleanup_policy=("compact", "delete")))
    assert may_be_cleaned(log)
    for mark in ("is_in_progress", "is_uncleanable"):
        setattr(log.cleaning, mark, True)
        assert not may_be_cleaned(log)
        setattr(log.cleaning, mark, False)
    log.abandon()
    assert not may_be_cleaned(log)


def test_compact_and_delete_keeps_a_start(tmp_path: Path) -> None:
    config = replace(CONFIG, cleanup_policy=("compact", "delete"), retention_ms=5_400_000)
    log = log_of(tmp_path / "t-0", 10, 10, 10, config=config)
    assert log.delete_old_segments(NOW_MS) == 2
    assert ends(log) == (20, 30)
    clean_once(log)
    assert log.cleaning.first_dirty_offset == 30


def test_the_bounds_are_exact(tmp_path: Path) -> None:
    """Segments of ten records, the last of each three, two and one hours old, and 9 ms more."""
    log = log_of(tmp_path / "t-0", 10, 10, 10)
    newest_ms = log.segments[1].largest_timestamp_ms()
    for lag_ms, expected in ((NOW_MS - newest_ms, 20), (NOW_MS - newest_ms + 1, 10)):
        log.update_config(replace(CONFIG, min_compaction_lag_ms=lag_ms))
        assert ends(log) == (0, expected), "a record that is exactly as old as it must be may go"
    log.update_config(replace(CONFIG, max_compaction_lag_ms=3 * 3_600_000 - 1))
    assert (dirty(log).compaction_delay_ms, dirty(log).is_due) == (1, True)


def test_a_record_of_the_future_is_safe_unless_no_age_is_asked_for(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", CONFIG, StandIn())
    log.append_as_leader(data_batch(b"x", timestamp_ms=NOW_MS + 5_000), 0)
    log.roll()
    log.update_high_watermark(1)
    assert ends(log) == (0, 1)
    log.update_config(replace(CONFIG, min_compaction_lag_ms=1))
    assert ends(log) == (0, 0)


@pytest.mark.parametrize(("timestamp_ms", "delay_ms"), [(0, 0), (1, NOW_MS - 60_001)])
def test_a_segment_without_a_timestamp_has_no_age(tmp_path: Path, timestamp_ms: int, delay_ms: int) -> None:
    log = open_log(tmp_path / "t-0", CONFIG, StandIn())
    log.append_as_leader(data_batch(b"x", timestamp_ms=timestamp_ms), 0)
    log.roll()
    log.update_high_watermark(1)
    log.update_config(replace(CONFIG, max_compaction_lag_ms=60_000))
    assert dirty(log).compaction_delay_ms == delay_ms


def test_no_log_is_due_for_its_age_alone(tmp_path: Path) -> None:
    measured = replace(dirty(log_of(tmp_path / "t-0", 10)), clean_bytes=100, compaction_delay_ms=1)
    assert [replace(measured, cleanable_bytes=size).is_due for size in (0, 1)] == [False, True]
    assert not replace(measured, cleanable_bytes=1, compaction_delay_ms=0).is_due


# --- limits of the process


def test_the_map_knows_what_it_takes() -> None:
    keys = KeyMap(1_000_000, 0)
    count = 0
    while not keys.is_full():
        keys.places.update((b"key-%012d" % n, n) for n in range(count, count + LOOK_KEYS))
        count += LOOK_KEYS
    real = sys.getsizeof(keys.places) + sum(sys.getsizeof(key) + 32 for key in keys.places)
    assert 300_000 < real < 1_000_000
    assert 0.3 < keys.utilization < 1.2


def test_shares_of_a_thread() -> None:
    settings = CleanerSettings(threads=4, dedupe_buffer_size=40_000_000, io_buffer_load_factor=0.5)
    assert settings.map_bytes == 5_000_000
    assert CleanerSettings(threads=2, io_buffer_size=400_000).buffer_bytes == 100_000
    assert CleanerSettings(threads=2, io_max_bytes_per_second=1000.0).bytes_per_second == 500.0
    assert CleanerSettings().bytes_per_second == RATE_MAX


def test_the_pace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, waits = [0.0], []

    def sleep(seconds: float) -> None:
        assert 0 < seconds <= cleaning.PAUSE_S_MAX
        now_s[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", sleep)
    pace = Pace(1000.0, waits.append)
    for _ in range(100):
        pace.spend(100)
    assert now_s[0] == pytest.approx(10.0, abs=0.5)
    assert len(waits) > 10
    now_s[0] += 1000
    for _ in range(100):
        pace.spend(100)
    assert now_s[0] == pytest.approx(10 + 1000 + 10 - cleaning.SAVED_S_MAX, abs=0.5)


class FullDisk:
    def __init__(self, error_number: int) -> None:
        self._error_number = error_number

    def __call__(self, fd: int, data: bytes, position: int) -> int:
        raise OSError(self._error_number, os.strerror(self._error_number))


@pytest.mark.parametrize(
    ("error_number", "kind"), [(errno.ENOSPC, FailureKind.NO_SPACE), (errno.EIO, FailureKind.DISK)]
)
def test_a_disk_that_fails_under_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_number: int, kind: FailureKind
) -> None:
    monkeypatch.chdir(tmp_path)
    log = log_of(tmp_path / "t-0", 10)
    line = encode_plan(prepare(log).plan)
    reports = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", FullDisk(error_number))
        worker._serve(line, reports)
    last = decode_report(reports.getvalue().splitlines()[-1])
    assert isinstance(last, Failed)
    assert (last.kind, last.error_number) == (kind, error_number)
    reports = io.BytesIO()
    worker._serve(line, reports)
    assert isinstance(decode_report(reports.getvalue().splitlines()[-1]), Finished)


def test_a_swap_on_a_failing_disk_takes_the_dir_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(tmp_path / "t-0", 10)
    environment = log._environment
    assert isinstance(environment, StandIn)

    def broken(path: Path, target: Path) -> Path:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch, pytest.raises(KafkaError):
        patch.setattr(Path, "rename", broken)
        clean_once(log)
    assert [path for path, _ in environment.failures] == [log.log_dir]


def test_a_process_follows_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is deleted and created again meanwhile: what is written belongs to the old one, wherever it has moved."""
    log = log_of(tmp_path / "t-0", 10, 10)
    line = encode_plan(prepare(log).plan)
    monkeypatch.chdir(tmp_path)
    index = _Cleaning._index

    def renamed_meanwhile(cleaning: _Cleaning) -> None:
        index(cleaning)
        log.rename_dir("t-0-old")
        log_of(tmp_path / "t-0", 10, 10)

    monkeypatch.setattr(_Cleaning, "_index", renamed_meanwhile)
    reports = io.BytesIO()
    worker._serve(line, reports)
    assert isinstance(decode_report(reports.getvalue().splitlines()[-1]), Finished)
    assert list((tmp_path / "t-0-old").glob("*.cleaned"))
    assert not list((tmp_path / "t-0").glob("*.cleaned"))


def test_what_was_not_cleaned_replaces_nothing(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 10)
    before = read_all(log)
    for size_bytes in (0, 77):
        with pytest.raises(StorageError):
            log.replace_segments(list(log.segments[:1]), [NewSegment(0, size_bytes, has_transaction_index=False)])
    (log.dir / f"{0:020d}.log.cleaned").write_bytes(b"half")
    for size_bytes in (0, 3, 5):
        with pytest.raises(StorageError):
            log.replace_segments(list(log.segments[:1]), [NewSegment(0, size_bytes, has_transaction_index=False)])
    assert read_all(log) == before


def test_the_process_ends_with_its_input(tmp_path: Path) -> None:
    """Its parent is gone then; with a plan under way it ends too."""
    log = log_of(tmp_path / "t-0", 10)
    plan = prepare(log, CleanerSettings(io_max_bytes_per_second=1.0)).plan
    command = module_command("engine.broker.log.cleaner.worker")
    for sent in (b"", encode_plan(plan)):
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.write(sent)
            process.stdin.flush()
            process.stdin.close()
            assert process.wait(20) == 0
    assert not log.cleaning.is_uncleanable
