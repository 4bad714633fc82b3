"""``klamm lag``: its output for every status, in all forms, and what it refuses; a scene of real consumers."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import time
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from golden import check_report, printed
from group_members import commit, fill
from klamm_program import PROGRAM, Program, environment
from lag_story import every_kind_of_reader, readers_of_transactions, readers_that_commit_seldom
from patience import wait_for
from znode_writer import znode_writer

from cli.output.format import OutputFormat
from cli.output.report import Report
from cli.views.lag import lag_report
from engine.admin.cluster.errors import Unreachable
from engine.admin.groups.values import GroupState, GroupType
from engine.admin.lag.group_lag import GroupLag, LagAnswer, PartitionLag, QueryLag
from engine.admin.lag.spark_positions import ReaderKind
from engine.admin.lag.verdicts import LagStatus, Reason
from engine.local.cluster import LocalCluster

NOW = datetime(2026, 11, 21, 12, 0, 0, 250_000, UTC)
DAY_MS = 86_400_000


def partition(
    number: int, status: LagStatus, reason: Reason, committed: int | None, end: int | None, **more: object
) -> PartitionLag:
    lag = None if committed is None or end is None or committed > end else end - committed
    values: dict[str, object] = dict.fromkeys(
        ("lost_records", "time_lag_ms", "span_ms", "unread_since", "in_per_sec", "out_per_sec", "clear_in_ms")
    ) | {"consumer_id": None, "error": None}
    if lag == 0:
        values |= {"time_lag_ms": 0, "clear_in_ms": 0}
    values |= more
    return PartitionLag("orders", number, status, reason, committed, end, lag, **values)  # type: ignore[arg-type]


def group(
    name: str,
    status: LagStatus,
    reason: Reason | None,
    partitions: tuple[PartitionLag, ...],
    state: GroupState | None = GroupState.STABLE,
    kind: GroupType = GroupType.CLASSIC,
    error: str | None = None,
) -> GroupLag:
    lags = [partition.lag for partition in partitions if partition.lag is not None]
    waits = [partition.time_lag_ms for partition in partitions if partition.time_lag_ms is not None]
    where = next(
        (partition.name for partition in partitions if partition.status is status and partition.reason is reason), None
    )
    rates = [
        (partition.in_per_sec, partition.out_per_sec) for partition in partitions if partition.in_per_sec is not None
    ]
    known = [partition.clear_in_ms for partition in partitions]
    return GroupLag(
        name, kind, state, status, reason, where,
        sum(lags) if lags else None,
        max(waits) if waits else None,
        sum(rate[0] or 0 for rate in rates) if rates else None,
        sum(rate[1] or 0 for rate in rates) if rates else None,
        None if None in known or not known else max(lag for lag in known if lag is not None),
        len(partitions), sum(partition.lag is None for partition in partitions), 4, 15_000, error, partitions,
    )  # fmt: skip


def scene() -> LagAnswer:
    """One group of every kind."""
    unread = datetime(2026, 11, 18, 11, 30, 0, 0, UTC)
    moving = {"in_per_sec": 812.25, "out_per_sec": 1024.0, "consumer_id": "rdkafka-5c0f1d1c-52fe"}
    fine = partition(0, LagStatus.OK, Reason.CAUGHT_UP, 9_876_543, 9_876_543, **moving)
    late = partition(
        1, LagStatus.OK, Reason.LAG_FELL, 9_000_000, 9_876_543, time_lag_ms=95_250, span_ms=95_000, unread_since=unread,
        clear_in_ms=4_140_000, **moving,
    )  # fmt: skip
    behind = partition(
        2, LagStatus.WARN, Reason.LAG_NEVER_FELL, 10, 5_000, time_lag_ms=350, in_per_sec=9.96, out_per_sec=1.0
    )
    lost = partition(3, LagStatus.WARN, Reason.RECORDS_LOST, 10, 5_000, lost_records=90, time_lag_ms=3 * DAY_MS)
    still = partition(
        0, LagStatus.STALL, Reason.STANDS_STILL, 1, 400, time_lag_ms=61_000, in_per_sec=3.0, out_per_sec=0.0
    )
    stopped = partition(1, LagStatus.STOP, Reason.NOBODY_READS, 7, 8, time_lag_ms=DAY_MS * 2 + 3_600_000)
    back = partition(0, LagStatus.REWIND, Reason.WENT_BACK, 5, 500, time_lag_ms=1000)
    beyond = partition(1, LagStatus.REWIND, Reason.AHEAD_OF_LOG, 700, 500)
    leaderless = partition(2, LagStatus.UNKNOWN, Reason.NO_LEADER, 55, None, error="no leader")
    gone = partition(
        4, LagStatus.UNKNOWN, Reason.NO_SUCH_PARTITION, 55, None, error="the topic or partition does not exist"
    )
    fresh = partition(0, LagStatus.UNKNOWN, Reason.NOTHING_COMMITTED, None, 500)
    old = GroupType.ZOOKEEPER
    groups = (
        group("shipping", LagStatus.REWIND, Reason.WENT_BACK, (back, beyond)),
        group("audit", LagStatus.STOP, Reason.NOBODY_READS, (stopped,), GroupState.EMPTY),
        group("search-indexer-europe-west", LagStatus.STALL, Reason.STANDS_STILL, (still, leaderless)),
        group("reports", LagStatus.WARN, Reason.LAG_NEVER_FELL, (behind, lost)),
        group("new", LagStatus.UNKNOWN, Reason.NOTHING_COMMITTED, (fresh,)),
        group("left-over", LagStatus.UNKNOWN, Reason.NO_SUCH_PARTITION, (gone,), GroupState.EMPTY),
        group("lost-coordinator", LagStatus.UNKNOWN, None, (), None, error="COORDINATOR_NOT_AVAILABLE"),
        group("billing", LagStatus.OK, Reason.LAG_FELL, (fine, late)),
        group("old-app", LagStatus.OK, Reason.CAUGHT_UP, (fine,), GroupState.ACTIVE, old),
    )
    return LagAnswer(NOW, groups)


def report(*, has_partitions: bool = False, is_not_ok: bool = False, fails_on: LagStatus = LagStatus.STALL) -> Report:
    return lag_report(scene(), fails_on=fails_on, has_partitions=has_partitions, is_not_ok=is_not_ok)


@pytest.mark.parametrize(
    ("name", "has_partitions", "is_not_ok"),
    [("lag", False, False), ("lag-partitions", True, False), ("lag-not-ok", False, True)],
)
def test_what_is_shown(monkeypatch: pytest.MonkeyPatch, name: str, has_partitions: bool, is_not_ok: bool) -> None:
    shown = report(has_partitions=has_partitions, is_not_ok=is_not_ok)
    assert shown.exit_code == 1
    check_report(name, "lag", shown, monkeypatch)


def test_unknown_is_null_and_never_a_number() -> None:
    document = json.loads(printed(report(has_partitions=True), OutputFormat.JSON))
    assert [
        json.loads(line) for line in printed(report(has_partitions=True), OutputFormat.JSONL).splitlines()
    ] == document
    assert yaml.safe_load(printed(report(has_partitions=True), OutputFormat.YAML)) == document
    by_name = {row["group"]: row for row in document}
    for name in ("new", "left-over", "lost-coordinator"):
        figures = [by_name[name][key] for key in ("lag", "time_lag_ms", "in_per_sec", "out_per_sec", "clear_in_ms")]
        assert figures == [None] * 5
    beyond = by_name["shipping"]["partitions"][1]
    assert (beyond["committed_offset"], beyond["log_end_offset"], beyond["lag"]) == (700, 500, None)
    rows = list(csv.DictReader(io.StringIO(printed(report(), OutputFormat.CSV))))
    assert [row["lag"] for row in rows if row["status"] == "UNKNOWN"] == ["", "", ""]


def test_a_lower_bound_says_that_partitions_are_unknown() -> None:
    known = partition(0, LagStatus.UNKNOWN, Reason.TOO_FEW_SAMPLES, 0, 50)
    leaderless = partition(1, LagStatus.UNKNOWN, Reason.NO_LEADER, 0, None, error="no leader")
    groups = (group("other", LagStatus.UNKNOWN, Reason.TOO_FEW_SAMPLES, (known, leaderless)),)
    shown = lag_report(LagAnswer(NOW, groups), fails_on=LagStatus.STALL, has_partitions=False, is_not_ok=False)
    output = printed(shown, OutputFormat.TABLE)
    assert "≥ 50" in output and "orders-0: too few samples to tell; 1 of 2 partitions unknown" in " ".join(
        output.split()
    )


def test_records_dated_ahead_of_this_clock_leave_the_time_lag_unknown_and_say_why() -> None:
    """It was 0, of brokers whose clock was ten minutes ahead."""
    fine = partition(0, LagStatus.STALL, Reason.STANDS_STILL, 0, 50)
    ahead = replace(fine, partition=1, time_lag_ms=None, unread_since=NOW + timedelta(minutes=10))
    groups = (group("g", LagStatus.STALL, Reason.STANDS_STILL, (fine, ahead)),)
    shown = lag_report(LagAnswer(NOW, groups), fails_on=LagStatus.STALL, has_partitions=False, is_not_ok=False)
    assert (
        "the time lag of 1 partition is not known: the first unread record of orders-1 is dated 10m ahead of this "
        "machine's clock"
    ) in shown.notes


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
@pytest.mark.parametrize("has_partitions", [False, True])
def test_a_group_that_rebalances_stands_still_because_of_that(state: GroupState, has_partitions: bool) -> None:
    """A member that does not join again keeps the others from reading, for as long as max.poll.interval.ms."""
    still = partition(0, LagStatus.STALL, Reason.STANDS_STILL, 0, 50)
    stuck = replace(group("g", LagStatus.STALL, Reason.STANDS_STILL, (still,)), state=state)
    shown = lag_report(
        LagAnswer(NOW, (stuck,)), fails_on=LagStatus.STALL, has_partitions=has_partitions, is_not_ok=False
    )
    told = " ".join(printed(shown, OutputFormat.TABLE).split())
    assert "does not move, because the group rebalances" in told and "somebody reads" not in told


def test_the_tally_counts_the_sources_of_a_query_that_has_several() -> None:
    known = partition(0, LagStatus.OK, Reason.CAUGHT_UP, 0, 0)
    query_group = group("q", LagStatus.OK, Reason.CAUGHT_UP, (known,))
    values = {field.name: getattr(query_group, field.name) for field in fields(query_group)} | {
        "kind": ReaderKind.CHECKPOINT
    }
    queries = tuple(QueryLag(**values, path=path) for path in ("a", "a", "b"))

    def tally(*groups: GroupLag) -> tuple[str, ...]:
        answer = LagAnswer(NOW, groups)
        return lag_report(answer, fails_on=LagStatus.STALL, has_partitions=False, is_not_ok=False).notes

    assert tally(query_group, *queries) == ("1 group, 2 Spark queries (3 sources): 4 OK",)
    assert tally(*queries[1:]) == ("2 Spark queries: 2 OK",)


def test_for_how_long_a_stall_was_watched() -> None:
    def notes(window_ms: int) -> tuple[str, ...]:
        groups = tuple(
            replace(group, window_ms=window_ms) for group in scene().groups if group.status is LagStatus.STALL
        )
        shown = lag_report(LagAnswer(NOW, groups), fails_on=LagStatus.STALL, has_partitions=False, is_not_ok=False)
        return shown.notes

    assert notes(10_000) == (
        "1 group: 1 STALL",
        "watched for 10s: a reader that commits less often looks like STALL too (--interval)",
    )
    assert notes(300_000) == ("1 group: 1 STALL",), "nobody commits so rarely"


def test_what_makes_the_exit_code() -> None:
    assert report().exit_code == 1
    for worst, expected in (
        (LagStatus.WARN, {"stall": 0, "warn": 1, "unknown": 1}),
        (LagStatus.UNKNOWN, {"stall": 0, "warn": 0, "unknown": 1}),
        (LagStatus.OK, {"stall": 0, "warn": 0, "unknown": 0}),
        (LagStatus.STALL, {"stall": 1, "warn": 1, "unknown": 1}),
    ):
        mild = LagAnswer(NOW, tuple(group for group in scene().groups if group.status.rank <= worst.rank))
        for word, code in expected.items():
            fails_on = LagStatus(word.upper())
            assert lag_report(mild, fails_on=fails_on, has_partitions=False, is_not_ok=True).exit_code == code
    nobody = lag_report(LagAnswer(NOW, ()), fails_on=LagStatus.STALL, has_partitions=False, is_not_ok=False)
    assert (nobody.exit_code, nobody.notes) == (0, ("no consumer groups",))
    silent = LagAnswer(NOW, (), (Unreachable("no answer", where="h:1"),))
    assert lag_report(silent, fails_on=LagStatus.STALL, has_partitions=False, is_not_ok=False).notes == ()


def test_every_kind_of_reader_is_named_right(program: Program, topic_name: str, live_cluster: LocalCluster) -> None:
    every_kind_of_reader(program, live_cluster.bootstrap_servers, topic_name)


def test_who_commits_seldom_does_not_stand_still(program: Program, topic_name: str, live_cluster: LocalCluster) -> None:
    readers_that_commit_seldom(program, live_cluster.bootstrap_servers, topic_name)


def test_before_markers_and_aborted_records_nobody_stands_still(
    program: Program, topic_name: str, live_cluster: LocalCluster
) -> None:
    readers_of_transactions(program, live_cluster.bootstrap_servers, topic_name)


def test_two_runs_by_cron_know_what_one_does_not(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers, name = live_cluster.bootstrap_servers, f"{topic_name}-g"
    fill(servers, topic_name, 2, 50)
    commit(servers, name, {(topic_name, 0): 10, (topic_name, 1): 50})
    look = ("lag", "--group", name, "--samples", "1", "--history", tmp_path / "lag.jsonl", "-o", "json")
    first = program(*look, "--fail-on", "unknown")
    assert (first.code, first.json[0]["status"], first.json[0]["reason"]) == (1, "UNKNOWN", "too_few_samples")
    assert (first.json[0]["lag"], first.json[0]["in_per_sec"]) == (40, None)
    assert program(*look).code == 0
    fill(servers, topic_name, 2, 10)
    third = program(*look, "--partitions").json[0]
    assert (third["status"], third["where"], third["sample_count"]) == ("STOP", f"{topic_name}-0", 3)
    assert third["in_per_sec"] > 0
    assert [partition["lag"] for partition in third["partitions"]] == [50, 10]
    # Without a history nothing is known of earlier looks.
    assert program("lag", "--group", name, "--samples", "1").rows[0][3] == "UNKNOWN"
    with (tmp_path / "lag.jsonl").open("a") as file:
        file.write("cut off in the mid")
    verdict = program(*look)
    assert f"warning: {tmp_path / 'lag.jsonl'}: line 4 is damaged and was left out" in verdict.err.splitlines()
    assert verdict.json[0]["status"] == "STOP"


def test_groups_without_lag_need_one_look(program: Program, topic_name: str, live_cluster: LocalCluster) -> None:
    servers, name = live_cluster.bootstrap_servers, f"{topic_name}-g"
    fill(servers, topic_name, 2, 5)
    commit(servers, name, {(topic_name, 0): 5, (topic_name, 1): 5})
    started = time.monotonic()
    ran = program("lag", name, "--interval", "60", "-o", "json")
    assert time.monotonic() - started < 30
    assert (ran.code, ran.json[0]["status"], ran.json[0]["lag"], ran.json[0]["time_lag_ms"]) == (0, "OK", 0, 0)
    assert (ran.json[0]["sample_count"], ran.err) == (1, "1 group: 1 OK\n")


def test_deleted_topics_and_offsets_beyond_the_end(
    program: Program, topic_name: str, live_cluster: LocalCluster
) -> None:
    servers, name = live_cluster.bootstrap_servers, f"{topic_name}-g"
    fill(servers, topic_name, 2, 5)
    commit(servers, name, {(topic_name, 0): 99, (topic_name, 1): 5})
    ran = program("lag", "--group", name, "--samples", "1", "--partitions", "-o", "json")
    beyond, fine = ran.json[0]["partitions"]
    assert (ran.code, beyond["status"], beyond["reason"], beyond["lag"]) == (1, "REWIND", "ahead_of_log", None)
    assert (fine["status"], fine["lag"]) == ("OK", 0)
    assert program("topics", "delete", topic_name, "--yes").code == 0

    def is_told() -> bool:
        rows = program("lag", "--group", name, "--samples", "1", "--partitions").rows
        return [row[4] for row in rows] in (["no_such_partition"] * 2, [])

    wait_for(is_told, "the topic is gone, or with it the group's offsets")


def test_groups_in_zookeeper(program: Program, topic_name: str, live_cluster: LocalCluster) -> None:
    """A consumer before 0.9: its owner's znode shows that somebody reads, and goes with its session."""
    fill(live_cluster.bootstrap_servers, topic_name, 2, 50)
    name, where = f"{topic_name}-old", ("--zookeeper", live_cluster.zookeeper_connect)
    root, member = f"/consumers/{name}", f"{name}_host-1500000000000-0a1b2c3d"
    look = ("lag", "--group", name, "--interval", "0.3", "--samples", "3", "--partitions", "-o", "json", *where)
    with znode_writer(live_cluster.zookeeper_connect) as write:
        write({f"{root}/offsets/{topic_name}/0": b"50", f"{root}/offsets/{topic_name}/1": b"20"}, False)
        write({f"{root}/ids/{member}": b"{}", f"{root}/owners/{topic_name}/1": f"{member}-0".encode()}, True)
        ran = program(*look)
        assert (ran.code, ran.json[0]["type"], ran.json[0]["state"]) == (1, "zookeeper", "Active")
        caught_up, still = ran.json[0]["partitions"]
        assert (caught_up["status"], caught_up["lag"]) == ("OK", 0)
        assert (still["status"], still["lag"], still["consumer_id"]) == ("STALL", 30, f"{member}-0")
        assert still["time_lag_ms"] > 0
    ran = program(*look)
    assert (ran.json[0]["state"], ran.json[0]["status"]) == ("Empty", "STOP")


