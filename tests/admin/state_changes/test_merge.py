"""Merging: nothing is lost, added or changed, and the order is by time, broker and log."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_change_logs import IN_UTC, Entry, entry, merged_lines, merged_rows, merged_text, plan_of, start, write_log

from engine.admin.state_changes import entry_reader, merge
from engine.admin.state_changes.log_input import ProblemKind
from engine.admin.state_changes.merge import MergeWish

RECORDED = Path(__file__).parents[3] / "fixtures" / "state-changes"

MESSAGES = (
    "Leader t-0 with topic id None starts at leader epoch 1",
    "Follower orders.eu-12 starts at leader epoch 1",
    "Add 3 partitions and deleted 0 partitions from metadata cache",
    "Cached leader info X(topicName='t', partitionIndex=0, isr=[0, 1]) for partition t-0 in response to",
    "Handling LeaderAndIsr request correlationId 7 from controller 1 for 3 partitions",
)
TRACES = (
    (),
    (),
    (),
    (),
    ("java.io.IOException: full", "\tat kafka.X(X.scala:1)"),
    ("[0, 1] is how it goes on",),
    ("",),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Entries of some brokers in the order in which a merge must give them."""
    ms = 0
    entries: list[Entry] = []
    for number in range(draw(st.integers(1, 40))):
        ms += draw(st.sampled_from([0, 0, 0, 1, 1, 7, 3_600_000]))
        message = f"{draw(st.sampled_from(MESSAGES))} #{number}"
        entries.append(entry(ms, draw(st.integers(0, 3)), message, draw(st.sampled_from(TRACES))))
    return sorted(entries, key=lambda event: (event.ms, event.broker))


@st.composite
def files(draw: st.DrawFn, history: list[Entry]) -> list[tuple[str, list[str], bool]]:
    """Each broker's log, cut into rolled files anywhere, but gzipped only where an entry ends."""
    paths = []
    for broker in sorted({log.broker for log in history}):
        own = [log for log in history if log.broker == broker]
        lines = [line for log in own for line in log.lines]
        ends = {sum(len(log.lines) for log in own[:count]) for count in range(len(own) + 1)}
        starts = [number for number, line in enumerate(lines) if line.startswith("[2026")]
        drawn = sorted({0, *draw(st.lists(st.integers(0, starts[-1]), max_size=4))})
        # A file without any time is not a log, so each piece has one.
        cuts = [low for low, high in itertools.pairwise([*drawn, len(lines)]) if any(low <= at < high for at in starts)]
        cuts.append(len(lines))
        for number, (low, high) in enumerate(itertools.pairwise(cuts)):
            is_gzip = low in ends and high in ends and draw(st.booleans())
            name = f"broker-{broker}/state-change.log" + ("" if high == len(lines) else f".2026-11-21-{number:02d}")
            # A piece after a gzip cannot continue its last entry; Kafka rolls between entries.
            if paths and paths[-1][2] and low not in ends:
                return draw(files(history))
            paths.append((name + (".gz" if is_gzip else ""), lines[low:high], is_gzip))
    return paths


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_logs_cut_anywhere_merge_to_what_they_were(data: st.DataObject) -> None:
    history = data.draw(histories())
    expected = [(f"broker-{log.broker}", line) for log in history for line in log.lines]
    cut = data.draw(files(history))
    chunk_bytes, block_bytes = data.draw(st.integers(30, 400)), data.draw(st.integers(1, 2000))
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(merge, "_CHUNK_BYTES", chunk_bytes),
        mock.patch.object(entry_reader, "_BLOCK_BYTES", block_bytes),
    ):
        for name, lines, is_gzip in cut:
            write_log(Path(folder) / name, lines, is_gzip=is_gzip)
        plan = plan_of(Path(folder))
        assert merged_lines(plan) == expected
        assert not [problem for problem in plan.problems if problem.kind.loses_lines]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_logs_out_of_order_lose_nothing(data: st.DataObject) -> None:
    history = data.draw(histories())
    shuffled = data.draw(st.permutations(history))
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(merge, "_CHUNK_BYTES", data.draw(st.integers(30, 2000))),
        mock.patch.object(entry_reader, "_BLOCK_BYTES", data.draw(st.integers(1, 5000))),
    ):
        for broker in {log.broker for log in shuffled}:
            lines = [line for log in shuffled if log.broker == broker for line in log.lines]
            write_log(Path(folder) / f"broker-{broker}" / "state-change.log", lines)
        plan = plan_of(Path(folder))
        merged = merged_lines(plan)
        assert Counter(merged) == Counter((f"broker-{log.broker}", line) for log in history for line in log.lines)
        if not any(problem.kind is ProblemKind.LATE for problem in plan.problems):
            times = [line[:25] for _, line in merged if line.startswith("[2026")]
            assert times == sorted(times)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_filters_give_what_the_rows_say(data: st.DataObject) -> None:
    history = data.draw(histories())
    topics = data.draw(st.sampled_from([["t"], ["orders.eu"], ["t", "orders.eu"], ["absent"]]))
    brokers = data.draw(st.sampled_from([[], ["1"], ["0,2"]]))
    low, high = sorted([data.draw(st.integers(0, 2 * 3_600_000)), data.draw(st.integers(0, 40 * 3_600_000))])
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(merge, "_CHUNK_BYTES", data.draw(st.integers(30, 2000))),
    ):
        for broker in {log.broker for log in history}:
            lines = [line for log in history if log.broker == broker for line in log.lines]
            write_log(Path(folder) / f"broker-{broker}" / "state-change.log", lines)
        every = merged_rows(plan_of(Path(folder)))
        wish = MergeWish(start(low)[1:-1], start(high)[1:-1], topics, (), brokers, IN_UTC)
        rows = merged_rows(plan_of(Path(folder), wish=wish))
    ids = {int(broker) for text in brokers for broker in text.split(",")}
    assert rows == [
        row
        for row in every
        if row.topic in topics
        and (not ids or row.broker in ids)
        and row.utc_start is not None
        and start(low).encode() <= row.utc_start <= start(high).encode()
    ]


