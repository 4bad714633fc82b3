"""Fetch (1), versions 0–17: read record batches, as a consumer or as a follower.

Version notes
* 3: max_bytes; partitions are served in the order of the request   * 4: transactions, format 2
* 5: log start offset   * 7: fetch sessions (KIP-227)   * 9: leader epoch fencing (KIP-320)   * 10: zstd
* 11: fetch from a follower (KIP-392)   * 12: flexible, divergence by epoch (KIP-595)
* 13: topic ids instead of names   * 15: replica_state instead of replica_id (KIP-903)
* 16: addresses of new leaders (KIP-951)   * 17: directory id
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, Array, Records


class ReplicaState(Struct):
    """The follower that asks; consumers leave it out."""

    replica_id: int = field(INT32, since=15, default=-1)
    replica_epoch: int = field(INT64, since=15, default=-1)
    """The follower's broker epoch, -1 if unknown."""


class FetchPartition(Struct):
    """Where to start and how much to read in one partition."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, default=-1)
    """Epoch the reader believes is current; -1 turns the check off."""
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1, ignorable=False)
    """Leader epoch of the last record the reader has; -1 if none, or for consumers."""
    log_start_offset: int = field(INT64, since=5, default=-1)
    """The follower's own log start offset; -1 from consumers."""
    partition_max_bytes: int = field(INT32)
    replica_directory_id: bytes = field(UUID, since=17, tag=0)


class FetchTopic(Struct):
    topic: str = field(STRING, until=12)
    """Name, until version 12."""
    topic_id: bytes = field(UUID, since=13)
    partitions: list[FetchPartition] = field(Array(FetchPartition))


class ForgottenTopic(Struct):
    """Partitions to drop from the fetch session."""

    topic: str = field(STRING, since=7, until=12)
    topic_id: bytes = field(UUID, since=13)
    partitions: list[int] = field(Array(INT32), since=7)


class FetchRequest(Request, key=ApiKey.FETCH):
    """Read from these partitions, wait for enough bytes."""

    cluster_id: str | None = field(STRING, since=12, nullable_since=12, tag=0)
    """Only Raft voters send it."""
    replica_id: int = field(INT32, until=14, default=-1, ignorable=False)
    """The follower's broker id; -1 for a consumer, -2 for a debugging one."""
    replica_state: ReplicaState | None = field(ReplicaState, since=15, tag=1, ignorable=False)
    max_wait_ms: int = field(INT32)
    """How long the answer may wait for ``min_bytes``."""
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, since=3, default=2**31 - 1)
    """Limit of the whole answer; the first batch is sent even if it is larger (KIP-74)."""
    isolation_level: int = field(INT8, since=4)
    """0: up to the high watermark; 1: up to the last stable offset, with aborted transactions."""
    session_id: int = field(INT32, since=7)
    """0: no session, or create one."""
    session_epoch: int = field(INT32, since=7, default=-1)
    """-1: no session; 0: create one; from 1 on: next request of the session."""
    topics: list[FetchTopic] = field(Array(FetchTopic))
    """In a session: only what is new or changed."""
    forgotten_topics_data: list[ForgottenTopic] = field(Array(ForgottenTopic), since=7, ignorable=False)
    rack_id: str = field(STRING, since=11)
    """The consumer's rack, for reading from a near replica."""


class EpochEndOffset(Struct):
    """Where the follower's log diverges from the leader's."""

    epoch: int = field(INT32, since=12, default=-1)
    """Largest epoch at or below the requested one."""
    end_offset: int = field(INT64, since=12, default=-1)
    """The leader's end offset of that epoch."""


class LeaderIdAndEpoch(Struct):
    """The partition's current leader."""

    leader_id: int = field(INT32, since=12, default=-1)
    leader_epoch: int = field(INT32, since=12, default=-1)


class SnapshotId(Struct):
    """Names a Raft snapshot; never sent for ordinary partitions."""

    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class AbortedTransaction(Struct):
    """A transaction among the records returned that was aborted."""

    producer_id: int = field(INT64, since=4)
    first_offset: int = field(INT64, since=4)
    """First offset of the transaction; its records run to the abort marker."""


class PartitionData(Struct):
    """One partition's batches and watermarks."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, since=4, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    diverging_epoch: EpochEndOffset | None = field(EpochEndOffset, since=12, tag=0, ignorable=False)
    """Set if the reader must truncate first; then there are no records."""
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, since=12, tag=1, ignorable=False)
    snapshot_id: SnapshotId | None = field(SnapshotId, since=12, tag=2, ignorable=False)
    aborted_transactions: list[AbortedTransaction] | None = field(Array(AbortedTransaction), since=4, nullable_since=4)
    """None unless isolation_level was 1."""
    preferred_read_replica: int = field(INT32, since=11, default=-1, ignorable=False)
    """Broker to read from instead, -1 for this one; then there are no records."""
    records: Records = field(RECORDS, nullable_since=0)


class FetchableTopicResponse(Struct):
    topic: str = field(STRING, until=12)
    """Name, until version 12."""
    topic_id: bytes = field(UUID, since=13)
    partitions: list[PartitionData] = field(Array(PartitionData))


class NodeEndpoint(Struct):
    """Address of a broker named as a current leader."""

    node_id: int = field(INT32, since=16)
    host: str = field(STRING, since=16)
    port: int = field(INT32, since=16)
    rack: str | None = field(STRING, since=16, nullable_since=16)


class FetchResponse(Response, key=ApiKey.FETCH):
    """Batches per partition; in a session only what changed."""

    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16, since=7)
    """For the fetch session; partitions have their own."""
    session_id: int = field(INT32, since=7, ignorable=False)
    """0 if there is no session."""
    responses: list[FetchableTopicResponse] = field(Array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), since=16, tag=0, ignorable=False)
