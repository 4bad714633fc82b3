"""Single steps on a disk that forgets: what each step must flush before the next may begin."""

from __future__ import annotations

from pathlib import Path

import pytest
from forgetful_disk import MIXED, STRICT, Call, Disk, write_image
from log_folders import ManagedLogs, checkpoint, values_of, write_checkpoints

from engine.broker.log.disk_jobs import run_jobs
from engine.broker.log.log_manager import LogManager
from engine.broker.log.small_files import replace_file
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig

A = TopicPartition("topic", 0)
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def after_power_failure(disk: Disk, folder: Path) -> LogManager:
    return ManagedLogs(write_image(disk.image(STRICT), folder)).loaded().logs


def test_a_cut_is_on_the_disk_before_more_is_appended(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 5)
    log = broker.logs.logs[A]
    log.flush()
    write_checkpoints(broker.logs)
    disk = Disk(tmp_path / "d")
    with disk.watched():
        log.truncate_to(2)
        assert log.has_unsettled_cut
        run_jobs(broker.logs.settling_jobs([log]))
    again = after_power_failure(disk, tmp_path / "again")
    assert [offset for offset, _ in values_of(again.logs[A])] == [0, 1]
    assert checkpoint(tmp_path / "again", RECOVERY_POINTS) == {A: 2}
    for logs in (again, broker.logs):
        logs.release()


def test_what_a_follower_cut_is_not_back_after_an_orderly_stop(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 5)
    broker.logs.logs[A].flush()
    disk = Disk(tmp_path / "d")
    with disk.watched():
        broker.logs.logs[A].truncate_to(2)
        broker.logs.shutdown()
    again = after_power_failure(disk, tmp_path / "again")
    assert again.logs[A].log_end_offset == 2
    again.release()


def test_a_topic_whose_deletion_was_reported_is_not_back(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 5)
    broker.logs.logs[A].flush()
    disk = Disk(tmp_path / "d")
    with disk.watched():
        broker.logs.delete(A)
        run_jobs(broker.logs.forgetting_jobs([A]))
    broker.logs.release()
    again = after_power_failure(disk, tmp_path / "again")
    assert again.logs == {}
    again.release()


def test_what_a_recovery_cut_is_not_back(tmp_path: Path) -> None:
    """The segment may never be flushed again, since its records were on the disk before."""
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 5)
    broker.logs.logs[A].flush()
    write_checkpoints(broker.logs)
    (path,) = (tmp_path / "d" / "topic-0").glob("*.log")
    broker.logs.release()
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(100))
    disk = Disk(tmp_path / "d")
    with disk.watched():
        ManagedLogs(tmp_path / "d").loaded().logs.release()
    assert disk.image(STRICT)["topic-0/" + path.name].data == whole  # type: ignore[union-attr]


def test_the_last_snapshot_is_there_after_an_orderly_stop(tmp_path: Path) -> None:
    """All records may be on the disk by then, so the snapshot must be too."""
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 5)
    broker.logs.logs[A].flush()
    disk = Disk(tmp_path / "d")
    with disk.watched():
        broker.logs.shutdown()
    assert "topic-0/00000000000000000005.snapshot" in disk.image(STRICT)


def test_the_last_indexes_are_there_after_an_orderly_stop(tmp_path: Path) -> None:
    """Nothing is recovered after such a stop, so no start builds them anew."""
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(index_interval_bytes=0)).loaded()
    disk = Disk(tmp_path / "d")
    with disk.watched():
        broker.create(A, 5)
        broker.logs.shutdown()
    for kind in ("index", "timeindex"):
        name = f"topic-0/{0:020d}.{kind}"
        content = (tmp_path / "d" / name).read_bytes()
        assert content and disk.image(STRICT)[name].data == content  # type: ignore[union-attr]


@pytest.mark.parametrize("crash", [STRICT, MIXED])
def test_a_checkpoint_is_the_old_one_or_the_new_one(tmp_path: Path, crash: str) -> None:
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "checkpoint"
    path.write_text("old")
    disk = Disk(tmp_path / "d")
    contents: list[bytes] = []

    def before(_: Call) -> None:
        for _ in range(5):
            stored = disk.image(crash)["checkpoint"]
            assert stored is not None
            contents.append(stored.data)

    disk.before = before
    with disk.watched():
        replace_file(path, "new", sync=True)
    assert set(contents) <= {b"old", b"new"}
    assert disk.image(STRICT)["checkpoint"].data == b"new"  # type: ignore[union-attr]
