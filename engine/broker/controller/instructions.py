"""The instructions of the controller's core: ZooKeeper reads and writes, requests to brokers, watches, answers.

The core handles an event as a generator: it yields an instruction and is sent the result. So it processes an event to
its end, in Kafka's order, without knowing who carries the instructions out. ``carry_out`` is the typed way to yield
one. If an instruction fails as a whole, the error is thrown into the generator: ``ControllerMoved`` when the epoch
check of a write failed or the session ended, ``CoordinationError`` otherwise. Failures of single partitions are values
of the result.

Every write is guarded by the version of ``/controller_epoch`` unless its docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from engine.broker.controller.broker_requests import BrokerRequest
from engine.broker.controller.events import ControllerEvent
from engine.common.errors import CoordinationError
from engine.common.model import BrokerInfo, LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicPartition
from engine.kafka.zk.cluster import ProducerIdBlock
from engine.kafka.zk.partitions import Notifications, PartitionStateRead, PartitionStateUpdates
from engine.kafka.zk.topics import TopicIdReplicaAssignment

R = TypeVar("R")
T = TypeVar("T")


class Instruction(Generic[R]):
    """Base of all instructions; ``R`` is the type of the result that the core gets."""

    __slots__ = ()


Steps = Generator[Instruction[Any], Any, T]
"""A part of the core that may yield instructions and returns a ``T``."""


def carry_out(instruction: Instruction[R]) -> Steps[R]:
    """Yield one instruction and return its result."""
    result: R = yield instruction
    return result


SLICE_SIZE = 64
"""Partitions that the core handles between two ``GiveWay``; a few milliseconds with their log lines."""


@dataclass(frozen=True, slots=True)
class GiveWay(Instruction[None]):
    """Does nothing: the loop that carries instructions out may let other tasks run.

    The event continues afterwards, and nothing else changes the context meanwhile.
    """


@dataclass(frozen=True, slots=True)
class Continue(Instruction[None]):
    """Queue ``event`` behind those that wait; its answer goes to the caller of the current event."""

    event: ControllerEvent


def slices(items: Iterable[T], size: int = SLICE_SIZE) -> Iterator[tuple[T, ...]]:
    """Cut a long loop into slices; the core gives way before each."""
    rest = iter(items)
    while piece := tuple(islice(rest, size)):
        yield piece


SCAN_SIZE = 2000
"""Partitions that the core scans between two ``GiveWay`` if it does nothing with most of them: a few milliseconds."""


def each(items: Iterable[T], work: Callable[[T], object]) -> Steps[None]:
    """Do something small with each of very many items, and give way now and then.

    The items may come from a collection of the context: nothing else changes it meanwhile.
    """
    for number, piece in enumerate(slices(items, SCAN_SIZE)):
        if number:
            yield from carry_out(GiveWay())
        for item in piece:
            work(item)


def select(items: Iterable[T], is_wanted: Callable[[T], bool]) -> Steps[list[T]]:
    """Return the wanted ones of very many items, and give way now and then."""
    selected: list[T] = []

    def look(item: T) -> None:
        if is_wanted(item):
            selected.append(item)

    yield from each(items, look)
    return selected


# Results; most are those of engine.kafka.zk


@dataclass(frozen=True, slots=True)
class AdminRequest(Generic[T]):
    """Content of a znode in ``/admin`` that a person or tool wrote; ``malformed`` says why it cannot be decoded."""

    values: T
    malformed: str | None = None


ReassignmentRequest = AdminRequest[dict[TopicPartition, tuple[int, ...]]]
ElectionRequest = AdminRequest[tuple[TopicPartition, ...]]


# Reads


@dataclass(frozen=True, slots=True)
class ReadBrokers(Instruction[dict[int, BrokerInfo]]):
    """All registered brokers with their epochs."""


@dataclass(frozen=True, slots=True)
class ReadBroker(Instruction[BrokerInfo | None]):
    broker_id: int


@dataclass(frozen=True, slots=True)
class ReadTopics(Instruction[list[str]]):
    """Names of all topics."""


@dataclass(frozen=True, slots=True)
class ReadTopicAssignments(Instruction[dict[str, TopicIdReplicaAssignment]]):
    """Topic znodes, without topics that have none or one that cannot be decoded (which is logged)."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadPartitionIds(Instruction[set[int]]):
    """Ids of the partitions that have a znode below the topic's; empty if there is none."""

    topic: str


