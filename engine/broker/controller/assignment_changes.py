"""How a partition's assignment changes: towards a target (KIP-455), and by losing a replica. Pure values."""

from __future__ import annotations

from collections.abc import Sequence

from engine.common.model import ReplicaAssignment


def reassign_to(assignment: ReplicaAssignment, target: Sequence[int]) -> ReplicaAssignment:
    """Return the assignment under way to ``target``: the target first, then the old replicas that are not in it.

    It replaces a reassignment under way: the replicas which that one was adding no longer count.
    """
    origin, wanted = dict.fromkeys(assignment.origin_replicas), dict.fromkeys(target)
    replicas = tuple(wanted | origin)
    return ReplicaAssignment(
        replicas=replicas,
        adding_replicas=tuple(r for r in replicas if r not in origin),
        removing_replicas=tuple(r for r in replicas if r not in wanted),
    )


def without(assignment: ReplicaAssignment, replica: int) -> ReplicaAssignment:
    """Return the assignment without a replica, whichever list names it."""
    return ReplicaAssignment(
        replicas=tuple(r for r in assignment.replicas if r != replica),
        adding_replicas=tuple(r for r in assignment.adding_replicas if r != replica),
        removing_replicas=tuple(r for r in assignment.removing_replicas if r != replica),
    )
