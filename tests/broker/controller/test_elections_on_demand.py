"""Requested elections (ElectLeaders, the old znode), the automatic balance, and producer ids."""

import logging

import pytest
from controller_world import World
from fake_zookeeper import tp

from engine.broker.controller import events
from engine.broker.controller.events import ApiError, ElectionType, ElectLeaders
from engine.common.errors import ErrorCode
from engine.common.turns import at_once
from engine.kafka.zk.cluster import ProducerIdBlock

NOT_NEEDED = ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


def displaced(partitions: dict[int, tuple[int, ...]], broker: int = 1) -> World:
    """Return a world whose partitions have lost a broker for a while, so that it no longer leads any of its own."""
    world = World(3)
    world.elect()
    world.zk.create_topic("t", partitions)
    world.settle()
    world.kill(broker)
    world.settle()
    world.start(broker)
    world.settle()
    for partition, replicas in partitions.items():
        state = world.zk.states[tp(f"t-{partition}")].state
        rest = tuple(r for r in replicas if r not in state.isr)
        world.catch_up(tp(f"t-{partition}"), *state.isr, *rest)
    world.run()
    world.take_requests()
    world.take_writes()
    return world


def test_preferred_election_as_recorded_from_kafka() -> None:
    """Scene main/10: epoch + 1, the ISR keeps its order."""
    world = displaced({0: (1, 2, 0)})
    assert world.state("t-0") == "leader=2 le=1 isr=201 pe=2"
    assert world.run(ElectLeaders((tp("t-0"),), ElectionType.PREFERRED)) == {tp("t-0"): 1}
    assert world.take_writes() == ["state t-0 leader=1 le=2 isr=201 pe=3"]
    assert world.take_requests() == [
        *(f"b{b} LISR t-0(leader=1 le=2 120)" for b in (1, 2, 0)),
        *(f"b{b} UMD t-0(leader=1 le=2)" for b in (0, 1, 2)),
    ]


def test_what_elect_leaders_answers() -> None:
    world = displaced({0: (1, 2), 1: (2, 0), 2: (1, 0)})
    world.catch_up(tp("t-2"), 0)
    world.run()
    world.core.context.topics_to_be_deleted["doomed"] = None
    world.core.context.update_assignment(tp("doomed-0"), world.core.context.full_assignment(tp("t-0")))
    partitions = tuple(map(tp, ("t-0", "t-1", "t-2", "no-0", "doomed-0")))
    assert world.run(ElectLeaders(partitions, ElectionType.PREFERRED)) == {
        tp("t-0"): 1,
        tp("t-1"): NOT_NEEDED,
        tp("t-2"): ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            "Failed to elect leader for partition t-2 under strategy PreferredReplicaPartitionLeaderElectionStrategy",
        ),
        tp("no-0"): ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."),
        tp("doomed-0"): ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted"),
    }


def test_an_unclean_election_is_a_persons_decision() -> None:
    """Scene main/26."""
    world = World(3)
    world.elect()
    world.zk.create_topic("t", {0: (1, 2), 1: (0, 2), 2: (1,)})
    world.settle()
    world.catch_up(tp("t-0"), 1)
    world.run()
    world.kill(1)
    world.settle()
    assert world.state("t-0") == "leader=-1 le=1 isr=1 pe=2"
    partitions = tuple(map(tp, ("t-0", "t-1", "t-2")))
    assert world.run(ElectLeaders(partitions, ElectionType.UNCLEAN)) == {
        tp("t-0"): 2,
        tp("t-1"): NOT_NEEDED,
        tp("t-2"): ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Failed to elect leader for partition t-2 under strategy OfflinePartitionLeaderElectionStrategy(true)",
        ),
    }
    assert world.state("t-0") == "leader=2 le=2 isr=2 pe=3 recovering"


@pytest.mark.parametrize("topic", [None, "t"])
def test_switching_unclean_election_on_elects_at_once(topic: str | None) -> None:
    world = World(2)
    world.elect()
    world.zk.create_topic("t", {0: (1, 0)})
    world.settle()
    world.catch_up(tp("t-0"), 1)
    world.run()
    world.kill(1)
    world.settle()
    assert world.zk.states[tp("t-0")].state.leader == -1
    world.zk.unclean.add("t")
    world.run(events.UncleanLeaderElectionEnable(topic))
    assert world.zk.states[tp("t-0")].state.leader == 0


