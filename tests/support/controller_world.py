"""A cluster without network, clock and ZooKeeper, for tests of the controller's core.

``FakeZooKeeper`` carries out the core's instructions on plain dictionaries with real versions and the real epoch check;
``FakeBroker`` answers requests as a broker does; ``World`` drives one controller over them, one step at a time, and can
lose it between any two instructions. Every write is checked as it happens: epochs never fall, one epoch has one leader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from engine.common.errors import CoordinationError, ErrorCode
from engine.common.model import (
    LEADER_DURING_DELETE,
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from engine.controller import events
from engine.controller import instructions as do
from engine.controller.broker_requests import (
    BrokerRequest,
    LeaderAndIsrToBroker,
    StopReplicaToBroker,
    UpdateMetadataToBroker,
)
from engine.controller.core import ControllerCore
from engine.controller.instructions import (
    Instruction,
    LeaderAndIsrUpdates,
    Notifications,
    ProducerIdBlock,
    Steps,
    TopicAssignment,
)
from engine.controller.options import ControllerOptions
from engine.zk.errors import ControllerMoved

CONTROLLER = 0


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
    """The znodes the controller knows, with versions; and a list of the writes in order."""

    def __init__(self) -> None:
        self.epoch = 0
        self.epoch_zk_version = 0
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.topic_configs: set[str] = set()
        self.states: dict[TopicPartition, StoredState] = {}
        self.unclean: set[str] = set()
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
        self.topics[topic] = TopicAssignment(unique_id, assignments, 0)
        self.topic_configs.add(topic)
        self.on_change(events.TopicChange())

    def add_partitions(self, topic: str, partitions: dict[int, tuple[int, ...]]) -> None:
        stored = self.topics[topic]
        added = {p: ReplicaAssignment(replicas) for p, replicas in partitions.items()}
        assert stored.zk_version is not None
        self.topics[topic] = TopicAssignment(stored.topic_id, {**stored.partitions, **added}, stored.zk_version + 1)
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
        """A write of a state znode by anybody; the version grows by itself."""
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

    def _ReadTopicAssignments(self, core: ControllerCore, read: do.ReadTopicAssignments) -> dict[str, TopicAssignment]:
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
        found = self.isr_notifications
        return Notifications(tuple(found), tuple(p for partitions in found.values() for p in partitions))

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
            self.writes.append(f"create {partition} {_text(leadership.leader_and_isr)}")
            results[partition] = None
        return results

    def _UpdateLeaderAndIsr(self, core: ControllerCore, update: do.UpdateLeaderAndIsr) -> LeaderAndIsrUpdates:
        self._guard(core)
        updates = LeaderAndIsrUpdates()
        for partition, state in update.states.items():
            stored = self.states.get(partition)
            if stored is None:
                updates.failed[partition] = CoordinationError("NoNode")
            elif stored.state.partition_epoch != state.partition_epoch:
                updates.to_retry.append(partition)
            else:
                written = self.write_state(partition, state, core.context.epoch.controller_epoch)
                updates.updated[partition] = written
                self.writes.append(f"state {partition} {_text(written)}")
        return updates

    def _SetTopicAssignments(self, core: ControllerCore, write: do.SetTopicAssignments) -> list[str]:
        self._guard(core)
        again = []
        for topic, assignment in write.assignments.items():
            stored = self.topics.get(topic)
            if stored is None or assignment.zk_version not in (None, stored.zk_version):
                again.append(topic)
                continue
            assert stored.zk_version is not None
            self.topics[topic] = replace(assignment, zk_version=stored.zk_version + 1)
            lists = " ".join(f"{p}:{_assignment(a)}" for p, a in assignment.partitions.items())
            self.writes.append(f"topic {topic} {lists}")
            self.on_change(events.PartitionModifications(topic))
        return again

    def _DeleteTopicZNodes(self, core: ControllerCore, delete: do.DeleteTopicZNodes) -> None:
        self._guard(core)
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


def _text(state: LeaderAndIsr) -> str:
    isr = "".join(map(str, state.isr))
    recovery = " recovering" if state.leader_recovery_state else ""
    return f"leader={state.leader} le={state.leader_epoch} isr={isr} pe={state.partition_epoch}{recovery}"


def _assignment(assignment: ReplicaAssignment) -> str:
    text = "".join(map(str, assignment.replicas))
    if assignment.adding_replicas:
        text += "+" + "".join(map(str, assignment.adding_replicas))
    if assignment.removing_replicas:
        text += "-" + "".join(map(str, assignment.removing_replicas))
    return text


@dataclass
class FakeReplica:
    """What a broker knows of a partition it hosts."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    is_caught_up: bool = False
    """As a follower: it has everything its leader of this epoch has."""


