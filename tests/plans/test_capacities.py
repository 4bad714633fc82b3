"""What brokers and log dirs may hold: met to the byte, refused with the shortage and a remedy, and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from plan_files import hide_solver, plan_of
from small_clusters import cluster

from engine.common.model import BrokerInfo, TopicPartition
from engine.common.snapshot import ClusterSnapshot, LogDirSnapshot
from plans.checking import check_plan
from plans.construction import Forcing
from plans.errors import BadOption, Infeasible
from plans.findings import Check
from plans.options import Aim, BrokerCapacity, LogDirCapacity, PlanOptions, Replacement, Strategy
from plans.plan_file import MadePlan
from plans.planning import make_plan
from plans.policy import parse_policy
from plans.problem import bits
from plans.problem_building import build_problem

REPLICAS = (Aim.REPLICAS,)


def tens(brokers: Mapping[int, str | None], *lists: tuple[int, ...]) -> ClusterSnapshot:
    """Return a cluster whose replicas have ten bytes each."""
    return cluster(brokers, {"t": lists}, {"t": [10] * len(lists)})


def plan(snapshot: ClusterSnapshot, strategy: Strategy, options: PlanOptions, room: Mapping[int, int]) -> MadePlan:
    given = tuple(BrokerCapacity(broker, size) for broker, size in room.items())
    return make_plan(snapshot, strategy, replace(options, broker_capacities=given))


def held(made: MadePlan) -> dict[int, int | None]:
    return {row.broker: row.bytes_after for row in made.plan.klamm.score.brokers}


PLAIN = dict.fromkeys((1, 2, 3))
CASES = {
    "rebalance": (tens(dict.fromkeys((1, 2)), *[(1,)] * 4), PlanOptions(aim=REPLICAS), {2: 20}),
    "decommission": (tens(PLAIN, (1,), (1,), (2,)), PlanOptions(brokers=(1,)), {2: 20, 3: 10}),
    "replace": (tens(PLAIN, (1,), (1,), (3,)), PlanOptions(replacements=(Replacement(1, 2),)), {2: 20, 3: 10}),
    "expand": (tens(PLAIN, *[(1,)] * 3, *[(2,)] * 3), PlanOptions(brokers=(3,), aim=REPLICAS), {3: 20}),
    "racks": (tens({1: "a", 2: "a", 3: "b"}, (1, 2)), PlanOptions(), {3: 10}),
    "factor": (tens(dict.fromkeys((1, 2)), (1,), (2,)), PlanOptions(replication_factor=2), {2: 20}),
    "move": (tens(PLAIN, (1,), (1,)), PlanOptions(brokers=(2, 3)), {2: 10, 3: 10}),
}
"""Only one plan meets these capacities, and it fills them to the byte."""


@pytest.mark.parametrize("name", CASES)
def test_a_capacity_may_be_filled_to_the_byte(name: str) -> None:
    snapshot, options, room = CASES[name]
    made = plan(snapshot, Strategy(name), options, room)
    assert {broker: held(made)[broker] for broker in room} == room
    assert made.plan.klamm.score.moves > 0


@pytest.mark.parametrize("has_solver", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_byte_less_is_refused_with_what_is_missing_and_whom_to_add(
    name: str, has_solver: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the user adds the broker that the hint names, there is a plan."""
    if not has_solver:
        hide_solver(monkeypatch)
    snapshot, options, room = CASES[name]
    small = {broker: size - 1 for broker, size in room.items()}
    with pytest.raises(Infeasible, match=r"bytes, \d+ above its capacity") as caught:
        plan(snapshot, Strategy(name), options, small)
    above = {
        int(b): (int(n), int(m))
        for b, n, m in re.findall(r"broker (\d) would hold (\d+) bytes, (\d+)", str(caught.value))
    }
    assert above
    assert all(whole - more == small[broker] for broker, (whole, more) in above.items())
    wanted = re.findall(r"a broker(?: in rack (\w))? with room for (\d+) bytes", caught.value.hint or "")
    assert wanted
    fresh = {10 + number: (rack or None, int(size)) for number, (rack, size) in enumerate(wanted)}
    larger = replace(
        snapshot, brokers=(*snapshot.brokers, *(BrokerInfo(b, (), rack) for b, (rack, _) in fresh.items()))
    )
    brokers = (*options.brokers, *fresh) if name in ("expand", "move") else options.brokers
    room_there = small | {broker: size for broker, (_, size) in fresh.items()}
    made = plan(larger, Strategy(name), replace(options, brokers=brokers), room_there)
    before = {row.broker: row.bytes_before or 0 for row in made.plan.klamm.score.brokers}
    assert all((held(made)[broker] or 0) <= max(size, before[broker]) for broker, size in room_there.items())


