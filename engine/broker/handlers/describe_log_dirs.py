"""DescribeLogDirs (35): v0–v4.

Behaviour
* Every log dir with its replicas: their sizes and lags, and whether they are future replicas. A dir that is offline
  or does not respond has KAFKA_STORAGE_ERROR and no replicas.
* Topics null means all. A thread asks for the sizes of the volumes: a dead network disk must not block everything.

Version notes
* v2 flexible   * v3 error code of the whole   * v4 total and usable bytes of the volume
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.handlers.in_turns import pieces
from engine.broker.handlers.registry import handles
from engine.broker.log.log import Log
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from engine.runtime.turns import Breather

logger = logging.getLogger("kafka.server.ReplicaManager")

UNKNOWN_LAG = -1


@handles(ApiKey.DESCRIBE_LOG_DIRS, requires=["Describe Cluster"])
async def describe_log_dirs(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker = context.broker
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted, breather = set(), Breather()
        logs, future_logs = broker.log_manager.logs, broker.log_manager.future_logs
        for topic in pieces(request.topics, "partitions"):
            named = (TopicPartition(topic.topic, index) for index in topic.partitions)
            wanted.update(p for p in named if p in logs or p in future_logs)
            await breather.give_way()
    live_dirs = broker.log_manager.live_dirs
    volumes = await asyncio.gather(*(asyncio.to_thread(_volume_bytes, path) for path in live_dirs))
    results = [await _described(broker, path, volume, wanted) for path, volume in zip(live_dirs, volumes, strict=True)]
    results += [_offline(path) for path in broker.log_manager.offline_dirs if path not in live_dirs]
    return DescribeLogDirsResponse(results=results)


def _volume_bytes(path: Path) -> tuple[int, int] | None:
    """Return (total, usable) bytes of the volume; None if the dir does not respond."""
    try:
        volume = os.statvfs(path)
    except OSError as error:
        logger.warning("Unable to describe replica dirs for %s: %s", path, error.strerror)
        return None
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


def _offline(path: Path) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path), topics=[])


async def _described(
    broker: Broker, path: Path, volume: tuple[int, int] | None, wanted: set[TopicPartition] | None
) -> DescribeLogDirsResult:
    if volume is None or path in broker.log_manager.offline_dirs:
        return _offline(path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    manager = broker.log_manager
    breather = Breather()
    for logs, is_future in ((manager.logs, False), (manager.future_logs, True)):
        for topic_partition, log in list(logs.items()):
            await breather.give_way()
            if log.log_dir != path or (wanted is not None and topic_partition not in wanted):
                continue
            topic = topics.setdefault(
                topic_partition.topic, DescribeLogDirsTopic(name=topic_partition.topic, partitions=[])
            )
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=topic_partition.partition,
                    partition_size=log.size_bytes,
                    offset_lag=_offset_lag(broker, topic_partition, log, manager.logs, is_future=is_future),
                    is_future_key=is_future,
                )
            )
    return DescribeLogDirsResult(
        log_dir=str(path), topics=list(topics.values()), total_bytes=volume[0], usable_bytes=volume[1]
    )


def _offset_lag(
    broker: Broker,
    topic_partition: TopicPartition,
    log: Log,
    current_logs: Mapping[TopicPartition, Log],
    *,
    is_future: bool,
) -> int:
    """Return a replica's lag: a future replica's behind the current one, a current one's behind the committed offset.

    It is -1 while the controller has given the replica no role, or has taken it away.
    """
    partition = broker.replica_manager.hosted_partition(topic_partition)
    if partition is None or partition.log is None:
        return UNKNOWN_LAG
    if is_future:
        current = current_logs.get(topic_partition)
        return UNKNOWN_LAG if current is None else current.log_end_offset - log.log_end_offset
    return max(log.high_watermark - log.log_end_offset, 0)
