"""AlterReplicaLogDirs (34): v0–v2.

Behaviour
* Starts to move replicas to other log dirs of this broker. The answer does not wait for them; DescribeLogDirs shows
  their progress.
* If the replica is not here yet, the broker remembers the dir until it comes, and answers REPLICA_NOT_AVAILABLE, or
  UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist.
* A request that names a replica's current dir ends its move. A dir that DescribeLogDirs does not name so, letter by
  letter, is LOG_DIR_NOT_FOUND. A failed dir, or a new move while any dir has failed, is KAFKA_STORAGE_ERROR.

Version notes
* v1 as v0   * v2 flexible
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial

from engine.broker.handlers.answer_lists import ByTopic, each_once
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import in_lists
from engine.broker.handlers.registry import handles
from engine.broker.replication.replica_manager import ReplicaManager
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.formats.log_dir_names import FILE_NAME_LENGTH_MAX, LogDirKind, suffixed_log_dir_name
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from engine.runtime.turns import Breather, carry_out

logger = logging.getLogger("kafka.server.ReplicaManager")

_UNIQUE_DIGITS = "0" * 32


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS, requires=["Alter Cluster"])
async def alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Start to move replicas; if a replica is named twice, the last dir counts."""
    breather = Breather()
    results = await carry_out(
        ByTopic.of(
            context, AlterReplicaLogDirsResponse, "results.partitions", "topic_name", lambda: topics_named(request)
        )
    )
    manager = context.broker.replica_manager
    for batch in in_lists(await carry_out(each_once(context, lambda: replicas_named(request)))):
        wanted = {partition: path for partition, path in batch if partition is not None}
        outcomes = await manager.undisturbed(partial(_move_all, manager, wanted))
        for (topic, index), code in outcomes.items():
            results.add(topic, AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
            await breather.give_way()
    return AlterReplicaLogDirsResponse(results=results.topics())


def topics_named(request: AlterReplicaLogDirsRequest) -> Iterator[str | None]:
    """Yield the topics, and None for each dir: very many may have no topic."""
    for log_dir in request.dirs:
        yield None
        yield from (topic.name for topic in log_dir.topics)


def replicas_named(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[TopicPartition | None, str]]:
    """Yield each replica with its new dir, and None for each topic and dir: very many may have no replica."""
    for log_dir in request.dirs:
        yield None, ""
        for topic in log_dir.topics:
            yield None, ""
            yield from ((TopicPartition(topic.name, index), log_dir.path) for index in topic.partitions)


async def _move_all(manager: ReplicaManager, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
    breather = Breather()
    outcomes = {}
    for topic_partition, log_dir in wanted.items():
        outcomes[topic_partition] = _outcome(manager, topic_partition, log_dir)
        await breather.give_way()
    return outcomes


def _outcome(manager: ReplicaManager, topic_partition: TopicPartition, log_dir: str) -> ErrorCode:
    try:
        _move(manager, topic_partition, log_dir)
    except KafkaError as error:
        logger.warning(
            "[ReplicaManager broker=%d] Unable to alter log dirs for %s: %s",
            manager.settings.broker_id,
            topic_partition,
            error,
        )
        # Clients know the old error for it, and try again once the replica exists.
        is_elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else error.code
    return ErrorCode.NONE


def _move(manager: ReplicaManager, topic_partition: TopicPartition, wanted: str) -> None:
    """Begin one move, as ReplicaManager.alterReplicaLogDirs of Kafka 3.9 does (KIP-113)."""
    logs = manager.log_manager
    name = suffixed_log_dir_name(topic_partition, LogDirKind.FUTURE, _UNIQUE_DIGITS)
    if len(name) > FILE_NAME_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
    # Not as a path, for which a slash at the end makes no difference.
    log_dir = next((path for path in (*logs.live_dirs, *logs.offline_dirs) if str(path) == wanted), None)
    if log_dir is None:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {wanted} is not found in the config.")
    if log_dir in logs.offline_dirs:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {wanted} is offline")
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
