"""What the controller knows: brokers, topics, assignments, leadership, and the state of each partition and replica.

One mutable value, owned by the controller's event loop. It decides nothing and does no I/O. Every collection keeps its
insertion order, so that the same events give the same instructions in the same order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from engine.broker.controller.states import (
    VALID_PREVIOUS_PARTITION_STATES,
    VALID_PREVIOUS_REPLICA_STATES,
    PartitionAndReplica,
    PartitionState,
    ReplicaState,
)
from engine.common.model import (
    LEADER_DURING_DELETE,
    NO_PARTITION_LEADER_EPOCH,
    BrokerInfo,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicPartition,
)

NO_REPLICAS = ReplicaAssignment(())
_NONE: dict[int, ReplicaAssignment] = {}

_PIECE_SIZE = 2000
_COUNTED_AT_ONCE = 64


@dataclass(slots=True)
class ControllerEpoch:
    """The controller's own epoch, and the version of ``/controller_epoch`` that guards its writes."""

    controller_epoch: int = 0
    zk_version: int = 0


@dataclass(slots=True)
class Census:
    """Partitions without a leader, and not led by the preferred one; replicas to delete, and not deletable now."""

    offline: int = 0
    imbalanced: int = 0
    to_delete: int = 0
    undeletable: int = 0


