"""Topics are created, grown and deleted. Some steps wait, retry or fail."""

import logging
import time

import pytest
from controller_world import World
from fake_zookeeper import tp

from engine.broker.controller import events
from engine.broker.controller.states import PartitionAndReplica, ReplicaState
from engine.common.errors import ErrorCode
from engine.common.model import ReplicaAssignment
from engine.common.turns import at_once
from engine.kafka.zk.topics import TopicIdReplicaAssignment


def world_of(brokers: int = 3, **options: object) -> World:
    world = World(brokers, **options)
    world.elect()
    world.settle()
    world.take_requests()
    world.take_writes()
    return world


def test_creation_as_recorded_from_kafka() -> None:
    """Scene main/03: guarded creates, then LeaderAndIsr to every replica, then UpdateMetadata to all."""
    world = world_of()
    world.zk.create_topic("t1", {0: (1, 2, 0), 1: (2, 0, 1), 2: (0, 1, 2)})
    world.settle()
    assert world.take_writes() == [
        "create t1-0 leader=1 le=0 isr=120 pe=0",
        "create t1-1 leader=2 le=0 isr=201 pe=0",
        "create t1-2 leader=0 le=0 isr=012 pe=0",
    ]
    all_partitions = [("t1-0", 1, "120"), ("t1-1", 2, "201"), ("t1-2", 0, "012")]
    lisr = " ".join(f"{name}(leader={leader} le=0 {replicas} new)" for name, leader, replicas in all_partitions)
    metadata = " ".join(f"{name}(leader={leader} le=0)" for name, leader, _ in all_partitions)
    assert world.take_requests() == [
        *(f"b{b} LISR {lisr}" for b in (1, 2, 0)),
        *(f"b{b} UMD {metadata}" for b in (0, 1, 2)),
    ]


def test_partitions_added() -> None:
    """Scene main/06."""
    world = world_of()
    world.zk.create_topic("t1", {0: (1, 2, 0)})
    world.settle()
    world.take_writes()
    world.zk.add_partitions("t1", {1: (2, 0, 1), 2: (0, 1, 2)})
    world.settle()
    assert world.take_writes() == [
        "create t1-1 leader=2 le=0 isr=201 pe=0",
        "create t1-2 leader=0 le=0 isr=012 pe=0",
    ]


def test_topics_without_an_id_get_one() -> None:
    world = World(2)
    world.zk.topics["old"] = TopicIdReplicaAssignment("old", None, {0: ReplicaAssignment((0, 1))}, 0)
    world.elect()
    world.settle()
    assert world.zk.topics["old"].topic_id is not None
    assert world.core.context.topic_ids["old"] == world.zk.topics["old"].topic_id
    assert world.state("old-0") == "leader=0 le=0 isr=01 pe=0"


def test_before_ibp_2_8_topics_stay_without_id() -> None:
    world = World(2, uses_topic_ids=False)
    world.zk.topics["old"] = TopicIdReplicaAssignment("old", None, {0: ReplicaAssignment((0, 1))}, 0)
    world.elect()
    world.settle()
    assert world.zk.topics["old"].topic_id is None
    assert world.core.context.topic_ids == {}


def test_a_topic_whose_znode_vanishes_is_forgotten_and_may_come_again() -> None:
    world = world_of()
    world.zk.create_topic("t", {0: (0, 1)})
    world.settle()
    del world.zk.topics["t"]
    del world.zk.states[tp("t-0")]
    world.run(events.TopicChange())
    assert world.core.context.partition_states == {}
    world.zk.create_topic("t", {0: (1, 2)})
    world.settle()
    assert world.state("t-0") == "leader=1 le=0 isr=12 pe=0"


# Deletion


