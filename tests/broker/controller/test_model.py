"""Random events for the controller's core, which is lost between any two instructions.

Brokers die and return, log dirs fail, ISRs change, topics are created, grown and deleted (also all three at once, and
again under a deleted name). Replicas cannot be deleted, or are moved by the API and by the old znode. Moves are
cancelled, leaders are elected on demand, unclean elections are allowed and requested, requests arrive twice, and
brokers shut down cleanly. At any moment a new controller takes over. Then it gets quiet: all brokers live, all
followers catch up. What must hold then:

 1. every partition has a leader that lives, is a replica, and is in the ISR;
 2. the ISR is the whole assignment, nothing is being added or removed;
 3. nothing is left in ``/admin``, no notification, no state of a topic that is gone;
 4. the controller remembers exactly what ZooKeeper holds, every partition and replica is online;
 5. every broker hosts the replicas assigned to it, in the leader epoch ZooKeeper holds (files of a replica whose
    StopReplica was lost with its broker or its controller may be left);
 6. every broker's metadata is what ZooKeeper holds, and it knows who lives;
and always: leader epochs never fall, no epoch has two leaders, a leader is in its ISR (checked at each write).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
from controller_world import World
from soak import rounds

from engine.broker.controller import events
from engine.broker.controller.states import IllegalTransition, PartitionAndReplica, PartitionState, ReplicaState
from engine.common.model import TopicPartition

SEEDS = rounds("KLAMM_CONTROLLER_MODEL_SEEDS", 250)
ACTIONS = 60
BROKERS = 4


class Chaos:
    """One run: a world and a source of random events for it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        is_new = self.random.random() < 0.8
        self.world = World(BROKERS, is_alter_partition_enabled=is_new)
        self.world.elect()

    def run(self) -> None:
        actions = [getattr(self, name) for name in dir(self) if name.startswith("do_")]
        for _ in range(ACTIONS):
            self.random.choice(actions)()
            self.let_time_pass(self.random.choice((0, 1, 3, 10, 50)))
        self.quiet_down()

    def let_time_pass(self, steps: int) -> None:
        """Carry out some instructions and deliver some requests, in any order."""
        for _ in range(steps):
            if self.random.random() < 0.6:
                self.world.step()
            elif self.world.wires:
                self.world.deliver(self.random.choice(list(self.world.wires)))

    # What may happen

    def do_lose_controller(self) -> None:
        if self.random.random() < 0.5:
            self.world.elect()

    def do_kill(self) -> None:
        alive = list(self.world.zk.brokers)
        if len(alive) > 1:
            self.world.kill(self.random.choice(alive))

    def do_start(self) -> None:
        dead = [b for b in self.world.brokers if b not in self.world.zk.brokers]
        if dead:
            self.world.start(self.random.choice(dead))

    def do_bounce(self) -> None:
        broker = self.random.choice(list(self.world.zk.brokers))
        self.world.kill(broker)
        self.world.start(broker)

    def do_create_topic(self) -> None:
        if len(self.world.zk.topics) < 4:
            partitions = {p: self.some_replicas() for p in range(self.random.randint(1, 3))}
            free = [f"t{number}" for number in range(5) if f"t{number}" not in self.world.zk.topics]
            self.world.zk.create_topic(self.random.choice(free), partitions)

    def do_add_partitions(self) -> None:
        topic = self.some_topic()
        if topic is not None and len(partitions := self.world.zk.topics[topic].assignment) < 6:
            self.world.zk.add_partitions(topic, {len(partitions): self.some_replicas()})

    def do_delete_topic(self) -> None:
        topic = self.some_topic()
        if topic is not None and self.random.random() < 0.4:
            self.world.zk.mark_for_deletion(topic)

    def do_change_isr(self) -> None:
        for partition, stored in list(self.world.zk.states.items()):
            replicas = self.world.zk.topics[partition.topic].assignment[partition.partition].replicas
            live = [r for r in replicas if r in self.world.zk.brokers and self.random.random() < 0.8]
            if self.random.random() < 0.5 and stored.state.leader in live:
                self.change_isr(partition, tuple(live))

    def do_reassign(self) -> None:
        partition = self.some_partition()
        if partition is not None:
            self.world.put(events.AlterPartitionReassignments({partition: self.some_replicas()}))

    def do_cancel(self) -> None:
        partition = self.some_partition()
        if partition is not None:
            self.world.put(events.AlterPartitionReassignments({partition: None}))

    def do_reassign_by_znode(self) -> None:
        partition = self.some_partition()
        if partition is not None:
            target = self.random.choice((self.some_replicas(), (0, 0), (), (1, 99)))
            self.world.zk.ask_for_reassignments({partition: target, TopicPartition("nosuch", 0): (0,)})

    def do_elect_preferred(self) -> None:
        self.world.put(events.ElectLeaders(tuple(self.world.zk.states), events.ElectionType.PREFERRED))

    def do_elect_unclean(self) -> None:
        self.world.put(events.ElectLeaders(tuple(self.world.zk.states), events.ElectionType.UNCLEAN))

    def do_allow_unclean_elections(self) -> None:
        topic = self.some_topic()
        if topic is not None and topic not in self.world.zk.unclean:
            self.world.zk.unclean.add(topic)
            self.world.put(events.UncleanLeaderElectionEnable(topic))

    def do_forbid_unclean_elections(self) -> None:
        self.world.zk.unclean.clear()

    def do_elect_by_znode(self) -> None:
        self.world.zk.ask_for_preferred_election((*self.world.zk.states, TopicPartition("nosuch", 0)))

    def do_balance(self) -> None:
        self.world.put(events.AutoPreferredReplicaLeaderElection())

    def do_controlled_shutdown(self) -> None:
        broker = self.random.choice(list(self.world.zk.brokers))
        if len(self.world.zk.brokers) > 1:
            epoch = self.world.zk.brokers[broker].broker_epoch
            self.world.put(events.ControlledShutdown(broker, epoch))
            self.let_time_pass(40)
            self.world.kill(broker)

    def do_fail_log_dir(self) -> None:
        broker_id = self.random.choice(list(self.world.zk.brokers))
        hosted = list(self.world.brokers[broker_id].replicas)
        if hosted and self.random.random() < 0.5:
            self.world.brokers[broker_id].offline.add(self.random.choice(hosted))
            self.world.zk.log_dir_events[f"log_dir_event_{self.world.zk.zxid}"] = broker_id
            self.world.put(events.LogDirEventNotification())

    def do_fail_to_delete(self) -> None:
        broker = self.world.brokers[self.random.choice(list(self.world.zk.brokers))]
        if broker.replicas and self.random.random() < 0.5:
            broker.fails_to_delete.add(self.random.choice(list(broker.replicas)))

    def do_send_twice(self) -> None:
        """Answers get lost, and the controller sends the same request again."""
        for broker_id, wire in self.world.wires.items():
            if wire and self.random.random() < 0.5:
                self.world.brokers[broker_id].handle(wire[0])

    # Choices

    def some_topic(self) -> str | None:
        topics = list(self.world.zk.topics)
        return self.random.choice(topics) if topics else None

    def some_partition(self) -> TopicPartition | None:
        topic = self.some_topic()
        if topic is None:
            return None
        return TopicPartition(topic, self.random.choice(list(self.world.zk.topics[topic].assignment)))

    def some_replicas(self) -> tuple[int, ...]:
        return tuple(self.random.sample(range(BROKERS), self.random.randint(1, 3)))

    def change_isr(self, partition: TopicPartition, isr: tuple[int, ...]) -> None:
        """Change an ISR by AlterPartition, or by the leader's own write and a notification."""
        stored = self.world.zk.states[partition]
        if self.world.options.is_alter_partition_enabled:
            self.world.catch_up(partition, *isr)
            return
        replica = self.world.brokers[stored.state.leader].replicas.get(partition)
        if replica is None or replica.leader_epoch != stored.state.leader_epoch:
            return
        state = stored.state
        isr = tuple(r for r in isr if r in replica.replicas)
        changed = type(state)(state.leader, state.leader_epoch, isr, state.leader_recovery_state)
        self.world.zk.write_state(partition, changed, stored.controller_epoch)
        self.world.zk.isr_notifications[f"isr_change_{self.world.zk.zxid}"] = (partition,)
        self.world.zk.zxid += 1
        self.world.put(events.IsrChangeNotification())
        if partition in self.world.core.context.partitions_being_reassigned:
            self.world.put(events.PartitionReassignmentIsrChange(partition))

    # Quiet

    def quiet_down(self) -> None:
        self.world.settle()
        for broker_id, broker in self.world.brokers.items():
            if broker.offline or broker.fails_to_delete:
                self.world.kill(broker_id)
            if broker_id not in self.world.zk.brokers:
                self.world.start(broker_id)
        if not self.world.is_active:
            self.world.elect()
        for _ in range(12):
            self.world.settle()
            if not self.catch_everybody_up():
                return
        raise AssertionError("ISRs never become whole")

    def catch_everybody_up(self) -> bool:
        """Let each leader ask for the whole ISR; return whether that changed anything."""
        is_news = False
        for partition, stored in list(self.world.zk.states.items()):
            topic = self.world.zk.topics.get(partition.topic)
            assert topic is not None, f"state of {partition} outlives its topic"
            replicas = topic.assignment[partition.partition].replicas
            if set(stored.state.isr) != set(replicas) and stored.state.leader in self.world.zk.brokers:
                self.change_isr(partition, replicas)
                is_news = True
        return is_news


