"""The events that the controller reacts to: values in one queue, each processed to its end before the next.

``state`` names what the controller is doing meanwhile (the ControllerState metric); ``refusal`` is the answer an event
gets when it is dropped because the controller resigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import ClassVar

from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, LeaderRecoveryState, TopicPartition


class ControllerState(IntEnum):
    """Kafka's ControllerState metric."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE_RECEIVED = 16
    UPDATE_FEATURES = 17


class ElectionType(IntEnum):
    """The kinds of election that ElectLeaders can request."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionTrigger(Enum):
    """What triggered an election. The values are Kafka's names in controller.log."""

    AUTO = "AutoTriggered"
    ZOOKEEPER = "ZkTriggered"
    ADMIN_CLIENT = "AdminClientTriggered"


@dataclass(frozen=True, slots=True)
class ApiError:
    """An error code with the text for the client; ``SUCCESS`` has none."""

    code: ErrorCode
    message: str | None = None


SUCCESS = ApiError(ErrorCode.NONE)
NOT_CONTROLLER = ApiError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")


class ControllerEvent:
    """Base of all events."""

    __slots__ = ()

    state: ClassVar[ControllerState] = ControllerState.IDLE

    def __init_subclass__(cls, state: ControllerState | None = None) -> None:
        # A dataclass with slots is made twice, the second time without arguments.
        if state is not None:
            cls.state = state

    @property
    def refusal(self) -> object:
        """The answer to an event that is not processed; None if no caller waits for one."""
        return None


# Watches


@dataclass(frozen=True, slots=True)
class BrokerChange(ControllerEvent, state=ControllerState.BROKER_CHANGE):
    """Brokers came or went."""


@dataclass(frozen=True, slots=True)
class BrokerModification(ControllerEvent, state=ControllerState.BROKER_CHANGE):
    """A broker's registration has new content."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicChange(ControllerEvent, state=ControllerState.TOPIC_CHANGE):
    """Topics came or went."""


@dataclass(frozen=True, slots=True)
class PartitionModifications(ControllerEvent, state=ControllerState.TOPIC_CHANGE):
    """A topic's znode has new content."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletionRequested(ControllerEvent, state=ControllerState.TOPIC_DELETION):
    """The children of ``/admin/delete_topics`` changed."""


@dataclass(frozen=True, slots=True)
class ZkPartitionReassignment(ControllerEvent, state=ControllerState.ALTER_PARTITION_REASSIGNMENT):
    """``/admin/reassign_partitions`` was created or changed."""


@dataclass(frozen=True, slots=True)
class ZkPreferredElection(ControllerEvent, state=ControllerState.MANUAL_LEADER_BALANCE):
    """``/admin/preferred_replica_election`` was created."""


