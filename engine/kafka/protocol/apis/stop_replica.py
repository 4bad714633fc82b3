"""StopReplica (5), versions 0–4: the controller makes a broker stop, or delete, replicas.

Version notes
* 1: broker epoch (KIP-380)   * 2: flexible   * 3: leader epoch and deletion per partition (KIP-570)
* 4: controllers of KRaft
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT16, INT32, INT64, STRING, Array


class StopReplicaPartitionV0(Struct):
    """One replica to stop, version 0."""

    topic_name: str = field(STRING, until=0, ignorable=False)
    partition_index: int = field(INT32, until=0, ignorable=False)


class StopReplicaTopicV1(Struct):
    """One topic's replicas to stop, versions 1 and 2."""

    name: str = field(STRING, since=1, until=2, ignorable=False)
    partition_indexes: list[int] = field(Array(INT32), since=1, until=2, ignorable=False)


class StopReplicaPartitionState(Struct):
    partition_index: int = field(INT32, since=3)
    leader_epoch: int = field(INT32, since=3, default=-1)
    """-1 if unknown, -2 if the topic is being deleted; neither is checked."""
    delete_partition: bool = field(BOOL, since=3)
    """Delete the log, too."""


class StopReplicaTopicState(Struct):
    topic_name: str = field(STRING, since=3)
    partition_states: list[StopReplicaPartitionState] = field(Array(StopReplicaPartitionState), since=3)


class StopReplicaRequest(Request, key=ApiKey.STOP_REPLICA):
    controller_id: int = field(INT32)
    is_kraft_controller: bool = field(BOOL, since=4, ignorable=False)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, since=1, default=-1)
    """czxid of the receiver's registration; -1: not checked."""
    delete_partitions: bool = field(BOOL, until=2, ignorable=False)
    """Delete the logs of all of them, until version 2."""
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(Array(StopReplicaPartitionV0), until=0, ignorable=False)
    topics: list[StopReplicaTopicV1] = field(Array(StopReplicaTopicV1), since=1, until=2, ignorable=False)
    topic_states: list[StopReplicaTopicState] = field(Array(StopReplicaTopicState), since=3, ignorable=False)


class StopReplicaPartitionError(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class StopReplicaResponse(Response, key=ApiKey.STOP_REPLICA):
    error_code: int = field(INT16)
    partition_errors: list[StopReplicaPartitionError] = field(Array(StopReplicaPartitionError))
