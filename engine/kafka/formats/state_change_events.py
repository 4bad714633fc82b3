"""The events in ``state-change.log``, one class per type. ``state_change_sentences`` reads them.

They are tuples, because a log has millions. A partition's state in them is one value of six notations since Kafka
0.8.2: of ``LeaderIsrAndControllerEpoch`` (``(Leader:1,ISR:1,2,LeaderEpoch:5,…)``), of ``LeaderAndIsr`` (JSON until 1.0,
``LeaderAndIsr(leader=1, …)`` since), and of the partition states in LeaderAndIsr and UpdateMetadata requests.
"""

from __future__ import annotations

import json
import re
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from engine.common.model import TopicPartition


class StateRole(Enum):
    """The stage of a partition's state that a line shows."""

    DECIDED = auto()
    """The controller has written it."""
    SENT = auto()
    """The controller sends it to a broker."""
    RECEIVED = auto()
    """A replica receives it."""
    CACHED = auto()
    """A broker keeps it as metadata."""


class RequestKind(StrEnum):
    """The controller's requests that can be traced from its log to the broker's."""

    LEADER_AND_ISR = "LeaderAndIsr"
    STOP_REPLICA = "StopReplica"


class Refusal(Enum):
    """Why a broker refused what the controller asked."""

    OLD_LEADER_EPOCH = auto()
    OFFLINE_LOG_DIR = auto()
    NOT_A_REPLICA = auto()
    LEADER_UNAVAILABLE = auto()


class StateSeen(NamedTuple):
    """A line shows a partition's state. ``moved_from`` is the state machine's old state, if the line shows a step."""

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
    """A step of the controller's state machine failed."""

    partition: TopicPartition
    before: str
    after: str


class RoleStarted(NamedTuple):
    """A replica has begun to lead or to follow; only leaders give ``isr``, since 2.6."""

    partition: TopicPartition
    is_leader: bool
    leader_epoch: int
    partition_epoch: int | None
    isr: tuple[int, ...] | None
    is_under_min_isr: bool


class Reassigned(NamedTuple):
    """A line shows a reassignment. ``targets`` are the replicas that it leads to; None where only a leader says so."""

    partition: TopicPartition
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    targets: tuple[int, ...] | None = None


class ReplicaAsBefore(NamedTuple):
    """The controller sent a replica the role that it has already: a reassignment under way was requested again."""

    partition: TopicPartition


class PartitionSent(NamedTuple):
    """The controller puts a partition into a request to a broker (TRACE since 2.6)."""

    request: RequestKind
    broker_id: int
    partition: TopicPartition
    leader_epoch: int | None


class PartitionHandled(NamedTuple):
    """A broker names a partition of a request that it received."""

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
    """A broker refused a request because its controller has been replaced."""

    controller_id: int | None
    controller_epoch: int
    latest_epoch: int


class Refused(NamedTuple):
    """A broker refused a request for a partition."""

    partition: TopicPartition
    reason: Refusal


class ReplicasOffline(NamedTuple):
    """A broker's log dir has failed, and these replicas with it."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


class PartitionDeleted(NamedTuple):
    """A broker forgets a deleted partition."""

    partition: TopicPartition


class PartitionsForgotten(NamedTuple):
    """A broker forgets this many deleted partitions, without naming them (since 2.6)."""

    partition_count: int


class UncleanlyElected(NamedTuple):
    """A leader reports that it was elected while out of sync (since 3.2)."""

    partition: TopicPartition


Event = (
    StateSeen
    | LeaderElected
    | PartitionMoved
    | MoveFailed
    | RoleStarted
    | Reassigned
    | ReplicaAsBefore
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


class PrintedState(NamedTuple):
    """Leadership of a partition. Fields that a notation lacks are None; ``partition_epoch`` is the znode's version."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int | None = None
    controller_epoch: int | None = None
    is_recovering: bool | None = None
    """Whether the leader was elected out of sync and has not recovered; known since 3.2."""