def test_deletion_as_recorded_from_kafka() -> None:
    """Scene main/14: metadata, ISRs, stop, stop with delete, znodes; no LeaderAndIsr at all."""
    world = world_of()
    world.zk.create_topic("t", {0: (0, 1), 1: (1, 2)})
    world.settle()
    world.take_requests()
    world.take_writes()
    world.zk.mark_for_deletion("t")
    world.settle()
    assert world.take_writes() == [
        "state t-0 leader=-1 le=1 isr=1 pe=1",
        "state t-0 leader=-1 le=2 isr=1 pe=2",
        "state t-1 leader=-1 le=1 isr=2 pe=1",
        "state t-1 leader=-1 le=2 isr=2 pe=2",
        "delete topic t",
    ]
    assert world.take_requests() == [
        *(f"b{b} UMD t-0(leader=-2 le=0) t-1(leader=-2 le=0)" for b in (0, 1, 2)),
        "b0 STOP t-0(le=-2)",
        "b1 STOP t-0(le=-2) t-1(le=-2)",
        "b2 STOP t-1(le=-2)",
        "b0 STOP t-0(le=-2 delete)",
        "b1 STOP t-0(le=-2 delete) t-1(le=-2 delete)",
        "b2 STOP t-1(le=-2 delete)",
    ]
    assert world.zk.topics == {}
    assert world.zk.states == {}
    assert world.zk.deletions == {}
    assert all(not b.replicas and not b.metadata for b in world.brokers.values())


def test_deletion_waits_for_a_dead_broker_and_goes_on_when_it_returns() -> None:
    """Scenes main/28 and 29."""
    world = world_of()
    world.zk.create_topic("t", {0: (0, 2)})
    world.settle()
    world.kill(2)
    world.settle()
    world.zk.mark_for_deletion("t")
    world.settle()
    assert tp("t-0") not in world.brokers[0].replicas, "live replicas go at once"
    assert world.state("t-0") == "leader=-1 le=2 isr=0 pe=2"
    assert world.core.context.topics_ineligible_for_deletion == {"t"}
    world.take_requests()
    world.start(2)
    world.settle()
    requests = world.take_requests()
    assert requests[3] == "b2 LISR t-0(leader=-1 le=2 02)", "first it is told what it holds"
    assert "b2 STOP t-0(le=-2 delete)" in requests
    assert world.zk.topics == {}
    assert tp("t-0") not in world.brokers[2].replicas


def test_a_new_controller_finishes_a_deletion() -> None:
    world = world_of()
    world.zk.create_topic("t", {0: (0, 2)})
    world.settle()
    world.kill(2)
    world.settle()
    world.zk.mark_for_deletion("t")
    world.settle()
    world.elect()
    world.settle()
    assert "t" in world.zk.topics
    world.start(2)
    world.settle()
    assert world.zk.topics == {}


def test_what_is_left_of_a_deleted_topic_is_cleaned_up_by_the_next_controller() -> None:
    """The crash came between the topic's znode and the two others."""
    world = world_of()
    world.zk.topic_configs.add("t")
    world.zk.deletions["t"] = None
    world.elect()
    world.settle()
    assert world.zk.deletions == {}
    assert world.zk.topic_configs == set()


def test_a_replica_that_cannot_be_deleted_halts_the_topic_until_its_broker_restarts() -> None:
    world = world_of()
    world.zk.create_topic("t", {0: (0, 1)})
    world.settle()
    world.brokers[1].fails_to_delete = {tp("t-0")}
    world.zk.mark_for_deletion("t")
    world.settle()
    assert "t" in world.zk.topics
    assert world.core.context.replica_state(PartitionAndReplica(tp("t-0"), 0)) is ReplicaState.DELETION_SUCCESSFUL
    world.brokers[1].fails_to_delete.clear()
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    assert world.zk.topics == {}


def test_an_answer_from_before_a_restart_counts_for_nothing() -> None:
    world = world_of()
    world.zk.create_topic("t", {0: (0, 1)})
    world.settle()
    old_epoch = world.zk.brokers[1].broker_epoch
    world.kill(1)
    world.settle()
    world.zk.mark_for_deletion("t")
    world.settle()
    world.start(1)
    while world.step():  # The controller asks for the deletion again; the broker has not answered yet.
        pass
    stale = events.StopReplicaResponseReceived(
        1, old_epoch, ErrorCode.STALE_BROKER_EPOCH, {tp("t-0"): ErrorCode.STALE_BROKER_EPOCH}
    )
    world.run(stale)
    assert world.zk.topics == {}


