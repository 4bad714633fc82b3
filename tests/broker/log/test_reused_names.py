"""A topic's name may be reused within a second: notes about the deleted topic never apply to the new one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from log_folders import TOPIC_ID, ManagedLogs, StandIn, checkpoint, values_of, write_checkpoints

from engine.broker.log.checkpoint_file import CheckpointFile
from engine.broker.log.disk_jobs import run_jobs
from engine.broker.log.log_manager import LogManager
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.formats.checkpoints import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT

A, B = (TopicPartition("topic", n) for n in range(2))
FILES = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


def with_deleted_start(path: Path) -> ManagedLogs:
    """Return a broker whose checkpoints say that A begins at 5, and is flushed up to 5."""
    broker = ManagedLogs(path).loaded()
    broker.create(A, 5)
    broker.create(B, 1)
    broker.logs.logs[A].flush()
    broker.logs.logs[A].increment_log_start_offset(5)
    broker.logs.logs[A].cleaning.first_dirty_offset = 5
    write_checkpoints(broker.logs)
    assert [checkpoint(path, name)[A] for name in FILES] == [5, 5, 5]
    return broker


def create_in_threads(logs: LogManager) -> None:
    run_jobs(logs.creation_jobs([A], {A: TOPIC_ID}))


def create_here(logs: LogManager) -> None:
    logs.get_or_create(A, is_new=True)


def check_no_checkpoint_names_it(path: Path) -> None:
    assert [A in checkpoint(path, name) for name in FILES] == [False, False, False]


def append_and_crash(broker: ManagedLogs) -> None:
    broker.create(A, 2)
    broker.logs.release()


def check_new_records_are_there(path: Path) -> None:
    again = ManagedLogs(path).loaded()
    log = again.logs.logs[A]
    assert (log.log_start_offset, log.log_end_offset, log.cleaning.first_dirty_offset) == (0, 2, None)
    assert values_of(log) == [(0, b"0"), (1, b"1")]
    again.logs.shutdown()


def test_a_deleted_log_leaves_all_checkpoints(tmp_path: Path) -> None:
    broker = with_deleted_start(tmp_path / "d")
    broker.logs.delete(A)
    run_jobs(broker.logs.forgetting_jobs([A]))
    for name in (*FILES, "cleaner-offset-checkpoint"):
        assert A not in checkpoint(tmp_path / "d", name)
    assert B in checkpoint(tmp_path / "d", "recovery-point-offset-checkpoint")
    assert broker.logs.forgetting_jobs([A]) == []
    broker.logs.shutdown()


@pytest.mark.parametrize("create", [create_in_threads, create_here])
def test_no_log_is_made_while_a_checkpoint_has_its_name(tmp_path: Path, create: Callable[[LogManager], None]) -> None:
    """This holds whatever kept the broker from noting the deletion."""
    broker = with_deleted_start(tmp_path / "d")
    broker.logs.delete(A)
    create(broker.logs)
    check_no_checkpoint_names_it(tmp_path / "d")
    append_and_crash(broker)
    check_new_records_are_there(tmp_path / "d")


@pytest.mark.parametrize("create", [create_in_threads, create_here])
def test_nor_after_a_crash_between_deletion_and_checkpoint(
    tmp_path: Path, create: Callable[[LogManager], None]
) -> None:
    broker = with_deleted_start(tmp_path / "d")
    broker.logs.delete(A)
    broker.logs.release()
    again = ManagedLogs(tmp_path / "d").loaded()
    create(again.logs)
    check_no_checkpoint_names_it(tmp_path / "d")
    append_and_crash(again)
    check_new_records_are_there(tmp_path / "d")


def test_a_folder_is_made_after_the_checkpoints_have_lost_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = with_deleted_start(tmp_path / "d")
    broker.logs.delete(A)
    named: list[bool] = []
    real_mkdir = Path.mkdir

    def mkdir(path: Path, *arguments: object, **options: object) -> None:
        if path.name == "topic-0":
            named.extend(A in checkpoint(tmp_path / "d", name) for name in FILES)
        real_mkdir(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", mkdir)
    create_in_threads(broker.logs)
    assert named == [False, False, False]
    broker.logs.shutdown()


def test_an_older_checkpoint_never_takes_the_place_of_a_newer_one(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 2)
    (older,) = broker.logs.checkpoint_jobs(HIGH_WATERMARK_CHECKPOINT)
    broker.create(A, 1)
    (newer,) = broker.logs.checkpoint_jobs(HIGH_WATERMARK_CHECKPOINT)
    run_jobs([newer, older])
    assert checkpoint(tmp_path / "d", "replication-offset-checkpoint") == {A: 3}
    broker.logs.shutdown()


def test_a_name_that_has_left_the_checkpoints_keeps_no_later_log_waiting(tmp_path: Path) -> None:
    broker = with_deleted_start(tmp_path / "d")
    broker.logs.delete(A)
    create_in_threads(broker.logs)
    broker.logs.delete(A)
    run_jobs(broker.logs.forgetting_jobs([]))
    assert broker.logs.forgetting_jobs([A]) == []
    broker.logs.shutdown()


def test_a_file_names_what_any_state_on_its_way_names(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "replication-offset-checkpoint")
    first, second = file.job(StandIn(), {A: 1}), file.job(StandIn(), {A: 1, B: 2})
    run_jobs([first])
    assert file.names_any([A]) and file.names_any([B]), "the second state is still to come"
    run_jobs([second, file.job(StandIn(), {B: 2})])
    assert not file.names_any([A]) and file.names_any([B]), "no state that names A is on the disk or to come"


def test_the_cleaners_checkpoint_is_written_from_the_first_cleaning_on(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 5)
    write_checkpoints(broker.logs)
    file = tmp_path / "d" / "cleaner-offset-checkpoint"
    assert not file.exists(), "nothing was cleaned"
    broker.logs.logs[A].cleaning.first_dirty_offset = 3
    write_checkpoints(broker.logs)
    assert checkpoint(tmp_path / "d", file.name) == {A: 3}
    broker.logs.delete(A)
    write_checkpoints(broker.logs)
    assert checkpoint(tmp_path / "d", file.name) == {}


def test_a_checkpoint_that_was_under_way_when_the_log_was_deleted(tmp_path: Path) -> None:
    """The checkpoint was taken before the deletion, and a slow disk writes it after the new topic's log was made."""
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 5)
    broker.logs.logs[A].increment_log_start_offset(5)
    late = broker.logs.checkpoint_jobs(LOG_START_OFFSET_CHECKPOINT)
    broker.logs.delete(A)
    create_in_threads(broker.logs)
    run_jobs(late)
    append_and_crash(broker)
    check_new_records_are_there(tmp_path / "d")


