"""What needs no Spark works where importing PySpark fails."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from group_members import fill
from klamm_program import environment
from spark_traces import RECORDED, restore

from engine.admin.lag.history_folder import COLUMNS, Lake
from engine.local.cluster import LocalCluster

PROGRAM = """\
import sys

sys.modules.update(dict.fromkeys(("pyspark", "py4j")))
from cli.main import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a query's checkpoint and event log, and a lag history."""
    restore(RECORDED / "4.0.0" / "killed" / "killed", tmp_path / "all" / "killed")
    lake, now_ms = Lake(str(tmp_path / "history")), time.time_ns() // 1_000_000
    lake.prepare(1)
    row: dict[str, object] = dict.fromkeys(COLUMNS) | {
        "sample": 0, "chunk": 0, "time": now_ms, "sampled_at": now_ms, "cluster": "prod", "kind": "group",
        "type": "classic", "group": "billing", "group_status": "OK", "topic": "orders", "partition": 0, "lag": 3,
    }  # fmt: skip
    lake.write(now_ms, 0, 0, {name: [row[name]] for name in COLUMNS})
    return tmp_path


def run(folder: Path, *words: str | Path) -> tuple[int, str, str]:
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    ran = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def test_jobs_and_history(folder: Path) -> None:
    code, out, err = run(folder, "spark", "jobs", "all", "--event-log", RECORDED / "4.0.0/join/events", "-o", "json")
    assert (code, err) == (0, "3 Spark queries\n")
    assert {job["kind"] for job in json.loads(out)} == {"checkpoint", "event_log"}
    code, out, err = run(folder, "spark", "history", "history", "--plot", "-o", "json")
    assert code == 0, err
    assert [(row["group"], row["max_lag"]) for row in json.loads(out)] == [("billing", 3)]


def test_lag(folder: Path, live_cluster: LocalCluster, topic_name: str) -> None:
    fill(live_cluster.bootstrap_servers, topic_name, 1, 1)
    words = ("--checkpoint", "all", "--event-log", RECORDED / "4.0.0/join/events", "--samples", "1", "-o", "json")
    code, out, err = run(folder, "lag", *words, "-b", live_cluster.bootstrap_servers)
    assert code in (0, 1), err
    assert {row["kind"] for row in json.loads(out)} >= {"checkpoint", "event_log"}


def test_what_needs_it_says_so(folder: Path) -> None:
    """This proves that the tests above do run without it."""
    (folder / "state-change.log").write_text("[2026-11-21 06:00:00,000] INFO [Broker id=1] x (logger)\n")
    code, out, err = run(folder, "spark", "merge", "state-change.log", "--out", "out")
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == "error: PySpark is not installed in this environment"
