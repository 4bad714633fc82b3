"""``klamm lag`` for Spark's queries: every status on a running cluster, in all forms, and what cannot be read."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from golden import Seen, check_json
from group_members import commit
from klamm_program import PROGRAM, Program
from spark_traces import Made, event_lines, one_source, write_checkpoint

from engine.admin.cluster.errors import AdminError
from engine.admin.lag.spark_positions import Query
from engine.admin.lag.spark_traces import QueryTraces
from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster

S = 1_000
CAME_S = 25.0


@pytest.fixture
def program(program: Program, live_cluster: LocalCluster, topic_name: str) -> Program:
    """Runs commands against a cluster with a topic of two partitions, whose 100 records each came some time ago."""
    producer = Producer({"bootstrap.servers": live_cluster.bootstrap_servers, "log_level": 2})
    for number in range(200):
        producer.produce(topic_name, b"v", partition=number % 2, timestamp=ago(CAME_S))
    assert producer.flush(40) == 0
    return program


def ago(seconds: float) -> int:
    return round((time.time() - seconds) * S)


def history(topic: str, *ends: int, every_s: float = 60.0, last_s: float = 5.0) -> list[Made]:
    """Return batches that took two seconds each, the last of which finished this many seconds ago."""
    count = len(ends)
    return [
        one_source(
            ago(last_s + 2 + every_s * (count - 1 - n)), ago(last_s + every_s * (count - 1 - n)), topic, end, 100
        )
        for n, end in enumerate(ends)
    ]


def test_every_status(program: Program, topic_name: str, tmp_path: Path) -> None:
    """All records came after their previous batches were planned."""
    old = history(topic_name, 10, 20, 30)
    scenes: dict[str, list[Made]] = {
        "caught-up": history(topic_name, 10, 50, 100),
        "running": [*old, one_source(ago(3), None, topic_name, 90, 100)],
        "stuck": [*history(topic_name, 10, 20, 30, last_s=600), one_source(ago(500), None, topic_name, 90, 100)],
        "late": history(topic_name, 10, 20, 30, every_s=2, last_s=30),
        "between": history(topic_name, 10, 20, 30),
        "ahead": history(topic_name, 10, 20, 300),
        "first": [one_source(ago(3), None, topic_name, 90, 100)],
        "gone": history(f"{topic_name}-gone", 10, 20, 30),
    }
    for name, batches in scenes.items():
        write_checkpoint(tmp_path / "all" / name, batches, query_id=name)
    ran = program("lag", "--checkpoint", "all", "--partitions", "-o", "json")
    check_json("lag", Seen(ran.code, ran.out, ran.err))
    by_name = {row["group"]: row for row in ran.json}
    assert {name: (row["status"], row["reason"]) for name, row in by_name.items()} == {
        "caught-up": ("OK", "caught_up"),
        "running": ("RUNNING", "batch_runs"),
        "stuck": ("STUCK", "batch_too_long"),
        "late": ("STOP", "batch_is_late"),
        "between": ("UNKNOWN", "too_few_samples"),
        "ahead": ("AHEAD", "ahead_of_log"),
        "first": ("UNKNOWN", "nothing_committed"),
        "gone": ("UNKNOWN", "no_such_partition"),
    }
    assert (ran.code, ran.err) == (1, "8 Spark queries: 1 AHEAD, 1 STOP, 1 STUCK, 3 UNKNOWN, 1 RUNNING, 1 OK\n")
    assert [row["status"] for row in ran.json][:3] == ["AHEAD", "STOP", "STUCK"], "the worst come first"
    running = by_name["running"]
    expected = {"kind": "checkpoint", "type": None, "source": "0", "batch_id": 3, "query_id": "running", "run_id": None,
                "path": "all/running", "in_flight": 60, "lag": 70}  # fmt: skip
    assert {key: running[key] for key in expected} == expected
    first = running["partitions"][0]
    figures = {key: first[key] for key in ("planned", "committed", "end", "start", "lag", "planned_lag")}
    assert figures == {"planned": 90, "committed": 30, "end": 100, "start": 0, "lag": 70, "planned_lag": 10}
    assert first["time_lag_ms"] >= 0
    assert by_name["ahead"]["partitions"][0]["lag"] is None
    assert by_name["first"]["in_flight"] is None
    assert len(program("lag", "--checkpoint", "all", "--not-ok").rows) == 6
    for name, fail_on, code in (
        ("running", "unknown", 0),
        ("between", "warn", 0),
        ("between", "unknown", 1),
        ("stuck", "stall", 1),
    ):
        assert program("lag", "--checkpoint", f"all/{name}", "--fail-on", fail_on).code == code


def test_a_query_without_a_position_is_a_row_with_the_reason(program: Program, topic_name: str, tmp_path: Path) -> None:
    for name in ("starts", "never-began"):
        write_checkpoint(tmp_path / "all" / name, [], query_id=name)
    os.utime(tmp_path / "all" / "never-began" / "metadata", (time.time() - 3600,) * 2)
    for name, line in (("dash", "-"), ("null", "null")):
        folder = write_checkpoint(tmp_path / "all" / name, history(topic_name, 100), query_id=name)
        (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{line}")
    ran = program("lag", "--checkpoint", "all", "-o", "json")
    check_json("lag", Seen(ran.code, ran.out, ran.err))
    expected = {
        "starts": ("RUNNING", "starts"),
        "never-began": ("UNKNOWN", "no_batch_yet"),
        "dash": ("UNKNOWN", "no_position"),
        "null": ("UNKNOWN", "no_position"),
    }
    assert {row["group"]: (row["status"], row["reason"]) for row in ran.json} == expected
    assert {row["lag"] for row in ran.json} == {None}
    assert "its last batch names no offset" in program("lag", "--checkpoint", "all/dash", "-o", "table").out
    jobs = program("spark", "jobs", "all", "-o", "json", "-b", "")
    assert {job["path"]: job["status"] for job in jobs.json} == {
        f"all/{name}": status for name, (status, _) in expected.items()
    }


def test_who_has_stopped_has_no_time_to_clear(program: Program, topic_name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "late", history(topic_name, 10, 60, 95, every_s=2, last_s=30))
    (row,) = program("lag", "--checkpoint", "late", "--partitions", "-o", "json").json
    assert (row["status"], row["clear_in_ms"]) == ("STOP", None)
    assert [partition["clear_in_ms"] for partition in row["partitions"] if partition["status"] == "STOP"] == [None]


def test_an_event_log_tells_that_the_batch_in_flight_runs_no_more(
    program: Program, topic_name: str, tmp_path: Path
) -> None:
    """A checkpoint alone cannot: its batch was planned a second ago, whether or not somebody still runs it."""
    batches = history(topic_name, 10, 20, 40, 60)
    write_checkpoint(tmp_path / "q", [*batches, one_source(ago(1), None, topic_name, 80, 100)])
    logs = tmp_path / "events"
    logs.mkdir()

    def row(*words: str) -> dict[str, Any]:
        (lag_row,) = program("lag", "--checkpoint", "q", *words, "-o", "json").json
        assert isinstance(lag_row, dict)
        return lag_row

    def said(found: dict[str, Any]) -> tuple[object, ...]:
        return found["status"], found["reason"]

    running = row()
    assert said(running) == ("RUNNING", "batch_runs")
    since = datetime.fromisoformat(running["in_flight_since"])
    assert 0 < (datetime.now(UTC) - since).total_seconds() < 60
    output = " ".join(program("lag", "--checkpoint", "q", "-o", "table").out.split())
    assert f"its batch is not finished since {since:%H:%M:%S} UTC" in output
    (logs / "local-1").write_text(event_lines(batches, has_ended=True))
    stopped = row("--event-log", "events")
    assert stopped["in_flight_since"] == running["in_flight_since"]
    assert (*said(stopped), stopped["clear_in_ms"]) == ("STOP", "ended_in_batch", None)
    assert "in the middle of a batch" in program("lag", "--checkpoint", "q", "--event-log", "events", "-o", "table").out
    # Started again, by a run whose log is there too, and by one whose log is not.
    started = {"Event": "org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent", "id": "q-1",
               "runId": "r-2", "name": "made", "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}.000Z"}  # fmt: skip
    (logs / "local-2").write_text(json.dumps(started, separators=(",", ":")) + "\n")
    assert said(row("--event-log", "events")) == ("RUNNING", "batch_runs")
    (logs / "local-2").unlink()
    (logs / "local-1").write_text(event_lines(batches[:3], has_ended=True))
    assert said(row("--event-log", "events")) == ("RUNNING", "batch_runs")


def test_nobody_knows_when_a_query_that_has_ended_will_have_read_all(
    program: Program, topic_name: str, tmp_path: Path
) -> None:
    batches = history(topic_name, 10, 40, 80)
    write_checkpoint(tmp_path / "q", batches)
    logs = tmp_path / "events"
    logs.mkdir()
    for has_ended in (False, True):
        (logs / "local-1").write_text(event_lines(batches, has_ended=has_ended))
        (row,) = program("lag", "--checkpoint", "q", "--event-log", "events", "-o", "json").json
        assert (row["clear_in_ms"] is None) == has_ended, row


def test_records_that_were_deleted_unread(program: Program, topic_name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "q", history(topic_name, 10, 20, 30))
    (tmp_path / "delete.json").write_text(
        json.dumps({"partitions": [{"topic": topic_name, "partition": 0, "offset": 40}], "version": 1})
    )
    assert program("records", "delete", "--offset-json-file", "delete.json", "--yes").code == 0
    ran = program("lag", "--checkpoint", "q", "--partitions", "-o", "json")
    (row,) = ran.json
    assert (ran.code, row["status"], row["reason"]) == (1, "DATA_LOSS", "records_lost")
    assert (row["partitions"][0]["lost_records"], row["partitions"][0]["start"]) == (10, 40)


def test_event_logs_judge_by_what_the_query_saw(program: Program, topic_name: str, tmp_path: Path) -> None:
    """The event log says where the log ended at each batch."""

    def batches(*pairs: tuple[int, int]) -> list[Made]:
        made = history(topic_name, *(end for end, _ in pairs))
        return [
            Made(batch.planned_ms, batch.committed_ms, batch.sources,
                 ({TopicPartition(topic_name, 0): latest, TopicPartition(topic_name, 1): 100},))
            for batch, (_, latest) in zip(made, pairs, strict=True)
        ]  # fmt: skip

    logs = tmp_path / "events"
    logs.mkdir()
    growing = batches((10, 20), (20, 40), (30, 60), (40, 80))
    falling = batches((10, 90), (30, 92), (60, 94), (70, 96))
    (logs / "local-1").write_text(event_lines(growing, name="growing", query_id="1"))
    (logs / "local-2").write_text(event_lines(falling, name="falling", query_id="2"))
    ran = program("lag", "--event-log", "events", "-o", "json")
    check_json("lag", Seen(ran.code, ran.out, ran.err))
    assert {row["group"]: (row["kind"], row["status"], row["lag"], row["run_id"]) for row in ran.json} == {
        "growing": ("event_log", "BEHIND", 60, "r-1"),
        "falling": ("event_log", "OK", 30, "r-1"),
    }
    rows = {row["group"]: row for row in ran.json}
    assert rows["growing"]["clear_in_ms"] is None, "never, as things are"
    # From the plan of its second batch on it read 60 records, while 8 came.
    expected_ms = 30 * rows["falling"]["window_ms"] / (60 - 8)
    assert rows["falling"]["clear_in_ms"] == pytest.approx(expected_ms, rel=0.01)
    assert ran.code == 0
    assert program("lag", "--event-log", "events", "--fail-on", "warn").code == 1


def test_one_topic_in_two_sources(program: Program, topic_name: str, tmp_path: Path) -> None:
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    made = [Made(ago(9), ago(8), ({first: 40}, {first: 70, second: 100}))]
    write_checkpoint(tmp_path / "q", made)
    rows = program("lag", "--checkpoint", "q", "-o", "json").json
    assert sorted((row["group"], row["source"], row["lag"], row["partition_count"]) for row in rows) == [
        ("q", "0", 60, 1),
        ("q", "1", 30, 2),
    ]


def test_watching_sees_what_the_query_has_done_since(program: Program, topic_name: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "q", history(topic_name, 10, 20, 30))
    words = ["lag", "--checkpoint", str(checkpoint), "--watch", "--interval", "0.4", "-o", "jsonl"]
    with subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["lag"] == 70
        write_checkpoint(checkpoint, history(topic_name, 10, 20, 30, 100))
        assert any(json.loads(line)["status"] == "OK" for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 130


def test_a_query_is_sampled_as_often_as_asked_and_the_last_sample_counts(
    program: Program, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query finishes a batch after each sample."""
    ends = [10, 20, 30, 40]
    checkpoint = write_checkpoint(tmp_path / "q", history(topic_name, *ends))
    read, at_s = QueryTraces.read, list[float]()

    def reading(self: QueryTraces) -> tuple[list[Query], list[AdminError]]:
        reading = read(self)
        at_s.append(time.monotonic())
        ends.append(ends[-1] + 10)
        write_checkpoint(checkpoint, history(topic_name, *ends))
        return reading

    monkeypatch.setattr(QueryTraces, "read", reading)
    words = ("lag", "--checkpoint", str(checkpoint), "-o", "json")
    assert (program(*words).json[0]["lag"], len(at_s)) == (60, 1), "one is enough"
    ran = program(*words, "--samples", "3", "--interval", "0.3")
    assert (ran.json[0]["lag"], len(at_s)) == (30, 4)
    assert all(after - before >= 0.3 for before, after in pairwise(at_s[1:]))
    assert "watching 1 Spark query for 0.6 s more" in ran.err


