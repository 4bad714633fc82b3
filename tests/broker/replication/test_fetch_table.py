"""Which partitions of a fetcher go into its next request, which are cut first, pause, or are set aside."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import ManualClock

from engine.broker.log.log import Gap
from engine.broker.replication.fetch_table import FetchState, FetchTable, InitialFetchState, continued
from engine.broker.replication.follower_fetch_session import FetchWanted
from engine.broker.replication.settings import ReplicationSettings
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import Node, TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.common.turns import at_once

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
LEADER = Node(1, "broker-1", 9092)
BACKOFF_MS = 300


class Quota:
    """Throttles the partitions that a test names, once it is exceeded."""

    def __init__(self) -> None:
        self.is_exceeded = False
        self.throttled: set[TopicPartition] = set()

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.throttled


class Host:
    """A broker whose replicas begin at offset 3 and have records up to leader epoch 2."""

    def __init__(self) -> None:
        self.settings = ReplicationSettings(2, replica_fetch_max_bytes=1000, replica_fetch_backoff_ms=BACKOFF_MS)
        self.clock = ManualClock()
        self.follower_quota = Quota()
        self.logs: dict[TopicPartition, Any] = {p: self.log(2) for p in (T0, T1, T2)}

    @staticmethod
    def log(latest_epoch: int) -> Any:
        epochs = SimpleNamespace(latest_epoch=latest_epoch)
        return SimpleNamespace(log_start_offset=3, leader_epochs=epochs, gap=None)

    def hosted_partition(self, topic_partition: TopicPartition) -> Any:
        return SimpleNamespace(log=self.logs[topic_partition]) if topic_partition in self.logs else None


class Fetching:
    """A table on such a host."""

    def __init__(self, *, is_old: bool = False) -> None:
        self.host = Host()
        self.failed: set[TopicPartition] = set()
        self.table = FetchTable(self.host, self.failed, "[test]", truncates_on_fetch=not is_old)  # type: ignore[arg-type]

    def add(self, topic_partition: TopicPartition = T0, *, leader_epoch: int = 5, fetch_offset: int = 7) -> FetchState:
        self.table.add(topic_partition, InitialFetchState(ID, LEADER, leader_epoch, fetch_offset))
        return self.table.states[topic_partition]

    @property
    def asked(self) -> dict[TopicPartition, FetchWanted]:
        """What the next request asks for. Nothing is answered here, so that each request is whole."""
        return dict(self.table.session.plan().partitions)


def test_a_partition_is_asked_for_as_it_is_here() -> None:
    fetching = Fetching()
    state = fetching.add()
    assert fetching.asked == {T0: FetchWanted(ID, 7, 3, 1000, 5, 2, state)}
    assert state.is_ready and not state.is_in_sync and not fetching.table.leaves_out
    assert fetching.table.truncating == {}


def test_an_old_leader_is_asked_after_the_log_is_cut_and_told_no_epoch() -> None:
    fetching = Fetching(is_old=True)
    state = fetching.add()
    assert (fetching.asked, fetching.table.truncating, state.is_ready) == ({}, {T0: state}, False)
    fetching.table.truncated(state)
    assert fetching.asked[T0].last_fetched_epoch == -1
    assert (fetching.table.truncating, state.is_ready) == ({}, True)


def test_a_log_without_epochs_is_cut_before_it_is_fetched() -> None:
    fetching = Fetching()
    fetching.host.logs[T0] = Host.log(-1)
    state = fetching.add()
    assert (fetching.asked, fetching.table.truncating) == ({}, {T0: state})


def test_a_log_with_a_gap_is_cut_before_it_is_fetched() -> None:
    fetching = Fetching()
    fetching.host.logs[T0].gap = Gap(5, is_of_crash=True)
    state = fetching.add()
    assert (fetching.asked, fetching.table.truncating) == ({}, {T0: state})


@pytest.mark.parametrize("gone", ["partition", "log"])
def test_without_a_log_nothing_is_asked(gone: str) -> None:
    fetching = Fetching()
    state = fetching.add()
    if gone == "partition":
        del fetching.host.logs[T0]
    else:
        fetching.host.logs[T0] = None
    fetching.table.want(state)
    assert fetching.asked == {}
    assert fetching.table.last_epoch(T0) == -1


def test_only_a_new_leader_epoch_begins_anew() -> None:
    """Else an answer on its way would be thrown away with each LeaderAndIsr request that says the same."""
    fetching = Fetching()
    state = fetching.add()
    fetching.failed.add(T0)
    assert fetching.add(fetch_offset=1) is state
    assert (state.fetch_offset, fetching.failed) == (7, set())
    newer = fetching.add(leader_epoch=6, fetch_offset=1)
    assert newer is not state
    assert (fetching.table.is_current(state), fetching.table.is_current(newer)) == (False, True)
    assert fetching.asked[T0].asker is newer


def test_a_new_leader_epoch_leaves_nothing_of_the_earlier_one() -> None:
    """Neither its place in the next request, as the log has to be cut first, nor its pause."""
    fetching = Fetching(is_old=True)
    fetching.table.truncated(fetching.add(T0))
    fetching.table.delay([fetching.add(T1)])
    newer = fetching.add(T0, leader_epoch=6), fetching.add(T1, leader_epoch=6)
    assert fetching.asked == {}
    fetching.host.clock.advance(BACKOFF_MS)
    at_once(fetching.table.end_delays())
    assert tuple(fetching.table.truncating.values()) == newer


def test_a_partition_that_is_removed_leaves_nothing_behind() -> None:
    fetching = Fetching(is_old=True)
    fetching.add(T0)
    state = fetching.add(T1)
    fetching.table.truncated(state)
    fetching.table.delay([fetching.add(T2)])
    for partition in (T0, T1, T2):
        removed = fetching.table.remove(partition)
        assert removed is not None and removed.topic_partition == partition
    assert fetching.table.remove(T0) is None
    fetching.host.clock.advance(BACKOFF_MS)
    at_once(fetching.table.end_delays())
    assert (fetching.table.states, fetching.table.truncating, fetching.asked) == ({}, {}, {})
    assert fetching.table.session.is_empty
    assert continued(state, LEADER) == InitialFetchState(ID, LEADER, 5, 7)


def test_a_topic_id_counts_from_the_next_request_on_and_wakes_nothing_that_pauses() -> None:
    fetching = Fetching()
    fetching.table.update_topic_id(T0, OTHER_ID)
    fetching.add(T0)
    paused = fetching.add(T1)
    fetching.table.delay([paused])
    fetching.table.update_topic_id(T0, OTHER_ID)
    fetching.table.update_topic_id(T1, ZERO_TOPIC_ID)
    assert {p: wanted.topic_id for p, wanted in fetching.asked.items()} == {T0: OTHER_ID}
    assert paused.topic_id == ZERO_TOPIC_ID


def test_a_log_that_is_to_be_cut_is_not_fetched_by_its_new_topic_id_either() -> None:
    fetching = Fetching(is_old=True)
    fetching.add(T0)
    fetching.table.update_topic_id(T0, OTHER_ID)
    assert fetching.asked == {}


@pytest.mark.parametrize(
    ("lag", "is_exceeded", "is_named", "is_left_out"),
    [
        (1, True, True, True),
        (None, True, True, True),
        (0, True, True, False),
        (1, False, True, False),
        (1, True, False, False),
    ],
)
def test_only_who_is_behind_and_named_is_left_out_above_the_rate(
    lag: int | None, is_exceeded: bool, is_named: bool, is_left_out: bool
) -> None:
    """A replica that is in sync must not fall out of the ISR for a quota (KIP-73)."""
    fetching = Fetching()
    state, other = fetching.add(T0), fetching.add(T1)
    state.lag = lag
    other.lag = 0
    fetching.host.follower_quota.is_exceeded = is_exceeded
    fetching.host.follower_quota.throttled = {T0} if is_named else set()
    fetching.table.throttle()
    assert (state.is_throttled, fetching.table.leaves_out) == (is_left_out, is_left_out)
    assert set(fetching.asked) == ({T1} if is_left_out else {T0, T1})
    fetching.table.want(state)
    assert set(fetching.asked) == ({T1} if is_left_out else {T0, T1}), "nor after its log was cut"
    fetching.host.follower_quota.is_exceeded = False
    fetching.table.throttle()
    assert (state.is_throttled, fetching.table.leaves_out) == (False, False)
    assert set(fetching.asked) == {T0, T1}


def test_one_that_is_left_out_is_not_forgotten_for_the_next_that_is_not() -> None:
    fetching = Fetching()
    fetching.add(T0)
    fetching.add(T1)
    fetching.host.follower_quota.is_exceeded = True
    fetching.host.follower_quota.throttled = {T0}
    fetching.table.throttle()
    assert fetching.table.leaves_out


def test_the_end_of_a_throttle_ends_no_pause() -> None:
    fetching = Fetching()
    state = fetching.add()
    fetching.host.follower_quota.is_exceeded = True
    fetching.host.follower_quota.throttled = {T0}
    fetching.table.throttle()
    fetching.table.delay([state])
    fetching.host.follower_quota.is_exceeded = False
    fetching.table.throttle()
    assert fetching.asked == {}


def test_pauses_double_up_to_the_back_off() -> None:
    fetching = Fetching()
    state = fetching.add()
    for pause_ms in (50, 100, 200, BACKOFF_MS, BACKOFF_MS):
        fetching.table.delay([state])
        assert fetching.asked == {}
        fetching.host.clock.advance(pause_ms - 1)
        at_once(fetching.table.end_delays())
        assert (fetching.asked, state.is_ready) == ({}, False)
        fetching.host.clock.advance(1)
        at_once(fetching.table.end_delays())
        assert (set(fetching.asked), state.is_ready) == ({T0}, True)
    state.failures = 10**6
    fetching.table.delay([state])
    assert state.delayed_until_ms == fetching.host.clock.monotonic_ms() + BACKOFF_MS


def test_a_pause_is_not_prolonged_by_another_failure() -> None:
    fetching = Fetching()
    state, other = fetching.add(T0), fetching.add(T1)
    fetching.table.delay([state])
    fetching.host.clock.advance(20)
    fetching.table.delay_all()
    assert (state.failures, other.failures) == (1, 1)
    assert (state.delayed_until_ms, other.delayed_until_ms) == (50, 70)
    fetching.host.clock.advance(30)
    at_once(fetching.table.end_delays())
    assert set(fetching.asked) == {T0}


def test_what_is_removed_while_pauses_end_is_not_fetched_again() -> None:
    """They end in turns: 20,000 of them hold the loop for 40 ms, and as many were put into the request after that."""
    fetching = Fetching()
    fetching.table.delay([fetching.add(T0), fetching.add(T1), fetching.add(T2)])
    fetching.host.clock.advance(50)
    steps = fetching.table.end_delays()
    next(steps)
    assert set(fetching.asked) == {T0}
    fetching.table.remove(T1)
    renewed = fetching.add(T2, leader_epoch=6)
    fetching.table.delay([renewed])
    at_once(steps)
    assert set(fetching.asked) == {T0}
    assert fetching.table.delayed == {T2: renewed}


def test_what_was_to_be_cut_is_cut_after_its_pause() -> None:
    fetching = Fetching(is_old=True)
    state = fetching.add()
    fetching.table.delay([state])
    assert fetching.table.truncating == {}
    fetching.host.clock.advance(50)
    at_once(fetching.table.end_delays())
    assert (fetching.table.truncating, fetching.asked) == ({T0: state}, {})


def test_a_state_of_an_earlier_leader_epoch_makes_nothing_pause() -> None:
    fetching = Fetching()
    old = fetching.add()
    fetching.add(leader_epoch=6)
    fetching.table.delay([old])
    assert set(fetching.asked) == {T0}
    assert old.delayed_until_ms is None


def test_how_long_there_is_nothing_to_do() -> None:
    fetching = Fetching()
    assert fetching.table.next_turn_ms() == BACKOFF_MS
    first, second = fetching.add(T0), fetching.add(T1)
    fetching.table.delay([first])
    fetching.host.clock.advance(10)
    fetching.table.delay([second])
    assert fetching.table.next_turn_ms() == 40
    fetching.host.clock.advance(39)
    assert fetching.table.next_turn_ms() == 1
    fetching.host.clock.advance(100)
    assert fetching.table.next_turn_ms() == 1, "it is over: never wait for nothing, nor less than nothing"
    fetching.host.settings = ReplicationSettings(2, replica_fetch_backoff_ms=0)
    assert fetching.table.next_turn_ms() == 1
    assert Fetching().table.next_turn_ms() == BACKOFF_MS


def test_the_wait_is_never_longer_than_the_back_off() -> None:
    fetching = Fetching()
    state = fetching.add()
    fetching.table.delay([state])
    state.delayed_until_ms = fetching.host.clock.monotonic_ms() + 10 * BACKOFF_MS
    assert fetching.table.next_turn_ms() == BACKOFF_MS


def test_what_a_leader_fences_waits_for_the_controller() -> None:
    fetching = Fetching()
    fetching.table.fenced(fetching.add(T0))
    fetching.add(T1)
    assert (fetching.failed, set(fetching.table.states), set(fetching.asked)) == ({T0}, {T1}, {T1})
    fetching.add(T0, leader_epoch=6)
    assert (fetching.failed, set(fetching.asked)) == (set(), {T0, T1})


@pytest.mark.parametrize(
    ("error", "is_set_aside"),
    [
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), True),
        (ValueError("a fault of the program"), True),
        (OSError(errno.EMFILE, "too many open files"), False),
    ],
)
def test_what_is_given_up_is_set_aside_unless_only_a_descriptor_is_lacking(
    error: Exception, is_set_aside: bool
) -> None:
    fetching = Fetching()
    state = fetching.add()
    fetching.table.give_up(state, "Failed", error)
    assert fetching.asked == {}
    assert fetching.failed == ({T0} if is_set_aside else set())
    assert fetching.table.is_current(state) != is_set_aside
    fetching.host.clock.advance(BACKOFF_MS)
    at_once(fetching.table.end_delays())
    assert set(fetching.asked) == (set() if is_set_aside else {T0})


def test_in_sync_is_who_has_no_record_left_to_fetch() -> None:
    state = Fetching().add()
    for lag, expected in ((None, False), (0, True), (1, False)):
        state.lag = lag
        assert state.is_in_sync == expected
