"""A cluster without network, clock and ZooKeeper, for tests of the controller's core.

``FakeZooKeeper`` carries out the core's instructions on plain dictionaries with real versions and the real epoch check;
``FakeBroker`` answers requests as a broker does; ``World`` drives one controller over them, one step at a time, and can
lose it between any two instructions. Every write is checked as it happens: epochs never fall, one epoch has one leader.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from fake_brokers import FakeBroker
from fake_zookeeper import FakeZooKeeper, assignment_text, state_text, tp

from engine.broker.controller import events
from engine.broker.controller import instructions as do
from engine.broker.controller.broker_requests import (
    BrokerRequest,
    LeaderAndIsrToBroker,
    StopReplicaToBroker,
    UpdateMetadataToBroker,
)
from engine.broker.controller.core import ControllerCore
from engine.broker.controller.instructions import (
    Instruction,
    Steps,
)
from engine.broker.controller.options import ControllerOptions
from engine.common.errors import CoordinationError
from engine.common.model import (
    TopicPartition,
)
from engine.kafka.zk.errors import ControllerMoved

CONTROLLER = 0


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
        self.deletion_scheduled = False
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
        """Let a new controller take over, wherever the old one is. Nothing is carried out yet."""
        self.zk.epoch += 1
        self.zk.epoch_zk_version += 1
        self.core = ControllerCore(self.options, new_topic_id=self._new_topic_id)
        self.queue.clear()
        self.wires.clear()
        self.is_active = True
        self.rebalance_scheduled = self.deletion_scheduled = False
        self._begin(self.core.take_over(self.zk.epoch, self.zk.epoch_zk_version))

    def kill(self, broker_id: int) -> None:
        self.zk.unregister(broker_id)

    def start(self, broker_id: int) -> None:
        self._register(broker_id)

    def put(self, event: events.ControllerEvent) -> None:
        self.queue.append(event)

    def catch_up(self, partition: TopicPartition, *members: int) -> bool:
        """Let the leader ask for an ISR; return whether there is a leader to do so."""
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

    def step(self) -> bool:
        """Carry out one instruction of the controller, or start its next event.

        Return False if there is nothing to do.
        """
        if self._steps is not None:
            self._advance()
            return True
        if self.queue and self.is_active:
            self._begin(self.core.process(self.queue.popleft()))
            return True
        return False

    def deliver(self, broker_id: int) -> bool:
        """Bring the next request to a broker and put its answer into the queue. Return False if there is none."""
        wire = self.wires.get(broker_id)
        if not wire:
            return False
        answer = self.brokers[broker_id].handle(wire.popleft())
        if answer is not None:
            self.queue.append(answer)
        return True

    def settle(self, limit: int = 20_000) -> None:
        """Let everything that is under way happen."""
        for _ in range(limit):
            if not self.step() and sum(self.deliver(b) for b in list(self.wires)) == 0:
                return
        raise AssertionError("the controller never comes to rest")

    def run(self, event: events.ControllerEvent | None = None) -> Any:
        """Process an event and everything that follows from it; return its answer."""
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
            case do.Continue(event):
                self.queue.append(event)
            case do.ScheduleLeaderRebalance():
                self.rebalance_scheduled = True
            case do.ScheduleTopicDeletion():
                self.deletion_scheduled = True
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

    # What a test may look at

    def state(self, partition: str) -> str:
        """``leader=1 le=0 isr=12 pe=0``, as ZooKeeper has it."""
        return state_text(self.zk.states[tp(partition)].state)

    def assignment(self, partition: str) -> str:
        """``1230+3-0``: replicas, adding, removing, as ZooKeeper has them."""
        name = tp(partition)
        return assignment_text(self.zk.topics[name.topic].assignment[name.partition])

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
                f"{p.topic_partition}(leader={p.state.leader} le={p.state.leader_epoch} {assignment_text(p.assignment)}"
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
