"""What level means where racks, pins and targets rule out the mean: the shares of bytes, replicas and leaders."""

from __future__ import annotations

from dataclasses import replace

from small_clusters import applied, cluster, drawn_cluster

from plans.levels import fixed_counts, leader_items, levels_of
from plans.loads import byte_limits
from plans.options import Aim, Minimise, PlanOptions, Strategy
from plans.planning import make_plan
from plans.problem_building import build_problem
from plans.summary import Units, summary

UNITS = Units(lambda size: f"{size} B", str)
BYTES = PlanOptions(aim=(Aim.BYTES,), minimise=Minimise.MOVES)


def test_a_small_rack_holds_a_replica_of_every_partition() -> None:
    """Three replicas on two racks: each rack has at least one, so broker 1 has a third of all bytes."""
    snapshot = cluster(
        {1: "a", 2: "b", 3: "b", 4: "b", 5: "b"},
        {"t": [(1, 2, 3), (1, 4, 5), (1, 2, 4), (1, 3, 5)]},
        {"t": [10, 10, 10, 10]},
    )
    shares = byte_limits(build_problem(snapshot, Strategy.REBALANCE, BYTES).problem).shares
    assert shares == {0: 40.0, 1: 20.0, 2: 20.0, 3: 20.0, 4: 20.0}
    made = make_plan(snapshot, Strategy.REBALANCE, BYTES)
    assert (made.plan.partitions, made.plan.klamm.score.is_optimal) == ((), True)


def test_brokers_that_are_no_targets_leave_their_share_to_the_others() -> None:
    snapshot = cluster(dict.fromkeys((1, 2, 3, 4)), {"t": [(1,), (1,), (2,), (2,)]}, {"t": [10, 10, 10, 10]})
    options = PlanOptions(brokers=(3, 4), aim=(Aim.BYTES,), minimise=Minimise.MOVES)
    made = make_plan(snapshot, Strategy.MOVE, options)
    assert [row.bytes_after for row in made.plan.klamm.score.brokers] == [0, 0, 20, 20]


def test_what_is_pinned_is_no_reason_to_call_the_others_too_full() -> None:
    snapshot = cluster(dict.fromkeys((1, 2, 3)), {"t": [(1,), (2,), (2,), (2,)]}, {"t": [100, 10, 10, 10]})
    options = PlanOptions(aim=(Aim.BYTES,), minimise=Minimise.MOVES, pins=("t-0",), tolerance_percent=40)
    made = make_plan(snapshot, Strategy.REBALANCE, options)
    assert [row.bytes_after for row in made.plan.klamm.score.brokers] in ([100, 20, 10], [100, 10, 20])


def test_leaders_that_do_not_move_are_not_passed_on() -> None:
    """One leader may move. In the most even placements broker 1 or broker 4 has it, never 2 or 3."""
    snapshot = cluster({1: "a", 2: "b", 3: "b", 4: "b"}, {"fixed": [(2, 3), (3, 2), (3, 2)], "t": [(1, 4)]})
    options = PlanOptions(aim=(Aim.LEADERS,), exclude_topics=("fixed",), minimise=Minimise.MOVES)
    problem = build_problem(snapshot, Strategy.REBALANCE, options).problem
    levels = levels_of(problem, leader_items(problem, [0b1001]), fixed_counts(problem, leaders=True))
    assert levels.low == {0: 0, 1: 1, 2: 2, 3: 0}
    assert levels.high == {0: 1, 1: 1, 2: 2, 3: 1}


def test_the_best_that_can_be_had_is_a_plan_and_says_what_it_does_not_reach() -> None:
    snapshot = cluster(dict.fromkeys((1, 2)), {"t": [(1,), (1,), (2,)]}, {"t": [50, 20, 10]})
    made = make_plan(snapshot, Strategy.REBALANCE, BYTES)
    score = made.plan.klamm.score
    assert [row.bytes_after for row in score.brokers] == [50, 30]
    assert (score.moves, score.remaining_bytes, score.is_optimal, score.gap) == (1, 16, False, None)
    notes = " ".join(made.notes)
    assert "no plan brings bytes within 5 % of their shares" in notes
    assert "broker 1 stays 25 % away (--tolerance 25 would allow that)" in notes
    assert "t-0 alone has 50 bytes, more than any broker should hold" in notes
    assert "the best found; 16 B stay outside the tolerance" in summary(score, Minimise.MOVES, 1, UNITS)
    again = make_plan(applied(snapshot, made.plan.partitions), Strategy.REBALANCE, BYTES)
    assert again.plan.partitions == ()
    assert "comes nearer to the aim than the cluster is" in summary(again.plan.klamm.score, Minimise.MOVES, 0, UNITS)
    enough = PlanOptions(aim=(Aim.BYTES,), minimise=Minimise.MOVES, tolerance_percent=25)
    assert make_plan(snapshot, Strategy.REBALANCE, enough).plan.klamm.score.moves == 1


def test_a_cap_below_every_partition_says_what_the_whole_aim_takes() -> None:
    """It said "at least 0 moves", as it counted moves where nothing is copied."""
    snapshot = cluster(dict.fromkeys((1, 2)), {"t": [(1,), (1,), (1,)]}, {"t": [50, 50, 50]})
    options = PlanOptions(aim=(Aim.BYTES,), minimise=Minimise.BYTES, tolerance_percent=40, max_bytes=7)
    score = make_plan(snapshot, Strategy.REBALANCE, options).plan.klamm.score
    assert (score.moves, score.bytes, score.remaining_moves) == (0, 0, 1)
    assert summary(score, Minimise.BYTES, 0, UNITS).endswith("1 move is left. The whole aim takes at least 45 B.")


def test_a_search_that_was_too_short_says_how_to_search_longer() -> None:
    snapshot = drawn_cluster(0, brokers=6, racks=3, partitions=40, factor=2)
    short = replace(BYTES, tolerance_percent=1, time_limit_s=0.0)
    notes = " ".join(make_plan(snapshot, Strategy.REBALANCE, short).notes)
    assert "no plan was found that brings bytes within 1 % of their shares" in notes
    assert "a higher --time-limit searches longer" in notes
    longer = make_plan(snapshot, Strategy.REBALANCE, replace(short, time_limit_s=2.0))
    assert longer.plan.partitions


def test_which_partitions_may_move_is_counted_once() -> None:
    """Recounting them for each partition took most of the time of a large plan."""
    problem = build_problem(cluster({1: None}, {"t": [(1,)]}), Strategy.REBALANCE, PlanOptions()).problem
    assert problem.movable is problem.movable
    assert problem.remaining is problem.remaining
