"""How a plan is shown: sentence, score card, heat, waves, runs and their past. Without Textual."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from event_loop import in_event_loop
from fake_cluster import FakeCluster
from plan_files import NOT_MEASURED

from engine.admin.cluster.errors import AdminError
from engine.admin.log_dirs.describing import with_logs
from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.journal import (
    NO_END,
    JournalRecord,
    open_journal,
    past_runs,
    read_journal,
    read_journals,
    unfinished_plans,
)
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.plan_runs import PlanRun, Verb
from engine.admin.reassignment.wave_progress import Outcome, Step, WaveProgress, WavesResult
from engine.admin.reassignment.waves import WaveCaps
from engine.common.model import TopicPartition
from plans.errors import BadOption
from plans.options import Aim, BrokerCapacity, Minimise, PlanOptions, Replacement, Strategy
from plans.plan_file import MadePlan
from plans.planning import make_plan
from plans.score import Bounds, Score
from tui.drawing.cells import Tone
from tui.drawing.lines import Line
from tui.drawing.units import size
from tui.operations import plans as plan_operations
from tui.operations.plan_commands import making_words, running_words
from tui.operations.plans import CancelPlan, history_outcome, run_asked_for
from tui.pages import plans
from tui.pages.page import View
from tui.planning.card import (
    Load,
    bar_lines,
    card_lines,
    detail_lines,
    progress_texts,
    run_lines,
    run_outcome,
    time_left,
)
from tui.planning.desk import command_after
from tui.planning.forms import ask_for_plan
from tui.planning.opened_plan import OpenedPlan, plan_made, read_plan_file
from tui.planning.plan_run import PlanRunState, RunState
from tui.screen.offers import Ask, PlanWish
from tui.state.board import Board
from tui.state.location import Location

SCORE = Score(16, None, 7, 0, 0, Bounds(14, None, 5), 0.142857, False, "highs", None, NOT_MEASURED, NOT_MEASURED)


def text_of(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def made(strategy: Strategy = Strategy.DECOMMISSION, options: PlanOptions | None = None) -> MadePlan:
    cluster = FakeCluster(4, {"clicks": 4, "orders": 6}, replication_factor=2)
    cluster.advance()
    frame = cluster.frame()
    assert frame.cluster is not None
    return make_plan(with_logs(frame.cluster, frame.logs), strategy, options or PlanOptions(brokers=(4,)))


@pytest.fixture(scope="module")
def plan() -> OpenedPlan:
    return plan_made(made())


def test_a_plan_has_sizes_waves_and_a_reason_for_each_partition(plan: OpenedPlan) -> None:
    assert plan.planned
    assert all(move.bytes for move in plan.planned)
    assert set(plan.wave_of) == {move.name for move in plan.moves}
    assert max(plan.wave_of.values()) == plan.wave_count
    name = plan.moves[0].name
    assert "  it leaves broker 4: that broker is emptied" in plan.explained(name)


def test_a_saved_plan_is_read_back_with_the_same_moves(plan: OpenedPlan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan.text)
    read = read_plan_file(path)
    assert (read.error, read.moves, read.digest) == (
        "", tuple(replace(move, size_bytes=None) for move in plan.moves), plan.digest,
    )  # fmt: skip
    name = plan.moves[0].name
    explained = read.explained(name)
    before, after = plan.moves[0].before, plan.moves[0].target
    assert explained[0] == f"{name}: {', '.join(map(str, before))} becomes {', '.join(map(str, after))}"
    assert any(text.startswith("  it leaves broker 4: it goes from ") for text in explained)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{", "not JSON"), ("[]", "not a JSON object"), ('{"klamm": {"format": 9}}', "format 1, not 9"), ("\xff", "")],
)
def test_a_file_that_is_no_plan_says_why(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode("latin-1"))
    read = read_plan_file(path)
    assert read.error
    assert expected in read.error
    absent = tmp_path / "absent.json"
    assert read_plan_file(absent).error == f"{absent} cannot be read: No such file or directory"


def test_the_brokers_that_change_most_are_shown_where_there_is_little_room() -> None:
    before = dict.fromkeys(range(20), 10)
    after = before | {7: 0, 13: 20}
    lines = bar_lines([Load("replicas", before, after)], list(before), 40, 3)
    assert text_of(lines).splitlines() == [
        "3 of 20   replicas",
        "0              10 ▇▇▇▇▇▇▇",
        "7         10 →  0 ░░░░░░░",
        "13        10 → 20 ▇▇▇▇▇▇▇▇▇▇▇▇▇▇",
    ]
    gained = [text for text, tone in lines[3] if tone is Tone.ACCENT]
    assert gained == ["20 ", "▇▇▇▇▇▇▇"], "what stays is quiet"


def test_a_broker_with_little_has_a_bar_and_an_empty_one_has_none() -> None:
    load = Load("bytes", {1: 1_000_000, 2: None}, {1: 1, 2: 0}, size)
    first, second = text_of(bar_lines([load], [1, 2], 60, 2)).splitlines()[1:]
    assert first.rstrip() == "1         1.0 MB → 1 B ▇░░░░░░░░░░░░░"
    assert second.rstrip() == "2              — → 0 B"
    assert "▇" not in text_of(bar_lines([load], [1], 28, 1)), "without room there are only figures"


def test_the_card_tells_before_and_after() -> None:
    worse = replace(SCORE, after=replace(NOT_MEASURED, rack_violations=3))
    row = next(line for line in card_lines(worse) if "rack violations" in line[0][0])
    assert (row[-1][0].strip(), row[-1][1].value) == ("3", "bad")


def test_the_details_hold_card_flows_largest_moves_and_waves(plan: OpenedPlan) -> None:
    for width in (50, 190):
        text = text_of(detail_lines(plan, width))
        for part in ("brokers that remain", "sends", "the largest moves", "waves of at most 10", "solver: "):
            assert part in text, part
    largest = text_of(detail_lines(plan, 50)).split("the largest moves")[1].split("waves of")[0].split("\n")
    assert len([line for line in largest if "→" in line]) == min(10, sum(move.copies > 0 for move in plan.planned))


def test_every_option_of_a_plan_is_in_the_command_that_makes_it() -> None:
    options = PlanOptions(
        brokers=(7, 8), aim=(Aim.REPLICAS, Aim.BYTES), topics=("a.*", "b"), exclude_topics=("c",), exclude_brokers=(3,),
        pins=("a-0",), minimise=Minimise.MOVES, tolerance_percent=10, max_moves=5, max_bytes=100, keep_dead=True,
        throttle=50, time_limit_s=2.5,
    )  # fmt: skip
    assert making_words(Strategy.DECOMMISSION, options, Path("p.json")) == [
        "plan", "decommission", "7,8", "--aim", "replicas,bytes", "--topic", "a.*", "--topic", "b", "--exclude-topic",
        "c", "--exclude-broker", "3", "--pin", "a-0", "--minimise", "moves", "--max-moves", "5", "--max-bytes", "100",
        "--throttle", "50", "--time-limit", "2.5", "--tolerance", "10", "--keep-dead", "--out", "p.json",
    ]  # fmt: skip
    assert making_words(Strategy.MOVE, PlanOptions(brokers=(1,))) == ["plan", "move", "--brokers", "1"]
    assert making_words(Strategy.FACTOR, PlanOptions(replication_factor=3)) == ["plan", "factor", "3"]
    assert making_words(Strategy.REPLACE, PlanOptions(replacements=(Replacement(7, 8),))) == ["plan", "replace", "7=8"]
    assert making_words(Strategy.LOG_DIRS, PlanOptions(brokers=(1, 2))) == [
        "plan", "log-dirs", "--broker", "1", "--broker", "2",
    ]  # fmt: skip


def values(ask: Ask, **given: str) -> dict[str, str]:
    return {field.name: field.value for field in ask.fields} | given


def test_each_strategy_has_a_form_that_makes_its_wish(tmp_path: Path) -> None:
    capacities = tmp_path / "c.toml"
    capacities.write_text('[brokers]\n4 = "2 TB"\n')
    arguments = {
        Strategy.DECOMMISSION: ("4", {"brokers": (4,)}),
        Strategy.REPLACE: ("1=4", {"replacements": (Replacement(1, 4),)}),
        Strategy.EXPAND: ("4,3", {"brokers": (3, 4)}),
        Strategy.FACTOR: ("3", {"replication_factor": 3}),
        Strategy.MOVE: ("1,2", {"brokers": (1, 2)}),
        Strategy.LOG_DIRS: ("", {}),
    }
    for strategy in Strategy:
        text, own = arguments.get(strategy, ("", {}))
        ask = ask_for_plan(strategy, tmp_path, text, "orders")
        assert ("argument" in values(ask)) == (strategy in arguments)
        given = {"max_bytes": "2k", "throttle": "1M", "exclude_brokers": "9", "tolerance": "10%", "time_limit": "1m"}
        given["dead"] = "keep"
        wish = ask.build(values(ask, capacity="c.toml", **given))
        options = PlanOptions(
            topics=("orders",), max_bytes=2000, throttle=1_000_000, exclude_brokers=(9,), tolerance_percent=10,
            time_limit_s=60, keep_dead=True, broker_capacities=(BrokerCapacity(4, 2 * 10**12),), **own,
        )  # fmt: skip
        assert wish == PlanWish(strategy, options, capacities)
        assert making_words(strategy, wish.options, capacity_file=wish.capacity_file)[-2:] == [
            "--capacity", str(capacities),
        ]  # fmt: skip
        assert making_words(strategy, wish.options) == [], "which file it was, a plan does not keep"
        assert ask.build(values(ask)).options.time_limit_s is None


@pytest.mark.parametrize(
    ("strategy", "given", "expected"),
    [
        (Strategy.DECOMMISSION, {"argument": "x"}, "brokers to empty: needs broker ids"),
        (Strategy.DECOMMISSION, {"argument": ""}, "at least one broker id"),
        (Strategy.REPLACE, {"argument": "7"}, "must be OLD=NEW"),
        (Strategy.FACTOR, {"argument": "0"}, "must be a number of at least 1"),
        (Strategy.REBALANCE, {"aim": "disk"}, "level what takes replicas, leaders, bytes"),
        (Strategy.REBALANCE, {"topics": "["}, "not a pattern of topics"),
        (Strategy.REBALANCE, {"max_moves": "many"}, "moves at most must be a whole number"),
        (Strategy.REBALANCE, {"max_bytes": "much"}, "not a size"),
        (Strategy.REBALANCE, {"minimise": "time"}, "fewest takes moves, bytes"),
        (Strategy.REBALANCE, {"tolerance": "-1"}, "the tolerance must be a percentage of at least 0"),
        (Strategy.REBALANCE, {"tolerance": "nan"}, "the tolerance must be a percentage of at least 0"),
        (Strategy.REBALANCE, {"time_limit": "soon"}, "time limit: "),
        (Strategy.REBALANCE, {"dead": "move"}, "dead brokers must be keep or empty"),
        (Strategy.REBALANCE, {"capacity": "absent.toml"}, "the capacities cannot be read"),
        (Strategy.REBALANCE, {"capacity": "bad.toml"}, "unknown key 'disks'"),
    ],
)
def test_a_bad_value_is_told_in_the_form(
    strategy: Strategy, given: dict[str, str], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text("[disks]\n")
    ask = ask_for_plan(strategy, tmp_path)
    with pytest.raises(AdminError, match=expected):
        ask.build(values(ask, **given))


FORM = {"throttle": "50M", "wave_replicas": "3", "wave_bytes": "1G", "stall": "2m"}


def test_the_form_of_a_run_makes_the_run_and_its_command(plan: OpenedPlan) -> None:
    run = run_asked_for(Verb.ROLLBACK, plan, Path("p.json"), FORM)
    assert (run.throttle, run.caps, run.stall_s) == (ThrottleRange.of(50_000_000), WaveCaps(3, 10**9), 120)
    assert {move.name: move.target for move in run.directed_moves} == {move.name: move.before for move in plan.moves}
    assert running_words(run) == [
        "plan", "rollback", "p.json", "--throttle", "50000000", "--wave-replicas", "3", "--wave-bytes", "1000000000",
        "--stall", "120s",
    ]  # fmt: skip
    for bad in ({"throttle": "5"}, {"throttle": "x"}, {"wave_replicas": "0"}, {"wave_bytes": "x"}, {"stall": "0s"}):
        with pytest.raises(AdminError):
            run_asked_for(Verb.APPLY, plan, Path("p.json"), FORM | bad)


def state(changed: Callable[[], None] = lambda: None) -> PlanRunState:
    run = PlanRun(Verb.APPLY, Path("plan.json"), "sha256:0", ())
    return PlanRunState(run, 3, clock=lambda: 1_795_000_000_000, changed=changed)


HALF = WaveProgress(2, 3, 4, 9, 2048, 4096, 1024.0, 1.0, 119.0, 5000)


def test_a_run_tells_where_it_is_how_it_goes_and_what_was_said() -> None:
    changes: list[int] = []
    run = state(lambda: changes.append(1))
    run.step(Step.LOCKED, 0)
    run.step(Step.THROTTLED, 2)
    run.step(Step.WAVE_BEGUN, 2)
    run.show(HALF)
    run.waits_for(Holder("bob@host", "2026-01-01T00:00:00Z", "apply x"))
    run.says("wave 2 waits, for at most 15 s: the ISR has shrunk for orders-0")
    assert (run.state, run.is_under_way, len(changes)) == (RunState.UNDER_WAY, True, 5)
    shown = text_of(run_lines(run))
    assert "▶ apply plan.json: under way   wave 2 of 3   4/9 partitions   throttle 5.0 kB/s" in shown
    assert "━━━━━━━━╌╌╌╌╌╌╌╌ 50 %  2.0 kB of 4.1 kB   1.0 kB/s   1s to 1m 59s left" in shown
    assert "the ISR has shrunk for orders-0" in shown
    assert [text for _, text in run.said][:2] == ["the plan lock is taken", "wave 2 of 3 begins"]


@pytest.mark.parametrize(
    ("verb", "outcome", "named"),
    [
        (Verb.APPLY, Outcome.DONE, ("the same as a command", "apply")),
        (Verb.APPLY, Outcome.STOPPED, ("go on with", "resume")),
        (Verb.ROLLBACK, Outcome.STOPPED, ("go on with", "rollback")),
    ],
)
def test_a_run_that_is_done_names_what_it_did_and_another_how_to_go_on(
    verb: Verb, outcome: Outcome, named: tuple[str, str]
) -> None:
    run = state()
    run.run = replace(run.run, verb=verb)
    run.ended(WavesResult(outcome, None, 3, 3, 9, (), 9))
    assert command_after(run) == (named[0], ["plan", named[1], "plan.json"])
    where = "where they were before the plan" if verb is Verb.ROLLBACK else "where the plan wants them"
    assert run.said[-1][1] == f"9 of 9 partitions are {where}"


@in_event_loop
async def test_a_run_whose_plan_is_cancelled_is_not_told_to_go_on(
    plan: OpenedPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = state()
    cluster = SimpleNamespace(target=SimpleNamespace(name="prod"))

    async def stops() -> None:
        run.stopped()

    async def nothing(_: object) -> list[object]:
        return []

    async def unreachable(_: object) -> list[object]:
        raise OSError("gone")

    monkeypatch.setattr(plan_operations, "list_running", nothing)
    prepared = await CancelPlan(plan, stops, run.says, is_running=True).prepare(cluster)  # type: ignore[arg-type]
    assert prepared.run is not None
    await prepared.run(cluster)  # type: ignore[arg-type]
    assert [text for _, text in run.said] == ["stopped", "what was moving: nothing is under way any more"]
    monkeypatch.setattr(plan_operations, "list_running", unreachable)
    with pytest.raises(OSError, match="gone"):
        await prepared.run(cluster)  # type: ignore[arg-type]
    assert run.said[-1][1] == "moves under way may go on in the cluster", "nobody knows what was done"


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ((None, None), "time left not known"),
        ((2.0, None), "at least 2s left"),
        ((2.0, 2.4), "2s left"),
        ((2.0, 60.0), "2s to 1m left"),
    ],
)
def test_the_time_left_is_a_range_where_the_rate_jumps(left: tuple[float | None, float | None], expected: str) -> None:
    assert time_left(replace(HALF, left_s_min=left[0], left_s_max=left[1])) == expected


def test_unknown_sizes_are_told() -> None:
    assert progress_texts(replace(HALF, moved_bytes=None))[1] == "sizes are not known"


def test_a_run_that_was_stopped_says_why_and_is_not_called_done() -> None:
    run = state()
    run.ended(WavesResult(Outcome.STOPPED, "dead target: broker 3", 2, 3, 1, (TopicPartition("t", 0),), 4, ("left",)))
    assert run.state is RunState.STOPPED
    run.show(HALF)
    assert "left" not in text_of(run_lines(run)), "what has ended has no time left"
    assert run.said[-1][1] == "stopped at wave 2 of 3: dead target: broker 3"
    before = state()
    before.ended(WavesResult(Outcome.STOPPED, "dead target: broker 3", 0, 3, 0, (), 4))
    assert before.said[-1][1] == "stopped before the first wave: dead target: broker 3"
    outcome = run_outcome(run)
    assert not outcome.is_good
    assert outcome.errors == ("dead target: broker 3",)
    assert [cell.text for cell in outcome.rows[2]] == ["still under way", "t-0"]
    fine = state()
    fine.ended(WavesResult(Outcome.DONE, None, 3, 3, 4, (), 4))
    assert (fine.state, run_outcome(fine).is_good) == (RunState.DONE, True)
    missing = state()
    missing.ended(WavesResult(Outcome.DONE, None, 3, 3, 3, (), 4))
    assert not run_outcome(missing).is_good, "a partition is gone"
    refused = state()
    refused.failed("another operator is carrying out a plan")
    assert (refused.state, run_outcome(refused).errors) == (
        RunState.FAILED, ("another operator is carrying out a plan",),
    )  # fmt: skip


def test_the_past_is_told_run_by_run_the_newest_first(tmp_path: Path) -> None:
    first, second = tmp_path / "a.json.journal", tmp_path / "b.json.journal"
    lines = [
        {"time": "2026-01-01T00:00:00Z", "event": "journal", "format": 1, "plan": "sha256:a"},
        {"time": "2026-01-01T00:00:01Z", "event": "begun", "what": "apply a.json", "who": "ann", "waves": 2},
        {"time": "2026-01-01T00:00:02Z", "event": "wave", "wave": 1, "of": 2},
        {"time": "2026-01-01T00:00:03Z", "event": "wave_done", "wave": 1},
        {"time": "2026-01-01T00:00:04Z", "event": "stopped", "reason": "the copy has stalled"},
        {"time": "2026-01-03T00:00:00Z", "event": "begun", "what": "resume a.json", "who": "bob", "waves": 2},
    ]
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    journal = open_journal(second, "sha256:b")
    journal.write("begun", what="apply b.json", who="eve", waves=1, partitions=1, done=0, rollback=None)
    journal.write("done", reason=None, wave=1, throttles_left=[])
    journal.close()
    (tmp_path / "c.journal").write_text("no journal\n")
    journals, errors = read_journals((tmp_path, tmp_path))
    assert [path.name for path, _ in journals] == ["a.json.journal", "b.json.journal"]
    assert len(errors) == 1
    runs = past_runs([(first, read_journal(first))])
    assert [(run.who, run.what, run.waves_done, run.outcome) for run in runs] == [
        ("bob", "resume a.json", 0, NO_END),
        ("ann", "apply a.json", 1, "stopped: the copy has stalled"),
    ]
    outcome = history_outcome("History", journals, errors, "nobody")
    assert [row[1].text for row in outcome.rows] == ["eve", "bob", "ann"]
    assert outcome.rows[0][-1].text == "done"
    assert unfinished_plans((tmp_path,)) == [], "there is no file of the plan any more"
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text("{}")
    (open_one,) = unfinished_plans((tmp_path,))
    assert open_one.path == tmp_path / "a.json", "the other one is done"
    assert (open_one.wave, open_one.waves, open_one.reason, open_one.written_ms) == (1, 2, "", 1_767_398_400_000)
    empty = history_outcome("History", [(first, JournalRecord(()))], [])
    assert "there is no journal" in empty.notes[-1]


def test_what_no_plan_can_do_is_an_error_with_its_hint() -> None:
    with pytest.raises(BadOption, match="99"):
        made(options=PlanOptions(brokers=(99,)))


def test_until_the_run_knows_the_time_left_it_is_that_of_the_reassignments() -> None:
    run = state()
    run.show(replace(HALF, left_s_min=None, left_s_max=None))
    cluster, board = FakeCluster(5, {"orders": 1}), Board()
    cluster.reassign(TopicPartition("orders", 0), (1, 2, 4))
    for _ in range(31):
        cluster.advance()
        board.take(cluster.frame())
    view = View(board, Location("plans"))
    assert "   moving now: 9s left" in text_of(plans.summary_of(view, None, run, None, 120))
    assert "time left not known" in text_of(plans.summary_of(View(Board(), Location("plans")), None, run, None, 120))
