"""Offsets of partitions by position or time, asked of one broker (ListOffsets). Many at once: ``listing``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.admin.cluster.wire import WireCluster
from engine.common.collection import collector_paused
from engine.common.errors import ErrorCode, error_code
from engine.common.model import CONSUMER_REPLICA_ID, IsolationLevel, TopicPartition
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A broker's answer for one partition; -1 is none; a timestamp of -1 may also mean "not looked up by time"."""

    offset: int
    timestamp: int
    leader_epoch: int


async def ask_offsets(
    wire: WireCluster,
    broker_id: int,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    replica_id: int = CONSUMER_REPLICA_ID,
) -> dict[TopicPartition, FoundOffset | ErrorCode]:
    """Ask one broker for the offsets of times (milliseconds, or Kafka's negative numbers); return offsets or errors.

    Only a partition's leader returns them to a consumer, up to the high watermark. With DEBUGGING_REPLICA_ID every
    broker returns those of its own replica, up to the log's end.
    """
    topics: dict[str, list[ListOffsetsPartition]] = {}
    with collector_paused():
        for (topic, partition), timestamp in wanted.items():
            topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    response: ListOffsetsResponse = await wire.call_broker(broker_id, request)
    found: dict[TopicPartition, FoundOffset | ErrorCode] = {}
    with collector_paused():
        for answered in response.topics:
            for answer in answered.partitions:
                code = error_code(answer.error_code)
                # Version 0 returns segment offsets instead, newest first.
                offset = answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset
                told = FoundOffset(offset, answer.timestamp, answer.leader_epoch)
                found[TopicPartition(answered.name, answer.partition_index)] = told if code is ErrorCode.NONE else code
    return found
