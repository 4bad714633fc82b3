"""``flush.messages``: whoever hears of a record may rely on the disks that the answer stands for."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from event_loop import in_event_loop
from log_folders import data_batch, run_due
from replicated_brokers import TP, World, world
from virtual_time import in_virtual_time

from engine.broker.handlers.produce import produce
from engine.broker.network.request import CLOSE_CONNECTION, Deferred
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from engine.runtime.offload import Offloader

SECOND = TopicPartition(TP.topic, 1)
EVERY_RECORD = LogConfig(flush_messages=1)


async def ask(w: World, value: bytes, *partitions: int, acks: int = 1, timeout_ms: int = 60_000) -> Any:
    """Produce a record to each partition of a broker; return the answer, or the future it still waits for."""
    data = [PartitionProduceData(index=n, records=data_batch(value)) for n in partitions or (TP.partition,)]
    topic = TopicProduceData(name=TP.topic, partition_data=data)
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
    answer = produce(w.brokers[1].context(ApiKey.PRODUCE, 9), request)
    return await answer if asyncio.iscoroutine(answer) else answer


def parts(answer: Any) -> list[PartitionProduceResponse]:
    if isinstance(answer, Deferred):
        answer = answer.response
    responses: list[PartitionProduceResponse] = answer.responses[0].partition_responses
    return responses


class Disk:
    """Notes what is synced. A folder may be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        self.broken: str | None = None
        self.threads: set[str] = set()
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _fsync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        self.synced.append(path)
        self.threads.add(threading.current_thread().name)
        if self.broken is not None and self.broken in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class Gate:
    """Holds a broker's disk work back until the gate is opened, at the latest when the test leaves it."""

    def __init__(self, w: World, broker_id: int) -> None:
        self.asked = 0
        self.may_pass = asyncio.Event()
        w.brokers[broker_id].replica_manager._run_slow = self._run

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.may_pass.set()

    async def _run(self, work: Callable[[], Any]) -> Any:
        self.asked += 1
        await self.may_pass.wait()
        return work()


