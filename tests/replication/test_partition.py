"""What reads of a partition answer: who may read, how far, and what is refused; and what wakes waiting requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_folders import data_batch, marker_batch
from replicated_brokers import TP, World, world
from virtual_time import run_virtual

from engine.common.errors import ErrorCode
from engine.common.model import IsolationLevel
from engine.replication.partition import Partition
from engine.replication.replica_selector import select_by_rack
from engine.runtime.purgatory import DelayedOperation
from engine.storage.append_origin import AppendOrigin

MAX = 1 << 20


def led(tmp_path: Path, test: Callable[[World, Partition], Any]) -> None:
    """Run a test on a partition that broker 1 leads in leader epoch 1; 2 follows and is cut off at offset 2."""

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
def test_what_a_leader_refuses(tmp_path: Path, options: dict[str, int], error: ErrorCode) -> None:
    async def test(w: World, partition: Partition) -> None:
        wanted = {"fetch_offset": 0} | options
        read = partition.read_records(wanted.pop("fetch_offset"), MAX, **wanted)  # type: ignore[arg-type]
        assert read.error is error
        assert (read.high_watermark, read.log_start_offset, read.last_stable_offset, read.records) == (-1, -1, -1, None)

    led(tmp_path, test)


def test_a_follower_answers_consumers_that_may_be_sent_to_it(tmp_path: Path) -> None:
    async def test(w: World, partition: Partition) -> None:
        follower = w.partition(2)
        assert follower.read_records(0, MAX).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert follower.read_records(0, MAX, leader_only=False).size_bytes > 0
        assert follower.read_records(0, MAX, leader_only=False, current_leader_epoch=0).error is (
            ErrorCode.FENCED_LEADER_EPOCH
        )

    led(tmp_path, test)


def test_how_far_who_may_read(tmp_path: Path) -> None:
    async def test(w: World, partition: Partition) -> None:
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
        assert partition.read_records(0, 1, min_one_batch=False, may_cut_batch=True).size_bytes == 1

    led(tmp_path, test)


def test_committed_readers_stop_before_open_transactions_and_hear_of_aborted_ones(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1) as w:
            await w.lead(1)
            partition = w.partition(1)
            committed = IsolationLevel.READ_COMMITTED
            partition.append_records_to_leader(data_batch(b"a", producer=(7, 0, 0), transactional=True), 1)
            assert partition.read_records(0, MAX, isolation=committed).records is None
            marker = marker_batch(7, 0, commit=False)
            partition.append_records_to_leader(marker, 1, origin=AppendOrigin.COORDINATOR)
            read = partition.read_records(0, MAX, isolation=committed)
            assert read.last_stable_offset == 2
            assert read.aborted is not None
            assert [(t.producer_id, t.first_offset) for t in read.aborted] == [(7, 0)]
            assert partition.read_records(2, MAX, isolation=committed).aborted == []
            assert partition.read_records(0, MAX).aborted is None

    run_virtual(test)


def test_a_second_read_for_the_same_request_acknowledges_nothing(tmp_path: Path) -> None:
    async def test(w: World, partition: Partition) -> None:
        w.produce(1, b"c")
        before = partition.followers[2].log_end_offset
        partition.read_records(3, MAX, replica_id=2, records_follower_state=False)
        assert partition.followers[2].log_end_offset == before == 2
        partition.read_records(3, MAX, replica_id=2, follower_log_start_offset=0)
        assert partition.followers[2].log_end_offset == 3
        assert w.log(1).high_watermark == 3

    led(tmp_path, test)


class WaitForEnd(DelayedOperation):
    """Done when a partition's high watermark has reached an offset, or it is led no more."""

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


def test_a_followers_fetch_wakes_who_waits_for_acks(tmp_path: Path) -> None:
    async def test(w: World, partition: Partition) -> None:
        end = w.produce(1, b"c", acks=-1)
        waiting = WaitForEnd(partition, end)
        w.brokers[1].replica_manager.delayed_produce.try_complete_else_watch(waiting, [TP])
        w.cut.clear()
        assert await waiting.done == (True, ErrorCode.NONE)

    led(tmp_path, test)


def test_lost_leadership_wakes_who_waits_for_acks(tmp_path: Path) -> None:
    async def test(w: World, partition: Partition) -> None:
        waiting = WaitForEnd(partition, w.produce(1, b"c", acks=-1))
        w.brokers[1].replica_manager.delayed_produce.try_complete_else_watch(waiting, [TP])
        await w.lead(2)
        assert await waiting.done == (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    led(tmp_path, test)


def test_an_isr_that_shrinks_wakes_who_waits_for_acks(tmp_path: Path) -> None:
    async def test(w: World, partition: Partition) -> None:
        waiting = WaitForEnd(partition, w.produce(1, b"c", acks=-1))
        w.brokers[1].replica_manager.delayed_produce.try_complete_else_watch(waiting, [TP])
        assert await waiting.done == (True, ErrorCode.NONE)
        assert w.states[TP].isr == (1,)

    led(tmp_path, test)


def test_preferred_read_replicas_are_in_sync_have_the_offset_and_are_near(tmp_path: Path) -> None:
    async def test(w: World, partition: Partition) -> None:
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

    led(tmp_path, test)
