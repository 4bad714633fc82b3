"""Which broker takes over from a demoted one, and what must stay there."""

from __future__ import annotations

import pytest

from engine.admin.reassignment.demotion import plan_demotion
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot

LIVE = frozenset({0, 1, 2, 3})


def partition(number: int, replicas: tuple[int, ...], isr: tuple[int, ...] | None = None, **more: object) -> tuple:
    adding = more.pop("adding", ())
    assignment = ReplicaAssignment(replicas, adding_replicas=adding)  # type: ignore[arg-type]
    leader = more.pop("leader", replicas[0])
    made = PartitionSnapshot(number, assignment, leader, replicas if isr is None else isr)  # type: ignore[arg-type]
    return TopicPartition("t", number), made


def orders(*partitions: tuple, brokers: frozenset[int] = frozenset({0}), live: frozenset[int] = LIVE) -> dict:
    plan = plan_demotion(dict(partitions), brokers, live)
    return {move.name.partition: move.replicas for move in plan.moves}


def test_a_demoted_broker_goes_to_the_end_and_the_others_share_what_it_led() -> None:
    moves = orders(*(partition(number, (0, 1, 2)) for number in range(4)))
    assert moves == {0: (1, 2, 0), 1: (2, 1, 0), 2: (1, 2, 0), 3: (2, 1, 0)}


def test_who_leads_much_already_takes_over_less() -> None:
    led_by_1 = [partition(number, (1, 2)) for number in range(10, 13)]
    moves = orders(*led_by_1, *(partition(number, (0, 1, 2)) for number in range(3)))
    assert {replicas[0] for replicas in moves.values()} == {2}


def test_only_a_live_replica_in_sync_takes_over() -> None:
    assert orders(partition(0, (0, 1, 2, 3), isr=(0, 2, 3)), live=LIVE - {2}) == {0: (3, 1, 2, 0)}


def test_two_brokers_at_once_keep_their_order_at_the_end() -> None:
    assert orders(partition(0, (1, 2, 0)), brokers=frozenset({0, 1})) == {0: (2, 1, 0)}


def test_who_leads_without_being_preferred_is_only_elected_away() -> None:
    plan = plan_demotion(dict([partition(0, (1, 0), leader=0)]), frozenset({0}), LIVE)
    assert (plan.moves, plan.elections) == ((), (TopicPartition("t", 0),))


@pytest.mark.parametrize(("replicas", "isr"), [((4, 0, 1), (0, 1)), ((2, 0, 1), (0, 1))], ids=["dead", "out of sync"])
def test_who_leads_for_a_preferred_one_that_cannot_is_taken_over_from_too(replicas: tuple, isr: tuple) -> None:
    """An election of the preferred leader would change nothing."""
    assert orders(partition(0, replicas, isr, leader=0)) == {0: (1, replicas[0], 0)}


def test_what_cannot_be_led_by_another_stays_and_says_why() -> None:
    lonely, late, moving = partition(0, (0,)), partition(1, (0, 1), isr=(0,)), partition(2, (0, 1, 2), adding=(2,))
    plan = plan_demotion(dict([lonely, late, moving]), frozenset({0}), LIVE)
    assert (plan.moves, plan.elections) == ((), ())
    why = ["there is no other replica", "no other replica is in sync", "it is being reassigned"]
    assert list(plan.stuck.values()) == why


def test_where_the_controller_would_wait_for_a_dead_broker_the_others_are_demoted_all_the_same() -> None:
    held_up, free, led = partition(0, (0, 1, 4), isr=(0, 1)), partition(1, (0, 1, 2)), partition(2, (1, 4, 0), leader=0)
    plan = plan_demotion(dict([held_up, free, led]), frozenset({0}), LIVE, frozenset({4}))
    assert plan.elections == (free[0], led[0]), "an election waits for nobody"
    assert plan.stuck == {held_up[0]: "the controller would wait for broker 4, which is dead"}


def test_partitions_of_others_are_left_alone() -> None:
    assert orders(partition(0, (1, 0)), partition(1, (2, 3))) == {}
