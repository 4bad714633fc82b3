"""Names and patterns of topics, and the filters of partitions."""

from __future__ import annotations

import pytest

from engine.admin.cluster.errors import BadRequest
from engine.admin.topics.selection import PartitionFilter, matches, select_topics
from engine.common.model import ReplicaAssignment
from engine.common.snapshot import PartitionSnapshot

KNOWN = ["a.b", "axb", "orders", "orders-eu", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("texts", "chosen"),
    [
        ([], sorted(KNOWN)),
        (["orders"], ["orders"]),
        (["a.b"], ["a.b"]),
        (["orders,a.b"], ["a.b", "orders"]),
        (["orders.*"], ["orders", "orders-eu"]),
        (["orders|a.b"], ["a.b", "axb", "orders"]),
        (["orders.*,axb"], ["axb", "orders", "orders-eu"]),
        ([r"a\.b"], ["a.b"]),
        (["'orders'"], ["orders"]),
    ],
)
def test_what_is_chosen(texts: list[str], chosen: list[str]) -> None:
    assert select_topics(texts).choose(KNOWN) == chosen


def test_only_a_pattern_wants_the_list_of_all_topics() -> None:
    assert not select_topics(["orders", "a.b"]).wants_list
    assert select_topics(["orders", "a+"]).wants_list
    assert select_topics([]).wants_list


def test_what_matches_nothing_is_named() -> None:
    assert select_topics(["orders", "absent", "x+", "a.*"]).unmatched(KNOWN) == ["absent", "x+"]


def test_a_broken_pattern_is_refused() -> None:
    with pytest.raises(BadRequest, match="neither a topic's name nor a regular expression"):
        select_topics(["a["])


def partition(replicas: str, isr: str, leader: int, adding: str = "") -> PartitionSnapshot:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(number) for number in text)

    return PartitionSnapshot(0, ReplicaAssignment(numbers(replicas), numbers(adding)), leader, numbers(isr))


ALIVE = frozenset({0, 1})


@pytest.mark.parametrize(
    ("case", "min_isr", "expected"),
    [
        # As recorded from kafka-topics 3.9.1 with broker 2 dead: topics three, two and one.
        (partition("012", "01", 0), 2, {"under-replicated", "at-min-isr"}),
        (partition("12", "1", 1), 2, {"under-replicated", "under-min-isr"}),
        (partition("2", "2", -1), 1, {"unavailable", "under-min-isr", "at-min-isr"}),
        (partition("01", "01", 0), 1, set()),
        (partition("01", "01", 2), 1, {"unavailable", "under-min-isr"}),
        # While a reassignment adds a replica, one less is expected (KIP-352).
        (partition("012", "01", 0, adding="2"), 1, set()),
    ],
)
def test_filters_are_those_of_kafka(case: PartitionSnapshot, min_isr: int, expected: set[str]) -> None:
    filters = {which.value for which in PartitionFilter if matches(case, [which], min_isr=min_isr, live_brokers=ALIVE)}
    assert filters == expected
    assert matches(case, list(PartitionFilter), min_isr=min_isr, live_brokers=ALIVE) == bool(expected)
    assert matches(case, [], min_isr=min_isr, live_brokers=ALIVE)