class IllegalMoves(logging.Handler):
    """Collects the moves that the state machines refused. The controller must never ask for one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], IllegalTransition):
            self.messages.append(str(record.exc_info[1]))


@pytest.fixture
def illegal_moves() -> Iterator[list[str]]:
    handler = IllegalMoves()
    logger = logging.getLogger("state.change.logger")
    logger.addHandler(handler)
    yield handler.messages
    logger.removeHandler(handler)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_the_cluster_is_whole_once_it_is_quiet(seed: int, illegal_moves: list[str]) -> None:
    chaos = Chaos(seed)
    chaos.run()
    assert illegal_moves == []
    check_partitions(chaos.world)
    check_nothing_is_left(chaos.world)
    check_memory(chaos.world)
    check_brokers(chaos.world)


def check_partitions(world: World) -> None:
    for topic, assignment in world.zk.topics.items():
        for partition, replicas in assignment.assignment.items():
            name = TopicPartition(topic, partition)
            assert name in world.zk.states, f"{name} has no state"
            state = world.zk.states[name].state
            assert state.leader in world.zk.brokers, f"{name} has no live leader: {state}"
            assert state.leader in replicas.replicas
            assert state.leader in state.isr
            assert set(state.isr) == set(replicas.replicas), f"{name}: ISR {state.isr} of {replicas.replicas}"
            assert not replicas.is_being_reassigned, f"{name} is still being reassigned: {replicas}"


def check_nothing_is_left(world: World) -> None:
    assert world.zk.deletions == {}
    assert world.zk.reassignments is None
    assert world.zk.preferred_election is None
    assert world.zk.isr_notifications == {}
    assert world.zk.log_dir_events == {}
    assert {p.topic for p in world.zk.states} <= set(world.zk.topics)
    assert world.zk.topic_configs == set(world.zk.topics)


def check_memory(world: World) -> None:
    context = world.core.context
    assert set(context.topics) == set(world.zk.topics)
    assert {t: dict(a.assignment) for t, a in world.zk.topics.items()} == context.assignments
    assert context.leadership == {p: s.read() for p, s in world.zk.states.items()}
    assert dict.fromkeys(world.zk.states, PartitionState.ONLINE) == context.partition_states
    replicas = context.replicas_of(context.all_partitions())
    assert context.replica_states == {PartitionAndReplica(*r): ReplicaState.ONLINE for r in replicas}
    assert not context.partitions_being_reassigned
    assert not context.topics_to_be_deleted
    assert not context.topics_ineligible_for_deletion
    assert context.live_brokers == world.zk.brokers
    assert not context.shutting_down_broker_ids


def check_brokers(world: World) -> None:
    for broker_id, broker in world.brokers.items():
        for partition, stored in world.zk.states.items():
            replicas = world.core.context.replicas(partition)
            if broker_id in replicas:
                hosted = broker.replicas.get(partition)
                assert hosted is not None, f"broker {broker_id} lacks {partition}"
                assert hosted.leader_epoch == stored.state.leader_epoch, f"broker {broker_id}, {partition}"
                assert hosted.leader == stored.state.leader
            expected = (stored.state.leader, stored.state.leader_epoch, replicas)
            assert broker.metadata[partition] == expected, f"broker {broker_id}, {partition}"
        assert broker.metadata.keys() == world.zk.states.keys()
        assert sorted(broker.live_brokers) == sorted(world.zk.brokers)
