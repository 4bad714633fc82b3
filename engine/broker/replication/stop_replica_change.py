"""Carries out one StopReplica request. Source: ReplicaManager.stopReplicas of Kafka 3.9."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine.broker.replication.leader_and_isr_change import named_once
from engine.broker.replication.replica_manager import ReplicaManager
from engine.broker.replication.roles import make_nothing
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import LEADER_DURING_DELETE, NO_PARTITION_LEADER_EPOCH, TopicPartition
from engine.kafka.protocol.apis.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from engine.runtime.turns import Breather, carry_out

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
    manager: ReplicaManager, request: StopReplicaRequest, *, correlation_id: int, lists: Any = None
) -> StopReplicaResponse:
    """Carry a StopReplica request out. The caller checks broker epochs.

    Args:
        lists: makes the lists of a large request's answer (``AnswerLists``).
    """
    return await manager.undisturbed(StopReplicaChange(manager, request, correlation_id, lists).carry_out)


class StopReplicaChange:
    """One request under way. It keeps nothing of partitions that are not here: a request may name very many."""

    def __init__(self, manager: ReplicaManager, request: StopReplicaRequest, correlation_id: int, lists: Any) -> None:
        self._manager = manager
        self._request = request
        self._lists = lists
        self._log = manager.state_change_log
        self._correlation_id = correlation_id
        self._breather = Breather()
        self._last: dict[TopicPartition, _Stop] = {}
        """The last order for each replica that has several: as in Kafka, only that counts."""
        self._errors: dict[TopicPartition, ErrorCode] = {}
        self._deleted_in: dict[TopicPartition, Path | None] = {}
        """Those that a checkpoint or a folder may still name, with the log dirs of those that had a log."""

    async def carry_out(self) -> StopReplicaResponse:
        """Apply the request and return its answer."""
        request, manager = self._request, self._manager
        await self._note_last()
        count = 0
        async for _ in self._stops():
            count += 1
        self._log.info(
            f"Handling StopReplica request correlationId {self._correlation_id} from controller "
            f"{request.controller_id} for {count} partitions"
        )
        if self._log.is_tracing:
            async for stop in self._stops():
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
        async for stop in self._stops():
            self._judge(stop)
        async for stops in self._permitted():
            await self._stop(stops)
        await self._forget()
        manager.fetchers.end_idle()
        async for stops in self._permitted():
            manager.replicas_stopped([stop.topic_partition for stop in stops])
        return StopReplicaResponse(partition_errors=await self._answers())

    def _names(self) -> Iterator[TopicPartition | None]:
        return (stop and stop.topic_partition for stop in replicas_to_stop(self._request))

    async def _note_last(self) -> None:
        repeated: Collection[TopicPartition] | None = None
        if self._lists is not None:
            repeated = await carry_out(self._lists.repeated(self._names))
            if not repeated:
                return
        last: dict[TopicPartition, _Stop] = {}
        async for stop in self._stops():
            if repeated is None or stop.topic_partition in repeated:
                last[stop.topic_partition] = stop
        self._last = last

    async def _stops(self) -> AsyncIterator[_Stop]:
        for stop in replicas_to_stop(self._request):
            if stop is not None and self._last.get(stop.topic_partition, stop) == stop:
                yield stop
            await self._breather.give_way()

    async def _permitted(self) -> AsyncIterator[list[_Stop]]:
        """Yield those without an error, some at a time."""
        portion: list[_Stop] = []
        async for stop in self._stops():
            if stop.topic_partition not in self._errors:
                portion.append(stop)
            if len(portion) == STOPPED_AT_ONCE_MAX:
                yield portion
                portion = []
        if portion:
            yield portion

    def _judge(self, stop: _Stop) -> None:
        """Note why a replica must not be stopped.

        One that is not hosted may still have a folder: the topic was deleted while this broker was down.
        """
        topic_partition = stop.topic_partition
        partition = self._manager.partitions.get(topic_partition)
        is_checked = stop.leader_epoch not in (LEADER_DURING_DELETE, NO_PARTITION_LEADER_EPOCH)
        if self._manager.is_offline(topic_partition):
            self._ignore(stop, "WARN", "as the local replica for the partition is in an offline log directory")
            self._errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
        elif partition is not None and is_checked and stop.leader_epoch < partition.leader_epoch:
            self._ignore(
                stop,
                "WARN",
                f"since its associated leader epoch {stop.leader_epoch} is smaller than the current leader epoch "
                f"{partition.leader_epoch}",
            )
            self._errors[topic_partition] = ErrorCode.FENCED_LEADER_EPOCH

    async def _stop(self, stops: list[_Stop]) -> None:
        manager, names = self._manager, [stop.topic_partition for stop in stops]
        manager.fetchers.remove(names)
        manager.log_dir_moves.remove(names)
        for stop in stops:
            if stop.deletes:
                partition = manager.partitions.pop(stop.topic_partition, None)
                if partition is not None:
                    make_nothing(partition)
                self._delete_log(stop)
            manager.wakeups.mark(stop.topic_partition)
            await self._breather.give_way()

    async def _forget(self) -> None:
        """Remove deleted replicas from the checkpoints, before the controller may give the name to another topic."""
        are_forgotten = await self._manager.forget_logs(self._deleted_in)
        offline = self._manager.log_manager.offline_dirs
        for topic_partition, log_dir in self._deleted_in.items():
            if log_dir in offline or not are_forgotten:
                self._errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR

    async def _answers(self) -> list[StopReplicaPartitionError]:
        """Return the outcomes, each partition's once."""
        answers: list[StopReplicaPartitionError] = [] if self._lists is None else self._lists.of_topics()
        async for tp in named_once(self._names, self._lists):
            code = self._errors.get(tp, ErrorCode.NONE)
            answers.append(
                StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
            )
        return answers

    def _delete_log(self, stop: _Stop) -> None:
        log_manager = self._manager.log_manager
        log = log_manager.get(stop.topic_partition)
        try:
            log_manager.delete(stop.topic_partition)
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
        if log_manager.may_be_named(stop.topic_partition):
            self._deleted_in[stop.topic_partition] = None if log is None else log.log_dir

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
