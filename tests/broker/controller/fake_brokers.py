"""Brokers as the controller's core sees them: how each answers its requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.broker.controller import events
from engine.broker.controller.broker_requests import (
    BrokerRequest,
    LeaderAndIsrToBroker,
    StopReplicaToBroker,
    UpdateMetadataToBroker,
)
from engine.common.errors import ErrorCode
from engine.common.model import (
    LEADER_DURING_DELETE,
    TopicPartition,
)


@dataclass
class FakeReplica:
    """What a broker knows about a partition it hosts."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    is_caught_up: bool = False
    """For a follower: it has everything of the leader with this epoch."""


@dataclass
class FakeBroker:
    """A broker's side of the requests: epoch checks, hosted replicas, metadata cache."""

    broker_id: int
    broker_epoch: int = -1
    controller_epoch: int = 0
    replicas: dict[TopicPartition, FakeReplica] = field(default_factory=dict)
    metadata: dict[TopicPartition, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)
    live_brokers: tuple[int, ...] = ()
    offline: set[TopicPartition] = field(default_factory=set)
    fails_to_delete: set[TopicPartition] = field(default_factory=set)

    def handle(self, request: BrokerRequest) -> events.ControllerEvent | None:
        """Answer a request; return None if the controller wants no answer."""
        error = self._whole_error(request)
        match request:
            case LeaderAndIsrToBroker():
                errors = {} if error else {p.topic_partition: self._become(p) for p in request.partitions}
                return events.LeaderAndIsrResponseReceived(self.broker_id, request.broker_epoch, error, errors, "text")
            case UpdateMetadataToBroker():
                if not error:
                    self._update_metadata(request)
                return events.UpdateMetadataResponseReceived(self.broker_id, request.broker_epoch, error, "text")
            case StopReplicaToBroker():
                deleted = {}
                for part in request.partitions:
                    result = error or self._stop(part)
                    if part.delete:
                        deleted[part.topic_partition] = result
                if not deleted:
                    return None
                return events.StopReplicaResponseReceived(self.broker_id, request.broker_epoch, error, deleted)

    def _whole_error(self, request: BrokerRequest) -> ErrorCode:
        if request.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _become(self, part: Any) -> ErrorCode:
        partition = part.topic_partition
        if partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = self.replicas.get(partition)
        if known is not None and part.state.leader_epoch <= known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.broker_id not in part.assignment.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = part.state
        if state.leader not in (self.broker_id, *self.live_brokers):
            # The leader cannot be followed: the broker ignores the epoch, and needs the same state again.
            return ErrorCode.NONE
        self.replicas[partition] = FakeReplica(
            state.leader, state.leader_epoch, state.isr, state.partition_epoch, part.assignment.replicas
        )
        return ErrorCode.NONE

    def _update_metadata(self, request: UpdateMetadataToBroker) -> None:
        self.live_brokers = tuple(b.id for b in request.live_brokers)
        for part in request.partitions:
            if part.leader == LEADER_DURING_DELETE:
                self.metadata.pop(part.topic_partition, None)
            else:
                self.metadata[part.topic_partition] = (part.leader, part.leader_epoch, part.replicas)

    def _stop(self, part: Any) -> ErrorCode:
        partition = part.topic_partition
        known = self.replicas.get(partition)
        if partition in self.offline or partition in self.fails_to_delete:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if known is not None and 0 <= part.leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if part.delete:
            self.replicas.pop(partition, None)
        return ErrorCode.NONE

    def restart(self, broker_epoch: int) -> None:
        """Come back with the files and repaired log dirs, without what was in memory."""
        self.offline.clear()
        self.fails_to_delete.clear()
        self.live_brokers = ()
        self.broker_epoch = broker_epoch
        self.controller_epoch = 0
        self.metadata.clear()
        for replica in self.replicas.values():
            replica.leader_epoch = -1
            replica.leader = -1
            replica.is_caught_up = False