def test_groups_and_queries_together(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "roots" / "q", history(topic_name, 10, 50, 100))
    name = f"{topic_name}-g"
    commit(live_cluster.bootstrap_servers, name, {(topic_name, 0): 100, (topic_name, 1): 100})

    def told(*words: str) -> set[tuple[str, str]]:
        rows = program("lag", *words, "--samples", "1", "-o", "json").json
        return {(row["kind"], row["group"]) for row in rows if row["group"] in (name, "q")}

    both = {("group", name), ("checkpoint", "q")}
    assert told("--checkpoint", "roots") == {("checkpoint", "q")}
    assert told("--checkpoint", "roots", "--group", name) == both
    assert told("--checkpoint", "roots", "--all-groups") == both
    assert told() == {("group", name)}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KLAMM_BOOTSTRAP_SERVER")
    servers = live_cluster.bootstrap_servers
    words = ("profiles", "add", "dev", "--bootstrap-server", servers, "--checkpoint", str(tmp_path / "r*"))
    assert program(*words).code == 0
    assert told() == both, "the profile names the root"
    assert told("--group", name) == {("group", name)}
    assert told("--cluster", "dev", "--checkpoint", "roots/q") == {("checkpoint", "q")}


def test_prometheus(program: Program, topic_name: str, tmp_path: Path, live_cluster: LocalCluster) -> None:
    write_checkpoint(tmp_path / 'a "query"', history(topic_name, 10, 20, 30))
    write_checkpoint(tmp_path / "running", [*history(topic_name, 20), one_source(ago(1), None, topic_name, 50, 100)])
    name = f"{topic_name}-g"
    commit(live_cluster.bootstrap_servers, name, {(topic_name, 0): 90})
    checkpoints = ("--checkpoint", 'a "query"', "--checkpoint", "running")
    ran = program("lag", *checkpoints, "--group", name, "--samples", "1", "-o", "prometheus")
    lines = ran.out.splitlines()
    assert (
        f'kafka_consumergroup_group_lag{{group="{name}",source="classic",topic="{topic_name}",partition="0"}} 10'
        in lines
    )
    labels = 'group="a \\"query\\"",source="checkpoint",path="a \\"query\\"",spark_source="0"'
    assert f"kafka_consumergroup_group_sum_lag{{{labels}}} 70" in lines
    assert f'kafka_consumergroup_group_status{{{labels},status="UNKNOWN"}} 1' in lines
    assert f'kafka_consumergroup_group_status{{{labels},status="STOP"}} 0' in lines
    assert f"klamm_spark_query_batch_id{{{labels}}} 2" in lines
    running = 'group="running",source="checkpoint",path="running",spark_source="0"'
    assert f"klamm_spark_query_batch_id{{{running}}} 1" in lines
    assert f"klamm_spark_query_in_flight{{{running}}} 30" in lines
    assert f"klamm_spark_query_in_flight{{{labels}}} 0" in lines, "no batch of it runs"
    sample = re.compile(r'[a-z_]+\{([a-z_]+="(?:[^"\\]|\\.)*",?)+\} [0-9.e+-]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)
    assert len({line for line in lines if line.startswith("# TYPE")}) == 9
    other = program("topics", "list", "-o", "prometheus")
    assert (other.code, "is for commands that measure" in other.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--checkpoint", "absent"], "error: no such folder: absent"),
        (["--checkpoint", "empty"], "error: there is no checkpoint of a Spark query: empty"),
        (["--checkpoint", "absent-*"], "error: nothing matches that pattern: absent-*"),
        (
            ["--checkpoint", "foreign"],
            "error: foreign/offsets/0: version 9 of Spark's offset log; only versions 1 to 2",
        ),
        (["--checkpoint", "cut"], "error: damaged: cut/offsets/0: ends before the first source: cut"),
        (["--event-log", "absent"], "error: no such file or folder: absent"),
        (["--event-log", "empty"], "error: there is no event log: empty"),
        (["--event-log", "notes.txt"], "error: not an event log of Spark: notes.txt"),
    ],
)
def test_what_cannot_be_read(program: Program, topic_name: str, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("milk\n")
    for name, text in (("foreign", "v9\n{}\n-"), ("cut", "v1\n{}")):
        write_checkpoint(tmp_path / name, history(topic_name, 10))
        (tmp_path / name / "offsets" / "0").write_text(text)
    write_checkpoint(tmp_path / "good", history(topic_name, 10, 50, 100))
    ran = program("lag", "--checkpoint", "good", *words, "-o", "csv")
    assert ran.code == 2
    assert ran.err.splitlines()[0].startswith(message)
    assert ran.out.splitlines()[1].startswith("good,"), "the rest is told"
