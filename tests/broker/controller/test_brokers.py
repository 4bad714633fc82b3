"""Brokers come, go, come back within a session, shut down cleanly, lose log dirs, change their address."""

import logging
from dataclasses import replace

import pytest
from controller_world import World
from fake_zookeeper import broker_info, tp

from engine.broker.controller import events
from engine.broker.controller.events import ApiError, ControlledShutdown
from engine.broker.controller.instructions import ConnectBrokers, DisconnectBrokers
from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr
from engine.common.turns import at_once

P = tp("t-0")


def world_with_topic(brokers: int, partitions: dict[int, tuple[int, ...]], **options: object) -> World:
    world = World(brokers, **options)
    world.elect()
    world.zk.create_topic("t", partitions)
    world.settle()
    world.take_requests()
    world.take_writes()
    return world


def test_death_as_recorded_from_kafka() -> None:
    """Scene main/15: led partitions get new leaders, the other ISRs shrink, the stored state is sent once more."""
    world = world_with_topic(3, {0: (2, 0, 1), 1: (0, 1, 2)})
    world.kill(2)
    world.settle()
    assert world.take_writes() == ["state t-0 leader=0 le=1 isr=01 pe=1", "state t-1 leader=0 le=1 isr=01 pe=1"]
    assert world.take_requests() == [
        "b0 LISR t-0(leader=0 le=1 201)",
        "b1 LISR t-0(leader=0 le=1 201)",
        "b0 UMD t-0(leader=0 le=1)",
        "b1 UMD t-0(leader=0 le=1)",
        "b0 LISR t-0(leader=0 le=1 201) t-1(leader=0 le=1 012)",
        "b1 LISR t-0(leader=0 le=1 201) t-1(leader=0 le=1 012)",
        "b0 UMD t-0(leader=0 le=1) t-1(leader=0 le=1)",
        "b1 UMD t-0(leader=0 le=1) t-1(leader=0 le=1)",
    ]


def test_a_broker_without_partitions_is_still_told_about() -> None:
    world = world_with_topic(3, {0: (0, 1)})
    world.kill(2)
    world.settle()
    assert world.take_requests() == ["b0 UMD", "b1 UMD"]
    assert all(world.brokers[b].live_brokers == (0, 1) for b in (0, 1))


def test_return_as_recorded_from_kafka() -> None:
    """Scene main/16: the old brokers learn that it lives, it gets everything, then its partitions; no leader moves."""
    world = world_with_topic(3, {0: (2, 0), 1: (0, 1)})
    world.kill(2)
    world.settle()
    world.take_requests()
    world.take_writes()
    world.start(2)
    world.settle()
    assert world.take_writes() == []
    assert world.take_requests() == [
        "b0 UMD",
        "b1 UMD",
        "b2 UMD t-0(leader=0 le=1) t-1(leader=0 le=0)",
        "b2 LISR t-0(leader=0 le=1 20)",
        *(f"b{b} UMD t-0(leader=0 le=1)" for b in (0, 1, 2)),
    ]


def test_a_leaderless_partition_is_led_again_when_its_last_isr_member_returns() -> None:
    """Scene main/25."""
    world = world_with_topic(3, {0: (1, 2)})
    world.kill(2)
    world.settle()
    world.kill(1)
    world.settle()
    assert world.state("t-0") == "leader=-1 le=2 isr=1 pe=2"
    world.start(2)
    world.settle()
    assert world.zk.states[tp("t-0")].state.leader == -1, "2 is not in the ISR"
    world.start(1)
    world.settle()
    assert world.state("t-0") == "leader=1 le=3 isr=1 pe=3"


@pytest.mark.parametrize("is_alter_partition_enabled", [True, False])
def test_an_isr_that_its_leader_wrote_and_never_told_of_counts(is_alter_partition_enabled: bool) -> None:
    """A leader with an IBP before 2.7-IV2 dies before its notification; the controller may be upgraded."""
    world = world_with_topic(3, {0: (1, 0)}, is_alter_partition_enabled=is_alter_partition_enabled)
    alone = world.zk.write_state(P, LeaderAndIsr(1, 0, (1,)), 1)
    world.core.context.leadership[P] = world.zk.states[P].read()
    world.zk.write_state(P, LeaderAndIsr(1, 0, (1, 0), partition_epoch=alone.partition_epoch), 1)
    world.kill(1)
    world.settle()
    assert world.state("t-0") == "leader=0 le=1 isr=0 pe=3"


