"""ConsumerGroupHeartbeat (68), version 0: what a member of a group of the new protocol sends (KIP-848). KRaft only.

Brokers with ZooKeeper list it among their APIs from 3.7 on, and answer UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, STRING, UUID, Array


class ConsumerGroupHeartbeatTopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(Array(INT32))


class ConsumerGroupHeartbeatRequest(Request, key=ApiKey.CONSUMER_GROUP_HEARTBEAT):
    """Join, stay or leave. What has not changed since the last heartbeat is None or -1."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    """0 joins, -1 leaves, -2: a static member leaves and will be back."""
    instance_id: str | None = field(STRING, nullable_since=0)
    rack_id: str | None = field(STRING, nullable_since=0)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(Array(STRING), nullable_since=0, default=None)
    server_assignor: str | None = field(STRING, nullable_since=0)
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = field(
        Array(ConsumerGroupHeartbeatTopicPartitions), nullable_since=0, default=None
    )
    """What it has."""


class ConsumerGroupHeartbeatAssignment(Struct):
    """What a member may have now."""

    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = field(Array(ConsumerGroupHeartbeatTopicPartitions))


class ConsumerGroupHeartbeatResponse(Response, key=ApiKey.CONSUMER_GROUP_HEARTBEAT):
    """The member's epoch, and its assignment if that has changed."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    member_id: str | None = field(STRING, nullable_since=0)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: ConsumerGroupHeartbeatAssignment | None = field(ConsumerGroupHeartbeatAssignment, nullable_since=0)
