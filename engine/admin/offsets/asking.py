"""Offsets of partitions by position or time, asked of one leader (ListOffsets). Many at once: ``listing``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.admin.cluster.wire import WireCluster
from engine.common.errors import ErrorCode, error_code
from engine.common.model import IsolationLevel, TopicPartition
from engine.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
_CONSUMER = -1


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A leader's answer for one partition; -1 is none, of the timestamp also "not looked up by time"."""

    offset: int
    timestamp: int
    leader_epoch: int


async def ask_offsets(
    wire: WireCluster,
    leader_id: int,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset | ErrorCode]:
    """Ask one leader for the offsets of times (milliseconds, or Kafka's negative numbers); return offsets or errors."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in wanted.items():
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    response: ListOffsetsResponse = await wire.call_broker(leader_id, request)
    found: dict[TopicPartition, FoundOffset | ErrorCode] = {}
    for answered in response.topics:
        for answer in answered.partitions:
            code = error_code(answer.error_code)
            # Version 0 tells segment offsets instead, newest first.
            offset = answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset
            told = FoundOffset(offset, answer.timestamp, answer.leader_epoch)
            found[TopicPartition(answered.name, answer.partition_index)] = told if code is ErrorCode.NONE else code
    return found


async def list_offsets(
    wire: WireCluster,
    leader_id: int,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ErrorCode]]:
    """Ask one leader for the offsets of times (milliseconds, or EARLIEST, LATEST); return offsets and errors.

    An offset is -1 where no record has that time or a later one.
    """
    found = await ask_offsets(wire, leader_id, wanted, isolation)
    offsets = {name: answer.offset for name, answer in found.items() if isinstance(answer, FoundOffset)}
    errors = {name: answer for name, answer in found.items() if isinstance(answer, ErrorCode)}
    return offsets, errors
