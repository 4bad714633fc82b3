"""What each strategy and option does, on clusters small enough to check by eye, and the messages for bad input."""

from dataclasses import replace
from typing import Any

import pytest
from small_clusters import applied, cluster, drawn_cluster

from engine.common.model import BrokerInfo, ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot
from plans import planning
from plans.errors import BadOption, Infeasible
from plans.explaining import explanations
from plans.options import (
    Aim,
    BrokerCapacity,
    LogDirCapacity,
    Minimise,
    PlanOptions,
    Replacement,
    Strategy,
    parse_capacities,
)
from plans.plan_file import MadePlan
from plans.planning import make_plan
from plans.problem import Problem
from plans.solving import Solved

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
MOVES = Minimise.MOVES


def lists(made: MadePlan) -> dict[str, tuple[int, ...]]:
    return {str(entry.name): entry.replicas for entry in made.plan.partitions}


def test_decommission_moves_what_is_forced_and_keeps_racks() -> None:
    snapshot = cluster(RACKS, {"t": [(1, 2, 3), (4, 5, 6), (2, 1, 3)]})
    made = make_plan(snapshot, Strategy.DECOMMISSION, PlanOptions(brokers=(1,)))
    assert {name: set(replicas) for name, replicas in lists(made).items()} == {"t-0": {2, 3, 4}, "t-2": {2, 3, 4}}
    assert lists(made)["t-2"] == (2, 4, 3)
    assert (made.plan.klamm.score.moves, made.plan.klamm.score.leader_changes) == (2, 1)


def test_a_lost_leader_is_followed_by_a_replica_that_is_there_already() -> None:
    made = make_plan(cluster(RACKS, {"t": [(1, 2, 3)]}), Strategy.DECOMMISSION, PlanOptions(brokers=(1,)))
    assert lists(made)["t-0"][0] in (2, 3)


def test_replace_gives_to_the_new_broker_or_elsewhere_where_racks_forbid_it() -> None:
    snapshot = cluster({1: "a", 2: "b", 3: "c", 4: "b"}, {"t": [(1, 3), (2, 3)], "u": [(1, 2)]})
    made = make_plan(snapshot, Strategy.REPLACE, PlanOptions(replacements=(Replacement(1, 4),)))
    assert lists(made) == {"t-0": (3, 4), "u-0": (2, 3)}
    assert any("1 replica of a broker that is replaced goes elsewhere" in note for note in made.notes)


def test_expand_moves_only_onto_the_new_brokers() -> None:
    snapshot = cluster({1: None, 2: None, 3: None}, {"t": [(1,)] * 6 + [(2,)] * 2})
    made = make_plan(snapshot, Strategy.EXPAND, PlanOptions(brokers=(3,), minimise=MOVES))
    assert set(lists(made).values()) == {(3,)}
    rows = {row.broker: row.replicas_after for row in made.plan.klamm.score.brokers}
    assert rows == {1: 3, 2: 2, 3: 3}


