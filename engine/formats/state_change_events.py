"""The events that ``state-change.log`` tells of, one value per kind. They are read by ``state_change_sentences``.

They are tuples, for a log tells of millions.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import NamedTuple

from engine.common.model import TopicPartition
from engine.formats.state_change_states import PrintedState


class StateRole(Enum):
    """Where in the life of a partition's state a line stands."""

    DECIDED = auto()
    """The controller has written it."""
    SENT = auto()
    """The controller tells a broker."""
    RECEIVED = auto()
    """A replica is told."""
    CACHED = auto()
    """A broker keeps it as metadata."""


class RequestKind(StrEnum):
    """The controller's requests whose way from the controller's log into the broker's can be followed."""

    LEADER_AND_ISR = "LeaderAndIsr"
    STOP_REPLICA = "StopReplica"


class Refusal(Enum):
    """Why a broker did not do what the controller asked."""

    OLD_LEADER_EPOCH = auto()
    OFFLINE_LOG_DIR = auto()
    NOT_A_REPLICA = auto()
    LEADER_UNAVAILABLE = auto()


class StateSeen(NamedTuple):
    """A line prints the state of a partition. ``moved_from`` is the state machine's, if the line tells of a step."""

    partition: TopicPartition
    state: PrintedState
    role: StateRole
    moved_from: str | None = None


class LeaderElected(NamedTuple):
    """The controller names a leader without the rest of the state (until 1.0)."""

    partition: TopicPartition
    leader: int


class PartitionMoved(NamedTuple):
    """The controller's state machine: ``OnlinePartition`` to ``OfflinePartition`` and so on."""

    partition: TopicPartition
    before: str
    after: str


class MoveFailed(NamedTuple):
    """The controller could not do a step of its state machine."""

    partition: TopicPartition
    before: str
    after: str


class RoleStarted(NamedTuple):
    """A replica has begun to lead or to follow; ``isr`` is told by leaders only, since 2.6."""

    partition: TopicPartition
    is_leader: bool
    leader_epoch: int
    partition_epoch: int | None
    isr: tuple[int, ...] | None
    is_under_min_isr: bool


class PartitionSent(NamedTuple):
    """The controller puts a partition into a request to a broker (TRACE since 2.6)."""

    request: RequestKind
    broker_id: int
    partition: TopicPartition
    leader_epoch: int | None


class PartitionHandled(NamedTuple):
    """A broker names a partition of a request that it got."""

    request: RequestKind
    partition: TopicPartition
    leader_epoch: int | None


class RequestSent(NamedTuple):
    """The controller sends a broker a request (since 2.6)."""

    request: RequestKind
    broker_id: int
    partition_count: int


class RequestHandled(NamedTuple):
    """A broker begins to carry out a request (since 2.6)."""

    request: RequestKind
    controller_id: int
    partition_count: int


class OldController(NamedTuple):
    """A broker turned a request away because its controller has been replaced."""

    controller_id: int | None
    controller_epoch: int
    latest_epoch: int


class Refused(NamedTuple):
    """A broker did not do what it was asked for a partition."""

    partition: TopicPartition
    reason: Refusal


class ReplicasOffline(NamedTuple):
    """A broker's log dir has failed, and these replicas with it."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


class PartitionDeleted(NamedTuple):
    """A broker forgets a partition that was deleted."""

    partition: TopicPartition


class PartitionsForgotten(NamedTuple):
    """A broker forgets this many partitions that were deleted, without naming them (since 2.6)."""

    partition_count: int


class UncleanlyElected(NamedTuple):
    """A leader says that it was elected out of sync (since 3.2)."""

    partition: TopicPartition


Event = (
    StateSeen
    | LeaderElected
    | PartitionMoved
    | MoveFailed
    | RoleStarted
    | PartitionSent
    | PartitionHandled
    | RequestSent
    | RequestHandled
    | OldController
    | Refused
    | ReplicasOffline
    | PartitionDeleted
    | PartitionsForgotten
    | UncleanlyElected
)
