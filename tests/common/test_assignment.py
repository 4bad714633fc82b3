"""Replica assignment against the vectors of Kafka's own tests, and against results of Kafka's algorithm."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.common.assignment import (
    FromZero,
    RackAwareMode,
    assign_replicas,
    rack_alternated,
    start_index_of_added_partitions,
    usable_racks,
)
from engine.common.errors import ErrorCode, KafkaError

PLAIN = dict.fromkeys(range(5))
SIX_RACKED = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
M2 = {0: "r1", 1: "r2", 2: "r2", 3: "r3", 4: "r3", 5: "r1"}
UNEVEN = {0: "r1", 1: "r2", 2: "r2", 3: "r3", 4: "r3", 5: "r2"}
TWELVE = {0: "r1", 1: "r2", 2: "r2", 3: "r3", 4: "r3", 5: "r1", 6: "r1", 7: "r2", 8: "r2", 9: "r3", 10: "r1", 11: "r3"}


def test_values_from_zero_on_are_a_mapping() -> None:
    values = FromZero(["a", "b"])
    assert values == {0: "a", 1: "b"} and {**values, 2: "c"} == {0: "a", 1: "b", 2: "c"}
    assert (repr(values), len(values), list(values.items())) == ("{0: 'a', 1: 'b'}", 2, [(0, "a"), (1, "b")])
    assert [partition in values for partition in (-1, 0, 1, 2)] == [False, True, True, False]


def lists(assignment: dict[int, tuple[int, ...]]) -> list[list[int]]:
    assert list(assignment) == sorted(assignment)
    return [list(replicas) for replicas in assignment.values()]


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "start", "expected"),
    [
        (PLAIN, 10, 3, 0, "012 123 234 340 401 023 134 240 301 412"),
        (PLAIN, 10, 3, 2, "201 312 423 034 140 213 324 430 041 102"),
        (SIX_RACKED, 7, 3, 0, "031 315 154 542 420 203 042"),
        (M2, 6, 3, 2, "320 541 203 415 032 154"),
        (M2, 13, 3, 0, "013 135 352 524 240 401 024 140 301 513 235 452 032"),
        ({0: "a", 1: "b", 2: "c", 3: "a", 4: "a"}, 6, 4, 2, "2013 3124 4213 0123 1423 2413"),
        (UNEVEN, 6, 5, 0, "01324 13024 32014 24013 45013 50324"),
        (UNEVEN, 6, 2, 0, "01 13 32 24 45 50"),
        (dict.fromkeys(range(6), "only"), 6, 3, 0, "012 123 234 345 450 501"),
    ],
)
def test_kafkas_vectors(
    brokers: dict[int, str | None], partitions: int, factor: int, start: int, expected: str
) -> None:
    assignment = assign_replicas(brokers, partitions, factor, fixed_start_index=start)
    assert lists(assignment) == [[int(digit) for digit in word] for word in expected.split()]


@pytest.mark.parametrize(
    ("racks", "expected"),
    [
        (SIX_RACKED, [0, 3, 1, 5, 4, 2]),
        ({k: v for k, v in SIX_RACKED.items() if k != 5}, [0, 3, 1, 4, 2]),
        ({i: f"r{1 + i // 3}" for i in range(9)}, [0, 3, 6, 1, 4, 7, 2, 5, 8]),
        ({6: "r1", 7: "r2", 8: "r2", 9: "r3", 10: "r3", 11: "r1"}, [6, 7, 9, 11, 8, 10]),
        ({}, []),
    ],
)
def test_rack_alternated_list(racks: dict[int, str], expected: list[int]) -> None:
    assert rack_alternated(racks) == expected


def is_even(assignment: dict[int, tuple[int, ...]], brokers: dict[int, str], factor: int) -> bool:
    leaders = Counter(replicas[0] for replicas in assignment.values())
    replicas = Counter(broker for all_ in assignment.values() for broker in all_)
    per_broker = len(assignment) / len(brokers)
    return all(leaders[b] == per_broker and replicas[b] == per_broker * factor for b in brokers)


def rack_spread(assignment: dict[int, tuple[int, ...]], brokers: dict[int, str]) -> set[int]:
    return {len({brokers[broker] for broker in replicas}) for replicas in assignment.values()}


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "start_partition"),
    [
        (M2, 6, 3, 0),
        (M2, 12, 2, 0),
        (M2, 6, 2, 0),
        ({6: "r1", 7: "r2", 8: "r2", 9: "r3", 10: "r3", 11: "r1"}, 12, 2, 12),
        ({0: "r1", 1: "r2", 4: "r3"}, 3, 2, 0),
        (TWELVE, 96, 3, 0),
    ],
)
@pytest.mark.parametrize("start", range(3))
def test_even_racks_give_even_assignments(
    brokers: dict[int, str], partitions: int, factor: int, start_partition: int, start: int
) -> None:
    assignment = assign_replicas(
        brokers, partitions, factor, fixed_start_index=start, start_partition_id=start_partition
    )
    assert is_even(assignment, brokers, factor)
    assert rack_spread(assignment, brokers) == {min(factor, 3)}


@pytest.mark.parametrize(
    ("first_partition", "count", "expected"),
    [
        ([2, 3, 0, 1], 6, "3201 0312 1023 2301 3012 0123"),
        ([1, 2], 2, "20 31"),
    ],
)
def test_added_partitions_start_where_the_first_one_stands(
    first_partition: list[int], count: int, expected: str
) -> None:
    brokers = dict.fromkeys(range(4))
    start = start_index_of_added_partitions(sorted(brokers), first_partition[0])
    assignment = assign_replicas(brokers, count, len(first_partition), fixed_start_index=start, start_partition_id=1)
    assert lists(assignment) == [[int(digit) for digit in word] for word in expected.split()]
    assert list(assignment) == list(range(1, count + 1))


@pytest.mark.parametrize(("first_replica", "index"), [(5, 1), (4, 1), (9, 2), (10, 0)])
def test_start_index_when_the_first_replica_is_gone(first_replica: int, index: int) -> None:
    assert start_index_of_added_partitions([3, 5, 9], first_replica) == index


def test_start_and_shift_are_drawn_independently() -> None:
    draws = iter([3, 1])
    drawn = assign_replicas(PLAIN, 2, 3, draw=lambda bound: next(draws))
    assert lists(drawn) == [[3, 0, 1], [4, 1, 2]]


@pytest.mark.parametrize(
    ("partitions", "factor", "code", "message"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (
            2**31 - 1,
            1,
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions must not be larger than 200000, but it is 2147483647.",
        ),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."),
        (1, 6, ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor: 6 larger than available brokers: 5."),
    ],
)
def test_impossible_counts_are_refused_in_kafkas_words(
    partitions: int, factor: int, code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        assign_replicas(PLAIN, partitions, factor)
    assert (refused.value.code, refused.value.message) == (code, message)


def test_racks_on_some_brokers_only() -> None:
    mixed = {0: "a", 1: None}
    with pytest.raises(KafkaError, match="Not all brokers have rack information for replica"):
        assign_replicas(mixed, 1, 1)
    with pytest.raises(KafkaError, match="Add --disable-rack-aware"):
        usable_racks(mixed, RackAwareMode.ENFORCED)
    assert usable_racks(mixed, RackAwareMode.SAFE) == {0: None, 1: None}
    assert usable_racks({1: "b", 0: "a"}, RackAwareMode.SAFE) == {0: "a", 1: "b"}
    assert usable_racks({0: "a", 1: "b"}, RackAwareMode.DISABLED) == {0: None, 1: None}


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=9),
    racked=st.booleans(),
    partitions=st.integers(1, 20),
    factor=st.integers(1, 9),
    start=st.integers(0, 8),
)
@settings(max_examples=80, deadline=None)
def test_no_broker_twice_and_racks_used_as_widely_as_can_be(
    racks: list[str], racked: bool, partitions: int, factor: int, start: int
) -> None:
    brokers = dict(enumerate(racks))
    factor = min(factor, len(brokers))
    seen: dict[int, str | None] = dict(brokers) if racked else dict.fromkeys(brokers)
    assignment = assign_replicas(seen, partitions, factor, fixed_start_index=start % len(brokers))
    assert len(assignment) == partitions
    for replicas in assignment.values():
        assert len(replicas) == len(set(replicas)) == factor
        if racked:
            assert len({brokers[b] for b in replicas}) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders[b] for b in brokers) <= 1