@dataclass
class FakeBroker:
    """A broker's side of the requests: the checks of epochs, replicas it hosts, its metadata cache."""

    broker_id: int
    broker_epoch: int = -1
    controller_epoch: int = 0
    replicas: dict[TopicPartition, FakeReplica] = field(default_factory=dict)
    metadata: dict[TopicPartition, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)
    live_brokers: tuple[int, ...] = ()
    offline: set[TopicPartition] = field(default_factory=set)
    fails_to_delete: set[TopicPartition] = field(default_factory=set)

    def handle(self, request: BrokerRequest) -> events.ControllerEvent | None:
        """Answer a request; None where the controller wants no answer."""
        error = self._whole_error(request)
        match request:
            case LeaderAndIsrToBroker():
                errors = {} if error else {p.topic_partition: self._become(p) for p in request.partitions}
                return events.LeaderAndIsrResponseReceived(self.broker_id, request.broker_epoch, error, errors, "text")
            case UpdateMetadataToBroker():
                if not error:
                    self._update_metadata(request)
                return events.UpdateMetadataResponseReceived(self.broker_id, request.broker_epoch, error, "text")
            case StopReplicaToBroker():
                deleted = {}
                for part in request.partitions:
                    result = error or self._stop(part)
                    if part.delete:
                        deleted[part.topic_partition] = result
                if not deleted:
                    return None
                return events.StopReplicaResponseReceived(self.broker_id, request.broker_epoch, error, deleted)

    def _whole_error(self, request: BrokerRequest) -> ErrorCode:
        if request.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _become(self, part: Any) -> ErrorCode:
        partition = part.topic_partition
        if partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = self.replicas.get(partition)
        if known is not None and part.state.leader_epoch <= known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.broker_id not in part.assignment.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = part.state
        self.replicas[partition] = FakeReplica(
            state.leader, state.leader_epoch, state.isr, state.partition_epoch, part.assignment.replicas
        )
        return ErrorCode.NONE

    def _update_metadata(self, request: UpdateMetadataToBroker) -> None:
        self.live_brokers = tuple(b.id for b in request.live_brokers)
        for part in request.partitions:
            if part.leader == LEADER_DURING_DELETE:
                self.metadata.pop(part.topic_partition, None)
            else:
                self.metadata[part.topic_partition] = (part.leader, part.leader_epoch, part.replicas)

    def _stop(self, part: Any) -> ErrorCode:
        partition = part.topic_partition
        known = self.replicas.get(partition)
        if partition in self.offline or partition in self.fails_to_delete:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if known is not None and 0 <= part.leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if part.delete:
            self.replicas.pop(partition, None)
        return ErrorCode.NONE

    def restart(self, broker_epoch: int) -> None:
        """Come back with the files and mended log dirs, without what was in memory."""
        self.offline.clear()
        self.broker_epoch = broker_epoch
        self.controller_epoch = 0
        self.metadata.clear()
        for replica in self.replicas.values():
            replica.leader_epoch = -1
            replica.leader = -1
            replica.is_caught_up = False


