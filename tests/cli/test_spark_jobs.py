"""``klamm spark jobs`` and ``klamm spark commit``: what they list, commit and refuse."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from golden import Seen, check_json
from group_members import fill
from klamm_program import Program
from patience import wait_for
from spark_traces import RECORDED, Made, event_lines, one_source, restore, write_checkpoint

from engine.admin.lag.stores import Entry
from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster
from engine.spark.hadoop_store import HadoopStore


@pytest.fixture
def program(alone: Program, live_cluster: LocalCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Runs commands against the cluster, which has a topic of two partitions with 100 records each."""
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", live_cluster.bootstrap_servers)
    assert alone("topics", "create", topic_name, "--partitions", "2", "--replication-factor", "1").code == 0
    fill(live_cluster.bootstrap_servers, topic_name, 2, 100)
    return alone


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_recorded_queries_are_listed_without_a_cluster(alone: Program, tmp_path: Path) -> None:
    for scene, name in (("join", "union"), ("killed", "killed")):
        restore(RECORDED / "4.0.0" / scene / name, tmp_path / "all")
    ran = alone("spark", "jobs", "all", "--event-log", RECORDED / "4.0.0/join/events", "-o", "json")
    check_json("spark jobs", Seen(ran.code, ran.out, ran.err))
    assert (ran.code, ran.err) == (0, "3 Spark queries\n"), "union is one query, in two places"
    checkpoints = [job for job in ran.json if job["kind"] == "checkpoint"]
    killed, union = checkpoints
    assert (killed["path"], killed["name"], killed["status"], killed["last_batch"]) == ("all/killed", None, "STUCK", 2)
    assert (union["name"], union["status"], union["lag"]) == ("union", "UNKNOWN", None)
    assert [(source["source"], source["topics"]) for source in union["sources"]] == [
        ("0", ["left"]),
        ("1", ["left", "right"]),
    ]
    assert {job["name"] for job in ran.json if job["kind"] == "event_log"} == {"join"}
    shown = alone("spark", "jobs", "all", "-o", "table").out
    assert "killed" in shown
    assert "STUCK" in shown


def test_a_place_that_cannot_be_read_is_not_told_to_be_empty(alone: Program, tmp_path: Path) -> None:
    absent = alone("spark", "jobs", "absent")
    assert absent.code == 2
    assert "absent" in absent.err
    assert "no Spark queries" not in absent.err
    restore(RECORDED / "4.0.0" / "killed" / "killed", tmp_path / "killed")
    both = alone("spark", "jobs", "absent", "killed")
    assert both.code == 2
    assert "1 Spark query" in both.err