@dataclass(frozen=True, slots=True)
class ReadPartitionStates(Instruction[dict[TopicPartition, PartitionStateRead]]):
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReadTopicDeletions(Instruction[list[str]]):
    """Names below ``/admin/delete_topics``."""


@dataclass(frozen=True, slots=True)
class ReadReassignments(Instruction[ReassignmentRequest | None]):
    """``/admin/reassign_partitions``; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class ReadPreferredElection(Instruction[ElectionRequest | None]):
    """``/admin/preferred_replica_election``; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class ReadIsrChangeNotifications(Instruction[Notifications[TopicPartition]]):
    pass


@dataclass(frozen=True, slots=True)
class ReadLogDirEvents(Instruction[Notifications[int]]):
    """Ids of brokers that report a failed log dir."""


@dataclass(frozen=True, slots=True)
class ReadUncleanElectionEnabled(Instruction[dict[str, bool | CoordinationError]]):
    """``unclean.leader.election.enable`` of topics: their own override, else the broker's setting."""

    topics: tuple[str, ...]


# Writes


@dataclass(frozen=True, slots=True)
class CreatePartitionStates(Instruction[dict[TopicPartition, CoordinationError | None]]):
    """Create ``partitions``, ``partitions/<p>`` and ``partitions/<p>/state``; None if it worked."""

    states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]


@dataclass(frozen=True, slots=True)
class UpdateLeaderAndIsr(Instruction[PartitionStateUpdates]):
    """Write state znodes, each on condition that its version is the value's ``partition_epoch``."""

    states: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class SetTopicAssignments(Instruction[list[str]]):
    """Write topics' znodes, each on condition of its ``zk_version``; the result names those to read again."""

    assignments: tuple[TopicIdReplicaAssignment, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopicZNodes(Instruction[None]):
    """Delete a topic's znode with its subtree, its configuration, its deletion mark, in this order, if they exist."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteTopicDeletions(Instruction[None]):
    """Remove deletion marks."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetReassignments(Instruction[None]):
    """Write ``/admin/reassign_partitions``; delete it if nothing is left."""

    reassignments: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class DeletePreferredElection(Instruction[None]):
    """Delete ``/admin/preferred_replica_election``; usually it does not exist."""


@dataclass(frozen=True, slots=True)
class DeleteIsrChangeNotifications(Instruction[None]):
    """Delete the named notifications; None means all."""

    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DeleteLogDirEvents(Instruction[None]):
    """Delete the named notifications; None means all."""

    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SetUpFeatures(Instruction[None]):
    """Create or update ``/feature`` to match the controller's IBP. Not guarded, as in Kafka."""


@dataclass(frozen=True, slots=True)
class AllocateProducerIdBlock(Instruction[ProducerIdBlock]):
    """Claim the next block of producer ids for a broker. Conditional on the znode's version, not guarded (Kafka)."""

    broker_id: int


# Everything else


@dataclass(frozen=True, slots=True)
class SendRequests(Instruction[None]):
    """Queue requests to brokers. Answers come back as events."""

    requests: tuple[BrokerRequest, ...]


@dataclass(frozen=True, slots=True)
class ConnectBrokers(Instruction[None]):
    """Open a send queue to each broker."""

    brokers: tuple[BrokerInfo, ...]


@dataclass(frozen=True, slots=True)
class DisconnectBrokers(Instruction[None]):
    """Close the send queues of brokers; requests that wait in them are dropped."""

    broker_ids: tuple[int, ...]


class WatchInstruction(Instruction[None]):
    """Base of the instructions for watches."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class WatchCluster(WatchInstruction):
    """Watch what every active controller watches: the children of five nodes, and two nodes of ``/admin``."""


@dataclass(frozen=True, slots=True)
class WatchBrokers(WatchInstruction):
    """Watch the registrations of brokers for changes of their content."""

    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnwatchBrokers(WatchInstruction):
    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WatchTopics(WatchInstruction):
    """Watch topic znodes for changes of their content."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnwatchTopics(WatchInstruction):
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WatchPartitionState(WatchInstruction):
    """Watch one partition's state for ISR changes (IBP before 2.7-IV2, while it is reassigned)."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class UnwatchPartitionState(WatchInstruction):
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class ScheduleLeaderRebalance(Instruction[None]):
    """Queue an AutoPreferredReplicaLeaderElection event after a while."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class ScheduleTopicDeletion(Instruction[None]):
    """Queue a TopicDeletionRequested event after a while, to try a deletion again."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Answer(Instruction[None]):
    """Answer the event's caller; only the first answer counts. The event continues after it."""

    value: object
