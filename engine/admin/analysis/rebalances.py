"""What a group went through while the dashboard watched: states with their times, who came and who left. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.admin.groups.values import GroupState
from engine.admin.watch.events import Event, EventKind

_REBALANCING = (
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.ASSIGNING,
    GroupState.RECONCILING,
)
_KINDS = (EventKind.GROUP_STATE_CHANGED, EventKind.GROUP_MEMBERS_CHANGED)


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One change of a group. ``lasted_ms`` is how long the previous state was seen; None means not known."""

    event: Event
    lasted_ms: int | None = None

    @property
    def is_of_members(self) -> bool:
        return self.event.kind is EventKind.GROUP_MEMBERS_CHANGED


@dataclass(frozen=True, slots=True)
class GroupPast:
    """The changes of a group, the newest first, and how often it was seen to begin a rebalance."""

    changes: tuple[GroupChange, ...]
    rebalances: int


def group_past(events: Iterable[Event], group: str) -> GroupPast:
    """Return a group's past from all events, which come the oldest first."""
    changes, rebalances, since_ms = [], 0, None
    for event in events:
        if event.kind not in _KINDS or event.subject != f"group {group}":
            continue
        if event.kind is EventKind.GROUP_MEMBERS_CHANGED:
            changes.append(GroupChange(event))
            continue
        changes.append(GroupChange(event, None if since_ms is None else event.at_ms - since_ms))
        since_ms = event.at_ms
        rebalances += event.after in _REBALANCING and event.before not in _REBALANCING
    return GroupPast(tuple(reversed(changes)), rebalances)
