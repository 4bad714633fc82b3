"""All logs of a broker: several log dirs, identity and locks, stop and start, deletion, failing dirs."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from log_folders import (
    NOW_MS,
    TOPIC_ID,
    ManagedLogs,
    checkpoint,
    data_batch,
    open_files_in,
    recorded_copy,
    run_due,
    values_of,
    write_checkpoints,
)
from virtual_time import ManualClock

from engine.broker.log import log_dir_loader, log_dirs
from engine.broker.log.disk_jobs import run_jobs
from engine.broker.log.environment import LoadingStopped
from engine.broker.log.log import Gap
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.broker.log.log_moves import create_future_log
from engine.common.errors import ConfigError, ErrorCode, KafkaError, StorageError
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from engine.kafka.protocol.records.header import iter_batches

A, B, C = (TopicPartition("topic", n) for n in range(3))
OTHER_ID = bytes(range(1, 17))
DEADLINE_S = 20


# --- start and stop


def test_a_stop_during_recovery_leaves_no_mark_and_loses_nothing(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path).loaded()
    broker.create(A, values=3)
    broker.logs.release()
    killed = ManagedLogs(tmp_path)
    killed.logs.stop_loading()
    with pytest.raises(LoadingStopped):
        killed.logs.load()
    killed.logs.release()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again = ManagedLogs(tmp_path).loaded()
    assert again.logs.logs[A].log_end_offset == 3
    again.logs.shutdown()
    in_order = ManagedLogs(tmp_path)
    in_order.logs.stop_loading()
    in_order.logs.load()
    in_order.logs.shutdown()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_logs_survive_an_orderly_stop(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 3)
    broker.create(B, 0)
    broker.logs.shutdown()
    assert (tmp_path / "d" / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    assert checkpoint(tmp_path / "d", "recovery-point-offset-checkpoint") == {A: 3, B: 0}
    again = ManagedLogs(tmp_path / "d").loaded()
    assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists()
    log = again.logs.get(A)
    assert log is not None
    assert (log.topic_id, log.high_watermark, log.recovery_point) == (TOPIC_ID, 3, 3)
    assert [value for _, value in values_of(log)] == [b"0", b"1", b"2"]
    assert again.logs.get(C) is None
    again.logs.shutdown()


def test_logs_survive_a_kill(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 3)
    run_jobs(broker.logs.checkpoint_jobs(HIGH_WATERMARK_CHECKPOINT))
    broker.logs.release()
    again = ManagedLogs(tmp_path / "d").loaded()
    log = again.logs.get(A)
    assert log is not None
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (3, 3, 0)
    again.logs.shutdown()
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()


def test_a_stop_before_all_is_loaded_is_not_called_clean(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d")
    broker.logs.shutdown()
    assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists()


def test_a_mark_of_an_orderly_stop_is_gone_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it were still there after a crash of the machine, nothing would be recovered."""
    ManagedLogs(tmp_path / "d").loaded().logs.shutdown()
    synced: list[tuple[Path, bool]] = []
    mark = tmp_path / "d" / ".kafka_cleanshutdown"
    monkeypatch.setattr(log_dirs, "sync_path", lambda path: synced.append((path, mark.exists())))
    ManagedLogs(tmp_path / "d").loaded().logs.release()
    assert (tmp_path / "d", False) in synced


def test_damaged_checkpoints_lose_nothing(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 3)
    broker.logs.shutdown()
    for name in ("recovery-point-offset", "replication-offset", "log-start-offset"):
        (tmp_path / "d" / f"{name}-checkpoint").write_text("0\n1\ntopic zero 3\n")
    (tmp_path / "d" / ".kafka_cleanshutdown").unlink()
    log = ManagedLogs(tmp_path / "d").loaded().logs.get(A)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 3, 0)


