"""The search near the linear program's answer: what a round frees, what it may decide, and where it ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import pytest
from small_clusters import cluster, drawn_cluster

from plans.loads import byte_limits
from plans.options import Aim, Minimise, PlanOptions, Strategy
from plans.planning import make_plan
from plans.problem_building import build_problem
from plans.work import Work

np = pytest.importorskip("numpy")
pytest.importorskip("highspy")

from plans.columns import Column, Floats, Model, Row, model_of  # noqa: E402
from plans.nearby_program import Bools, Layout, Nearby, Pairs, RoundProgram  # noqa: E402

RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
REPLICAS, LEADERS, BYTES = Aim.REPLICAS, Aim.LEADERS, Aim.BYTES


def model(
    lists: list[tuple[int, ...]],
    rows: list[Row],
    *,
    sizes: list[int] | None = None,
    minimise: Minimise = Minimise.MOVES,
    racks: dict[int, str] = RACKS,
    pins: tuple[str, ...] = (),
) -> Model:
    """Return a model of a topic with these replicas, with rows of its own. Brokers count from 0 in rows."""
    snapshot = cluster(racks, {"t": lists}, {"t": sizes or [10] * len(lists)})
    options = PlanOptions(aim=(REPLICAS,), minimise=minimise, pins=pins)
    problem_model = model_of(build_problem(snapshot, Strategy.REBALANCE, options).problem, None, None, [])
    unit = problem_model.size_unit
    problem_model.rows = [
        replace(row, low=row.low / unit, high=row.high / unit) if row.kind is BYTES else row for row in rows
    ]
    return problem_model


def column(number: int, *brokers: int) -> Column:
    """Return a column; the first broker leads."""
    return number, sum(1 << b for b in brokers), brokers[0]


def as_is(case: Model) -> Layout:
    parts = [case.problem.partitions[index] for index in case.problem.movable]
    return Layout.of(case, [column(number, *part.current) for number, part in enumerate(parts)])


def held(layout: Layout) -> list[tuple[int, ...]]:
    return [tuple(np.flatnonzero(line).tolist()) for line in layout.held]


class TestLayout:
    def test_it_has_the_replicas_and_leaders_of_its_columns(self) -> None:
        layout = Layout.of(model([(1, 3), (2, 5)], []), [column(1, 5, 0), column(0, 2, 1)])
        assert held(layout) == [(1, 2), (0, 5)]
        assert layout.leaders.tolist() == [2, 5]

    def test_the_sums_of_rows_count_replicas_leaders_and_sizes(self) -> None:
        rows = [Row(REPLICAS, (0, 1), 0, 9), Row(LEADERS, (0,), 0, 9), Row(BYTES, (2,), 0, 9)]
        case = model([(1, 3), (2, 3), (1, 5)], rows, sizes=[10, 20, 60])
        assert as_is(case).sums(case) == [3.0, 2.0, 1.0]
        assert as_is(case).sums(case, np.array([1])) == [1.0, 0.0, pytest.approx(2 / 3)]

    def test_rows_at_their_limits_are_kept_to_the_byte(self) -> None:
        """In units such sums have rounding errors; one byte more is a breach however large the others are."""
        sizes = [10**9 + 7, 3 * 10**9 + 1, 7 * 10**11 + 3]
        for less, is_broken in ((0, False), (1, True)):
            case = model([(1, 3)] * 3, [Row(BYTES, (0,), 0, sum(sizes) - less)], sizes=sizes)
            assert (as_is(case).breach(case) > 0) is is_broken

    def test_a_breach_is_what_rows_lack_or_have_too_much(self) -> None:
        rows = [Row(REPLICAS, (0,), 0, 1), Row(REPLICAS, (3,), 2, 5), Row(BYTES, (0,), 0, 15)]
        case = model([(1, 3), (1, 3), (1, 5)], rows)
        assert as_is(case).breach(case) == 2 + 2 + 1.5

    def test_the_first_figure_is_what_is_copied(self) -> None:
        lists, sizes = [(1, 3), (2, 3)], [10, 30]
        changed = [column(0, 3, 1), column(1, 0, 4)]
        for minimise, wanted in ((Minimise.MOVES, 4), (Minimise.BYTES, 80)):
            case = model(lists, [], sizes=sizes, minimise=minimise)
            layout = Layout.of(case, changed)
            assert (layout.first(case), layout.leader_changes(case), as_is(case).first(case)) == (wanted, 2, 0)

    def test_leaders_without_rows_stay_where_they_can(self) -> None:
        """The round's program does not decide them then."""
        for rows, leaders in (([], (0, 4)), ([Row(LEADERS, (0,), 0, 9)], (2, 4))):
            case = model([(1, 3), (2, 3)], list(rows))
            solution = Layout.of(case, [column(0, 2, 0), column(1, 4, 5)]).solution(case)
            assert (solution.held, solution.leaders) == ((0b101, 0b110000), leaders)


