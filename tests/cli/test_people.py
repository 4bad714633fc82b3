"""What makes the command line friendly: units, stdin, help, prompts, plain terminals, repeated looks."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from klamm_program import PROGRAM, Ran, environment, in_process

from cli.framework.invocation import folded
from cli.framework.progress import Countdown, progress_line
from cli.framework.talk import Talk
from cli.output.drawing import gauge
from engine.admin.cluster.snapshot_file import save_snapshot
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.configs.changes import ConfigChange
from engine.admin.configs.values import plain_value, reading_of
from engine.admin.records.fetching import parse_record_filter
from engine.common.errors import said_by
from engine.common.model import BrokerInfo, ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, SnapshotSource, TopicSnapshot
from engine.local.cluster import LocalCluster

Capture = pytest.CaptureFixture[str]
Program = Callable[..., Ran]


@pytest.fixture
def program(live_cluster: LocalCluster, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", live_cluster.bootstrap_servers)
    return lambda *words, stdin="": in_process(*words, stdin=stdin, capture=capsys)


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "json", "profiles", "list"],
        ["--output=json", "profiles", "list"],
        ["-ojson", "profiles", "list"],
        ["profiles", "-o", "json", "list"],
        ["profiles", "list", "-o", "json"],
        ["-o", "csv", "profiles", "list", "-o", "json"],
    ],
)
def test_the_format_stands_before_or_behind_the_command(
    words: list[str], capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    ran = in_process(*words, capture=capsys)
    assert (ran.code, ran.json) == (0, [])


def test_help_is_a_word(capsys: Capture) -> None:
    for words in (["topics", "list"], ["topics"], []):
        assert in_process("help", *words, capture=capsys).out == in_process(*words, "--help", capture=capsys).out
    assert in_process("help", "topisc", capture=capsys).code == 2


@pytest.mark.parametrize(
    ("key", "value", "plain"),
    [
        ("retention.ms", "2h", "7200000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "3600000", "3600000"),
        ("segment.bytes", "50M", "50000000"),
        ("segment.bytes", "64Mi", str(64 * 1024 * 1024)),
        ("producer_byte_rate", "5k", "5000"),
        ("leader.replication.throttled.rate", "10M", "10000000"),
        ("cleanup.policy", "2h", "2h"),
        ("retention.ms", "soon", "soon"),
        ("consumer_byte_rate", "1.5", "1.5"),
    ],
)
def test_settings_take_units(key: str, value: str, plain: str) -> None:
    assert plain_value(key, value) == plain


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("segment.bytes", "1073741824", "1 GiB"),
        ("segment.bytes", "50000000", "50.0 MB"),
        ("retention.ms", "604800000", "7d"),
        ("leader.replication.throttled.rate", "3000000", "3.0 MB/s"),
        ("max.message.bytes", "1048588", None),
        ("retention.bytes", "-1", None),
        ("file.delete.delay.ms", "500", None),
        ("flush.ms", "9223372036854775807", None),
        ("flush.messages", "1000000", None),
    ],
)
def test_settings_are_read_in_larger_units_where_that_is_exact(key: str, value: str, expected: str | None) -> None:
    assert reading_of(key, value) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["consume", "t", "--timeout-ms", "soon"], "not a duration: 'soon'"),
        (["reassign", "execute", "--reassignment-json-file", "p", "--throttle", "much"], "not a size: 'much'"),
        (["topics", "list", "--timeout", "5 parsecs"], "not a duration"),
    ],
)
def test_options_that_take_a_quantity_say_how_to_write_it(words: list[str], message: str, capsys: Capture) -> None:
    ran = in_process(*words, capture=capsys)
    assert (ran.code, message in ran.err) == (2, True), ran.err


def test_units_in_options_and_settings_of_a_living_topic(program: Program, topic_name: str) -> None:
    made = program("topics", "create", topic_name, "--config", "retention.ms=2d", "--config", "segment.bytes=64Mi")
    assert made.code == 0, made.err
    configs = program("topics", "describe", topic_name, "-o", "json", "--timeout", "1m").json[0]["configs"]
    assert configs == {"retention.ms": "172800000", "segment.bytes": "67108864"}
    nothing = program("consume", topic_name, "--timeout-ms", "1s")
    assert (nothing.code, nothing.err) == (0, "0 records\n")


def test_several_topics_are_made_at_once_and_one_that_exists_does_not_hold_up_the_others(
    program: Program, topic_name: str
) -> None:
    names = [f"{topic_name}-{word}" for word in ("a", "b", "c")]
    assert program("topics", "create", names[1]).code == 0
    made = program("topics", "create", *names, "--partitions", "1", "--replication-factor", "1", "-o", "json")
    assert (made.code, [row["topic"] for row in made.json]) == (4, [names[0], names[2]])
    assert "TOPIC_ALREADY_EXISTS" in made.err
    assert program("topics", "list", f"{topic_name}-.*").out.split() == names


def test_the_list_of_topics_tells_how_large_they_are(program: Program, topic_name: str) -> None:
    made = program("topics", "create", topic_name, "--partitions", "3", "--replication-factor", "2")
    assert made.code == 0
    assert program("produce", topic_name, "--partition", "0", stdin="x" * 1000).code == 0
    (topic,) = program("topics", "list", topic_name, "-o", "json").json
    assert (topic["partition_count"], topic["replication_factor"]) == (3, 2)
    assert topic["size_bytes"] > 2000, "both replicas"
    assert program("topics", "list", topic_name, "-o", "plain").out == f"{topic_name}\n"
    table = program("topics", "list", topic_name, "-o", "table").out
    assert table.splitlines()[0].split() == ["Topic", "Partitions", "Factor", "Size"]


def test_a_question_names_the_profile_the_address_and_each_setting_old_and_new(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program("topics", "create", topic_name, "--config", "retention.ms=7200000").code == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("KLAMM_BOOTSTRAP_SERVER")
    address = live_cluster.bootstrap_servers
    assert program("profiles", "add", "prod", "--bootstrap-server", address).code == 0
    monkeypatch.setattr(Talk, "can_ask", True)
    words = ["configs", "alter", "--cluster", "prod", "--topic", topic_name]
    asked = program(*words, "--add-config", "retention.ms=1h,max.message.bytes=2M", stdin="\n")
    assert asked.code == 2, "less retention loses records, so an empty answer is no"
    assert "retention.ms: 7200000 → 3600000" in asked.err
    assert "max.message.bytes: 1048588 (not set here) → 2000000" in asked.err
    assert f"Alter topic {topic_name} in profile prod ({address})? [y/N]" in asked.err
    asked = program(*words, "--add-config", "max.message.bytes=2M", stdin="\n")
    assert (asked.code, "[Y/n]" in asked.err) == (0, True), asked.err
    asked = program(*words, "--delete-config", "max.message.bytes", stdin="\n")
    assert (asked.code, "max.message.bytes: 2000000 → dropped" in asked.err) == (0, True), asked.err
    asked = program("topics", "alter", topic_name, "--cluster", "prod", "--partitions", "5", stdin="n\n")
    assert "partitions: 2 → 5" in asked.err


@pytest.mark.parametrize(
    ("name", "old", "new", "may_lose_data"),
    [
        ("retention.bytes", "2", "1", True),
        ("retention.bytes", "-1", "1", True),
        ("retention.bytes", "1", "-1", False),
        ("retention.ms", "1", "2", False),
        ("retention.ms", "1", None, True),
        ("retention.ms", None, "1", True),
        ("delete.retention.ms", "2", "1", True),
        ("log.retention.hours", "2", "1", True),
        ("offsets.retention.minutes", "2", "1", True),
        ("log.retention.check.interval.ms", "2", "1", False),
        ("cleanup.policy", "delete", "compact", True),
        ("cleanup.policy", "delete", "delete", False),
        ("unclean.leader.election.enable", "false", "true", True),
        ("unclean.leader.election.enable", "true", "false", False),
        ("min.insync.replicas", "2", "1", True),
        ("min.insync.replicas", "1", "2", False),
        ("max.message.bytes", "2", "1", False),
    ],
)
def test_which_settings_may_cost_records(name: str, old: str | None, new: str | None, may_lose_data: bool) -> None:
    assert ConfigChange(name, old, new).may_lose_data is may_lose_data
    if old is not None:
        assert ConfigChange(name, None, new, inherited=old).may_lose_data is may_lose_data


def test_what_a_person_would_be_asked_with_no_as_the_default_needs_a_yes_in_a_script(
    program: Program, topic_name: str
) -> None:
    assert program("topics", "create", topic_name, "--partitions", "2", "--replication-factor", "1").code == 0
    words = {
        ("configs", "alter", "--topic", topic_name, "--add-config", "retention.ms=1"),
        ("configs", "alter", "--topic", topic_name, "--add-config", "min.insync.replicas=1,retention.bytes=1"),
        ("configs", "alter", "--topic", topic_name, "--add-config", "unclean.leader.election.enable=true"),
        ("topics", "alter", topic_name, "--config", "retention.ms=1"),
        ("topics", "alter", topic_name, "--partitions", "9"),
    }
    for refused in words:
        ran = program(*refused)
        assert (ran.code, "without confirmation" in ran.err) == (2, True), ran.err
    described = program("topics", "describe", topic_name, "-o", "json").json[0]
    assert (described["partition_count"], described["configs"]) == (2, {})
    assert program("topics", "alter", topic_name, "--config", "retention.ms=-1").code == 0
    assert program("topics", "alter", topic_name, "--partitions", "3", "--yes").code == 0


def test_more_replicas_in_sync_than_there_are_need_a_yes_in_a_script(program: Program, topic_name: str) -> None:
    """Brokers before Kafka 3.7 would then refuse each write with acks=all."""
    assert program("topics", "create", topic_name, "--replication-factor", "1").code == 0
    setting, other = "min.insync.replicas=3", f"{topic_name}-2"
    words = {
        ("configs", "alter", "--topic", topic_name, "--add-config", setting): "1 replica",
        ("topics", "alter", topic_name, "--config", setting): "1 replica",
        ("topics", "create", other, "--replication-factor", "1", "--config", setting): "1 replica",
        ("topics", "create", other, "--replica-assignment", "0:1", "--config", setting): "2 replicas",
        ("topics", "create", other, "--config", setting): "2 replicas",
    }
    for refused, replicas in words.items():
        ran = program(*refused)
        assert (ran.code, f"{setting}, but a partition has {replicas}" in ran.err) == (2, True), ran.err
    for done in list(words)[:3]:
        ran = program(*done, "--yes")
        assert (ran.code, f"{setting}, but" in ran.err) == (0, True), ran.err
    assert (
        program("configs", "alter", "--topic", topic_name, "--add-config", "min.insync.replicas=1", "--yes").code == 0
    )


def test_clusters_are_named_so_that_nobody_mistakes_them() -> None:
    address = (("kafka1", 9092), ("kafka2", 9092))
    profile = ClusterTarget("prod", Origin.PROFILE, bootstrap=address)
    assert profile.title == "profile prod (kafka1:9092,kafka2:9092)"
    assert ClusterTarget("prod", Origin.PROFILE, zookeeper="zk:2181/k").title == "profile prod (zk:2181/k)"
    assert ClusterTarget("kafka1:9092", Origin.OPTIONS, bootstrap=address).title == "kafka1:9092"


def test_long_lists_are_folded() -> None:
    names = [f"t{number}" for number in range(30)]
    assert folded(names, 20, "-v shows all") == [*names[:20], "… and 10 more (-v shows all)"]
    assert folded(names[:21], 20) == names[:21], "nothing is won by hiding one"


def test_many_topics_to_be_deleted_are_listed_in_short(program: Program, topic_name: str) -> None:
    names = [f"{topic_name}-{number:02}" for number in range(23)]
    assert program("topics", "create", *names, "--partitions", "1", "--replication-factor", "1").code == 0
    listing = program("topics", "delete", f"{topic_name}-.*", "--dry-run").err
    assert (names[19] in listing, names[20] in listing, "… and 3 more" in listing) == (True, False, True)
    assert names[22] in program("topics", "delete", f"{topic_name}-.*", "--dry-run", "-v").err


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_terminals_without_unicode_get_plainer_characters(tmp_path: Path, encoding: str) -> None:
    env = environment(tmp_path, PYTHONIOENCODING=encoding, COLUMNS="100")
    (tmp_path / "täst→").mkdir()
    lines = [["dump", "täst→/absent"], ["doctor", "-o", "table"]]
    # Click takes ASCII for a mistake in the environment, and writes help in UTF-8.
    for words in lines if encoding == "ascii" else [["topics", "create", "--help"], *lines]:
        ran = subprocess.run(
            [PROGRAM, *words], cwd=tmp_path, env=env | {"PYTHONUTF8": "0"}, capture_output=True, check=False
        )
        output = (ran.stdout + ran.stderr).decode(encoding)
        assert "internal error" not in output
        assert ran.returncode in (0, 1, 2), output


def test_files_come_from_stdin_where_a_dash_stands(program: Program, topic_name: str) -> None:
    assert program("topics", "create", topic_name).code == 0
    assert program("produce", topic_name, "--partition", "0", stdin="a\nb\n").code == 0
    wanted = f'{{"partitions":[{{"topic":"{topic_name}","partition":0,"offset":1}}]}}'
    gone = program("records", "delete", "--offset-json-file", "-", "--yes", "-o", "json", stdin=wanted)
    assert (gone.code, gone.json[0]["result"]) == (0, "deleted"), gone.err
    elected = f'{{"partitions":[{{"topic":"{topic_name}","partition":0}}]}}'
    assert program("elect", "preferred", "--path-to-json-file", "-", "--dry-run", stdin=elected).code == 0
    bad = program("records", "delete", "--offset-json-file", "-", "--yes", stdin="nonsense")
    assert (bad.code, "stdin" in bad.err) == (2, True), bad.err


def test_a_snapshot_goes_to_stdout_and_comes_from_stdin(
    program: Program, topic_name: str, live_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program("topics", "create", topic_name, "--partitions", "2").code == 0
    taken = program("cluster", "snapshot", "-")
    assert (taken.code, "wrote the snapshot to stdout: " in taken.err, list(tmp_path.iterdir())) == (0, True, [])
    for verb in ("wrote", "replaced"):
        assert f"{verb} kept.json: " in program("cluster", "snapshot", "kept.json").err
    monkeypatch.delenv("KLAMM_BOOTSTRAP_SERVER")
    for words in (("topics", "describe", topic_name), ("plan", "rebalance")):
        assert program(*words, "--snapshot", "-", "-o", "json", stdin=taken.out).code == 0
    assert (
        program("topics", "describe", topic_name, "--snapshot", "-", "-o", "json", stdin=taken.out).json[0][
            "partition_count"
        ]
        == 2
    )
    bad = program("topics", "list", "--snapshot", "-", stdin="nonsense")
    assert (bad.code, "not a snapshot" in bad.err, "stdin" in bad.err) == (2, True, True), bad.err
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", live_cluster.bootstrap_servers)


def test_settings_and_payloads_come_from_stdin(program: Program, topic_name: str, live_cluster: LocalCluster) -> None:
    assert program("topics", "create", topic_name, "--command-config", "-", stdin="client.id=piped").code == 0
    refused = program("topics", "list", "--command-config", "-", stdin="security.protocol=TLS")
    assert (
        refused.code,
        "security.protocol=TLS is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL: stdin" in refused.err,
    ) == (2, True), refused.err
    made = ("perf", "producer", "--topic", topic_name, "--num-records", "4")
    assert program(*made, "--payload-file", "-", stdin="piped\n").code == 0
    brokers = f"bootstrap.servers={live_cluster.bootstrap_servers}\nacks=1\n"
    assert program(*made, "--record-size", "10", "--producer.config", "-", stdin=brokers).code == 0
    read = program(
        "perf", "consumer", "--topic", topic_name, "--messages", "8", "--consumer.config", "-", stdin=brokers
    )
    assert read.code == 0, read.err
    assert program("consume", topic_name, "--from-beginning", "--max-messages", "8").out.split().count("piped") == 4
    twice = program(*made, "--payload-file", "-", "--producer.config", "-", stdin=brokers)
    assert (twice.code, "- can stand for one file only" in twice.err) == (2, True), twice.err
    both = program("produce", topic_name, "--command-config", "-", stdin="client.id=piped\n")
    assert (both.code, "stdin holds the records" in both.err) == (2, True), both.err


def test_servers_take_their_settings_from_stdin(tmp_path: Path) -> None:
    for words, settings, complaint in (
        (["broker", "start", "-"], "broker.id=nonsense\n", "broker.id"),
        (["zookeeper", "start", "-", "--dry-run"], "clientPort=21999\n", "21999"),
    ):
        ran = subprocess.run(
            [PROGRAM, *words], cwd=tmp_path, env=environment(tmp_path), input=settings,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert complaint in ran.stderr, ran
        assert ran.returncode == (2 if words[0] == "broker" else 0), ran


@pytest.mark.parametrize(
    "words",
    [
        ["lag", "--history", "-"],
        ["lag", "--history", "./-"],
        ["top", "--replay", "-"],
        ["top", "--record", "-"],
        ["top", "--screenshot", "-"],
        ["dump", "-"],
        ["dump", "--files", "a,-"],
        ["plan", "rebalance", "--out", "-"],
        ["plan", "apply", "plan.json", "--journal", "-"],
        ["reassign", "generate", "a", "--broker-list", "1", "--proposed", "-"],
        ["reassign", "execute", "--reassignment-json-file", "a", "--rollback-file", "-"],
        ["perf", "suite", "--plot", "-"],
        ["state-changes", "merge", "a", "--parquet", "-"],
        ["spark", "merge", "a", "--out", "-"],
        ["spark", "package", "--out", "-"],
        ["shims", "-"],
        ["zookeeper", "start", "--dir", "-"],
        ["broker", "start", "a", "--log-folder", "-"],
        ["local", "up", "--dir", "-"],
    ],
    ids=" ".join,
)
def test_no_file_is_ever_called_dash(
    words: list[str], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = in_process(*words, capture=capsys)
    assert (ran.code, not list(tmp_path.iterdir())) == (2, True), ran.err
    assert "name a file" in ran.err or "needs real files" in ran.err, ran.err


def test_bars_have_one_style() -> None:
    assert gauge(0.5, 8, has_blocks=False) == "[####----]"
    assert gauge(0.5, 8, has_blocks=True) == "[████    ]"
    assert gauge(0.999, 8, has_blocks=True) == "[███████▉]", "full only if all is done"
    assert progress_line("moved", "MB", 25, 100, 5.0) == "moved 25 of 100 MB [######------------------] 5/s, 15 s left"


def test_progress_without_a_total_counts_in_words() -> None:
    assert progress_line("sent", "records", 1, None, 1.0) == "sent 1 record (1/s)"
    assert progress_line("sent", "records", 2, None, 1.0) == "sent 2 records (2/s)"
    assert progress_line("read", "MB", 1, None, 1.0) == "read 1 MB (1/s)"


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("blue", [True, True, False]),
        ("key=^blue", [True, False, False]),
        ("value=^blue", [False, True, False]),
        ("header.from=eu", [False, False, True]),
        ("header.to=eu", [False, False, False]),
        ("key=.", [True, True, False]),
    ],
)
def test_filters_of_records(text: str, matches: list[bool]) -> None:
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"blue-1", b"x", []),
        (b"y", b"blue", []),
        (None, None, [("from", b"eu-1"), ("to", None)]),
    ]
    is_wanted = parse_record_filter(text)
    assert [is_wanted(*record) for record in records] == matches


def test_consume_reads_several_topics_and_what_a_filter_lets_pass(program: Program, topic_name: str) -> None:
    for word in ("a", "b", "c"):
        assert program("topics", "create", f"{topic_name}-{word}").code == 0
        assert program("produce", f"{topic_name}-{word}", stdin=f"{word}1\n{word}2\n").code == 0
    assert sorted(program("consume", f"{topic_name}-a", f"{topic_name}-b", "-e").out.split()) == [
        "a1",
        "a2",
        "b1",
        "b2",
    ]
    ran = program("consume", f"{topic_name}-[bc]", "-e", "--filter", "2$", "-f", "%t %s\\n")
    assert sorted(ran.out.splitlines()) == [f"{topic_name}-b b2", f"{topic_name}-c c2"]
    assert len(program("consume", f"{topic_name}-.*", "-e", "--filter", "value=1", "-n", "2").out.split()) == 2
    absent = program("consume", f"{topic_name}-[xy]", "-e")
    assert (absent.code, "does not exist" in absent.err) == (2, True)


def test_consume_goes_on_where_its_group_stands_and_commits_what_it_printed(program: Program, topic_name: str) -> None:
    assert program("topics", "create", topic_name, "--partitions", "1").code == 0
    assert program("produce", topic_name, stdin="".join(f"{n}\n" for n in range(10))).code == 0
    words = ["consume", topic_name, "--group", topic_name, "--from-beginning"]
    assert program(*words, "-n", "3").out.split() == ["0", "1", "2"]
    (row,) = program("groups", "describe", topic_name, "-o", "json").json
    assert [(partition["current_offset"], partition["lag"]) for partition in row["partitions"]] == [(3, 7)]
    assert row["state"] == "Empty", "it has left"
    assert program(*words, "--until-end").out.split() == [str(n) for n in range(3, 10)]
    new = program("consume", topic_name, "--group", f"{topic_name}-new", "--timeout-ms", "5000")
    assert (new.code, new.out) == (0, ""), "a new group starts at the end"
    assert program("produce", topic_name, stdin="late\n").code == 0
    late = program("consume", topic_name, "--group", f"{topic_name}-new", "-n", "1", "--timeout-ms", "30000")
    assert late.out == "late\n", "and stays there"
    bad = program("consume", topic_name, "--group", "g", "--offset", "3")
    assert (bad.code, "--group continues at the committed offsets" in bad.err) == (2, True)


def test_internal_topics_are_printed_decoded(program: Program, topic_name: str) -> None:
    assert program("topics", "create", topic_name, "--partitions", "1").code == 0
    assert program("produce", topic_name, stdin="a\n").code == 0
    assert program("consume", topic_name, "--group", topic_name, "-e").code == 0
    words = ["consume", "__consumer_offsets", "-e", "--filter", topic_name]
    rows = [row for row in map(_json, program(*words, "-o", "jsonl").out.splitlines()) if row["key"]["type"] == "1"]
    assert rows[-1]["key"]["data"] == {"group": topic_name, "topic": topic_name, "partition": 0}
    assert rows[-1]["value"]["data"]["offset"] == 1
    assert _json(program(*words).out.splitlines()[-1]).keys() == {"key", "value"}
    raw = program(*words, "--raw", "-o", "jsonl").out.splitlines()
    assert any("key_encoding" in line or "\\u0000" in line for line in raw)
    assert program("consume", "__consumer.*", "-e").code == 2, "a pattern never means internal topics"


def _json(line: str) -> dict[str, dict[str, object]]:
    import json

    document: dict[str, dict[str, object]] = json.loads(line)
    return document


def test_lag_and_groups_of_a_topic_leave_out_who_never_read_it(program: Program, topic_name: str) -> None:
    for word in ("a", "b"):
        assert program("topics", "create", f"{topic_name}-{word}", "--partitions", "1").code == 0
        assert program("produce", f"{topic_name}-{word}", stdin="1\n").code == 0
        assert program("consume", f"{topic_name}-{word}", "--group", f"{topic_name}-of-{word}", "-e").code == 0
    only = ["--topic", f"{topic_name}-a"]
    assert [row[0] for row in program("lag", "--samples", "1", *only).rows] == [f"{topic_name}-of-a"]
    assert program("groups", "list", *only).out.split() == [f"{topic_name}-of-a"]
    for view in ((), ("--state",), ("--members",)):
        rows = program("groups", "describe", "--all-groups", *only, *view, "-o", "json").json
        assert [row["group"] for row in rows] == [f"{topic_name}-of-a"], view
    none = program("groups", "list", "--topic", "nobody-reads-this")
    assert (none.code, none.out) == (0, "")


@pytest.mark.parametrize("words", [["topics", "describe"], ["reassign", "list"], ["cluster", "health"]], ids=" ".join)
def test_watch_tells_again_until_ctrl_c(words: list[str], live_cluster: LocalCluster, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [PROGRAM, *words, "--watch", "--interval", "100ms", "-o", "json", "-b", live_cluster.bootstrap_servers],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment(tmp_path), text=True,
    )  # fmt: skip
    assert process.stdout is not None
    reports = 0
    while reports < 3:
        line = process.stdout.readline()
        assert line, process.communicate()
        reports += line in ("[]\n", "]\n", "}\n")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, "error" in said) == (130, False), "that is how a watch ends"


def test_no_error_is_told_by_the_name_of_its_class() -> None:
    class SessionExpiredError(Exception):
        pass

    assert said_by(SessionExpiredError()) == "session expired"
    assert said_by(SessionExpiredError("why")) == "why"
    assert said_by(TimeoutError()) == "no answer in time"


def test_produce_says_on_a_terminal_how_it_ends(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path
) -> None:
    assert program("topics", "create", topic_name).code == 0
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "produce", topic_name, "-b", live_cluster.bootstrap_servers],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment(tmp_path),
        text=True,
    )  # fmt: skip
    os.close(theirs)
    assert process.stderr is not None
    assert "Ctrl-D on a line of its own ends it" in process.stderr.readline()
    os.write(ours, b"typed\n\x04")
    process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert program("consume", topic_name, "-e").out == "typed\n"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ((), "waiting for new records; --from-beginning starts at the oldest; Ctrl-C ends it"),
        (("--group", "waiting"), "waiting for new records in group waiting; Ctrl-C ends it"),
        (("--from-beginning",), "waiting for new records; Ctrl-C ends it"),
    ],
    ids=["alone", "group", "from the beginning"],
)
def test_consume_says_on_a_terminal_that_it_waits(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path, more: tuple[str, ...], expected: str
) -> None:
    assert program("topics", "create", topic_name).code == 0
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "consume", topic_name, *more, "-n", "1", "-b", live_cluster.bootstrap_servers],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path, env=environment(tmp_path),
    )  # fmt: skip
    os.close(theirs)
    try:
        said = b""
        while expected.encode() not in said:
            said += os.read(ours, 1024)
        assert program("produce", topic_name, stdin="a\n").code == 0
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert (process.returncode, out) == (0, b"a\n")


@pytest.mark.parametrize(("again", "code"), [("typed-Secr3t", 0), ("typed-0ther", 2)], ids=["same", "differs"])
def test_a_password_is_typed_twice_and_not_shown(
    program: Program, live_cluster: LocalCluster, topic_name: str, tmp_path: Path, again: str, code: int
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "users", "set", topic_name, "--yes", "-v", "-b", live_cluster.bootstrap_servers],
        cwd=tmp_path, env=environment(tmp_path), pass_fds=[theirs], preexec_fn=lambda: os.login_tty(theirs),
    )  # fmt: skip
    os.close(theirs)
    said = b""
    for question, answer in (("New password: ", "typed-Secr3t"), ("The same again: ", again)):
        while question.encode() not in said:
            said += os.read(ours, 1024)
        os.write(ours, f"{answer}\n".encode())
    try:
        while more := os.read(ours, 1024):
            said += more
    except OSError:
        # The terminal has no other end any more.
        pass
    os.close(ours)
    assert process.wait(60) == code
    assert b"typed-" not in said and (b"the two passwords differ" in said) is (code == 2)
    users = program("users", "list", topic_name, "-o", "json").json
    assert [user["mechanism"] for user in users] == ["SCRAM-SHA-512"] * (code == 0)


def test_a_countdown_counts_on_a_terminal_and_is_one_line_elsewhere(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def watch() -> None:
        with Countdown(Talk()) as countdown:
            for left_s in (3.0, 0.5):
                countdown.restart("watching 2 groups", left_s)
                await asyncio.sleep(0.05)

    asyncio.run(watch())
    assert capsys.readouterr().err == "watching 2 groups for 3 s more\n"
    monkeypatch.setattr("cli.framework.progress.is_terminal", lambda stream: True)
    asyncio.run(watch())
    progress = capsys.readouterr().err
    assert "watching 2 groups: 3 s left" in progress
    assert progress.endswith("\r\x1b[K"), "the line goes"


def test_kafkas_own_names_ask_nothing_where_nobody_can_be_asked(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program("topics", "create", topic_name, "--partitions", "1").code == 0
    assert program("produce", topic_name, stdin="a\nb\n").code == 0
    assert program("consume", topic_name, "--group", topic_name, "-e").code == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    where = ("--bootstrap-server", live_cluster.bootstrap_servers)
    assert program("profiles", "add", "safe", *where, "--read-only").code == 0
    reset = ("kafka-consumer-groups.sh", "--reset-offsets", "--group", topic_name, "--all-topics", "--to-earliest")
    delete = ("kafka-topics.sh", "--delete", "--topic", topic_name)
    monkeypatch.delenv("KLAMM_BOOTSTRAP_SERVER")
    monkeypatch.setenv("KLAMM_CLUSTER", "safe")
    for words in ((*reset, "--execute"), delete):
        refused = program(*words)
        assert (refused.code, "read-only" in refused.err) == (2, True), refused.err
    monkeypatch.delenv("KLAMM_CLUSTER")
    done = program(*reset, "--execute", *where)
    assert (done.code, program("groups", "describe", topic_name, *where).rows[0][3]) == (0, "0"), done.err
    assert program("topics", "delete", topic_name, *where).code == 2, "under our name somebody must confirm it"
    done = program(*delete, *where)
    assert done.code == 0, done.err
    assert program("topics", "list", topic_name, *where).out == ""


def test_who_leads_best_is_called_preferred(program: Program, recorded: Callable[[str], str]) -> None:
    rows = program(
        "elect", "preferred", "--all-topic-partitions", "--dry-run", "-o", "table",
        "--zookeeper", recorded("leaderless"), "--via", "zookeeper",
    )  # fmt: skip
    assert "Preferred" in rows.out and "Should" not in rows.out, (rows.out, rows.err)


def test_health_names_five_cases_and_all_of_them_to_who_wants_more(capsys: Capture, tmp_path: Path) -> None:
    lost = tuple(PartitionSnapshot(index, ReplicaAssignment((0, 1)), -1, ()) for index in range(12))
    brokers = (BrokerInfo(0, ()), BrokerInfo(1, ()))
    snapshot = ClusterSnapshot(brokers, (TopicSnapshot("t", lost),), SnapshotSource.WIRE, 0, None, 0)
    save_snapshot(snapshot, tmp_path / "taken.json")
    for more, count in (((), 5), (("-v",), 12)):
        words = ("cluster", "health", "--snapshot", tmp_path / "taken.json", "-o", "table", *more)
        output = in_process(*words, capture=capsys).out
        assert len(re.findall(r"^  t-\d+ \(leader none", output, re.MULTILINE)) == count, output
