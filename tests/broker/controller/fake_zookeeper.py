"""A ZooKeeper for tests of the controller's core: its znodes with versions, and the writes in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.broker.controller import events
from engine.broker.controller import instructions as do
from engine.broker.controller.core import ControllerCore
from engine.broker.controller.instructions import Instruction
from engine.common.errors import CoordinationError
from engine.common.model import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from engine.kafka.zk.cluster import ProducerIdBlock
from engine.kafka.zk.errors import ControllerMoved, NotEmpty
from engine.kafka.zk.partitions import Notifications, PartitionStateUpdates
from engine.kafka.zk.topics import TopicIdReplicaAssignment


def tp(text: str) -> TopicPartition:
    """``t-0`` as a partition."""
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


def broker_info(broker_id: int, broker_epoch: int, rack: str | None = None) -> BrokerInfo:
    endpoint = Endpoint("127.0.0.1", 9092 + broker_id, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
    return BrokerInfo(broker_id, (endpoint,), rack, broker_epoch)


@dataclass
class StoredState:
    state: LeaderAndIsr
    controller_epoch: int

    def read(self) -> LeaderIsrAndControllerEpoch:
        return LeaderIsrAndControllerEpoch(self.state, self.controller_epoch)


class FakeZooKeeper:
    """The znodes that the controller knows, with versions, and a list of the writes in order."""

    def __init__(self) -> None:
        self.epoch = 0
        self.epoch_zk_version = 0
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicIdReplicaAssignment] = {}
        self.topic_configs: set[str] = set()
        self.states: dict[TopicPartition, StoredState] = {}
        self.unclean: set[str] = set()
        self.undeletable: set[str] = set()
        """Topics whose znodes cannot be removed at the moment."""
        self.deletions: dict[str, None] = {}
        self.reassignments: dict[TopicPartition, tuple[int, ...]] | None = None
        self.preferred_election: tuple[TopicPartition, ...] | None = None
        self.malformed: str | None = None
        self.isr_notifications: dict[str, tuple[TopicPartition, ...]] = {}
        self.log_dir_events: dict[str, int] = {}
        self.next_producer_id = 0
        self.zxid = 100
        self.writes: list[str] = []
        self.on_change: Callable[[events.ControllerEvent], None] = lambda event: None
        self.leaders_by_epoch: dict[tuple[bytes | None, TopicPartition, int], int] = {}

    # What others write

    def register(self, broker_id: int, rack: str | None = None) -> None:
        self.zxid += 1
        self.brokers[broker_id] = broker_info(broker_id, self.zxid, rack)
        self.on_change(events.BrokerChange())

    def unregister(self, broker_id: int) -> None:
        if self.brokers.pop(broker_id, None) is not None:
            self.on_change(events.BrokerChange())

    def create_topic(self, topic: str, partitions: dict[int, tuple[int, ...]], topic_id: bytes | None = None) -> None:
        self.zxid += 1
        assignments = {p: ReplicaAssignment(replicas) for p, replicas in partitions.items()}
        unique_id = topic_id or self.zxid.to_bytes(16, "big")
        self.topics[topic] = TopicIdReplicaAssignment(topic, unique_id, assignments, 0)
        self.topic_configs.add(topic)
        self.on_change(events.TopicChange())

    def add_partitions(self, topic: str, partitions: dict[int, tuple[int, ...]]) -> None:
        stored = self.topics[topic]
        added = {p: ReplicaAssignment(replicas) for p, replicas in partitions.items()}
        assert stored.zk_version is not None
        grown = {**stored.assignment, **added}
        self.topics[topic] = replace(stored, assignment=grown, zk_version=stored.zk_version + 1)
        self.on_change(events.PartitionModifications(topic))

    def mark_for_deletion(self, topic: str) -> None:
        self.deletions[topic] = None
        self.on_change(events.TopicDeletionRequested())

    def ask_for_reassignments(self, reassignments: dict[TopicPartition, tuple[int, ...]]) -> None:
        self.reassignments = dict(reassignments)
        self.on_change(events.ZkPartitionReassignment())

    def ask_for_preferred_election(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.preferred_election = partitions
        self.on_change(events.ZkPreferredElection())

    def write_state(self, partition: TopicPartition, state: LeaderAndIsr, controller_epoch: int) -> LeaderAndIsr:
        """Write a state znode for somebody else; the version grows by itself."""
        before = self.states.get(partition)
        if before is not None:
            assert state.leader_epoch >= before.state.leader_epoch, f"{partition}: leader epoch falls"
        assert state.isr, f"{partition}: empty ISR"
        if state.leader >= 0:
            stored = self.topics.get(partition.topic)
            key = (stored.topic_id if stored else None, partition, state.leader_epoch)
            leader = self.leaders_by_epoch.setdefault(key, state.leader)
            assert leader == state.leader, f"{partition}: two leaders in epoch {state.leader_epoch}"
            assert state.leader in state.isr, f"{partition}: leader outside the ISR {state}"
        version = 0 if before is None else before.state.partition_epoch + 1
        written = replace(state, partition_epoch=version)
        self.states[partition] = StoredState(written, controller_epoch)
        return written

    # What the controller asks for

    def perform(self, core: ControllerCore, instruction: Instruction[Any]) -> Any:
        method = getattr(self, f"_{type(instruction).__name__}")
        return method(core, instruction)

    def _guard(self, core: ControllerCore) -> None:
        if core.context.epoch.zk_version != self.epoch_zk_version:
            raise ControllerMoved("epoch check failed")

    def _ReadBrokers(self, core: ControllerCore, _: do.ReadBrokers) -> dict[int, BrokerInfo]:
        return dict(self.brokers)

    def _ReadBroker(self, core: ControllerCore, read: do.ReadBroker) -> BrokerInfo | None:
        return self.brokers.get(read.broker_id)

    def _ReadTopics(self, core: ControllerCore, _: do.ReadTopics) -> list[str]:
        return list(self.topics)

    def _ReadTopicAssignments(
        self, core: ControllerCore, read: do.ReadTopicAssignments
    ) -> dict[str, TopicIdReplicaAssignment]:
        return {t: self.topics[t] for t in read.topics if t in self.topics}

    def _ReadPartitionIds(self, core: ControllerCore, read: do.ReadPartitionIds) -> set[int]:
        return {p.partition for p in self.states if p.topic == read.topic}

    def _ReadPartitionStates(self, core: ControllerCore, read: do.ReadPartitionStates) -> dict[TopicPartition, Any]:
        return {p: self.states[p].read() if p in self.states else None for p in read.partitions}

    def _ReadTopicDeletions(self, core: ControllerCore, _: do.ReadTopicDeletions) -> list[str]:
        return list(self.deletions)

    def _ReadReassignments(self, core: ControllerCore, _: do.ReadReassignments) -> do.ReassignmentRequest | None:
        if self.reassignments is None:
            return None
        return do.AdminRequest(dict(self.reassignments), self.malformed)

    def _ReadPreferredElection(self, core: ControllerCore, _: do.ReadPreferredElection) -> do.ElectionRequest | None:
        if self.preferred_election is None:
            return None
        return do.AdminRequest(self.preferred_election, self.malformed)

    def _ReadIsrChangeNotifications(self, core: ControllerCore, _: object) -> Notifications[TopicPartition]:
        notifications = self.isr_notifications
        return Notifications(
            tuple(notifications), tuple(p for partitions in notifications.values() for p in partitions)
        )

    def _ReadLogDirEvents(self, core: ControllerCore, _: object) -> Notifications[int]:
        return Notifications(tuple(self.log_dir_events), tuple(self.log_dir_events.values()))

    def _ReadUncleanElectionEnabled(self, core: ControllerCore, read: do.ReadUncleanElectionEnabled) -> dict[str, bool]:
        return {t: t in self.unclean for t in read.topics}

    def _CreatePartitionStates(
        self, core: ControllerCore, create: do.CreatePartitionStates
    ) -> dict[TopicPartition, CoordinationError | None]:
        self._guard(core)
        results: dict[TopicPartition, CoordinationError | None] = {}
        for partition, leadership in create.states.items():
            if partition in self.states:
                results[partition] = CoordinationError("NodeExists")
                continue
            self.write_state(partition, leadership.leader_and_isr, leadership.controller_epoch)
            self.writes.append(f"create {partition} {state_text(leadership.leader_and_isr)}")
            results[partition] = None
        return results

    def _UpdateLeaderAndIsr(self, core: ControllerCore, update: do.UpdateLeaderAndIsr) -> PartitionStateUpdates:
        self._guard(core)
        updates = PartitionStateUpdates()
        for partition, state in update.states.items():
            stored = self.states.get(partition)
            if stored is None:
                updates.failed[partition] = CoordinationError("NoNode")
            elif stored.state.partition_epoch != state.partition_epoch:
                updates.to_retry.append(partition)
            else:
                written = self.write_state(partition, state, core.context.epoch.controller_epoch)
                updates.updated[partition] = written
                self.writes.append(f"state {partition} {state_text(written)}")
        return updates

    def _SetTopicAssignments(self, core: ControllerCore, write: do.SetTopicAssignments) -> list[str]:
        self._guard(core)
        again = []
        for assignment in write.assignments:
            topic = assignment.topic
            stored = self.topics.get(topic)
            if stored is None or assignment.zk_version not in (None, stored.zk_version):
                again.append(topic)
                continue
            assert stored.zk_version is not None
            self.topics[topic] = replace(assignment, zk_version=stored.zk_version + 1)
            lists = " ".join(f"{p}:{assignment_text(a)}" for p, a in assignment.assignment.items())
            self.writes.append(f"topic {topic} {lists}")
            self.on_change(events.PartitionModifications(topic))
        return again

    def _DeleteTopicZNodes(self, core: ControllerCore, delete: do.DeleteTopicZNodes) -> None:
        self._guard(core)
        if delete.topic in self.undeletable:
            raise NotEmpty("The znode has children", f"/brokers/topics/{delete.topic}/partitions")
        for partition in [p for p in self.states if p.topic == delete.topic]:
            del self.states[partition]
        self.topics.pop(delete.topic, None)
        self.topic_configs.discard(delete.topic)
        self.deletions.pop(delete.topic, None)
        self.writes.append(f"delete topic {delete.topic}")
        self.on_change(events.TopicChange())
        self.on_change(events.TopicDeletionRequested())

    def _DeleteTopicDeletions(self, core: ControllerCore, delete: do.DeleteTopicDeletions) -> None:
        self._guard(core)
        for topic in delete.topics:
            self.deletions.pop(topic, None)
            self.writes.append(f"delete mark {topic}")
        self.on_change(events.TopicDeletionRequested())

    def _SetReassignments(self, core: ControllerCore, write: do.SetReassignments) -> None:
        self._guard(core)
        self.malformed = None
        self.reassignments = dict(write.reassignments) or None
        self.writes.append(f"reassignments {' '.join(map(str, write.reassignments)) or 'deleted'}")
        if self.reassignments:
            self.on_change(events.ZkPartitionReassignment())

    def _DeletePreferredElection(self, core: ControllerCore, _: do.DeletePreferredElection) -> None:
        self._guard(core)
        if self.preferred_election is not None:
            self.writes.append("delete preferred election")
        self.preferred_election = None

    def _DeleteIsrChangeNotifications(self, core: ControllerCore, delete: do.DeleteIsrChangeNotifications) -> None:
        self._guard(core)
        for name in tuple(self.isr_notifications) if delete.names is None else delete.names:
            self.isr_notifications.pop(name, None)

    def _DeleteLogDirEvents(self, core: ControllerCore, delete: do.DeleteLogDirEvents) -> None:
        self._guard(core)
        for name in tuple(self.log_dir_events) if delete.names is None else delete.names:
            self.log_dir_events.pop(name, None)

    def _AllocateProducerIdBlock(self, core: ControllerCore, wish: do.AllocateProducerIdBlock) -> ProducerIdBlock:
        block = ProducerIdBlock(wish.broker_id, self.next_producer_id)
        self.next_producer_id += block.size
        return block

    def _SetUpFeatures(self, core: ControllerCore, _: do.SetUpFeatures) -> None:
        self.writes.append("features")


def state_text(state: LeaderAndIsr) -> str:
    isr = "".join(map(str, state.isr))
    recovery = " recovering" if state.leader_recovery_state else ""
    return f"leader={state.leader} le={state.leader_epoch} isr={isr} pe={state.partition_epoch}{recovery}"


def assignment_text(assignment: ReplicaAssignment) -> str:
    text = "".join(map(str, assignment.replicas))
    if assignment.adding_replicas:
        text += "+" + "".join(map(str, assignment.adding_replicas))
    if assignment.removing_replicas:
        text += "-" + "".join(map(str, assignment.removing_replicas))
    return text
