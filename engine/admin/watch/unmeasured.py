"""A group whose lag has not been measured yet. Pure."""

from __future__ import annotations

from dataclasses import replace

from engine.admin.groups.values import GroupState, GroupType, ListedGroup
from engine.admin.lag.results import GroupLag
from engine.admin.lag.verdicts import LagStatus
from engine.admin.watch.frame import WatchedGroup


def unmeasured(name: str, kind: GroupType | None, state: GroupState | None) -> GroupLag:
    """Return what is known about a group that was only listed."""
    return GroupLag(
        name, kind, state, LagStatus.UNKNOWN, None, None, None, None, None, None, None, 0, 0, 0, 0, None, (),
    )  # fmt: skip


def of_other_protocol(listed: ListedGroup) -> WatchedGroup:
    """Return what is known about a group that is not of consumers, such as the workers of Kafka Connect."""
    error = f"a group of protocol {listed.protocol_type}: it has no lag that klamm can tell"
    lag = replace(unmeasured(listed.group, listed.type, listed.state), error=error)
    return WatchedGroup(lag, None, listed.coordinator, listed.protocol_type)
