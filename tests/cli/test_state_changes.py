"""``klamm state-changes``: every format, what a person sees, exit codes, bad logs, and the cluster at that moment."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from golden import check_text
from klamm_program import PROGRAM, environment, in_process, klamm
from required_tools import require
from state_change_logs import entry, recorded_entries, said_at, write_log

FIXTURES = Path(__file__).parents[2] / "fixtures" / "state-changes"
UTC = ("--tz", "UTC")
LOST = "Changed partition lag-1 state from OnlinePartition to OfflinePartition"
ELECTED = "Changed partition lag-1 from OfflinePartition to OnlinePartition"
FAILED = "failed to change state for partition lag-1"

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def among_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURES)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("COLUMNS", raising=False)


def iso(time: str) -> str:
    """Return a printed time as JSON has it."""
    return time.replace(" ", "T") + "Z"


@pytest.mark.parametrize("width", ["80", "140"])
def test_what_a_person_sees(monkeypatch: pytest.MonkeyPatch, capsys: Capture, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    ran = in_process("state-changes", "merge", "unclean-election", "-o", "table", *UTC, capture=capsys)
    check_text(FIXTURES / f"merge-unclean-election-{width}.txt", ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= int(width)
    ran = in_process("state-changes", "check", "leaderless", "unclean-election", "-o", "table", *UTC, capture=capsys)
    check_text(FIXTURES / f"check-unclean-election-{width}.txt", ran.out)
    assert (ran.code, ran.err) == (1, "")
    assert max(map(len, ran.out.splitlines())) <= int(width)


def test_a_pipe_gets_the_lines_with_their_brokers(capsys: Capture) -> None:
    ran = in_process("state-changes", "merge", "unclean-election", capture=capsys)
    check_text(FIXTURES / "merge-unclean-election.txt", ran.out)
    assert (ran.code, ran.err) == (0, "")


def test_json_has_what_the_contract_says(capsys: Capture) -> None:
    ran = in_process("state-changes", "merge", "unclean-election", "-o", "json", *UTC, capture=capsys)
    first = ran.json[0]
    assert first.pop("message").startswith(
        "Changed partition lag-1 from OfflinePartition to OnlinePartition with state"
    )
    assert first == {
        "time": iso(said_at(FIXTURES / "unclean-election", ELECTED)),
        "level": "INFO",
        "broker": 0,
        "role": "controller",
        "controller_epoch": 4,
        "topic": "lag",
        "partition": 1,
        "partitions": ["lag-1"],
        "source": "unclean-election/broker-0/state-change.log",
    }
    assert len(ran.json) == len(recorded_entries(FIXTURES / "unclean-election"))


def test_all_formats_tell_the_same(tmp_path: Path, capsys: Capture) -> None:
    words = ("state-changes", "merge", "leaderless", *UTC, "-o")
    document = in_process(*words, "json", capture=capsys).json
    assert [json.loads(line) for line in in_process(*words, "jsonl", capture=capsys).out.splitlines()] == document
    assert yaml.safe_load(in_process(*words, "yaml", capture=capsys).out) == document
    rows = list(csv.DictReader(io.StringIO(in_process(*words, "csv", capture=capsys).out)))
    assert [row["message"] for row in rows] == [row["message"] for row in document]
    assert [row["partition"] for row in rows] == [
        "" if r["partition"] is None else str(r["partition"]) for r in document
    ]
    # Awkward characters pass unchanged.
    log = write_log(tmp_path / "broker-1.log", [entry(0, 1, 'a "quoted" \\ tab\there ü \u2028 end').text])
    odd = in_process("state-changes", "merge", log, "-o", "jsonl", *UTC, capture=capsys).out
    assert json.loads(odd)["message"] == 'a "quoted" \\ tab\there ü \u2028 end'


def test_parquet(tmp_path: Path, capsys: Capture) -> None:
    require("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    file = tmp_path / "night.parquet"
    ran = in_process("state-changes", "merge", "leaderless", "--parquet", file, *UTC, capture=capsys)
    count = len(recorded_entries(FIXTURES / "leaderless"))
    assert (ran.code, ran.out, ran.err) == (0, "", f"wrote {file}: {count} rows\n")
    rows = parquet.read_table(file).to_pylist()
    document = in_process("state-changes", "merge", "leaderless", "-o", "json", *UTC, capture=capsys).json
    for row in rows:
        row["time"] = row["time"].isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert rows == document
    assert list(tmp_path.iterdir()) == [file], "nothing unfinished is left"


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ran = in_process("state-changes", "merge", "leaderless", "--parquet", tmp_path / "x", capture=capsys)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error: Parquet needs pyarrow, which is not installed\nhint: install it with: pip install 'klamm[spark]'\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_kafkas_own_options(capsys: Capture) -> None:
    first = said_at(FIXTURES / "leaderless", FAILED).replace(".", ",")
    last = said_at(FIXTURES / "leaderless" / "broker-0", "Cached leader info").replace(".", ",")
    expected = in_process(
        "state-changes", "merge", "leaderless", "--topic", "lag", "--partition", "1", "--start", first, "--end", last,
        *UTC, capture=capsys,
    )  # fmt: skip
    assert expected.out.count("\nbroker-") > 10
    logs = [f"leaderless/broker-{broker}/state-change.log" for broker in (0, 2)]
    times = ("--start-time", f"'{first}'", "--end-time", last, *UTC)
    about = ("--topic", "lag", "--partitions", "1")
    ran = in_process("state-changes", "merge", "--logs", ",".join(logs), *about, *times, capture=capsys)
    assert (ran.code, ran.out) == (0, expected.out)
    merged = in_process(
        "state-changes", "merge", "--logs-regex", "leaderless/broker-0/state.*", *about, *times, capture=capsys
    )
    assert merged.out.splitlines() == [line for line in expected.out.splitlines() if line.startswith("broker-0")]


def test_filters_work_together(capsys: Capture) -> None:
    words = ("state-changes", "merge", "leaderless", "-o", "json", *UTC)
    every = in_process(*words, capture=capsys).json
    ran = in_process(*words, "--topic", "lag,t1", "--partition", "1", "--broker", "2", capture=capsys).json
    assert ran == [r for r in every if r["topic"] in ("lag", "t1") and r["partition"] == 1 and r["broker"] == 2]
    assert ran


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["merge"], "no log was named", "give files or folders"),
        (["merge", "absent.log"], "no such file or folder: absent.log", None),
        (["merge", "."], None, None),
        (["merge", "../trees"], "no state-change log in the folder: ../trees", "name other files one by one"),
        (["merge", "leaderless", "--partition", "1"], "partitions are given without a topic", "--topic"),
        (["merge", "leaderless", "--start", "soon"], "not a time: soon", "2h"),
        (["merge", "leaderless", "--tz", "Mars"], "no such time zone: Mars", "Europe/Berlin"),
        (["merge", "absent.log", "--tz", "Mars"], "no such time zone: Mars", "Europe/Berlin"),
        (["check", "absent.log", "--tz", "Mars"], "no such time zone: Mars", "Europe/Berlin"),
        (["merge", "leaderless", "--broker", "x"], "not the number of a broker: x", None),
        (
            ["check", "leaderless", "--window", "soon"],
            "--window must be a duration",
            "klamm state-changes check --help",
        ),
        (["check", "leaderless", "--fail-on", "info"], "--fail-on must be", "klamm state-changes check --help"),
    ],
)
def test_wrong_use(capsys: Capture, words: list[str], message: str | None, hint: str | None) -> None:
    ran = in_process("state-changes", *words, capture=capsys)
    if message is None:
        assert ran.code == 0
        return
    assert (ran.code, ran.out) == (2, "")
    lines = ran.err.splitlines()
    assert message in lines[0]
    assert hint is None or hint in lines[1]


def test_a_wrong_zone_is_told_before_spark_starts(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    merge = importlib.import_module("cli.commands.spark.merge")
    monkeypatch.setattr(merge, "open_spark", lambda *_, **__: nullcontext(pytest.fail))
    ran = in_process("spark", "merge", "s3://logs/a.log", "--out", "s3://logs/all", "--tz", "Mars", capture=capsys)
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: no such time zone: Mars")


def test_damaged_logs_are_named_and_the_rest_goes_on(tmp_path: Path, capsys: Capture) -> None:
    good = write_log(tmp_path / "broker-1.log", [entry(0, 1, "good").text])
    binary = tmp_path / "broker-2.log"
    binary.write_bytes(bytes(range(256)))
    cut = tmp_path / "broker-3.log.gz"
    cut.write_bytes(gzip.compress(entry(1, 3, "x" * 100).text.encode() * 50)[:-20])
    odd = write_log(
        tmp_path / "broker-4.log", ["no time", entry(2, 4, "odd").text, f"{entry(3, 4, 'x').text[:25]} nothing"]
    )
    ran = in_process("state-changes", "merge", good, binary, cut, odd, capture=capsys)
    assert ran.code == 1
    assert "good" in ran.out
    assert "odd" in ran.out
    assert ran.err.splitlines() == [
        f"error: is binary: not a state-change log: {binary}",
        f"error: the gzip is cut off; the result contains what comes before that: {cut}",
        f"warning: {odd}: 1 line at the beginning, before any that has a time",
        f"error: 1 line that cannot be parsed: no level after the time: {odd}",
    ]
    ran = in_process("state-changes", "merge", good, binary, "-o", "jsonl", "--quiet", capture=capsys)
    assert (ran.code, ran.error["code"], ran.error["kind"]) == (1, 1, "not_a_log")
    ran = in_process("state-changes", "check", good, binary, "-o", "json", capture=capsys)
    assert (ran.code, ran.json["status"]) == (1, "ok")


def test_an_unreadable_log_is_code_2(tmp_path: Path, capsys: Capture) -> None:
    good = write_log(tmp_path / "broker-1.log", [entry(0, 1, "good").text])
    dangling = tmp_path / "broker-2.log"
    dangling.symlink_to("nowhere")
    for command in ("merge", "check"):
        ran = in_process("state-changes", command, good, dangling, capture=capsys)
        assert ran.code == 2
        assert f"error: cannot be read: no such file or directory: {dangling}" in ran.err
    assert "good" in in_process("state-changes", "merge", good, dangling, capture=capsys).out


def test_check_as_a_gate(capsys: Capture) -> None:
    ran = in_process("state-changes", "check", "broker-killed", *UTC, capture=capsys)
    assert ran.code == 0
    assert [row[:3] for row in ran.rows] == [["info", "leader_changes", "2"]]
    words = ("state-changes", "check", "leaderless", *UTC)
    assert in_process(*words, capture=capsys).code == 1
    document = in_process(*words, "-o", "json", "--examples", "1", capture=capsys).json
    count, lost = len(recorded_entries(FIXTURES / "leaderless")), said_at(FIXTURES / "leaderless", LOST)
    assert (document["status"], document["brokers"], document["lines"]) == ("critical", [0, 2], count)
    assert document["findings"][0] == {
        "check": "left_offline",
        "severity": "critical",
        "count": 1,
        "from": iso(lost),
        "to": iso(lost),
        "meaning": "partitions had no leader when the logs ended",
        "examples": [f"{lost} lag-1: without a leader since then, ISR [1]"],
    }
    ran = in_process(*words, "--end", lost.replace(".", ","), capture=capsys)
    assert ran.code == 0, "what happened later is not asked for"
    ran = in_process("state-changes", "check", "topic-deleted", "-o", "table", *UTC, capture=capsys)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines()[-1] == "no change of a leader, an ISR or a controller, and no error"


def test_where_no_log_was_read_nobody_says_that_nothing_happened(tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "broker-1.log"
    other.write_text("no line of a log\n")
    ran = in_process("state-changes", "check", other, "-o", "table", *UTC, capture=capsys)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[-1] == "no log was read: nothing is known"
    earlier = ("--start", "2019-01-01", "--end", "2019-01-02")
    ran = in_process("state-changes", "check", FIXTURES / "leaderless", *earlier, *UTC, capture=capsys)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[-1] == "no log has a line of that time: nothing is known"


def test_what_makes_the_gate_close(tmp_path: Path, capsys: Capture) -> None:
    error = write_log(tmp_path / "broker-1.log", [entry(0, 1, "Error while processing", level="ERROR").text])
    assert in_process("state-changes", "check", error, capture=capsys).code == 1
    assert in_process("state-changes", "check", error, "--fail-on", "critical", capture=capsys).code == 0


def test_the_cluster_of_that_moment_agrees(recorded: Callable[[str], str], capsys: Capture) -> None:
    words = ("state-changes", "check", "leaderless", "-o", "json", *UTC, "--zookeeper")
    ran = in_process(*words, recorded("leaderless"), capture=capsys)
    assert [finding["check"] for finding in ran.json["findings"] if finding["severity"] != "info"] == [
        "left_offline",
        "failed_changes",
    ]
    assert ran.code == 1


def test_a_cluster_that_went_on_and_one_of_before(recorded: Callable[[str], str], capsys: Capture) -> None:
    words = ("state-changes", "check", "unclean-election", "-o", "json", *UTC, "--zookeeper")
    before = in_process(*words, recorded("leaderless"), capture=capsys).json["findings"]
    assert {finding["check"]: finding["examples"] for finding in before}["differs_from_cluster"] == [
        "lag-1: leader 2 ISR [2] (leader epoch 2, version 3), but the cluster is older: "
        "leader -1 ISR [1] (leader epoch 1, version 2)"
    ]
    other = in_process(*words, recorded("reassignment-under-way"), capture=capsys).json["findings"]
    assert {finding["check"] for finding in other} == {"unclean_election", "gone_from_cluster", "leader_changes"}
    words = ("state-changes", "check", "broker-killed", "-o", "json", *UTC, "--zookeeper")
    later = in_process(*words, recorded("leaderless"), capture=capsys)
    assert later.code == 0
    assert {finding["check"] for finding in later.json["findings"]} == {"leader_changes", "changed_since"}


def test_a_cluster_that_cannot_be_reached(capsys: Capture) -> None:
    words = ("state-changes", "check", "leaderless", *UTC, "--zookeeper", "127.0.0.1:1", "--timeout", "1")
    ran = in_process(*words, capture=capsys)
    assert (ran.code, ran.out) == (3, "")
    assert "127.0.0.1:1" in ran.err


def test_from_stdin_and_into_a_pipe_that_closes(tmp_path: Path) -> None:
    lines = [entry(ms, 7, f"line {ms}").text for ms in range(20_000)]
    text = "".join(f"{line}\n" for line in lines)
    ran = klamm("state-changes", "merge", "-", folder=tmp_path, stdin=gzip.compress(text.encode()))
    assert ran.out == "".join(f"broker-7 | {line}\n" for line in lines)
    log = write_log(tmp_path / "broker-7.log", lines)
    shell = subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{PROGRAM}' state-changes merge '{log}' | head -2; echo ${{PIPESTATUS[0]}}"],
        env=environment(tmp_path),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert shell.stdout.decode().splitlines() == [*(f"broker-7 | {line}" for line in lines[:2]), "0"]
    assert shell.stderr == b""


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    pipe = tmp_path / "endless"
    os.mkfifo(pipe)
    running = subprocess.Popen(
        [PROGRAM, "state-changes", "check", pipe],
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    # Opening waits until the program reads, which then waits for the first line.
    with pipe.open("wb") as writer:
        writer.write(f"{entry(0, 1, 'x').text}\n{entry(1, 1, 'y').text}\n".encode())
        writer.flush()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=20)
    assert (running.returncode, out) == (130, b"")
    assert err.decode() == "error: interrupted\n"


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_colour_on_a_terminal(tmp_path: Path, no_colour: str) -> None:
    controller, terminal = pty.openpty()
    ran = subprocess.run(
        [PROGRAM, "state-changes", "merge", FIXTURES / "leaderless", "--topic", "lag"],
        env=environment(tmp_path, NO_COLOR=no_colour, COLUMNS="120", TZ="UTC"),
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(controller, 65536)
        except OSError:
            break
    os.close(controller)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert shown.startswith(b"Time" if no_colour else b"\x1b[1mTime")
    assert (b"\x1b[" in shown) is not no_colour
    assert (b"\x1b[1;31mERROR\x1b[0m" in shown) is not bool(no_colour)


def test_a_merge_loads_nothing_it_does_not_need(tmp_path: Path) -> None:
    code = (
        "import io, json, sys\nfrom cli.main import main\nsys.stdout = io.TextIOWrapper(io.BytesIO())\n"
        f"main(['state-changes', 'merge', {str(FIXTURES / 'leaderless')!r}, '-o', 'jsonl'])\n"
        "sys.__stdout__.write(json.dumps(sorted(sys.modules)))"
    )
    ran = subprocess.run(
        [PROGRAM.parent / "python", "-c", code],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        check=True,
    )
    loaded = {name.split(".")[0] for name in json.loads(ran.stdout)}
    assert not loaded & {"asyncio", "kazoo", "rich", "yaml", "crc32c", "pyarrow", "pyspark", "uvloop"}


def test_a_missing_path_does_not_stop_the_others(tmp_path: Path, capsys: Capture) -> None:
    good = write_log(tmp_path / "broker-1.log", [entry(0, 1, "good").text])
    absent, empty = tmp_path / "absent.log", tmp_path / "empty"
    empty.mkdir()
    ran = in_process("state-changes", "merge", absent, good, empty, capture=capsys)
    assert (ran.code, "good" in ran.out) == (2, True)
    assert ran.err.splitlines() == [
        f"error: cannot be read: no such file or directory: {absent}",
        f"error: no state-change log in the folder: {empty}",
    ]
    alone = in_process("state-changes", "merge", absent, capture=capsys)
    assert (alone.code, alone.err) == (2, f"error: no such file or folder: {absent}\n")


def test_a_topic_that_no_log_names_is_told(tmp_path: Path, capsys: Capture) -> None:
    text = "partition [orders,0] from OfflinePartition to OnlinePartition"
    log = write_log(tmp_path / "broker-1.log", [entry(0, 1, text).text])
    ran = in_process("state-changes", "merge", log, "--topic", "orders,order", capture=capsys)
    assert (ran.code, text in ran.out) == (1, True)
    assert ran.err == "error: no log names it in that period: topic order\n"
    merged = in_process("state-changes", "merge", log, "--topic", "orders", "--partition", "7", capture=capsys)
    assert (merged.code, merged.out, merged.err) == (0, "", "")


def test_a_broker_that_no_log_is_of_is_told(tmp_path: Path, capsys: Capture) -> None:
    """Like a topic that no log names: nothing at all, with code 0, looks like "nothing happened"."""
    log = write_log(tmp_path / "broker-1.log", [entry(0, 1, "good").text])
    ran = in_process("state-changes", "merge", log, "--broker", "7,1", capture=capsys)
    assert (ran.code, ran.err, "good" in ran.out) == (1, "error: no log is of it: broker 7\n", True)
    known = in_process("state-changes", "merge", log, "--broker", "1", capture=capsys)
    assert (known.code, known.err) == (0, "")
