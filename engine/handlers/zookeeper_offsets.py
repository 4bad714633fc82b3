"""Offsets that groups keep in ZooKeeper: what OffsetCommit 0 writes and OffsetFetch 0 reads, as in Kafka 0.8.1.

It registers no API. The znodes are ``/consumers/<group>/offsets/<topic>/<partition>``; texts are not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from engine.common.errors import CoordinationError, ErrorCode
from engine.common.model import TopicPartition
from engine.zk.client import ZkClient
from engine.zk.errors import NodeExists, NoNode
from engine.zk.znodes.consumer_znodes import ConsumerOffsetZNode


def is_group_id(group_id: str) -> bool:
    """Whether the id can be a znode's name."""
    return group_id not in ("", ".", "..") and "/" not in group_id and "\0" not in group_id


async def write_offsets(
    zk: ZkClient, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ErrorCode]:
    """Write offsets; return each partition's error."""
    if not is_group_id(group_id):
        return dict.fromkeys(offsets, ErrorCode.INVALID_GROUP_ID)
    errors = await asyncio.gather(*(_write(zk, group_id, p, offset) for p, offset in offsets.items()))
    return dict(zip(offsets, errors, strict=True))


async def read_offsets(
    zk: ZkClient, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int | ErrorCode]:
    """Read offsets; where there is none: UNKNOWN_TOPIC_OR_PARTITION, as old consumers expect it."""
    partitions = list(partitions)
    if not is_group_id(group_id):
        return dict.fromkeys(partitions, ErrorCode.INVALID_GROUP_ID)
    found = await asyncio.gather(*(_read(zk, group_id, partition) for partition in partitions))
    return dict(zip(partitions, found, strict=True))


async def _write(zk: ZkClient, group_id: str, partition: TopicPartition, offset: int) -> ErrorCode:
    path, data = ConsumerOffsetZNode.path(group_id, partition), ConsumerOffsetZNode.encode(offset)
    try:
        try:
            await zk.set(path, data)
        except NoNode:
            await zk.ensure_path(ConsumerOffsetZNode.parent_path(group_id, partition.topic))
            try:
                await zk.create(path, data)
            except NodeExists:
                await zk.set(path, data)
    except CoordinationError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


async def _read(zk: ZkClient, group_id: str, partition: TopicPartition) -> int | ErrorCode:
    try:
        data, _ = await zk.get(ConsumerOffsetZNode.path(group_id, partition))
        return ConsumerOffsetZNode.decode(group_id, partition, data)
    except NoNode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except CoordinationError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
