"""Logs as found in practice: damaged, binary, full of zeros, out of order, in pipes.

They are named, the rest goes on.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from unittest import mock

import pytest
from state_change_logs import IN_UTC, entry, merged_lines, merged_rows, merged_text, plan_of, start, write_log

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.state_changes import entry_reader, merge
from engine.admin.state_changes.log_files import find_logs
from engine.admin.state_changes.log_input import LogProblem, ProblemKind
from engine.admin.state_changes.merge import MergeWish

GOOD = [entry(ms, 1, f"line {ms}").text for ms in range(3)]


def good_log(folder: Path) -> Path:
    return write_log(folder / "broker-1" / "state-change.log", GOOD)


def kinds(problems: list[LogProblem]) -> dict[str, ProblemKind]:
    return {Path(problem.source).name: problem.kind for problem in problems}


def test_a_gzip_that_is_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    lines = [entry(ms, 2, f"line {ms} {os.urandom(20).hex()}").text for ms in range(2000)]
    log = write_log(tmp_path / "state-change.log.gz", lines, is_gzip=True)
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) // 2])
    plan = plan_of(good_log(tmp_path), log)
    merged = [line for label, line in merged_lines(plan) if label == "broker-2"]
    assert merged[:-1] == lines[: len(merged) - 1]
    assert 500 < len(merged) < 1500
    assert kinds(plan.problems) == {"state-change.log.gz": ProblemKind.DAMAGED}
    assert plan.problems[0].message == "the gzip is cut off; the result contains what comes before that"
    assert len([1 for label, _ in merged_lines(plan_of(good_log(tmp_path), log)) if label == "broker-1"]) == len(GOOD)


def test_a_gzip_with_a_wrong_bit_is_named(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "state-change.log.gz", [entry(ms, 2, f"line {ms}").text for ms in range(3000)], is_gzip=True
    )
    data = bytearray(log.read_bytes())
    data[-6] ^= 1
    log.write_bytes(data)
    plan = plan_of(log)
    merged_text(plan)
    assert kinds(plan.problems) == {"state-change.log.gz": ProblemKind.DAMAGED}


def test_gzips_of_several_members_and_with_padding(tmp_path: Path) -> None:
    log = tmp_path / "state-change.log.1.gz"
    log.write_bytes(b"".join(gzip.compress(line.encode() + b"\n") for line in GOOD) + bytes(512))
    plan = plan_of(log)
    assert [line for _, line in merged_lines(plan)] == GOOD
    assert plan.problems == []


def test_a_gzip_is_never_whole_in_memory(tmp_path: Path) -> None:
    """A small file that unpacks to a huge one is read in pieces of bounded size."""
    log = tmp_path / "state-change.log.gz"
    log.write_bytes(gzip.compress(f"{GOOD[0]}\n".encode() * 200_000, compresslevel=1))
    pieces = 0
    with mock.patch.object(entry_reader.EntryReader, "_wanted_lines", autospec=True, return_value=[]) as wanted:
        for _ in plan_of(log).merge(lambda file, broker_id: b""):
            pieces += 1
    assert max(len(call.args[1]) for call in wanted.call_args_list) < 200_000
    assert len(wanted.call_args_list) > 100


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bytes(range(256)) * 40, "is binary"),
        (b"\x7fELF\0\0\0", "is binary"),
        (b"words of another kind\nand more\n", "has no line that begins with a time"),
        (gzip.compress(b"words of another kind\n", mtime=0), "has no line that begins with a time"),
    ],
)
def test_what_is_no_log_is_named_and_the_rest_goes_on(tmp_path: Path, content: bytes, reason: str) -> None:
    other = tmp_path / "other.log"
    other.write_bytes(content)
    plan = plan_of(good_log(tmp_path), other)
    assert [line for _, line in merged_lines(plan)] == GOOD
    assert plan.problems == [LogProblem(str(other), ProblemKind.NOT_A_LOG, f"{reason}: not a state-change log")]


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    dangling = tmp_path / "broker-2" / "state-change.log"
    dangling.parent.mkdir()
    dangling.symlink_to(tmp_path / "nowhere")
    plan = plan_of(good_log(tmp_path), dangling, Path("/proc/self/mem"))
    assert [line for _, line in merged_lines(plan)] == GOOD
    problems = {problem.source: problem.message for problem in plan.problems}
    assert problems == {
        str(dangling): "cannot be read: no such file or directory",
        "/proc/self/mem": "cannot be read: input/output error",
    }
    assert all(problem.kind is ProblemKind.UNREADABLE for problem in plan.problems)


def test_logs_that_are_rolled_while_they_are_read_are_read_whole(tmp_path: Path) -> None:
    """All names move on by one between the look at the logs and their turn; nothing is lost or read twice."""
    older = write_log(tmp_path / "state-change.log.1", GOOD)
    later = [entry(ms, 1, f"line {ms}").text for ms in range(100, 103)]
    live = write_log(tmp_path / "state-change.log", later)
    plan = plan_of(older, live)
    older.rename(tmp_path / "state-change.log.2")
    live.rename(tmp_path / "state-change.log.1")
    write_log(tmp_path / "state-change.log", [entry(999, 1, "after the look").text])
    assert [line for _, line in merged_lines(plan)] == [*GOOD, *later]
    assert plan.problems == []


@pytest.mark.parametrize("is_emptied", [True, False])
def test_a_log_whose_name_another_has_taken_is_named(tmp_path: Path, is_emptied: bool) -> None:
    log, other = good_log(tmp_path), write_log(tmp_path / "other", [entry(7, 2, "x").text])
    plan = plan_of(log, other)
    new = entry(999, 1, "n").text + "\n"
    if is_emptied:
        log.write_text(new)
    else:
        (tmp_path / "new").write_text(new)
        (tmp_path / "new").replace(log)
    assert [label for label, _ in merged_lines(plan)] == ["broker-2"]
    (problem,) = plan.problems
    assert problem.kind is ProblemKind.UNREADABLE
    assert problem.message == "cannot be read: another file took its place while klamm read the logs: start again"


def test_a_log_that_vanishes_before_its_turn_is_named(tmp_path: Path) -> None:
    later = write_log(tmp_path / "broker-2" / "state-change.log", [entry(10_000, 2, "late").text])
    plan = plan_of(good_log(tmp_path), later)
    later.unlink()
    assert [line for _, line in merged_lines(plan)] == GOOD
    assert kinds(plan.problems) == {"state-change.log": ProblemKind.UNREADABLE}


def test_empty_logs_are_no_trouble(tmp_path: Path) -> None:
    empty = write_log(tmp_path / "broker-2" / "state-change.log", [])
    plan = plan_of(empty)
    assert merged_text(plan) == ""
    assert plan.problems == []


def test_a_gzip_without_a_byte_is_named(tmp_path: Path) -> None:
    """A disk that is full leaves it: the log that was to be in it is missing."""
    empty = tmp_path / "broker-2" / "state-change.log.1.gz"
    empty.parent.mkdir()
    empty.touch()
    nothing = write_log(tmp_path / "broker-3" / "state-change.log.gz", [], is_gzip=True)
    plan = plan_of(good_log(tmp_path), empty, nothing)
    assert [line for _, line in merged_lines(plan)] == GOOD
    (problem,) = plan.problems
    assert (problem.source, problem.kind) == (str(empty), ProblemKind.DAMAGED)
    assert problem.message == "it is empty, which no gzip is"


def test_zero_bytes_of_a_crash_hide_no_line(tmp_path: Path) -> None:
    log = tmp_path / "state-change.log"
    log.write_bytes(bytes(4096) + GOOD[0].encode() + b"\n" + bytes(100) + GOOD[1].encode() + b"\n")
    plan = plan_of(log)
    assert [line for _, line in merged_lines(plan)] == GOOD[:2]
    assert plan.problems == [LogProblem(str(log), ProblemKind.ZERO_BYTES, "4196 zero bytes left out", 4196)]


def test_lines_without_time_at_the_beginning_are_kept_and_told(tmp_path: Path) -> None:
    log = write_log(tmp_path / "state-change.log", ["the rest of something", "\tat kafka.X", *GOOD])
    plan = plan_of(log)
    assert [line for _, line in merged_lines(plan)] == ["the rest of something", "\tat kafka.X", *GOOD]
    assert [(problem.kind, problem.count) for problem in plan.problems] == [(ProblemKind.WITHOUT_TIME, 2)]
    first = merged_rows(plan_of(log))[0]
    assert (first.utc_start, first.level, first.message) == (None, None, "the rest of something\n\tat kafka.X")


def test_lines_that_cannot_be_parsed_are_kept_and_counted(tmp_path: Path) -> None:
    odd = [f"{start(1)} and no level", f"{start(1)}", "[2026-13-45 99:99:99,999] INFO [Broker id=1] no such day"]
    log = write_log(tmp_path / "broker-1.log", [GOOD[0], *odd])
    plan = plan_of(log)
    assert [line for _, line in merged_lines(plan)] == [GOOD[0], *odd]
    assert [(problem.kind, problem.count) for problem in plan.problems] == [(ProblemKind.UNPARSED, 2)]
    rows = merged_rows(plan_of(log))
    assert [row.message for row in rows] == ["line 0", odd[0], odd[1], "no such day"]
    assert [row.level for row in rows] == ["INFO", None, None, "INFO"]
    assert all(row.broker == 1 for row in rows)


def test_lines_somewhat_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    lines = [entry(ms, 1, f"line {ms}").text for ms in (0, 2, 1, 5, 4, 3, 6)]
    plan = plan_of(write_log(tmp_path / "a.log", lines))
    assert [line[:25] for _, line in merged_lines(plan)] == [start(ms) for ms in range(7)]
    assert [problem.kind for problem in plan.problems] == [ProblemKind.REORDERED]


def test_lines_far_out_of_order_are_told_and_come_when_they_are_met(tmp_path: Path) -> None:
    lines = [entry(ms, 1, f"line {ms}").text for ms in (*range(1000, 1400), 5, 6, *range(1400, 1500))]
    log = write_log(tmp_path / "broker-1.log", lines)
    other = write_log(tmp_path / "broker-2.log", [entry(ms, 2, "x").text for ms in range(1000, 1500)])
    with (
        mock.patch.object(merge, "_CHUNK_BYTES", 500),
        mock.patch.object(entry_reader, "_BLOCK_BYTES", 1000),
    ):
        plan = plan_of(log, other)
        merged = merged_lines(plan)
    assert len(merged) == len(lines) + 500
    late = [problem for problem in plan.problems if problem.kind is ProblemKind.LATE]
    assert [(problem.source, problem.count) for problem in late] == [(str(log), 2)]
    at = [line[:25] for _, line in merged].index(start(5))
    assert start(1350) < merged[at - 1][1][:25] < start(1420)


def test_an_entry_without_end_is_cut_but_lost_is_nothing(tmp_path: Path) -> None:
    trace = [f"\tat kafka.X{number}" for number in range(3000)]
    log = write_log(tmp_path / "broker-1.log", [GOOD[0], *trace, GOOD[1]])
    with (
        mock.patch.object(merge, "_CHUNK_BYTES", 100),
        mock.patch.object(entry_reader, "_ENTRY_BYTES_MAX", 5000),
    ):
        plan = plan_of(log)
        assert [line for _, line in merged_lines(plan)] == [GOOD[0], *trace, GOOD[1]]


def test_lines_of_windows(tmp_path: Path) -> None:
    log = tmp_path / "broker-1.log"
    log.write_bytes("\r\n".join([*GOOD, ""]).encode())
    plan = plan_of(log)
    assert merged_text(plan).count("\r\n") == len(GOOD)
    assert [row.message for row in merged_rows(plan_of(log))] == ["line 0", "line 1", "line 2"]


def test_pipes_are_read_once(tmp_path: Path) -> None:
    pipes = [tmp_path / f"pipe-{broker}" for broker in (1, 2)]
    lines = {path: [entry(ms, broker, f"line {ms}").text for ms in range(500)] for broker, path in enumerate(pipes, 1)}
    for path in pipes:
        os.mkfifo(path)

    def write(path: Path) -> None:
        with path.open("w") as pipe:
            pipe.writelines(f"{line}\n" for line in lines[path])

    writers = [threading.Thread(target=write, args=(path,)) for path in pipes]
    for writer in writers:
        writer.start()
    try:
        plan = plan_of(*pipes)
        merged = merged_lines(plan)
    finally:
        for writer in writers:
            writer.join(timeout=20)
    for broker, path in enumerate(pipes, 1):
        assert [line for label, line in merged if label == f"broker-{broker}"] == lines[path]
    assert plan.problems == []


class TestFindingLogs:
    def test_a_folder_means_the_state_change_logs_below_it(self, tmp_path: Path) -> None:
        names = [
            "broker-1/state-change.log",
            "broker-1/state-change.log.2026-11-21-13",
            "broker-1/state-change.log.2026-11-21-12.gz",
            "broker-2/logs/state-change.log.1",
            "broker-3.state-change.log",
            "stage-change.log",
        ]
        for name in [*names, "broker-1/server.log", "broker-1/controller.log", "state-change-notes.txt"]:
            write_log(tmp_path / name, GOOD)
        paths = [str(path.relative_to(tmp_path)) for path in find_logs([tmp_path])]
        assert sorted(paths) == sorted(names)

    def test_each_log_counts_once(self, tmp_path: Path) -> None:
        log = good_log(tmp_path)
        link = tmp_path / "link.log"
        link.symlink_to(log)
        assert find_logs([tmp_path, log, log, link]) == [log]

    def test_logs_regex_as_kafka_has_it(self, tmp_path: Path) -> None:
        for name in ("state-change.log", "state-change.log.1", "server.log"):
            write_log(tmp_path / name, GOOD)
        paths = find_logs([], f"{tmp_path}/state-change.*")
        assert [path.name for path in paths] == ["state-change.log", "state-change.log.1"]
        for regex, message in ((f"{tmp_path}/a[", "not a regular"), (f"{tmp_path}/x", "no file's name")):
            with pytest.raises((BadRequest, NotFound), match=message):
                find_logs([], regex)
        with pytest.raises(NotFound, match="no such folder"):
            find_logs([], f"{tmp_path}/absent/x")

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(BadRequest, match="no log was named"):
            find_logs([])
        with pytest.raises(NotFound, match="no such file or folder"):
            find_logs([tmp_path / "absent.log"])
        with pytest.raises(NotFound, match="no state-change log in the folder"):
            find_logs([tmp_path])


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (MergeWish(partitions=["0"]), "without a topic"),
        (MergeWish(topics=["t"], partitions=["0,1,0"]), "a partition is named more than once"),
        (MergeWish(topics=["t"], partitions=["x"]), "not the number of a partition"),
        (MergeWish(brokers=["-1"]), "not the number of a broker"),
        (MergeWish(topics=["a b"]), "not a topic's name"),
        (MergeWish(start="soon"), "not a time"),
        (MergeWish(start="2026-11-21", end="2026-11-20"), "the start is later than the end"),
    ],
)
def test_senseless_wishes_are_refused(tmp_path: Path, wish: MergeWish, message: str) -> None:
    log = good_log(tmp_path)
    with pytest.raises(BadRequest, match=message):
        plan_of(log, wish=wish)


def test_a_log_out_of_the_wanted_time_is_not_opened_again(tmp_path: Path) -> None:
    early = write_log(tmp_path / "broker-1" / "state-change.log.1", [entry(0, 1, "early").text])
    late = write_log(tmp_path / "broker-1" / "state-change.log", [entry(10 * 3_600_000, 1, "late").text])
    wish = MergeWish(start="2026-11-21 11:00", zones=IN_UTC)
    plan = plan_of(early, late, wish=wish)
    assert [file.path for file in plan.files] == [late]
    wish = MergeWish(end="2026-11-21 03:00", zones=IN_UTC)
    assert [file.path for file in plan_of(early, late, wish=wish).files] == [early]


def in_json(time: str, message: str, logger: str) -> str:
    said = {"@timestamp": time, "level": "INFO", "logger_name": logger, "message": message}
    return json.dumps(said)


def in_kafkas(time: str, message: str, logger: str) -> str:
    return f"[{time[:10]} {time[11:-1].replace('.', ',')}] INFO {message} ({logger})"


LAYOUTS: dict[str, Callable[[str, str, str], str]] = {
    "an ISO time": lambda time, message, logger: f"{time} INFO {message} ({logger})",
    "an ISO time in brackets": lambda time, message, logger: f"[{time}] INFO {message} ({logger})",
    "a zone": lambda time, message, logger: (
        f"[{datetime.fromisoformat(time).astimezone(timezone(timedelta(hours=2))).isoformat(timespec='milliseconds')}] "
        f"INFO {message} ({logger})"
    ),
    "JSON": in_json,
    "JSON of log4j 2": lambda time, message, logger: json.dumps(
        {
            "instant": {"epochSecond": 1795226400, "nanoOfSecond": int(time[-4:-1]) * 1_000_000},
            "level": "INFO",
            "loggerName": logger,
            "message": message,
        }
    ),
    "slashes": lambda *of: in_kafkas(*of).replace("-", "/", 2),
    "Docker": lambda *of: json.dumps({"log": in_kafkas(*of) + "\n", "stream": "stdout"}),
    "Docker with JSON": lambda *of: json.dumps({"log": in_json(*of) + "\n", "stream": "stdout", "time": of[0]}),
    "Kubernetes": lambda time, message, logger: (
        f"2026-11-21T12:00:01.123456789Z stdout F {time} INFO {message} ({logger})"
    ),
    "kubectl logs --timestamps": lambda *of: f"2026-11-21T12:00:01.123456789Z {in_kafkas(*of)}",
    "the same, with JSON": lambda *of: f"2026-11-21T12:00:01.123456789Z {in_json(*of)}",
    "journalctl": lambda *of: f"Nov 21 12:00:01 host-1 kafka-server-start.sh[1201]: {in_kafkas(*of)}",
    "kubectl logs --prefix": lambda *of: f"[pod/kafka-1/kafka] {in_kafkas(*of)}",
    "kubectl logs --prefix --timestamps": lambda *of: f"[pod/kafka-1/kafka] {of[0]} {in_kafkas(*of)}",
    "journalctl -o json": lambda *of: json.dumps({"_HOSTNAME": "host-1", "MESSAGE": in_kafkas(*of), "_PID": "12"}),
    "journalctl -o short-iso": lambda *of: f"2026-11-21T12:00:01+0000 host-1 kafka[1201]: {in_kafkas(*of)}",
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_behind_good_lines", [False, True])
def test_lines_of_other_layouts_are_lines(tmp_path: Path, layout: str, is_behind_good_lines: bool) -> None:
    """Behind a line of Kafka's layout each was swallowed as its continuation; alone it was no log at all."""
    good = [entry(ms, 1, f"line {ms}").text for ms in range(100)]
    others = []
    for line in good[50 if is_behind_good_lines else 0 :]:
        match = re.fullmatch(r"\[(\S+) (\S+),(\d{3})\] (\w+) (.*?)(?: \(([\w.]+)\))?", line)
        assert match is not None, line
        others.append(LAYOUTS[layout](f"{match[1]}T{match[2]}.{match[3]}Z", match[5], match[6]))
    lines = [*good[: len(good) - len(others)], *others]
    plan = plan_of(write_log(tmp_path / "broker-1" / "state-change.log", lines))
    assert [line for _, line in merged_lines(plan)] == good
    assert plan.problems == []


