"""ClusterSnapshot: a whole cluster as one frozen value, shared by the command line, the dashboard and the planner.

Read from ZooKeeper or from the wire (``engine.admin.snapshots.taking``), saved to and loaded from JSON
(``snapshot_json``). A fact that the source does not know is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from engine.common.model import (
    NO_CONTROLLER,
    NO_LEADER,
    BrokerInfo,
    LeaderRecoveryState,
    ReplicaAssignment,
    TopicPartition,
)
from engine.common.topic_names import INTERNAL_TOPICS

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class SnapshotSource(StrEnum):
    """Where the snapshot comes from."""

    ZOOKEEPER = "zookeeper"
    WIRE = "wire"


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """One replica's log on one broker's disk, as DescribeLogDirs reports it."""

    broker: int
    log_dir: str
    size_bytes: int
    offset_lag: int = 0
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDirSnapshot:
    """One log dir of a broker, even one without a replica. The bytes are those of its volume (Kafka 3.3, KIP-827)."""

    broker: int
    log_dir: str
    total_bytes: int | None = None
    usable_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FailedLogDir:
    """A log dir that its broker cannot use. ``log_dir`` is None if the broker reported none of its log dirs."""

    broker: int
    log_dir: str | None
    error: str


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """One partition. A partition with an unknown state (its state znode is missing) has no leader and no ISR."""

    partition: int
    assignment: ReplicaAssignment
    leader: int = NO_LEADER
    isr: tuple[int, ...] = ()
    leader_epoch: int | None = None
    controller_epoch: int | None = None
    zk_version: int | None = None
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    replica_logs: tuple[ReplicaLog, ...] = ()
    offline_replicas: tuple[int, ...] = field(default=(), compare=False)
    """Replicas that cannot lead, as a broker has just said: dead, stopping, or in a failed log dir. No file has them.
    """

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.assignment.replicas

    @property
    def osr(self) -> tuple[int, ...]:
        """Replicas out of sync, in preference order."""
        return tuple(replica for replica in self.replicas if replica not in self.isr)

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    def is_led(self, live: Collection[int]) -> bool:
        """Whether its leader is alive: a state may name one that has died, until the controller elects another."""
        return self.leader in live

    def last_in_sync(self, live: Collection[int]) -> tuple[int, ...]:
        """Return the brokers that have all acknowledged records, if there is no leader because all of them are dead;
        else none."""
        return () if self.is_led(live) or any(broker in live for broker in self.isr) else self.isr

    def is_under_min_isr(self, min_isr: int, live: Collection[int], *, is_capped: bool = False) -> bool:
        """Whether writes with acks=all are refused. One without a leader refuses everything, and is not counted.

        ``is_capped``: brokers want no more in sync than there are replicas (Kafka 3.7 and newer).
        """
        return self.is_led(live) and len(self.isr) < (min(min_isr, len(self.replicas)) if is_capped else min_isr)

    @property
    def is_under_replicated(self) -> bool:
        """Fewer replicas in sync than wanted; those that a reassignment adds are not counted (KIP-352)."""
        return len(self.isr) < len(self.replicas) - len(self.assignment.adding_replicas)


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """One topic. ``configs`` are its overrides only; None if they are unknown."""

    name: str
    partitions: tuple[PartitionSnapshot, ...]
    topic_id: bytes | None = None
    configs: Mapping[str, str] | None = field(default_factory=lambda: _NO_CONFIGS)
    is_marked_for_deletion: bool = False

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """Replicas of partition 0, as Kafka's tools count; those that a reassignment adds are included."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A cluster at one moment. Brokers are ordered by id, topics by name, partitions by number.

    ``broker_configs`` are the dynamic ones: by broker id, the cluster-wide defaults under None. ``log_dirs`` exist if
    sizes were asked for, ordered by broker and path. ``failed_log_dirs`` is None if they were not asked for.
    """

    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicSnapshot, ...]
    source: SnapshotSource
    taken_at_ms: int
    cluster_id: str | None = None
    controller_id: int = NO_CONTROLLER
    controller_epoch: int | None = None
    broker_configs: Mapping[int | None, Mapping[str, str]] = field(default_factory=dict)
    log_dirs: tuple[LogDirSnapshot, ...] = ()
    failed_log_dirs: tuple[FailedLogDir, ...] | None = None

    @property
    def live_broker_ids(self) -> frozenset[int]:
        return frozenset(broker.id for broker in self.brokers)

    def broker(self, broker_id: int) -> BrokerInfo | None:
        return next((broker for broker in self.brokers if broker.id == broker_id), None)

    def topic(self, name: str) -> TopicSnapshot | None:
        return next((topic for topic in self.topics if topic.name == name), None)

    def partition(self, topic_partition: TopicPartition) -> PartitionSnapshot | None:
        topic = self.topic(topic_partition.topic)
        if topic is None:
            return None
        return next((p for p in topic.partitions if p.partition == topic_partition.partition), None)
