"""Plans on the screen, on made-up clusters: forms, the solver outside the event loop, files, and refusals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from dashboards import Driven, dashboard, shown
from event_loop import in_event_loop, staged
from fake_cluster import FakeCluster
from fake_feed import fake_feed

from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.log_dirs.describing import with_logs
from engine.admin.reassignment.plan_runs import PlanRun, Verb
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.wave_progress import Outcome, Step, WavesResult
from engine.admin.reassignment.waves import Standing, WaveMove
from engine.common.errors import OperationError
from engine.common.model import TopicPartition
from plans.errors import Infeasible
from plans.options import PlanOptions, Strategy
from tui.dialogs.dialog import TextDialog
from tui.dialogs.form import FormDialog
from tui.operations.operation import Prepared
from tui.operations.plans import wave_lines
from tui.planning import solving
from tui.planning.forms import ask_for_plan
from tui.planning.plan_run import PlanRunState
from tui.planning.solving import solve_apart
from tui.screen.offers import PlanWish
from tui.state.location import Location

TARGET = ClusterTarget("first", Origin.OPTIONS, bootstrap=(("k", 1),))


class NoCluster:
    """The target of an operation that asks no cluster."""

    timeout_s = 5.0

    async def __aenter__(self) -> NoCluster:
        return self

    async def __aexit__(self, *exc: object) -> None: ...


async def planned(driven: Driven) -> None:
    await driven.press("ctrl+g")
    await driven.until(lambda: driven.main.off_board.plan is not None and driven.app.screen is driven.main)


def test_a_broker_is_retired_from_its_row_and_the_plan_is_saved_and_opened(tmp_path: Path) -> None:
    async def look(driven: Driven) -> None:
        await driven.press("down", "R")
        assert "Plan: empty brokers, so that they can be removed" in driven.text
        await planned(driven)
        assert driven.main.location.page == "plans"
        assert "decommission: 11 moves" in driven.text
        assert "it leaves broker 2: that broker is emptied" in driven.text
        first = str(driven.main.model.cursor_key)
        await driven.press("down")
        second = str(driven.main.model.cursor_key)
        assert driven.lines_with(f"{second}: ")
        assert not driven.lines_with(f"{first}: "), "the reason is that of the row under the cursor"
        await driven.press("e")
        assert f"Why {second} moves" in driven.text
        await driven.press("escape", "d")
        assert "the largest moves" in driven.text
        await driven.press("escape", "w")
        assert "Save a new decommission plan" in driven.text
        await driven.press("enter")
        await driven.until((tmp_path / "plan-decommission.json").exists)
        plan = driven.main.off_board.plan
        assert plan is not None
        assert (tmp_path / "plan-decommission.json").read_text() == plan.text
        await driven.press("w", "ctrl+u")
        (tmp_path / "other.json").write_text("mine")
        await driven.type("other.json")
        await driven.press("enter")
        await driven.sees("there is a file already")
        assert (tmp_path / "other.json").read_text() == "mine"
        await driven.press("escape", "o")
        await driven.type("absent.json")
        await driven.press("enter")
        await driven.sees("no such file")
        await driven.press("ctrl+u")
        await driven.type("plan-decommission.json")
        await driven.press("enter")
        await driven.until(lambda: "11 to do" in driven.text)
        assert driven.lines_with("plan-decommission.json")

    shown(look, "five", page="brokers", folder=tmp_path)


@staged(shown, "five", page="brokers", size=(80, 24))
async def test_a_plan_is_told_whole_where_there_is_little_room(driven: Driven, /) -> None:
    await driven.press("down", "R")
    await planned(driven)
    text = " ".join(driven.text.split())
    assert "5 leader changes: no plan needs fewer bytes." in text
    assert "2 waves" in text
    assert "emptied; broker 5 gets it: it goes from 16 to 27 replicas" in text
    first = driven.text.splitlines().index(driven.lines_with("PARTITION ")[0])
    await driven.press("end")
    assert driven.text.splitlines()[first] == driven.lines_with("PARTITION ")[0], "rows stay where they are"


@pytest.mark.parametrize(
    ("page", "keys", "title", "first"),
    [
        ("brokers", ("t", "t", "R"), "Plan: empty brokers", "1,2"),
        ("brokers", ("P",), "Plan: move what a broker has", "1="),
        ("topics", ("down", "down", "M"), "Plan: move topics", ""),
        ("topics", ("F",), "Plan: raise or lower", ""),
        ("overview", ("B",), "Plan: level replicas", None),
    ],
)
def test_plans_begin_with_the_rows_that_were_chosen(
    page: str, keys: tuple[str, ...], title: str, first: str | None
) -> None:
    async def look(driven: Driven) -> None:
        chosen = driven.main.model
        await driven.press(*keys)
        assert title in driven.text
        fields = {field.id: getattr(field, "value", "") for field in driven.app.screen.query("Input")}
        assert fields.get("field-argument") == first
        if page == "topics":
            assert fields["field-topics"] == str(chosen.cursor_key)

    shown(look, "live", page=page)


@staged(shown, page="brokers")
async def test_a_plan_that_nobody_can_make_says_why_until_it_was_read(driven: Driven, /) -> None:
    await driven.press("R", "ctrl+g")
    await driven.sees("no plan: ")
    text = driven.text
    assert "Plan: " in text and "Throttle" in text, "what was typed can be changed"
    await driven.tick(2)
    assert driven.text == text
    await driven.press("escape")
    assert (driven.app.screen, driven.main.off_board.plan) == (driven.main, None)


@staged(shown, "five", page="brokers")
async def test_a_window_that_is_closed_ends_the_solver(driven: Driven, /, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[asyncio.subprocess.Process] = []

    monkeypatch.setattr(solving, "module_command", lambda module: ("sleep", "600"))
    original = solving._answer

    async def watched(process: asyncio.subprocess.Process, *rest: object) -> object:
        begun.append(process)
        return await original(process, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(solving, "_answer", watched)
    await driven.press("R", "ctrl+g")
    await driven.until(lambda: bool(begun))
    assert "esc gives it up" in driven.text
    await driven.tick(2)
    await driven.press("escape")
    await driven.until(lambda: begun[0].returncode is not None)
    assert (driven.app.screen, driven.main.off_board.plan) == (driven.main, None)


def test_the_planner_beside_the_loop_tells_progress_refusals_and_its_own_end(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(5, {"clicks": 9, "orders": 12}, replication_factor=2)
    cluster.advance()
    frame = cluster.frame()
    assert frame.cluster is not None
    snapshot = with_logs(frame.cluster, frame.logs)
    made = asyncio.run(solve_apart(snapshot, Strategy.DECOMMISSION, PlanOptions(brokers=(4,)), print))
    assert made.plan.partitions
    with pytest.raises(Infeasible):
        asyncio.run(solve_apart(snapshot, Strategy.DECOMMISSION, PlanOptions(brokers=(1, 2, 3, 4)), print))
    monkeypatch.setattr(solving, "module_command", lambda module: ("sh", "-c", "echo broken >&2"))
    with pytest.raises(OperationError, match="the planner ended without a plan: broken"):
        asyncio.run(solve_apart(snapshot, Strategy.LEADERS, PlanOptions(), print))


def test_without_a_plan_or_a_cluster_each_key_says_why(tmp_path: Path) -> None:
    kafka = tmp_path / "kafka.json"
    kafka.write_text(json.dumps({"version": 1, "partitions": [{"topic": "audit", "partition": 0, "replicas": [3, 1]}]}))

    async def look(driven: Driven) -> None:
        registry = driven.app.session.registry
        for action in registry.on_page("plans"):
            if action.id.startswith("plan.") and action.id not in ("plan.make", "plan.open"):
                await driven.press(action.keys[0])
                assert driven.app.screen is driven.main, action.id
        driven.main.desk.open(kafka)
        await driven.until(lambda: driven.main.off_board.plan is not None)
        await driven.press("w")
        assert driven.app.screen is driven.main, "a file of Kafka's form is not ours to write"
        assert "a file in Kafka's form says no more" in driven.text

    shown(look, fake_feed("live", plays=False), page="plans", folder=tmp_path)


@pytest.mark.parametrize("name", ["~no-such-user/plan.json", "n" * 300])
def test_a_file_that_no_machine_has_is_refused_where_it_was_typed(name: str, tmp_path: Path) -> None:
    async def look(driven: Driven) -> None:
        await driven.press("o")
        await driven.type(name)
        await driven.press("enter")
        await driven.until(lambda: "home" in driven.text or "too long" in driven.text)
        await driven.press("escape", "colon")
        await driven.type(f"plan {name}")
        await driven.press("enter")
        await driven.until(lambda: driven.app.screen is driven.main)

    shown(look, "live", page="plans", folder=tmp_path)


@staged(shown)
async def test_a_plan_that_was_read_when_the_dashboard_ends_goes_nowhere(driven: Driven, /) -> None:
    page = driven.main.location
    await driven.main.query_one("#overview").remove()
    driven.main.go_to(Location("plans"))
    assert driven.main.location == page


@staged(shown, "five", page="brokers")
async def test_a_window_that_another_one_covers_goes_when_its_work_is_over(
    driven: Driven, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()

    async def slow(*_: object) -> object:
        await go_on.wait()
        raise Infeasible("nobody can")

    monkeypatch.setattr("tui.planning.desk.solve_apart", slow)
    await driven.press("R", "ctrl+g")
    await driven.sees("esc gives it up")
    driven.app.push_screen(TextDialog("Something else came to its end", []))
    await driven.sees("Something else")
    go_on.set()
    await driven.sees("no plan")
    await driven.press("escape")
    await driven.sees("Something else")
    await driven.press("escape")
    await driven.until(lambda: driven.app.screen is driven.main)


def test_a_plan_that_was_asked_about_before_the_cluster_was_left_does_not_begin() -> None:
    """The answer may come when another cluster is shown. The plan must not be applied there."""
    begun: list[str] = []

    class Slow:
        title, asks = "Apply the plan", True

        async def prepare(self, cluster: object) -> Prepared:
            return Prepared("Apply the plan in first?", begins=lambda: begun.append("run"))

    first, second = (ClusterTarget(name, Origin.OPTIONS, bootstrap=(("k", 1),)) for name in ("first", "second"))

    async def look(driven: Driven) -> None:
        driven.main.work.offer(Slow())  # type: ignore[arg-type]
        await driven.sees("Apply the plan in first?")
        driven.app.session.target = second
        await driven.press("y")
        await driven.sees("the dashboard has switched to another cluster than first")
        assert not begun

    shown(look, "live", target=first, make_cluster=lambda *_, **__: NoCluster())


@pytest.mark.parametrize("keys", ["D", "plan"])
@in_event_loop
async def test_a_connection_that_is_being_opened_when_the_dashboard_ends_is_closed(keys: str) -> None:
    """Whoever opens it is cancelled, and closing it takes a few turns of the loop: the dashboard waits for that."""
    course: list[str] = []

    class Opening(NoCluster):
        async def __aenter__(self) -> Opening:
            course.append("opening")
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
                course.append("closed")
            return self

    async with dashboard("live", page="topics", target=TARGET, make_cluster=lambda *_, **__: Opening()) as driven:
        course.clear()
        if keys == "plan":
            form = FormDialog(ask_for_plan(Strategy.REBALANCE, Path()))
            driven.main.desk.make(PlanWish(Strategy.REBALANCE, PlanOptions()), form)
        else:
            await driven.press(keys)
        await driven.until(lambda: course == ["opening"])
    assert course == ["opening", "closed"]


def test_an_operation_that_fails_by_a_mistake_of_ours_is_told_and_the_dashboard_goes_on() -> None:
    class Broken:
        title, asks = "Broken", False

        async def prepare(self, cluster: object) -> Prepared:
            raise ZeroDivisionError("by zero")

    async def look(driven: Driven) -> None:
        driven.main.work.offer(Broken())  # type: ignore[arg-type]
        await driven.sees("ZeroDivisionError: by zero")
        await driven.press("escape")
        await driven.tick()

    shown(look, "live", target=TARGET, make_cluster=lambda *_, **__: NoCluster())


def test_the_end_of_a_run_takes_no_keys_from_a_window_or_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    run = PlanRun(Verb.APPLY, Path("plan.json"), "sha256:0", ())

    may_end = asyncio.Event()

    async def carry_out(*_: object, **__: object) -> WavesResult:
        await may_end.wait()
        return WavesResult(Outcome.DONE, None, 1, 1, 0, (), 0)

    monkeypatch.setattr(PlanRun, "carry_out", carry_out)

    async def look(driven: Driven) -> None:
        for key, typed, closes in (("colon", "tz", "escape"), ("slash", "qA", "enter")):
            may_end.clear()
            driven.main.desk.begin(run, ())
            await driven.press(key)
            may_end.set()
            await driven.until(lambda: not driven.main.off_board.run.is_under_way)
            await driven.type(typed)
            assert "Apply plan.json" not in driven.text
            await driven.press(closes)
            await driven.sees("Apply plan.json: done")
            await driven.press("escape")
            assert driven.app.screen is driven.main

    shown(look, "live", target=TARGET, make_cluster=lambda *_, **__: NoCluster())


def test_whoever_quits_during_a_run_learns_how_to_go_on_with_it_on_this_cluster() -> None:
    target = ClusterTarget("first", Origin.OPTIONS, zookeeper="z:2181", bootstrap=(("k", 1),))
    run = PlanRun(Verb.ROLLBACK, Path("plan.json"), "sha256:0", ())

    async def look(driven: Driven) -> None:
        desk = driven.main.desk
        driven.main.off_board.run = PlanRunState(run, 3, clock=lambda: 0, changed=lambda: None)
        driven.main.off_board.run.step(Step.WAVE_BEGUN, 2)
        await driven.press("q")
        assert "plan.json will stop in wave 2 of 3" in driven.text
        command = "klamm plan rollback plan.json --zookeeper z:2181 --bootstrap-server k:1"
        assert f"go on with\n{command}\n" in driven.text
        assert desk.left_behind == f"plan.json was stopped in wave 2 of 3; go on with: {command}"

    shown(look, "live", target=target)


def test_what_is_done_is_no_part_of_what_a_resume_copies() -> None:
    names = [TopicPartition("t", number) for number in range(3)]
    first, second, third = (WaveMove(PartitionMove(name, (0, 2)), (0, 1), 1024) for name in names)
    waves = ((first,), (second, third))
    lines = ("wave 1  1.0 kB  t-0: 0,1 → 0,2", "wave 2  2.0 kB  t-1: 0,1 → 0,2, t-2: 0,1 → 0,2")
    assert wave_lines(waves, None) == lines
    standings = {names[0]: Standing.DONE, names[1]: Standing.DONE, names[2]: Standing.MOVING}
    assert wave_lines(waves, standings) == ("wave 2  1.0 kB  t-2: 0,1 → 0,2",)


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (Verb.RESUME, "R resumes the plan, B rolls it back"),
        (Verb.ROLLBACK, "B goes on rolling back, R applies the plan again"),
    ],
)
@staged(shown, target=TARGET)
async def test_whoever_stops_a_run_learns_which_key_leads_where(driven: Driven, /, verb: Verb, expected: str) -> None:
    run = PlanRun(verb, Path("plan.json"), "sha256:0", ())
    driven.main.off_board.run = PlanRunState(run, 3, clock=lambda: 0, changed=lambda: None)
    await driven.press("7", "Z")
    assert "End the run of the plan?" in driven.text
    assert "the remaining waves do not begin" in driven.text
    assert f"klamm plan {verb.value if verb is Verb.ROLLBACK else 'resume'} plan.json" in driven.text
    message = f"stopped: moves under way go on in the cluster; {expected}"
    await driven.press("n")
    assert "the run goes on" in [notification.message for notification in driven.app._notifications]
    await driven.press("Z", "enter")
    assert "End the run of the plan?" in driven.text, "enter is no answer"
    assert message not in [notification.message for notification in driven.app._notifications]
    await driven.press("y")
    await driven.until(lambda: message in [notification.message for notification in driven.app._notifications])
    driven.main.off_board.run.stopped()


@staged(shown, target=TARGET)
async def test_a_run_that_ends_while_its_end_is_confirmed_is_left_alone(driven: Driven, /) -> None:
    run = PlanRun(Verb.APPLY, Path("plan.json"), "sha256:0", ())
    state = driven.main.off_board.run = PlanRunState(run, 3, clock=lambda: 0, changed=lambda: None)
    await driven.press("7", "Z")
    state.stopped()
    await driven.press("y")
    assert [notification.message for notification in driven.app._notifications] == ["no plan is being carried out here"]


@in_event_loop
async def test_the_keys_that_matter_most_are_in_the_last_line_at_80_columns() -> None:
    run = PlanRun(Verb.APPLY, Path("plan.json"), "sha256:0", ())
    async with dashboard("live", size=(80, 24), page="topics", target=TARGET) as driven:
        last = driven.text.splitlines()[-1]
        assert all(key in last for key in ("N new", "A settings", "D delete", "E elect", "/ filter", "? help"))
        await driven.press("7")
        last = driven.text.splitlines()[-1]
        assert all(key in last for key in ("N new", "o open", "q quit")) and "A apply" not in last
        driven.main.off_board.run = PlanRunState(run, 3, clock=lambda: 0, changed=lambda: None)
        await driven.tick()
        last = driven.text.splitlines()[-1]
        assert all(key in last for key in ("C cancel", "H throttle", "Z stop", "q quit")), "it is under way"
