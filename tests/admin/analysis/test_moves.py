"""Reassignments: bytes, rates and times of made-up copies, stuck ones, and the effect of a throttle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_cluster import FakeCluster

from engine.admin.analysis.history import History
from engine.admin.analysis.moves import CopyState, MovesBoard, moves_board
from engine.admin.analysis.throttles import ThrottleAdvice, ThrottleVerdict, throttle_advice, throttle_texts
from engine.admin.watch.frame import Frame, Stage
from engine.common.model import TopicPartition
from engine.common.quantities import span_text
from tui.pages.page import View
from tui.pages.reassignments import PAGE, why_of
from tui.state.board import Board
from tui.state.location import Location

ORDERS = TopicPartition("orders", 0)


def _cluster(**more: int) -> FakeCluster:
    """One partition of 2 GB with replicas 1, 2, 3; a copy gets 50 MB a second, producers write 0.1 MB a second."""
    return FakeCluster(5, {"orders": 1}, **more)


def _after(cluster: FakeCluster, seconds: int, history: History) -> tuple[Frame, MovesBoard]:
    for _ in range(seconds):
        cluster.advance()
        frame = cluster.frame()
        assert history.take(frame)
    return frame, moves_board(frame, history)


def test_bytes_rate_and_time_left_of_a_copy() -> None:
    cluster, history = _cluster(), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    _, board = _after(cluster, 31, history)
    (copy,) = board.copies
    assert (copy.broker, copy.source, copy.state) == (4, 1, CopyState.COPYING)
    # Sizes are read every ten seconds, the last time at 31 s.
    assert copy.copied_bytes == 1_550_000_000 and copy.total_bytes == 2_003_100_000
    assert copy.rate == pytest.approx(50e6) and copy.inflow == pytest.approx(100e3)
    assert copy.left_s == pytest.approx(453.1e6 / 49.9e6)
    assert copy.left_low_s == pytest.approx(copy.left_s) and copy.left_high_s == pytest.approx(copy.left_s)
    assert (board.partitions, board.copied_bytes, board.left_s) == (1, copy.copied_bytes, copy.left_s)


def test_too_few_readings_say_nothing_of_the_rate() -> None:
    cluster, history = _cluster(), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    _, board = _after(cluster, 11, history)
    assert board.copies[0].state is CopyState.MEASURING and board.left_s is None


def test_a_copy_that_does_not_grow_stands_still_and_comes_first() -> None:
    cluster, history = FakeCluster(5, {"clicks": 1, "orders": 1}, partition_bytes=9_000_000_000), History()
    cluster.reassign(TopicPartition("clicks", 0), (1, 2, 4))
    replicas = cluster.frame().cluster.partition(ORDERS).replicas  # type: ignore[union-attr]
    target = next(b for b in (1, 2, 3, 4, 5) if b not in replicas)
    cluster.reassign(ORDERS, (*replicas[:2], target), is_stalled=True)
    _, board = _after(cluster, 70, history)
    stalled, copying = board.copies
    assert stalled.name == ORDERS and stalled.state is CopyState.STALLED and board.stalled_count == 1
    assert stalled.stalled_s is not None and stalled.stalled_s >= 30
    assert stalled.reason == f"no byte seen for {span_text(int(stalled.stalled_s or 0))}"
    assert copying.state is CopyState.COPYING and board.left_s is None


def test_a_copy_waits_for_its_turn_and_the_time_left_is_that_of_both() -> None:
    later = TopicPartition("orders", 5)
    cluster, history = FakeCluster(5, {"orders": 6}, partition_bytes=3_000_000_000, rate=0), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    cluster.reassign(later, (1, 5, 4), is_stalled=True)
    _, board = _after(cluster, 41, history)
    waiting, copying = board.copies
    assert (waiting.name, waiting.source, waiting.state) == (later, copying.source, CopyState.WAITING)
    assert board.stalled_count == 0
    assert copying.left_s == pytest.approx(950e6 / 50e6)
    assert board.left_s == waiting.left_s == pytest.approx(3950e6 / 50e6)
    _, board = _after(cluster, 20, history)
    cluster._stalled.clear()
    _, board = _after(cluster, 30, history)
    (copy,) = board.copies
    assert copy.copied_bytes is not None and 0 < copy.copied_bytes < 1_600_000_000
    assert copy.rate == pytest.approx(50e6), "the time before its first byte does not count"


def test_a_copy_that_waits_for_minutes_is_pointed_out_without_a_guess() -> None:
    """Whether it is stuck or has its turn later is not known from outside."""
    cluster, history = FakeCluster(5, {"orders": 6}, partition_bytes=30_000_000_000, rate=0), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    cluster.reassign(TopicPartition("orders", 5), (1, 5, 4), is_stalled=True)
    _, board = _after(cluster, 290, history)
    waiting, copying = board.copies
    assert (waiting.state, copying.state) == (CopyState.WAITING, CopyState.COPYING)
    assert not waiting.waits_long and not copying.waits_long
    _, board = _after(cluster, 60, history)
    waiting = board.copies[0]
    assert (waiting.state, waiting.waits_long, waiting.is_at_least) == (CopyState.WAITING, True, False)
    assert why_of(waiting) == "waiting 5m 49s, nothing copied: others are copied from broker 1 first"
    reason = why_of(replace(waiting, stalled_s=1200.0, is_at_least=True))
    assert reason.startswith("waiting at least 20m, nothing copied")


def test_a_copy_that_never_begins_stands_still_when_no_other_is_copied() -> None:
    cluster, history = FakeCluster(5, {"orders": 6}, rate=0), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    cluster.reassign(TopicPartition("orders", 5), (1, 5, 4), is_stalled=True)
    _, board = _after(cluster, 80, history)
    assert [(copy.name.partition, copy.state) for copy in board.copies] == [(5, CopyState.STALLED)]


def test_a_copy_to_a_dead_broker_says_so_at_once() -> None:
    cluster, history = _cluster(), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    cluster.kill(4)
    _, board = _after(cluster, 1, history)
    assert board.copies[0].state is CopyState.STALLED
    assert board.copies[0].reason == "broker 4, which gets it, is down" and board.copies[0].is_blocked


def test_a_failed_log_dir_holds_up_what_has_no_log_in_another() -> None:
    cluster, history = _cluster(partition_bytes=9_000_000_000), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    frame, _ = _after(cluster, 31, history)
    (works, *_) = [log_dir for log_dir in frame.log_dirs if log_dir.broker == 4]
    beside = replace(frame, log_dirs=(*frame.log_dirs, replace(works, log_dir="/other", error="KAFKA_STORAGE_ERROR")))
    (copy,) = moves_board(beside, history).copies
    assert (copy.state, copy.is_blocked) == (CopyState.COPYING, False)
    cluster.fail_log_dir(4)
    _, board = _after(cluster, 11, history)
    assert (board.copies[0].state, board.copies[0].is_blocked) == (CopyState.STALLED, True)
    assert board.copies[0].reason.startswith("a log dir of broker 4 has failed: ")


def test_less_copied_than_produced_never_ends() -> None:
    cluster, history = _cluster(rate=100_000, copy_rate=40_000_000), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    _, board = _after(cluster, 30, history)
    assert board.copies[0].state is CopyState.FALLING_BEHIND
    assert board.copies[0].left_s is None and board.left_s is None


def test_a_copy_in_the_isr_is_done_and_counts_whole() -> None:
    cluster, history = _cluster(), History()
    _, board = _after(cluster, 1, history)
    assert board.copies == () and board.partitions == 0 and board.left_s is None
    cluster.reassign(ORDERS, (1, 2, 4))
    cluster.move_leader(ORDERS, 1)
    _, board = _after(cluster, 60, history)
    assert board.partitions == 0


def _throttled(throttle: int, **more: int) -> tuple[Frame, MovesBoard]:
    cluster, history = _cluster(**more), History()
    _limit(cluster, throttle)
    cluster.reassign(ORDERS, (1, 2, 4))
    return _after(cluster, 31, history)


def _limit(cluster: FakeCluster, throttle: int) -> None:
    for broker in (1, 4):
        cluster.set_broker_config(broker, "leader.replication.throttled.rate", str(throttle))
        cluster.set_broker_config(broker, "follower.replication.throttled.rate", str(throttle))
    cluster.set_topic_config("orders", "leader.replication.throttled.replicas", "0:1")
    cluster.set_topic_config("orders", "follower.replication.throttled.replicas", f"{throttle}:2147483647,0:4")


def test_a_throttle_below_what_is_produced_can_never_finish() -> None:
    leader, follower = throttle_advice(*_throttled(5_000_000, rate=10_000, copy_rate=5_000_000))
    assert (leader.broker, leader.is_leader, follower.broker, follower.is_leader) == (1, True, 4, False)
    assert leader.verdict is follower.verdict is ThrottleVerdict.NEVER_ENDS
    assert follower.left_s is None and follower.inflow == pytest.approx(10e6)
    assert follower.suggested_rate is not None and follower.suggested_rate > 10_000_000


def test_a_throttle_that_all_goes_through_is_the_limit() -> None:
    _, follower = throttle_advice(*_throttled(50_000_000))
    assert follower.verdict is ThrottleVerdict.IS_THE_LIMIT
    # It ends within the hour, so there is nothing to suggest.
    assert follower.suggested_rate is None
    assert follower.left_s == pytest.approx(453.1e6 / 49.9e6)


def test_a_throttle_far_above_the_rate_is_not_what_holds_it_up() -> None:
    advice = throttle_advice(*_throttled(500_000_000))
    assert {advised.verdict for advised in advice} == {ThrottleVerdict.NOT_THE_LIMIT}


def test_nothing_is_said_of_a_throttle_while_a_copy_through_it_is_still_measured() -> None:
    frame, moves = _throttled(500_000_000)
    assert frame.cluster is not None
    everything = dict.fromkeys(
        ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"), "*"
    )
    topics = tuple(replace(topic, configs=everything) for topic in frame.cluster.topics)
    frame = replace(frame, cluster=replace(frame.cluster, topics=topics))
    (copy,) = moves.copies
    assert {advice.verdict for advice in throttle_advice(frame, moves)} == {ThrottleVerdict.NOT_THE_LIMIT}
    fresh = replace(copy, name=TopicPartition("orders", 1), state=CopyState.MEASURING, rate=None, steady_rate=None)
    advice = throttle_advice(frame, replace(moves, copies=(copy, fresh)))
    assert {advised.verdict for advised in advice} == {ThrottleVerdict.UNKNOWN}


def test_a_copy_that_waits_for_a_dead_broker_does_not_count_for_a_throttle() -> None:
    """No rate lets it end: what remains of it, and what is produced to it, are no reason to raise the throttle."""
    frame, moves = _throttled(50_000_000)
    (copy,) = moves.copies
    blocked = replace(copy, inflow=90e6, total_bytes=9_000_000_000_000, rate=None, steady_rate=None, is_blocked=True)
    beside = replace(moves, copies=(copy, blocked))
    assert throttle_advice(frame, beside) == throttle_advice(frame, moves)
    alone = throttle_advice(frame, replace(moves, copies=(blocked,)))
    assert {advised.verdict for advised in alone} == {ThrottleVerdict.NOT_THE_LIMIT}


def test_replicas_that_no_topic_lists_are_not_throttled() -> None:
    cluster, history = _cluster(), History()
    cluster.set_broker_config(4, "follower.replication.throttled.rate", "1000")
    cluster.set_topic_config("orders", "follower.replication.throttled.replicas", "1:4,0:3")
    cluster.reassign(ORDERS, (1, 2, 4))
    assert throttle_advice(*_after(cluster, 30, history)) == []
    cluster.set_topic_config("orders", "follower.replication.throttled.replicas", "*")
    assert len(throttle_advice(*_after(cluster, 1, history))) == 1


def test_the_rate_is_that_of_the_last_seconds() -> None:
    cluster, history = _cluster(copy_rate=1_000_000), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    _after(cluster, 61, history)
    cluster.copy_rate = 8_000_000
    _, board = _after(cluster, 20, history)
    assert board.copies[0].rate == pytest.approx(8e6)


def test_rates_are_not_averaged_across_a_change_of_the_throttle() -> None:
    cluster, history = _cluster(copy_rate=1_000_000), History()
    _limit(cluster, 20_000_000)
    cluster.reassign(ORDERS, (1, 2, 4))
    assert {advice.verdict for advice in throttle_advice(*_after(cluster, 41, history))} == {
        ThrottleVerdict.NOT_THE_LIMIT
    }
    cluster.set_broker_config(1, "leader.replication.throttled.rate", "40000000")
    frame, board = _after(cluster, 10, history)
    assert board.copies[0].state is CopyState.MEASURING and board.copies[0].rate is None
    assert {advice.verdict for advice in throttle_advice(frame, board)} == {ThrottleVerdict.UNKNOWN}


def test_a_throttle_is_not_cleared_while_other_copies_have_just_ended() -> None:
    """They shared it: the rest was slow for that, and is faster from now on."""
    cluster, history = FakeCluster(5, {"orders": 6}, partition_bytes=9_000_000_000, copy_rate=1_000_000), History()
    _limit(cluster, 20_000_000)
    cluster.reassign(ORDERS, (1, 2, 4))
    cluster.reassign(TopicPartition("orders", 5), (1, 5, 4))
    assert ThrottleVerdict.NOT_THE_LIMIT in {
        advice.verdict for advice in throttle_advice(*_after(cluster, 41, history))
    }
    cluster.cancel(TopicPartition("orders", 5))
    assert {advice.verdict for advice in throttle_advice(*_after(cluster, 10, history))} == {ThrottleVerdict.UNKNOWN}


def test_a_broker_that_uses_half_of_its_throttle_may_still_be_held_up_by_it() -> None:
    """Measured: two copies used 45 % of it, and were faster at once when it was raised."""
    assert {advice.verdict for advice in throttle_advice(*_throttled(110_000_000))} == {ThrottleVerdict.UNKNOWN}


def test_a_copy_that_waits_after_its_first_bytes_is_not_falling_behind() -> None:
    later = TopicPartition("orders", 5)
    cluster, history = FakeCluster(5, {"orders": 6}, partition_bytes=9_000_000_000, rate=0), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    cluster.reassign(later, (1, 5, 4))
    _after(cluster, 11, history)
    cluster._stalled.add(later)
    for seconds in (30, 30):
        _, board = _after(cluster, seconds, history)
        waiting, copying = board.copies
        assert (waiting.name, waiting.state, copying.state) == (later, CopyState.WAITING, CopyState.COPYING)
        assert board.left_s == waiting.left_s and board.left_s is not None
    assert why_of(waiting).startswith("waiting 1m") and "nothing copied" not in why_of(waiting)


def test_a_copy_waits_for_those_from_the_same_throttled_leader() -> None:
    later = TopicPartition("orders", 5)
    cluster, history = FakeCluster(5, {"orders": 6}, partition_bytes=9_000_000_000, rate=0), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    cluster.reassign(later, (1, 5, 2), is_stalled=True)
    _, board = _after(cluster, 41, history)
    assert [copy.state for copy in board.copies] == [CopyState.STALLED, CopyState.COPYING]
    cluster.set_broker_config(1, "leader.replication.throttled.rate", "50000000")
    cluster.set_topic_config("orders", "leader.replication.throttled.replicas", "*")
    _, board = _after(cluster, 31, history)
    assert [copy.state for copy in board.copies] == [CopyState.WAITING, CopyState.COPYING]
    assert board.left_s is not None


def test_a_copy_without_a_new_byte_is_not_falling_behind_if_nobody_writes() -> None:
    cluster, history = _cluster(rate=0), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    _after(cluster, 11, history)
    cluster._stalled.add(ORDERS)
    _, board = _after(cluster, 20, history)
    assert board.copies[0].state is CopyState.MEASURING and board.copies[0].left_s is None


def test_a_pause_of_a_copy_is_not_falling_behind() -> None:
    """It was faster than the producers over the last minute."""
    cluster, history = _cluster(rate=100), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    _after(cluster, 21, history)
    cluster._stalled.add(ORDERS)
    _, board = _after(cluster, 20, history)
    assert board.copies[0].state is CopyState.MEASURING


def test_a_copy_that_was_never_read_is_measured_and_not_empty() -> None:
    cluster, history = _cluster(), History()
    _after(cluster, 1, history)
    cluster.delay_stage(Stage.LOG_DIRS)
    cluster.reassign(ORDERS, (1, 2, 4))
    frame, board = _after(cluster, 5, history)
    (copy,) = board.copies
    assert (copy.state, copy.copied_bytes, board.total_bytes) == (CopyState.MEASURING, None, 0)
    shown = Board()
    shown.frame, shown.history = frame, history
    summary = str(PAGE.summary(View(shown, Location("reassignments")), 120))
    assert "1 partition moving" in summary and "measuring" in summary and "0 B" not in summary
    cluster.heal_stage(Stage.LOG_DIRS)
    _, board = _after(cluster, 5, history)
    assert board.copies[0].copied_bytes == 500_000_000


def test_the_time_without_a_byte_counts_on_between_two_readings() -> None:
    cluster, history = _cluster(), History()
    cluster.reassign(ORDERS, (1, 2, 4))
    _after(cluster, 11, history)
    cluster._stalled.add(ORDERS)
    stalled_s = [_after(cluster, seconds, history)[1].copies[0].stalled_s for seconds in (10, 1, 4)]
    assert stalled_s == [10, 11, 15]


def test_the_throttle_lines_name_all_brokers_that_send_and_receive() -> None:
    cluster, board = FakeCluster(9, {"orders": 9}, partition_bytes=9_000_000_000), Board()
    for key in ("leader.replication.throttled", "follower.replication.throttled"):
        cluster.set_broker_config(None, f"{key}.rate", "1000000")
        cluster.set_topic_config("orders", f"{key}.replicas", "*")
    cluster.set_broker_config(2, "leader.replication.throttled.rate", "2000000")
    for partition in range(3):
        cluster.reassign(TopicPartition("orders", partition), (partition + 1, partition + 2, partition + 7))
    for _ in range(2):
        cluster.advance()
        board.take(cluster.frame())
    lines = PAGE.summary(View(board, Location("reassignments")), 120)
    texts = ["".join(text for text, _ in line) for line in lines[1:]]
    assert texts == [
        "brokers 1, 3 send under a throttle of 1.0 MB/s",
        "broker 2 sends under a throttle of 2.0 MB/s",
        "brokers 7, 8, 9 receive under a throttle of 1.0 MB/s   H changes them",
    ]


def test_sides_with_the_same_throttle_share_a_sentence_and_a_burst_is_called_one() -> None:
    both = [ThrottleAdvice(1, is_leader, 1_000, 2_100.0, 0, 9, ThrottleVerdict.IS_THE_LIMIT, None, 1_000_000)
            for is_leader in (True, False)]  # fmt: skip
    ((texts, _),) = throttle_texts(both)
    more = "the throttle is the limit: 1.0 MB/s would let it end within an hour"
    assert texts == f"broker 1 sends and receives under a throttle of 1.0 kB/s; {more}"
    assert both[0].is_burst and not replace(both[0], used=1_900.0).is_burst and not replace(both[0], used=None).is_burst


def test_a_throttle_is_not_cleared_while_a_replica_that_does_not_move_catches_up_through_it() -> None:
    frame, moves = _throttled(500_000_000)
    assert {advice.verdict for advice in throttle_advice(frame, moves)} == {ThrottleVerdict.NOT_THE_LIMIT}
    assert frame.cluster is not None
    (topic,) = (topic for topic in frame.cluster.topics if topic.name == "orders")
    behind = replace(topic.partitions[0], isr=(1, 2))
    topic = replace(topic, partitions=(behind,))
    frame = replace(frame, cluster=replace(frame.cluster, topics=(topic,)))
    leader, follower = sorted(throttle_advice(frame, moves), key=lambda move: move.broker)
    assert (leader.verdict, follower.verdict) == (ThrottleVerdict.UNKNOWN, ThrottleVerdict.NOT_THE_LIMIT)


def test_throttles_that_no_move_needs_are_told_with_the_key_that_removes_them() -> None:
    cluster, board = FakeCluster(3, {"orders": 3}), Board()
    view = View(board, Location("reassignments"))

    def told() -> list[str]:
        cluster.advance()
        board.take(cluster.frame())
        return ["".join(text for text, _ in line) for line in PAGE.summary(view, 76)]

    assert told() == []
    cluster.set_broker_config(2, "leader.replication.throttled.rate", "1000000")
    of_broker = "  broker 2: leader.replication.throttled.rate=1000000"
    assert told() == ["1 throttle setting serves no move   X removes klamm's, then those of others", of_broker]
    cluster.set_topic_config("orders", "leader.replication.throttled.replicas", "0:1")
    assert told() == [
        "2 throttle settings serve no move   X removes klamm's, then those of others",
        "  topic orders: leader.replication.throttled.replicas=0:1",
        of_broker,
    ]
    cluster.reassign(TopicPartition("orders", 0), (2, 3))
    assert not [line for line in told() if "no move" in line], "they may serve this one"


def test_a_crawl_is_too_low_at_once_and_a_slow_move_that_somebody_wants_is_not() -> None:
    leader, _ = throttle_advice(*_throttled(1_000))
    assert leader.holds_up and leader.suggested_rate == 1_000_000
    leader, _ = throttle_advice(*_throttled(2_000_000, partition_bytes=100_000_000_000))
    assert leader.suggested_rate is not None and not leader.holds_up, "it takes half a day, and ends"
    leader, _ = throttle_advice(*_throttled(5_000_000, rate=10_000, copy_rate=5_000_000))
    assert leader.holds_up
    leader, _ = throttle_advice(*_throttled(300_000, partition_bytes=30_000_000, copy_rate=300_000))
    assert not leader.holds_up and leader.suggested_rate is None, "it ends in two minutes"
