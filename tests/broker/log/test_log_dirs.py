"""A log dir by itself: who may have it, and what of it is on the disk when its methods return."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from log_folders import open_files_in

from engine.broker.log import log_dirs
from engine.broker.log.log_dirs import LogDir, LogDirs
from engine.common.errors import StorageError
from engine.kafka.formats.meta_properties import MetaProperties

LOCK_IT = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"


def test_a_new_dir_its_identity_and_its_mark_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(log_dirs, "sync_path", synced.append)

    def replace_file(path: Path, _data: Any, *, sync: bool) -> None:
        synced.extend([path] if sync else [])

    monkeypatch.setattr(log_dirs, "replace_file", replace_file)
    log_dir = LogDir(tmp_path / "d")
    log_dir.prepare()
    log_dir.write_meta_properties(MetaProperties(0, 1, "cluster", None), 0)
    log_dir.write_clean_shutdown_mark()
    assert synced == [tmp_path, tmp_path / "d/meta.properties", tmp_path / "d/.kafka_cleanshutdown"]


def test_a_program_is_no_log_dir(tmp_path: Path) -> None:
    program = tmp_path / "d"
    program.touch(0o755)
    with pytest.raises(NotADirectoryError):
        LogDir(program).prepare()


def test_a_dir_begins_with_renames_that_may_not_be_on_the_disk(tmp_path: Path) -> None:
    dirs = LogDirs([tmp_path])
    (job,) = dirs.renaming_jobs(None)  # type: ignore[arg-type]
    job.run()
    job.finish()
    assert dirs.renaming_jobs(None) == []  # type: ignore[arg-type]


def test_a_second_try_in_this_process_does_not_give_the_lock_away(tmp_path: Path) -> None:
    """The system drops a process's lock as soon as any of its descriptors of the file is closed."""
    log_dir = LogDir(tmp_path)
    log_dir.lock()
    try:
        with pytest.raises(StorageError):
            LogDir(tmp_path).lock()
        lock = tmp_path / ".lock"
        other = subprocess.run([sys.executable, "-c", LOCK_IT, str(lock)], capture_output=True, check=False)
        assert b"BlockingIOError" in other.stderr
        assert lock.stat().st_mode & 0o111 == 0
    finally:
        log_dir.unlock()


def test_no_descriptor_stays_open_where_another_process_has_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    script = f"{LOCK_IT}; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(StorageError):
            LogDir(tmp_path).lock()
        assert open_files_in(tmp_path) == 0
        other.communicate()