def test_what_is_missing_in_each_rack_is_told() -> None:
    snapshot = tens({1: "a", 2: "b"}, *[(1, 2)] * 3)
    with pytest.raises(Infeasible) as caught:
        plan(snapshot, Strategy.REBALANCE, PlanOptions(), {1: 20, 2: 25})
    assert str(caught.value) == (
        "the replicas do not fit on 2 brokers: 15 bytes too many; broker 1 would hold 30 bytes, 10 above its capacity;"
        " broker 2 would hold 30 bytes, 5 above its capacity"
    )
    assert caught.value.hint == (
        "add a broker in rack a with room for 10 bytes and a broker in rack b with room for 10 bytes,"
        " or raise the capacities"
    )


def test_the_broker_to_add_belongs_into_the_rack_of_the_one_that_is_too_full() -> None:
    with pytest.raises(Infeasible, match=r"^broker 1 would hold 30 bytes, 10 above its capacity$") as caught:
        plan(tens({1: "a", 2: "b"}, *[(1, 2)] * 3), Strategy.REBALANCE, PlanOptions(), {1: 20})
    assert caught.value.hint == "add a broker in rack a with room for 10 bytes, or raise the capacities"


def test_what_is_pinned_on_a_broker_that_is_too_full_is_no_reason_to_add_another() -> None:
    with pytest.raises(Infeasible, match="broker 1 would hold 20 bytes, 5 above its capacity") as caught:
        plan(tens(PLAIN, (1,), (1,)), Strategy.REBALANCE, PlanOptions(pins=("t-0", "t-1")), {1: 15})
    assert caught.value.hint == "raise the capacity of broker 1: too little of what it holds may leave it"


def test_what_is_forced_goes_where_there_is_room() -> None:
    """This comes before any levelling: broker 2 holds as little as broker 3 and comes first, but has no room."""
    options = PlanOptions(brokers=(1,), broker_capacities=(BrokerCapacity(2, 9),))
    problem = build_problem(tens(PLAIN, (1,)), Strategy.DECOMMISSION, options).problem
    assert [list(bits(mask)) for mask in Forcing(problem).sets()] == [[2]]
    exact = replace(options, broker_capacities=(BrokerCapacity(2, 10),))
    problem = build_problem(tens(PLAIN, (1,)), Strategy.DECOMMISSION, exact).problem
    assert [list(bits(mask)) for mask in Forcing(problem).sets()] == [[1]]


def test_replicas_that_stay_on_a_dead_broker_take_no_room() -> None:
    """Broker 9 is dead and keeps its replica, so brokers 1 and 2 hold only 20 bytes."""
    made = plan(
        tens(dict.fromkeys((1, 2)), (1, 9), (1,)), Strategy.REBALANCE, PlanOptions(keep_dead=True), {1: 10, 2: 10}
    )
    assert {broker: size for broker, size in held(made).items() if broker != 9} == {1: 10, 2: 10}


def test_a_forced_plan_fits_beside_a_broker_that_was_too_full_before() -> None:
    made = plan(tens(PLAIN, (1,), (2,), (2,)), Strategy.DECOMMISSION, PlanOptions(brokers=(1,)), {2: 10, 3: 10})
    assert held(made) == {1: 0, 2: 20, 3: 10}
    with pytest.raises(Infeasible, match="1 byte too many"):
        plan(tens(PLAIN, (1,), (2,), (2,)), Strategy.DECOMMISSION, PlanOptions(brokers=(1,)), {2: 10, 3: 9})


def test_leaders_copies_nothing_so_no_capacity_is_in_its_way() -> None:
    made = plan(tens(PLAIN, (1, 2), (1, 2)), Strategy.LEADERS, PlanOptions(), {1: 5, 2: 5, 3: 5})
    assert made.plan.klamm.score.leader_changes == 1


def two_dirs(*sizes: int) -> ClusterSnapshot:
    """Return a broker with all its replicas in /a, and an empty /b."""
    snapshot = cluster({1: None}, {"t": [(1,)] * len(sizes)}, {"t": sizes})
    text = {path: LogDirSnapshot(1, path, 1000, 500) for path in ("/data", "/b")}
    return replace(snapshot, log_dirs=tuple(text.values()))


@pytest.mark.parametrize("aim", [Aim.BYTES, Aim.REPLICAS])
def test_a_log_dir_may_be_filled_to_the_byte_and_no_further(aim: Aim) -> None:
    options = PlanOptions(aim=(aim,), log_dir_capacities=(LogDirCapacity(1, "/b", 20),))
    score = make_plan(two_dirs(10, 10, 10, 10), Strategy.LOG_DIRS, options).plan.klamm.score
    assert [(row.log_dir, row.bytes_after) for row in score.log_dirs] == [("/b", 20), ("/data", 20)]
    both = (LogDirCapacity(1, "/b", 20), LogDirCapacity(1, "/data", 19))
    with pytest.raises(Infeasible, match=r"of broker 1 would hold \d+ bytes, \d+ above its capacity") as caught:
        make_plan(two_dirs(10, 10, 10, 10), Strategy.LOG_DIRS, replace(options, log_dir_capacities=both))
    assert caught.value.hint == "add a log dir with room for 10 bytes to broker 1, or raise the capacity"