def noise(case: Model) -> Floats:
    """Return as little as decides between equal changes."""
    random_noise: Floats = np.random.RandomState(0).random_sample(case.is_held.shape) * 1e-6
    return random_noise


class TestPairs:
    def freed(self, case: Model, prices: list[float], most: int, now: Layout | None = None) -> set[tuple[int, int]]:
        """Return the pairs that are freed beyond what the layout and the cluster hold."""
        now = now or as_is(case)
        cells = Pairs(case, np.array(prices), 1.0).freed(now, most, noise(case))
        return set(zip(*map(list, np.nonzero(cells & ~now.held & ~case.is_held)), strict=True))

    def test_the_cheapest_changes_come_first(self) -> None:
        """A price is what a row pays for one more. Without prices, every copy costs the same."""
        case = model([(1, 3), (2, 3)], [Row(REPLICAS, (b,), 0, 9) for b in (0, 4, 5)])
        assert self.freed(case, [-0.5, 0.6, 0.3], 1) == {(0, 4)}
        assert self.freed(case, [-0.5, 0.6, 0.3], 2) == {(0, 4), (0, 5)}
        assert self.freed(case, [0.0, 0.0, 0.3], 2) == {(0, 5), (1, 5)}

    def test_a_replica_takes_the_place_of_the_one_in_its_rack(self) -> None:
        """Broker 2 is in the rack of broker 1, which is cheap to keep; the dear one is elsewhere."""
        case = model([(1, 3)], [Row(REPLICAS, (b,), 0, 9) for b in range(6)])
        assert self.freed(case, [0.9, 0.9, -0.9, 0.5, 0.6, 0.0], 1) == {(0, 4)}
        assert self.freed(case, [-0.9, 0.9, 0.9, 0.5, 0.6, 0.0], 1) == {(0, 1)}

    def test_where_racks_may_be_shared_it_takes_the_place_of_the_dearest(self) -> None:
        case = model([(1, 2, 3)], [Row(REPLICAS, (b,), 0, 9) for b in range(4)], racks={1: "a", 2: "a", 3: "b", 4: "b"})
        assert case.shared.tolist() == [1]
        assert self.freed(case, [-0.9, 0.0, 0.0, 0.5], 1) == {(0, 3)}

    def test_what_is_held_now_and_was_held_before_is_free_too(self) -> None:
        case = model([(1, 3)], [Row(REPLICAS, (4,), 0, 9)])
        now = Layout.of(case, [column(0, 1, 3)])
        cells = Pairs(case, np.array([0.5]), 1.0).freed(now, 1, noise(case))
        assert np.flatnonzero(cells[0]).tolist() == [0, 1, 2, 3]

    def test_partitions_that_no_cheap_change_concerns_are_left_alone(self) -> None:
        case = model([(1, 3), (2, 5), (4, 6)], [Row(REPLICAS, (0,), 0, 9), Row(REPLICAS, (4,), 0, 9)])
        cells = Pairs(case, np.array([-0.5, 0.4]), 1.0).freed(as_is(case), 1, noise(case))
        assert cells.any(axis=1).tolist() == [True, False, False]

    def test_a_row_that_is_not_kept_draws_changes_to_it(self) -> None:
        """From a broker that has too much, and to one that has too little."""
        lists: list[tuple[int, ...]] = [(1, 3)] * 20 + [(2, 5)]
        full = model(lists, [Row(REPLICAS, (1,), 0, 0)])
        assert {number for number, _ in self.freed(full, [0.0], 2)} >= {20}
        empty = model(lists, [Row(REPLICAS, (3,), 1, 9)])
        assert {broker for _, broker in self.freed(empty, [0.0], 2)} >= {3}

    def test_a_partition_has_a_few_targets_only(self) -> None:
        """Else the cheapest changes could be those of one partition, and there would be nothing to exchange it for."""
        racks = {b: f"r{b}" for b in range(1, 9)}
        case = model([(1,), (2,)], [Row(REPLICAS, (0,), 0, 9)], racks=racks)
        freed = self.freed(case, [-0.5], 6)
        assert [sum(number == n for number, _ in freed) for n in (0, 1)] == [3, 3]

    def test_another_leader_is_a_change_as_well(self) -> None:
        case = model([(1, 3), (2, 5)], [Row(LEADERS, (b,), 0, 9) for b in range(6)])
        cells = Pairs(case, np.array([0.0, -0.5, 0.0, 0.0, 0.5, 0.0]), 1.0).freed(as_is(case), 1, noise(case))
        assert cells.any(axis=1).tolist() == [False, True]

    def test_pinned_replicas_and_forbidden_brokers_are_never_chosen(self) -> None:
        snapshot = drawn_cluster(5, brokers=8, racks=4, partitions=20, factor=2)
        options = PlanOptions(brokers=(7, 8), aim=(REPLICAS,))
        case = model_of(build_problem(snapshot, Strategy.EXPAND, options).problem, None, None, [])
        cells = Pairs(case, np.zeros(0), 1.0).freed(as_is(case), 1000, noise(case))
        assert not (cells & ~case.allowed & ~case.is_held).any()
        assert {b for _, b in self.freed(case, [], 1000)} <= {6, 7}


