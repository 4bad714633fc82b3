"""Logs merged in pieces: the same bytes as the local merge, whatever the logs contain."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from klamm_program import in_process
from merged_logs import BEGIN, entry, locally, plan_of, write_logs

from engine.admin.state_changes.log_input import ProblemKind
from engine.common.errors import OperationError
from engine.spark import log_cuts, log_merge
from engine.spark.log_merge import MergeResult, merge_logs


def run_here(spark: object, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    """Runs Spark's tasks and collects the results in this process."""
    return [pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(task))))) for task in tasks]


@pytest.fixture(autouse=True)
def without_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "spark" not in request.fixturenames:
        monkeypatch.setattr(log_merge, "run_in_workers", run_here)


def in_pieces(folder: Path, piece_bytes: int, **wish: Any) -> tuple[bytes, MergeResult]:
    out = folder.parent / "merged"
    result = merge_logs(None, plan_of(folder, **wish), out, piece_bytes=piece_bytes)  # type: ignore[arg-type]
    parts = sorted(path for path in out.iterdir() if path.name.startswith("part-"))
    assert tuple(parts) == result.parts
    assert sorted(path.name for path in folder.parent.iterdir()) == ["logs", "merged"], "nothing is left behind"
    return b"".join(part.read_bytes() for part in parts), result


@given(
    st.randoms(use_true_random=False),
    st.integers(1, 4),
    st.integers(1, 300),
    st.integers(0, 5),
    st.integers(200, 9000),
    st.booleans(),
)
@settings(max_examples=25)
def test_the_bytes_of_the_local_merge(
    chance: random.Random, brokers: int, entries: int, disorder: int, piece_bytes: int, is_gzip: bool
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name) / "logs"
        write_logs(folder, chance, brokers=brokers, entries=entries, disorder=disorder, is_gzip=is_gzip)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_merge, "run_in_workers", run_here)
            patch.setattr(log_cuts, "SLACK_BYTES", chance.choice([0, 300, 5000]))
            merged, _ = in_pieces(folder, piece_bytes)
        assert merged == locally(plan_of(folder))


def wishes() -> st.SearchStrategy[dict[str, Any]]:
    """Existing topics and one missing one, brokers, and times within and around the logs."""
    times = st.integers(-60, 240).map(lambda seconds: f"{BEGIN + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}")
    about = st.sampled_from(
        [{}, {"topics": ["orders"]}, {"topics": ["orders"], "partitions": ["1,5,77"]}, {"topics": ["absent"]}]
    )
    bounds = st.lists(st.none() | times, min_size=2, max_size=2)
    return st.builds(
        lambda about, bounds, brokers: {
            **about,
            "brokers": brokers,
            "start": min((bound for bound in bounds if bound), default=None) if bounds[0] else None,
            "end": max((bound for bound in bounds if bound), default=None) if bounds[1] else None,
        },
        about,
        bounds,
        st.sampled_from([[], ["1"], ["2,3"]]),
    )


@given(st.integers(0, 10_000), wishes(), st.integers(0, 5), st.integers(1000, 9000))
@settings(max_examples=25)
def test_the_filters_of_the_local_merge(seed: int, wish: dict[str, Any], disorder: int, piece_bytes: int) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name) / "logs"
        write_logs(folder, random.Random(seed), brokers=3, entries=200, disorder=disorder)
        plan = plan_of(folder, **wish)
        expected = locally(plan)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_merge, "run_in_workers", run_here)
            merged, result = in_pieces(folder, piece_bytes, **wish)
        assert merged == expected
        is_missing = [problem.kind is ProblemKind.NO_MENTION for problem in plan.problems]
        assert any(is_missing) == any(problem.kind is ProblemKind.NO_MENTION for problem in result.problems)