_LEADER_ISR = re.compile(
    r"\(Leader:(-?\d{1,10}),ISR:([\d,]*),(?:LeaderRecoveryState:(\w+),)?LeaderEpoch:(-?\d{1,10})(?:,ZkVersion:(-?\d{1,10}))?"
    r",ControllerEpoch:(-?\d{1,10})\)"
)
_LEADER_AND_ISR = re.compile(
    r"LeaderAndIsr\(leader=(-?\d{1,10}), leaderEpoch=(-?\d{1,10}), "
    r"(?:isr=\w+\(([\d, ]*)\)|isrWithBrokerEpoch=\w+\(((?:BrokerState\([^)]*\)(?:, )?)*)\))"
    r"(?:, leaderRecoveryState=(\w+))?, (?:zkVersion|partitionEpoch)=(-?\d{1,10})\)"
)
_REQUEST_STATE = re.compile(
    r"controllerEpoch=(-?\d{1,10}), leader=(-?\d{1,10}), leaderEpoch=(-?\d{1,10}), isr=\[?([\d, ]*?)\]?"
    r", (?:zkVersion|partitionEpoch)=(-?\d{1,10})\b(?:.*?leaderRecoveryState=(\d))?"
)
_JSON_STATE = re.compile(r"\{(?=[^{}]*\"leader\")[^{}]*+\}")
_BROKER_ID = re.compile(r"brokerId=(\d{1,10})")
_ID = re.compile(r"\d{1,10}")


def state_in(message: str) -> PrintedState | None:
    """Return the first state in a message, or None if it has none."""
    if "Leader:" in message:
        return _from_leader_isr(message)
    if "LeaderAndIsr(leader=" in message:
        return _from_leader_and_isr(message)
    if "leaderEpoch=" in message:
        return _from_request(message)
    if '"leader"' in message:
        return _from_json(message)
    return None


def broker_ids(text: str) -> tuple[int, ...]:
    """Return the ids in a list such as ``1,2`` or ``[1, 2]``."""
    return tuple(map(int, _ID.findall(text)))


def _is_recovering(word: str | None) -> bool | None:
    return None if word is None else word in ("RECOVERING", "1")


def _from_leader_isr(message: str) -> PrintedState | None:
    match = _LEADER_ISR.search(message)
    if match is None:
        return None
    leader, isr, recovery, leader_epoch, zk_version, controller_epoch = match.groups()
    return PrintedState(
        int(leader),
        int(leader_epoch),
        broker_ids(isr),
        int(zk_version) if zk_version is not None else None,
        int(controller_epoch),
        _is_recovering(recovery),
    )


def _from_leader_and_isr(message: str) -> PrintedState | None:
    match = _LEADER_AND_ISR.search(message)
    if match is None:
        return None
    leader, leader_epoch, ids, brokers, recovery, partition_epoch = match.groups()
    isr = broker_ids(ids) if brokers is None else tuple(map(int, _BROKER_ID.findall(brokers)))
    return PrintedState(
        int(leader), int(leader_epoch), isr, int(partition_epoch), is_recovering=_is_recovering(recovery)
    )


def _from_request(message: str) -> PrintedState | None:
    match = _REQUEST_STATE.search(message)
    if match is None:
        return None
    controller_epoch, leader, leader_epoch, isr, partition_epoch, recovery = match.groups()
    return PrintedState(
        int(leader),
        int(leader_epoch),
        broker_ids(isr),
        int(partition_epoch),
        int(controller_epoch),
        _is_recovering(recovery),
    )


def _from_json(message: str) -> PrintedState | None:
    match = _JSON_STATE.search(message)
    if match is None:
        return None
    try:
        document = json.loads(match[0])
        return PrintedState(
            int(document["leader"]),
            int(document["leader_epoch"]),
            tuple(map(int, document["isr"])),
            controller_epoch=document.get("controller_epoch"),
        )
    except (ValueError, KeyError, TypeError):
        return None
