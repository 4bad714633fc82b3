"""A group whose lag has not been measured yet. Pure."""

from __future__ import annotations

from engine.admin.groups.values import GroupState, GroupType
from engine.admin.lag.results import GroupLag
from engine.admin.lag.rules import LagStatus


def unmeasured(name: str, kind: GroupType | None, state: GroupState | None) -> GroupLag:
    """Return what is known about a group that was only listed."""
    return GroupLag(
        name, kind, state, LagStatus.UNKNOWN, None, None, None, None, None, None, None, 0, 0, 0, 0, None, (),
    )  # fmt: skip
