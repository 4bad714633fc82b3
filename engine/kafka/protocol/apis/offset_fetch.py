"""OffsetFetch (9), versions 0–9: the offsets that a consumer group has stored.

Version notes
* 0: read from ZooKeeper; from 1 on from the offsets topic   * 2: None asks for all topics; error of the whole group
* 5: leader epochs   * 6: flexible   * 7: stable offsets only, if wanted (KIP-447)   * 8: several groups (KIP-709)
* 9: KIP-848 groups
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT16, INT32, INT64, STRING, Array


class OffsetFetchRequestTopic(Struct):
    """One topic's partitions, until version 7."""

    name: str = field(STRING, until=7, ignorable=False)
    partition_indexes: list[int] = field(Array(INT32), until=7, ignorable=False)


class OffsetFetchRequestTopics(Struct):
    """One topic's partitions, from version 8 on."""

    name: str = field(STRING, since=8)
    partition_indexes: list[int] = field(Array(INT32), since=8)


class OffsetFetchRequestGroup(Struct):
    """One group, and which of its offsets to read."""

    group_id: str = field(STRING, since=8)
    member_id: str | None = field(STRING, since=9, nullable_since=9)
    member_epoch: int = field(INT32, since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field(Array(OffsetFetchRequestTopics), since=8, nullable_since=8)
    """None: all that the group has stored."""


class OffsetFetchRequest(Request, key=ApiKey.OFFSET_FETCH):
    group_id: str = field(STRING, until=7, ignorable=False)
    """Until version 7; then ``groups``."""
    topics: list[OffsetFetchRequestTopic] | None = field(
        Array(OffsetFetchRequestTopic), until=7, nullable_since=2, ignorable=False
    )
    """Until version 7. None (from 2 on): all that the group has stored."""
    groups: list[OffsetFetchRequestGroup] = field(Array(OffsetFetchRequestGroup), since=8, ignorable=False)
    require_stable: bool = field(BOOL, since=7, ignorable=False)
    """Answer UNSTABLE_OFFSET_COMMIT while a transaction's offsets are pending."""


class OffsetFetchResponsePartition(Struct):
    """One partition's offset, until version 7."""

    partition_index: int = field(INT32, until=7, ignorable=False)
    committed_offset: int = field(INT64, until=7, ignorable=False)
    """-1 if none is stored."""
    committed_leader_epoch: int = field(INT32, since=5, until=7, default=-1)
    metadata: str | None = field(STRING, until=7, nullable_since=0, ignorable=False)
    error_code: int = field(INT16, until=7, ignorable=False)


class OffsetFetchResponseTopic(Struct):
    """One topic's partitions, until version 7."""

    name: str = field(STRING, until=7, ignorable=False)
    partitions: list[OffsetFetchResponsePartition] = field(
        Array(OffsetFetchResponsePartition), until=7, ignorable=False
    )


class OffsetFetchResponsePartitions(Struct):
    """One partition's offset, from version 8 on."""

    partition_index: int = field(INT32, since=8)
    committed_offset: int = field(INT64, since=8)
    """-1 if none is stored."""
    committed_leader_epoch: int = field(INT32, since=8, default=-1)
    metadata: str | None = field(STRING, since=8, nullable_since=8)
    error_code: int = field(INT16, since=8)


class OffsetFetchResponseTopics(Struct):
    """One topic's partitions, from version 8 on."""

    name: str = field(STRING, since=8)
    partitions: list[OffsetFetchResponsePartitions] = field(Array(OffsetFetchResponsePartitions), since=8)


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(STRING, since=8)
    topics: list[OffsetFetchResponseTopics] = field(Array(OffsetFetchResponseTopics), since=8)
    error_code: int = field(INT16, since=8)


class OffsetFetchResponse(Response, key=ApiKey.OFFSET_FETCH):
    throttle_time_ms: int = field(INT32, since=3)
    topics: list[OffsetFetchResponseTopic] = field(Array(OffsetFetchResponseTopic), until=7, ignorable=False)
    """Until version 7; then ``groups``."""
    error_code: int = field(INT16, since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = field(Array(OffsetFetchResponseGroup), since=8, ignorable=False)
