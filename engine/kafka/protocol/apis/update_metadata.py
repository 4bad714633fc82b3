"""UpdateMetadata (6), versions 0–8: the controller tells a broker what clients should know about the cluster.

Version notes
* 1: endpoints per broker   * 2: racks   * 3: listener names   * 4: offline replicas
* 5: grouped by topic, broker epoch   * 6: flexible   * 7: topic ids
* 8: controllers of KRaft during migration (KIP-866)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, Array


class UpdateMetadataPartitionState(Struct):
    topic_name: str = field(STRING, until=4)
    """Until version 4."""
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    """Epoch of the controller that last changed the state."""
    leader: int = field(INT32)
    """-1: none; -2: the partition is being deleted and leaves the cache."""
    leader_epoch: int = field(INT32)
    isr: list[int] = field(Array(INT32))
    zk_version: int = field(INT32)
    """Version of the state znode."""
    replicas: list[int] = field(Array(INT32))
    offline_replicas: list[int] = field(Array(INT32), since=4)


class UpdateMetadataTopicState(Struct):
    topic_name: str = field(STRING, since=5)
    topic_id: bytes = field(UUID, since=7)
    partition_states: list[UpdateMetadataPartitionState] = field(Array(UpdateMetadataPartitionState), since=5)


class UpdateMetadataEndpoint(Struct):
    """One listener of a broker."""

    port: int = field(INT32, since=1)
    host: str = field(STRING, since=1)
    listener: str = field(STRING, since=3)
    security_protocol: int = field(INT16, since=1)
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class UpdateMetadataBroker(Struct):
    id: int = field(INT32)
    v0_host: str = field(STRING, until=0)
    """Version 0 only; then ``endpoints``."""
    v0_port: int = field(INT32, until=0)
    endpoints: list[UpdateMetadataEndpoint] = field(Array(UpdateMetadataEndpoint), since=1)
    rack: str | None = field(STRING, since=2, nullable_since=2)


class UpdateMetadataRequest(Request, key=ApiKey.UPDATE_METADATA):
    """The partitions that changed, and all live brokers."""

    controller_id: int = field(INT32)
    is_kraft_controller: bool = field(BOOL, since=8, ignorable=False)
    type: int = field(INT8, since=8, tag=0, ignorable=False)
    """0 unknown, 1 incremental, 2 full; ZooKeeper-mode controllers send 0."""
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, since=5, default=-1)
    """czxid of the receiver's registration; -1: not checked."""
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(
        Array(UpdateMetadataPartitionState), until=4, ignorable=False
    )
    """Until version 4; then ``topic_states``."""
    topic_states: list[UpdateMetadataTopicState] = field(Array(UpdateMetadataTopicState), since=5, ignorable=False)
    live_brokers: list[UpdateMetadataBroker] = field(Array(UpdateMetadataBroker))


class UpdateMetadataResponse(Response, key=ApiKey.UPDATE_METADATA):
    """Whether the receiver applied the update."""

    error_code: int = field(INT16)