def test_deletion_disabled_removes_the_mark(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(delete_topic_enable=False)
    world.zk.create_topic("t", {0: (0, 1)})
    world.settle()
    with caplog.at_level(logging.INFO, "kafka.controller.TopicDeletionManager"):
        world.zk.mark_for_deletion("t")
        world.settle()
    assert world.zk.deletions == {}
    assert "t" in world.zk.topics
    assert "[Topic Deletion Manager 0] Removing Set(t) since delete topic is disabled" in caplog.text


def test_a_mark_without_topic_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of()
    with caplog.at_level(logging.WARNING, "kafka.controller.KafkaController"):
        world.zk.mark_for_deletion("nosuch")
        world.settle()
    assert world.zk.deletions == {}
    assert "Ignoring request to delete non-existing topics nosuch" in caplog.text


def test_partitions_added_to_a_topic_being_deleted_are_taken_out_again() -> None:
    world = world_of()
    world.zk.create_topic("t", {0: (0, 2)})
    world.settle()
    world.kill(2)
    world.settle()
    world.zk.mark_for_deletion("t")
    world.settle()
    world.take_writes()
    world.zk.add_partitions("t", {1: (0, 1)})
    world.settle()
    assert world.take_writes() == ["topic t 0:02"], "written once, not forever"
    world.start(2)
    world.settle()
    assert world.zk.topics == {}


def test_a_deleted_partition_is_gone_from_everything_the_controller_counts() -> None:
    world = world_of()
    world.zk.create_topic("t", {0: (0, 1)})
    world.zk.create_topic("u", {0: (0, 1)})
    world.settle()
    world.zk.mark_for_deletion("t")
    world.settle()
    context = world.core.context
    assert list(context.topics) == ["u"]
    assert list(context.topic_ids) == ["u"] == list(context.topic_names.values())
    assert {r.topic_partition.topic for r in context.replica_states} == {"u"}
    assert at_once(context.census()).offline == 0
    assert at_once(context.census()).imbalanced == 0


def test_replicas_deleted_with_the_leader_dead_too() -> None:
    world = world_of()
    world.zk.create_topic("t", {0: (1, 2)})
    world.settle()
    for broker in (1, 2):
        world.kill(broker)
        world.settle()
    world.zk.mark_for_deletion("t")
    world.settle()
    assert "t" in world.zk.topics
    for broker in (2, 1):
        world.start(broker)
        world.settle()
    assert world.zk.topics == {}
    assert world.zk.states == {}


def test_a_deletion_whose_znodes_stay_is_tried_again_by_itself() -> None:
    world = world_of()
    for topic in ("t1", "t2"):
        world.zk.create_topic(topic, {0: (1, 2, 0)})
    world.settle()
    world.take_requests()
    world.zk.undeletable = {"t1"}
    for topic in ("t1", "t2"):
        world.zk.mark_for_deletion(topic)
    world.settle()
    assert list(world.zk.topics) == ["t1"]
    assert world.deletion_scheduled
    world.take_requests()
    world.zk.undeletable = set()
    world.run(events.TopicDeletionRequested())
    assert not world.zk.topics and not world.zk.deletions
    assert not [request for request in world.take_requests() if " STOP " in request]
    world.zk.create_topic("t1", {0: (1, 2, 0)})
    world.settle()
    assert world.zk.states[tp("t1-0")].state.leader == 1


def test_one_more_topic_costs_no_more_where_there_are_thousands() -> None:
    """CPU of this thread; the bound is ten times the need. A collection per topic takes ten times the bound."""
    world = world_of(1)
    for number in range(4_000):
        world.zk.topics[f"t{number}"] = TopicIdReplicaAssignment(
            f"t{number}", number.to_bytes(16, "big"), {0: ReplicaAssignment((0,))}, 0
        )
    world.put(events.TopicChange())
    world.settle(100_000)
    world.zk.create_topic("one-more", {0: (0,)})
    started_s = time.thread_time()
    world.settle()
    assert time.thread_time() - started_s < 0.05
    assert world.state("one-more-0")


def test_a_new_controller_deletes_nothing_of_a_topic_with_an_offline_replica() -> None:
    world = world_of()
    world.zk.create_topic("t", {0: (0, 2)})
    world.settle()
    world.kill(2)
    world.settle()
    world.is_active = False
    world.zk.mark_for_deletion("t")
    world.elect()
    world.take_requests()
    world.settle()
    assert not [request for request in world.take_requests() if "delete)" in request]
    assert tp("t-0") in world.brokers[0].replicas
    world.start(2)
    world.settle()
    assert world.zk.topics == {}
