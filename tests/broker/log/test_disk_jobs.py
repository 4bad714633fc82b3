"""Removals of files and folders: what is in the way is tried again, and a disk that fails is reported."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_folders import StandIn

from engine.broker.log.disk_jobs import NEXT_TRY_MS, DeleteJob, run_jobs


def doomed_folder(path: Path) -> Path:
    path.mkdir()
    for name in ("a.log", "a.index"):
        (path / name).write_text("x")
    return path


def test_files_and_folders_go_and_what_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaning that ends may remove its own file from a folder that is being removed."""
    folder, file, environment = doomed_folder(tmp_path / "t-0"), tmp_path / "b.log", StandIn()
    file.write_text("x")
    listed = [*folder.iterdir(), folder / "gone"]
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(listed))
    run_jobs([DeleteJob(environment, tmp_path, [folder, tmp_path / "missing", file])])
    assert os.listdir(tmp_path) == []
    assert (environment.failures, environment.deletions) == ([], [])


def test_a_folder_that_gets_one_more_file_is_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, folder, last = tmp_path / "first", doomed_folder(tmp_path / "t-0"), tmp_path / "last"
    for path in (first, last):
        path.write_text("x")
    environment, real = StandIn(), Path.rmdir

    def with_one_more(path: Path) -> None:
        (path / "late.cleaned").write_text("x")
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rmdir", with_one_more)
        run_jobs([DeleteJob(environment, tmp_path, [first, folder, last])])
    assert environment.deletions == [(tmp_path, [folder, last], NEXT_TRY_MS)]
    assert not first.exists()
    environment.delete_now()
    assert os.listdir(tmp_path) == []
    assert (environment.failures, environment.deletions) == ([], [])


def test_a_removal_without_a_descriptor_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, environment = doomed_folder(tmp_path / "t-0"), StandIn()

    def no_descriptor(path: Path) -> Iterator[Path]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", no_descriptor)
        run_jobs([DeleteJob(environment, tmp_path, [folder])])
    assert environment.deletions == [(tmp_path, [folder], NEXT_TRY_MS)]
    environment.delete_now()
    assert not folder.exists()
    assert environment.failures == []


def test_a_removal_that_the_disk_refuses_fails_the_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, environment = doomed_folder(tmp_path / "t-0"), StandIn()

    def broken(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "rmdir", broken)
    run_jobs([DeleteJob(environment, tmp_path, [folder])])
    ((log_dir, message),) = environment.failures
    assert log_dir == tmp_path
    assert message.startswith(f"Error while deleting {folder}")
    assert environment.deletions == []
