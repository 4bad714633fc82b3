"""What holds for every plan: exhaustive search finds no better one, bounds hold, and there is a rollback."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan_files import hide_solver
from small_clusters import applied, drawn_cluster

from engine.common.snapshot import ClusterSnapshot
from engine.common.snapshot_json import snapshot_to_json
from plans.construction import Forcing, construct
from plans.loads import byte_limits
from plans.options import Aim, Minimise, PlanOptions, Strategy
from plans.plan_file import encode_plan
from plans.planning import make_plan
from plans.problem_building import build_problem
from plans.work import Work

Rank = tuple[int, ...]
LEVEL = (Aim.REPLICAS, Aim.LEADERS)


def _ways(brokers: list[int], factor: int) -> Iterator[tuple[int, ...]]:
    for held in itertools.combinations(brokers, factor):
        for leader in held:
            yield (leader, *(broker for broker in held if broker != leader))


def _best(snapshot: ClusterSnapshot, removed: int | None, aims: tuple[Aim, ...], minimise: Minimise) -> Rank:
    """Return the rank of the best of all placements: violations, squares, the first figure, leader changes."""
    racks = {broker.id: broker.rack for broker in snapshot.brokers}
    targets = [broker for broker in racks if broker != removed]
    rack_count = len({racks[broker] for broker in targets})
    parts = [partition for topic in snapshot.topics for partition in topic.partitions]
    options = []
    for part in parts:
        bests = []
        for way in _ways(targets, len(part.replicas)):
            fresh = len(set(way) - set(part.replicas))
            weight = 1 if minimise is Minimise.MOVES else part.replica_logs[0].size_bytes
            violations = min(len(way), rack_count) - len({racks[broker] for broker in way})
            bests.append((way, max(0, violations), fresh * weight, way[0] != part.replicas[0]))
        options.append(bests)
    best: Rank | None = None
    for chosen in itertools.product(*options):
        replicas, leaders = dict.fromkeys(targets, 0), dict.fromkeys(targets, 0)
        violations = cost = changes = 0
        for way, shared, weight, is_changed in chosen:
            for broker in way:
                replicas[broker] += 1
            leaders[way[0]] += 1
            violations, cost, changes = violations + shared, cost + weight, changes + is_changed
        squares = [
            sum(n * n for n in counts.values()) if aim in aims else 0
            for aim, counts in ((Aim.REPLICAS, replicas), (Aim.LEADERS, leaders))
        ]
        rank = (violations, *squares, cost, changes)
        best = rank if best is None or rank < best else best
    assert best is not None
    return best


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("minimise", Minimise)
def test_no_placement_is_better(seed: int, minimise: Minimise) -> None:
    snapshot = drawn_cluster(seed, brokers=4, racks=1 + seed % 3, partitions=4, factor=2)
    is_removal = seed % 4 == 3
    aims = (LEVEL, (Aim.REPLICAS,), (Aim.LEADERS,))[seed % 3]
    strategy = Strategy.DECOMMISSION if is_removal else Strategy.REBALANCE
    options = PlanOptions(brokers=(4,) if is_removal else (), aim=aims, minimise=minimise)
    score = make_plan(snapshot, strategy, options).plan.klamm.score
    rows = [row for row in score.brokers if not (is_removal and row.broker == 4)]
    rank = (
        score.after.rack_violations,
        sum(row.replicas_after**2 for row in rows) if Aim.REPLICAS in aims else 0,
        sum(row.leaders_after**2 for row in rows) if Aim.LEADERS in aims else 0,
        score.moves if minimise is Minimise.MOVES else score.bytes,
        score.leader_changes,
    )
    assert rank == _best(snapshot, 4 if is_removal else None, aims, minimise)
    assert score.is_optimal


SHAPES = [(6, 3, 40, 3), (5, 2, 30, 3), (7, 3, 40, 2), (6, 1, 30, 2), (5, 4, 30, 3), (4, 2, 20, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strategy", [Strategy.REBALANCE, Strategy.DECOMMISSION, Strategy.RACKS, Strategy.LEADERS])
def test_bounds_hold_and_the_way_back_leads_back(shape: tuple[int, int, int, int], strategy: Strategy) -> None:
    brokers, racks, partitions, factor = shape
    snapshot = drawn_cluster(brokers, brokers=brokers, racks=racks, partitions=partitions, factor=factor)
    options = PlanOptions(brokers=(2,) if strategy is Strategy.DECOMMISSION else ())
    plan = make_plan(snapshot, strategy, options).plan
    score, bound = plan.klamm.score, plan.klamm.score.lower_bound
    assert score.bytes is not None
    assert bound.bytes is not None
    assert score.moves >= bound.moves
    assert score.bytes >= bound.bytes
    assert score.leader_changes >= bound.leader_changes
    assert score.is_optimal
    assert score.after.rack_violations <= score.before.rack_violations
    result = applied(snapshot, plan.partitions)
    assert applied(result, plan.klamm.rollback) == snapshot


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strategy", [Strategy.REBALANCE, Strategy.RACKS, Strategy.LEADERS])
def test_planning_again_changes_nothing(shape: tuple[int, int, int, int], strategy: Strategy) -> None:
    brokers, racks, partitions, factor = shape
    snapshot = drawn_cluster(brokers + 50, brokers=brokers, racks=racks, partitions=partitions, factor=factor)
    plan = make_plan(snapshot, strategy, PlanOptions()).plan
    again = make_plan(applied(snapshot, plan.partitions), strategy, PlanOptions()).plan
    assert again.partitions == ()
    assert (again.klamm.score.gap, again.klamm.score.is_optimal) == (0.0, True)


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    """In this process, and in others whose hashes are random."""
    snapshot = drawn_cluster(3, brokers=9, racks=3, partitions=90, factor=3)
    file = tmp_path / "snapshot.json"
    file.write_text(snapshot_to_json(snapshot), encoding="utf-8")
    texts = {encode_plan(make_plan(snapshot, Strategy.REBALANCE, PlanOptions()).plan)}
    for seed in ("0", "77"):
        out = tmp_path / f"{seed}.json"
        words = ("plan", "rebalance", "--snapshot", str(file), "--out", str(out), "-q")
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-m", "klamm", *words], check=True, capture_output=True, env=environment)
        texts.add(out.read_text("utf-8"))
    assert len(texts) == 1


def test_without_the_solver_there_is_a_plan_and_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_solver(monkeypatch)
    snapshot = drawn_cluster(1, brokers=9, racks=3, partitions=90, factor=3)
    made = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(minimise=Minimise.BYTES))
    score = made.plan.klamm.score
    assert any("pip install 'klamm[plan]'" in note for note in made.notes)
    assert score.solver == "heuristic"
    assert not score.is_optimal
    assert score.gap is not None
    assert score.after.rack_violations == 0
    assert score.after.replica_range <= 1
    assert score.after.leader_range <= 1


def test_a_time_limit_bounds_the_work_and_not_the_outcome_of_a_race() -> None:
    snapshot = drawn_cluster(1, brokers=9, racks=3, partitions=90, factor=3)
    texts = {
        encode_plan(make_plan(snapshot, Strategy.REBALANCE, PlanOptions(time_limit_s=limit)).plan)
        for limit in (0.0, 0.0)
    }
    assert len(texts) == 1
    assert '"solver": "heuristic"' in texts.pop()


def test_a_run_that_is_cut_short_ends_at_the_same_step() -> None:
    """The cut comes in the middle of the solver's work.

    A rerun uses less of it, keeps the aim, and gives the same bytes.
    """
    snapshot = drawn_cluster(1, brokers=9, racks=3, partitions=90, factor=3)
    options = PlanOptions(aim=(Aim.REPLICAS, Aim.BYTES), minimise=Minimise.BYTES)
    whole = make_plan(snapshot, Strategy.REBALANCE, options).plan.klamm.score
    cut = replace(options, time_limit_s=0.05)
    plans = [make_plan(snapshot, Strategy.REBALANCE, cut).plan for _ in range(2)]
    assert encode_plan(plans[0]) == encode_plan(plans[1])
    score = plans[0].klamm.score
    assert (score.solver, score.after.replica_range) == ("highs", whole.after.replica_range)
    assert score.gap is not None
    assert whole.gap is not None
    assert (score.gap, score.leader_changes) > (whole.gap, whole.leader_changes)


def test_a_large_program_over_columns_is_left_out_if_the_start_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS would take minutes between two checks of its limits."""
    pytest.importorskip("highspy")
    from plans import column_program
    from plans.columns import model_of

    monkeypatch.setattr(column_program.Nearby, "run", lambda search: None)
    snapshot = drawn_cluster(1, brokers=9, racks=3, partitions=120, factor=2)
    options = PlanOptions(aim=(Aim.BYTES,), minimise=Minimise.BYTES)
    problem = build_problem(snapshot, Strategy.REBALANCE, options).problem
    limits = byte_limits(problem)
    start = construct(problem, None, None, Forcing(problem).sets(), limits, Work(0))
    model = model_of(problem, None, None, limits.rows(problem))
    for most, is_good, is_left_out in ((10**9, True, False), (1, False, False), (1, True, True)):
        monkeypatch.setattr(column_program, "ENTRIES_MAX", most)
        outcome = column_program.Search(model, start, is_good, Work(3_000), lambda _: None).run()
        assert (outcome.solution is None) is is_left_out


