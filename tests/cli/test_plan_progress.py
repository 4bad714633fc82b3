"""Progress of a plan: a line for a person, paced lines in a pipe, a line of data for a program."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from klamm_program import in_process
from plan_files import plan_of

from cli.commands.plan.apply import _ended_early, _what_it_means
from cli.commands.plan.shared import load_plan
from cli.commands.reassignment.run import _how_to_go_on
from cli.framework.invocation import Invocation, TargetOptions
from cli.framework.talk import Talk
from cli.output.format import OutputFormat
from cli.output.report import Advice, Fields
from cli.views import plan_execution
from cli.views.plan_execution import ExecutionView, plan_status_report, progress_line, waves_report, waves_result_report
from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.journal import JournalRecord, open_journal
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.moves import PartitionStatus, ReassignmentState
from engine.admin.reassignment.plan_runs import PlanRun, Verb, is_led_back, what_is_left
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.wave_progress import Outcome, Step, WaveProgress, WavesResult
from engine.admin.reassignment.wave_standings import AS_BEFORE
from engine.admin.reassignment.waves import Standing, WaveCaps, WaveMove, standing_of, turned_round
from engine.common.model import BrokerInfo, ReplicaAssignment, TopicPartition
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, SnapshotSource, TopicSnapshot
from engine.common.snapshot_json import snapshot_to_json
from plans.digest import plan_digest
from plans.plan_file import encode_plan
from tui.operations.plan_commands import running_words

HALF = WaveProgress(2, 3, 4, 9, 2048, 4096, 1024.0, 1.0, 119.0, 5000)


def view_of(output: OutputFormat) -> tuple[Invocation, ExecutionView]:
    invocation = Invocation(output, Talk(is_json=output.is_json))
    return invocation, ExecutionView(invocation, "klamm plan resume p.json")


def show_at(monkeypatch: pytest.MonkeyPatch, view: ExecutionView, moments: Sequence[float]) -> None:
    clock = iter(moments)
    monkeypatch.setattr(plan_execution, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    for _ in moments:
        view.show(HALF)


@pytest.mark.parametrize(
    ("left", "told"),
    [
        ((1.0, 119.0), "1.0 kB/s, 2s to 2m left"),
        ((1.0, 1.5), "1.0 kB/s, 2s left"),
        ((1.0, None), "1.0 kB/s, at least 2s left"),
        ((None, None), "1.0 kB/s"),
    ],
)
def test_the_line_tells_bytes_rate_and_a_range_of_time(left: tuple[float | None, float | None], told: str) -> None:
    progress = WaveProgress(2, 3, 4, 9, 2048, 4096, 1024.0, *left, 5000)
    assert progress_line(progress) == f"wave 2 of 3, 4/9 partitions, 2.0 kB of 4.1 kB [########--------]  50% {told}"


def test_copies_that_stand_still_have_no_time_left() -> None:
    progress = WaveProgress(1, 1, 4, 12, 273, 290, 0.4, 2.0, None, 5000)
    assert progress_line(progress).endswith("94% 0 B/s")


@pytest.mark.parametrize(
    ("room", "told"),
    [
        (None, "wave 2 of 6, 40/59 partitions, 160 MB of 500 MB [#####-----------]  32% {0}"),
        (97, "wave 2 of 6, 40/59 partitions, 160 MB of 500 MB [#####-----------]  32% {0}"),
        (96, "wave 2 of 6, 40/59 partitions, 160 MB of 500 MB [####-----------]  32% {0}"),
        (85, "wave 2 of 6, 40/59 partitions, 160 MB of 500 MB [#---]  32% {0}"),
        (84, "wave 2 of 6, 40/59 partitions, 160 MB of 500 MB  32% {0}"),
        (76, "wave 2/6, 40/59, 160 MB of 500 MB  32% {0}"),
        (59, "wave 2/6, 40/59,  32% {0}"),
        (20, "wave 2/6, 40/59,  32% {0}"),
    ],
)
def test_a_narrow_terminal_still_shows_rate_and_time_left(room: int | None, told: str) -> None:
    progress = WaveProgress(2, 6, 40, 59, 160_000_000, 500_000_000, 100_000.0, 1199.0, 1499.0, 100_000)
    line = progress_line(progress, room)
    assert line == told.format("100 kB/s, 20m to 25m left")
    assert room is None or len(line) <= max(room, 49)


def test_on_a_terminal_of_80_columns_the_line_ends_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    _, view = view_of(OutputFormat.TABLE)
    view.show(WaveProgress(10, 12, 540, 590, 160_000_000, 500_000_000, 100_000.0, 1199.0, 1499.0, 100_000))
    (line,) = terminal.getvalue().splitlines()
    assert line.endswith("100 kB/s, 20m to 25m left") and len(line) < 80


def test_unknown_sizes_are_told() -> None:
    unknown = WaveProgress(1, 1, 0, 2, None, None, 0.0, None, None, None)
    assert progress_line(unknown) == "wave 1 of 1, 0/2 partitions, sizes are not known"


def test_partitions_without_records_are_not_done_before_they_have_arrived() -> None:
    """They wait for brokers that are dead, too."""
    line = progress_line(WaveProgress(1, 1, 1, 4, 0, 0, 0.0, None, None, None))
    assert line == "wave 1 of 1, 1/4 partitions, 0 B of 0 B [####------------]  25% 0 B/s"
    some = progress_line(WaveProgress(1, 1, 1, 4, 1_000, 1_000, 0.0, None, None, None))
    assert some == "wave 1 of 1, 1/4 partitions, 1.0 kB of 1.0 kB [###############-]  99% 0 B/s"


def test_in_a_pipe_there_is_a_line_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, view = view_of(OutputFormat.PLAIN)
    show_at(monkeypatch, view, (100.0, 101.0, 104.9, 105.0, 107.0, 110.1))
    said = capsys.readouterr()
    assert (said.out, said.err.count("wave 2 of 3")) == ("", 3)


def test_as_json_lines_events_are_data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, view = view_of(OutputFormat.JSONL)
    view.step(Step.LOCKED, 0)
    show_at(monkeypatch, view, (100.0, 100.5, 101.0))
    said = capsys.readouterr()
    events = [json.loads(line) for line in said.out.splitlines()]
    assert events[0] == {"event": "locked", "wave": None}
    assert [event["event"] for event in events[1:]] == ["progress", "progress"]
    assert (events[1]["left_min_ms"], events[1]["left_max_ms"], events[1]["moved_bytes"]) == (1000, 119_000, 2048)
    assert said.err == ""


def test_on_a_terminal_the_line_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    _, view = view_of(OutputFormat.TABLE)
    view.show(HALF)
    view.show(HALF)
    view.end()
    assert terminal.getvalue().count("\n") == terminal.getvalue().count("\x1b[1A") == 2


def test_an_interrupt_says_what_is_under_way_now() -> None:
    invocation, view = view_of(OutputFormat.PLAIN)
    view.step(Step.STARTED, 2)
    assert invocation.left_running == ["wave 2 is under way in the cluster; go on with: klamm plan resume p.json"]
    view.step(Step.WAVE_DONE, 2)
    assert invocation.left_running == ["nothing is under way; go on with: klamm plan resume p.json"]


@pytest.mark.parametrize(
    ("named", "options"),
    [
        ({"cluster": "prod"}, " --cluster prod"),
        ({"bootstrap_server": "h:9092", "command_config": "a b"}, " --bootstrap-server h:9092 --command-config 'a b'"),
        ({"zookeeper": "zk:2181/k", "via": "wire"}, " --zookeeper zk:2181/k --via wire"),
        ({"snapshot": "s.json"}, ""),
        ({}, ""),
    ],
)
def test_commands_to_paste_name_the_cluster(named: dict[str, str], options: str) -> None:
    """Without its options they would ask another cluster; a snapshot cannot be changed."""
    invocation, _ = view_of(OutputFormat.PLAIN)
    invocation.target_options = TargetOptions(**named)
    invocation.accepted("nothing is said of a command")
    invocation.accepted("follow it: klamm reassign list")
    assert invocation.left_running == ["nothing is said of a command", f"follow it: klamm reassign list{options}"]
    assert invocation.pasteable(invocation.left_running[1]) == invocation.left_running[1]
    throttled = _how_to_go_on(invocation, Path("p.json"), is_throttled=True)
    assert "goes on under the throttle" in throttled
    verb = "--reassignment-json-file p.json"
    assert f"klamm reassign verify {verb} --wait{options}; " in throttled
    assert throttled.endswith(f"klamm reassign cancel {verb}{options}")
    piped = _how_to_go_on(invocation, Path("-"), is_throttled=False)
    assert piped == "follow it: klamm reassign verify --reassignment-json-file FILE"


def result(outcome: Outcome, done: int, reason: str | None = None, wave: int = 1) -> WavesResult:
    return WavesResult(outcome, reason, wave, 2, done, (TopicPartition("t", 0),), 3)


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (lambda: result(Outcome.DONE, 3), 0),
        (lambda: result(Outcome.DONE, 2), 1),
        (lambda: result(Outcome.STOPPED, 1, "a gate"), 1),
        (lambda: result(Outcome.DEADLINE, 1, "late"), 5),
    ],
)
def test_the_code_tells_how_it_ended(ended: Callable[[], WavesResult], code: int) -> None:
    report = waves_result_report(ended(), "klamm plan resume p.json", "p.json.journal")
    assert report.exit_code == code
    assert ("go on with: klamm plan resume p.json" in report.notes) is (code != 0)


def test_nothing_goes_on_for_partitions_that_no_longer_exist() -> None:
    for gone, progress in ((1, "2 of 3 partitions are where the plan wants them; 1 no longer exists"), (0, "2 of 3 ")):
        report = waves_result_report(replace(result(Outcome.DONE, 2), gone=gone), "klamm plan resume p.json", "j")
        assert isinstance(report.data, dict)
        assert (report.exit_code, report.notes[0].startswith(progress)) == (1, True)
        assert (report.data["goes_on"] is None, "go on with: klamm plan resume p.json" in report.notes) == (
            gone,
            not gone,
        )
    moves = {move.name: Standing.WAITING for move in MOVES} | {MOVES[0].name: Standing.GONE}
    assert what_is_left([MOVES], moves) == (MOVES[1:],)


@pytest.mark.parametrize(("wave", "where"), [(0, "before the first wave"), (1, "at wave 1 of 2")])
def test_a_stop_says_where(wave: int, where: str) -> None:
    report = waves_result_report(result(Outcome.STOPPED, 0, "a gate", wave), "klamm plan resume p.json", "j")
    assert f"stopped {where}: a gate" in report.notes


PLAN = Path("folder/p.json")
MOVES = tuple(WaveMove(PartitionMove(TopicPartition("t", number), (0, 2)), (0, 1)) for number in range(3))
Standings = dict[TopicPartition, Standing]


def both_ways(*found: ReplicaAssignment) -> tuple[Standings, Standings]:
    """Return the progress of a plan's partitions on the way there, and on the way back."""
    ways = (MOVES, turned_round(MOVES))
    forward, back = (
        {
            move.name: standing_of(move, PartitionSnapshot(move.name.partition, assigned))
            for move, assigned in zip(way, found, strict=True)
        }
        for way in ways
    )
    return forward, back