@pytest.mark.parametrize("acks", [0, 1, -1])
@in_virtual_time
async def test_a_flush_that_fails_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int) -> None:
    disk = Disk(monkeypatch)
    async with world(tmp_path, 1, log_config=EVERY_RECORD, dirs_per_broker=2) as w:
        await w.lead(1)
        await w.lead(1, topic_partition=SECOND)
        bad, good = w.log(1), w.log(1, SECOND)
        assert bad.log_dir != good.log_dir
        disk.broken = str(bad.log_dir)
        answer = await ask(w, b"a", 0, 1, acks=acks)
        assert w.brokers[1].failed_dirs == [bad.log_dir]
        # Kafka flushes inside the append: it counts neither records nor a success, and an expected error is no failure.
        topics = w.brokers[1].replica_manager.environment.topics
        topics.fold()
        counts = topics.of(TP.topic)
        assert (counts.produces, counts.messages_in, counts.bytes_in) == (2, 1, len(data_batch(b"a")))
        assert counts.failed_produces == 0
        assert topics.produce_errors == {ErrorCode.KAFKA_STORAGE_ERROR: 1}
        assert topics.produced == (1 if acks else 0)
        if acks == 0:
            assert answer is CLOSE_CONNECTION
            return
        first, second = parts(answer)
        assert (first.error_code, first.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert first.log_start_offset == first.log_append_time_ms == -1
        assert (second.error_code, second.base_offset) == (ErrorCode.NONE, 0)


@in_virtual_time
async def test_a_flush_that_fails_is_answered_before_the_followers_are_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with world(tmp_path, 1, 2, log_config=EVERY_RECORD) as w:
        await w.lead(1)
        w.cut.add(frozenset((1, 2)))
        disk.broken = "broker-1"
        (answer,) = parts(await asyncio.wait_for(ask(w, b"a", acks=-1), 1))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@in_virtual_time
async def test_one_append_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow disk three syncs would take three times as long."""
    disk = Disk(monkeypatch)
    async with world(tmp_path, 1, log_config=EVERY_RECORD) as w:
        await w.lead(1)
        await ask(w, b"the first one makes files")
        disk.synced.clear()
        (answer,) = parts(await ask(w, b"a"))
        run_due(w.brokers[1].log_manager)
        assert answer.error_code == ErrorCode.NONE
        assert [Path(path).suffix for path in disk.synced] == [".log"]
        assert w.log(1).recovery_point == 2


@in_event_loop
async def test_the_disk_is_waited_for_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    async with world(tmp_path, 1, log_config=EVERY_RECORD) as w:
        await w.lead(1)
        offloader = Offloader(1)
        w.brokers[1].replica_manager._run_slow = offloader.run
        disk.threads.clear()
        (answer,) = parts(await ask(w, b"a"))
        assert answer.error_code == ErrorCode.NONE
        assert disk.threads and threading.main_thread().name not in disk.threads
        offloader.close()


@in_virtual_time
async def test_appends_share_a_flush_that_begins_after_them(tmp_path: Path) -> None:
    async with world(tmp_path, 1, log_config=EVERY_RECORD) as w:
        await w.lead(1)
        with Gate(w, 1) as gate:
            asked = [asyncio.ensure_future(ask(w, b"first"))]
            await w.until(lambda: gate.asked == 1, "the first flush is under way")
            asked += [asyncio.ensure_future(ask(w, b"later")) for _ in range(5)]
            await w.until(lambda: w.log(1).log_end_offset == 6, "all are written")
            done_at: list[int] = []
            for request in asked:
                request.add_done_callback(lambda _: done_at.append(w.log(1).recovery_point))
            gate.may_pass.set()
            answers = [parts(answer)[0] for answer in await asyncio.gather(*asked)]
            assert [answer.error_code for answer in answers] == [0] * 6
            assert gate.asked == 2
            assert sorted(done_at)[1:] == [6] * 5


@in_virtual_time
async def test_every_member_of_the_isr_has_the_record_on_its_disk(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2, log_config=EVERY_RECORD) as w:
        await w.lead(1)
        with Gate(w, 2) as gate:
            answer = await ask(w, b"a", acks=-1)
            await w.until(lambda: w.log(2).log_end_offset == 1, "the follower has the record")
            await w.let_pass(5_000)
            assert isinstance(answer, Deferred)
            assert (answer.is_complete, w.log(2).recovery_point) == (False, 0)
            gate.may_pass.set()
            await w.until(lambda: answer.is_complete, "the follower confirms")
            assert (parts(answer)[0].error_code, w.log(2).recovery_point) == (ErrorCode.NONE, 1)


@in_virtual_time
async def test_a_follower_whose_disk_fails_confirms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    async with world(tmp_path, 1, 2, log_config=EVERY_RECORD) as w:
        await w.lead(1)
        disk.broken = "broker-2"
        answer = await ask(w, b"a", acks=-1, timeout_ms=2_000)
        await w.until(lambda: answer.is_complete, "the time is over")
        assert parts(answer)[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert w.partition(1).followers[2].log_end_offset == 0
        assert w.brokers[2].failed_dirs


@in_virtual_time
async def test_a_follower_confirms_only_what_is_flushed_after_a_new_leader_is_named_too(tmp_path: Path) -> None:
    """Its fetching starts over at the log's end while the flush is running."""
    async with world(tmp_path, 1, 2, 3, log_config=EVERY_RECORD) as w:
        await w.lead(1)
        with Gate(w, 2) as gate:
            w.produce(1, b"a")
            await w.until(lambda: w.log(2).log_end_offset == 1, "the follower has the record")
            await w.until(lambda: w.log(3).log_end_offset == 1, "the next leader has it too")
            await w.lead(3)
            await w.let_pass(3_000)
            assert w.partition(3).followers[2].log_end_offset < 1
            gate.may_pass.set()
            await w.until(lambda: w.partition(3).followers[2].log_end_offset == 1, "the follower confirms")


def cut(w: World) -> None:
    w.log(1).truncate_to(0)


def delete(w: World) -> None:
    w.brokers[1].log_manager.delete(TP)


@pytest.mark.parametrize("end", [cut, delete])
@in_virtual_time
async def test_records_that_are_cut_off_or_deleted_are_waited_for_no_more(
    tmp_path: Path, end: Callable[[World], None]
) -> None:
    async with world(tmp_path, 1, log_config=EVERY_RECORD) as w:
        await w.lead(1)
        with Gate(w, 1) as gate:
            asked = [asyncio.ensure_future(ask(w, b"a"))]
            await w.until(lambda: gate.asked == 1, "the flush is under way")
            asked.append(asyncio.ensure_future(ask(w, b"b")))
            await w.until(lambda: w.log(1).log_end_offset == 2, "both are written")
            end(w)
            gate.may_pass.set()
            answers = await asyncio.wait_for(asyncio.gather(*asked), 10)
            assert [parts(answer)[0].error_code for answer in answers] == [ErrorCode.NONE] * 2