def test_a_bounce_within_the_session_is_a_death_and_a_return() -> None:
    world = world_with_topic(3, {0: (2, 0)})
    world.zk.unregister(2)
    world.start(2)
    world.settle()
    assert world.take_writes() == ["state t-0 leader=0 le=1 isr=0 pe=1"]
    assert world.brokers[2].replicas[tp("t-0")].leader == 0


def test_the_death_of_a_follower_is_told_by_what_its_leaders_are_told() -> None:
    world = world_with_topic(3, {0: (0, 2)})
    world.kill(2)
    world.settle()
    assert world.take_requests() == [
        "b0 LISR t-0(leader=0 le=1 02)",
        "b0 UMD t-0(leader=0 le=1)",
        "b1 UMD t-0(leader=0 le=1)",
    ]


def test_who_goes_or_restarts_is_disconnected_and_who_comes_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to a dead broker would keep its requests; those to an earlier life are not for the new one."""
    world = world_with_topic(3, {0: (0, 1)})
    seen: list[tuple[str, tuple[int, ...]]] = []
    carry_out = World._carry_out

    def noted(self: World, instruction: object) -> object:
        if isinstance(instruction, ConnectBrokers):
            seen.append(("connect", tuple(broker.id for broker in instruction.brokers)))
        elif isinstance(instruction, DisconnectBrokers):
            seen.append(("disconnect", instruction.broker_ids))
        return carry_out(self, instruction)  # type: ignore[arg-type]

    monkeypatch.setattr(World, "_carry_out", noted)

    def restart() -> None:
        world.zk.unregister(2)
        world.start(2)

    for change, expected in (
        (lambda: world.kill(2), [("disconnect", (2,))]),
        (lambda: world.start(2), [("connect", (2,))]),
        (restart, [("disconnect", (2,)), ("connect", (2,))]),
    ):
        change()
        world.settle()
        assert seen == expected
        seen.clear()


def test_a_broker_that_returns_resumes_the_reassignments_to_it_and_no_others() -> None:
    world = world_with_topic(5, {0: (0, 1)})
    world.run(events.AlterPartitionReassignments({P: (2, 3)}))
    for broker_id, is_resumed in ((4, False), (3, True)):
        world.kill(broker_id)
        world.settle()
        world.take_writes()
        world.start(broker_id)
        world.settle()
        assert bool(world.take_writes()) == is_resumed


def test_a_broker_that_returns_resumes_the_deletions_that_waited_for_it() -> None:
    world = world_with_topic(3, {0: (0, 2)})
    world.kill(2)
    world.settle()
    world.zk.mark_for_deletion("t")
    world.settle()
    assert "t" in world.zk.topics
    world.start(2)
    world.settle()
    assert "t" not in world.zk.topics
    assert P not in world.brokers[2].replicas


def test_new_endpoints_are_told_to_all() -> None:
    world = world_with_topic(2, {0: (0, 1)})
    old = world.zk.brokers[1]
    world.zk.brokers[1] = replace(old, endpoints=(replace(old.endpoints[0], port=19999),))
    world.run(events.BrokerModification(1))
    assert world.take_requests() == ["b0 UMD", "b1 UMD"]
    assert world.core.context.live_brokers[1].endpoints[0].port == 19999
    world.run(events.BrokerModification(1))
    assert world.take_requests() == []


@pytest.mark.parametrize("change", ["gone", "restarted", "unknown"])
def test_endpoints_of_a_broker_that_is_another_by_now_wait_for_the_change_of_brokers(change: str) -> None:
    """Its partitions have to be handled too: what is known of it stays until then."""
    world = world_with_topic(2, {0: (0, 1)})
    known = dict(world.core.context.live_brokers)
    modified = 1
    if change == "gone":
        del world.zk.brokers[1]
    elif change == "restarted":
        world.zk.brokers[1] = broker_info(1, world.zk.zxid + 1, rack="elsewhere")
    else:
        world.zk.brokers[modified := 7] = broker_info(7, world.zk.zxid + 1)
    world.run(events.BrokerModification(modified))
    assert world.core.context.live_brokers == known
    assert world.take_requests() == []


# Controlled shutdown


def shut_down(world: World, broker_id: int) -> object:
    return world.run(ControlledShutdown(broker_id, world.zk.brokers[broker_id].broker_epoch))


def test_controlled_shutdown_as_recorded_from_kafka() -> None:
    """Scene main/17: leaders move, followers stop, ISRs shrink; the answer has the remaining partitions."""
    world = world_with_topic(3, {0: (1, 0, 2), 1: (0, 1, 2)})
    assert shut_down(world, 1) == []
    assert world.take_writes() == ["state t-0 leader=0 le=1 isr=02 pe=1", "state t-1 leader=0 le=1 isr=02 pe=1"]
    assert [r for r in world.take_requests() if "UMD" not in r] == [
        "b1 LISR t-0(leader=0 le=1 102)",
        "b0 LISR t-0(leader=0 le=1 102)",
        "b2 LISR t-0(leader=0 le=1 102)",
        "b1 STOP t-1(le=0)",
        "b0 LISR t-1(leader=0 le=1 012)",
        "b2 LISR t-1(leader=0 le=1 012)",
        "b1 STOP t-1(le=0)",
    ]
    world.kill(1)
    world.settle()
    assert world.take_writes() == []
    assert world.core.context.shutting_down_broker_ids == set()


def test_partitions_nobody_else_can_lead_remain() -> None:
    world = world_with_topic(3, {0: (1, 0), 1: (1,)})
    world.catch_up(tp("t-0"), 1)
    world.run()
    assert shut_down(world, 1) == [tp("t-0")], "a partition with one replica is not waited for"


def test_who_comes_into_the_isr_while_the_leader_shuts_down_leads_when_it_asks_again() -> None:
    """This happens in a rolling restart that continues too early. Kafka refuses ISRs that name the leader then."""
    world = world_with_topic(3, {0: (1, 0, 2)})
    world.catch_up(tp("t-0"), 1)
    world.run()
    assert shut_down(world, 1) == [tp("t-0")]
    world.catch_up(tp("t-0"), 1, 0)
    world.run()
    assert world.zk.states[tp("t-0")].state.isr == (1, 0)
    assert shut_down(world, 1) == []
    state = world.zk.states[tp("t-0")].state
    assert (state.leader, state.isr) == (0, (0,))


def test_a_broker_that_shuts_down_is_asked_only_for_what_others_have_too() -> None:
    """Nothing of a partition of its own is stopped, and nothing that it never had."""
    world = world_with_topic(3, {0: (1,), 1: (0, 2), 2: (0, 1)})
    assert shut_down(world, 1) == []
    assert {r for r in world.take_requests() if "UMD" not in r} == {
        "b1 STOP t-2(le=0)",
        "b0 LISR t-2(leader=0 le=1 01)",
    }


def test_a_shutdown_from_before_a_restart_is_refused() -> None:
    world = world_with_topic(2, {0: (1, 0)})
    answer = world.run(ControlledShutdown(1, world.zk.brokers[1].broker_epoch - 1))
    assert isinstance(answer, ApiError)
    assert answer.code is ErrorCode.STALE_BROKER_EPOCH
    assert world.run(ControlledShutdown(1, -1)) == []


def test_a_shutdown_of_an_unknown_broker_is_refused() -> None:
    world = world_with_topic(2, {0: (1, 0)})
    assert world.run(ControlledShutdown(9, 1)) == ApiError(
        ErrorCode.BROKER_NOT_AVAILABLE, "Broker id 9 does not exist."
    )


def test_partitions_made_while_a_broker_shuts_down_do_not_use_it() -> None:
    world = world_with_topic(3, {0: (0, 2)})
    shut_down(world, 1)
    world.zk.create_topic("u", {0: (1, 2)})
    world.settle()
    assert world.state("u-0") == "leader=2 le=0 isr=2 pe=0"


# Log dirs


def test_a_failed_log_dir_as_recorded_from_kafka(caplog: pytest.LogCaptureFixture) -> None:
    """Scene main/38: the broker is asked what it has left. Others lead what it lacks, and it stays alive."""
    world = world_with_topic(3, {0: (2, 0), 1: (0, 2), 2: (2, 1)})
    world.brokers[2].offline = {tp("t-0"), tp("t-1")}
    world.zk.log_dir_events["log_dir_event_0000000000"] = 2
    with caplog.at_level(logging.INFO):
        world.run(events.LogDirEventNotification())
    assert world.zk.log_dir_events == {}
    assert world.take_writes() == ["state t-0 leader=0 le=1 isr=0 pe=1", "state t-1 leader=0 le=1 isr=0 pe=1"]
    requests = world.take_requests()
    assert requests[0] == "b2 LISR t-0(leader=2 le=0 20) t-1(leader=0 le=0 02) t-2(leader=2 le=0 21)"
    assert "b2 STOP t-0(le=1) t-1(le=0)" in requests
    assert "[Controller id=0] Mark replicas t-0,t-1 on broker 2 as offline (state.change.logger)" in [
        f"{r.getMessage()} ({r.name})" for r in caplog.records
    ]
    assert 2 in world.core.context.live_broker_ids
    assert at_once(world.core.context.census()).offline == 0


def test_a_mended_log_dir_counts_after_a_restart() -> None:
    world = world_with_topic(2, {0: (1, 0)})
    world.brokers[1].offline = {tp("t-0")}
    world.zk.log_dir_events["log_dir_event_0000000000"] = 1
    world.run(events.LogDirEventNotification())
    assert world.core.context.replicas_on_offline_dirs[1] == {tp("t-0")}
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    assert world.core.context.replicas_on_offline_dirs.get(1, set()) == set()


def test_a_replica_that_its_broker_serves_again_is_not_offline() -> None:
    world = world_with_topic(2, {0: (1, 0)})
    epoch = world.zk.brokers[1].broker_epoch
    for error, offline in ((ErrorCode.KAFKA_STORAGE_ERROR, {P}), (ErrorCode.NONE, set())):
        world.run(events.LeaderAndIsrResponseReceived(1, epoch, ErrorCode.NONE, {P: error}, "(text)"))
        assert world.core.context.replicas_on_offline_dirs[1] == offline


def test_after_a_log_dir_failed_nothing_is_asked_about_a_topic_that_is_being_deleted() -> None:
    world = world_with_topic(3, {0: (0, 2)})
    world.zk.create_topic("u", {0: (1, 2)})
    world.kill(0)
    world.zk.mark_for_deletion("t")
    world.settle()
    assert "t" in world.zk.topics, "it waits for 0"
    world.take_requests()
    world.zk.log_dir_events["log_dir_event_0000000000"] = 2
    world.run(events.LogDirEventNotification())
    assert [r for r in world.take_requests() if "UMD" not in r] == ["b2 LISR u-0(leader=1 le=0 12)"]


def test_a_partition_whose_only_log_dir_was_mended_is_led_again_after_the_restart() -> None:
    """What is known of a broker's log dirs ends with its life: nobody is asked before there is a leader."""
    world = world_with_topic(2, {0: (1,)})
    world.brokers[1].offline = {P}
    world.zk.log_dir_events["log_dir_event_0000000000"] = 1
    world.run(events.LogDirEventNotification())
    assert world.state("t-0") == "leader=-1 le=1 isr=1 pe=1"
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    assert world.state("t-0") == "leader=1 le=3 isr=1 pe=3"


def test_errors_of_brokers_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = world_with_topic(2, {0: (1, 0)})
    epoch = world.zk.brokers[1].broker_epoch
    with caplog.at_level(logging.ERROR, "state.change.logger"):
        world.run(events.LeaderAndIsrResponseReceived(1, epoch, ErrorCode.UNKNOWN_SERVER_ERROR, {}, "(text)"))
        world.run(events.UpdateMetadataResponseReceived(1, epoch, ErrorCode.STALE_BROKER_EPOCH, "(text)"))
    assert [r.getMessage() for r in caplog.records] == [
        "[Controller id=0] Received error UNKNOWN_SERVER_ERROR in LeaderAndIsr response (text) from broker 1",
        "[Controller id=0] Received error STALE_BROKER_EPOCH in UpdateMetadata response (text) from broker 1",
    ]
