"""The job that keeps a lag history: its output, and that no sample is lost or duplicated, whenever it dies."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from group_members import commit, fill
from klamm_program import PROGRAM, Program, environment
from patience import within
from soak import rounds
from spark_sessions import SETTINGS
from spark_traces import one_source, write_checkpoint

import engine.spark.lag_job as lag_job
from engine.admin.cluster.target import Naming, resolve_target
from engine.admin.lag.history_folder import COLUMNS, Lake
from engine.admin.lag.history_reading import Objective, read_lake
from engine.admin.lag.history_sampling import ChunkTask, Watched
from engine.local.cluster import LocalCluster
from engine.spark.lag_job import LagJob, SampleTold, run_lag_job

FAULT_SEED = int(os.environ.get("KLAMM_FAULT_SEED", "13"))


@pytest.fixture
def program(program: Program, live_cluster: LocalCluster, topic_name: str) -> Program:
    """Runs commands against a cluster with a topic of two partitions of 100 records, and a group that lags."""
    fill(live_cluster.bootstrap_servers, topic_name, 2, 100)
    commit(live_cluster.bootstrap_servers, f"{topic_name}-g", {(topic_name, 0): 40, (topic_name, 1): 100})
    return program


@pytest.fixture
def watched(live_cluster: LocalCluster, program: Program, topic_name: str, tmp_path: Path) -> Iterator[Watched]:
    """The cluster, and the checkpoint of a query that reads from it."""
    now_ms = time.time_ns() // 1_000_000
    write_checkpoint(tmp_path / "query", [one_source(now_ms - 9000, now_ms - 8000, topic_name, 90, 100)])
    target = resolve_target(Naming(bootstrap_servers=live_cluster.bootstrap_servers), {}, tmp_path)
    yield Watched(target, (str(tmp_path / "query"),))


def rows_of(out: Path) -> list[dict[str, Any]]:
    lake = Lake(str(out))
    lake.check()
    files = lake.files(0, time.time_ns() // 1_000_000)
    records: list[dict[str, Any]] = lake.read(files, list(COLUMNS)).to_pylist()
    return records


def test_what_is_kept_and_read_back(
    spark: Any, program: Program, watched: Watched, topic_name: str, tmp_path: Path
) -> None:
    out, name, samples, waits = tmp_path / "lag", f"{topic_name}-g", list[SampleTold](), list[tuple[str, str]]()
    job = LagJob([watched], str(out), 1.0, 2, samples=4)
    run_lag_job(spark, job, samples.append, threading.Event(), lambda *words: waits.append(words))
    assert len(samples) == 4
    assert {report.failures for report in samples} == {()}
    whose = f"sample {samples[-1].sample}"
    assert waits[0] == ("spark", "planning the first sample")
    assert waits[-4:] == [
        (whose, "Spark says when it is due"), (whose, "finding groups"), (whose, "workers measure the lag"), ("", ""),
    ]  # fmt: skip
    rows = rows_of(out)
    assert len({row["sample"] for row in rows}) == 4
    assert sum(report.row_count for report in samples) == len(rows)
    mine = [row for row in rows if row["group"] == name and row["partition"] == 0]
    assert [(row["committed"], row["end"], row["lag"]) for row in mine] == [(40, 100, 60)] * 4
    statuses = [row["status"] for row in mine]
    # The samples before decide. Even on a slow machine two are far enough apart for that.
    assert (statuses[0], statuses[2:]) == ("UNKNOWN", ["STOP", "STOP"])
    assert all(row["sampled_at"] >= row["time"] for row in mine)
    query = [row for row in rows if row["kind"] == "checkpoint"]
    assert [(row["group"], row["partition"], row["lag"], row["planned"]) for row in query[:2]] == [
        ("query", 0, 10, 90),
        ("query", 1, 0, 100),
    ]
    ran = program("spark", "history", out, "--group", name, "--group", "query", "-o", "json")
    assert ran.code == 0
    by_group = {row["group"]: row for row in ran.json}
    assert by_group[name]["max_lag"] == by_group[name]["last_lag"] == 60
    assert by_group[name]["sample_count"] == 4
    assert by_group[name]["last_status"] == "STOP"
    (reader,) = read_lake(Lake(str(out)), 0, time.time_ns() // 1_000_000, Objective(), [name]).readers
    assert reader.outside_minutes > 0
    assert reader.unknown_minutes > 0
    assert (by_group["query"]["kind"], by_group["query"]["max_lag"]) == ("checkpoint", 10)


def test_no_gap_and_no_duplicate_after_each_kind_of_death(
    spark: Any, watched: Watched, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies before, during and after writing, each time before Spark knows that the sample is done."""
    out, deaths = tmp_path / "lag", Counter[str]()
    fates = iter(("before", "midst", "after", "midst", "none", "after", "before"))
    healthy = lag_job.run_in_workers

    def deadly(session: Any, function: Any, tasks: list[ChunkTask]) -> Any:
        fate = next(fates, "none")
        if fate == "none":
            return healthy(session, function, tasks)
        deaths[fate] += 1
        if fate != "before":
            healthy(session, function, tasks[:1] if fate == "midst" else tasks)
        raise RuntimeError(f"killed: {fate}")

    monkeypatch.setattr(lag_job, "run_in_workers", deadly)
    samples: list[SampleTold] = []
    job = LagJob([watched], str(out), 1.0, 3, samples=3)
    while deaths.total() < 6:
        try:
            run_lag_job(spark, job, samples.append, threading.Event())
        except Exception as error:
            assert "killed" in str(error)
    run_lag_job(spark, job, samples.append, threading.Event())
    assert len(samples) >= 3, "at least those of the last run"
    assert deaths == dict.fromkeys(("before", "midst", "after"), 2)
    check_whole(rows_of(out), f"{topic_name}-g")