def test_a_line_with_a_time_in_an_unknown_layout_is_counted(tmp_path: Path) -> None:
    odd = ["2026-11-21T12:00:00.050Z state.change.logger: no level", '{"ts": "soon", "msg": "x"}', '{"broken']
    plan = plan_of(write_log(tmp_path / "broker-1" / "state-change.log", [*GOOD, *odd]))
    assert len(merged_lines(plan)) == len(GOOD) + len(odd)
    assert [(problem.kind, problem.count) for problem in plan.problems] == [(ProblemKind.UNPARSED, 1)]


def test_a_line_whose_time_cannot_be_read_is_counted_too(tmp_path: Path) -> None:
    """It was swallowed as the continuation of the line before; a stack trace is one."""
    trace = ["java.lang.IllegalStateException: at 12:00:00 it was too late", "\tat kafka.Kafka.main(Kafka.scala:7)"]
    odd = ["12:00:00,050 INFO [Broker id=1] x", "21.11.2026 12:00:00 [main] WARN [Broker id=1] y"]
    plan = plan_of(write_log(tmp_path / "broker-1" / "state-change.log", [*GOOD, *trace, *odd]))
    assert len(merged_lines(plan)) == len(GOOD) + len(trace) + len(odd)
    assert [(problem.kind, problem.count) for problem in plan.problems] == [(ProblemKind.OTHER_LAYOUT, 2)]


def test_what_a_program_in_a_journal_goes_on_to_say_belongs_to_its_line(tmp_path: Path) -> None:
    wrapper = "Nov 21 12:00:01 host-1 kafka[1201]: "
    lines = [wrapper + line for line in (GOOD[0], "\tat kafka.Kafka.main(Kafka.scala:7)", GOOD[1])]
    plan = plan_of(write_log(tmp_path / "broker-1" / "state-change.log", lines))
    assert [line for _, line in merged_lines(plan)] == [GOOD[0], "\tat kafka.Kafka.main(Kafka.scala:7)", GOOD[1]]
    assert plan.problems == []
