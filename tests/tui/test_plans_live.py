"""Plans on three of our brokers, by keys alone: made, applied, watched, throttled, cancelled, resumed, rolled back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest
from dashboards import Driven, apply_until_it_moves, make_move
from operated_cluster import Klamm, filled
from typed_command import fault_of

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.target import ClusterTarget, Origin, parse_addresses
from engine.admin.reassignment.journal import read_journal
from engine.admin.reassignment.lock import operator_lock
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.plan_runs import Verb
from engine.admin.watch.live_feed import LiveFeed
from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster
from tui.app import Dashboard
from tui.operations.operation import beside_plan
from tui.operations.plans import CancelPlan, CarryOutPlan, run_asked_for
from tui.operations.topics import DeleteTopics
from tui.planning.opened_plan import read_plan_file
from tui.planning.plan_run import RunState
from tui.screen.page_screen import why_not
from tui.state.session import Session

FORM = {"throttle": "", "wave_replicas": "10", "wave_bytes": "", "stall": "5m"}


def target_of(cluster: LocalCluster, *, is_read_only: bool = False) -> ClusterTarget:
    bootstrap = parse_addresses(cluster.bootstrap_servers)
    return ClusterTarget("tried", Origin.OPTIONS, bootstrap=bootstrap, is_read_only=is_read_only)


def driven_live(
    cluster: LocalCluster, folder: Path, scene: Callable[[Driven], Awaitable[None]], **options: object
) -> None:
    async def run() -> None:
        target = target_of(cluster)
        feed = LiveFeed(target, interval_s=0.5)
        app = Dashboard(Session(feed, target, folder=folder, page="plans", **options))  # type: ignore[arg-type]
        async with app.run_test(size=(120, 34)) as pilot:
            driven = Driven(app, pilot, feed)
            await driven.until(lambda: app.main is not None and app.board.has_metadata)
            await scene(driven)

    asyncio.run(run())


@pytest.fixture
def topic(by_wire: Klamm) -> str:
    name = f"p-{uuid4().hex[:8]}"
    # At 15,000 bytes a second a megabyte takes a minute: long enough to watch, and short at full speed.
    filled(by_wire, name, "0:1,1:0", 1000)
    return name


def state_of(driven: Driven) -> RunState | None:
    return None if driven.main.off_board.run is None else driven.main.off_board.run.state


async def made_and_applied(driven: Driven, topic: str, file: Path) -> None:
    await make_move(driven, topic, "1,2")
    assert "move: 2 moves, " in driven.text
    assert "not saved yet" in driven.text
    assert len(driven.lines_with(f"{topic}-")) >= 2
    await driven.press("c")
    await driven.sees("Check the plan: it fits the cluster")
    await driven.press("escape", "A")
    await driven.sees("Saved as")
    await driven.press("down")
    await driven.type("15000")
    await driven.press("ctrl+g")
    await driven.sees(
        "Apply plan-move.json in tried: 2 partitions (2 replicas to copy) in 2 waves, at 15.0 kB/s a broker?"
    )
    command = next(text for text in driven.text.splitlines() if text.startswith("klamm plan apply"))
    assert fault_of(command.split()[1:]) is None, command
    assert f"{file} --throttle 15000" in command
    await driven.press("enter")
    assert "Apply plan-move.json" in driven.text, "enter is no answer"
    assert not file.exists(), "nothing is written before the answer"
    await driven.press("y")
    await driven.until(file.exists)


async def watched_throttled_and_cancelled(driven: Driven, file: Path) -> None:
    run = driven.main.off_board.run
    assert run is not None
    await driven.until(lambda: run.progress is not None and bool(driven.lines_with("1 under way")))
    assert driven.lines_with("wave 1 of 2   0/2 partitions")
    assert driven.lines_with("throttle 15.0 kB/s")
    await driven.press("A")
    assert driven.app.screen is driven.main, "one run at a time"
    await driven.press("q")
    await driven.sees("plan-move.json will stop in wave 1 of 2")
    assert "klamm plan resume" in driven.text
    await driven.press("n")
    await driven.press("H")
    await driven.sees("Change the throttle of the plan")
    await driven.press("ctrl+u")
    await driven.type("20000")
    await driven.press("enter")
    await driven.sees("Let brokers copy 20.0 kB/s each for plan-move.json")
    await driven.press("y")
    await driven.until(lambda: bool(driven.lines_with("throttle 15.0 kB/s → 20.0 kB/s")))
    await driven.press("q")
    await driven.sees("--throttle 20000")
    await driven.press("n")
    await driven.press("C")
    await driven.sees("Cancel plan-move.json in tried: 1 partition under way?")
    await driven.press("y")
    await driven.sees("Cancel reassignments: done")
    await driven.press("escape")
    assert state_of(driven) is RunState.STOPPED
    assert driven.lines_with("what was moving: 1 cancelled")
    assert not driven.lines_with("goes on in the cluster")
    await driven.press("A")
    await driven.press("ctrl+g")
    await driven.sees("this plan has already begun and is not done")
    # The form is there again, for another try.
    await driven.press("escape")


async def resumed_and_led_back(driven: Driven) -> None:
    for key, question, verdict in (("R", "Resume plan-move.json", "done"), ("B", "Roll back plan-move.json", "done")):
        await driven.press(key)
        await driven.press("ctrl+u", "ctrl+g")
        await driven.sees(question)
        await driven.press("y")
        await driven.sees(f"plan-move.json: {verdict}")
        await driven.press("escape")
        assert state_of(driven) is RunState.DONE
        there = "2 done" if key == "R" else "2 to do"
        await driven.until(lambda there=there: bool(driven.lines_with(there)))
    await driven.press("J")
    await driven.sees("History of plans: 3 runs")
    verdict = [line for line in driven.text.splitlines() if "plan-move.json" in line]
    assert [word for line in verdict for word in ("rollback", "resume", "apply") if word in line] == [
        "rollback", "resume", "apply",
    ]  # fmt: skip
    assert "stopped: interrupted" in verdict[2]
    assert "no plan is being carried out" in driven.text


def test_a_plan_is_made_applied_watched_cancelled_resumed_and_led_back_by_keys_alone(
    three_brokers: LocalCluster, topic: str, by_wire: Klamm, tmp_path: Path
) -> None:
    file = tmp_path / "plan-move.json"
    was = by_wire.replicas(topic)

    async def scene(driven: Driven) -> None:
        await made_and_applied(driven, topic, file)
        await watched_throttled_and_cancelled(driven, file)
        await resumed_and_led_back(driven)

    driven_live(three_brokers, tmp_path, scene)
    assert by_wire.replicas(topic) == was
    assert "throttled" not in " ".join(by_wire.settings("--broker", "2"))
    assert json.loads((tmp_path / "plan-move.json.rollback.json").read_text())["partitions"]
    assert by_wire("plan", "status", file).code == 0


def test_a_run_that_was_killed_is_resumed(
    three_brokers: LocalCluster, topic: str, by_wire: Klamm, tmp_path: Path
) -> None:
    """A killed process leaves copies under way, a journal without an end, and the lock of a session that expires."""
    plan = tmp_path / "plan.json"
    assert by_wire("plan", "move", "--topic", topic, "--brokers", "2,0", "--out", plan).code == 0

    async def begun(driven: Driven) -> None:
        await driven.press("o")
        await driven.type("plan.json")
        await driven.press("enter")
        await driven.until(lambda: driven.main.off_board.plan is not None)
        await apply_until_it_moves(driven, "15000")
        await driven.press("q")
        await driven.sees("End the dashboard, and the run of the plan with it?")
        await driven.press("y")
        ended.append(driven)

    async def resumed(driven: Driven) -> None:
        await driven.press("1")
        await driven.sees("plan plan.json not finished")
        while not driven.lines_with("▌▲ plan plan.json not finished"):
            await driven.press("j")
        assert driven.lines_with("it was killed in wave 1 of 2") and "R resume" in driven.text
        await driven.press("enter")
        await driven.until(lambda: bool(driven.lines_with("1 under way")))
        await driven.press("escape", "R")
        await driven.sees("Resume plan.json")
        await driven.press("ctrl+g")
        await driven.sees("Resume plan.json in tried")
        assert "at 15.0 kB/s a broker" in driven.text, "the form has the throttle of the run that was killed"
        await driven.press("y")
        await driven.until(
            lambda: driven.main.off_board.run is not None and driven.main.off_board.run.progress is not None
        )
        await driven.press("Z")
        await driven.sees("End the run of the plan?")
        await driven.press("y")
        await driven.until(lambda: state_of(driven) is RunState.STOPPED)
        assert driven.lines_with("1 under way"), "what moves goes on in the cluster"
        await driven.press("R", "ctrl+u")
        await driven.type("50M")
        await driven.press("ctrl+g")
        await driven.sees("Resume plan.json in tried")
        await driven.press("y")
        await driven.sees("Resume plan.json: done")

    ended: list[Driven] = []
    driven_live(three_brokers, tmp_path, begun)
    assert ended[0].app.left_behind == (
        f"plan.json was stopped in wave 1 of 2; go on with: klamm plan resume {plan} --throttle 15000"
        f" --bootstrap-server {three_brokers.bootstrap_servers}"
    ), "told when the screen is gone"
    journal = tmp_path / "plan.json.journal"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]), "utf-8")
    assert read_journal(journal).is_under_way, "a killed process writes no end"
    driven_live(three_brokers, tmp_path, resumed)
    assert [sorted(replicas) for replicas in by_wire.replicas(topic)] == [[0, 2], [0, 2]]


def test_a_read_only_cluster_is_refused_by_keys_and_by_the_engine(
    three_brokers: LocalCluster, topic: str, by_wire: Klamm, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    assert by_wire("plan", "move", "--topic", topic, "--brokers", "2,0", "--out", path).code == 0
    plan, was = read_plan_file(path), by_wire.replicas(topic)

    async def scene(driven: Driven) -> None:
        driven.main.desk.open(path)
        await driven.until(lambda: driven.main.off_board.plan is not None)
        for action in driven.app.session.registry.on_page("plans"):
            if action.changes:
                assert why_not(driven.main, action) == "started with --read-only", action.id
                await driven.press(action.keys[0])
                assert driven.app.screen is driven.main, action.id
        await driven.press("c")
        await driven.sees("it fits the cluster")

    driven_live(three_brokers, tmp_path, scene, is_read_only=True)

    async def refused() -> None:
        async with Cluster(target_of(three_brokers, is_read_only=True), timeout_s=20) as cluster:
            for verb in Verb:
                run = run_asked_for(verb, plan, path, FORM)
                with pytest.raises(BadRequest, match="read-only"):
                    await CarryOutPlan(plan, run, lambda _: None, lambda *_: None).prepare(cluster)
                waves = await run.waves(cluster)
                with pytest.raises(BadRequest, match="read-only"):
                    await run.carry_out(cluster, waves, NoWatcher())

    asyncio.run(refused())
    assert by_wire.replicas(topic) == was
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json"], "no journal, no way back"


class NoWatcher:
    """Gets no messages, because nothing happens."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        raise AssertionError(f"{name} was told by a cluster that is read-only")


