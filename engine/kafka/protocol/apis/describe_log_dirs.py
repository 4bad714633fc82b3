"""DescribeLogDirs (35), versions 0–4: log dirs of a broker, with the size of every replica.

Version notes
* 2: flexible   * 3: error of the whole request   * 4: size of the volume (KIP-827)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT16, INT32, INT64, STRING, Array


class DescribableLogDirTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class DescribeLogDirsRequest(Request, key=ApiKey.DESCRIBE_LOG_DIRS):
    topics: list[DescribableLogDirTopic] | None = field(Array(DescribableLogDirTopic), nullable_since=0)
    """None: all replicas."""


class DescribeLogDirsPartition(Struct):
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    """Bytes of its segments."""
    offset_lag: int = field(INT64)
    """High watermark less log end offset, not below 0; for a future log what it still has to copy."""
    is_future_key: bool = field(BOOL)
    """The replica is moving to this directory."""


class DescribeLogDirsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(Array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(Array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, since=4, default=-1)
    """Size of its volume; -1 if unknown."""
    usable_bytes: int = field(INT64, since=4, default=-1)
    """Free bytes of its volume; -1 if unknown."""


class DescribeLogDirsResponse(Response, key=ApiKey.DESCRIBE_LOG_DIRS):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=3)
    results: list[DescribeLogDirsResult] = field(Array(DescribeLogDirsResult))
