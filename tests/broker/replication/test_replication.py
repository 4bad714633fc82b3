"""Leaders and followers with real logs and real requests, in one process and on virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from replicated_brokers import TP, world
from virtual_time import in_virtual_time

from engine.broker.replication.follower import append_fetched
from engine.broker.replication.isr import IsrState
from engine.broker.replication.partition import Partition
from engine.broker.replication.settings import ReplicationSettings
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import PartitionData


@in_virtual_time
async def test_followers_copy_byte_for_byte_and_learn_the_high_watermark(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2, 3) as w:
        await w.lead(1)
        for n in range(20):
            w.produce(1, b"a%d" % n, b"b" * 300)
        await w.until_equal(2, 3)
        assert w.log_bytes(1) == w.log_bytes(2) == w.log_bytes(3) != b""
        assert w.log(2).leader_epochs.entries == w.log(1).leader_epochs.entries


@in_virtual_time
async def test_a_followers_lag_is_known_per_partition(tmp_path: Path) -> None:
    other = TopicPartition(TP.topic, 1)

    small = ReplicationSettings(0, replica_lag_time_max_ms=5000, replica_fetch_max_bytes=400)
    async with world(tmp_path, 1, 2, settings=small) as w:
        await w.lead(1)
        await w.lead(1, topic_partition=other)
        fetchers = w.brokers[2].replica_manager.fetchers
        await w.until(lambda: fetchers.lags() == {TP: 0, other: 0}, "both are known")
        w.cut.add(frozenset((1, 2)))
        for _ in range(6):
            w.produce(1, b"x" * 300)
        await w.until(lambda: w.partition(1).isr == (1,), "2 leaves the ISR")
        seen: set[int] = set()
        w.tamper = lambda _answer: seen.add(fetchers.lags()[TP])
        w.cut.clear()
        await w.until_equal(2)
        assert {5, 4, 3, 2, 1} <= seen
        await w.until(lambda: fetchers.lags() == {TP: 0, other: 0}, "none lags")
        assert fetchers.max_lag() == 0 and not fetchers.failed


@in_virtual_time
async def test_the_high_watermark_waits_for_the_slowest_in_sync_follower(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2, 3) as w:
        await w.lead(1)
        w.produce(1, b"first")
        await w.until_equal(2, 3)
        w.cut.add(frozenset((1, 3)))
        end = w.produce(1, b"second")
        await w.until(lambda: w.log(2).log_end_offset == end, "2 has the record")
        assert w.log(1).high_watermark == 1
        assert w.partition(1).check_enough_replicas_reach_offset(end) == (False, ErrorCode.NONE)
        w.cut.clear()
        await w.until_equal(2, 3)
        assert w.partition(1).check_enough_replicas_reach_offset(end) == (True, ErrorCode.NONE)


@in_virtual_time
async def test_acks_all_below_min_isr_is_refused_before_and_after_the_append(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2, log_config=LogConfig(min_insync_replicas=2)) as w:
        await w.lead(1)
        end = w.produce(1, b"first", acks=-1)
        await w.until_equal(2)
        w.cut.add(frozenset((1, 2)))
        w.produce(1, b"second", acks=1)
        await w.until(lambda: w.partition(1).isr == (1,), "2 leaves the ISR")
        with pytest.raises(KafkaError) as refused:
            w.produce(1, b"third", acks=-1)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert w.log(1).log_end_offset == 2, "nothing was written"
        outcome = w.partition(1).check_enough_replicas_reach_offset(end)
        assert outcome == (True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        assert w.log(1).high_watermark == 1, "below min.insync.replicas it does not move"


@in_virtual_time
async def test_whoever_does_not_ask_for_all_acks_may_write_below_min_isr(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2, log_config=LogConfig(min_insync_replicas=2)) as w:
        await w.lead(1, isr=(1,), replicas=(1, 2), tell=(1,))
        assert w.produce(1, b"first", acks=1) == 1
        assert w.produce(1, b"second", acks=0) == 2
        with pytest.raises(KafkaError, match="insufficient to satisfy"):
            w.produce(1, b"third", acks=-1)


@pytest.mark.parametrize("brokers", [(1,), (1, 2)])
@in_virtual_time
async def test_min_isr_is_never_more_than_there_are_replicas(tmp_path: Path, brokers: tuple[int, ...]) -> None:
    async with world(tmp_path, *brokers, log_config=LogConfig(min_insync_replicas=3)) as w:
        await w.lead(1)
        end = w.produce(1, b"first", acks=-1)
        await w.until_equal(*brokers)
        assert w.partition(1).check_enough_replicas_reach_offset(end) == (True, ErrorCode.NONE)


@in_virtual_time
async def test_only_leaders_take_records(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        with pytest.raises(KafkaError) as refused:
            w.produce(2, b"no")
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_sessions_say_nothing_twice(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"x")
        await w.until_equal(2)
        await w.let_pass(5000)
        idle = [request for _, _, key, _, request in w.sent if key is ApiKey.FETCH][-3:]
        assert all(not request.topics and request.session_epoch > 1 for request in idle)
        assert len({request.session_id for request in idle}) == 1
        assert len(w.sent) < 40, "an idle follower asks twice a second"


@in_virtual_time
async def test_a_follower_that_missed_what_was_deleted_starts_at_the_leaders_start(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2, log_config=LogConfig(segment_bytes=1024, retention_ms=-1)) as w:
        await w.lead(1)
        w.produce(1, b"x")
        await w.until_equal(2)
        w.cut.add(frozenset((1, 2)))
        for _ in range(20):
            w.produce(1, b"y" * 200)
        await w.until(lambda: w.partition(1).isr == (1,), "2 leaves the ISR")
        w.log(1).increment_log_start_offset(15)
        w.log(1).delete_old_segments(w.clock.now_ms())
        assert w.log(1).segments[0].base_offset > 2
        w.cut.clear()
        await w.until_equal(2)
        assert w.log(2).log_start_offset == 15
        assert w.log_bytes(2) == w.log_bytes(1)[-len(w.log_bytes(2)) :]


@in_virtual_time
async def test_a_followers_log_start_goes_up_with_the_leaders_but_not_above_what_is_committed(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        for value in (b"0", b"1", b"2", b"3"):
            w.produce(1, value)
        await w.until_equal(2)
        w.cut.add(frozenset((1, 2)))
        for high_watermark, leaders_start, expected in (
            (3, 4, 0),
            (4, 1, 1),
            (3, 3, 3),
            (4, 2, 3),
            (6, 5, 3),
            (4, 4, 4),
        ):
            data = PartitionData(high_watermark=high_watermark, log_start_offset=leaders_start)
            assert append_fetched(w.partition(2), 4, w.partition(2).leader_epoch, data) == 4
            assert w.log(2).log_start_offset == expected


@in_virtual_time
async def test_a_fresh_follower_copes_with_a_start_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1, isr=(1,))
        w.cut.add(frozenset((1, 2)))
        w.produce(1, *[b"%d" % n for n in range(10)])
        w.log(1).increment_log_start_offset(4)
        w.cut.clear()
        await w.until_equal(2)
        assert w.log(2).log_start_offset == 4
        assert w.log_bytes(1) == w.log_bytes(2)


@in_virtual_time
async def test_after_an_unclean_election_the_longer_log_is_cut(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"common")
        await w.until_equal(2)
        w.cut.add(frozenset((1, 2)))
        for n in range(5):
            w.produce(1, b"lost %d" % n)
        await w.until(lambda: w.states[TP].isr == (1,), "2 leaves the ISR")
        await w.lead(2, isr=(2,), tell=(2,))
        w.cut.clear()
        await w.tell(1)
        await w.until_equal(1)
        assert w.log(1).log_end_offset == 1
        assert w.log_bytes(1) == w.log_bytes(2)


@in_virtual_time
async def test_a_restarted_broker_goes_on_where_its_log_ends(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"first")
        await w.until_equal(2)
        await w.stop_broker(2)
        w.produce(1, b"second")
        w.start_broker(2)
        await w.lead(1)
        assert w.log(2).high_watermark >= 1
        await w.until_equal(2)
        assert w.log_bytes(1) == w.log_bytes(2)


@in_virtual_time
async def test_delete_of_a_leaders_session_is_healed(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"first")
        await w.until_equal(2)
        w.brokers[1].fetch_sessions._sessions.clear()
        w.produce(1, b"second")
        await w.until_equal(2)


@in_virtual_time
async def test_no_partition_starves_without_a_session(tmp_path: Path) -> None:
    """The leader reads in the order of the request. Its sessions are all taken, or it is too old to have any."""
    partitions = [TopicPartition(TP.topic, n) for n in range(3)]
    small = ReplicationSettings(0, replica_lag_time_max_ms=5000, replica_fetch_response_max_bytes=400)
    async with world(tmp_path, 1, 2, settings=small) as w:
        w.brokers[1].fetch_sessions.slots = 0
        for partition in partitions:
            await w.lead(1, topic_partition=partition)
            await w.until_equal(2, topic_partition=partition)
        w.cut.add(frozenset((1, 2)))
        for partition in partitions:
            for _ in range(30):
                w.produce(1, b"x" * 300, topic_partition=partition)
        w.cut.clear()
        last = partitions[-1]
        await w.until(lambda: w.log(2, last).log_end_offset >= 5, "the last one gets its turns")
        assert all(w.log(2, partition).log_end_offset < 10 for partition in partitions)
        for partition in partitions:
            await w.until_equal(2, topic_partition=partition)


@in_virtual_time
async def test_a_throttled_follower_outside_the_isr_keeps_to_its_rate(tmp_path: Path) -> None:
    small = ReplicationSettings(0, replica_lag_time_max_ms=5000, replica_fetch_max_bytes=5000)
    async with world(tmp_path, 1, 2, log_config=LogConfig(), settings=small) as w:
        await w.lead(1)
        w.produce(1, b"x")
        await w.until_equal(2)
        w.cut.add(frozenset((1, 2)))
        for _ in range(200):
            w.produce(1, b"y" * 1000)
        await w.until(lambda: w.states[TP].isr == (1,), "2 leaves the ISR")
        quota = w.brokers[2].replica_manager.follower_quota
        quota.throttle(TP.topic, {0})
        quota.rate_bytes_max = 10_000
        w.cut.clear()
        await w.until(lambda: w.log(2).log_end_offset > 1, "it begins")
        await w.let_pass(5000)
        assert len(w.log_bytes(2)) < 10_000 * 6 + 5000
        quota.throttle(TP.topic, ())
        await w.until_equal(2)


@in_virtual_time
async def test_who_asked_for_a_state_change_may_go_away(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1, tell=(1,))
        w.brokers[2].replica_manager.update_metadata(w.update_metadata(), correlation_id=1)
        asking = asyncio.create_task(w.tell(2))
        await asyncio.sleep(0)
        asking.cancel()
        w.produce(1, b"x")
        await w.until(lambda: TP in w.brokers[2].replica_manager.partitions, "the change is carried out")
        await w.until_equal(2)


@in_virtual_time
async def test_a_steady_follower_is_given_the_whole_lag_time_when_it_falls_silent(tmp_path: Path) -> None:
    """A fetch does not read partitions without news. It still counts as a fetch of them."""
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"x")
        await w.until_equal(2)
        await w.let_pass(20_000)
        w.cut.add(frozenset((1, 2)))
        w.produce(1, b"y")
        await w.let_pass(4_000)
        assert w.partition(1).isr == (1, 2), "replica.lag.time.max.ms is 5 s"
        await w.until(lambda: w.partition(1).isr == (1,), "2 leaves the ISR")
        w.cut.clear()
        await w.until(lambda: w.partition(1).isr == (1, 2), "2 is back")
        w.produce(1, b"z")
        await w.until_equal(2)


@in_virtual_time
async def test_a_steady_follower_that_was_put_out_of_the_isr_comes_back(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2, 3) as w:
        await w.lead(1)
        w.produce(1, b"x")
        await w.until_equal(2, 3)
        await w.let_pass(2_000)
        before = w.partition(1).isr_state
        w.partition(1).isr_state = IsrState.settled((1, 2))
        w.partition(1).changed()
        w.states[TP] = replace(w.states[TP], isr=(1, 2))
        await w.until(lambda: set(w.partition(1).isr) == {1, 2, 3}, "3 is back without a record being written")
        assert before is not w.partition(1).isr_state


@in_virtual_time
async def test_of_many_steady_partitions_only_the_one_with_news_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[TopicPartition] = []
    read_records = Partition.read_records

    def noted(self: Partition, *arguments: Any, **options: Any) -> Any:
        reads.append(self.topic_partition)
        return read_records(self, *arguments, **options)

    async with world(tmp_path, 1, 2) as w:
        partitions = [TopicPartition(TP.topic, n) for n in range(20)]
        for partition in partitions:
            await w.lead(1, topic_partition=partition)
            w.produce(1, b"x", topic_partition=partition)
        for partition in partitions:
            await w.until_equal(2, topic_partition=partition)
        await w.let_pass(2_000)
        monkeypatch.setattr(Partition, "read_records", noted)
        await w.let_pass(5_000)
        assert reads == []
        w.produce(1, b"y", topic_partition=partitions[7])
        await w.until_equal(2, topic_partition=partitions[7])
        assert set(reads) == {partitions[7]}