def test_only_some_topics(program: Program, topic_name: str, live_cluster: LocalCluster) -> None:
    servers, name = live_cluster.bootstrap_servers, f"{topic_name}-g"
    fill(servers, topic_name, 2, 5)
    commit(servers, name, {(topic_name, 0): 5})
    assert program("lag", name, "--topic", topic_name, "--partitions").rows[0][1:3] == [topic_name, "0"]
    assert program("lag", name, "--topic", f"{topic_name[:4]}.*", "--samples", "1").rows[0][6] == "0"
    other = f"{topic_name}-other"
    assert program("topics", "create", other, "--replication-factor", "1").code == 0
    assert program("lag", name, "--topic", other, "--partitions").code == 0, "nobody reads it, but it is there"
    absent = program("lag", name, "--topic", "absent")
    assert (absent.code, "absent" in absent.err.splitlines()[0]) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--group", ""], "error: the group id is empty: --group"),
        (["--group", "absent"], "error: consumer group 'absent' does not exist"),
        (["--group", "g", "--all-groups"], "error: give --group, once for each group, or --all-groups"),
        (["--interval", "0"], "error: --interval must be a time above 0"),
        (["--interval", "soon"], "error: --interval: not a duration: 'soon'"),
        (["--samples", "0"], "error: "),
        (["--samples", "2", "--watch"], "error: --watch and --serve go on until Ctrl-C: leave out --samples"),
        (["--fail-on", "ok"], "error: --fail-on must be stall, warn or unknown, not 'ok'"),
        (["--isolation", "x"], "error: --isolation must be read-uncommitted or read-committed, not 'x'"),
        (["--topic", "("], "error: neither a topic's name nor a regular expression"),
        (["--history", "absent/x.jsonl", "--samples", "1"], "error: no such folder: absent"),
        (["--history", ".", "--samples", "1"], "error: a folder, not a file of samples: ."),
        (["--history", "notes.txt", "--samples", "1"], "error: not a file of samples: notes.txt"),
        (["-o", "prometheus", "--samples", "0"], "error: "),
    ],
)
def test_wrong_use(program: Program, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "notes.txt").write_text("milk\n")
    ran = program("lag", *words)
    assert ran.code == 2
    assert ran.err.splitlines()[0].startswith(message)
    assert (tmp_path / "notes.txt").read_text() == "milk\n"


def test_a_cluster_that_is_not_there(program: Program) -> None:
    ran = program("lag", "-b", "127.0.0.1:9", "--timeout", "2", "-o", "json")
    assert (ran.code, ran.error["kind"], ran.out) == (3, "unreachable", "")


def test_watching_tells_again_and_again(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers, name = live_cluster.bootstrap_servers, f"{topic_name}-g"
    fill(servers, topic_name, 2, 50)
    commit(servers, name, {(topic_name, 0): 10})
    words = ["lag", name, "--watch", "--interval", "0.4", "-o", "jsonl", "-b", servers]
    process = subprocess.Popen(
        [PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    )
    assert process.stdout is not None
    seen = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, "error" in said) == (130, False), "that is how a watch ends"
    assert [row["status"] for row in seen] == ["UNKNOWN", "UNKNOWN", "STOP"]
    assert [row["sample_count"] for row in seen] == [1, 2, 3]
    assert seen[0]["time"] < seen[1]["time"] < seen[2]["time"]
