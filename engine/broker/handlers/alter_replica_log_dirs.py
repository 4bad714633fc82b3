"""AlterReplicaLogDirs (34): v0–v2.

Behaviour
* Starts to move replicas to other log dirs of this broker. The answer does not wait for them; DescribeLogDirs shows
  their progress.
* If the replica is not here yet, the broker remembers the dir until it comes, and answers REPLICA_NOT_AVAILABLE, or
  UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist.
* A request that names a replica's current dir ends its move. A dir that is not in ``log.dirs`` is LOG_DIR_NOT_FOUND.
  A failed dir, or a new move while any dir has failed, is KAFKA_STORAGE_ERROR.

Version notes
* v1 as v0   * v2 flexible
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.broker.handlers.answer_lists import ByTopic, each_once
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import in_lists
from engine.broker.handlers.registry import handles
from engine.broker.replication.alter_log_dirs_change import alter_log_dirs
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from engine.runtime.turns import Breather, carry_out


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS, requires=["Alter Cluster"])
async def alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Start to move replicas; if a replica is named twice, the last dir counts."""
    breather = Breather()
    results = await carry_out(
        ByTopic.of(
            context,
            AlterReplicaLogDirsResponse,
            "results.partitions",
            "topic_name",
            lambda: _topics(request),
        )
    )
    for some in in_lists(await carry_out(each_once(context, lambda: _named(request)))):
        wanted = {partition: path for partition, path in some if partition is not None}
        for (topic, index), code in (await alter_log_dirs(context.broker.replica_manager, wanted)).items():
            results.add(topic, AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
            await breather.give_way()
    return AlterReplicaLogDirsResponse(results=results.topics())


def _topics(request: AlterReplicaLogDirsRequest) -> Iterator[str | None]:
    """Yield the topics, and None for each dir: very many may have no topic."""
    for log_dir in request.dirs:
        yield None
        yield from (topic.name for topic in log_dir.topics)


def _named(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[TopicPartition | None, str]]:
    """Yield each replica with its new dir, and None for each topic and dir: very many may have no replica."""
    for log_dir in request.dirs:
        yield None, ""
        for topic in log_dir.topics:
            yield None, ""
            yield from ((TopicPartition(topic.name, index), log_dir.path) for index in topic.partitions)
