"""Carries out one StopReplica request. Source: ReplicaManager.stopReplicas of Kafka 3.9."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.broker.replication.replica_manager import ReplicaManager
from engine.broker.replication.roles import make_nothing
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import LEADER_DURING_DELETE, NO_PARTITION_LEADER_EPOCH, TopicPartition
from engine.kafka.protocol.apis.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from engine.runtime.turns import Breather

STOPPED_AT_ONCE_MAX = 1000
"""How many are removed from their fetchers, and reported, in one go."""


class _Stop(NamedTuple):
    """One replica to stop; ``leader_epoch`` is -1 from controllers that do not send it."""

    topic_partition: TopicPartition
    leader_epoch: int
    deletes: bool

    def __str__(self) -> str:
        return (
            f"StopReplicaPartitionState(partitionIndex={self.topic_partition.partition}, "
            f"leaderEpoch={self.leader_epoch}, deletePartition={str(self.deletes).lower()})"
        )


def replicas_to_stop(request: StopReplicaRequest) -> Iterator[_Stop | None]:
    """Yield the replicas of a request of any version, and None for each topic: very many may have no partition."""
    for topic_state in request.topic_states:
        yield None
        for state in topic_state.partition_states:
            topic_partition = TopicPartition(topic_state.topic_name, state.partition_index)
            yield _Stop(topic_partition, state.leader_epoch, state.delete_partition)
    for topic in request.topics:
        yield None
        for index in topic.partition_indexes:
            yield _Stop(TopicPartition(topic.name, index), NO_PARTITION_LEADER_EPOCH, request.delete_partitions)
    for ungrouped in request.ungrouped_partitions:
        topic_partition = TopicPartition(ungrouped.topic_name, ungrouped.partition_index)
        yield _Stop(topic_partition, NO_PARTITION_LEADER_EPOCH, request.delete_partitions)


async def stop_replicas(
    manager: ReplicaManager, request: StopReplicaRequest, *, correlation_id: int
) -> StopReplicaResponse:
    """Carry a StopReplica request out. The caller checks broker epochs."""
    return await manager.undisturbed(StopReplicaChange(manager, request, correlation_id).carry_out)


class StopReplicaChange:
    """One request under way."""

    def __init__(self, manager: ReplicaManager, request: StopReplicaRequest, correlation_id: int) -> None:
        self._manager = manager
        self._request = request
        self._log = manager.state_change_log
        self._correlation_id = correlation_id
        self._errors: dict[TopicPartition, ErrorCode] = {}
        self._deleted_in: dict[TopicPartition, Path] = {}

    async def carry_out(self) -> StopReplicaResponse:
        """Apply the request and return its answer."""
        request, manager = self._request, self._manager
        breather = Breather()
        count = 0
        for stop in replicas_to_stop(request):
            count += stop is not None
            await breather.give_way()
        self._log.info(
            f"Handling StopReplica request correlationId {self._correlation_id} from controller "
            f"{request.controller_id} for {count} partitions"
        )
        for stop in replicas_to_stop(request) if self._log.is_tracing else ():
            if stop is not None:
                self._log.trace(
                    f"Received StopReplica request {stop} correlation id {self._correlation_id} from controller "
                    f"{request.controller_id} epoch {request.controller_epoch} for partition {stop.topic_partition}"
                )
        if request.controller_epoch < manager.controller_epoch:
            self._log.warning(
                f"Ignoring StopReplica request from controller {request.controller_id} with correlation id "
                f"{self._correlation_id} since its controller epoch {request.controller_epoch} is old. Latest known "
                f"controller epoch is {manager.controller_epoch}"
            )
            return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        manager.controller_epoch = request.controller_epoch
        permitted = []
        for stop in replicas_to_stop(request):
            if stop is not None and self._may_stop(stop):
                permitted.append(stop)
            await breather.give_way()
        await self._stop(permitted)
        answers = []
        for tp, code in self._errors.items():
            answers.append(
                StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
            )
            await breather.give_way()
        return StopReplicaResponse(partition_errors=answers)

    def _may_stop(self, stop: _Stop) -> bool:
        topic_partition = stop.topic_partition
        partition = self._manager.partitions.get(topic_partition)
        if self._manager.is_offline(topic_partition):
            self._ignore(stop, "WARN", "as the local replica for the partition is in an offline log directory")
            self._errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            return False
        is_checked = stop.leader_epoch not in (LEADER_DURING_DELETE, NO_PARTITION_LEADER_EPOCH)
        if partition is not None and is_checked and stop.leader_epoch < partition.leader_epoch:
            self._ignore(
                stop,
                "WARN",
                f"since its associated leader epoch {stop.leader_epoch} is smaller than the current leader epoch "
                f"{partition.leader_epoch}",
            )
            self._errors[topic_partition] = ErrorCode.FENCED_LEADER_EPOCH
            return False
        # A replica that is not hosted may still have a folder: the topic was deleted while this broker was down.
        self._errors[topic_partition] = ErrorCode.NONE
        return True

    async def _stop(self, stops: list[_Stop]) -> None:
        manager = self._manager
        breather = Breather()
        deleted: list[TopicPartition] = []
        for start in range(0, len(stops), STOPPED_AT_ONCE_MAX):
            names = [stop.topic_partition for stop in stops[start : start + STOPPED_AT_ONCE_MAX]]
            manager.fetchers.remove(names)
            manager.log_dir_moves.remove(names)
            await breather.give_way()
        for stop in stops:
            if stop.deletes:
                partition = manager.partitions.pop(stop.topic_partition, None)
                if partition is not None:
                    make_nothing(partition)
                self._delete_log(stop)
                deleted.append(stop.topic_partition)
            manager.wakeups.mark(stop.topic_partition)
            await breather.give_way()
        await self._forget(deleted)
        manager.fetchers.end_idle()
        for start in range(0, len(stops), STOPPED_AT_ONCE_MAX):
            names = [stop.topic_partition for stop in stops[start : start + STOPPED_AT_ONCE_MAX]]
            manager.replicas_stopped([name for name in names if self._errors[name] is ErrorCode.NONE])
            await breather.give_way()

    async def _forget(self, deleted: list[TopicPartition]) -> None:
        """Remove deleted replicas from the checkpoints, before the controller may give the name to another topic."""
        are_forgotten = await self._manager.forget_logs(deleted)
        offline = self._manager.log_manager.offline_dirs
        for topic_partition, log_dir in self._deleted_in.items():
            if log_dir in offline or not are_forgotten:
                self._errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR

    def _delete_log(self, stop: _Stop) -> None:
        log = self._manager.log_manager.get(stop.topic_partition)
        if log is not None:
            self._deleted_in[stop.topic_partition] = log.log_dir
        try:
            self._manager.log_manager.delete(stop.topic_partition)
        except KafkaError as error:
            is_storage = error.code is ErrorCode.KAFKA_STORAGE_ERROR
            self._ignore(
                stop,
                "ERROR",
                "as the local replica for the partition is in an offline log directory"
                if is_storage
                else f"due to an unexpected error: {error}",
            )
            self._errors[stop.topic_partition] = error.code

    def _ignore(self, stop: _Stop, level: str, why: str) -> None:
        sentence = (
            f"Ignoring StopReplica request (delete={str(stop.deletes).lower()}) from controller "
            f"{self._request.controller_id} with correlation id {self._correlation_id} epoch "
            f"{self._request.controller_epoch} for partition {stop.topic_partition} {why}"
        )
        if level == "WARN":
            self._log.warning(sentence)
        else:
            self._log.error(sentence)
