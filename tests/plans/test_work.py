"""The work that a plan may take: one limit for all its parts."""

from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from small_clusters import applied, drawn_cluster, skewed_cluster

from plans.loads import byte_limits, held_bytes
from plans.options import Aim, Minimise, PlanOptions, Strategy
from plans.planning import make_plan
from plans.problem_building import build_problem
from plans.solving import solve
from plans.work import Work


def test_a_part_spends_of_the_whole_but_never_what_other_parts_have() -> None:
    work = Work(100)
    first = work.part(40)
    first.spend(30)
    assert (work.left, first.is_over) == (70, False)
    first.spend(500)
    assert (work.left, first.is_over) == (60, True)
    first.spend(5)
    assert (work.left, work.part(1000).left, work.whole) == (60, 60, 100)


def test_the_solver_is_silent_before_its_callbacks_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS 1.16 greets on stdout when they are turned on, and stdout is for data."""
    highspy = pytest.importorskip("highspy")
    from plans.highs import new_solver

    turn_on, seen = highspy.Highs.enableCallbacks, []

    def noted(solver: Any) -> None:
        seen.append(solver.getOptionValue("output_flag")[1])
        turn_on(solver)

    monkeypatch.setattr(highspy.Highs, "enableCallbacks", noted)
    new_solver()
    assert seen == [False]


def test_all_rounds_of_a_plan_share_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second round gets what the first one leaves, and no limit of its own."""
    pytest.importorskip("highspy")
    limits: list[Work] = []
    rounds: list[int] = []
    within = Work.within

    def limited(seconds: float | None, partitions: int) -> Work:
        limits.append(within(seconds, partitions))
        return limits[-1]

    def watched(problem: Any, limits: Any, work: Work, *rest: Any, **options: Any) -> Any:
        rounds.append(work.left)
        return solve(problem, limits, work, *rest, **options)

    monkeypatch.setattr(Work, "within", limited)
    monkeypatch.setattr("plans.planning.solve", watched)
    snapshot = drawn_cluster(3, brokers=6, racks=3, partitions=20, factor=2)
    options = PlanOptions(aim=(Aim.BYTES,), minimise=Minimise.BYTES, tolerance_percent=0.01, time_limit_s=0.1)
    plan = make_plan(snapshot, Strategy.REBALANCE, options).plan
    (limit,) = limits
    assert limit.left >= 0
    assert len(rounds) > 1
    assert rounds[0] == limit.whole > rounds[1] == limit.whole - limit.whole // 3, "the first round is cut short"
    monkeypatch.undo()
    assert not make_plan(applied(snapshot, plan.partitions), Strategy.REBALANCE, options).plan.partitions


def test_the_construction_examines_no_more_exchanges_than_the_work_allows() -> None:
    """In all rounds together; a plan that is cut short is the same every time."""
    snapshot = drawn_cluster(3, brokers=9, racks=3, partitions=90, factor=2)
    options = PlanOptions(aim=(Aim.BYTES,), minimise=Minimise.BYTES, tolerance_percent=0.01)
    problem = build_problem(snapshot, Strategy.REBALANCE, options).problem
    limits = byte_limits(problem)
    lists = []
    for allowed in (3_000, 3_000, 300_000):
        work = Work(0, exchanges=allowed)
        lists.append(solve(problem, limits, work, lambda _: None).after)
        assert 0 <= work.exchanges < allowed
        if allowed == 3_000:
            assert work.exchanges == 0
    off = [limits.violation(held_bytes(problem, after)) for after in lists]
    assert lists[0] == lists[1]
    assert off[0] > off[2]


def test_a_large_program_ends_after_some_looks_without_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a better result nor a better bound; before there is a bound, no look counts.

    If there is a result, a better one is waited for longer.
    """
    pytest.importorskip("highspy")
    from plans import column_program

    monkeypatch.setattr(column_program, "_PATIENCE", 3)
    monkeypatch.setattr(column_program, "_PATIENCE_FOUND", 5)
    still = column_program._Standstill()
    looks = [(inf, -inf)] * 5 + [(inf, 89.0)] * 3 + [(inf, 90.0)] * 3 + [(100.0, 90.0)] * 5 + [(100.0, 91.0)] * 5
    assert not any(still.is_over(*look) for look in looks)
    assert [still.is_over(100.0, 91.0 + small) for small in (1e-7, 2e-7)] == [True, True]
    empty = column_program._Standstill()
    assert [empty.is_over(inf, 90.0) for _ in range(4)] == [False, False, False, True]


def test_a_plan_by_bytes_copies_no_more_than_the_one_by_moves() -> None:
    """Also where the work ends the search before its bound is reached."""
    pytest.importorskip("highspy")
    snapshot = drawn_cluster(9, brokers=16, racks=4, partitions=500, factor=3)
    by_bytes, by_moves = (
        make_plan(
            snapshot, Strategy.REBALANCE, PlanOptions(aim=tuple(Aim), minimise=aim, time_limit_s=6.0)
        ).plan.klamm.score
        for aim in (Minimise.BYTES, Minimise.MOVES)
    )
    assert by_bytes.bytes is not None
    assert by_moves.bytes is not None
    assert by_bytes.bytes <= by_moves.bytes
    assert by_bytes.moves >= by_moves.moves


def test_a_plan_by_bytes_with_little_work_meets_the_aim_as_the_one_by_moves_does() -> None:
    """Its own search left 2,857 bytes above the brokers' shares, which the search by moves levels in the same time."""
    pytest.importorskip("highspy")
    snapshot = drawn_cluster(21, brokers=16, racks=4, partitions=500, factor=3)
    by_bytes, by_moves = (
        make_plan(
            snapshot, Strategy.REBALANCE, PlanOptions(aim=tuple(Aim), minimise=aim, time_limit_s=0.7)
        ).plan.klamm.score
        for aim in (Minimise.BYTES, Minimise.MOVES)
    )
    assert by_bytes.remaining_bytes == by_moves.remaining_bytes == 0
    assert by_bytes.bytes is not None
    assert by_moves.bytes is not None
    assert by_bytes.bytes <= by_moves.bytes


