"""The states of partitions and replicas, from which of them each may be entered, and why a change fails. No logic."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from engine.common.errors import KlammError
from engine.common.model import TopicPartition


class PartitionAndReplica(NamedTuple):
    """One replica of one partition."""

    topic_partition: TopicPartition
    replica: int

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    def __str__(self) -> str:
        topic, partition = self.topic_partition
        return f"[Topic={topic},Partition={partition},Replica={self.replica}]"


class PartitionState(Enum):
    """The state of a partition, as the controller sees it. The values are the names in state-change.log."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"

    def __str__(self) -> str:
        return self.value


VALID_PREVIOUS_PARTITION_STATES: Mapping[PartitionState, tuple[PartitionState, ...]] = {
    PartitionState.NEW: (PartitionState.NON_EXISTENT,),
    PartitionState.ONLINE: (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE),
    PartitionState.OFFLINE: (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE),
    PartitionState.NON_EXISTENT: (PartitionState.OFFLINE,),
}


class ReplicaState(Enum):
    """The state of a replica, as the controller sees it. The values are the names in state-change.log."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"

    def __str__(self) -> str:
        return self.value


_ALIVE_OR_FAILED = (ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE)

VALID_PREVIOUS_REPLICA_STATES: Mapping[ReplicaState, tuple[ReplicaState, ...]] = {
    ReplicaState.NEW: (ReplicaState.NON_EXISTENT,),
    ReplicaState.ONLINE: _ALIVE_OR_FAILED,
    ReplicaState.OFFLINE: _ALIVE_OR_FAILED,
    ReplicaState.DELETION_STARTED: (ReplicaState.OFFLINE,),
    ReplicaState.DELETION_SUCCESSFUL: (ReplicaState.DELETION_STARTED,),
    ReplicaState.DELETION_INELIGIBLE: (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED),
    ReplicaState.NON_EXISTENT: (ReplicaState.DELETION_SUCCESSFUL,),
}


class StateChangeFailed(KlammError):
    """A partition or replica could not be moved to the target state. The text is Kafka's."""


class IllegalTransition(StateChangeFailed):
    """The table of states does not allow the move."""


class RecordsWouldBeLost(StateChangeFailed):
    """A reassignment would remove every replica that has all acknowledged records."""
