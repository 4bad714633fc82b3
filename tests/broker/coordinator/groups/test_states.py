"""The table of states: every pair of them."""

from __future__ import annotations

import itertools

import pytest

from engine.broker.coordinator.groups.group import Group, GroupState

S = GroupState
ALLOWED = {
    (S.EMPTY, S.PREPARING_REBALANCE),
    (S.STABLE, S.PREPARING_REBALANCE),
    (S.COMPLETING_REBALANCE, S.PREPARING_REBALANCE),
    (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE),
    (S.PREPARING_REBALANCE, S.EMPTY),
    (S.COMPLETING_REBALANCE, S.STABLE),
    *((state, S.DEAD) for state in S),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(S, S)))
def test_every_transition(before: GroupState, after: GroupState) -> None:
    group = Group("g", 1)
    group.state = before
    if (before, after) in ALLOWED:
        group.transition_to(after, 2)
        assert (group.state, group.state_timestamp_ms) == (after, 2)
    else:
        with pytest.raises(ValueError, match="cannot pass"):
            group.transition_to(after, 2)
        assert (group.state, group.state_timestamp_ms) == (before, 1)
