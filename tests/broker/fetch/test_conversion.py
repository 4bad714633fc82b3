"""Fetch 0-3: what old readers get from a log in format 2. The conversion never blocks the event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import pytest
from log_folders import data_batch, marker_batch
from replicated_brokers import TP, StandInBroker, World, world
from virtual_time import in_virtual_time

from engine.broker.fetch import conversion
from engine.broker.handlers.fetch import fetch
from engine.broker.log.append_origin import AppendOrigin
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from engine.kafka.protocol.records import convert
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.header import iter_batches
from engine.runtime.offload import Offloader


def asked(offset: int = 0, *, max_wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=TP.partition, fetch_offset=offset, partition_max_bytes=1_000_000)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1_000_000,
        topics=[FetchTopic(topic=TP.topic, partitions=[wanted])],
    )


async def answer(broker: StandInBroker, version: int, request: FetchRequest) -> PartitionData:
    """Return the only partition of an answer that must be ready at once."""
    response = fetch(broker.context(ApiKey.FETCH, version), request)
    if inspect.isawaitable(response):
        response = await response
    assert not isinstance(response, Deferred)
    data: PartitionData = response.responses[0].partitions[0]
    return data


def append(w: World, *values: bytes, codec: Codec = Codec.NONE) -> None:
    w.partition(1).append_records_to_leader(data_batch(*values, codec=codec), 1)


def big(folder: Path) -> Any:
    return world(folder, 1, log_config=LogConfig())


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
@in_virtual_time
async def test_an_old_reader_gets_the_old_format(tmp_path: Path, version: int, magic: int) -> None:
    async with big(tmp_path) as w:
        await w.lead(1)
        append(w, b"a", b"b")
        append(w, b"c", codec=Codec.GZIP)
        data = await answer(w.brokers[1], version, asked())
        records = bytes(data.records)
        assert {header.magic for _, header in iter_batches(records)} == {magic}
        assert [(r.offset, r.value) for r in iter_records(records)] == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert not inspect.isawaitable(fetch(w.brokers[1].context(ApiKey.FETCH, version), asked(3)))


@in_virtual_time
async def test_a_reader_that_waits_gets_it_converted_too(tmp_path: Path) -> None:
    async with big(tmp_path) as w:
        await w.lead(1)
        deferred = fetch(w.brokers[1].context(ApiKey.FETCH, 3), asked(max_wait_ms=10_000))
        assert isinstance(deferred, Deferred)
        append(w, b"late")
        await w.until(lambda: deferred.is_complete, "the answer is there")
        data = deferred.response.responses[0].partitions[0]
        assert [(r.offset, r.value) for r in iter_records(bytes(data.records))] == [(0, b"late")]


@in_virtual_time
async def test_a_conversion_ends_with_its_broker(tmp_path: Path) -> None:
    async with big(tmp_path) as w:
        await w.lead(1)
        begun, ended = asyncio.Event(), asyncio.Event()

        async def hold(*_: Any) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        w.brokers[1].offloader.run = hold
        fetch(w.brokers[1].context(ApiKey.FETCH, 3), asked(max_wait_ms=10_000))
        append(w, b"late")
        await begun.wait()
        await w.brokers[1].supervisor.stop()
        assert ended.is_set()


@in_virtual_time
async def test_batches_are_unpacked_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()

    def noted(*arguments: Any) -> bytes:
        threads.add(threading.get_ident())
        return convert.down_convert(*arguments)

    async with big(tmp_path) as w:
        await w.lead(1)
        append(w, bytes(20_000_000), codec=Codec.GZIP)
        monkeypatch.setattr(conversion, "down_convert", noted)
        offloader = w.brokers[1].offloader = Offloader(1)  # type: ignore[assignment]
        data = await answer(w.brokers[1], 3, asked())
        assert [len(r.value or b"") for r in iter_records(bytes(data.records))] == [20_000_000]
        assert threads and threading.get_ident() not in threads
        offloader.close()


@in_virtual_time
async def test_control_batches_do_not_end_an_answer(tmp_path: Path) -> None:
    async with big(tmp_path) as w:
        await w.lead(1)
        log = w.log(1)
        for _ in range(3):
            log.append_as_leader(marker_batch(5, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
        append(w, b"after")
        data = await answer(w.brokers[1], 2, asked())
        assert [(r.offset, r.value) for r in iter_records(bytes(data.records))] == [(3, b"after")]


@in_virtual_time
async def test_what_cannot_be_converted_is_an_error_of_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with big(tmp_path) as w:
        await w.lead(1)
        append(w, b"a", b"b", b"c")
        monkeypatch.setattr(convert, "DOWN_CONVERTED_RECORDS_MAX", 2)
        data = await answer(w.brokers[1], 3, asked())
        assert (data.error_code, bytes(data.records or b"")) == (ErrorCode.MESSAGE_TOO_LARGE, b"")

        def broken(*_: object) -> bytes:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(conversion, "read_fully", broken)
        assert (await answer(w.brokers[1], 3, asked())).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_readers_that_may_not_know_a_storage_error_are_told_to_look_for_the_leader(tmp_path: Path) -> None:
    """As in Kafka: such readers would take the storage error for a permanent one."""
    async with big(tmp_path) as w:
        await w.lead(1)
        failing = w.log(1).log_dir
        w.brokers[1].log_manager.fail_dir(failing, "the test pulled the disk", OSError(5, "I/O error"))
        w.brokers[1].replica_manager.handle_log_dir_failure(failing)
        codes = {version: (await answer(w.brokers[1], version, asked())).error_code for version in (0, 4, 5, 6, 11)}
        elsewhere, failed = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR
        assert codes == {0: elsewhere, 4: elsewhere, 5: elsewhere, 6: failed, 11: failed}


@in_virtual_time
async def test_an_answer_holds_one_portion_and_the_reader_asks_on(tmp_path: Path) -> None:
    async with big(tmp_path) as w:
        await w.lead(1)
        for n in range(12):
            append(w, bytes([65 + n]) * 30_000)
        offset = asks = 0
        while offset < 12:
            data = await answer(w.brokers[1], 2, asked(offset))
            offsets = [r.offset for r in iter_records(bytes(data.records))]
            assert offsets == list(range(offset, offset + len(offsets)))
            offset, asks = offset + len(offsets), asks + 1
        assert asks == 3