@pytest.mark.parametrize("entries_between", [100, 1000])
def test_a_filtered_line_far_from_its_place_is_not_lost(folder: Path, entries_between: int) -> None:
    folder.mkdir()
    lines = [entry(BEGIN + timedelta(seconds=number), 1, f"other-{number}") for number in range(2000)]
    lines.insert(500 + entries_between, entry(BEGIN + timedelta(seconds=500), 1, "Leader orders-1 starts"))
    (folder / "state-change.log").write_text("".join(lines))
    merged, result = in_pieces(folder, 20_000, topics=["orders"])
    assert merged == locally(plan_of(folder, topics=["orders"]))
    assert b"orders-1" in merged
    assert (result.reason is None) == (entries_between == 100)


def test_a_line_an_hour_out_of_order_among_few(folder: Path) -> None:
    """The local merge skips entries that end more than an hour before the start."""
    folder.mkdir()
    hours = [entry(BEGIN + timedelta(hours=number), 1, f"Leader orders-{number} starts") for number in range(12)]
    (folder / "state-change.log").write_text("".join([*hours[:4], hours[9], *hours[4:9], *hours[10:]]))
    wish = {"start": f"{BEGIN + timedelta(hours=8, minutes=30):%Y-%m-%d %H:%M:%S}", "topics": ["orders"]}
    merged, result = in_pieces(folder, 100, **wish)
    assert merged == locally(plan_of(folder, **wish))
    assert result.reason is not None and "too far from their place" in result.reason


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def test_logs_are_cut(folder: Path) -> None:
    write_logs(folder, random.Random(1), brokers=3, entries=3000, disorder=3)
    merged, result = in_pieces(folder, 100_000)
    assert merged == locally(plan_of(folder))
    assert result.reason is None
    assert len(result.parts) > 5
    assert max(path.stat().st_size for path in result.parts) < 300_000


@pytest.mark.parametrize("is_late", [False, True])
def test_a_line_far_from_its_place_is_not_lost(folder: Path, is_late: bool) -> None:
    write_logs(folder, random.Random(2), brokers=2, entries=3000, disorder=0)
    path = folder / "broker-1" / "state-change.log"
    lines = path.read_text().rstrip("\n") + "\n"
    early, late = entry(BEGIN + timedelta(days=1), 1, "future"), entry(BEGIN + timedelta(seconds=1), 1, "long ago")
    path.write_text(lines + late if is_late else early + lines)
    merged, result = in_pieces(folder, 50_000)
    assert merged == locally(plan_of(folder))
    assert result.reason is not None and "too far from their place" in result.reason


def test_disorder_that_the_local_merge_does_not_mend(folder: Path) -> None:
    """The local merge looks ahead only so far. Where that shows, its answer is still the right one."""
    folder.mkdir()
    lines = [entry(BEGIN + timedelta(seconds=n), 1, "x" * 900) for n in range(1000)]
    lines = lines[:400] + lines[900:] + lines[400:900]
    (folder / "state-change.log").write_text("".join(lines))
    other = [entry(BEGIN + timedelta(seconds=n), 2, "y") for n in range(1000)]
    (folder / "state-change.log.broker-2").write_text("".join(other))
    merged, result = in_pieces(folder, 10_000_000)
    assert merged == locally(plan_of(folder))
    assert result.reason is not None


def test_zones_that_differ(folder: Path) -> None:
    write_logs(folder, random.Random(3), brokers=2, entries=800, disorder=2)
    zones = {None: ZoneInfo("UTC"), 2: ZoneInfo("Asia/Kolkata")}
    merged, result = in_pieces(folder, 20_000, zones=zones)
    assert merged == locally(plan_of(folder, zones=zones))
    assert result.reason is None and len(result.parts) > 3


def test_clocks_that_are_put_back(folder: Path) -> None:
    folder.mkdir()
    night = [datetime(2026, 10, 25, 2, minute) for minute in range(0, 60, 5)]
    (folder / "state-change.log").write_text("".join(entry(moment, 1, "x") for moment in [*night, *night]))
    zones = {None: ZoneInfo("Europe/Berlin")}
    merged, result = in_pieces(folder, 100, zones=zones)
    assert merged == locally(plan_of(folder, zones=zones))
    assert result.reason == "clocks were changed meanwhile"


