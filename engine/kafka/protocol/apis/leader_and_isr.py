"""LeaderAndIsr (4), versions 0–7: the controller makes a broker leader or follower of partitions.

Version notes
* 1: is_new   * 2: grouped by topic, broker epoch (KIP-380)   * 3: adding and removing replicas (KIP-455)
* 4: flexible   * 5: topic ids, type   * 6: leader recovery state (KIP-704)
* 7: controllers of KRaft during migration (KIP-866)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, Array


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = field(STRING, until=1)
    """In versions 0 and 1 only."""
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    """Epoch of the controller that last changed the state."""
    leader: int = field(INT32)
    """-1: none; -2: the topic is being deleted."""
    leader_epoch: int = field(INT32)
    isr: list[int] = field(Array(INT32))
    partition_epoch: int = field(INT32)
    """Version of the state znode (zkVersion)."""
    replicas: list[int] = field(Array(INT32))
    """The assignment; the first is preferred."""
    adding_replicas: list[int] = field(Array(INT32), since=3)
    removing_replicas: list[int] = field(Array(INT32), since=3)
    is_new: bool = field(BOOL, since=1)
    """The replica has not existed on the broker before: create its log."""
    leader_recovery_state: int = field(INT8, since=6, ignorable=False)
    """1 while recovering from an unclean election, else 0."""


class LeaderAndIsrTopicState(Struct):
    topic_name: str = field(STRING, since=2)
    topic_id: bytes = field(UUID, since=5)
    partition_states: list[LeaderAndIsrPartitionState] = field(Array(LeaderAndIsrPartitionState), since=2)


class LeaderAndIsrLiveLeader(Struct):
    """Address of a leader from which followers fetch."""

    broker_id: int = field(INT32)
    host_name: str = field(STRING)
    port: int = field(INT32)


class LeaderAndIsrRequest(Request, key=ApiKey.LEADER_AND_ISR):
    """Take these roles."""

    controller_id: int = field(INT32)
    is_kraft_controller: bool = field(BOOL, since=7, ignorable=False)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, since=2, default=-1)
    """czxid of the receiver's registration; -1: not checked."""
    type: int = field(INT8, since=5, ignorable=False)
    """0 unknown, 1 incremental, 2 full; ZooKeeper-mode controllers send 0."""
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(
        Array(LeaderAndIsrPartitionState), until=1, ignorable=False
    )
    """In versions 0 and 1 only."""
    topic_states: list[LeaderAndIsrTopicState] = field(Array(LeaderAndIsrTopicState), since=2, ignorable=False)
    live_leaders: list[LeaderAndIsrLiveLeader] = field(Array(LeaderAndIsrLiveLeader))


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = field(STRING, until=4)
    """Until version 4."""
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class LeaderAndIsrTopicError(Struct):
    topic_id: bytes = field(UUID, since=5)
    partition_errors: list[LeaderAndIsrPartitionError] = field(Array(LeaderAndIsrPartitionError), since=5)


class LeaderAndIsrResponse(Response, key=ApiKey.LEADER_AND_ISR):
    error_code: int = field(INT16)
    partition_errors: list[LeaderAndIsrPartitionError] = field(
        Array(LeaderAndIsrPartitionError), until=4, ignorable=False
    )
    """Until version 4; then ``topics``."""
    topics: list[LeaderAndIsrTopicError] = field(Array(LeaderAndIsrTopicError), since=5, ignorable=False)