def test_the_znode_is_carried_out_and_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """Scene main/11: one partition to elect, one already right, one unknown."""
    world = displaced({0: (1, 2), 1: (2, 0)})
    with caplog.at_level(logging.INFO, "kafka.controller.KafkaController"):
        world.zk.ask_for_preferred_election((tp("t-0"), tp("t-1"), tp("nosuch-0")))
        world.settle()
    assert world.take_writes() == ["state t-0 leader=1 le=2 isr=21 pe=3", "delete preferred election"]
    messages = [r.getMessage() for r in caplog.records]
    assert (
        "[Controller id=0] Skipping replica leader election (PREFERRED) for partition nosuch-0 by ZkTriggered "
        "since it doesn't exist." in messages
    )
    assert "[Controller id=0] Partition t-0 completed preferred replica leader election. New leader is 1" in messages


def test_a_znode_that_is_no_json_is_deleted() -> None:
    world = displaced({0: (1, 2)})
    world.zk.malformed = "no JSON"
    world.zk.ask_for_preferred_election(())
    world.settle()
    assert world.zk.preferred_election is None


def test_a_new_controller_finishes_the_znode() -> None:
    world = displaced({0: (1, 2)})
    world.is_active = False
    world.zk.ask_for_preferred_election((tp("t-0"), tp("nosuch-0")))
    world.elect()
    world.settle()
    assert world.zk.states[tp("t-0")].state.leader == 1
    assert world.zk.preferred_election is None


# Automatic


def test_leaders_go_back_when_too_many_are_away() -> None:
    world = displaced({0: (1, 2), 1: (1, 0), 2: (0, 1)})
    world.rebalance_scheduled = False
    assert at_once(world.core.context.census()).imbalanced == 2
    world.run(events.AutoPreferredReplicaLeaderElection())
    assert [world.zk.states[tp(f"t-{p}")].state.leader for p in range(3)] == [1, 1, 0]
    assert world.rebalance_scheduled, "the next look is scheduled"
    assert at_once(world.core.context.census()).imbalanced == 0


def test_few_displaced_leaders_are_left_alone() -> None:
    world = displaced(dict.fromkeys(range(10), (1, 2)))
    elected = tuple(tp(f"t-{p}") for p in range(9))
    world.run(ElectLeaders(elected, ElectionType.PREFERRED))
    world.take_writes()
    world.run(events.AutoPreferredReplicaLeaderElection())
    assert world.take_writes() == [], "one of ten is 10 percent, not more"


def test_partitions_on_the_move_are_left_alone() -> None:
    world = displaced({0: (1, 2)})
    world.run(events.AlterPartitionReassignments({tp("t-0"): (1, 0)}))
    world.take_writes()
    world.run(events.AutoPreferredReplicaLeaderElection())
    assert world.take_writes() == []


def test_an_election_on_request_during_a_move_is_done_and_the_move_goes_on() -> None:
    world = displaced({0: (1, 2)})
    world.run(events.AlterPartitionReassignments({tp("t-0"): (1, 0)}))
    assert world.run(ElectLeaders((tp("t-0"),), ElectionType.PREFERRED)) == {tp("t-0"): 1}
    assert world.zk.states[tp("t-0")].state.leader == 1
    assert world.assignment("t-0") == "102+0-2"
    world.catch_up(tp("t-0"), 1, 2, 0)
    world.run()
    assert world.assignment("t-0") == "10"
    assert sorted(world.zk.states[tp("t-0")].state.isr) == [0, 1]


def test_the_znode_may_name_what_moves_is_gone_or_is_named_twice() -> None:
    world = displaced({0: (1, 2), 1: (1, 2)})
    world.run(events.AlterPartitionReassignments({tp("t-0"): (1, 0)}))
    world.zk.ask_for_preferred_election((tp("t-0"), tp("gone-0"), tp("t-1"), tp("t-1"), tp("t-9")))
    world.run()
    assert [world.zk.states[tp(f"t-{p}")].state.leader for p in (0, 1)] == [1, 1]
    assert world.zk.preferred_election is None


# Producer ids


def test_blocks_of_producer_ids() -> None:
    world = World(2)
    world.elect()
    world.settle()
    epoch = world.zk.brokers[1].broker_epoch
    assert world.run(events.AllocateProducerIds(1, epoch)) == ProducerIdBlock(1, 0)
    assert world.run(events.AllocateProducerIds(1, epoch)) == ProducerIdBlock(1, 1000)
    assert world.run(events.AllocateProducerIds(1, epoch - 1)) is ErrorCode.STALE_BROKER_EPOCH
    assert world.run(events.AllocateProducerIds(7, epoch)) is ErrorCode.BROKER_ID_NOT_REGISTERED
