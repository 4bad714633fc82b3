"""ConsumerGroupDescribe (69), version 0: state and members of groups of the new protocol (KIP-848). Only KRaft has it.

Brokers with ZooKeeper list it among their APIs from 3.7 on, and answer UNSUPPORTED_VERSION for each group.
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT16, INT32, STRING, UUID, Array


class ConsumerGroupDescribeRequest(Request, key=ApiKey.CONSUMER_GROUP_DESCRIBE):
    group_ids: list[str] = field(Array(STRING))
    include_authorized_operations: bool = field(BOOL)


class ConsumerGroupTopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class ConsumerGroupAssignment(Struct):
    """A member's current or target partitions."""

    topic_partitions: list[ConsumerGroupTopicPartitions] = field(Array(ConsumerGroupTopicPartitions))


class ConsumerGroupMember(Struct):
    member_id: str = field(STRING)
    instance_id: str | None = field(STRING, nullable_since=0)
    rack_id: str | None = field(STRING, nullable_since=0)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(Array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable_since=0)
    assignment: ConsumerGroupAssignment = field(ConsumerGroupAssignment)
    """What it has now."""
    target_assignment: ConsumerGroupAssignment = field(ConsumerGroupAssignment)
    """What it will have once the group is reconciled."""


class ConsumerGroupDescribed(Struct):
    """One group, or why it cannot be described: GROUP_ID_NOT_FOUND even if it exists, with another type."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[ConsumerGroupMember] = field(Array(ConsumerGroupMember))
    authorized_operations: int = field(INT32, default=-(2**31))
    """Bits of the operations allowed; the minimum int32 if not requested."""


class ConsumerGroupDescribeResponse(Response, key=ApiKey.CONSUMER_GROUP_DESCRIBE):
    throttle_time_ms: int = field(INT32)
    groups: list[ConsumerGroupDescribed] = field(Array(ConsumerGroupDescribed))