def test_a_file_system_that_does_not_answer_is_named(alone: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop behaves like this: a call waits until the JVM has ended."""
    ended = threading.Event()

    @contextmanager
    def open_spark(*words: object, **named: object) -> Iterator[None]:
        try:
            yield
        finally:
            ended.set()

    def silent(store: HadoopStore, path: str) -> list[Entry]:
        assert ended.wait(60)
        raise OSError("the JVM has ended")

    monkeypatch.setattr("cli.commands.spark.shared.open_spark", open_spark)
    monkeypatch.setattr(HadoopStore, "__init__", lambda store: None)
    monkeypatch.setattr(HadoopStore, "list", silent)
    ran = alone("spark", "jobs", "hdfs://namenode:8020/checkpoints", "--timeout", "1")
    assert (ran.code, ran.out) == (3, "")
    assert "no answer within 1 s: HDFS at namenode:8020" in ran.err


def test_the_status_is_that_of_lag_where_a_cluster_is_named(program: Program, topic_name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "q", [one_source(now_ms() - 9000, now_ms() - 8000, topic_name, 100, 100)])
    write_checkpoint(tmp_path / "r", [one_source(now_ms() - 9000, now_ms() - 8000, topic_name, 300, 100)])
    jobs = {job["path"]: (job["status"], job["lag"]) for job in program("spark", "jobs", "q", "r", "-o", "json").json}
    assert jobs == {"q": ("OK", 0), "r": ("AHEAD", None)}, "where a reader beyond the end goes on is not known"
    silent = program("spark", "jobs", "q", "-b", "127.0.0.1:9", "--timeout", "2", "-o", "json")
    assert (silent.code, silent.json[0]["status"], silent.json[0]["last_batch"]) == (3, "UNKNOWN", 0)


def test_committed_once(program: Program, topic_name: str, tmp_path: Path) -> None:
    write_checkpoint(
        tmp_path / "q",
        [one_source(now_ms() - 9, now_ms() - 8, topic_name, 40, 60), one_source(now_ms(), None, topic_name, 90, 90)],
    )
    name = f"{topic_name}-mirror"
    dry = program("spark", "commit", "q", "--group", name, "--dry-run", "-o", "json")
    assert (dry.code, {row["result"] for row in dry.json}) == (0, {"would_be_reset"})
    assert f"dry run: would commit 2 offsets of q to group {name}" in dry.err
    assert f"{name}: {topic_name}-0: - → 40" in dry.err
    ran = program("spark", "commit", "q", "--group", name, "-o", "json")
    check_json("groups reset", Seen(ran.code, ran.out, ran.err))
    assert [(row["new_offset"], row["result"]) for row in ran.json] == [(40, "reset"), (60, "reset")]
    group = program("groups", "describe", "--group", name, "-o", "json").json[0]
    assert [partition["current_offset"] for partition in group["partitions"]] == [40, 60], (
        "what is finished, not what is planned"
    )
    again = program("spark", "commit", "q", "--group", name, "-o", "json").json
    assert [row["current_offset"] for row in again] == [40, 60]


def test_sources_that_share_a_topic_have_groups_of_their_own(program: Program, topic_name: str, tmp_path: Path) -> None:
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    made = Made(now_ms() - 9, now_ms() - 8, ({first: 40}, {first: 70, second: 100}))
    write_checkpoint(tmp_path / "q", [made])
    rows = program("spark", "commit", "q", "--group", "m", "-o", "json").json
    assert [(row["group"], row["partition"], row["new_offset"]) for row in rows] == [
        ("m-0", 0, 40), ("m-1", 0, 70), ("m-1", 1, 100),
    ]  # fmt: skip
    apart = Made(now_ms() - 9, now_ms() - 8, ({first: 40}, {TopicPartition(f"{topic_name}-b", 0): 7}))
    write_checkpoint(tmp_path / "r", [apart])
    planned = program("spark", "commit", "r", "--group", "m", "--dry-run", "-o", "json").json
    assert {row["group"] for row in planned} == {"m"}


def test_a_group_with_members_is_refused(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "q", [one_source(now_ms() - 9, now_ms() - 8, topic_name, 40, 60)])
    name = f"{topic_name}-used"
    consumer = Consumer({"bootstrap.servers": live_cluster.bootstrap_servers, "group.id": name, "log_level": 2})
    consumer.subscribe([topic_name])
    try:
        wait_for(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "it is a member")
        ran = program("spark", "commit", "q", "--group", name, "-o", "json")
    finally:
        consumer.close()
    assert (ran.code, {row["result"] for row in ran.json}) == (4, {"failed"})
    assert "stop it, then try again" in ran.error["hint"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["jobs"], "error: name a ROOT, or --event-log PLACE"),
        (["jobs", "absent"], "error: no such folder: absent"),
        (["commit", "absent", "--group", "g"], "error: no such folder: absent"),
        (["commit", "q"], "error: missing option '--group'"),
        (["commit", "never", "--group", "g"], "error: no batch is finished yet, there is nothing to commit: never"),
        (["commit", "many", "--group", "g"], "error: 2 queries are there, name one: one, two: many"),
    ],
)
def test_what_is_refused(program: Program, tmp_path: Path, words: list[str], message: str) -> None:
    finished = [one_source(now_ms() - 9, now_ms() - 8, "t", 40)]
    for name in ("many/one", "many/two", "q"):
        write_checkpoint(tmp_path / name, finished)
    write_checkpoint(tmp_path / "never", [one_source(now_ms(), None, "t", 40)])
    ran = program("spark", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[0].startswith(message)


def test_a_listeners_file_can_be_committed(program: Program, topic_name: str, tmp_path: Path) -> None:
    lines = event_lines([one_source(now_ms() - 9, now_ms() - 8, topic_name, 40, 60)])
    (tmp_path / "q.jsonl").write_text(lines.replace("{", '{"Listener":"klamm",', 1))
    rows = program("spark", "commit", "q.jsonl", "--group", f"{topic_name}-l", "-o", "json").json
    assert [row["new_offset"] for row in rows] == [40, 60]
