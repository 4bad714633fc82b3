"""The state machine's orders: answers, timers, a group to store. This collects them, and the loop carries them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from engine.broker.coordinator.groups.member import JoinResult, SyncResult


class TimerKind(Enum):
    SESSION = "session"
    """A member, or an id that was given out, is removed if it does not show up."""

    JOIN = "join"
    """The wait for members to join ends."""

    SYNC = "sync"
    """The wait for members to ask for their assignments ends."""


class TimerKey(NamedTuple):
    """Names one timer. Starting it again moves its deadline."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class StorePurpose(Enum):
    """Why a group is stored, and so what follows once it is."""

    ASSIGNMENT = "assignment"
    """The leader's assignment: members get theirs, the group is stable."""

    STATIC_REJOIN = "static rejoin"
    """A static member came back under a new member id: its join is answered."""

    EMPTY = "empty"
    """The last member has left: nothing follows."""


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Write the group as it was when this was created; once it is replicated, tell the state machine the result."""

    group_id: str
    generation_id: int
    purpose: StorePurpose
    assignments: dict[str, bytes]
    undo: Any = None
    """For a static member: what it was before. Only the state machine looks into it."""


@dataclass(slots=True)
class Outbox:
    """The consequences of one or more events, in order."""

    replies: list[tuple[Callable[[Any], None], JoinResult | SyncResult]] = field(default_factory=list)
    timers: dict[TimerKey, int | None] = field(default_factory=dict)
    """Milliseconds from now; None stops the timer."""
    stores: list[StoreGroup] = field(default_factory=list)

    def reply(self, reply: Callable[[Any], None], result: JoinResult | SyncResult) -> None:
        self.replies.append((reply, result))

    def start_timer(self, key: TimerKey, delay_ms: int) -> None:
        """Start a timer, or move its deadline."""
        self.timers[key] = delay_ms

    def stop_timer(self, key: TimerKey) -> None:
        """Stop a timer; nothing happens if it does not run."""
        self.timers[key] = None

    @property
    def is_empty(self) -> bool:
        return not (self.replies or self.timers or self.stores)