def test_the_same_millisecond_goes_by_broker_and_then_by_log(tmp_path: Path) -> None:
    for broker in (10, 2):
        lines = [entry(5, broker, f"line {number}").text for number in range(3)]
        write_log(tmp_path / f"broker-{broker}" / "state-change.log", lines)
    merged = merged_lines(plan_of(tmp_path))
    assert [label for label, _ in merged] == ["broker-2"] * 3 + ["broker-10"] * 3
    assert [line.split("] ")[2][:6] for _, line in merged] == ["line 0", "line 1", "line 2"] * 2


def test_partitions_of_a_topic(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "a.log",
        [
            entry(0, 1, "Leader t-0 starts").text,
            entry(1, 1, "Leader t-1 starts").text,
            entry(2, 1, "Leader t-11 starts").text,
            entry(3, 1, "Leader at-1 starts").text,
            entry(4, 1, "Error", ["StateChangeFailedException: Failed to elect leader for partition t-1"]).text,
            entry(5, 1, "Mark replicas u-0,t-1 on broker 1 as offline").text,
        ],
    )
    wish = MergeWish(topics=["t"], partitions=["1,12"], zones=IN_UTC)
    lines = [line for _, line in merged_lines(plan_of(log, wish=wish)) if line.startswith("[")]
    assert [line[:25] for line in lines] == [start(1), start(4), start(5)]


def test_a_log_of_many_brokers_keeps_them_apart(tmp_path: Path) -> None:
    lines = [entry(ms, ms % 3, f"line {ms}").text for ms in range(9)]
    log = write_log(tmp_path / "all-brokers.log", lines)
    assert [label for label, _ in merged_lines(plan_of(log))] == [f"broker-{ms % 3}" for ms in range(9)]
    wish = MergeWish(brokers=["1"], zones=IN_UTC)
    assert [line for _, line in merged_lines(plan_of(log, wish=wish))] == lines[1::3]


def test_what_was_merged_can_be_merged_again(tmp_path: Path) -> None:
    once = merged_text(plan_of(RECORDED / "leaderless"))
    assert "\n\tat kafka.controller" not in once, "lines of a stack trace have their broker too"
    log = tmp_path / "merged.txt"
    log.write_text(once)
    assert merged_text(plan_of(log)) == once
    assert merged_rows(plan_of(log)) == [
        row._replace(source=str(log)) for row in merged_rows(plan_of(RECORDED / "leaderless"))
    ]


@pytest.mark.parametrize("scene", sorted(path.name for path in RECORDED.iterdir() if path.is_dir()))
def test_recorded_logs_keep_every_line(scene: str) -> None:
    plan = plan_of(RECORDED / scene)
    lines = merged_lines(plan)
    kept = Counter(line for _, line in lines)
    logs = list((RECORDED / scene).rglob("state-change.log"))
    assert kept == Counter(line for log in logs for line in log.read_text().splitlines()) != Counter()
    # A broker whose threads race for its log may write a line too late; klamm says so.
    assert {problem.kind for problem in plan.problems} <= {ProblemKind.REORDERED}
    rows = merged_rows(plan)
    assert rows
    assert [row.utc_start for row in rows] == sorted(row.utc_start or b"" for row in rows)
    assert {row.level for row in rows} <= {"TRACE", "INFO", "WARN", "ERROR"}
    assert all(row.broker == int(Path(row.source).parent.name.removeprefix("broker-")) for row in rows)


@pytest.mark.parametrize("name", ["host-3/state-change.log", "kafka-3.state-change.log", "broker3/state-change.log"])
def test_a_log_that_names_no_broker_is_known_by_its_path(tmp_path: Path, name: str) -> None:
    write_log(tmp_path / name, [f"{start(0)} INFO a sentence of nobody (state.change.logger)"])
    assert merged_lines(plan_of(tmp_path))[0][0] == "broker-3"


def test_nobody_knows_whose_it_is(tmp_path: Path) -> None:
    log = write_log(tmp_path / "x.log", [f"{start(0)} INFO a sentence of nobody (state.change.logger)"])
    assert merged_lines(plan_of(log))[0][0] == "broker-?"
    assert merged_rows(plan_of(log))[0].broker is None
