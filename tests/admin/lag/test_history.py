"""The file of samples: written and read back, cut, damaged, of another cluster, old, and written by several at once."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.groups.values import GroupState, GroupType
from engine.admin.lag.history import KEPT_MS, POINTS_MAX, History, append_sample, read_history
from engine.admin.lag.sampling import GroupSample, PartitionSample, Sample
from engine.admin.lag.verdicts import Point
from engine.common.model import TopicPartition

NOW = time.time_ns() // 1_000_000
NAME = TopicPartition("orders ü", 3)
KEY = ("g\n", GroupType.CLASSIC)


def look(time_ms: int, committed: int | None = 5, end: int | None = 9) -> Sample:
    sample = PartitionSample(committed, end, 0, True)
    group = GroupSample(KEY[0], KEY[1], GroupState.STABLE, {NAME: sample})
    return Sample(time_ms, {KEY: group})


def points(path: Path, cluster_id: str | None = "c") -> list[Point]:
    return read_history(path, cluster_id, NOW).points.get(KEY, {}).get(NAME, [])


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "lag.jsonl"
    assert points(path) == [], "a file that is not there yet is empty"
    seen = [Point(NOW - 3000, 1, 9), Point(NOW - 2000, None, 9), Point(NOW - 1000, 4, None)]
    for point in seen:
        append_sample(path, "c", look(*point))
    assert points(path) == seen
    assert points(path, "another") == []
    assert [set(json.loads(line)) for line in path.read_text().splitlines()] == [{"time", "cluster_id", "groups"}] * 3


def test_only_the_latest_points_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "lag.jsonl"
    for index in range(20):
        append_sample(path, "c", look(NOW - 20_000 + index * 1000, index))
    history = read_history(path, "c", NOW)
    history.add(look(NOW, 99))
    latest = history.points[KEY][NAME]
    assert (len(latest), latest[0].committed, latest[-1].committed) == (POINTS_MAX, 11, 99)


def test_groups_and_partitions_that_are_gone_are_forgotten() -> None:
    history, gone = History(), TopicPartition("deleted", 0)
    history.add(look(NOW - 2000))
    history.points[KEY][gone] = [Point(NOW - 2000, 1, 1)]
    history.points["left", GroupType.CLASSIC] = {NAME: [Point(NOW - 2000, 1, 1)]}
    history.points["not asked", GroupType.CLASSIC] = {gone: [Point(NOW - 2000, 1, 1)]}
    history.keep_only({KEY[0], "not asked"}, {KEY: {NAME}})
    assert {key[0]: list(series) for key, series in history.points.items()} == {KEY[0]: [NAME], "not asked": [gone]}


def test_cut_and_damaged_lines_are_told_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lag.jsonl"
    append_sample(path, "c", look(NOW - 3000))
    with path.open("ab") as file:
        file.write(b'{"time": "2026\n[]\n\xff\n{"time":1,"cluster_id":"c","groups":[]}\n')
        file.write(b'{"time":"2026-01-01T00:00:00Z","cluster_id":"c","groups":[{"group":"g","type":"classic",')
    history = read_history(path, "c", NOW)
    assert len(history.complaints) == 5
    assert history.complaints[0] == f"{path}: line 2 is damaged and was left out"
    append_sample(path, "c", look(NOW - 1000))
    assert [point.time_ms for point in points(path)] == [NOW - 3000, NOW - 1000], "a cut line harms no other"


@pytest.mark.parametrize(
    "partition",
    [["t", 0, -1, 5], ["t", 0, "x", 5], ["t", "x", 1, 5], ["t", 0, 1], ["t", 0, 1.5, 5]],
)
def test_numbers_that_are_none_are_damage(tmp_path: Path, partition: list[object]) -> None:
    path = tmp_path / "lag.jsonl"
    append_sample(path, "c", look(NOW - 3000))
    document = {
        "time": "2026-01-01T00:00:00Z",
        "cluster_id": "c",
        "groups": [{"group": "g", "type": "classic", "partitions": [partition]}],
    }
    with path.open("a") as file:
        file.write(json.dumps(document) + "\n")
    assert len(read_history(path, "c", NOW).complaints) == 1


def test_a_clock_that_was_set_back_makes_no_time_run_backwards(tmp_path: Path) -> None:
    path = tmp_path / "lag.jsonl"
    for time_ms in (NOW - 2000, NOW - 5000, NOW - 1000, NOW + 9_000_000):
        append_sample(path, "c", look(time_ms))
    assert [point.time_ms for point in points(path)] == [NOW - 2000, NOW - 1000]


def test_old_lines_are_dropped_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "lag.jsonl"
    append_sample(path, "c", look(NOW - 2 * KEPT_MS - 500))
    append_sample(path, "c", look(NOW - KEPT_MS - 2000))
    append_sample(path, "c", look(NOW - 1000))
    assert len(path.read_text().splitlines()) == 3
    append_sample(path, "c", look(NOW))
    assert len(path.read_text().splitlines()) == 2
    assert [point.time_ms for point in points(path)] == [NOW - 1000, NOW]


def test_a_file_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lag.jsonl"
    append_sample(path, "c", look(NOW - 5000))
    monkeypatch.setattr("engine.admin.lag.history.FILE_BYTES", 3 * len(path.read_bytes()))
    for index in range(20):
        append_sample(path, "c", look(NOW - 4000 + index, index))
        assert len(path.read_text().splitlines()) <= 7
    assert points(path)[-1].committed == 19


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk\nbread\n")
    with pytest.raises(BadRequest, match="not a file of samples"):
        read_history(path, "c", NOW)
    with pytest.raises(BadRequest, match="a folder"):
        read_history(tmp_path, "c", NOW)
    with pytest.raises(NotFound, match="no such folder"):
        read_history(tmp_path / "absent" / "x", "c", NOW)
    assert path.read_text() == "milk\nbread\n"


def test_several_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lag.jsonl"
    writers = [
        threading.Thread(target=lambda n=n: [append_sample(path, "c", look(NOW - n * 100 - i)) for i in range(20)])
        for n in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(path.read_text().splitlines()) == 80
    assert read_history(path, "c", NOW).complaints == []