def test_a_plan_by_bytes_that_is_not_proven_copies_no_more_than_one_by_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 20 brokers with sizes of their own, the search by bytes ended early with 5 % more."""
    snapshot = cluster({1: None, 2: None}, {"t": [(1,)] * 4 + [(2,)] * 2}, {"t": [100] * 6})
    solved = planning._solved

    def ends_early(problem: Problem, *more: Any) -> Solved:
        level_by_three_moves = tuple((broker,) for broker in (1, 1, 0, 0, 0, 1))
        return replace(solved(problem, *more), after=level_by_three_moves, first=None)

    monkeypatch.setattr(planning, "_solved", ends_early)
    options = PlanOptions(aim=(Aim.REPLICAS,), minimise=Minimise.BYTES)
    score = make_plan(snapshot, Strategy.REBALANCE, options).plan.klamm.score
    assert (score.moves, score.bytes, score.gap) == (1, 100, 0.0)


@pytest.mark.parametrize("seed", range(6))
def test_an_expansion_by_bytes_is_done_at_once(seed: int) -> None:
    """The bytes that a broker gives away lower its limit. That alone gives the new broker no larger share later."""
    drawn = drawn_cluster(seed, brokers=4, racks=4, partitions=60, factor=2)
    snapshot = replace(drawn, brokers=(*drawn.brokers, BrokerInfo(5, (), "r1")))
    options = PlanOptions(brokers=(5,), aim=(Aim.BYTES,))
    made = make_plan(snapshot, Strategy.EXPAND, options)
    assert made.plan.partitions
    again = make_plan(applied(snapshot, made.plan.partitions), Strategy.EXPAND, options)
    assert again.plan.partitions == ()


def test_racks_repairs_with_one_move_each_and_touches_nothing_else() -> None:
    snapshot = cluster(RACKS, {"t": [(1, 4, 2), (1, 2, 3)]})
    made = make_plan(snapshot, Strategy.RACKS, PlanOptions())
    score = made.plan.klamm.score
    assert list(lists(made)) == ["t-0"]
    assert (score.moves, score.before.rack_violations, score.after.rack_violations) == (1, 1, 0)
    assert lists(made)["t-0"][0] == 1


def test_racks_are_not_called_well_where_a_broker_has_none() -> None:
    snapshot = cluster(RACKS, {"t": [(1, 4), (2, 3)]})
    brokers = tuple(replace(broker, rack=None) if broker.id == 4 else broker for broker in snapshot.brokers)
    with pytest.raises(Infeasible, match="cannot judge racks: broker 4 has none"):
        make_plan(replace(snapshot, brokers=brokers), Strategy.RACKS, PlanOptions())
    made = make_plan(replace(snapshot, brokers=brokers), Strategy.LEADERS, PlanOptions())
    assert "racks are ignored: brokers without a rack: 4" in made.notes


def test_factor_raises_and_lowers() -> None:
    snapshot = cluster(RACKS, {"t": [(1, 2), (1, 2, 3)]})
    up = make_plan(snapshot, Strategy.FACTOR, PlanOptions(replication_factor=3))
    assert [len(replicas) for replicas in lists(up).values()] == [3]
    down = make_plan(snapshot, Strategy.FACTOR, PlanOptions(replication_factor=1))
    assert lists(down) == {"t-0": (1,), "t-1": (1,)}
    assert down.plan.klamm.score.moves == 0


def test_more_replicas_than_racks_share_them_as_little_as_can_be() -> None:
    made = make_plan(
        cluster({1: "a", 2: "a", 3: "b", 4: "b"}, {"t": [(1, 2)]}), Strategy.FACTOR, PlanOptions(replication_factor=3)
    )
    assert set(lists(made)["t-0"]) in ({1, 2, 3}, {1, 2, 4})
    assert "3 replicas share 2 racks: some racks get more than one" in made.notes
    assert made.plan.klamm.score.after.rack_violations == 0


def test_move_keeps_what_is_there_already() -> None:
    snapshot = cluster(RACKS, {"t": [(1, 2, 3)], "u": [(1, 2, 3)]})
    made = make_plan(snapshot, Strategy.MOVE, PlanOptions(brokers=(3, 4, 5), topics=("t",)))
    assert list(lists(made)) == ["t-0"]
    assert set(lists(made)["t-0"]) == {3, 4, 5}
    assert made.plan.klamm.score.moves == 2


def test_leaders_copies_nothing() -> None:
    snapshot = cluster(RACKS, {"t": [(1, 2, 3)] * 3})
    made = make_plan(snapshot, Strategy.LEADERS, PlanOptions())
    score = made.plan.klamm.score
    assert (score.moves, score.leader_changes, score.reordered, score.after.leader_range) == (0, 2, 2, 1)
    assert all(set(replicas) == {1, 2, 3} for replicas in lists(made).values())


def test_dead_brokers_are_emptied_by_rebalance_kept_on_request_and_never_a_target() -> None:
    snapshot = cluster({1: None, 2: None, 3: None}, {"t": [(1, 9), (2, 9), (3, 1)]})
    made = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(minimise=MOVES))
    assert all(9 not in replicas for replicas in lists(made).values())
    assert "broker 9 is not registered: it is emptied first" in made.notes
    kept = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(minimise=MOVES, keep_dead=True))
    assert [9 in after for after in (lists(kept).get(f"t-{n}", (9,)) for n in (0, 1))] == [True, True]
    assert "broker 9 is not registered: its replicas stay" in kept.notes
    both = make_plan(cluster({1: None, 2: None}, {"t": [(1, 9), (2, 8)]}), Strategy.REBALANCE, PlanOptions())
    assert "brokers 8, 9 are not registered: they are emptied first" in both.notes
    decommissioned = make_plan(snapshot, Strategy.DECOMMISSION, PlanOptions(brokers=(9,)))
    assert decommissioned.plan.klamm.score.moves == 2


def test_a_partition_that_keeps_a_dead_replica_is_not_copied_because_the_cluster_would_wait() -> None:
    """Broker 1 has all living replicas, and only those of partitions without a dead broker may leave it."""
    snapshot = cluster({1: None, 2: None}, {"t": [(1, 9), (9, 1), (1,), (1,), (1,), (1,)]})
    for strategy, options in (
        (Strategy.REBALANCE, PlanOptions(minimise=MOVES, keep_dead=True)),
        (Strategy.EXPAND, PlanOptions(minimise=MOVES, brokers=(2,))),
    ):
        made = make_plan(snapshot, strategy, options)
        after = lists(made)
        assert after.get("t-0", (1, 9)) == after.get("t-1", (1, 9)) == (1, 9), "the living one leads"
        assert sum(replicas == (2,) for replicas in after.values()) == 3, strategy
        assert not any("would wait" in note for note in made.notes)


def test_a_move_that_must_wait_for_a_dead_broker_is_named() -> None:
    """Broker 1 must be emptied, and broker 9 keeps its replica because nobody asked for another."""
    snapshot = cluster({1: None, 2: None}, {"t": [(1, 9)]})
    made = make_plan(snapshot, Strategy.DECOMMISSION, PlanOptions(brokers=(1,)))
    assert set(lists(made)["t-0"]) == {2, 9}
    advice = "some moves would wait for broker 9, which is dead: start it, or decommission it first"
    assert advice in made.notes
    both = make_plan(
        cluster({1: None, 2: None, 3: None}, {"t": [(1, 9)]}), Strategy.DECOMMISSION, PlanOptions(brokers=(1, 9))
    )
    assert not any("would wait" in note for note in both.notes)


def test_partitions_that_nobody_can_copy_are_named() -> None:
    """Dead brokers 8 and 9 have all replicas of t-0 and t-1; t-2 has a living one."""
    snapshot = cluster({1: None, 2: None}, {"t": [(9,), (8, 9), (1, 9)]})
    made = make_plan(snapshot, Strategy.DECOMMISSION, PlanOptions(brokers=(8, 9)))
    complaint = "no broker can copy t-0, t-1: all their replicas are on dead brokers; start one of 8, 9 first"
    assert complaint in made.notes
    kept = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(keep_dead=True))
    assert not any("no broker can copy" in note for note in kept.notes)


def test_reassignments_under_way_count_as_finished_and_are_left_alone() -> None:
    snapshot = cluster({1: None, 2: None}, {"t": [(1,), (1,), (1,), (1,)]})
    topic = snapshot.topics[0]
    moving = replace(topic.partitions[0], assignment=ReplicaAssignment((2, 1), (2,), (1,)))
    snapshot = replace(snapshot, topics=(replace(topic, partitions=(moving, *topic.partitions[1:])),))
    made = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(minimise=MOVES))
    assert "t-0" not in lists(made)
    assert made.plan.klamm.score.moves == 1
    left_out = "1 partition is being reassigned and left out: t-0"
    assert left_out in made.notes
    pinned = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(minimise=MOVES, pins=("t-0",)))
    assert left_out not in pinned.notes, "the caller wants it left out"
    factor = make_plan(snapshot, Strategy.FACTOR, PlanOptions(replication_factor=2))
    assert sorted(lists(factor)) == ["t-1", "t-2", "t-3"]
    assert left_out in factor.notes, "a plan with a part of the topic must not look like a whole one"


def test_pins_and_exclusions_count_as_load_and_do_not_move() -> None:
    snapshot = cluster({1: None, 2: None}, {"t": [(1,)] * 4, "u": [(1,)] * 2})
    options = PlanOptions(minimise=MOVES, pins=("t-0", "t-1"), exclude_topics=("u",))
    made = make_plan(snapshot, Strategy.REBALANCE, options)
    assert sorted(lists(made)) == ["t-2", "t-3"]
    without_target = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(minimise=MOVES, exclude_brokers=(2,)))
    assert lists(without_target) == {}


@pytest.mark.parametrize("cap", [0, 1, 5, 20])
def test_a_cap_on_moves_takes_the_most_off_the_fullest_brokers(cap: int) -> None:
    snapshot = drawn_cluster(2, brokers=6, racks=3, partitions=60, factor=2)
    free = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(aim=(Aim.REPLICAS,), minimise=MOVES)).plan.klamm.score
    options = PlanOptions(aim=(Aim.REPLICAS,), minimise=MOVES, max_moves=cap)
    score = make_plan(snapshot, Strategy.REBALANCE, options).plan.klamm.score
    assert score.moves == min(cap, free.moves)
    assert score.moves + score.remaining_moves == free.moves
    assert score.is_optimal == (cap >= free.moves)
    assert score.lower_bound.moves == free.lower_bound.moves


def test_a_cap_on_bytes_is_kept() -> None:
    snapshot = drawn_cluster(2, brokers=6, racks=3, partitions=60, factor=2)
    score = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(max_bytes=50)).plan.klamm.score
    assert score.bytes is not None
    assert 0 < score.bytes <= 50
    assert score.remaining_moves > 0


def test_a_capacity_is_kept() -> None:
    snapshot = cluster({1: None, 2: None, 3: None}, {"t": [(1,)] * 4}, {"t": [10, 10, 10, 10]})
    capacities = (BrokerCapacity(2, 10),)
    options = PlanOptions(brokers=(1,), broker_capacities=capacities)
    rows = make_plan(snapshot, Strategy.DECOMMISSION, options).plan.klamm.score.brokers
    assert [row.bytes_after for row in rows] == [0, 10, 30]


def test_an_explanation_names_the_reason() -> None:
    snapshot = cluster(RACKS, {"t": [(1, 2, 3), (4, 5, 6)]})
    made = make_plan(snapshot, Strategy.DECOMMISSION, PlanOptions(brokers=(1,)))
    text = "\n".join(explanations(made, ("t-0", "t-1")))
    assert "it leaves broker 1: that broker is emptied" in text
    assert "broker 4 gets it" in text
    assert "t-1 stays on 4, 5, 6" in text
    one_topic = cluster(RACKS, {"t": [(1, 2, 3)], "u": [(1, 2, 3), (1, 5, 6)]})
    made = make_plan(one_topic, Strategy.DECOMMISSION, PlanOptions(brokers=(1,), topics=("t",)))
    text = "\n".join(explanations(made, ("t-0",)))
    assert "it leaves broker 1: the plan takes from that broker what it may move; 2 replicas stay there" in text
    with pytest.raises(BadOption, match="no such partition to explain: t-9"):
        explanations(made, ("t-9",))


THREE = cluster({1: "a", 2: "b", 3: "c"}, {"t": [(1, 2), (2, 3)]})


@pytest.mark.parametrize(
    ("strategy", "options", "kind", "message"),
    [
        (Strategy.DECOMMISSION, PlanOptions(brokers=(7,)), BadOption, "no broker 7: it is not registered"),
        (Strategy.EXPAND, PlanOptions(brokers=(7,)), BadOption, "no broker 7"),
        (Strategy.REPLACE, PlanOptions(replacements=(Replacement(1, 9),)), BadOption, "no broker 9"),
        (Strategy.REBALANCE, PlanOptions(exclude_brokers=(8,)), BadOption, "no broker 8"),
        (Strategy.REBALANCE, PlanOptions(pins=("t-7",)), BadOption, "no such partition to pin: t-7"),
        (Strategy.REBALANCE, PlanOptions(topics=("x",)), BadOption, "no topic matches 'x'"),
        (Strategy.REBALANCE, PlanOptions(topics=("t", "x")), BadOption, "no topic matches 'x'"),
        (Strategy.REBALANCE, PlanOptions(exclude_topics=(r"^t\.",)), BadOption, r"no topic matches '^t\.'"),
        (Strategy.REBALANCE, PlanOptions(topics=("(",)), BadOption, "not a regular expression"),
        (Strategy.REBALANCE, PlanOptions(aim=(Aim.BYTES,)), BadOption, "--aim bytes needs sizes"),
        (Strategy.REBALANCE, PlanOptions(minimise=Minimise.BYTES), BadOption, "--minimise bytes needs sizes"),
        (Strategy.LEADERS, PlanOptions(aim=(Aim.BYTES,)), BadOption, "leaders only reorders"),
        (Strategy.LOG_DIRS, PlanOptions(), BadOption, "log dirs are not known"),
        (Strategy.FACTOR, PlanOptions(replication_factor=4), Infeasible, "4 replicas are wanted, but only 3 brokers"),
        (Strategy.DECOMMISSION, PlanOptions(brokers=(1, 2, 3)), Infeasible, "no broker would remain"),
        (Strategy.DECOMMISSION, PlanOptions(brokers=(1, 2)), Infeasible, "only 1 broker may hold it"),
        (Strategy.DECOMMISSION, PlanOptions(brokers=(1,), pins=("t-0",)), Infeasible, "t-0 is pinned"),
    ],
)
def test_bad_input_is_told(strategy: Strategy, options: PlanOptions, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        make_plan(THREE, strategy, options)
    assert message in str(caught.value)
    assert caught.value.hint  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("holders", "hint"),
    [
        ((1, 2, 9), "broker 9 is dead; start it, or leave its replicas where they are with --keep-dead"),
        ((1, 8, 9), "brokers 8, 9 are dead; start them, or leave their replicas where they are with --keep-dead"),
    ],
)
def test_who_has_nowhere_to_go_from_a_dead_broker_is_told_to_keep_it(holders: tuple[int, ...], hint: str) -> None:
    snapshot = cluster({1: None, 2: None}, {"t": [holders]})
    for strategy in (Strategy.REBALANCE, Strategy.RACKS):
        with pytest.raises(Infeasible, match="t-0 needs 3 replicas, but only 2 brokers may hold it") as caught:
            make_plan(snapshot, strategy, PlanOptions())
        assert caught.value.hint == hint
        assert make_plan(snapshot, strategy, PlanOptions(keep_dead=True)).plan.partitions is not None


def test_a_plan_by_count_needs_no_sizes() -> None:
    snapshot = cluster(dict.fromkeys((1, 2)), {"t": [(1,)] * 4})
    score = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(throttle=10)).plan.klamm.score
    assert (score.moves, score.lower_bound.moves, score.is_optimal) == (2, 2, True)
    assert (score.bytes, score.lower_bound.bytes, score.makespan_s, score.after.bytes_cv) == (None, None, None, None)
    assert {row.bytes_after for row in score.brokers} == {None}


def test_where_only_some_sizes_are_known_the_plan_says_why_it_counts_moves() -> None:
    snapshot = cluster(dict.fromkeys((1, 2)), {"t": [(1,)] * 4}, {"t": [100] * 4})
    (topic,) = snapshot.topics
    unread = replace(topic.partitions[3], replica_logs=())
    partly = replace(snapshot, topics=(replace(topic, partitions=(*topic.partitions[:3], unread)),))
    note = "the plan has the fewest moves, not bytes: sizes of t-3 are unknown"
    assert note in make_plan(partly, Strategy.REBALANCE, PlanOptions()).notes
    assert note not in make_plan(partly, Strategy.REBALANCE, PlanOptions(minimise=MOVES)).notes
    assert note not in make_plan(snapshot, Strategy.REBALANCE, PlanOptions()).notes


def test_a_capacity_file_is_read() -> None:
    text = '[brokers]\n7 = "2 TB"\n3 = 10\n[log-dirs]\n"7:/data/a" = "500 GB"\n'
    assert parse_capacities(text, "f") == (
        (BrokerCapacity(3, 10), BrokerCapacity(7, 2 * 10**12)),
        (LogDirCapacity(7, "/data/a", 500 * 10**9),),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "not TOML"),
        ("[disks]", "unknown key 'disks'"),
        ('[brokers]\na = "1 GB"', "not a broker id"),
        ('[brokers]\n1 = "much"', r"\[brokers\] 1: not a size"),
        ('[log-dirs]\n"/data" = 1', "must be BROKER:DIRECTORY"),
    ],
)
def test_a_bad_capacity_file_names_the_place(text: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        parse_capacities(text, "caps.toml")


def test_an_empty_cluster_needs_no_plan() -> None:
    nothing: ClusterSnapshot = cluster({1: None}, {})
    assert make_plan(nothing, Strategy.REBALANCE, PlanOptions()).plan.partitions == ()


def test_a_lower_factor_drops_dead_replicas_first() -> None:
    snapshot = cluster({1: "a", 2: "b"}, {"t": [[3, 1], [3, 1, 2], [4, 3, 1]]})
    after = make_plan(snapshot, Strategy.FACTOR, PlanOptions(replication_factor=1)).plan
    assert [entry.replicas for entry in after.partitions] == [(1,), (1,), (1,)]
    one_lives = make_plan(snapshot, Strategy.FACTOR, PlanOptions(replication_factor=2)).plan
    assert {entry.name.partition: set(entry.replicas) for entry in one_lives.partitions}[1] == {1, 2}
    assert all(1 in entry.replicas for entry in one_lives.partitions)
