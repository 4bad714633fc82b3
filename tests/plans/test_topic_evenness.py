"""Topics are spread by swaps that cost nothing."""

from dataclasses import replace

import pytest
from plan_scenarios import scenario

import plans.solving
from plans.options import Aim, Minimise, PlanOptions, Strategy
from plans.planning import make_plan

LEVEL = (Aim.REPLICAS, Aim.LEADERS)


@pytest.mark.parametrize(
    ("name", "strategy", "options"),
    [
        ("s6_rf2to3", Strategy.FACTOR, PlanOptions(replication_factor=3, aim=LEVEL, minimise=Minimise.MOVES)),
        ("s5_rebalance_skew", Strategy.REBALANCE, PlanOptions(minimise=Minimise.MOVES)),
    ],
)
def test_swaps_spread_topics_and_change_no_figure(
    name: str, strategy: Strategy, options: PlanOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = scenario(name)
    spread = make_plan(snapshot, strategy, options).plan.klamm.score
    monkeypatch.setattr(plans.solving, "spread_topics", lambda problem, solution: solution)
    plain = make_plan(snapshot, strategy, options).plan.klamm.score
    assert spread.after.topic_excess < plain.after.topic_excess
    same = {"topic_excess": 0, "bytes_cv": None}
    assert replace(spread.after, **same) == replace(plain.after, **same)
    figures = [(plan.moves, plan.bytes, plan.leader_changes, plan.is_optimal) for plan in (spread, plain)]
    assert figures[0] == figures[1]
    counts = [
        [(row.replicas_after, row.leaders_after, row.replicas_in) for row in plan.brokers] for plan in (spread, plain)
    ]
    assert counts[0] == counts[1]
