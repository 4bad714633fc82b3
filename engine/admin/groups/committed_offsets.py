"""OffsetFetch in every version, for many groups of one coordinator: what differs between versions is hidden here.

Version 8 takes many groups, versions 2 to 7 one. Versions 0 and 1 need the partitions, so ask for all of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.admin.cluster.asking import FAILURES, run_window
from engine.admin.cluster.unknown import Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.values import CommittedOffset, GroupOffsets
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_SEVERAL_GROUPS = 8
_ALL_TOPICS = 2
_SINGLE_REQUESTS_AT_ONCE = 50
_NO_OFFSET = -1


async def fetch_committed(wire: WireCluster, broker_id: int, groups: list[str]) -> Mapping[str, GroupOffsets | Unknown]:
    """Ask one coordinator for all offsets of these groups.

    Raises:
        AdminError: it does not answer; with one request per group that is a value instead.
    """
    version = await wire.version(await wire.client_of(broker_id), ApiKey.OFFSET_FETCH)
    if version >= _SEVERAL_GROUPS:
        wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
        response = await wire.call_broker(broker_id, OffsetFetchRequest(groups=wanted))
        return {group.group_id: _offsets(group.error_code, group.topics) for group in response.groups}
    topics = None if version >= _ALL_TOPICS else await _every_partition(wire)
    found: dict[str, GroupOffsets | Unknown] = {}

    async def single(group: str) -> None:
        try:
            answer = await wire.call_broker(
                broker_id, OffsetFetchRequest(group_id=group, topics=topics), version_max=_SEVERAL_GROUPS - 1
            )
        except FAILURES as error:
            found[group] = Unknown.of_error(error)
            return
        found[group] = _offsets(answer.error_code or _common_error(answer.topics), answer.topics)

    await run_window((single(group) for group in groups), _SINGLE_REQUESTS_AT_ONCE)
    return found


async def _every_partition(wire: WireCluster) -> list[OffsetFetchRequestTopic]:
    metadata = await wire.metadata(None)
    return [
        OffsetFetchRequestTopic(name=topic.name or "", partition_indexes=[p.partition_index for p in topic.partitions])
        for topic in metadata.topics
        if topic.partitions
    ]


def _common_error(topics: Iterable[OffsetFetchResponseTopic]) -> int:
    """Return the error that every partition has: before version 2 it means the whole group."""
    codes = {partition.error_code for topic in topics for partition in topic.partitions}
    only = codes.pop() if len(codes) == 1 else ErrorCode.NONE
    return ErrorCode.NONE if only == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else only


def _offsets(
    error: int, topics: Iterable[OffsetFetchResponseTopic] | Iterable[OffsetFetchResponseTopics]
) -> GroupOffsets | Unknown:
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    if error != ErrorCode.NONE:
        return Unknown.of_code(error)
    return {
        TopicPartition(topic.name, partition.partition_index): _offset(partition)
        for topic in topics
        for partition in topic.partitions
        if not _is_none(partition)
    }


_Partition = OffsetFetchResponsePartition | OffsetFetchResponsePartitions


def _is_none(partition: _Partition) -> bool:
    # Version 0 says so with an error, the others with -1.
    is_error_free = partition.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return is_error_free and partition.committed_offset == _NO_OFFSET


def _offset(partition: _Partition) -> CommittedOffset | Unknown:
    if partition.error_code != ErrorCode.NONE:
        return Unknown.of_code(partition.error_code)
    return CommittedOffset(partition.committed_offset, partition.committed_leader_epoch, partition.metadata or "")