def test_a_file_that_a_crash_left_half_written_is_gone(tmp_path: Path) -> None:
    """Each write takes a name of its own, so such files would fill the disk."""
    half = tmp_path / "d" / "replication-offset-checkpoint.7.tmp"
    half.parent.mkdir()
    half.write_text("0\n1\nto")
    ManagedLogs(tmp_path / "d").loaded().logs.release()
    assert not half.exists()


def test_a_deleted_start_is_remembered(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 5)
    broker.create(B, 5)
    log = broker.logs.get(A)
    assert log is not None
    log.increment_log_start_offset(2)
    run_jobs(broker.logs.checkpoint_jobs(LOG_START_OFFSET_CHECKPOINT))
    assert checkpoint(tmp_path / "d", "log-start-offset-checkpoint") == {A: 2}
    broker.logs.release()
    again = ManagedLogs(tmp_path / "d").loaded().logs.get(A)
    assert again is not None
    assert again.log_start_offset == 2


@pytest.mark.parametrize("threads", [1, 3])
def test_a_recovery_in_threads_finds_every_log(tmp_path: Path, threads: int, caplog: pytest.LogCaptureFixture) -> None:
    broker = ManagedLogs(tmp_path / "d", tmp_path / "e").loaded()
    for n in range(12):
        broker.create(TopicPartition("t", n), n)
    broker.logs.release()
    with caplog.at_level(logging.INFO):
        again = ManagedLogs(tmp_path / "d", tmp_path / "e", threads=threads).loaded()
    assert "done=1/6" in caplog.text and "Loaded all logs count=12 " in caplog.text
    ends = {partition.partition: log.log_end_offset for partition, log in again.logs.logs.items()}
    assert ends == {n: n for n in range(12)}
    assert again.failed == []


def managed_with(config_of: Callable[[str], LogConfig], *dirs: Path, threads: int) -> LogManager:
    """Return logs whose loading asks ``config_of`` for each topic's settings, in the thread that loads the log."""
    settings = LogManagerConfig(dirs, threads)
    return LogManager(settings, config_of, ManualClock(NOW_MS), lambda _: None)


def make_logs(path: Path, *topics: str, is_stopped_in_order: bool = False) -> None:
    broker = ManagedLogs(path).loaded()
    for topic in topics:
        broker.create(TopicPartition(topic, 0))
    if is_stopped_in_order:
        broker.logs.shutdown()
    broker.logs.release()


def test_a_recovery_uses_all_threads_that_it_may(tmp_path: Path) -> None:
    make_logs(tmp_path / "d", "a", "b", "c")
    together = threading.Barrier(3)

    def config_of(topic: str) -> LogConfig:
        together.wait(DEADLINE_S)
        return LogConfig()

    logs = managed_with(config_of, tmp_path / "d", threads=3)
    logs.load()
    assert len(logs.logs) == 3
    logs.release()


def test_after_an_orderly_stop_no_thread_opens_a_log(tmp_path: Path) -> None:
    """Opening takes the interpreter, not the disk, so threads would only get in each other's way."""
    make_logs(tmp_path / "d", "a", "b", is_stopped_in_order=True)
    seen: list[threading.Thread] = []

    def config_of(topic: str) -> LogConfig:
        seen.append(threading.current_thread())
        return LogConfig()

    logs = managed_with(config_of, tmp_path / "d", threads=3)
    logs.load()
    assert seen == [threading.current_thread()] * 2
    logs.release()