class ControllerContext:
    """The controller's memory. Emptied on resignation, filled from ZooKeeper on take-over."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.epoch = ControllerEpoch()
        self.live_brokers: dict[int, BrokerInfo] = {}
        self.shutting_down_broker_ids: set[int] = set()
        self.topics: dict[str, None] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.leadership: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        self.partition_states: dict[TopicPartition, PartitionState] = {}
        self.replica_states: dict[PartitionAndReplica, ReplicaState] = {}
        self.replicas_on_offline_dirs: dict[int, set[TopicPartition]] = {}
        self.partitions_being_reassigned: dict[TopicPartition, None] = {}
        self.topics_to_be_deleted: dict[str, None] = {}
        self.topics_with_deletion_started: set[str] = set()
        self.topics_ineligible_for_deletion: set[str] = set()
        self.unclean_elections_total = 0

    def retire(self) -> Iterator[None]:
        """Forget most of it in pieces, with a yield after each: freeing 200,000 partitions takes a while."""
        tables: list[dict[Any, Any]] = [self.leadership, self.partition_states, self.replica_states]
        for large in [*tables, *self.assignments.values()]:
            while large:
                for _ in range(min(len(large), _PIECE_SIZE)):
                    large.popitem()
                yield

    # Brokers. ``live_brokers`` includes those that are shutting down: their znode is still there.

    @property
    def live_or_shutting_down_broker_ids(self) -> list[int]:
        return sorted(self.live_brokers)

    @property
    def live_broker_ids(self) -> list[int]:
        """Brokers that may lead: registered and not shutting down."""
        return sorted(self.live_brokers.keys() - self.shutting_down_broker_ids)

    def is_live_broker(self, broker_id: int) -> bool:
        return broker_id in self.live_brokers and broker_id not in self.shutting_down_broker_ids

    def is_present(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether this is a broker's current registration, not one from before a restart."""
        broker = self.live_brokers.get(broker_id)
        return broker is not None and broker.broker_epoch == broker_epoch

    def is_replica_online(
        self, broker_id: int, partition: TopicPartition, *, include_shutting_down: bool = False
    ) -> bool:
        """Return whether the broker is alive and the replica's log dir has not failed."""
        lives = broker_id in self.live_brokers if include_shutting_down else self.is_live_broker(broker_id)
        return lives and partition not in self.replicas_on_offline_dirs.get(broker_id, ())

    # Topics and assignments.

    def add_topic_id(self, topic: str, topic_id: bytes) -> None:
        """Remember a topic's id, and forget an earlier one (the topic was deleted and created again unseen)."""
        previous = self.topic_ids.get(topic)
        if previous is not None:
            self.topic_names.pop(previous, None)
        self.topic_ids[topic] = topic_id
        self.topic_names[topic_id] = topic

    def full_assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """Return the assignment with adding and removing replicas; an empty one for an unknown partition."""
        return self.assignments.get(partition.topic, {}).get(partition.partition, NO_REPLICAS)

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        return self.full_assignment(partition).replicas

    def update_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.assignments.setdefault(partition.topic, {})[partition.partition] = assignment

    def all_partitions(self) -> Iterator[TopicPartition]:
        for topic, partitions in self.assignments.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def partitions_of_topic(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for partition in self.assignments.get(topic, ())]

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> Iterator[PartitionAndReplica]:
        """Yield them one by one, as ``partitions_with_leadership`` does."""
        return (PartitionAndReplica(p, replica) for p in partitions for replica in self.replicas(p))

    def has_offline_replica(self, partition: TopicPartition) -> bool:
        return not all(self.is_replica_online(replica, partition) for replica in self.replicas(partition))

    def remove_topic(self, topic: str) -> None:
        """Forget a topic, its remaining partitions, their replicas and everything under way for them."""
        self.topics.pop(topic, None)
        self.topics_to_be_deleted.pop(topic, None)
        self.topics_with_deletion_started.discard(topic)
        self.topics_ineligible_for_deletion.discard(topic)
        topic_id = self.topic_ids.pop(topic, None)
        if topic_id is not None:
            self.topic_names.pop(topic_id, None)
        for partition in self.partitions_of_topic(topic):
            self.remove_partition(partition)
        self.assignments.pop(topic, None)

    def remove_partition(self, partition: TopicPartition) -> None:
        """Forget a partition of a topic being deleted."""
        assignment = self.assignments[partition.topic].pop(partition.partition)
        self.leadership.pop(partition, None)
        self.partition_states.pop(partition, None)
        self.partitions_being_reassigned.pop(partition, None)
        for replica in assignment.replicas:
            self.replica_states.pop(PartitionAndReplica(partition, replica), None)
        for offline in self.replicas_on_offline_dirs.values():
            offline.discard(partition)

    # Leadership.

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the epoch StopReplica carries: -2 for a topic being deleted, -1 for a partition without leadership."""
        if partition.topic in self.topics_to_be_deleted:
            return LEADER_DURING_DELETE
        leadership = self.leadership.get(partition)
        return NO_PARTITION_LEADER_EPOCH if leadership is None else leadership.leader_and_isr.leader_epoch

    def partitions_with_leadership(self) -> Iterator[TopicPartition]:
        """Yield them one by one, because there may be very many: the caller gives way in between."""
        return (p for p in self.leadership if p.topic not in self.topics_to_be_deleted)

    def has_offline_leader(self, partition: TopicPartition) -> bool:
        """Return whether a partition with leadership, and not being deleted, has no leader that can be reached."""
        leader = self.leadership[partition].leader_and_isr.leader
        return partition.topic not in self.topics_to_be_deleted and not self.is_replica_online(leader, partition)

    def is_left_to(self, broker_id: int, partition: TopicPartition) -> bool:
        """Return whether the broker leads a partition that other brokers have replicas of."""
        return (
            self.leadership[partition].leader_and_isr.leader == broker_id
            and partition.topic not in self.topics_to_be_deleted
            and len(self.replicas(partition)) > 1
        )

    # States.

    def partition_state(self, partition: TopicPartition) -> PartitionState:
        return self.partition_states.get(partition, PartitionState.NON_EXISTENT)

    def replica_state(self, replica: PartitionAndReplica) -> ReplicaState:
        return self.replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def is_valid_partition_move(self, partition: TopicPartition, target: PartitionState) -> bool:
        return self.partition_state(partition) in VALID_PREVIOUS_PARTITION_STATES[target]

    def is_valid_replica_move(self, replica: PartitionAndReplica, target: ReplicaState) -> bool:
        return self.replica_state(replica) in VALID_PREVIOUS_REPLICA_STATES[target]

    # For metrics: counted when they are read.

    def census(self) -> Generator[None, None, Census]:
        """Count what metrics show of all partitions, in pieces: there may be very many."""
        census = Census()
        if PartitionState.OFFLINE in self.partition_states.values():
            for number, (partition, state) in enumerate(list(self.partition_states.items())):
                if state is PartitionState.OFFLINE:
                    census.offline += partition.topic not in self.topics_with_deletion_started
                if number % _COUNTED_AT_ONCE == 0:
                    yield
        if self.topics_to_be_deleted:
            census.undeletable = list(self.replica_states.values()).count(ReplicaState.DELETION_INELIGIBLE)
        for topic in list(self.topics_to_be_deleted):
            census.to_delete += sum(len(each.replicas) for each in self.assignments.get(topic, {}).values())
            yield
        for number, (partition, leadership) in enumerate(list(self.leadership.items())):
            census.imbalanced += self.is_imbalanced(partition, leadership)
            if number % _COUNTED_AT_ONCE == 0:
                yield
        return census

    def is_imbalanced(self, partition: TopicPartition, leadership: LeaderIsrAndControllerEpoch) -> bool:
        """Return whether another replica leads than the preferred one, of a partition that is not being deleted.

        A preferred replica still being added counts as balanced until it is in the ISR, as in Kafka.
        """
        topic, index = partition
        assignment = self.assignments.get(topic, _NONE).get(index, NO_REPLICAS)
        if not assignment.replicas or topic in self.topics_to_be_deleted:
            return False
        preferred, state = assignment.replicas[0], leadership.leader_and_isr
        if preferred in assignment.adding_replicas:
            return preferred in state.isr
        return state.leader != preferred
