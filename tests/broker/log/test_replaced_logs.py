"""What follows the replacement of a log by its copy in another log dir, job by job, and what a failed dir ends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.broker.log.replaced_logs import MOVED_MARK, ReplacedLogs, unmark_moved
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Moving:
    """Partitions whose logs in dir ``old`` are replaced by those in dir ``new``, which have the mark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failures: list[str] = []
        self.retired: list[TopicPartition] = []
        self.error: Exception | None = None
        self.failing = [T0, T1]
        self.replaced = ReplacedLogs(self, self._retire)  # type: ignore[arg-type]

    def _retire(self, log: Any) -> None:
        if self.error is not None and log.topic_partition in self.failing:
            raise self.error
        self.retired.append(log.topic_partition)

    def fail_dir(self, log_dir: Path, message: str, error: OSError) -> None:
        self.failures.append(message)

    def log(self, where: str, partition: TopicPartition) -> Any:
        folder = self.folder / where / f"t-{partition.partition}"
        folder.mkdir(parents=True)
        moving = SimpleNamespace(
            topic_partition=partition, dir=folder, log_dir=folder.parent, is_retired=False, is_abandoned=False,
            folder=SimpleNamespace(is_unsynced=False),
        )  # fmt: skip
        moving.abandon = lambda: setattr(moving, "is_abandoned", True)
        return moving

    def replace(self, partition: TopicPartition = T0) -> tuple[Any, Any]:
        old, new = self.log("old", partition), self.log("new", partition)
        (new.dir / MOVED_MARK).touch()
        self.replaced.add(old, new, keeps_mark=False)
        return old, new


def carry_out(moving: Moving) -> int:
    """Carry out all jobs there are; return their number."""
    count = 0
    for job in moving.replaced.jobs():
        job.run()
        job.finish()
        count += 1
    return count


def test_a_log_that_is_replaced_serves_nobody(tmp_path: Path) -> None:
    old, new = Moving(tmp_path).replace()
    assert (old.is_retired, old.is_abandoned, new.is_retired) == (True, True, False)


def test_the_old_name_goes_after_the_new_one_is_on_its_disk_and_the_mark_after_that(tmp_path: Path) -> None:
    moving = Moving(tmp_path)
    _, new = moving.replace()
    jobs = moving.replaced.jobs()
    first = next(jobs)
    assert moving.retired == []
    first.run()
    first.finish()
    second = next(jobs)
    assert (moving.retired, (new.dir / MOVED_MARK).exists()) == ([T0], True)
    second.run()
    second.finish()
    assert (list(jobs), (new.dir / MOVED_MARK).exists(), new.folder.is_unsynced) == ([], False, True)
    assert carry_out(moving) == 0, "it is over"


def test_without_the_new_name_on_its_disk_nothing_follows(tmp_path: Path) -> None:
    moving = Moving(tmp_path)
    moving.replace()
    jobs = moving.replaced.jobs()
    next(jobs)
    assert list(jobs) == []
    assert moving.retired == []


def test_what_was_given_up_meanwhile_is_not_carried_on(tmp_path: Path) -> None:
    moving = Moving(tmp_path)
    moving.replace()
    jobs = moving.replaced.jobs()
    first = next(jobs)
    moving.replaced.give_up(T0)
    first.run()
    first.finish()
    assert list(jobs) == []
    assert moving.retired == [T0], "once"


@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_rename_that_is_done_is_not_done_again(tmp_path: Path, is_given_up: bool) -> None:
    """The job that brings it to the disk may have to be made again."""
    moving = Moving(tmp_path)
    moving.replaced.give_up(T0)
    moving.replace()
    jobs = moving.replaced.jobs()
    first = next(jobs)
    first.run()
    first.finish()
    next(jobs)
    if is_given_up:
        moving.replaced.give_up(T0)
    assert carry_out(moving) == (0 if is_given_up else 1)
    assert moving.retired == [T0]


def test_after_a_rename_that_fails_the_mark_stays(tmp_path: Path) -> None:
    """It tells which of the two counts once the old dir is back."""
    moving = Moving(tmp_path)
    _, new = moving.replace()
    moving.error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert carry_out(moving) == 1
    assert carry_out(moving) == 0
    assert (new.dir / MOVED_MARK).exists()


def test_a_rename_that_fails_as_nobody_foresaw_keeps_no_other_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moving = Moving(tmp_path)
    (_, first), (_, second) = moving.replace(T0), moving.replace(T1)
    moving.error, moving.failing = ValueError("nobody has thought of it"), [T0]
    carry_out(moving)
    assert moving.retired == [T1]
    assert ((first.dir / MOVED_MARK).exists(), (second.dir / MOVED_MARK).exists()) == (True, False)
    assert "nobody has thought of it" in caplog.text


@pytest.mark.parametrize(("failed", "retired"), [("old", []), ("new", [T0, T1]), ("third", [])])
def test_with_the_dir_of_the_new_log_the_old_one_goes_too(
    tmp_path: Path, failed: str, retired: list[TopicPartition]
) -> None:
    """It would come back without what was written since."""
    moving = Moving(tmp_path)
    moving.replace(T0)
    moving.replace(T1)
    moving.replaced.dir_failed(tmp_path / failed)
    assert moving.retired == retired
    assert carry_out(moving) == (4 if failed == "third" else 0)


def test_a_dir_that_fails_in_between_gets_no_more_work(tmp_path: Path) -> None:
    moving = Moving(tmp_path)
    moving.replace(T0)
    moving.replace(T1)
    jobs = moving.replaced.jobs()
    next(jobs)
    moving.replaced.dir_failed(tmp_path / "new")
    assert list(jobs) == []


def test_the_mark_stays_if_the_old_dir_fails_while_it_is_synced(tmp_path: Path) -> None:
    """The sync may have claimed more than the disk has."""
    moving = Moving(tmp_path)
    _, new = moving.replace()
    jobs = moving.replaced.jobs()
    first = next(jobs)
    first.run()
    first.finish()
    second = next(jobs)
    second.run()
    moving.replaced.dir_failed(tmp_path / "old")
    second.finish()
    assert (new.dir / MOVED_MARK).exists()


def test_one_partition_does_not_wait_for_the_others(tmp_path: Path) -> None:
    moving = Moving(tmp_path)
    moving.replace(T0)
    moving.replace(T1)
    for job in moving.replaced.jobs(T1):
        job.run()
        job.finish()
    assert moving.retired == [T1]


def test_of_several_older_folders_each_goes(tmp_path: Path) -> None:
    """A start has found three folders of one partition."""
    moving = Moving(tmp_path)
    _, middle = moving.replace()
    newest = moving.log("newest", T0)
    moving.replaced.add(middle, newest, keeps_mark=True)
    carry_out(moving)
    assert moving.retired == [T0, T0]
    assert carry_out(moving) == 0


def test_a_mark_that_is_gone_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Moving(tmp_path).log("new", T0)
    unmark_moved(log)
    assert log.folder.is_unsynced and caplog.records == []
