"""The controller's requests to brokers, as values: what they say, not how a protocol version encodes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.common.model import BrokerInfo, LeaderAndIsr, ReplicaAssignment, TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderAndIsrPartition:
    """One partition of a LeaderAndIsr request. ``is_new`` lets the broker create a replica that it never had."""

    topic_partition: TopicPartition
    controller_epoch: int
    state: LeaderAndIsr
    assignment: ReplicaAssignment
    is_new: bool

    def __str__(self) -> str:
        topic, partition = self.topic_partition
        state = self.state
        return (
            f"LeaderAndIsrPartitionState(topicName='{topic}', partitionIndex={partition}, "
            f"controllerEpoch={self.controller_epoch}, leader={state.leader}, leaderEpoch={state.leader_epoch}, "
            f"isr={list(state.isr)}, partitionEpoch={state.partition_epoch}, "
            f"replicas={list(self.assignment.replicas)}, addingReplicas={list(self.assignment.adding_replicas)}, "
            f"removingReplicas={list(self.assignment.removing_replicas)}, isNew={str(self.is_new).lower()}, "
            f"leaderRecoveryState={int(state.leader_recovery_state)})"
        )


@dataclass(frozen=True, slots=True)
class LeaderAndIsrToBroker:
    """A LeaderAndIsr request. ``leaders`` are the registered leaders of its partitions."""

    broker_id: int
    broker_epoch: int
    controller_epoch: int
    partitions: tuple[LeaderAndIsrPartition, ...]
    leaders: tuple[BrokerInfo, ...]
    topic_ids: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class UpdateMetadataPartition:
    """One partition in an UpdateMetadata request. Leader -2 tells the broker to forget it."""

    topic_partition: TopicPartition
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UpdateMetadataToBroker:
    """An UpdateMetadata request. ``topic_ids`` may lack topics that have no id."""

    broker_id: int
    broker_epoch: int
    controller_epoch: int
    partitions: tuple[UpdateMetadataPartition, ...]
    live_brokers: tuple[BrokerInfo, ...]
    topic_ids: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StopReplicaPartition:
    """One replica in a StopReplica request; ``delete`` removes its files too."""

    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool

    def __str__(self) -> str:
        return (
            f"StopReplicaPartitionState(partitionIndex={self.topic_partition.partition}, "
            f"leaderEpoch={self.leader_epoch}, deletePartition={str(self.delete).lower()})"
        )


@dataclass(frozen=True, slots=True)
class StopReplicaToBroker:
    broker_id: int
    broker_epoch: int
    controller_epoch: int
    partitions: tuple[StopReplicaPartition, ...]


BrokerRequest = LeaderAndIsrToBroker | UpdateMetadataToBroker | StopReplicaToBroker
