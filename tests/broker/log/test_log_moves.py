"""The end of a move between log dirs: which log replaces which, and what a crash in the middle leaves."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from forgetful_disk import KILLED, MIXED, STRICT, Call, Disk, Image, write_image
from log_folders import NOW_MS, data_batch, folder_content, read_all, run_due, values_of
from virtual_time import ManualClock

from engine.broker.log.disk_jobs import run_jobs
from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.broker.log.log_moves import (
    create_future_log,
    delete_future_log,
    preparing_jobs,
    replace_current_with_future,
)
from engine.broker.log.replaced_logs import MOVED_MARK
from engine.common.errors import ErrorCode, KafkaError, StorageError
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig

TP = TopicPartition("orders", 3)
TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_index_bytes=1000)
"""The indexes take this much on the disk, and there are hundreds of images of it."""


class Broker:
    def __init__(self, folder: Path, config: LogConfig | None = None, *, dirs: str = "ab") -> None:
        self.a, self.b, self.c = (folder / name for name in "abc")
        self.failed: list[Path] = []
        settings = LogManagerConfig(tuple(folder / name for name in dirs), log_segment_delete_delay_ms=0)
        self.logs = LogManager(settings, lambda _topic: config or SMALL, ManualClock(NOW_MS), self.failed.append)
        self.logs.load()

    def log_with_copy(self, topic_id: bytes | None = TOPIC_ID) -> tuple[Log, Log]:
        """Make a log in one dir and an up-to-date copy of it in the other."""
        log = self.logs.get_or_create(TP, topic_id=topic_id, is_new=True, preferred_dir=self.a)
        log.append_as_leader(data_batch(b"1", b"2", timestamp_ms=NOW_MS), 4)
        log.update_high_watermark(2)
        future = create_future_log(self.logs, TP, self.b)
        records = log.read(0, 1000, limit_offset=2, min_one_batch=True).records
        assert records is not None
        future.append_as_follower(memoryview(records.read()))
        return log, future


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir())


def test_the_copy_takes_the_place(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    _, future = broker.log_with_copy()
    assert replace_current_with_future(broker.logs, TP) is future
    assert broker.logs.logs == {TP: future}
    assert broker.logs.future_logs == {}
    assert (future.high_watermark, future.topic_id, future.leader_epochs.latest_epoch) == (2, TOPIC_ID, 4)
    assert names(broker.b) == ["orders-3"]
    assert (future.dir / MOVED_MARK).exists()
    run_due(broker.logs)
    assert not (future.dir / MOVED_MARK).exists()
    assert names(broker.a) == []
    broker.logs.shutdown()
    again = Broker(tmp_path)
    assert again.logs.logs[TP].log_end_offset == 2
    again.logs.shutdown()


def test_an_orderly_stop_ends_a_move(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    _, future = broker.log_with_copy()
    replace_current_with_future(broker.logs, TP)
    broker.logs.shutdown()
    assert (broker.a / "orders-3").exists() is False
    assert not (future.dir / MOVED_MARK).exists()


def test_what_is_written_after_the_move_is_in_the_new_folder(tmp_path: Path) -> None:
    """Segments, indexes, producer snapshots, leader epochs: all are under the folder's plain name."""
    config = LogConfig(segment_bytes=300, index_interval_bytes=0)
    broker = Broker(tmp_path, config)
    _, future = broker.log_with_copy()
    replace_current_with_future(broker.logs, TP)
    for n in range(8):
        batch = data_batch(b"v" * 40, producer=(7, 0, n), timestamp_ms=NOW_MS)
        assert future.append_as_leader(batch, 5 + n // 4).first_offset == 2 + n
    assert len(future.segments) > 2
    future.flush()
    expected, epochs, files = values_of(future), future.leader_epochs.entries, folder_content(future.dir)
    assert [epoch for epoch, _ in epochs] == [4, 5, 6]
    assert {name.rpartition(".")[2] for name in files} >= {"log", "index", "timeindex", "snapshot"}
    broker.logs.shutdown()
    assert broker.failed == []
    again = Broker(tmp_path, config)
    log = again.logs.logs[TP]
    assert (values_of(log), log.leader_epochs.entries) == (expected, epochs)
    assert log.append_as_leader(data_batch(b"v" * 40, producer=(7, 0, 7)), 6).is_duplicate
    again.logs.shutdown()


@pytest.mark.parametrize("is_prepared", [True, False])
def test_the_copy_gets_what_its_records_do_not_tell(tmp_path: Path, is_prepared: bool) -> None:
    """It gets the topic id, a leader epoch without records and a start that DeleteRecords has moved."""
    broker = Broker(tmp_path)
    log, future = broker.log_with_copy(topic_id=None)
    if is_prepared:
        run_jobs(preparing_jobs(broker.logs, log, future))
    log.assign_topic_id(TOPIC_ID)
    log.assign_leader_epoch(7, 2)
    log.increment_log_start_offset(1)
    replace_current_with_future(broker.logs, TP)
    assert (future.topic_id, future.leader_epochs.entries, future.log_start_offset) == (TOPIC_ID, ((4, 1), (7, 2)), 1)
    broker.logs.shutdown()
    again = Broker(tmp_path)
    log = again.logs.logs[TP]
    assert (log.topic_id, log.log_start_offset) == (TOPIC_ID, 1)
    again.logs.shutdown()


def test_an_empty_copy_takes_the_place_of_an_empty_log(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.logs.get_or_create(TP, is_new=True, preferred_dir=broker.a)
    future = create_future_log(broker.logs, TP, broker.b)
    assert replace_current_with_future(broker.logs, TP) is future
    assert (future.topic_id, future.leader_epochs.entries, future.log_start_offset) == (None, (), 0)
    broker.logs.shutdown()


def test_a_copy_of_another_topic_takes_no_place(tmp_path: Path) -> None:
    """Its topic was deleted, and another one has the name now."""
    broker = Broker(tmp_path)
    log, future = broker.log_with_copy()
    future.assign_topic_id(bytes(16))
    with pytest.raises(KafkaError) as refused:
        replace_current_with_future(broker.logs, TP)
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert broker.logs.logs == {TP: log}
    assert not (future.dir / MOVED_MARK).exists()
    broker.logs.shutdown()


def test_a_move_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log, _ = broker.log_with_copy()
    for _ in range(2):
        delete_future_log(broker.logs, TP)
        assert (broker.logs.logs, broker.logs.future_logs) == ({TP: log}, {})
    run_due(broker.logs)
    assert (names(broker.a), names(broker.b)) == (["orders-3"], [])
    broker.logs.shutdown()


def test_a_move_to_a_wanted_dir_fulfils_the_wish(tmp_path: Path) -> None:
    """AlterReplicaLogDirs wanted it for this replica, not for the next topic's of that name."""
    broker = Broker(tmp_path)
    broker.logs.get_or_create(TP, is_new=True, preferred_dir=broker.a)
    broker.logs.preferred_dirs[TP] = broker.b
    create_future_log(broker.logs, TP, broker.b)
    broker.logs.delete(TP)
    assert broker.logs.get_or_create(TP, is_new=True).log_dir == broker.a
    broker.logs.shutdown()


def test_the_mark_is_on_the_disk_before_the_copy_takes_the_place(tmp_path: Path) -> None:
    """A power failure could otherwise leave two folders of the same name, and no sign of which one counts."""
    broker = Broker(tmp_path)
    log, future = broker.log_with_copy()
    future.assign_topic_id(TOPIC_ID)
    future.flush()
    disk = Disk(tmp_path)
    with disk.watched():
        run_jobs(preparing_jobs(broker.logs, log, future))
    assert f"b/{future.dir.name}/{MOVED_MARK}" in disk.image(STRICT)
    broker.logs.shutdown()


def test_a_copy_that_cannot_be_marked_takes_no_place(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log, future = broker.log_with_copy()
    future.assign_topic_id(TOPIC_ID)
    future.dir.rename(broker.b / "away")
    with pytest.raises(KafkaError) as refused:
        replace_current_with_future(broker.logs, TP)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.failed == [broker.b]
    assert broker.logs.logs == {TP: log}
    broker.logs.shutdown()


def test_records_that_came_after_the_preparation_are_flushed_by_the_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With flush.messages no record is acknowledged that is on no disk."""
    broker = Broker(tmp_path, LogConfig(flush_messages=1))
    log, future = broker.log_with_copy()
    run_jobs(preparing_jobs(broker.logs, log, future))
    log.append_as_leader(data_batch(b"3", timestamp_ms=NOW_MS), 4)
    future.append_as_follower(memoryview(read_all(log, 2)))

    def no_descriptor(fd: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_descriptor)
        with pytest.raises(KafkaError):
            replace_current_with_future(broker.logs, TP)
    assert (broker.logs.logs, names(broker.b)) == ({TP: log}, [future.dir.name])
    replace_current_with_future(broker.logs, TP)
    assert (future.recovery_point, future.is_flush_due) == (3, False)
    broker.logs.shutdown()


def test_a_flush_that_somebody_waits_for_is_done_by_the_swap(tmp_path: Path) -> None:
    """With flush.messages the producer's answer waits for the disk, even if the log moves meanwhile."""
    broker = Broker(tmp_path, LogConfig(flush_messages=1))
    log, future = broker.log_with_copy()
    assert log.is_flush_due
    replace_current_with_future(broker.logs, TP)
    assert log.begin_flush() is None
    assert (future.recovery_point, future.is_flush_due) == (2, False)
    broker.logs.shutdown()


@pytest.mark.parametrize(("code", "failed"), [(errno.EIO, ["b"]), (errno.EMFILE, [])])
def test_a_copy_that_cannot_be_flushed_takes_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, failed: list[str]
) -> None:
    """The replica stays where it is: at the next start the copy must not count as the replica."""
    broker = Broker(tmp_path)
    log, future = broker.log_with_copy()

    def broken(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(KafkaError) as refused:
            replace_current_with_future(broker.logs, TP)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [path.name for path in broker.failed] == failed
    assert broker.logs.logs == {TP: log}
    assert names(broker.b) == [future.dir.name]
    broker.logs.shutdown()


def test_without_a_copy_or_the_log_nothing_is_replaced(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    _, future = broker.log_with_copy()
    del broker.logs.future_logs[TP]
    with pytest.raises(KafkaError, match="The future replica for orders-3 is offline") as refused:
        replace_current_with_future(broker.logs, TP)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    broker.logs.future_logs[TP] = future
    broker.logs.fail_dir(broker.a, "as a test wants it", OSError(errno.EIO, "broken"))
    with pytest.raises(KafkaError, match="The current replica for orders-3 is offline") as refused:
        replace_current_with_future(broker.logs, TP)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    broker.logs.shutdown()


def test_a_crash_between_the_two_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both folders have the plain name: the newer one counts."""
    broker = Broker(tmp_path)
    old, _ = broker.log_with_copy()

    class Crash(BaseException):
        pass

    def crash(_log: Log, _name: str) -> None:
        raise Crash

    replace_current_with_future(broker.logs, TP)
    with monkeypatch.context() as patch:
        patch.setattr(Log, "rename_dir", crash)
        with pytest.raises(Crash):
            run_jobs(broker.logs.replaced.jobs())
    old.abandon()
    broker.logs.release()
    assert names(broker.a) == names(broker.b) == ["orders-3"]
    again = Broker(tmp_path)
    log = again.logs.logs[TP]
    assert (log.log_dir, log.log_end_offset, log.topic_id) == (again.b, 2, TOPIC_ID)
    assert not (log.dir / MOVED_MARK).exists()
    run_due(again.logs)
    assert names(again.a) == []
    again.logs.shutdown()


def test_the_source_fails_at_the_very_end(tmp_path: Path) -> None:
    """The move is done. When the old dir is back, its content does not count."""
    broker = Broker(tmp_path)
    _, future = broker.log_with_copy()
    broker.a.rename(tmp_path / "away")
    assert replace_current_with_future(broker.logs, TP) is future
    run_jobs(broker.logs.replaced.jobs())
    assert broker.failed == [broker.a]
    assert broker.logs.logs == {TP: future}
    future.append_as_leader(data_batch(b"3", timestamp_ms=NOW_MS), 4)
    broker.logs.shutdown()
    shutil.rmtree(broker.a, ignore_errors=True)
    (tmp_path / "away").rename(broker.a)
    again = Broker(tmp_path)
    assert (again.logs.logs[TP].log_dir, again.logs.logs[TP].log_end_offset) == (again.b, 3)
    again.logs.shutdown()


def test_the_target_fails_at_the_very_end(tmp_path: Path) -> None:
    """The old folder does not come back in its place: it has nothing that was written since."""
    broker = Broker(tmp_path)
    _, future = broker.log_with_copy()
    replace_current_with_future(broker.logs, TP)
    future.append_as_leader(data_batch(b"3", timestamp_ms=NOW_MS), 4)
    broker.logs.fail_dir(broker.b, "as a test wants it", OSError(errno.EIO, "broken"))
    broker.logs.release()
    again = Broker(tmp_path, dirs="a")
    assert again.logs.logs == {}
    again.logs.shutdown()


def test_two_folders_that_no_move_explains(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.logs.get_or_create(TP, is_new=True, preferred_dir=broker.a)
    log.append_as_leader(data_batch(b"1", timestamp_ms=NOW_MS), 0)
    broker.logs.shutdown()
    shutil.copytree(broker.a / "orders-3", broker.b / "orders-3")
    with pytest.raises(StorageError, match="Duplicate log directories for orders-3 are found in both"):
        Broker(tmp_path)


@pytest.mark.parametrize("first", ["a", "b"])
def test_of_two_folders_the_one_without_records_goes(tmp_path: Path, first: str) -> None:
    """The first log dir failed while the log was being made in it, so the log was made in the other one."""
    broker = Broker(tmp_path)
    log = broker.logs.get_or_create(TP, topic_id=TOPIC_ID, is_new=True, preferred_dir=tmp_path / first)
    log.append_as_leader(data_batch(b"1", timestamp_ms=NOW_MS), 0)
    broker.logs.release()
    (empty,) = {broker.a, broker.b} - {log.log_dir}
    (empty / "orders-3").mkdir()
    again = Broker(tmp_path)
    assert again.logs.logs[TP].dir == log.dir
    assert values_of(again.logs.logs[TP]) == [(0, b"1")]
    run_due(again.logs)
    assert names(empty) == []
    again.logs.shutdown()


def noting_images(disk: Disk, crash: str) -> list[Image]:
    """Return a list that gets what a crash of this kind would leave before each change of the disk."""
    images: list[Image] = []
    rng = random.Random(1)

    def before(call: Call) -> None:
        for _ in range((3 if crash == MIXED else 1) * call.is_change):
            image = disk.image(crash, rng)
            if image not in images:
                images.append(image)

    disk.before = before
    return images


@pytest.mark.parametrize("crash", [KILLED, STRICT, MIXED])
@pytest.mark.parametrize("is_upkeep_late", [False, True])
def test_a_crash_at_any_point_of_two_moves_loses_nothing(tmp_path: Path, is_upkeep_late: bool, crash: str) -> None:
    """There and back again; the first move ends before the second or during it. A start finds one replica."""
    broker = Broker(tmp_path / "disk")
    log, copy = broker.log_with_copy()
    log.flush()
    if is_upkeep_late:
        copy.flush()
    disk = Disk(tmp_path / "disk")
    images = noting_images(disk, crash)
    with disk.watched():
        replace_current_with_future(broker.logs, TP)
        if not is_upkeep_late:
            run_due(broker.logs)
        future = create_future_log(broker.logs, TP, broker.a)
        future.append_as_follower(memoryview(read_all(broker.logs.logs[TP])))
        replace_current_with_future(broker.logs, TP)
        run_due(broker.logs)
    broker.logs.release()
    assert len(images) >= 8
    for number, image in enumerate(images):
        check_the_replica(write_image(image, tmp_path / str(number)))


@pytest.mark.parametrize("crash", [KILLED, STRICT, MIXED])
def test_a_crash_at_any_point_of_the_start_that_ends_a_move_loses_nothing(tmp_path: Path, crash: str) -> None:
    """Both folders have the plain name, and only the mark tells which one counts.

    It stays until one of them is gone.
    """
    broker = Broker(tmp_path / "disk")
    broker.log_with_copy()
    replace_current_with_future(broker.logs, TP)
    broker.logs.release()
    assert names(broker.a) == names(broker.b) == ["orders-3"]
    disk = Disk(tmp_path / "disk")
    images = noting_images(disk, crash)
    with disk.watched():
        again = Broker(tmp_path / "disk")
        run_due(again.logs)
    again.logs.release()
    assert len(images) >= 3
    for number, image in enumerate(images):
        check_the_replica(write_image(image, tmp_path / str(number)))


def test_the_mark_stays_as_long_as_the_old_dir_is_away(tmp_path: Path) -> None:
    """The mark survives starts and a further move: the old folder comes back with its disk."""
    broker = Broker(tmp_path, dirs="abc")
    _, future = broker.log_with_copy()
    replace_current_with_future(broker.logs, TP)
    last = create_future_log(broker.logs, TP, tmp_path / "c")
    last.append_as_follower(memoryview(read_all(future)))
    broker.a.rename(tmp_path / "away")
    assert replace_current_with_future(broker.logs, TP) is last
    last.append_as_leader(data_batch(b"3", timestamp_ms=NOW_MS), 4)
    run_due(broker.logs)
    assert broker.failed == [broker.a]
    broker.logs.shutdown()

    shutil.rmtree(broker.a, ignore_errors=True)
    broker.a.touch()
    again = Broker(tmp_path, dirs="abc")
    assert again.logs.offline_dirs == [broker.a]
    run_due(again.logs)
    again.logs.shutdown()

    broker.a.unlink()
    (tmp_path / "away").rename(broker.a)
    assert names(broker.a) == ["orders-3"]
    back = Broker(tmp_path, dirs="abc")
    assert (back.logs.logs[TP].log_dir, values_of(back.logs.logs[TP])[-1]) == (tmp_path / "c", (2, b"3"))
    run_due(back.logs)
    assert (names(broker.a), names(broker.b)) == ([], [])
    back.logs.shutdown()


@pytest.mark.parametrize("mark", ["1", ""], ids=["mark", "mark-of-an-earlier-version"])
@pytest.mark.parametrize("is_third_away", [True, False])
def test_a_start_that_finds_no_older_folder_removes_the_mark(tmp_path: Path, is_third_away: bool, mark: str) -> None:
    """It would tell a later start to take this folder, whatever the other one holds.

    A dir that is away may hold the older folder, but not if there is only one and the start has found that.
    """
    broker = Broker(tmp_path, dirs="abc")
    _, future = broker.log_with_copy()
    replace_current_with_future(broker.logs, TP)
    broker.logs.release()
    (future.dir / MOVED_MARK).write_text(mark)
    if is_third_away:
        shutil.rmtree(tmp_path / "c")
        (tmp_path / "c").touch()
    else:
        shutil.rmtree(broker.a)
    again = Broker(tmp_path, dirs="abc")
    run_due(again.logs)
    assert again.logs.logs[TP].dir == future.dir
    assert not (future.dir / MOVED_MARK).exists()
    again.logs.shutdown()


def moved_on_after_a_failed_dir(broker: Broker) -> Log:
    """Move a replica from a to b, and prepare its move to c; a fails before the first move's end."""
    _, future = broker.log_with_copy()
    replace_current_with_future(broker.logs, TP)
    last = create_future_log(broker.logs, TP, broker.c)
    last.append_as_follower(memoryview(read_all(future)))
    broker.logs.fail_dir(broker.a, "as a test wants it", OSError(errno.EIO, "broken"))
    return last


@contextmanager
def away(path: Path) -> Iterator[None]:
    """Make a log dir unusable for a while."""
    path.rename(path.with_name("away"))
    path.touch()
    yield
    path.unlink()
    path.with_name("away").rename(path)


@pytest.mark.parametrize("crash", [KILLED, STRICT, MIXED])
@pytest.mark.parametrize("is_first_back", [True, False])
def test_a_crash_at_any_point_of_a_move_that_follows_a_failed_one_loses_nothing(
    tmp_path: Path, is_first_back: bool, crash: str
) -> None:
    """The mark of the first move has stayed, and the second makes one too: the later one counts."""
    broker = Broker(tmp_path / "disk", dirs="abc")
    moved_on_after_a_failed_dir(broker)
    disk = Disk(tmp_path / "disk")
    images = noting_images(disk, crash)
    with disk.watched():
        replace_current_with_future(broker.logs, TP)
        run_due(broker.logs)
    broker.logs.release()
    assert len(images) >= 4
    for number, image in enumerate(images):
        folder = write_image(image, tmp_path / str(number))
        with nullcontext() if is_first_back else away(folder / "a"):
            again = Broker(folder, dirs="abc")
            log = again.logs.logs[TP]
            assert values_of(log) == [(0, b"1"), (1, b"2")]
            log.append_as_leader(data_batch(b"3", timestamp_ms=NOW_MS), 5)
            run_due(again.logs)
            again.logs.shutdown()
        last = Broker(folder, dirs="abc")
        log = last.logs.logs[TP]
        assert (values_of(log)[2:], log.topic_id) == ([(2, b"3")], TOPIC_ID)
        run_due(last.logs)
        assert [path for path in (last.a, last.b, last.c) if (path / "orders-3").exists()] == [log.log_dir]
        last.logs.shutdown()
        shutil.rmtree(folder)


def test_the_mark_stays_as_long_as_one_of_two_old_dirs_is_away(tmp_path: Path) -> None:
    """Otherwise the older mark, in the folder that comes back last, would count."""
    broker = Broker(tmp_path, dirs="abc")
    last = moved_on_after_a_failed_dir(broker)
    replace_current_with_future(broker.logs, TP)
    broker.logs.fail_dir(broker.b, "as a test wants it", OSError(errno.EIO, "broken"))
    last.append_as_leader(data_batch(b"3", timestamp_ms=NOW_MS), 4)
    broker.logs.shutdown()
    with away(broker.b):
        again = Broker(tmp_path, dirs="abc")
        run_due(again.logs)
        assert names(broker.a) == []
        again.logs.shutdown()
    back = Broker(tmp_path, dirs="abc")
    log = back.logs.logs[TP]
    assert (log.log_dir, values_of(log)[2:]) == (broker.c, [(2, b"3")])
    assert not (log.dir / MOVED_MARK).exists()
    run_due(back.logs)
    assert names(broker.b) == []
    back.logs.shutdown()


def test_a_topic_deleted_while_it_moves_is_deleted_in_both_dirs(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.log_with_copy()
    broker.logs.delete(TP)
    assert (broker.logs.logs, broker.logs.future_logs) == ({}, {})
    run_due(broker.logs)
    assert (names(broker.a), names(broker.b)) == ([], [])
    broker.logs.shutdown()


def test_a_topic_deleted_at_the_end_of_a_move_is_deleted_in_both_dirs(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.log_with_copy()
    replace_current_with_future(broker.logs, TP)
    broker.logs.delete(TP)
    run_jobs(broker.logs.forgetting_jobs([TP]))
    broker.logs.release()
    again = Broker(tmp_path)
    assert again.logs.logs == {}
    again.logs.shutdown()


def check_the_replica(folder: Path) -> None:
    again = Broker(folder)
    log = again.logs.logs[TP]
    assert (values_of(log), log.topic_id) == ([(0, b"1"), (1, b"2")], TOPIC_ID)
    run_due(again.logs)
    again.logs.release()
    plain = [path for path in (again.a, again.b) if (path / "orders-3").exists()]
    assert plain == [log.log_dir]
    shutil.rmtree(folder)