def costs(case: Model, layout: Layout) -> tuple[int, int]:
    return layout.first(case), layout.leader_changes(case)


def rounded(case: Model, now: Layout, cells: Bools | None = None, breach_cost: float | None = 20.0) -> Layout:
    """Return what a round makes of a layout if these pairs are free, all of them by default."""
    every = case.allowed | now.held if cells is None else cells
    program = RoundProgram(case, now, every, max(1.0, float(case.weight.mean())), breach_cost, Work(10**6))
    solution, is_solved = program.run()
    assert is_solved
    return solution


class TestRoundProgram:
    def test_it_finds_the_least_of_all_placements(self) -> None:
        """Against every placement of a few partitions; the rows are tight."""
        lists = [(1, 3), (1, 3), (1, 5), (2, 5)]
        rows = [*(Row(REPLICAS, (b,), 1, 2) for b in range(6)), *(Row(LEADERS, (b,), 0, 1) for b in range(6))]
        case = model(lists, rows, sizes=[10, 20, 30, 40], minimise=Minimise.BYTES)
        ways = [(a, b) for a, b in combinations(range(6), 2) if a // 2 != b // 2]
        led = [(*way, leader) for way in ways for leader in way]
        best = min(
            costs(case, layout)
            for chosen in product(led, repeat=4)
            if sum(case.is_held[n, b] for n, way in enumerate(chosen) for b in way[:2]) >= 6
            for layout in [Layout.of(case, [(n, 1 << a | 1 << b, leader) for n, (a, b, leader) in enumerate(chosen)])]
            if not layout.breach(case)
        )
        solution = rounded(case, as_is(case))
        assert not solution.breach(case)
        assert costs(case, solution) == best

    def test_partitions_without_free_pairs_stay(self) -> None:
        case = model([(1, 3), (1, 3), (1, 5)], [Row(REPLICAS, (0,), 0, 1)])
        cells = np.zeros_like(case.allowed)
        cells[[0, 2]] = True
        solution = rounded(case, as_is(case), cells)
        assert held(solution)[1] == (0, 2)
        assert not solution.breach(case)

    def test_only_free_pairs_are_used(self) -> None:
        case = model([(1, 3)], [Row(REPLICAS, (0,), 0, 0)])
        cells = as_is(case).held.copy()
        cells[0, 5] = True
        assert held(rounded(case, as_is(case), cells)) == [(2, 5)]

    def test_no_rack_holds_two_unless_they_may_share(self) -> None:
        rows = [Row(REPLICAS, (0,), 0, 0), Row(REPLICAS, (1, 4, 5), 0, 0)]
        case = model([(1, 3)], rows)
        solution = rounded(case, as_is(case))
        assert solution.breach(case) > 0, "broker 4 shares the rack of broker 3"
        shared = model([(1, 2, 3)], [Row(REPLICAS, (0,), 0, 0)], racks={1: "a", 2: "a", 3: "b", 4: "b"})
        assert held(rounded(shared, as_is(shared))) == [(1, 2, 3)]

    def test_as_many_racks_are_used_as_there_must_be(self) -> None:
        """Four replicas in three racks: one rack is shared, and no more."""
        case = model([(1, 2, 3, 5)], [Row(REPLICAS, (4, 5), 0, 0)])
        assert case.shared.tolist() == [1]
        solution = rounded(case, as_is(case))
        assert {b // 2 for b in held(solution)[0]} == {0, 1, 2}

    def test_the_leader_is_one_of_the_replicas(self) -> None:
        rows = [Row(LEADERS, (0, 2), 0, 0), Row(REPLICAS, (0,), 1, 1)]
        case = model([(1, 3)], rows)
        solution = rounded(case, as_is(case))
        assert solution.held[0, solution.leaders[0]]
        assert held(solution) != [(0, 2)]
        assert not solution.breach(case)

    def test_rows_may_be_broken_if_they_are_now(self) -> None:
        """As little as possible; a breach costs more than copies do, up to its price."""
        case = model([(1, 3)] * 2, [Row(REPLICAS, (0, 1), 0, 0), Row(REPLICAS, (4, 5), 0, 1)])
        assert as_is(case).breach(case) == 2
        assert rounded(case, as_is(case)).breach(case) == 1
        assert held(rounded(case, as_is(case), breach_cost=0.5)) == held(as_is(case))

    def test_rows_of_bytes_are_kept_to_the_byte(self) -> None:
        """Broker 1 may hold all but one byte of what it has: something goes, the least that is enough."""
        sizes = [10**9 + n * n for n in range(6)]
        case = model([(1, 3)] * 6, [Row(BYTES, (0,), 0, sum(sizes) - 1)], sizes=sizes, minimise=Minimise.BYTES)
        solution = rounded(case, as_is(case), breach_cost=None)
        assert not solution.breach(case)
        assert solution.first(case) == sizes[0]


def nearby(case: Model, prices: list[float], placed: Layout, start: Layout | None = None, work: int = 10**6) -> Nearby:
    def columns(layout: Layout) -> list[Column]:
        return [(n, sum(1 << b for b in line), int(layout.leaders[n])) for n, line in enumerate(held(layout))]

    start_columns = None if start is None else columns(start)
    return Nearby(case, np.array(prices), columns(placed), start_columns, Work(work), lambda _: None)


ROWS = [Row(REPLICAS, (b,), 1, 2) for b in range(6)]
LISTS: list[tuple[int, ...]] = [(1, 3), (1, 3), (1, 5), (1, 5), (3, 5)]


class TestSearch:
    def test_it_repairs_a_layout_that_breaks_rows(self) -> None:
        case = model(LISTS, ROWS)
        solution = nearby(case, [0.0] * 6, as_is(case)).run()
        assert solution is not None
        counts = [sum(mask >> b & 1 for mask in solution.held) for b in range(6)]
        assert all(1 <= count <= 2 for count in counts)

    def test_it_returns_nothing_that_breaks_rows(self) -> None:
        rows = [Row(REPLICAS, (b,), 0, 1) for b in range(6)]
        case = model(LISTS, rows)
        assert nearby(case, [0.0] * 6, as_is(case)).run() is None

    def test_without_work_there_is_no_search(self) -> None:
        case = model(LISTS, ROWS)
        assert nearby(case, [0.0] * 6, as_is(case), work=0).run() is None

    def test_it_starts_again_from_a_plan_that_keeps_the_rows(self) -> None:
        """If it gets nowhere from the linear program's answer."""
        case = model(LISTS, ROWS)
        good = Layout.of(case, [column(0, 0, 2), column(1, 1, 3), column(2, 0, 4), column(3, 1, 5), column(4, 2, 5)])
        assert not good.breach(case)
        search = nearby(case, [0.0] * 6, as_is(case), good, work=0)
        solution = search.run()
        assert solution is not None
        assert solution.held == good.solution(case).held

    def test_it_takes_no_more_work_than_it_has(self) -> None:
        snapshot = drawn_cluster(13, brokers=10, racks=5, partitions=120, factor=3)
        options = PlanOptions(aim=tuple(Aim), minimise=Minimise.BYTES)
        problem = build_problem(snapshot, Strategy.REBALANCE, options).problem
        rows = byte_limits(problem).rows(problem)
        case = model_of(problem, None, None, rows)
        search = nearby(case, [0.0] * len(rows), as_is(case), work=400)
        search.run()
        assert search.work.left > -400


def test_a_drawn_cluster_level_by_bytes_ends_near_its_bound() -> None:
    """Without this search it would end 0.0008 from it."""
    snapshot = drawn_cluster(103, brokers=12, racks=4, partitions=180, factor=2)
    options = PlanOptions(aim=tuple(Aim), minimise=Minimise.BYTES, time_limit_s=2.0)
    score = make_plan(snapshot, Strategy.REBALANCE, options).plan.klamm.score
    assert score.gap is not None
    assert score.gap < 0.0005


def test_without_work_no_round_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []

    def begin(*given: object) -> RoundProgram:
        begun.append(given)
        return RoundProgram(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("plans.nearby_program.RoundProgram", begin)
    case = model([(1, 3), (1, 3)], [Row(REPLICAS, (0,), 0, 1)])
    placed = [column(0, 0, 2), column(1, 0, 2)]
    solutions = [Nearby(case, np.zeros(1), placed, None, Work(steps), lambda _: None).run() for steps in (0, 10_000)]
    assert (solutions[0], solutions[1] is None) == (None, False)
    assert begun
    begun.clear()
    Nearby(case, np.zeros(1), placed, None, Work(0), lambda _: None).run()
    assert begun == []
