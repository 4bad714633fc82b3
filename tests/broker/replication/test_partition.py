"""Reads of a partition: who may read, how far, and what is refused; and what wakes waiting requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from event_loop import staged
from log_folders import data_batch, marker_batch
from replicated_brokers import TOPIC_ID, TP, World, world
from virtual_time import in_virtual_time, run_virtual

from engine.broker.handlers.fetch import fetch
from engine.broker.log.append_origin import AppendOrigin, OwnBatch
from engine.broker.replication.isr import IsrState
from engine.broker.replication.offset_lookup import delete_records
from engine.broker.replication.partition import Partition
from engine.broker.replication.replica_selector import select_by_rack
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import ACKS_ALL, IsolationLevel
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.runtime.purgatory import DelayedOperation

MAX = 1 << 20


def led(test: Callable[[World, Partition], Any], *, tmp_path: Path) -> None:
    """Run a test on a partition that broker 1 leads in leader epoch 1. Broker 2 follows and is cut off at offset 2."""

    async def run() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            await w.lead(1)
            w.produce(1, b"a", b"b")
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            await w.let_pass(600)
            await test(w, w.partition(1))

    run_virtual(run)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fetch_offset": 4}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"fetch_offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": 9}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"replica_id": 9, "current_leader_epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": 2, "last_fetched_epoch": 7}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
@staged(led)
async def test_what_a_leader_refuses(
    w: World, partition: Partition, /, options: dict[str, int], error: ErrorCode
) -> None:
    wanted = {"fetch_offset": 0} | options
    read = partition.read_records(wanted.pop("fetch_offset"), MAX, **wanted)  # type: ignore[arg-type]
    assert read.error is error
    assert (read.high_watermark, read.log_start_offset, read.last_stable_offset, read.records) == (-1, -1, -1, None)


@staged(led)
async def test_a_follower_answers_consumers_that_may_be_sent_to_it(w: World, partition: Partition, /) -> None:
    follower = w.partition(2)
    assert follower.read_records(0, MAX).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert follower.read_records(0, MAX, leader_only=False).size_bytes > 0
    assert follower.read_records(0, MAX, leader_only=False, current_leader_epoch=0).error is (
        ErrorCode.FENCED_LEADER_EPOCH
    )


@staged(led)
async def test_how_far_who_may_read(w: World, partition: Partition, /) -> None:
    w.produce(1, b"not replicated")
    assert partition.read_records(2, MAX).records is None
    assert partition.read_records(2, MAX).high_watermark == 2
    read = partition.read_records(2, MAX, replica_id=2)
    assert read.size_bytes > 0
    assert read.aborted is None
    assert partition.read_records(0, 1, min_one_batch=True).size_bytes > 1
    cut_off = partition.read_records(0, 1, min_one_batch=False)
    assert cut_off.is_cut_off
    assert cut_off.size_bytes == 0
    committed = IsolationLevel.READ_COMMITTED
    assert partition.read_records(0, MAX, isolation=committed).aborted == []
    none = partition.read_records(0, 1, isolation=committed, min_one_batch=False)
    assert none.is_cut_off and none.aborted is None, "as Kafka 3.9.1"
    assert partition.read_records(0, 1, min_one_batch=False, may_cut_batch=True).size_bytes == 1


@in_virtual_time
async def test_broker_0_is_a_follower_like_any_other(tmp_path: Path) -> None:
    """It reads beyond the high watermark, and the high watermark waits for it."""
    async with world(tmp_path, 0, 1) as w:
        await w.lead(1)
        end = w.produce(1, b"a")
        assert w.log(1).high_watermark == 0
        await w.until_equal(0)
        assert (w.partition(1).followers[0].log_end_offset, w.log(1).high_watermark) == (end, end)
        assert w.isr_updates == [], "it never left the ISR"
        read = w.partition(1).read_records(0, MAX, replica_id=0, isolation=IsolationLevel.READ_COMMITTED)
        assert read.aborted is None, "what is aborted concerns consumers"


@staged(led)
async def test_how_many_replicas_in_sync_are_too_few(w: World, partition: Partition, /) -> None:
    """Only the leader counts them."""
    log = w.log(1)
    log.update_config(replace(log.config, min_insync_replicas=2))
    follower = w.partition(2)
    assert partition.isr == (1, 2)
    assert not partition.is_under_min_isr
    partition.isr_state = IsrState.settled((1,))
    assert partition.is_under_min_isr
    assert not follower.is_under_min_isr


@staged(led)
async def test_a_partition_without_a_log_or_topic_id_has_the_zero_id(w: World, partition: Partition, /) -> None:
    assert Partition(TP, partition.environment).topic_id == ZERO_TOPIC_ID
    partition.log = SimpleNamespace(topic_id=None)  # type: ignore[assignment]
    assert partition.topic_id == ZERO_TOPIC_ID


@staged(led)
async def test_nobody_gets_the_log_for_another_leader_epoch(w: World, partition: Partition, /) -> None:
    assert partition.checked_log(1, leader_only=True) is w.log(1)
    for epoch, error in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as caught:
            partition.checked_log(epoch, leader_only=True)
        assert caught.value.code is error


@staged(led)
async def test_a_high_watermark_that_stays_is_not_reported_as_moved(w: World, partition: Partition, /) -> None:
    """Each move wakes the requests that wait for it."""
    log = w.log(1)
    assert not partition.advance_high_watermark()
    log.update_config(replace(log.config, min_insync_replicas=3))
    w.produce(1, b"c")
    partition.isr_state = IsrState.settled((1,))
    assert not partition.advance_high_watermark(), "too few are in sync"
    assert not w.partition(2).advance_high_watermark(), "it does not lead"
    assert log.high_watermark == 2


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch", "diverging_epoch"),
    [(3, 0, (0, 2)), (2, 0, None), (4, 1, (1, 3)), (3, 1, None)],
    ids=["beyond the epoch's end", "at the epoch's end", "beyond the log's end", "at the log's end"],
)
@in_virtual_time
async def test_a_follower_that_has_other_records_is_told_where_to_cut_and_acknowledges_nothing(
    tmp_path: Path, fetch_offset: int, last_fetched_epoch: int, diverging_epoch: tuple[int, int] | None
) -> None:
    """KIP-595. Leader epoch 0 ends at offset 2, the log at 3."""
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"a", b"b")
        await w.until_equal(2)
        w.cut.add(frozenset((1, 2)))
        await w.lead(1)
        w.produce(1, b"c")
        partition = w.partition(1)
        partition.followers[2].log_end_offset = 1
        read = partition.read_records(fetch_offset, MAX, replica_id=2, last_fetched_epoch=last_fetched_epoch)
        assert (read.error, read.diverging_epoch) == (ErrorCode.NONE, diverging_epoch)
        acknowledged = 1 if diverging_epoch else fetch_offset
        assert partition.followers[2].log_end_offset == acknowledged
        assert w.log(1).high_watermark == max(2, acknowledged)
        assert (read.size_bytes > 0) == (diverging_epoch is None and fetch_offset < 3)


@staged(led)
async def test_the_high_watermark_never_falls(w: World, partition: Partition, /) -> None:
    """This holds even while a new leader does not know yet what its followers have."""
    await w.lead(2)
    assert w.partition(2).followers[1].log_end_offset == -1
    w.produce(2, b"c")
    assert not w.partition(2).advance_high_watermark()
    assert w.log(2).high_watermark == 2


@pytest.mark.parametrize(
    ("starts", "alive", "copy_start", "expected"),
    [
        ((2, 4), (1, 2, 3), None, 2),
        ((4, 2), (1, 2, 3), None, 2),
        ((2, 4), (1, 3), None, 4),
        ((5, 5), (1, 2, 3), None, 5),
        ((5, 5), (1, 2, 3), 3, 3),
        ((2, 5), (1, 2, 3), 3, 2),
    ],
)
@in_virtual_time
async def test_records_are_deleted_once_all_live_replicas_begin_behind_them(
    tmp_path: Path, starts: tuple[int, int], alive: tuple[int, ...], copy_start: int | None, expected: int
) -> None:
    """As leader, a replica that still has them could bring them back; so could the copy in another log dir
    (KIP-107)."""
    async with world(tmp_path, 1, 2, 3) as w:
        await w.lead(1)
        w.produce(1, *[b"v"] * 6)
        await w.until_equal(2, 3)
        w.cut |= {frozenset((1, 2)), frozenset((1, 3))}
        partition = w.partition(1)
        w.log(1).increment_log_start_offset(5)
        for replica_id, start in zip((2, 3), starts, strict=True):
            partition.read_records(6, MAX, replica_id=replica_id, follower_log_start_offset=start)
        w.alive = set(alive)
        w.brokers[1].replica_manager.update_metadata(w.update_metadata(), correlation_id=3)
        if copy_start is not None:
            partition.future_log = SimpleNamespace(log_start_offset=copy_start)  # type: ignore[assignment]
        assert partition.low_watermark == expected
        partition.future_log = None


@in_virtual_time
async def test_committed_readers_stop_before_open_transactions_and_hear_of_aborted_ones(tmp_path: Path) -> None:
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        partition = w.partition(1)
        committed = IsolationLevel.READ_COMMITTED
        partition.append_records_to_leader(data_batch(b"a", producer=(7, 0, 0), transactional=True), 1)
        assert partition.read_records(0, MAX, isolation=committed).records is None
        assert partition.read_records(0, MAX).size_bytes > 0, "others read up to the high watermark"
        marker = marker_batch(7, 0, commit=False)
        partition.append_records_to_leader(marker, 1, origin=AppendOrigin.COORDINATOR)
        read = partition.read_records(0, MAX, isolation=committed)
        assert read.last_stable_offset == 2
        assert read.aborted is not None
        assert [(t.producer_id, t.first_offset) for t in read.aborted] == [(7, 0)]
        assert partition.read_records(2, MAX, isolation=committed).aborted == []
        assert partition.read_records(0, MAX).aborted is None


@staged(led)
async def test_a_second_read_for_the_same_request_acknowledges_nothing(w: World, partition: Partition, /) -> None:
    w.produce(1, b"c")
    before = partition.followers[2].log_end_offset
    partition.read_records(3, MAX, replica_id=2, records_follower_state=False)
    assert partition.followers[2].log_end_offset == before == 2
    partition.read_records(3, MAX, replica_id=2, follower_log_start_offset=0)
    assert partition.followers[2].log_end_offset == 3
    assert w.log(1).high_watermark == 3


class WaitForEnd(DelayedOperation):
    """Completes when a partition's high watermark has reached an offset, or the partition has no leader here."""

    __slots__ = ("done", "partition", "wanted")

    def __init__(self, partition: Partition, wanted: int) -> None:
        super().__init__(60_000)
        self.partition = partition
        self.wanted = wanted
        self.done = asyncio.get_running_loop().create_future()

    def try_complete(self) -> bool:
        is_done, error = self.partition.check_enough_replicas_reach_offset(self.wanted)
        return (is_done or error is not ErrorCode.NONE) and self.force_complete()

    def on_complete(self) -> None:
        self.done.set_result(self.partition.check_enough_replicas_reach_offset(self.wanted))