THERE, HERE = ReplicaAssignment((0, 2)), ReplicaAssignment((0, 1))
COMES_BACK, GOES = ReplicaAssignment((0, 1, 2), (1,), (2,)), ReplicaAssignment((0, 2, 1), (2,), (1,))


def record_of(*events: Mapping[str, Any]) -> JournalRecord:
    return JournalRecord(tuple({"time": "2026-01-01T00:00:00.000Z", **event} for event in events))


def test_the_status_of_a_rollback_is_told_in_its_own_direction() -> None:
    forward, back = both_ways(HERE, COMES_BACK, THERE)
    assert is_led_back(PLAN, forward, back, None, None)
    report = plan_status_report(back, None, None, is_back=True)
    assert report.sections[0].text == ("rollback: 1 of 3 done, 1 moving, 1 waiting",)
    assert isinstance(report.data, dict)
    assert (report.data["direction"], report.data["under_way"]) == ("rollback", ["t-1"])


@pytest.mark.parametrize(
    ("found", "held_for", "events", "is_back"),
    [
        ((THERE, GOES, HERE), None, (), False),
        ((THERE, GOES, COMES_BACK), "rollback p.json", (), True),
        ((THERE, THERE, COMES_BACK), "resume p.json", (), False),
        ((THERE, GOES, HERE), "rollback other.json", (), False),
        ((THERE, HERE, HERE), None, ("rollback p.json", "wave", "stopped"), True),
        ((THERE, HERE, HERE), None, ("apply p.json", "wave", "stopped"), False),
        ((HERE, HERE, HERE), None, ("rollback p.json", "wave", "done"), False),
        ((THERE, GOES, HERE), None, ("rollback p.json", "wave", "stopped"), False),
    ],
)
def test_the_lock_then_the_cluster_then_the_journal_tells_the_direction(
    found: tuple[ReplicaAssignment, ...], held_for: str | None, events: tuple[str, ...], is_back: bool
) -> None:
    holder = None if held_for is None else Holder("bo@here", "2026-01-01T00:00:00Z", held_for)
    begun = [{"event": "begun", "what": event} if event.endswith(".json") else {"event": event} for event in events]
    assert is_led_back(PLAN, *both_ways(*found), holder, record_of(*begun) if begun else None) is is_back


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (({"event": "begun", "what": "apply p.json"}, {"event": "wave", "wave": 1}), "resume"),
        (
            ({"event": "begun", "what": "rollback p.json"}, {"event": "wave", "wave": 1}, {"event": "stopped"}),
            "rollback",
        ),
    ],
)
def test_of_a_run_that_ended_early_it_is_told_ended_early(events: Sequence[Mapping[str, Any]], told: str) -> None:
    status = PartitionStatus("t", 0, ReassignmentState.FAILED, (0, 1), (0, 2))
    (line,) = _ended_early([status], record_of(*events), "p.json")
    assert line == f"the last run of the plan ended early; to go on: klamm plan {told} p.json"
    assert isinstance(line, Advice), "it gets the options that name the cluster"
    assert _ended_early([replace(status, state=ReassignmentState.COMPLETE)], record_of(*events), "p.json") == []


