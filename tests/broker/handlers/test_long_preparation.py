"""Produce of records that must be unpacked: large ones are unpacked in a thread, and nothing else changes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from event_loop import staged
from log_folders import data_batch
from replicated_brokers import TP, World, world
from virtual_time import in_virtual_time, run_virtual

from engine.broker.handlers.produce import produce
from engine.broker.network.request import CLOSE_CONNECTION, NO_RESPONSE, Deferred
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
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record

SECOND = TopicPartition(TP.topic, 1)
MANY = [b"value %d" % n for n in range(2_000)]
RECOMPRESSING = LogConfig(compression_type="lz4")
COMPACTED = LogConfig(cleanup_policy=("compact",))


def led(test: Callable[[World, list[str]], Awaitable[None]], config: LogConfig, *, tmp_path: Path) -> None:
    """Run a test on a broker that is the only replica. The list collects the names of functions that run in threads."""

    async def run() -> None:
        async with world(tmp_path, 1, log_config=config) as w:
            for topic_partition in (TP, SECOND):
                await w.lead(1, topic_partition=topic_partition)
            offloaded: list[str] = []

            async def note(work: Callable[..., Any], *arguments: Any) -> Any:
                offloaded.append(work.__qualname__)
                return work(*arguments)

            w.brokers[1].offloader.run = note
            await test(w, offloaded)

    run_virtual(run)


async def ask(w: World, *batches: Any, acks: int = 1, version: int = 9) -> Any:
    data = [PartitionProduceData(index=n, records=memoryview(bytearray(batch))) for n, batch in enumerate(batches)]
    topic = TopicProduceData(name=TP.topic, partition_data=data)
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])
    answer = produce(w.brokers[1].context(ApiKey.PRODUCE, version), request)
    # A handler's views of the request are valid only during the call.
    for each in data:
        assert isinstance(each.records, memoryview)
        each.records[:] = bytes(len(each.records))
    return await answer if inspect.iscoroutine(answer) else answer


def parts(answer: Any) -> list[PartitionProduceResponse]:
    responses: list[PartitionProduceResponse] = answer.responses[0].partition_responses
    return responses


def stored(w: World) -> bytes:
    log = w.partition(1).leader_log
    assert log is not None
    records = log.read(0, 10_000_000, limit_offset=log.log_end_offset, min_one_batch=True).records
    return b"" if records is None else records.read()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
@staged(led, RECOMPRESSING)
async def test_a_large_batch_is_recompressed_in_a_thread(w: World, offloaded: list[str], /, codec: Codec) -> None:
    (small,) = parts(await ask(w, data_batch(b"a", codec=codec)))
    assert (small.error_code, small.base_offset, offloaded) == (0, 0, [])
    large, after = parts(await ask(w, data_batch(*MANY, codec=codec), data_batch(b"z", codec=codec)))
    assert offloaded == ["Preparation.run"]
    assert (after.error_code, after.base_offset) == (0, 0)
    assert (large.error_code, large.base_offset, large.log_start_offset) == (0, 1, 0)
    data = stored(w)
    assert {header.codec for _, header in iter_batches(data)} == {Codec.LZ4}
    assert [(r.offset, r.value) for r in iter_records(data)] == list(enumerate([b"a", *MANY]))


@staged(led, RECOMPRESSING)
async def test_a_large_batch_in_the_topics_codec_needs_none(w: World, offloaded: list[str], /) -> None:
    (answer,) = parts(await ask(w, data_batch(*MANY, codec=Codec.LZ4)))
    assert (answer.error_code, answer.base_offset, offloaded) == (0, 0, [])


@staged(led, LogConfig(compression_type="lz4", message_timestamp_type="LogAppendTime"))
async def test_append_time_is_stamped_when_the_batch_is_appended(w: World, _: list[str], /) -> None:
    (answer,) = parts(await ask(w, data_batch(*MANY)))
    ((_, header),) = iter_batches(stored(w))
    assert (header.timestamp_type, header.codec) == (TimestampType.LOG_APPEND_TIME, Codec.LZ4)
    assert header.max_timestamp == answer.log_append_time_ms > 0


@staged(led, LogConfig())
async def test_old_message_sets(w: World, offloaded: list[str], /) -> None:
    records = [Record(n, 1_000 + n, b"k", value, []) for n, value in enumerate(MANY)]
    (answer,) = parts(await ask(w, encode_message_set(records, 1), version=2))
    assert (answer.error_code, answer.base_offset, offloaded) == (0, 0, ["Preparation.run"])
    assert [r.value for r in iter_records(stored(w))] == MANY


@staged(led, COMPACTED)
async def test_what_is_refused_in_the_thread_is_answered(w: World, offloaded: list[str], /) -> None:
    (answer,) = parts(await ask(w, data_batch(*MANY, key=None)))
    assert offloaded == ["Preparation.run"]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [error.batch_index for error in answer.record_errors][:3] == [0, 1, 2]
    assert (await ask(w, data_batch(*MANY, key=None), acks=0)) is CLOSE_CONNECTION
    assert (await ask(w, data_batch(*MANY), acks=0)) is NO_RESPONSE
    assert [r.value for r in iter_records(stored(w))] == MANY


@staged(led, COMPACTED)
async def test_a_producer_is_still_judged_in_the_order_of_its_requests(w: World, _: list[str], /) -> None:
    for sequence, offset in ((0, 0), (2_000, 2_000), (2_000, 2_000), (0, 0)):
        (answer,) = parts(await ask(w, data_batch(*MANY, producer=(7, 0, sequence))))
        assert (answer.error_code, answer.base_offset) == (0, offset)
    (gap,) = parts(await ask(w, data_batch(*MANY, producer=(7, 0, 9_000))))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@staged(led, RECOMPRESSING)
async def test_settings_and_leadership_that_change_meanwhile(w: World, _: list[str], /) -> None:
    broker, partition = w.brokers[1], w.partition(1)
    assert partition.leader_log is not None

    async def change(work: Callable[..., Any], *arguments: Any) -> Any:
        work(*arguments)
        partition.leader_log.update_config(LogConfig(compression_type="zstd"))

    broker.offloader.run = change
    (answer,) = parts(await ask(w, data_batch(*MANY)))
    assert answer.error_code == 0
    assert {header.codec for _, header in iter_batches(stored(w))} == {Codec.ZSTD}

    async def lose(work: Callable[..., Any], *arguments: Any) -> Any:
        work(*arguments)
        partition.leader_log, partition.leader_id = None, 2

    broker.offloader.run = lose
    (answer,) = parts(await ask(w, data_batch(*MANY), acks=-1))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@in_virtual_time
async def test_acks_all_waits_after_the_work_too(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2, log_config=RECOMPRESSING) as w:
        await w.lead(1, replicas=(1, 2))
        answer = await ask(w, data_batch(*MANY), acks=-1)
        assert isinstance(answer, Deferred)
        await w.until(lambda: answer.is_complete, "the follower has the batch")
        assert parts(answer.response)[0].error_code == 0
