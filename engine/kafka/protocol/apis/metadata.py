"""Metadata (3), versions 0–12: brokers, controller, topics with their leaders and replicas.

Version notes
* 0: an empty list asks for all topics; from 1 on None does, and an empty list asks for none
* 1: racks, controller, internal topics   * 2: cluster id   * 4: auto-creation by choice   * 5: offline replicas
* 7: leader epochs   * 8: authorized operations   * 9: flexible   * 10: topic ids in the answer
* 12: topics asked for by id
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT16, INT32, STRING, UUID, Array


class MetadataRequestTopic(Struct):
    """One requested topic, by name or (12) by id."""

    topic_id: bytes = field(UUID, since=10)
    name: str | None = field(STRING, nullable_since=10)


class MetadataRequest(Request, key=ApiKey.METADATA):
    topics: list[MetadataRequestTopic] | None = field(Array(MetadataRequestTopic), nullable_since=1)
    """None: all topics; empty: none (version 0: all)."""
    allow_auto_topic_creation: bool = field(BOOL, since=4, default=True, ignorable=False)
    """Whether the broker may create a missing topic, if its settings allow it."""
    include_cluster_authorized_operations: bool = field(BOOL, since=8, until=10, ignorable=False)
    include_topic_authorized_operations: bool = field(BOOL, since=8, ignorable=False)


class MetadataResponseBroker(Struct):
    """One live broker, with its address on the request's listener."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, since=1, nullable_since=1)


class MetadataResponsePartition(Struct):
    """One partition: its leader and replicas."""

    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    """-1 if there is no leader."""
    leader_epoch: int = field(INT32, since=7, default=-1)
    replica_nodes: list[int] = field(Array(INT32))
    """The assignment; the first is preferred."""
    isr_nodes: list[int] = field(Array(INT32))
    offline_replicas: list[int] = field(Array(INT32), since=5)


class MetadataResponseTopic(Struct):
    """One topic, or why it cannot be described."""

    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable_since=12)
    """None if the requested id is unknown."""
    topic_id: bytes = field(UUID, since=10)
    is_internal: bool = field(BOOL, since=1)
    partitions: list[MetadataResponsePartition] = field(Array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, since=8, default=-(2**31), ignorable=False)
    """Bits of the operations allowed; the minimum int32 if not requested."""


class MetadataResponse(Response, key=ApiKey.METADATA):
    throttle_time_ms: int = field(INT32, since=3)
    brokers: list[MetadataResponseBroker] = field(Array(MetadataResponseBroker))
    cluster_id: str | None = field(STRING, since=2, nullable_since=2)
    controller_id: int = field(INT32, since=1, default=-1)
    """-1 if unknown."""
    topics: list[MetadataResponseTopic] = field(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, since=8, until=10, default=-(2**31), ignorable=False)
    """Bits of the operations allowed; the minimum int32 if not requested."""