def test_after_a_start_that_ends_early_nobody_is_at_work_in_the_dirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next broker may take them at once. A recovery that has begun comes to its end, the others never begin."""
    make_logs(tmp_path / "a", "clean", is_stopped_in_order=True)
    make_logs(tmp_path / "b", "begun", "waiting")
    has_begun, is_waited_for, opened = threading.Event(), threading.Event(), []

    class Watched(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            if wait:
                is_waited_for.set()
                super().shutdown()

    def config_of(topic: str) -> LogConfig:
        if topic == "clean":
            assert has_begun.wait(DEADLINE_S)
            raise LoadingStopped
        has_begun.set()
        assert is_waited_for.wait(DEADLINE_S)
        opened.append(topic)
        return LogConfig()

    monkeypatch.setattr(log_dir_loader, "ThreadPoolExecutor", Watched)
    logs = managed_with(config_of, tmp_path / "a", tmp_path / "b", threads=1)
    with pytest.raises(LoadingStopped):
        logs.load()
    at_work = [thread.name for thread in threading.enumerate() if thread.name.startswith("log-recovery")]
    is_waited_for.set()
    assert (at_work, opened) == ([], ["begun"])
    logs.release()


def test_after_a_crash_the_cleaners_checkpoint_tells_which_logs_it_has_cleaned(tmp_path: Path) -> None:
    """What such a log misses, the cleaner may have taken: it is no gap of the crash."""
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(segment_bytes=150)).loaded()
    for partition in (A, B):
        broker.create(partition, 6)
        path = broker.logs.logs[partition].segments[0].path
        *_, (last, _) = iter_batches(path.read_bytes())
        os.truncate(path, last)
    broker.logs.logs[B].cleaning.first_dirty_offset = 4
    write_checkpoints(broker.logs)
    broker.logs.release()
    again = ManagedLogs(tmp_path / "d").loaded()
    gaps = [again.logs.logs[partition].gap for partition in (A, B)]
    assert [gap is not None and gap.is_of_crash for gap in gaps] == [True, False]
    again.logs.release()


def test_many_clean_partitions_open_quickly(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    run_jobs(broker.logs.creation_jobs(TopicPartition("t", n) for n in range(300)))
    assert len(broker.logs.logs) == 300
    broker.logs.shutdown()
    again = ManagedLogs(tmp_path / "d")
    started = time.process_time()
    again.logs.load()
    elapsed = time.process_time() - started
    assert len(again.logs.logs) == 300
    # The budget is 2 s of CPU time for 2,000, so other work on the machine does not count.
    assert elapsed < 2 * 300 / 2000 * 3
    assert open_files_in(tmp_path) == 1, "only the lock is held open"
    again.logs.release()


def test_a_log_that_misses_records_keeps_the_stop_from_counting_as_orderly(tmp_path: Path) -> None:
    """A start after an orderly stop does not look for gaps, so the follower would never fetch what is missing."""
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    for name, partition in (("a", A), ("b", B)):
        broker.logs.get_or_create(partition, is_new=True, preferred_dir=tmp_path / name)
    broker.logs.logs[A].gap = Gap(0, is_of_crash=True)
    broker.logs.shutdown()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_a_dir_that_cannot_be_marked_as_closed_has_failed(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    (tmp_path / "a" / ".kafka_cleanshutdown").mkdir()
    broker.logs.shutdown()
    assert broker.failed == [tmp_path / "a"]
    assert (tmp_path / "b" / ".kafka_cleanshutdown").is_file()


# --- log dirs


def test_new_partitions_go_to_the_emptiest_dir(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    for n in range(4):
        broker.create(TopicPartition("t", n))
    assert [broker.logs.logs[TopicPartition("t", n)].log_dir.name for n in range(4)] == ["a", "b", "a", "b"]
    broker.logs.delete(TopicPartition("t", 0))
    broker.create(TopicPartition("t", 9))
    assert broker.logs.logs[TopicPartition("t", 9)].log_dir.name == "a"
    preferred = broker.logs.get_or_create(C, is_new=True, preferred_dir=tmp_path / "b")
    assert preferred.log_dir.name == "b"
    broker.logs.shutdown()


def test_every_log_counts_however_its_dir_got_it(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    for partition in (A, B):
        broker.logs.get_or_create(partition, is_new=True, preferred_dir=tmp_path / "a")
    broker.logs.shutdown()
    again = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    partitions = [TopicPartition("t", n) for n in range(9)]

    def dirs_of(*numbers: int) -> list[str]:
        return [again.logs.get_or_create(partitions[n], is_new=True).log_dir.name for n in numbers]

    assert dirs_of(0, 1, 2) == ["b", "b", "a"], "a had 2"
    again.logs.delete(partitions[2])
    assert dirs_of(3, 4) == ["a", "b"], "a had 2 again"
    run_jobs(again.logs.creation_jobs([partitions[5]]))
    assert dirs_of(5, 6, 7) == ["a", "b", "a"]
    again.logs.shutdown()


def test_a_dir_that_was_asked_for_counts_once(tmp_path: Path) -> None:
    """What AlterReplicaLogDirs wanted for a partition says nothing about the next topic of that name."""
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    broker.logs.preferred_dirs[A] = tmp_path / "b"
    assert broker.logs.get_or_create(A, is_new=True).log_dir == tmp_path / "b"
    broker.logs.delete(A)
    assert broker.logs.get_or_create(A, is_new=True).log_dir == tmp_path / "a"
    broker.logs.shutdown()


def test_a_dir_belongs_to_one_broker_at_a_time(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    with pytest.raises(StorageError, match=r"Failed to acquire lock on file \.lock in .*/d\."):
        ManagedLogs(tmp_path / "d")
    broker.logs.release()
    ManagedLogs(tmp_path / "d").loaded().logs.release()


def test_a_broker_that_finds_one_dir_in_use_leaves_the_others_free(tmp_path: Path) -> None:
    other = ManagedLogs(tmp_path / "b").loaded()
    with pytest.raises(StorageError, match=r"Failed to acquire lock"):
        ManagedLogs(tmp_path / "a", tmp_path / "b")
    ManagedLogs(tmp_path / "a").logs.release()
    other.logs.release()


def test_a_dir_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    """Kafka locks the same file the same way (java.nio's FileChannel.tryLock is a POSIX record lock)."""
    (tmp_path / "d").mkdir()
    script = (
        "import fcntl, sys\n"
        "f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    lock = tmp_path / "d" / ".lock"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(StorageError, match="in another process"):
            ManagedLogs(tmp_path / "d")
        other.communicate("")
    broker = ManagedLogs(tmp_path / "d")
    other_locker = subprocess.run(
        [sys.executable, "-c", script, str(lock)], capture_output=True, text=True, check=False
    )
    assert "BlockingIOError" in other_locker.stderr
    broker.logs.release()


def test_the_same_dir_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "d")
    with pytest.raises(StorageError, match="Duplicate log directory"):
        ManagedLogs(tmp_path / "d", tmp_path / "link")


def test_a_dir_that_cannot_be_used_is_offline_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    broker = ManagedLogs(tmp_path / "file" / "d", tmp_path / "good").loaded()
    assert broker.failed == [tmp_path / "file" / "d"]
    assert broker.logs.offline_dirs == [tmp_path / "file" / "d"]
    broker.create(A)
    with pytest.raises(KafkaError) as caught:
        broker.logs.get_or_create(B, is_new=False)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(StorageError, match="None of the log dirs"):
        ManagedLogs(tmp_path / "file" / "d")


def test_identity(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b")
    assert broker.logs.check_identity("cluster", None) == ("cluster", None)
    broker.logs.write_identity("cluster", 3)
    written = (tmp_path / "a" / "meta.properties").read_text()
    assert "broker.id=3\n" in written
    assert "cluster.id=cluster\n" in written
    assert "version=0\n" in written
    assert broker.logs.check_identity(None, None) == ("cluster", 3)
    with pytest.raises(ConfigError, match="Stored node id 3 doesn't match previous node id 4"):
        broker.logs.check_identity("cluster", 4)
    with pytest.raises(ConfigError, match="Expected other, but read cluster"):
        broker.logs.check_identity("other", 3)
    before = (tmp_path / "a" / "meta.properties").stat().st_mtime_ns
    broker.logs.write_identity("cluster", 3)
    assert (tmp_path / "a" / "meta.properties").stat().st_mtime_ns == before


def test_a_dir_whose_identity_cannot_be_read_goes_offline_alone(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b")
    broker.logs.write_identity("cluster", 3)
    (tmp_path / "a" / "meta.properties").unlink()
    (tmp_path / "a" / "meta.properties").mkdir()
    assert broker.logs.check_identity(None, None) == ("cluster", 3)
    assert broker.failed == [tmp_path / "a"]
    broker.logs.release()


def test_a_dir_whose_identity_cannot_be_written_goes_offline_alone(tmp_path: Path) -> None:
    """Without it, another broker could take the dir for its own."""
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a").rename(tmp_path / "away")
    broker.logs.write_identity("cluster", 3)
    assert broker.failed == [tmp_path / "a"]
    assert (tmp_path / "b" / "meta.properties").exists()
    broker.logs.release()


def test_a_folder_that_is_no_partition_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "d" / "lost+found").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"lost\+found"):
        ManagedLogs(tmp_path / "d").loaded()


@pytest.mark.parametrize("name", ["remote-log-index-cache", "__cluster_metadata-0"])
def test_folders_of_tiered_storage_and_kraft_are_left_alone(tmp_path: Path, name: str) -> None:
    """As in Kafka 3.9.1, whose start fails with any other folder that is no partition's."""
    (tmp_path / name).mkdir()
    broker = ManagedLogs(tmp_path).loaded()
    assert not broker.logs.logs
    broker.logs.shutdown()
    assert not list((tmp_path / name).iterdir())


def test_kafkas_folders_of_deleted_and_stray_partitions_are_known(tmp_path: Path) -> None:
    log_dir = recorded_copy("clean", tmp_path / "d")
    (log_dir / "codec-lz4-0").rename(log_dir / "codec-lz4-0.af3679591fd1434684800313fa806c83-stray")
    broker = ManagedLogs(log_dir, delay_ms=1000).loaded()
    doomed = next(log_dir.glob("doomed-0.*-delete"))
    assert TopicPartition("doomed", 0) not in broker.logs.logs
    assert TopicPartition("codec-lz4", 0) not in broker.logs.logs
    run_jobs(broker.logs.due_jobs())
    assert doomed.exists()
    broker.clock.advance(1000)
    run_jobs(broker.logs.due_jobs())
    assert not doomed.exists()
    assert next(log_dir.glob("codec-lz4-0.*-stray")).exists()


def test_a_partition_in_two_dirs_stops_the_start(tmp_path: Path) -> None:
    for name in ("a", "b"):
        broker = ManagedLogs(tmp_path / name).loaded()
        broker.create(A)
        broker.logs.shutdown()
    with pytest.raises(StorageError, match="Duplicate log directories for topic-0 are found in both"):
        ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()


# --- failing dirs


def test_a_dir_that_fails_goes_offline_alone(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    for n in range(4):
        broker.create(TopicPartition("t", n))
    good = [partition for partition, log in broker.logs.logs.items() if log.log_dir.name == "b"]
    bad = broker.logs.logs[TopicPartition("t", 0)]
    bad.dir.rename(bad.dir.with_name("gone"))
    with pytest.raises(KafkaError) as caught:
        bad.roll()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.failed == [tmp_path / "a"]
    assert list(broker.logs.logs) == good
    assert (broker.logs.live_dirs, broker.logs.offline_dirs) == ([tmp_path / "b"], [tmp_path / "a"])
    with pytest.raises(KafkaError):
        bad.append_as_leader(data_batch(b"x"), 0)
    broker.create(A)
    assert broker.logs.logs[A].log_dir.name == "b"
    with pytest.raises(KafkaError, match="may be in one of the offline directories"):
        broker.logs.delete(TopicPartition("t", 0))
    broker.logs.shutdown()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_a_dir_with_a_broken_file_fails_at_the_start_alone(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    broker.create(A, 2)
    broker.create(B, 2)
    broken = broker.logs.logs[A].dir / "partition.metadata"
    broker.logs.shutdown()
    broken.write_text("garbage")
    again = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    assert again.failed == [tmp_path / "a"]
    assert list(again.logs.logs) == [B]
    again.logs.shutdown()


def test_the_start_ends_when_the_last_dir_fails_in_it(tmp_path: Path) -> None:
    """A broker without a log dir would take its partitions for lost."""
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 2)
    broken = broker.logs.logs[A].dir / "partition.metadata"
    broker.logs.shutdown()
    broken.write_text("garbage")
    again = ManagedLogs(tmp_path / "d")
    with pytest.raises(StorageError, match="None of the log dirs can be used"):
        again.logs.load()
    again.logs.release()


def test_nothing_stays_open_in_a_dir_that_has_failed(tmp_path: Path) -> None:
    """Otherwise nobody could unmount the disk before the broker ends."""
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    broker.create(A, 2)
    broker.logs.fail_dir(tmp_path / "a", "as a test wants it", OSError(errno.EIO, "broken"))
    assert open_files_in(tmp_path / "a") == 0
    assert open_files_in(tmp_path / "b") == 1, "the lock"
    broker.logs.shutdown()


def test_a_dir_in_which_no_log_can_be_made_fails_and_the_next_one_is_tried(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    (tmp_path / "a" / "topic-0").write_text("no folder")
    broker.create(A)
    assert broker.failed == [tmp_path / "a"]
    assert broker.logs.logs[A].log_dir == tmp_path / "b"
    broker.logs.shutdown()


def test_no_log_is_made_in_a_dir_that_has_failed(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    broker.logs.fail_dir(tmp_path / "a", "as a test wants it", OSError(errno.EIO, "broken"))
    with pytest.raises(KafkaError) as caught:
        broker.logs.get_or_create(A, is_new=True, preferred_dir=tmp_path / "a")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not (tmp_path / "a" / "topic-0").exists()
    broker.logs.shutdown()


def test_a_checkpoint_that_cannot_be_written_fails_its_dir(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    jobs = broker.logs.checkpoint_jobs(RECOVERY_POINT_CHECKPOINT)
    (tmp_path / "a").rename(tmp_path / "gone")
    run_jobs(jobs)
    assert broker.failed == [tmp_path / "a"]


# --- logs


def test_topic_ids_do_not_change(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    log = broker.logs.get_or_create(A, is_new=True)
    assert log.topic_id is None
    assert broker.logs.get_or_create(A, topic_id=TOPIC_ID, is_new=False) is log
    assert (log.dir / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert broker.logs.get_or_create(A, is_new=False).topic_id == TOPIC_ID
    with pytest.raises(KafkaError) as caught:
        broker.logs.get_or_create(A, topic_id=bytes(15) + b"x", is_new=False)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_before_ibp_2_8_folders_lose_their_topic_ids_and_get_none(tmp_path: Path) -> None:
    """An old controller drops a topic's id, and the next new one gives it another."""
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, values=3)
    broker.logs.shutdown()
    old = ManagedLogs(tmp_path / "d")
    old.logs.config = replace(old.logs.config, keeps_topic_ids=False)
    run_jobs(old.loaded().logs.creation_jobs([B], {B: TOPIC_ID}))
    logs = [old.logs.get_or_create(partition, topic_id=TOPIC_ID, is_new=True) for partition in (A, B, C)]
    assert [log.topic_id for log in logs] == [None] * 3
    assert values_of(logs[0]) == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert not list((tmp_path / "d").glob("*/partition.metadata"))
    old.logs.shutdown()
    new = ManagedLogs(tmp_path / "d").loaded()
    assert new.logs.get_or_create(A, topic_id=OTHER_ID, is_new=False).topic_id == OTHER_ID
    new.logs.release()


def test_a_deleted_log_is_renamed_and_goes_later(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d", delay_ms=500).loaded()
    broker.create(A, 2)
    broker.create(B, 2)
    write_checkpoints(broker.logs)
    log = broker.logs.logs[A]
    broker.logs.delete(A)
    broker.logs.delete(A)
    assert broker.logs.get(A) is None
    (renamed,) = (tmp_path / "d").glob("topic-0.*-delete")
    assert len(renamed.name) == len("topic-0.") + 32 + len("-delete")
    with pytest.raises(KafkaError):
        log.append_as_leader(data_batch(b"x"), 0)
    run_jobs(broker.logs.due_jobs())
    assert checkpoint(tmp_path / "d", "recovery-point-offset-checkpoint") == {B: 0}
    assert renamed.exists()
    broker.create(A)
    broker.clock.advance(500)
    run_jobs(broker.logs.due_jobs())
    assert not renamed.exists()
    assert broker.logs.deletion_jobs() == [], "of two at once, one would find the folder gone, and fail the dir"
    assert broker.logs.logs[A].log_end_offset == 1
    broker.logs.shutdown()


def test_a_deleted_log_has_nothing_to_flush(tmp_path: Path) -> None:
    """Who waits for the flush is not told that the disk has failed."""
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A)
    log = broker.logs.logs[A]
    broker.logs.delete(A)
    assert log.begin_flush() is None
    broker.logs.shutdown()


def test_a_deletion_that_is_on_the_disk_takes_no_next_log_out_of_the_checkpoints(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A)
    broker.logs.delete(A)
    run_due(broker.logs)
    broker.create(A)
    write_checkpoints(broker.logs)
    assert list(broker.logs.due_jobs()) == []
    broker.logs.shutdown()


def test_many_logs_are_made_in_threads(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    broker.create(A)
    partitions = [TopicPartition("t", n) for n in range(9)]
    jobs = broker.logs.creation_jobs([A, *partitions])
    assert len(jobs) == 2
    assert broker.logs.get(partitions[0]) is None
    run_jobs(jobs)
    found = [broker.logs.get_or_create(partition, topic_id=TOPIC_ID, is_new=True) for partition in partitions]
    assert [log.log_dir.name for log in found].count("b") == 5
    assert broker.logs.creation_jobs(partitions) == []


def test_a_log_made_in_a_thread_has_its_topic_id(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A)
    broker.logs.release()
    (tmp_path / "d" / "topic-0").rename(tmp_path / "d" / "topic-2")
    again = ManagedLogs(tmp_path / "d").loaded()
    del again.logs.logs[C]
    run_jobs(again.logs.creation_jobs([B, C], {B: OTHER_ID, C: OTHER_ID}))
    assert [again.logs.logs[partition].topic_id for partition in (B, C)] == [OTHER_ID, TOPIC_ID], (
        "a folder keeps the id it has"
    )
    again.logs.release()
    assert ManagedLogs(tmp_path / "d").loaded().logs.logs[B].topic_id == OTHER_ID


def test_settings_that_change_while_a_thread_makes_a_log_reach_it(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    (job,) = broker.logs.creation_jobs([A])
    job.run()
    broker.config = LogConfig(max_message_bytes=5)
    job.finish()
    assert broker.logs.logs[A].config.max_message_bytes == 5
    broker.logs.shutdown()


def test_settings_of_the_broker_reach_all_logs(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "a", tmp_path / "b").loaded()
    broker.create(A)
    copy = create_future_log(broker.logs, A, tmp_path / "b")
    broker.config = LogConfig(max_message_bytes=5)
    list(broker.logs.config_steps())
    assert [log.config.max_message_bytes for log in (broker.logs.logs[A], copy)] == [5, 5]
    broker.logs.shutdown()


def test_settings_reach_the_topics_logs(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A)
    broker.create(TopicPartition("other", 0))
    broker.logs.update_topic_config("topic", LogConfig(max_message_bytes=5))
    assert broker.logs.logs[A].config.max_message_bytes == 5
    assert broker.logs.logs[TopicPartition("other", 0)].config == LogConfig()