class Looks(DelayedOperation):
    """Counts how often it is asked to check again."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        super().__init__(60_000)
        self.count = 0

    def try_complete(self) -> bool:
        self.count += 1
        return False

    def on_complete(self) -> None:
        """The broker is stopping."""


@staged(led)
async def test_what_changes_a_partition_lets_who_waits_for_it_look_again(w: World, partition: Partition, /) -> None:
    """A consumer's or follower's waiting fetch, a write with acks=all, a deletion of records."""
    manager = w.brokers[1].replica_manager
    waiting = [Looks(), Looks(), Looks()]
    for operation, purgatory in zip(
        waiting, (manager.delayed_fetch, manager.delayed_produce, manager.delayed_delete_records), strict=True
    ):
        purgatory.watch(operation, [TP])

    async def looks() -> int:
        await asyncio.sleep(0)
        assert len({operation.count for operation in waiting}) == 1
        return waiting[0].count

    w.produce(1, b"c")
    assert await looks() == 1
    partition.read_records(3, MAX, replica_id=2, follower_log_start_offset=0)
    assert await looks() == 2
    partition.read_records(3, MAX, replica_id=2, follower_log_start_offset=1)
    assert await looks() == 3, "its log begins later"
    partition.read_records(3, MAX, replica_id=2, follower_log_start_offset=1)
    assert await looks() == 3, "nothing has changed"
    partition.replace_log(w.log(1))
    assert await looks() == 4


class Reader:
    """Notes that it was woken."""

    def __init__(self, noted: list[object]) -> None:
        self._noted = noted

    def wake(self) -> None:
        self._noted.append("woken")


@pytest.mark.parametrize(
    "state", ["followed", "not followed any more", "alone", "too few in sync", "not led", "watched"]
)
@staged(led)
async def test_what_a_coordinator_has_made_is_appended_as_with_acks_all(
    w: World, partition: Partition, /, state: str
) -> None:
    """Offset, high watermark, counts, refusals, and who looks again: all as for a batch that the log looks at."""
    log, manager, topics = w.log(1), w.brokers[1].replica_manager, partition.environment.topics
    seen = []
    if state == "not followed any more":
        await w.let_pass(20_000)
        partition.isr_state = IsrState.settled((1,))
    for is_own in (True, False):
        if state == "too few in sync":
            log.update_config(replace(log.config, min_insync_replicas=2))
            partition.isr_state = IsrState.settled((1,))
        elif state == "alone":
            partition.followers, partition.isr_state = {}, IsrState.settled((1,))
        elif state == "not led":
            partition.leader_log = None
        # The follower's fetch session need not hear of the append.
        partition.changed()
        await asyncio.sleep(0)
        noted: list[object] = []
        waiting, reader = Looks(), Reader(noted)
        manager.delayed_produce.watch(waiting, [TP])
        if state == "watched":
            partition.settle(reader)
        counts, end, high = partition.counts, log.log_end_offset, log.high_watermark
        before = (counts.produces, counts.failed_produces, topics.not_produced)
        counts.appends.clear()
        batch = memoryview(bytearray(encode_batch([Record(timestamp_ms=5, value=b"v")] * 2)))
        try:
            if is_own:
                noted.append(partition.append_own(batch, OwnBatch(2, 5)) - end)
            else:
                result = partition.append_records_to_leader(batch, ACKS_ALL, origin=AppendOrigin.COORDINATOR)
                noted.append(result.first_offset - end)
        except KafkaError as error:
            noted.append((error.code, str(error)))
        await asyncio.sleep(0)
        now = (counts.produces, counts.failed_produces, topics.not_produced)
        noted += [log.log_end_offset - end, log.high_watermark - high, list(counts.appends), waiting.count]
        noted += [after - former for after, former in zip(now, before, strict=True)]
        waiting.cancel()
        seen.append(noted)
    assert seen[0] == seen[1]
    assert (seen[0][1:3] == [2, 2]) == (state in ("alone", "not followed any more"))


@staged(led)
async def test_a_followers_fetch_wakes_who_waits_for_acks(w: World, partition: Partition, /) -> None:
    end = w.produce(1, b"c", acks=-1)
    waiting = WaitForEnd(partition, end)
    w.brokers[1].replica_manager.delayed_produce.try_complete_else_watch(waiting, [TP])
    w.cut.clear()
    assert await waiting.done == (True, ErrorCode.NONE)


@staged(led)
async def test_lost_leadership_wakes_who_waits_for_acks(w: World, partition: Partition, /) -> None:
    waiting = WaitForEnd(partition, w.produce(1, b"c", acks=-1))
    w.brokers[1].replica_manager.delayed_produce.try_complete_else_watch(waiting, [TP])
    await w.lead(2)
    assert await waiting.done == (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@staged(led)
async def test_a_leader_whose_successor_is_dead_wakes_who_waits_for_acks(w: World, partition: Partition, /) -> None:
    waiting = WaitForEnd(partition, w.produce(1, b"c", acks=-1))
    w.brokers[1].replica_manager.delayed_produce.try_complete_else_watch(waiting, [TP])
    w.alive.discard(2)
    await w.lead(2, tell=[1])
    await w.let_pass(1)
    assert waiting.done.done(), "not only when its time is over"
    assert await waiting.done == (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@staged(led)
async def test_an_isr_that_shrinks_wakes_who_waits_for_acks(w: World, partition: Partition, /) -> None:
    waiting = WaitForEnd(partition, w.produce(1, b"c", acks=-1))
    w.brokers[1].replica_manager.delayed_produce.try_complete_else_watch(waiting, [TP])
    assert await waiting.done == (True, ErrorCode.NONE)
    assert w.states[TP].isr == (1,)


@staged(led)
async def test_preferred_read_replicas_are_in_sync_have_the_offset_and_are_near(
    w: World, partition: Partition, /
) -> None:
    manager = w.brokers[1].replica_manager

    def preferred(rack: str, offset: int, replica_id: int = -1) -> int:
        return manager.preferred_read_replica(
            partition, rack=rack, replica_id=replica_id, fetch_offset=offset, listener_name="PLAINTEXT"
        )

    assert preferred("rack-2", 0) == -1, "no selector is configured"
    manager._selector = select_by_rack
    assert preferred("rack-2", 0) == 2
    assert preferred("rack-1", 0) == -1
    assert preferred("rack-2", 0, replica_id=2) == -1, "followers are never sent elsewhere"
    w.produce(1, b"c")
    assert preferred("rack-2", 3) == -1, "2 has not got so far"
    await w.until(lambda: partition.isr == (1,), "2 leaves the ISR")
    assert preferred("rack-2", 0) == -1


@staged(led)
async def test_who_reads_at_a_near_replica_needs_no_read_at_the_leader(w: World, partition: Partition, /) -> None:
    """As Kafka 3.9.1 (ReplicaManager.readFromLog): the leader has deleted a record that its follower still has."""
    w.brokers[1].replica_manager._selector = select_by_rack
    delete_records(partition, 1)

    def told(version: int, epoch: int = 1) -> tuple[int, int, int]:
        wanted = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=epoch, partition_max_bytes=1_000_000)
        topics = [FetchTopic(topic=TP.topic, topic_id=TOPIC_ID, partitions=[wanted])]
        request = FetchRequest(replica_id=-1, min_bytes=1, max_bytes=1000, rack_id="rack-2", topics=topics)
        answer: Any = fetch(w.brokers[1].context(ApiKey.FETCH, version), request)
        (partition,) = answer.responses[0].partitions
        return partition.error_code, partition.preferred_read_replica, partition.high_watermark

    assert told(11) == told(17) == (ErrorCode.NONE, 2, 2)
    assert told(10) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)
    assert told(11, epoch=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)


@pytest.mark.parametrize("replica_id", [-1, -2])
@staged(led)
async def test_only_readers_that_can_be_sent_elsewhere_read_at_a_follower(
    w: World, partition: Partition, /, replica_id: int
) -> None:
    """As Kafka 3.9.1 (FetchParams.fetchOnlyLeader): a debugging consumer is a consumer."""
    for version, error in ((10, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, ErrorCode.NONE)):
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        topics = [FetchTopic(topic=TP.topic, topic_id=TOPIC_ID, partitions=[wanted])]
        request = FetchRequest(replica_id=replica_id, min_bytes=1, max_bytes=1000, topics=topics)
        answer: Any = fetch(w.brokers[2].context(ApiKey.FETCH, version), request)
        assert answer.responses[0].partitions[0].error_code == error