def test_the_log_dirs_of_a_broker_bound_what_it_gets_in_every_strategy() -> None:
    base = tens(dict.fromkeys((1, 2)), *[(1,)] * 4)
    snapshot = replace(base, log_dirs=tuple(LogDirSnapshot(2, path, 1000, 500) for path in ("/a", "/b")))
    given = (LogDirCapacity(2, "/a", 10), LogDirCapacity(2, "/b", 10))
    made = make_plan(snapshot, Strategy.REBALANCE, PlanOptions(log_dir_capacities=given))
    assert held(made) == {1: 20, 2: 20}
    assert any("the strategy log-dirs keeps each" in note for note in made.notes)
    small = (given[0], LogDirCapacity(2, "/b", 9))
    with pytest.raises(Infeasible, match="broker 2 would hold 20 bytes, 1 above its capacity"):
        make_plan(snapshot, Strategy.REBALANCE, PlanOptions(log_dir_capacities=small))
    # The other log dir has no limit.
    assert held(make_plan(snapshot, Strategy.REBALANCE, PlanOptions(log_dir_capacities=small[1:]))) == {1: 20, 2: 20}
    with pytest.raises(BadOption, match="a capacity names log dir /c of broker 2, which is unknown"):
        make_plan(snapshot, Strategy.REBALANCE, PlanOptions(log_dir_capacities=(LogDirCapacity(2, "/c", 1),)))
    unknown = replace(cluster(dict.fromkeys((1, 2)), {"t": [(1,)]}), log_dirs=snapshot.log_dirs)
    with pytest.raises(BadOption, match="--capacity needs sizes"):
        make_plan(unknown, Strategy.REBALANCE, PlanOptions(log_dir_capacities=given))


@pytest.mark.parametrize(("options", "moves"), [(PlanOptions(max_moves=1), 1), (PlanOptions(max_bytes=19), 1)])
def test_a_cap_ends_the_levelling_of_log_dirs_early(options: PlanOptions, moves: int) -> None:
    made = make_plan(two_dirs(10, 10, 10, 10), Strategy.LOG_DIRS, options)
    score = made.plan.klamm.score
    assert (score.moves, score.remaining_moves, score.is_optimal) == (moves, 1, False)
    assert "a cap ends the plan early: 1 move is left of the whole plan" in made.notes
    free = make_plan(two_dirs(10, 10, 10, 10), Strategy.LOG_DIRS, PlanOptions(max_moves=2)).plan.klamm.score
    assert (free.moves, free.remaining_moves, free.is_optimal) == (2, 0, True)


def test_the_policy_s_capacity_holds_for_the_lists_of_a_plan_that_somebody_edited() -> None:
    """The score card says nothing here: the lists are added up."""
    snapshot = tens(dict.fromkeys((1, 2, 3)), (1,), (1,))
    made = plan_of(snapshot, {TopicPartition("t", 0): (2,), TopicPartition("t", 1): (3,)})
    policy = parse_policy("[brokers.capacity]\n2 = 10\n3 = 10")
    assert check_plan(made, snapshot, policy) == []
    edited = replace(made, partitions=(made.partitions[0], replace(made.partitions[1], replicas=(2,))))
    (finding,) = check_plan(edited, snapshot, policy)
    assert (finding.check, finding.rule) == (Check.CAPACITY, "brokers.capacity.2")
    assert finding.message == "broker 2 would hold 20 bytes, 10 above its capacity of 10"


def test_plan_and_check_add_up_the_same_sizes() -> None:
    """A copy is as large as the leader's log. A follower that has not yet applied retention has a larger log."""
    snapshot = cluster(dict.fromkeys((1, 2, 3)), {"t": [(1, 2)]}, {"t": [10]})
    part = snapshot.topics[0].partitions[0]
    logs = (part.replica_logs[0], replace(part.replica_logs[1], size_bytes=15))
    snapshot = replace(snapshot, topics=(replace(snapshot.topics[0], partitions=(replace(part, replica_logs=logs),)),))
    made = plan(snapshot, Strategy.DECOMMISSION, PlanOptions(brokers=(2,)), {3: 10})
    assert check_plan(made.plan, snapshot, parse_policy("[limits]\nbytes = 10\n[brokers.capacity]\n3 = 10")) == []


def test_large_figures_are_grouped() -> None:
    snapshot = cluster({1: None, 2: None}, {"t": [(1,), (1,)]}, {"t": [40_000_000] * 2})
    with pytest.raises(Infeasible, match="would hold 80,000,000 bytes, 30,000,000 above its capacity") as caught:
        plan(snapshot, Strategy.DECOMMISSION, PlanOptions(brokers=(1,)), {2: 50_000_000})
    assert "room for 40,000,000 bytes" in str(caught.value.hint)
