"""Turns a set of replicas and a leader into a list in preference order, as near to the current list as possible."""

from __future__ import annotations

from plans.problem import bits, mask_of


def ordered(current: tuple[int, ...], held: int, leader: int) -> tuple[int, ...]:
    """Return the list: what stays keeps its place, what is new takes the places of what leaves, the leader is first."""
    fresh = list(bits(held & ~mask_of(current)))
    replicas: list[int] = []
    for broker in current:
        if held >> broker & 1:
            replicas.append(broker)
        elif fresh:
            replicas.append(fresh.pop(0))
    replicas += fresh
    if replicas[0] != leader:
        replicas.remove(leader)
        replicas.insert(0, leader)
    return tuple(replicas)