@pytest.mark.parametrize(
    ("states", "is_begun", "told"),
    [
        ("not_begun not_begun", False, ["the plan has not begun; to begin it: klamm plan apply p.json"]),
        ("not_begun not_begun", True, []),
        ("complete not_begun", True, []),
        (
            "complete not_begun",
            False,
            [
                "a part of the plan is carried out: of 2 partitions, 1 where it was before; "
                "to go on: klamm plan resume p.json"
            ],
        ),
        ("not_found not_begun", False, []),
        ("complete rolled_back", True, []),
        ("rolled_back rolled_back", False, ["the plan was rolled back: every partition is where it was before"]),
        ("failed not_begun", True, ["the plan is not carried out: of 2 partitions, 1 where it was before"]),
        ("failed in_progress", True, []),
    ],
)
def test_what_the_states_mean_for_the_whole_plan(states: str, is_begun: bool, told: list[str]) -> None:
    statuses = [
        PartitionStatus("t", index, ReassignmentState(state), (0, 1), (0, 2), reason=AS_BEFORE)
        for index, state in enumerate(states.split())
    ]
    notes = _what_it_means(statuses, "p.json", is_begun=is_begun)
    assert notes == told
    assert [isinstance(note, Advice) for note in notes] == ["klamm" in note for note in notes]


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"event": "journal", "format": 1, "plan": "sha256:1"}, "the journal was started"),
        (
            {"event": "begun", "what": "apply p.json", "who": "bo@here", "waves": 1, "rollback": None},
            "apply p.json was started by bo@here: 1 wave",
        ),
        ({"event": "wave", "wave": 2, "of": 6, "partitions": ["t-0"]}, "wave 2 of 6 has started: 1 partition"),
        (
            {"event": "throttle", "rate": 100_000, "topics": ["fat", "orders"], "brokers": [1, 2]},
            "a throttle of 100 kB/s was set on topics fat, orders and brokers 1, 2",
        ),
        ({"event": "asked", "throttle": 51200}, "another operator asked for a throttle of 51.2 kB/s"),
        ({"event": "moving", "wave": 2}, "the cluster has begun to move the partitions of wave 2"),
        ({"event": "wave_done", "wave": 6}, "wave 6 is done"),
        ({"event": "election", "partitions": ["t-0", "t-1"]}, "the election of 2 preferred leaders has started"),
        ({"event": "done", "reason": None, "wave": 6, "throttles_left": []}, "all is done"),
        (
            {"event": "stopped", "reason": "a gate", "wave": 2, "throttles_left": ["a throttle stays"]},
            "stopped in wave 2: a gate; a throttle stays",
        ),
        ({"event": "of a later klamm", "rows": [1]}, "of a later klamm"),
    ],
)
def test_the_journal_is_told_in_words(event: Mapping[str, Any], told: str) -> None:
    report = plan_status_report(both_ways(THERE, THERE, THERE)[0], None, record_of(event))
    fields = report.sections[0].body
    assert isinstance(fields, Fields)
    assert dict(fields.pairs)["journal"] == f"2026-01-01T00:00:00.000Z {told}"
    assert report.sections[0].text == ("plan: 3 of 3 done",)


