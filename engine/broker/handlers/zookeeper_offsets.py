"""Offsets that groups keep in ZooKeeper: what OffsetCommit 0 writes and OffsetFetch 0 reads, as in Kafka 0.8.1.

It registers no API. It does not keep the texts committed with offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.common.errors import CoordinationError, ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.zk.consumers import is_group_znode_name
from engine.kafka.zk.kafka_client import KafkaZkClient


async def write_offsets(
    zk: KafkaZkClient, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ErrorCode]:
    if not is_group_znode_name(group_id):
        return dict.fromkeys(offsets, ErrorCode.INVALID_GROUP_ID)
    try:
        errors = await zk.consumers.set_or_create_consumer_offsets(group_id, offsets)
    except CoordinationError:
        return dict.fromkeys(offsets, ErrorCode.UNKNOWN_SERVER_ERROR)
    return {p: ErrorCode.NONE if error is None else ErrorCode.UNKNOWN_SERVER_ERROR for p, error in errors.items()}


async def read_offsets(
    zk: KafkaZkClient, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int | ErrorCode]:
    """Read offsets; a missing one is UNKNOWN_TOPIC_OR_PARTITION, as old consumers expect."""
    partitions = list(partitions)
    if not is_group_znode_name(group_id):
        return dict.fromkeys(partitions, ErrorCode.INVALID_GROUP_ID)
    try:
        reads = await zk.consumers.get_consumer_offsets([(group_id, partition) for partition in partitions])
    except CoordinationError:
        return dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
    return {partition: _answer(read) for (_, partition), read in reads.items()}


def _answer(read: int | CoordinationError | None) -> int | ErrorCode:
    if isinstance(read, CoordinationError):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if read is None else read