@dataclass(frozen=True, slots=True)
class PartitionReassignmentIsrChange(ControllerEvent, state=ControllerState.ALTER_PARTITION_REASSIGNMENT):
    """The state of a partition being reassigned changed (IBP before 2.7-IV2)."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class IsrChangeNotification(ControllerEvent, state=ControllerState.ISR_CHANGE):
    """Leaders wrote ISR changes themselves (IBP before 2.7-IV2)."""


@dataclass(frozen=True, slots=True)
class LogDirEventNotification(ControllerEvent, state=ControllerState.LOG_DIR_CHANGE):
    """A log dir of some broker failed."""


# Answers of brokers


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived(ControllerEvent, state=ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED):
    """``partition_errors``: one per partition of the request; ``text``: the answer as Kafka would print it.

    ``broker_epoch`` is the request's: an answer from before a restart says nothing about the broker now.
    """

    broker_id: int
    broker_epoch: int
    error: ErrorCode
    partition_errors: Mapping[TopicPartition, ErrorCode]
    text: str = ""


@dataclass(frozen=True, slots=True)
class UpdateMetadataResponseReceived(ControllerEvent, state=ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED):
    """``text``: the answer as Kafka would print it."""

    broker_id: int
    broker_epoch: int
    error: ErrorCode
    text: str = ""


@dataclass(frozen=True, slots=True)
class StopReplicaResponseReceived(ControllerEvent, state=ControllerState.TOPIC_DELETION):
    """``deleted`` has the partitions that the request deletes, each with the outcome."""

    broker_id: int
    broker_epoch: int
    error: ErrorCode
    deleted: Mapping[TopicPartition, ErrorCode]


# The controller's own events


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection(ControllerEvent, state=ControllerState.AUTO_LEADER_BALANCE):
    """It is time to check whether the preferred replicas lead."""


@dataclass(frozen=True, slots=True)
class UncleanLeaderElectionEnable(ControllerEvent, state=ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE):
    """``unclean.leader.election.enable`` became true for all topics, or for one."""

    topic: str | None = None


# Requests; each gets an answer


@dataclass(frozen=True, slots=True)
class ControlledShutdown(ControllerEvent, state=ControllerState.CONTROLLED_SHUTDOWN):
    """Answer: the partitions the broker still leads, or an ApiError."""

    broker_id: int
    broker_epoch: int

    @property
    def refusal(self) -> ApiError:
        return ApiError(ErrorCode.STALE_CONTROLLER_EPOCH, "Controller moved to another broker")


PartitionKey = tuple[str | bytes, int]
"""A partition by its topic's name (a ``TopicPartition`` is one) or its topic's id."""


@dataclass(frozen=True, slots=True)
class AlterPartitionItem:
    """A leader's request for one partition. ``isr_epochs`` are the members' broker epochs; -1 is unknown."""

    leader_epoch: int
    isr: Sequence[int]
    partition_epoch: int
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    isr_epochs: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class AlterPartition(ControllerEvent, state=ControllerState.ISR_CHANGE):
    """``partitions``: by topic name or topic id, and partition.

    Answer: an ErrorCode for the whole request, or per partition, by the same keys, the state now or an ErrorCode.
    """

    broker_id: int
    broker_epoch: int
    api_version: int
    partitions: Mapping[PartitionKey, AlterPartitionItem]

    @property
    def refusal(self) -> ErrorCode:
        return ErrorCode.NOT_CONTROLLER


AlterPartitionAnswer = ErrorCode | dict[PartitionKey, LeaderAndIsr | ErrorCode]


@dataclass(frozen=True, slots=True)
class ElectLeaders(ControllerEvent, state=ControllerState.MANUAL_LEADER_BALANCE):
    """Answer: an ApiError for all, or per partition the elected leader's id or an ApiError."""

    partitions: tuple[TopicPartition, ...]
    election_type: ElectionType

    @property
    def refusal(self) -> ApiError:
        return ApiError(ErrorCode.NOT_CONTROLLER)


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignments(ControllerEvent, state=ControllerState.ALTER_PARTITION_REASSIGNMENT):
    """``targets``: new replicas per partition, None cancels. Answer: an ApiError for all, or one per partition.

    ``results`` grows from event to event, in the order of the targets, until it is the answer.
    """

    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    results: dict[TopicPartition, ApiError] = field(default_factory=dict)

    @property
    def refusal(self) -> ApiError:
        return NOT_CONTROLLER


@dataclass(frozen=True, slots=True)
class ProceedWithReassignments(ControllerEvent, state=ControllerState.ALTER_PARTITION_REASSIGNMENT):
    """Reassignments under way whose next step had to wait, because there were too many for one event."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ListPartitionReassignments(ControllerEvent, state=ControllerState.LIST_PARTITION_REASSIGNMENT):
    """``partitions``: None means all. Answer: an ApiError, or the assignments under way."""

    partitions: tuple[TopicPartition, ...] | None

    @property
    def refusal(self) -> ApiError:
        return NOT_CONTROLLER


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(ControllerEvent):
    """Answer: a ProducerIdBlock, or an ErrorCode."""

    broker_id: int
    broker_epoch: int

    @property
    def refusal(self) -> ErrorCode:
        return ErrorCode.NOT_CONTROLLER