def test_the_lock_of_another_operator_and_a_drift_are_told(
    three_brokers: LocalCluster, topic: str, by_wire: Klamm, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    assert by_wire("plan", "move", "--topic", topic, "--brokers", "2,0", "--out", path).code == 0

    async def scene(driven: Driven) -> None:
        driven.main.desk.open(path)
        await driven.until(lambda: driven.main.off_board.plan is not None)
        async with (
            Cluster(target_of(three_brokers), timeout_s=20) as cluster,
            operator_lock(cluster, Holder("somebody@elsewhere", "2026-01-01T00:00:00Z", "apply other.json")),
        ):
            await driven.press("J")
            await driven.sees("now: somebody@elsewhere since 2026-01-01T00:00:00Z, for apply other.json")
            await driven.press("escape")
            asked = await beside_plan(await DeleteTopics((topic,)).prepare(cluster), cluster)
            warning = "a plan that relies on this is being carried out by somebody@elsewhere"
            assert asked.warnings[0].startswith(warning)

    driven_live(three_brokers, tmp_path, scene)
    wrong = tmp_path / "wrong.json"
    wrong.write_text(path.read_text().replace('"replicas": [0, 1]', '"replicas": [1, 0]'))
    plan = read_plan_file(wrong)
    assert not plan.error

    async def drifted() -> None:
        async with Cluster(target_of(three_brokers), timeout_s=20) as cluster:
            run = run_asked_for(Verb.APPLY, plan, wrong, FORM)
            with pytest.raises(BadRequest, match="does not fit the cluster"):
                await CarryOutPlan(plan, run, lambda _: None, lambda *_: None).prepare(cluster)
            nothing = await CancelPlan(plan, lambda: asyncio.sleep(0), print, is_running=False).prepare(cluster)
            assert (nothing.question, nothing.run) == ("nothing of this plan is under way", None)

    asyncio.run(drifted())
    assert TopicPartition(topic, 0) in {move.name for move in plan.moves}
