"""Carries out one AlterReplicaLogDirs request. Source: ReplicaManager.alterReplicaLogDirs of Kafka 3.9 (KIP-113)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from engine.broker.replication.replica_manager import ReplicaManager
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.formats.log_dir_names import FILE_NAME_LENGTH_MAX, LogDirKind, suffixed_log_dir_name
from engine.runtime.turns import Breather

logger = logging.getLogger("kafka.server.ReplicaManager")

_UNIQUE_DIGITS = "0" * 32


async def alter_log_dirs(
    manager: ReplicaManager, wanted: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ErrorCode]:
    """Begin to move replicas to these dirs; return the outcome of each."""
    return await manager.undisturbed(AlterLogDirsChange(manager, wanted).carry_out)


class AlterLogDirsChange:
    """One request under way: ``wanted`` says which replica goes into which log dir."""

    def __init__(self, manager: ReplicaManager, wanted: Mapping[TopicPartition, str]) -> None:
        self._manager = manager
        self._wanted = wanted

    async def carry_out(self) -> dict[TopicPartition, ErrorCode]:
        """Begin all moves; return the outcome of each."""
        breather = Breather()
        outcomes = {}
        for topic_partition, log_dir in self._wanted.items():
            outcomes[topic_partition] = self._outcome(topic_partition, log_dir)
            await breather.give_way()
        return outcomes

    def _outcome(self, topic_partition: TopicPartition, log_dir: str) -> ErrorCode:
        try:
            self._move(topic_partition, log_dir)
        except KafkaError as error:
            logger.warning(
                "[ReplicaManager broker=%d] Unable to alter log dirs for %s: %s",
                self._manager.settings.broker_id,
                topic_partition,
                error,
            )
            # Clients know the old error for it, and try again once the replica exists.
            is_elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else error.code
        return ErrorCode.NONE

    def _move(self, topic_partition: TopicPartition, wanted: str) -> None:
        manager = self._manager
        logs = manager.log_manager
        name = suffixed_log_dir_name(topic_partition, LogDirKind.FUTURE, _UNIQUE_DIGITS)
        if len(name) > FILE_NAME_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        log_dir = Path(wanted)
        if log_dir in logs.offline_dirs:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {wanted} is offline")
        if log_dir not in logs.live_dirs:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {wanted} is not found in the config.")
        if manager.is_offline(topic_partition):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic_partition} is offline")
        hosted = manager.hosted_partition(topic_partition)
        if hosted is not None and hosted.future_log is not None and hosted.future_log.log_dir != log_dir:
            manager.log_dir_moves.cancel(hosted)
        present = (logs.logs.get(topic_partition), logs.future_logs.get(topic_partition))
        if all(log is None or log.log_dir != log_dir for log in present):
            logs.preferred_dirs[topic_partition] = log_dir
        partition = manager.partition(*topic_partition)
        if partition.log is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Partition {topic_partition} has no log on broker {manager.settings.broker_id} yet",
            )
        manager.log_dir_moves.move(partition, log_dir)
