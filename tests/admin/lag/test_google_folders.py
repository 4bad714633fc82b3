"""Folders in Google's store: pyarrow lists only those that were created as folders."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from engine.admin.lag import stores
from engine.admin.lag.lake import COLUMNS, Lake
from engine.admin.lag.stores import ArrowStore

fs = pytest.importorskip("pyarrow.fs")


class Google:
    """Lists as pyarrow lists that store, according to an emulator of it. Everything else is this machine's disk."""

    type_name = "gcs"

    def __init__(self) -> None:
        self._disk = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def get_file_info(self, asked: Any) -> Any:
        try:
            found = self._disk.get_file_info(asked)
        except FileNotFoundError as error:
            raise OSError(str(error)) from None
        return [one for one in found if one.is_file] if isinstance(asked, fs.FileSelector) else found

    def open_output_stream(self, path: str) -> Any:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return self._disk.open_output_stream(path)


def test_folders_that_only_names_tell_of(tmp_path: Path) -> None:
    for name in ("offsets/0", "offsets/1", "sources/0/0", "metadata"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("12")
    found = {one.name: (one.is_folder, one.size_bytes) for one in ArrowStore(Google()).list(f"{tmp_path}/")}
    assert found == {"offsets": (True, 0), "sources": (True, 0), "metadata": (False, 2)}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ArrowStore(Google()).list(str(tmp_path / "absent"))


def test_a_history_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "arrow_place", lambda text: (Google(), str(tmp_path / "lag")))
    lake, now_ms = Lake("gs://lake/lag"), time.time_ns() // 1_000_000
    lake.prepare(1)
    row: dict[str, Any] = dict.fromkeys(COLUMNS) | {
        "sample": 0,
        "chunk": 0,
        "time": now_ms,
        "group": "billing",
        "lag": 3,
    }
    lake.write(now_ms, 0, 0, {name: [row[name]] for name in COLUMNS})
    files = Lake("gs://lake/lag").files(0, now_ms)
    assert [(one.sample, one.time_ms) for one in files] == [(0, now_ms)]
