"""The states of a group and the transitions between them. A table, nothing else. Source: Kafka 3.9."""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """A group's state; the values are the words that clients see."""

    EMPTY = "Empty"
    """No members; there may be offsets."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until the members have joined, at most for the rebalance time-out."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The members are known; waits for the leader's assignment."""

    STABLE = "Stable"
    """Every member may fetch its assignment."""

    DEAD = "Dead"
    """Removed, or moved to another coordinator. A final state."""


_S = GroupState

VALID_PREVIOUS_STATES: Final[dict[GroupState, frozenset[GroupState]]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.PREPARING_REBALANCE: frozenset({_S.STABLE, _S.COMPLETING_REBALANCE, _S.EMPTY}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.DEAD: frozenset(_S),
}
