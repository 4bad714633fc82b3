"""``klamm spark history`` and the refusals of ``klamm spark lag``: output and drawings, without Spark."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from golden import Seen, check_json
from klamm_program import Program

from cli.views.spark import plot_lines
from engine.admin.lag.history_folder import COLUMNS, Lake
from engine.admin.lag.history_reading import Moment
from engine.admin.lag.verdicts import LagStatus

MINUTE = 60_000


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """An hour of samples, one a minute: a group that fell behind and recovered, and one that is fine."""
    lake = Lake(str(tmp_path / "lag"))
    lake.prepare(1)
    now_ms = time.time_ns() // 1_000_000
    for minute in range(60):
        time_ms = now_ms - (60 - minute) * MINUTE
        lag = 0 if minute < 20 or minute >= 40 else 1_000 * (minute - 19)
        defaults: dict[str, object] = dict.fromkeys(COLUMNS) | {
            "sample": minute, "chunk": 0, "time": time_ms, "sampled_at": time_ms, "cluster": "prod", "kind": "group",
            "type": "classic", "group_status": "OK", "topic": "orders", "partition": 0,
        }  # fmt: skip
        billing = {"group": "billing", "lag": lag, "time_lag_ms": lag, "group_status": "STALL" if lag else "OK"}
        given: list[dict[str, object]] = [dict(billing), {"group": "fine", "lag": 0}]
        rows = {name: [(defaults | changed)[name] for changed in given] for name in COLUMNS}
        lake.write(time_ms, minute, 0, rows)
    return tmp_path / "lag"


def test_days_that_are_over_are_compacted(alone: Program, kept: Path) -> None:
    shutil.move(next(kept.glob("day=*")), kept / "day=2026-01-01")
    ran = alone("spark", "history", "lag", "--compact", "-o", "json")
    days = [(row["day"], row["files_after"]) for row in ran.json]
    assert (ran.code, days[0], len(list((kept / "day=2026-01-01").iterdir()))) == (0, ("2026-01-01", 1), 1)
    assert all(after == 1 for _, after in days)
    again = alone("spark", "history", "lag", "--compact")
    assert (again.code, again.err) == (0, "nothing to compact\n")
    nowhere = alone("spark", "history", "absent", "--compact", "-o", "json")
    assert (nowhere.code, nowhere.error["message"]) == (2, "there is no lag history: absent")


def test_the_worst_offenders(alone: Program, kept: Path) -> None:
    ran = alone("spark", "history", "lag", "-o", "json")
    check_json("spark history", Seen(ran.code, ran.out, ran.err))
    assert (ran.code, ran.err) == (0, "60 samples 1m apart, 2 readers\n")
    billing, fine = ran.json
    assert (billing["group"], billing["outside_minutes"], billing["max_lag"]) == ("billing", 20.0, 20_000)
    assert (billing["max_time_lag_ms"], billing["last_status"], billing["minutes"]) == (20_000, "OK", 60.0)
    assert (fine["group"], fine["outside_minutes"], fine["max_lag"]) == ("fine", 0.0, 0)
    by_lag = alone("spark", "history", "lag", "--slo-lag", "15000", "--top", "1", "-o", "json")
    assert [row["outside_minutes"] for row in by_lag.json] == [5.0]
    assert by_lag.err == "60 samples 1m apart, 2 readers, 1 more with --top\n"
    by_time = alone("spark", "history", "lag", "--slo-time-lag", "10s", "--group", "billing", "-o", "json")
    assert [row["outside_minutes"] for row in by_time.json] == [10.0]
    assert alone("spark", "history", "lag", "--since", "10m", "-o", "json").json[0]["max_lag"] == 0
    assert alone("spark", "history", "lag", "--group", "absent", "-o", "json").json == []
    assert (billing["p95_lag"], billing["topic"], fine["p95_lag"]) == (17_000, None, 0)


def test_how_it_was_at_a_moment_that_is_past(alone: Program, kept: Path) -> None:
    """Half an hour ago the group was behind: what the table of now does not show."""
    at = Lake(str(kept)).files(0, 4_000_000_000_000)[35].time_ms
    then = alone("spark", "history", "lag", "--at", f"{at}", "--since", "10m", "--partitions", "-o", "json")
    check_json("spark history", Seen(then.code, then.out, then.err))
    billing = next(row for row in then.json if row["group"] == "billing")
    assert (billing["topic"], billing["partition"], billing["last_status"]) == ("orders", 0, "UNKNOWN")
    assert (billing["last_lag"], billing["max_lag"], billing["sample_count"]) == (16_000, 16_000, 11)
    people = alone("spark", "history", "lag", "--at", "25m ago", "--partitions", "-o", "table")
    assert all(text in people.out for text in ("billing,", "orders-0", "p95 lag"))
    wrong = alone("spark", "history", "lag", "--at", "yesterday")
    assert (wrong.code, "--at: not a time: 'yesterday'" in wrong.err) == (2, True)


def test_the_plot(alone: Program, kept: Path) -> None:
    shown = alone("spark", "history", "lag", "--plot", "--top", "1", "-o", "table").out
    assert "billing: lag over time" in shown
    (top,) = [line for line in shown.splitlines() if line.strip().startswith("20000 │")]
    assert top.rstrip().endswith("█")
    assert alone("spark", "history", "lag", "-o", "table").out.count("█") == 0


def test_what_a_plot_draws() -> None:
    def drawn(*lags: int | None) -> list[str]:
        moments = [Moment(n * MINUTE, LagStatus.OK, lag, None) for n, lag in enumerate(lags)]
        return plot_lines(moments, width=len(lags), height=2)

    assert drawn(0, 8, 16, None, 1) == [
        "16 │  █", " 0 │▁██ ▁", "   └─────", "    4m from left to right",
    ]  # fmt: skip
    assert drawn(0, 0) == ["1 │", "0 │▁▁", "  └──", "   1m from left to right"]
    assert drawn(None, None) == ["nothing known"]
    assert drawn(5)[0] == "5 │█"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["history", "absent"], "error: there is no lag history: absent"),
        (["history", "lag", "--since", "soon"], "error: --since: not a duration: 'soon'"),
        (["history", "lag", "--slo-time-lag", "0"], "error: --slo-time-lag must be a time above 0"),
        (["history", "hdfs://h/x"], "error: klamm cannot read hdfs://: give a path, s3://, gs:// or abfs://"),
        (["lag"], "error: no place to write is given: give --out PATH"),
        (["lag", "--out", "x", "--interval", "0.5s"], "error: --interval must be at least a second"),
        (["lag", "--out", "x"], "error: no cluster is named"),
        (["lag", "--out", "other", "-b", "h:1"], "error: not a lag history: the folder has other files in it: other"),
        (["lag", "--out", "x", "--profile", "absent"], "error: no profile is called 'absent'"),
        (["lag", "--out", "x", "--profile", "a", "--checkpoint", "y"], "error: with --profile the profiles say"),
    ],
)
def test_what_is_refused(alone: Program, kept: Path, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("milk\n")
    ran = alone("spark", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[0].startswith(message)