@pytest.mark.parametrize(
    ("verb", "default"), [("apply", "none"), ("resume", "none"), ("rollback", "none"), ("verify", "30")]
)
def test_help_tells_whether_there_is_a_deadline(verb: str, default: str, capsys: pytest.CaptureFixture[str]) -> None:
    help_text = in_process("plan", verb, "--help", capture=capsys).out
    (line,) = [line for line in help_text.splitlines() if line.lstrip().startswith("--timeout SECONDS")]
    assert line.endswith(f"[default: {default}]")


def cluster_with(there: int, cluster_id: str = "c") -> ClusterSnapshot:
    """A cluster in which so many of the three partitions are where the plan wants them."""
    replicas = ((0, 2) if number < there else (0, 1) for number in range(3))
    partitions = tuple(
        PartitionSnapshot(number, ReplicaAssignment(replica), 0, replica) for number, replica in enumerate(replicas)
    )
    brokers = tuple(BrokerInfo(broker, (), None) for broker in range(3))
    topics = (TopicSnapshot("t", partitions, b"1" * 16),)
    return ClusterSnapshot(brokers, topics, SnapshotSource.ZOOKEEPER, 1, cluster_id)


def plan_and_snapshot(
    folder: Path, there: int, cluster_id: str = "c", throttle: int | None = None
) -> tuple[Path, Path]:
    """Write the plan that was made when nothing was there yet, and a snapshot of the cluster now."""
    plan, snapshot = folder / "plan.json", folder / "snapshot.json"
    moved = plan_of(cluster_with(0), {move.name: (0, 2) for move in MOVES}, throttle=throttle)
    plan.write_text(encode_plan(moved))
    snapshot.write_text(snapshot_to_json(cluster_with(there, cluster_id)))
    return plan, snapshot


