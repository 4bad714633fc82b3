"""Offsets of partitions by position or time, asked of their leaders (ListOffsets)."""

from __future__ import annotations

from collections.abc import Mapping

from engine.admin.wire import WireCluster
from engine.common.errors import ErrorCode, error_code
from engine.common.model import IsolationLevel, TopicPartition
from engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST = -1
EARLIEST = -2
_CONSUMER = -1


async def list_offsets(
    wire: WireCluster,
    leader_id: int,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ErrorCode]]:
    """Ask one leader for the offsets of times (milliseconds, or EARLIEST, LATEST); return offsets and errors.

    An offset is -1 where no record has that time or a later one.
    """
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in wanted.items():
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    response = await wire.call_broker(leader_id, request)
    offsets: dict[TopicPartition, int] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for answered in response.topics:
        for answer in answered.partitions:
            name = TopicPartition(answered.name, answer.partition_index)
            code = error_code(answer.error_code)
            if code is ErrorCode.NONE:
                # Version 0 tells segment offsets instead, newest first.
                offsets[name] = answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset
            else:
                errors[name] = code
    return offsets, errors