def check_whole(rows: list[dict[str, Any]], group: str) -> None:
    """Check that no sample is missing or duplicated, and that each has both partitions of the group."""
    keys = Counter((row["sample"], row["kind"], row["group"], row["topic"], row["partition"]) for row in rows)
    assert set(keys.values()) == {1}
    samples = sorted({row["sample"] for row in rows})
    # The first batch of a new query has no time, and takes no sample.
    assert samples == list(range(samples[0], samples[0] + len(samples)))
    assert samples[0] in (0, 1)
    mine = Counter(row["sample"] for row in rows if row["group"] == group)
    assert mine == dict.fromkeys(samples, 2), "each sample is whole"
    times = {row["sample"]: row["time"] for row in rows}
    assert sorted(times.values()) == [times[sample] for sample in samples]
    assert len(set(times.values())) == len(samples)


def test_no_gap_and_no_duplicate_after_kill_9(program: Program, topic_name: str, tmp_path: Path) -> None:
    """The command itself is killed at random moments, alone or with its JVM and all workers."""
    out, dice = tmp_path / "lag", random.Random(FAULT_SEED)
    (tmp_path / "scratch").mkdir()
    env = environment(tmp_path) | {
        "TMPDIR": str(tmp_path / "scratch"),
        "KLAMM_BOOTSTRAP_SERVER": os.environ["KLAMM_BOOTSTRAP_SERVER"],
    }
    settings = [word for name, value in SETTINGS for word in ("--conf", f"{name}={value}")]
    command = [PROGRAM, "spark", "lag", "--out", out, "--interval", "1s", "--master", "local[1]", *settings]

    def kept() -> int:
        return len({path.name[:24] for path in out.glob("day=*/*.parquet")})

    for _ in range(rounds("KLAMM_LAG_KILLS", 1)):
        wanted = kept() + dice.choice([1, 2])
        with subprocess.Popen(command, env=env, start_new_session=True, stderr=subprocess.PIPE) as process:
            is_in_time = within(300)
            while kept() < wanted:
                assert process.poll() is None, process.communicate()[1].decode()
                assert is_in_time(), "it takes no samples"
                time.sleep(0.05)
            time.sleep(dice.uniform(0, 1.5))
            if dice.random() < 0.5:
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
    before = kept()
    ran = subprocess.run([*command, "--samples", "2"], env=env, check=True, capture_output=True, text=True, timeout=600)
    waits = r"(spark|sample \d+): [^:]+, \d+ s"
    lines = [line for line in ran.stderr.splitlines() if not re.fullmatch(waits, line)]
    said = [re.fullmatch(r"sample \d+: \d+ groups?, \d+ rows, \d+ ms", line) for line in lines]
    assert len(said) == 2 and all(said), f"a pipe gets klamm's words alone: {ran.stderr}"
    assert ran.stdout == ""
    assert kept() >= before + 1
    check_whole(rows_of(out), f"{topic_name}-g")


def test_a_cluster_that_is_not_there_leaves_the_others(spark: Any, watched: Watched, tmp_path: Path) -> None:
    gone = Watched(resolve_target(Naming(bootstrap_servers="127.0.0.1:9"), {}, tmp_path))
    samples: list[SampleTold] = []
    job = LagJob([gone, watched], str(tmp_path / "lag"), 1.0, 2, samples=1)
    run_lag_job(spark, job, samples.append, threading.Event())
    assert len(samples[0].failures) == 1
    assert samples[0].failures[0].startswith("127.0.0.1:9: ")
    assert samples[0].row_count > 1
    (row,) = (row for row in rows_of(tmp_path / "lag") if row["cluster"] == "127.0.0.1:9")
    assert (row["kind"], row["group_status"], row["error"] in samples[0].failures[0]) == ("cluster", "UNKNOWN", True)
