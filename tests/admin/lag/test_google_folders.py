"""Folders of Google's store, of which pyarrow lists only those that were made as such; the store is an emulator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from store_servers import BUCKET, PLACE, gs_server

from engine.admin.lag.history_folder import COLUMNS, Lake
from engine.admin.lag.stores import ArrowStore


@pytest.fixture
def google() -> Iterator[Any]:
    with gs_server() as store:
        yield store


def test_folders_that_only_names_tell_of(google: Any) -> None:
    for name in ("offsets/0", "offsets/1", "sources/0/0", "metadata"):
        with google.open_output_stream(f"{BUCKET}/q/{name}") as file:
            file.write(b"12")
    entries = {entry.name: (entry.is_folder, entry.size_bytes) for entry in ArrowStore(google).list(f"{BUCKET}/q/")}
    assert entries == {"offsets": (True, 0), "sources": (True, 0), "metadata": (False, 2)}


def test_a_folder_that_is_not_there(google: Any) -> None:
    with pytest.raises(FileNotFoundError):
        ArrowStore(google).list(f"{BUCKET}/absent")


@pytest.mark.usefixtures("google")
def test_a_history_is_found_again() -> None:
    lake, now_ms = Lake(f"{PLACE}/lag"), time.time_ns() // 1_000_000
    lake.prepare(1)
    row: dict[str, Any] = dict.fromkeys(COLUMNS) | {
        "sample": 0,
        "chunk": 0,
        "time": now_ms,
        "group": "billing",
        "lag": 3,
    }
    lake.write(now_ms, 0, 0, {name: [row[name]] for name in COLUMNS})
    files = Lake(f"{PLACE}/lag").files(0, now_ms)
    assert [(file.sample, file.time_ms) for file in files] == [(0, now_ms)]
