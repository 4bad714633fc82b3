"""Where a follower cuts: the rules one by one, and a model in which one of two logs always ends as a prefix of the
other.
"""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.replication.truncation import Truncation, truncation_for

EpochEntries = list[tuple[int, int]]


def end_offset_for(entries: EpochEntries, log_end_offset: int, asked: int) -> tuple[int, int]:
    """Return the largest epoch up to the requested one, and the start of the next epoch, as the epoch cache does.

    Below all epochs, return the requested epoch with the first start. Above all epochs, return nothing.
    """
    if not entries or asked > entries[-1][0]:
        return -1, -1
    if asked == entries[-1][0]:
        return asked, log_end_offset
    following = next(position for position, (epoch, _) in enumerate(entries) if epoch > asked)
    epoch = entries[following - 1][0] if following else asked
    return epoch, entries[following][1]


@pytest.mark.parametrize(
    ("answer", "entries", "expected"),
    [
        ((-1, -1), [(1, 0)], Truncation(4, True)),
        ((-1, 7), [(1, 0)], Truncation(7, True)),
        ((-1, 99), [(1, 0)], Truncation(20, True)),
        ((5, 15), [(3, 0), (5, 10)], Truncation(15, True)),
        ((5, 99), [(3, 0), (5, 10), (7, 18)], Truncation(18, True)),
        ((4, 15), [(3, 0), (5, 10)], Truncation(10, False)),
        ((2, 3), [(3, 5), (5, 10)], Truncation(3, True)),
        ((2, 7), [(3, 5), (5, 10)], Truncation(5, True)),
        ((9, 7), [(3, 5), (5, 10)], Truncation(7, True)),
        ((9, 99), [(3, 5), (5, 10)], Truncation(20, True)),
    ],
    ids=[
        "the leader knows nothing: high watermark",
        "a leader before 2.0 tells no epoch",
        "never above the own end",
        "both know the epoch: the smaller end",
        "own end of the epoch is smaller",
        "epoch unknown here: cut to the older one and ask again",
        "only younger epochs here: the leader's end",
        "only younger epochs here, which begin before the leader's end",
        "only older epochs here: the leader's end",
        "only older epochs here: never above the own end",
    ],
)
def test_rules(answer: tuple[int, int], entries: EpochEntries, expected: Truncation) -> None:
    assert (
        truncation_for(
            *answer,
            fallback_offset=4,
            log_end_offset=20,
            end_offset_for_epoch=lambda epoch: end_offset_for(entries, 20, epoch),
        )
        == expected
    )


def test_it_prints_as_kafka_prints_it() -> None:
    assert str(Truncation(12, True)) == "TruncationState(offset=12, completed=true)"


def entries_of(epochs: list[int]) -> EpochEntries:
    """Return the epoch entries of a log, which is given as the list of its records' epochs."""
    entries: EpochEntries = []
    for offset, epoch in enumerate(epochs):
        if not entries or entries[-1][0] != epoch:
            entries.append((epoch, offset))
    return entries


runs = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4)), max_size=5)


@given(common=runs, leader_tail=runs, follower_tail=runs)
def test_asking_until_complete_leaves_a_prefix_of_the_leaders_log(
    common: list[tuple[int, int]], leader_tail: list[tuple[int, int]], follower_tail: list[tuple[int, int]]
) -> None:
    """One leader writes all records of an epoch, so equal (epoch, offset) means equal record.

    So the tails of leader and follower get epochs that the other one lacks: even numbers on one side, odd ones on the
    other.
    """
    epoch = 0
    shared: list[int] = []
    for step, count in common:
        epoch += step
        shared += [epoch] * count

    def grow(tail: list[tuple[int, int]], parity: int) -> list[int]:
        records, current = list(shared), epoch + 2 + parity - (epoch % 2)
        for step, count in tail:
            current += 2 * step
            records += [current] * count
        return records

    leader, follower = grow(leader_tail, 0), grow(follower_tail, 1)
    leader_entries = [*entries_of(leader), (1000, len(leader))]
    for _ in range(20):
        if not follower:
            break
        asked = follower[-1]
        answer = end_offset_for(leader_entries, len(leader), asked)
        if answer[0] == asked and answer[1] >= len(follower):
            break
        entries, end = entries_of(follower), len(follower)
        cut = truncation_for(
            *answer,
            fallback_offset=0,
            log_end_offset=end,
            end_offset_for_epoch=partial(end_offset_for, entries, end),
        )
        assert cut.offset <= end
        follower = follower[: cut.offset]
        if cut.is_complete:
            break
    assert follower == leader[: len(follower)]
    assert len(follower) >= len(shared), "what both had is never thrown away"
