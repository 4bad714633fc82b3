"""The board for rolling restarts: hand-made clusters, and each reason to wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_cluster import FakeCluster

from engine.admin.analysis.restart_order import RestartBoard, Verdict, restart_board
from engine.admin.analysis.tallies import Tallies
from engine.admin.cluster.rights import Right
from engine.admin.cluster.target import Side
from engine.admin.watch.frame import LinkState, Stage
from engine.common.acl import AclOperation, ResourceType
from engine.common.model import NO_CONTROLLER, NO_LEADER, TopicPartition


def _cluster(min_isr: int = 2, **more: int) -> FakeCluster:
    return FakeCluster(3, {"orders": 3}, min_isr=min_isr, **more)


def _board(cluster: FakeCluster, since_ms: int | None = None) -> RestartBoard:
    frame = cluster.frame()
    return restart_board(frame, Tallies().of_frame(frame), since_ms=since_ms)


def _verdicts(board: RestartBoard) -> dict[int, Verdict]:
    return {broker.broker: broker.verdict for broker in board.brokers}


def test_with_all_in_sync_each_broker_is_safe_and_the_controller_comes_last() -> None:
    board = _board(_cluster())
    assert _verdicts(board) == {1: Verdict.LAST, 2: Verdict.SAFE, 3: Verdict.SAFE}
    # Broker 2 registered before broker 3.
    assert board.next_broker == 2


def test_what_was_restarted_just_now_comes_after_the_others() -> None:
    cluster = _cluster()
    cluster.kill(2)
    cluster.advance()
    cluster.start(2)
    cluster.advance()
    board = _board(cluster)
    assert board.next_broker == 3
    assert {broker.broker: broker.registered_s for broker in board.brokers}[2] == 1.0


def test_in_a_round_of_restarts_the_controllers_turn_comes() -> None:
    """Without its beginning, the others came again and again, and the controller never."""
    cluster = _cluster()
    since_ms = cluster.frame().at_ms
    done = []
    while (broker := _board(cluster, since_ms).next_broker) is not None:
        done.append(broker)
        cluster.kill(broker)
        cluster.advance()
        assert _board(cluster, since_ms).next_broker is None
        cluster.start(broker)
        cluster.advance()
    assert sorted(done) == [1, 2, 3]
    assert set(_verdicts(_board(cluster, since_ms)).values()) == {Verdict.DONE}


def test_while_one_is_down_no_other_may_be_stopped() -> None:
    cluster = _cluster()
    cluster.kill(3)
    board = _board(cluster)
    assert _verdicts(board) == {1: Verdict.NO, 2: Verdict.NO, 3: Verdict.DOWN}
    assert board.next_broker is None
    first = board.brokers[0]
    assert first.would_stop == 3
    assert first.reasons == (
        "3 partitions would refuse writes with acks=all",
        "broker 3 is down",
        "3 partitions under-replicated",
    )


def test_a_partition_at_its_minimum_holds_up_those_that_it_needs() -> None:
    cluster = _cluster(min_isr=3)
    board = _board(cluster)
    assert set(_verdicts(board).values()) == {Verdict.NO}
    assert all(broker.would_stop == 3 and broker.would_go == 0 for broker in board.brokers)


def test_the_last_replica_in_sync_may_not_be_stopped() -> None:
    cluster = FakeCluster(3, {"orders": 3}, replication_factor=1, min_isr=1)
    board = _board(cluster)
    assert {broker.broker: broker.would_go for broker in board.brokers} == {1: 1, 2: 1, 3: 1}
    first = board.brokers[0]
    assert first.reasons == ("1 partition would have no leader (orders-0 has no other replica)",)
    assert (first.only_here, first.would_stop) == (1, 0), "a partition counts once"


def test_partitions_without_another_replica_are_told_apart() -> None:
    cluster = FakeCluster(3, {"orders": 6}, replication_factor=1, min_isr=1)
    assert _board(cluster).brokers[0].reasons == (
        "2 partitions would have no leader (they have no other replica, such as orders-0)",
    )
    cluster = FakeCluster(3, {"orders": 6}, replication_factor=1, min_isr=1)
    cluster.create_topic("pairs", 3, replication_factor=2)
    for number in range(3):
        for broker in (2, 3):
            cluster.shrink_isr(TopicPartition("pairs", number), broker)
    reason = _board(cluster).brokers[0].reasons[0]
    assert reason.endswith("would have no leader (2 of them have no other replica, such as orders-0)")


def test_partitions_with_other_replicas_are_told_from_those_without() -> None:
    cluster = FakeCluster(3, {"orders": 3}, min_isr=1)
    for follower in (2, 3):
        cluster.shrink_isr(TopicPartition("orders", 0), follower)
    first = _board(cluster).brokers[0]
    assert (first.reasons[0], first.only_here) == ("1 partition would have no leader", 0)


def test_a_replica_that_catches_up_is_waited_for() -> None:
    cluster = FakeCluster(4, {"orders": 4}, min_isr=1)
    partition = TopicPartition("orders", 0)
    cluster.shrink_isr(partition, 3)
    board = _board(cluster)
    assert set(_verdicts(board).values()) == {Verdict.WAIT}
    assert board.brokers[0].reasons == ("1 partition under-replicated (waiting for 3)",)


def test_a_broker_with_a_failed_log_dir_needs_the_restart_for_which_its_partitions_wait() -> None:
    cluster = FakeCluster(4, {"orders": 4}, min_isr=1)
    cluster.shrink_isr(TopicPartition("orders", 0), 3)
    cluster.fail_log_dir(3)
    board = _board(cluster)
    assert _verdicts(board) == {1: Verdict.WAIT, 2: Verdict.WAIT, 3: Verdict.NEEDED, 4: Verdict.WAIT}
    assert board.brokers[2].reasons == ("broker 3 has a failed log dir: repair it, then restart it",)
    assert board.next_broker is None
    assert _verdicts(_board(cluster, since_ms=0)) == {**dict.fromkeys((1, 2, 4), Verdict.DONE), 3: Verdict.NEEDED}
    cluster.shrink_isr(TopicPartition("orders", 1), 2)
    assert _verdicts(_board(cluster))[3] is Verdict.WAIT, "another one is missing too"


def test_a_failed_log_dir_is_mended_though_partitions_have_no_other_replica() -> None:
    """Nobody else can bring back what is on the failed log dir, and nothing improves while one waits."""
    cluster = FakeCluster(3, {"orders": 6}, replication_factor=1, min_isr=1)
    cluster.fail_log_dir(1)
    cluster.move_leader(TopicPartition("orders", 0), NO_LEADER)
    board = _board(cluster)
    assert _verdicts(board) == {1: Verdict.NEEDED, 2: Verdict.NO, 3: Verdict.NO}
    assert board.brokers[0].reasons[0] == "broker 1 has a failed log dir: repair it, then restart it"
    assert board.brokers[0].reasons[1].startswith("1 partition would have no leader (orders-")
    cluster.move_leader(TopicPartition("orders", 1), NO_LEADER)
    assert _verdicts(_board(cluster))[1] is Verdict.NO, "another broker has to bring the second one back"


def test_a_reassignment_is_waited_for() -> None:
    cluster = FakeCluster(4, {"orders": 1}, min_isr=1)
    cluster.reassign(TopicPartition("orders", 0), (4, 2, 3))
    assert set(_verdicts(_board(cluster)).values()) == {Verdict.WAIT}
    assert _board(cluster).brokers[1].reasons == ("1 partition being reassigned",)


def test_without_a_controller_and_with_a_silent_broker_nobody_is_stopped() -> None:
    cluster = _cluster()
    cluster.move_controller(NO_CONTROLLER)
    cluster.silence(3)
    board = _board(cluster)
    assert board.brokers[0].verdict is Verdict.WAIT
    assert board.brokers[0].reasons == ("there is no controller", "broker 3 does not answer")


def test_without_zookeeper_nobody_is_stopped_though_all_brokers_answer() -> None:
    """No leader would be elected for what the broker leads, and it could not register again."""
    cluster = _cluster()
    cluster.frame()
    cluster.set_link(Side.ZOOKEEPER, LinkState.LOST, "connection refused")
    board = _board(cluster)
    assert board.next_broker is None
    assert {(broker.verdict, broker.reasons) for broker in board.brokers} == {
        (Verdict.WAIT, ("ZooKeeper does not answer",))
    }
    cluster.set_link(Side.ZOOKEEPER, LinkState.UNUSED)
    assert _board(cluster).next_broker is not None, "nobody named ZooKeeper"


def test_old_data_and_an_unknown_minimum_call_nobody_safe() -> None:
    cluster = _cluster()
    cluster.frame()
    cluster.delay_stage(Stage.METADATA)
    cluster.advance(16_000)
    assert set(_verdicts(_board(cluster)).values()) == {Verdict.UNKNOWN}
    assert "16 s old" in _board(cluster).brokers[0].reasons[0]
    frame = replace(_cluster().frame(), min_isr={})
    board = restart_board(frame, Tallies().of_frame(frame))
    assert "min.insync.replicas of 3 partitions is not known" in board.brokers[0].reasons


@pytest.mark.parametrize("state", [LinkState.LOST, LinkState.DENIED])
def test_a_cluster_that_cannot_be_reached_calls_nobody_safe(state: LinkState) -> None:
    cluster = _cluster()
    cluster.frame()
    for side in Side:
        cluster.set_link(side, state, "gone")
    assert _board(cluster).next_broker is None
    assert set(_verdicts(_board(cluster)).values()) == {Verdict.UNKNOWN}


@pytest.mark.parametrize("state", [LinkState.LOST, LinkState.DENIED])
def test_nobody_is_safe_while_no_broker_answers(state: LinkState) -> None:
    """ZooKeeper alone does not say who is silent, nor which log dirs have failed."""
    cluster = _cluster()
    cluster.frame()
    cluster.set_link(Side.WIRE, state, "connection refused")
    board = _board(cluster)
    assert board.next_broker is None
    assert {broker.reasons for broker in board.brokers} == {("no broker answers",)}
    cluster.set_link(Side.WIRE, LinkState.UNUSED)
    assert _board(cluster).next_broker is not None, "nobody named brokers"


@pytest.mark.parametrize(
    ("denied", "reasons"),
    [
        ([Right(AclOperation.DESCRIBE, ResourceType.CLUSTER)], ("moves are hidden, and topics may be",)),
        (
            [Right(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in ("audit", "pay")],
            ("2 topics are hidden, such as audit",),
        ),
    ],
)
def test_nothing_is_safe_for_who_does_not_see_all(denied: list[Right], reasons: tuple[str, ...]) -> None:
    frame = replace(_cluster().frame(), denied=(*denied, Right(AclOperation.READ, ResourceType.GROUP, "g")))
    board = restart_board(frame, Tallies().of_frame(frame))
    assert {(broker.verdict, broker.reasons) for broker in board.brokers} == {(Verdict.UNKNOWN, reasons)}
    assert board.next_broker is None