def test_the_linear_program_of_a_large_cluster_ends_within_the_work() -> None:
    """All three aims together, with little work: the fewest moves are found and proven, as each step counts little."""
    pytest.importorskip("highspy")
    snapshot = drawn_cluster(13, brokers=24, racks=4, partitions=900, factor=3)
    options = PlanOptions(aim=tuple(Aim), minimise=Minimise.MOVES, time_limit_s=6.0)
    score = make_plan(snapshot, Strategy.REBALANCE, options).plan.klamm.score
    assert (score.moves, score.lower_bound.moves, score.gap) == (783, 783, 0.0)


@pytest.mark.parametrize(
    ("seed", "shape", "minimise", "limit_s"),
    [(13, (12, 4, 150, 3), Minimise.MOVES, 0.2), (5, (9, 3, 60, 2), Minimise.BYTES, 0.1)],
)
def test_a_cap_that_the_whole_plan_keeps_changes_nothing(
    seed: int, shape: tuple[int, int, int, int], minimise: Minimise, limit_s: float
) -> None:
    """Also where the work ends the search: under a cap it may take as much. With half of it, the plan would differ."""
    brokers, racks, partitions, factor = shape
    snapshot = drawn_cluster(seed, brokers=brokers, racks=racks, partitions=partitions, factor=factor)
    options = PlanOptions(aim=tuple(Aim), minimise=minimise, time_limit_s=limit_s)
    whole = make_plan(snapshot, Strategy.REBALANCE, options).plan
    score = whole.klamm.score
    assert not score.is_optimal, "the work ends the search"
    for capped in (replace(options, max_moves=score.moves), replace(options, max_bytes=score.bytes)):
        plan = make_plan(snapshot, Strategy.REBALANCE, capped).plan
        assert plan.klamm.score.remaining_moves == 0
        assert plan.partitions == whole.partitions


def test_a_look_may_cost_more_or_less_than_the_size_says() -> None:
    highspy = pytest.importorskip("highspy")
    from plans.highs import new_solver, run_limited

    spent = []
    for cost in (1.0, 3.0):
        work, solver = Work(10_000), new_solver()
        solver.addVars(30, [0.0] * 30, [1.0] * 30)
        for number in range(30):
            solver.changeColIntegrality(number, highspy.HighsVarType.kInteger)
            solver.changeColCost(number, -1.0 - number % 7 / 10)
        for shift in range(5):
            values = [float(3 + (n * (shift + 3)) % 11) for n in range(30)]
            solver.addRow(0.0, 60.5, 30, list(range(30)), values)
        run_limited(solver, work, look_cost=cost)
        spent.append(10_000 - work.left)
    assert 0 < 3 * spent[0] == spent[1]


class _Looking:
    """A solver that looks at its limits until somebody interrupts it, and has a result from one look on."""

    def __init__(self, found_at: float) -> None:
        self.looks = 0
        self._found_at = found_at
        self._called: list[Any] = []
        self._is_over = False
        self.cbMipInterrupt = self

    def __iadd__(self, called: Any) -> "_Looking":
        self._called.append(called)
        return self

    def __isub__(self, called: Any) -> "_Looking":
        self._called.remove(called)
        return self

    def getNumNz(self) -> int:
        return 1

    def interrupt(self) -> None:
        self._is_over = True

    def run(self) -> None:
        while not self._is_over:
            self.looks += 1
            cost = 5.0 if self.looks >= self._found_at else inf
            event = SimpleNamespace(mip_primal_bound=cost, mip_dual_bound=1.0)
            self._called[0](SimpleNamespace(data_out=event, interrupt=self.interrupt))


@pytest.mark.parametrize(("found_at", "looks"), [(inf, 51), (50, 101), (52, 51)])
def test_a_program_without_a_result_leaves_work_for_what_follows(found_at: float, looks: int) -> None:
    """With a result it goes on, for then nothing follows."""
    pytest.importorskip("highspy")
    from plans.highs import run_limited

    work, solver = Work(400), _Looking(found_at)
    run_limited(solver, work, vain_share=2)
    assert (solver.looks, work.left) == (looks, 400 - 4 * looks)


def test_a_cluster_of_sixty_brokers_is_planned_with_proof() -> None:
    """The program of leader changes has a good result after half of the work, and the best one later."""
    pytest.importorskip("highspy")
    options = PlanOptions(minimise=Minimise.MOVES)
    score = make_plan(skewed_cluster(60, 3334), Strategy.REBALANCE, options).plan.klamm.score
    assert (score.moves, score.leader_changes, score.is_optimal) == (2532, 870, True)