@pytest.mark.parametrize(
    ("there", "verb", "told"),
    [
        (2, "resume", "1 partition (1 replica to copy) in 1 wave, without a throttle, 2 of 3 done already"),
        (2, "rollback", "2 partitions (2 replicas to copy) in 2 waves, without a throttle, 1 of 3 done already"),
        (0, "resume", "3 partitions (3 replicas to copy) in 3 waves, without a throttle"),
        (0, "apply", "3 partitions (3 replicas to copy) in 3 waves, without a throttle"),
        (3, "resume", "0 partitions (0 replicas to copy) in 0 waves, 3 of 3 done already"),
    ],
)
def test_what_is_left_is_asked_for(
    there: int, verb: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, snapshot = plan_and_snapshot(tmp_path, there)
    words = ("plan", verb, plan, "--dry-run", "--snapshot", snapshot, "--wave-replicas", "1")
    ran = in_process(*words, capture=capsys)
    spelled = "roll back" if verb == "rollback" else verb
    assert (ran.code, ran.err) == (0, f"dry run: would {spelled} plan.json in {snapshot.name}: {told}\n")


APPLIED = ({"event": "begun", "what": "apply plan.json"}, {"event": "wave", "wave": 1})
ONE_DONE = (*APPLIED, {"event": "wave_done", "wave": 1})
MOVING = {"event": "moving", "wave": 1}
LED_BACK = (
    {"event": "begun", "what": "rollback plan.json"}, MOVING, {"event": "wave_done", "wave": 1}, {"event": "done"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("there", "verb", "events", "asks"),
    [
        (0, "resume", ONE_DONE, True),
        (0, "resume", (*ONE_DONE, *LED_BACK), True),
        (0, "resume", (*ONE_DONE, *APPLIED), True),
        (0, "resume", APPLIED, False),
        (0, "resume", (*APPLIED, MOVING), True),
        (1, "resume", (*APPLIED, MOVING), False),
        (0, "resume", (*ONE_DONE, *LED_BACK, *APPLIED), False),
        (0, "resume", (*ONE_DONE, *LED_BACK, *APPLIED, MOVING), True),
        (1, "resume", ONE_DONE, False),
        (3, "resume", ONE_DONE, False),
        (0, "rollback", ONE_DONE, False),
    ],
)
def test_a_plan_that_seems_rolled_back_is_not_resumed_unasked(
    there: int,
    verb: str,
    events: Sequence[Mapping[str, Any]],
    asks: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, snapshot = plan_and_snapshot(tmp_path, there)
    first = {"event": "journal", "format": 1, "plan": load_plan(plan).digest}
    journal = "".join(f"{json.dumps(event)}\n" for event in (first, *events))
    plan.with_name("plan.json.journal").write_text(journal)
    asked: list[bool] = []

    def confirm(_: Invocation, change: str, *, is_destructive: bool = False) -> bool:
        asked.append(is_destructive)
        return False

    monkeypatch.setattr(Invocation, "confirm", confirm)
    ran = in_process("plan", verb, plan, "--dry-run", "--snapshot", snapshot, capture=capsys)
    assert (ran.code, asked) == (0, [asks]), ran.err
    said = "warning: the plan seems to have been rolled back: its journal tells of moves, but"
    assert (said in ran.err) is asks


def test_a_plan_of_another_cluster_is_not_taken_for_carried_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, snapshot = plan_and_snapshot(tmp_path, there=3, cluster_id="another")
    ran = in_process("plan", "apply", plan, "--dry-run", "--snapshot", snapshot, capture=capsys)
    assert (ran.code, "hint: name the cluster that the plan was made for" in ran.err) == (1, True), ran.err


@pytest.mark.parametrize(
    ("verb", "last", "given", "told"),
    [
        ("resume", 4_000_000, (), "at 4.0 MB/s a broker"),
        ("rollback", 4_000_000, (), "at 4.0 MB/s a broker"),
        ("rollback", 4_000_000, ("--throttle", "9M"), "at 9.0 MB/s a broker"),
        ("resume", 4_000_000, ("--throttle", "0"), "without a throttle"),
        ("resume", 0, (), "without a throttle"),
        ("apply", 4_000_000, (), "at 7.0 MB/s a broker"),
    ],
)
def test_who_goes_on_keeps_the_throttle_of_the_last_run(
    verb: str, last: int, given: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, snapshot = plan_and_snapshot(tmp_path, there=0 if verb == "apply" else 1, throttle=7_000_000)
    journal = open_journal(plan.with_name("plan.json.journal"), plan_digest(plan.read_text()))
    journal.write("begun", what="apply plan.json", throttle=9_000_000)
    journal.write("asked", throttle=last)
    journal.close()
    ran = in_process("plan", verb, plan, "--dry-run", "--snapshot", snapshot, *given, capture=capsys)
    assert (ran.code, f", {told}" in ran.err) == (0, True), ran.err


def test_the_words_of_a_run_repeat_every_option_that_is_not_the_usual_one() -> None:
    caps = WaveCaps(3, 10**9)
    limits = ThrottleRange.of(50_000_000, 10_000_000, 80_000_000, 0.08)
    run = PlanRun(Verb.APPLY, Path("p.json"), "d", (), limits, caps, 120.0, 20.0, False, Path("j"))
    assert " ".join(running_words(run, run.goes_on_with)) == (
        "plan resume p.json --throttle 50000000 --throttle-floor 10000000 --throttle-ceiling 80000000 "
        "--throttle-p99 80ms --wave-replicas 3 --wave-bytes 1000000000 --stall 120s --lock-timeout 20s --journal j "
        "--no-elect"
    )
    assert running_words(PlanRun(Verb.APPLY, Path("p.json"), "d", ())) == ["plan", "apply", "p.json"]


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ({"event": "done", "throttles_left": []}, "rollback p.json is done"),
        ({"event": "stopped", "wave": 2, "reason": "a gate", "throttles_left": []},
         "rollback p.json stopped in wave 2: a gate"),
    ],
)  # fmt: skip
def test_the_journal_tells_which_run_has_ended(end: Mapping[str, Any], told: str) -> None:
    runs = [{"event": "begun", "what": f"{verb} p.json"} for verb in ("apply", "rollback")]
    report = plan_status_report(both_ways(HERE, HERE, HERE)[0], None, record_of(*runs, end))
    fields = report.sections[0].body
    assert isinstance(fields, Fields)
    assert dict(fields.pairs)["journal"].endswith(f"Z {told}")


def test_a_dry_run_names_the_log_dirs_that_replicas_leave_and_go_to() -> None:
    name = TopicPartition("t", 0)
    inside = WaveMove(PartitionMove(name, (1, 2), ("/b", "any")), (1, 2), 10, dirs_before=("/a", "any"))
    report = waves_report([(inside,), MOVES[:1]])
    assert [column.name for column in report.table.columns][-1] == "log_dirs"
    assert [row[-1] for row in report.table.rows] == [("1: /a → /b",), ()]
    assert [column.name for column in waves_report([MOVES]).table.columns][-1] == "bytes"