def test_a_gzip_that_breaks_off(folder: Path) -> None:
    write_logs(folder, random.Random(4), brokers=1, entries=2000, disorder=0, is_gzip=True)
    path = folder / "broker-1" / "state-change.log.2026-11-21-06"
    path.write_bytes(path.read_bytes()[:-3000])
    plan = plan_of(folder)
    merged, result = in_pieces(folder, 20_000)
    assert merged == locally(plan)
    assert list(result.problems) == plan.problems


def test_a_log_that_is_rolled_meanwhile_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_logs(folder, random.Random(4), brokers=2, entries=2000, disorder=0)
    live = sorted(path for path in folder.rglob("state-change.log*"))[-1]

    def rolling(spark: Any, task: Any, tasks: Any) -> Any:
        if task is log_merge.write_part and live.stat().st_size:
            live.rename(live.with_name(f"{live.name}.rolled"))
            live.write_text("")
        return run_here(spark, task, tasks)

    monkeypatch.setattr(log_merge, "run_in_workers", rolling)
    _, result = in_pieces(folder, 4000)
    (problem,) = [problem for problem in result.problems if problem.kind is ProblemKind.UNREADABLE]
    assert (problem.source, "another file took its place" in problem.message) == (str(live), True)


def test_a_merge_is_merged_again(folder: Path) -> None:
    write_logs(folder, random.Random(5), brokers=2, entries=100, disorder=0)
    whole = locally(plan_of(folder))
    (folder.parent / "again").mkdir()
    (folder.parent / "again" / "logs").mkdir()
    (folder.parent / "again" / "logs" / "state-change.log").write_bytes(whole)
    merged, _ = in_pieces(folder.parent / "again" / "logs", 1000)
    assert merged == locally(plan_of(folder.parent / "again" / "logs"))


def test_an_output_that_exists_is_left_alone(folder: Path, tmp_path: Path) -> None:
    write_logs(folder, random.Random(6), brokers=1, entries=10, disorder=0)
    (tmp_path / "there").write_text("mine")
    with pytest.raises(OperationError, match="the output exists"):
        merge_logs(None, plan_of(folder), tmp_path / "there")  # type: ignore[arg-type]
    assert (tmp_path / "there").read_text() == "mine"


def test_the_command_on_a_session(spark: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_logs(folder, random.Random(7), brokers=3, entries=2000, disorder=2, is_gzip=True)
    out = tmp_path / "merged"
    ran = in_process("spark", "merge", folder, "--out", out, "-o", "json", capture=capsys)
    assert ran.code == 0, ran.err
    parts = [Path(part["path"]) for part in ran.json]
    assert b"".join(part.read_bytes() for part in parts) == locally(plan_of(folder))
    assert (out / "_SUCCESS").exists()
    again = in_process("spark", "merge", folder, "--out", out, "-o", "json", capture=capsys)
    assert (again.code, again.out) == (2, "")
    assert again.error["message"] == f"the output exists: {out}"
    single = tmp_path / "night.log"
    assert in_process("spark", "merge", folder, "--out", single, "--single", capture=capsys).code == 0
    assert single.read_bytes() == locally(plan_of(folder))
    orders = tmp_path / "orders.log"
    words = ("--single", "--topic", "orders", "--partition", "7", "--start", "2026-11-21 06:00:01", "--broker", "2")
    ran = in_process("spark", "merge", folder, "--out", f"file://{orders}", *words, capture=capsys)
    assert ran.code == 0, ran.err
    wish = {"topics": ["orders"], "partitions": ["7"], "start": "2026-11-21 06:00:01", "brokers": ["2"]}
    assert orders.read_bytes() == locally(plan_of(folder, **wish))
    for words in (("alluxio://h/logs", "--out", tmp_path / "x"), (folder, "--out", "alluxio://h/x")):
        refused = in_process("spark", "merge", *words, "-o", "json", capture=capsys)
        assert (refused.code, "Spark has no file system for this" in refused.error["message"]) == (2, True)
        assert "name its jar" in refused.error["hint"]
    nowhere = in_process("spark", "merge", folder, "-o", "json", capture=capsys)
    assert (nowhere.code, nowhere.error["hint"]) == (2, "give --out FOLDER")