@pytest.mark.parametrize("is_in_threads", [True, False])
def test_a_checkpoint_that_cannot_be_written_keeps_the_log_from_being_made(tmp_path: Path, is_in_threads: bool) -> None:
    broker = with_deleted_start(tmp_path / "d")
    broker.logs.delete(A)
    jobs = broker.logs.creation_jobs([A])
    (tmp_path / "d" / FILES[0]).unlink()
    (tmp_path / "d" / FILES[0] / "in the way").mkdir(parents=True)
    if is_in_threads:
        run_jobs(jobs)
    else:
        with pytest.raises(KafkaError) as caught:
            create_here(broker.logs)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert isinstance(caught.value.__cause__, OSError)
    assert broker.logs.get(A) is None
    assert not (tmp_path / "d" / "topic-0").exists()
    assert broker.failed == [tmp_path / "d"]


def age(path: Path, seconds: int) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - seconds * 1_000_000_000))


@pytest.mark.parametrize("is_older", [True, False])
def test_a_start_beyond_the_end_counts_unless_it_was_noted_before_the_replica_was_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_older: bool
) -> None:
    """An older broker may have left such a checkpoint. A newer checkpoint tells of records that a crash has taken."""
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 2)
    broker.logs.release()
    for name in FILES:
        (tmp_path / "d" / name).write_text(f"0\n1\ntopic 0 {1500}\n")
        age(tmp_path / "d" / name, 5 if is_older else -5)
    if is_older:
        check_new_records_are_there(tmp_path / "d")
        assert "deleted topic of the same name" in caplog.text
    else:
        log = ManagedLogs(tmp_path / "d").loaded().logs.logs[A]
        assert (log.log_start_offset, log.log_end_offset) == (1500, 1500)