class World:
    """Brokers, ZooKeeper and one controller that may be replaced at any moment."""

    def __init__(self, brokers: int = 3, **options: Any) -> None:
        self.zk = FakeZooKeeper()
        self.zk.on_change = self._on_change
        self.options = ControllerOptions(controller_id=CONTROLLER, **options)
        self.brokers = {b: FakeBroker(b) for b in range(brokers)}
        self.core = ControllerCore(self.options, new_topic_id=self._new_topic_id)
        self.queue: deque[events.ControllerEvent] = deque()
        self.sent: list[BrokerRequest] = []
        self.wires: dict[int, deque[BrokerRequest]] = {}
        self.answers: list[object] = []
        self.rebalance_scheduled = False
        self.is_active = False
        self._steps: Steps[None] | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        for broker_id in self.brokers:
            self._register(broker_id)

    def _new_topic_id(self) -> bytes:
        self.zk.zxid += 1
        return self.zk.zxid.to_bytes(16, "big")

    def _on_change(self, event: events.ControllerEvent) -> None:
        if self.is_active and event not in self.queue:
            self.queue.append(event)

    def _register(self, broker_id: int) -> None:
        self.zk.register(broker_id)
        self.brokers[broker_id].restart(self.zk.brokers[broker_id].broker_epoch)

    # Things that happen

    def elect(self) -> None:
        """Have a new controller take over, wherever the old one is; nothing is carried out yet."""
        self.zk.epoch += 1
        self.zk.epoch_zk_version += 1
        self.core = ControllerCore(self.options, new_topic_id=self._new_topic_id)
        self.queue.clear()
        self.wires.clear()
        self.is_active = True
        self.rebalance_scheduled = False
        self._begin(self.core.take_over(self.zk.epoch, self.zk.epoch_zk_version))

    def kill(self, broker_id: int) -> None:
        self.zk.unregister(broker_id)

    def start(self, broker_id: int) -> None:
        self._register(broker_id)

    def put(self, event: events.ControllerEvent) -> None:
        self.queue.append(event)

    def catch_up(self, partition: TopicPartition, *members: int) -> bool:
        """Have the leader ask for an ISR; return whether there is a leader to do so."""
        stored = self.zk.states[partition].state
        if stored.leader not in self.zk.brokers:
            return False
        replica = self.brokers[stored.leader].replicas.get(partition)
        if replica is None or replica.leader != stored.leader or replica.leader_epoch != stored.leader_epoch:
            return False
        item = events.AlterPartitionItem(stored.leader_epoch, members, stored.partition_epoch)
        epoch = self.zk.brokers[stored.leader].broker_epoch
        self.put(events.AlterPartition(stored.leader, epoch, 3, {partition: item}))
        return True

    # Time goes on

    @property
    def is_busy(self) -> bool:
        return self._steps is not None or bool(self.queue) or any(self.wires.values())

    def step(self) -> bool:
        """Carry out one instruction of the controller, or start its next event; False where there is nothing."""
        if self._steps is not None:
            self._advance()
            return True
        if self.queue and self.is_active:
            self._begin(self.core.process(self.queue.popleft()))
            return True
        return False

    def deliver(self, broker_id: int) -> bool:
        """Bring the next request to a broker and its answer to the queue; False where there is none."""
        wire = self.wires.get(broker_id)
        if not wire:
            return False
        answer = self.brokers[broker_id].handle(wire.popleft())
        if answer is not None:
            self.queue.append(answer)
        return True

    def settle(self, limit: int = 20_000) -> None:
        """Let everything happen that is under way."""
        for _ in range(limit):
            if not self.step() and sum(self.deliver(b) for b in list(self.wires)) == 0:
                return
        raise AssertionError("the controller never comes to rest")

    def run(self, event: events.ControllerEvent | None = None) -> Any:
        """Process an event and everything that follows; return its answer."""
        self.answers.clear()
        if event is not None:
            self.put(event)
        self.settle()
        return self.answers[0] if self.answers else None

    def _begin(self, steps: Steps[None]) -> None:
        self._steps, self._result, self._error = steps, None, None

    def _advance(self) -> None:
        assert self._steps is not None
        try:
            if self._error is not None:
                error, self._error = self._error, None
                instruction = self._steps.throw(error)
            else:
                instruction = self._steps.send(self._result)
        except StopIteration:
            self._steps = None
            return
        except ControllerMoved:
            self._steps, self.is_active = None, False
            return
        self._result = None
        try:
            self._result = self._carry_out(instruction)
        except CoordinationError as error:
            self._error = error

    def _carry_out(self, instruction: Instruction[Any]) -> Any:
        match instruction:
            case do.SendRequests(requests):
                self.sent.extend(requests)
                for request in requests:
                    if request.broker_id in self.wires:
                        self.wires[request.broker_id].append(request)
            case do.ConnectBrokers(brokers):
                self.wires.update({b.id: deque() for b in brokers})
            case do.DisconnectBrokers(broker_ids):
                for broker_id in broker_ids:
                    self.wires.pop(broker_id, None)
            case do.Answer(value):
                self.answers.append(value)
            case do.ScheduleLeaderRebalance():
                self.rebalance_scheduled = True
            case (
                do.GiveWay()
                | do.WatchCluster()
                | do.WatchBrokers()
                | do.UnwatchBrokers()
                | do.WatchTopics()
                | do.UnwatchTopics()
                | do.WatchPartitionState()
                | do.UnwatchPartitionState()
            ):
                return None
            case _:
                return self.zk.perform(self.core, instruction)
        return None

    # What one may look at

    def state(self, partition: str) -> str:
        """``leader=1 le=0 isr=12 pe=0`` as ZooKeeper has it."""
        return _text(self.zk.states[tp(partition)].state)

    def assignment(self, partition: str) -> str:
        """``1230+3-0``: replicas, adding, removing, as ZooKeeper has them."""
        name = tp(partition)
        return _assignment(self.zk.topics[name.topic].partitions[name.partition])

    def take_requests(self) -> list[str]:
        """Requests since the last call, in order: ``b1 LISR t-0(le=0 new)``."""
        texts = [_request_text(r) for r in self.sent]
        self.sent.clear()
        return texts

    def take_writes(self) -> list[str]:
        writes = list(self.zk.writes)
        self.zk.writes.clear()
        return writes


def _request_text(request: BrokerRequest) -> str:
    parts: list[str]
    match request:
        case LeaderAndIsrToBroker():
            name = "LISR"
            parts = [
                f"{p.topic_partition}(leader={p.state.leader} le={p.state.leader_epoch} {_assignment(p.assignment)}"
                f"{' new' if p.is_new else ''})"
                for p in request.partitions
            ]
        case UpdateMetadataToBroker():
            name = "UMD"
            parts = [f"{p.topic_partition}(leader={p.leader} le={p.leader_epoch})" for p in request.partitions]
        case StopReplicaToBroker():
            name = "STOP"
            parts = [
                f"{p.topic_partition}(le={p.leader_epoch}{' delete' if p.delete else ''})" for p in request.partitions
            ]
    return " ".join([f"b{request.broker_id}", name, *parts])
