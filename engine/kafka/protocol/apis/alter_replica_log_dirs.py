"""AlterReplicaLogDirs (34), versions 0–2: move replicas between the log dirs of a broker.

Version notes
* 2: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, STRING, Array


class AlterReplicaLogDirTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class AlterReplicaLogDir(Struct):
    """A target directory and what goes there."""

    path: str = field(STRING)
    topics: list[AlterReplicaLogDirTopic] = field(Array(AlterReplicaLogDirTopic))


class AlterReplicaLogDirsRequest(Request, key=ApiKey.ALTER_REPLICA_LOG_DIRS):
    dirs: list[AlterReplicaLogDir] = field(Array(AlterReplicaLogDir))


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(Array(AlterReplicaLogDirPartitionResult))


class AlterReplicaLogDirsResponse(Response, key=ApiKey.ALTER_REPLICA_LOG_DIRS):
    throttle_time_ms: int = field(INT32)
    results: list[AlterReplicaLogDirTopicResult] = field(Array(AlterReplicaLogDirTopicResult))