@pytest.mark.parametrize("minimise", Minimise)
def test_within_a_cap_a_large_program_has_fewer_choices_and_finds_as_much(
    minimise: Minimise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A linear program, whose steps can be counted, finds which brokers matter to which partition."""
    pytest.importorskip("highspy")
    from plans import capped_program, capping

    sizes: list[int] = []
    as_ever = capped_program.run_limited

    def watched(solver: Any, work: Work, share: int = 1) -> None:
        sizes.append(solver.getNumNz())
        as_ever(solver, work, share)

    monkeypatch.setattr(capped_program, "run_limited", watched)
    snapshot = drawn_cluster(1, brokers=12, racks=3, partitions=80, factor=2)
    options = PlanOptions(aim=LEVEL, minimise=minimise, max_moves=10)
    every = make_plan(snapshot, Strategy.REBALANCE, options).plan.klamm.score
    whole = min(sizes)
    sizes.clear()
    monkeypatch.setattr(capping, "_WHOLE_MAX", 0)
    monkeypatch.setattr(capping, "_PROMISING", 0)
    plans = [make_plan(snapshot, Strategy.REBALANCE, options).plan for _ in range(2)]
    assert sizes and max(sizes) < whole / 2
    assert encode_plan(plans[0]) == encode_plan(plans[1])
    few = plans[0].klamm.score
    assert 0 < few.moves <= 10
    left = [(plan.remaining_moves, plan.after.rack_violations, plan.after.leader_range) for plan in (few, every)]
    assert left[0] == left[1]
