"""The journal: on the disk line by line, cut where a kill tore it, refused if damaged or of another run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.admin.cluster.errors import BadRequest
from engine.admin.reassignment.journal import open_journal, read_journal


def written(path: Path, *events: str, plan: str = "p") -> None:
    journal = open_journal(path, plan)
    for event in events:
        journal.write(event)
    journal.close()


def test_each_line_is_on_the_disk_before_write_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    synced: list[bytes] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced.append(path.read_bytes() if path.exists() else b"")

    monkeypatch.setattr(os, "fsync", fsync)
    journal = open_journal(path, "p")
    journal.write("begun", waves=2)
    assert synced[-1] == path.read_bytes() and b'"waves": 2' in synced[-1]
    assert len(synced) == 3, "the first line, the folder that names the file, the second line"
    journal.close()


def test_it_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, "begun", "wave")
    written(path, "begun", "done")
    record = read_journal(path)
    assert [event["event"] for event in record.events] == ["journal", "begun", "wave", "begun", "done"]
    assert not record.is_torn


@pytest.mark.parametrize(
    ("events", "is_under_way"),
    [
        ([], False),
        (["begun", "stopped"], False),
        (["begun", "wave"], True),
        (["begun", "wave", "wave_done", "stopped"], True),
        (["begun", "wave", "wave_done", "done"], False),
        (["begun", "wave", "done", "begun", "wave"], True),
    ],
)
def test_whether_a_plan_is_under_way(tmp_path: Path, events: list[str], is_under_way: bool) -> None:
    written(tmp_path / "journal", *events)
    assert read_journal(tmp_path / "journal").is_under_way is is_under_way


def test_a_torn_line_is_passed_over_and_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, "begun")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"time": "2026')
    record = read_journal(path)
    assert (record.is_torn, [event["event"] for event in record.events]) == (True, ["journal", "begun"])
    written(path, "done")
    assert path.read_bytes().startswith(whole + b'{"time": ')
    assert [event["event"] for event in read_journal(path).events] == ["journal", "begun", "done"]


@pytest.mark.parametrize("left", [b"", b'{"ti'])
def test_one_that_was_torn_at_its_beginning_is_begun_anew(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(left)
    written(path, "begun")
    assert [event["event"] for event in read_journal(path).events] == ["journal", "begun"]


def damaged(text: str) -> str:
    return text.replace('"event": "begun"', '"event": "beg')


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (damaged, "the journal is damaged"),
        (lambda text: text.replace('"event": "begun"', '"event": 3'), "not an event"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "reads journals of format 1, not 2"),
        (lambda text: text.split("\n", 1)[1], "its first line is missing"),
    ],
)
def test_a_damaged_one_is_refused_with_the_way_on(tmp_path: Path, change: object, expected: str) -> None:
    path = tmp_path / "journal"
    written(path, "begun", "wave")
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    with pytest.raises(BadRequest, match=expected) as raised:
        open_journal(path, "p")
    assert "move it away and resume" in str(raised.value.hint)


def test_the_journal_of_another_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, "begun", plan="another")
    before = path.read_bytes()
    with pytest.raises(BadRequest, match="another plan"):
        open_journal(path, "p")
    assert path.read_bytes() == before
