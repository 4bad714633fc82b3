"""Replication quotas, the choice of a nearby replica, and one wake-up per turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from event_loop import in_event_loop
from hypothesis import given
from hypothesis import strategies as st
from replicated_brokers import world
from virtual_time import ManualClock, in_virtual_time

from engine.broker.replication.partition_environment import Wakeups
from engine.broker.replication.replica_selector import ReplicaView, replica_selector, select_by_rack
from engine.broker.replication.throttle import ALL_REPLICAS, ReplicationQuota
from engine.broker.server.settings import replication_settings
from engine.common.errors import ConfigError
from engine.common.model import TopicPartition
from engine.kafka.config.broker import BrokerConfig
from engine.runtime.purgatory import DelayedOperation, Purgatory

TP = TopicPartition("t", 0)


class TestQuota:
    def test_only_named_partitions_are_throttled(self) -> None:
        quota = ReplicationQuota(ManualClock())
        assert not quota.has_throttled
        quota.throttle("t", {0})
        quota.throttle("all", ALL_REPLICAS)
        assert quota.is_throttled(TP)
        assert not quota.is_throttled(TopicPartition("t", 1))
        assert quota.is_throttled(TopicPartition("all", 99))
        quota.throttle("t", ())
        quota.throttle("all", ())
        assert not quota.has_throttled

    def test_a_rate_is_exceeded_and_recovers(self) -> None:
        clock = ManualClock()
        quota = ReplicationQuota(clock)
        quota.rate_bytes_max = 1000
        quota.record(1000)
        assert not quota.is_exceeded
        quota.record(4000)
        assert quota.is_exceeded
        clock.advance(5000)
        assert not quota.is_exceeded, "5000 bytes in five seconds"
        clock.advance(6000)
        assert quota.rate_bytes() == 0

    def test_without_a_limit_nothing_is_exceeded(self) -> None:
        quota = ReplicationQuota(ManualClock())
        quota.record(10**15)
        assert not quota.is_exceeded

    @given(st.lists(st.integers(0, 100), max_size=300))
    def test_steady_traffic_below_the_rate_never_exceeds_it(self, steps_ms: list[int]) -> None:
        clock = ManualClock()
        quota = ReplicationQuota(clock)
        quota.rate_bytes_max = 10_000
        for step_ms in steps_ms:
            clock.advance(step_ms)
            quota.record(step_ms * 9)
            assert not quota.is_exceeded

    @given(st.lists(st.integers(1, 100), min_size=1, max_size=300))
    def test_a_copier_that_stops_when_exceeded_keeps_to_the_rate(self, steps_ms: list[int]) -> None:
        clock = ManualClock()
        quota = ReplicationQuota(clock)
        quota.rate_bytes_max = 10_000
        copied = 0
        for step_ms in steps_ms:
            clock.advance(step_ms)
            if not quota.is_exceeded:
                quota.record(3000)
                copied += 3000
        assert copied <= 10_000 * (1 + sum(steps_ms) / 1000) + 3000


@in_virtual_time
async def test_the_brokers_windows_hold_for_each_of_its_quotas(tmp_path: Path) -> None:
    given = {
        "replication.quota.window.num": "3",
        "replication.quota.window.size.seconds": "2",
        "alter.log.dirs.replication.quota.window.num": "5",
        "alter.log.dirs.replication.quota.window.size.seconds": "3",
    }
    config = BrokerConfig({"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181", **given})
    async with world(tmp_path, 1, settings=replication_settings(config)) as w:
        manager = w.brokers[1].replica_manager
        quotas = (manager.leader_quota, manager.follower_quota, manager.log_dir_moves.quota)
        for quota in quotas:
            quota.record(6000)
        assert [quota.rate_bytes() for quota in quotas] == [3000, 3000, 2000], "within the first sample"
        await asyncio.sleep(5.9)
        assert all(quota.rate_bytes() for quota in quotas)
        await asyncio.sleep(0.2)
        assert [bool(quota.rate_bytes()) for quota in quotas] == [False, False, True]
        await asyncio.sleep(9)
        assert not quotas[2].rate_bytes()


def view(broker_id: int, rack: str | None, end: int = 10, lag_ms: int = 0) -> ReplicaView:
    return ReplicaView(broker_id, rack, end, lag_ms)


class TestSelector:
    LEADER = view(1, "a")

    def test_the_leader_when_it_is_as_near_as_any(self) -> None:
        assert select_by_rack("a", self.LEADER, [self.LEADER, view(2, "a")]) == 1
        assert select_by_rack("c", self.LEADER, [self.LEADER, view(2, "b")]) == 1
        assert select_by_rack("", self.LEADER, [self.LEADER, view(2, "")]) == 1

    def test_the_most_caught_up_of_the_rack(self) -> None:
        near = [view(2, "b", end=8), view(3, "b", end=9, lag_ms=500), view(4, "b", end=9, lag_ms=100)]
        assert select_by_rack("b", self.LEADER, [self.LEADER, *near]) == 4

    def test_kafkas_class_names(self) -> None:
        assert replica_selector(None) is None
        assert replica_selector("org.apache.kafka.common.replica.LeaderSelector") is None
        assert replica_selector("org.apache.kafka.common.replica.RackAwareReplicaSelector") is select_by_rack
        with pytest.raises(ConfigError, match=r"replica\.selector\.class=com\.example\.Mine"):
            replica_selector("com.example.Mine")


class CountingOperation(DelayedOperation):
    """Counts how often it was checked, and never completes."""

    __slots__ = ("looks",)

    def __init__(self) -> None:
        super().__init__(60_000)
        self.looks = 0

    def try_complete(self) -> bool:
        self.looks += 1
        return False

    def on_complete(self) -> None:
        self.looks = -1


@in_event_loop
async def test_many_changes_of_one_turn_wake_once() -> None:
    fetch: Purgatory[TopicPartition] = Purgatory("fetch")
    produce: Purgatory[TopicPartition] = Purgatory("produce")
    wakeups = Wakeups(fetch, produce)
    waiting, other = CountingOperation(), CountingOperation()
    fetch.try_complete_else_watch(waiting, [TP])
    produce.try_complete_else_watch(other, [TopicPartition("u", 0)])
    for _ in range(100):
        wakeups.mark(TP)
    assert waiting.looks == 1
    await asyncio.sleep(0)
    assert waiting.looks == 2
    wakeups.mark(TP)
    await asyncio.sleep(0)
    assert (waiting.looks, other.looks) == (3, 1)
    fetch.close()
    produce.close()
