"""ElectLeaders (43), versions 0–2: elect preferred leaders, or any live replica.

Version notes
* 0: preferred election only   * 1: unclean election (KIP-460)   * 2: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT8, INT16, INT32, STRING, Array


class TopicPartitions(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class ElectLeadersRequest(Request, key=ApiKey.ELECT_LEADERS):
    election_type: int = field(INT8, since=1, ignorable=False)
    """0 preferred, 1 unclean."""
    topic_partitions: list[TopicPartitions] | None = field(Array(TopicPartitions), nullable_since=0)
    """None: all partitions."""
    timeout_ms: int = field(INT32, default=60000)


class PartitionResult(Struct):
    partition_id: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)


class ReplicaElectionResult(Struct):
    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(Array(PartitionResult))


class ElectLeadersResponse(Response, key=ApiKey.ELECT_LEADERS):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=1, ignorable=False)
    replica_election_results: list[ReplicaElectionResult] = field(Array(ReplicaElectionResult))
