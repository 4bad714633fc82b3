"""A group's rebalances while the dashboard watched: states with their times, which members joined and left. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from engine.admin.groups.values import GroupState
from engine.admin.watch.events import Event, EventKind

_REBALANCING = (
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.ASSIGNING,
    GroupState.RECONCILING,
)
_MINUTE_MS = 60_000
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
    """The changes of a group, the newest first, and how often it rebalanced at least.

    A rebalance between two frames shows by the members that came or went.
    """

    changes: tuple[GroupChange, ...]
    rebalances: int


def group_past(events: Iterable[Event], group: str) -> GroupPast:
    """Return a group's past from all events, which come the oldest first."""
    changes, rebalances, since_ms, state, rebalancing_ms = [], 0, None, "", -1
    for event in events:
        if event.kind not in _KINDS or event.subject != f"group {group}":
            continue
        if event.kind is EventKind.GROUP_MEMBERS_CHANGED:
            changes.append(GroupChange(event))
            is_of_seen = state in _REBALANCING or event.at_ms == rebalancing_ms
            rebalances += event.after != "0" and not is_of_seen
            continue
        changes.append(GroupChange(event, None if since_ms is None else event.at_ms - since_ms))
        since_ms, state = event.at_ms, event.after
        if event.before in _REBALANCING:
            rebalancing_ms = event.at_ms
        rebalances += event.after in _REBALANCING and event.before not in _REBALANCING
    return GroupPast(tuple(reversed(changes)), rebalances)


def changes_of_members(events: Sequence[Event], now_ms: int) -> Counter[str]:
    """Return by the subject of its events how often a group's members came or went in the last minute."""
    last = takewhile(lambda event: event.at_ms > now_ms - _MINUTE_MS, reversed(events))
    return Counter(event.subject for event in last if event.kind is EventKind.GROUP_MEMBERS_CHANGED)
