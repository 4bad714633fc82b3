"""Produce on real logs: who waits, what is flushed first, and what each client gets as an answer (E6, KIP-951)."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from event_loop import in_event_loop
from log_folders import data_batch
from replicated_brokers import TOPIC_ID, TP, World, world
from virtual_time import in_virtual_time

from engine.broker.handlers.fetch import fetch
from engine.broker.handlers.produce import produce
from engine.broker.handlers.produce_checks import checked_records
from engine.broker.handlers.registry import all_handlers
from engine.broker.network.request import CLOSE_CONNECTION, NO_RESPONSE, Deferred
from engine.broker.replication.roles import make_nothing
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import LEADER_DURING_DELETE, NO_LEADER, TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.layout import ATTRIBUTES, CONTROL_BIT, MAGIC
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record
from engine.runtime.offload import Offloader
from engine.runtime.turns import Turns


def request(*values: bytes, acks: int = 1, timeout_ms: int = 1000, records: bytes | None = None) -> ProduceRequest:
    batch = data_batch(*values) if records is None else records
    data = PartitionProduceData(index=TP.partition, records=memoryview(bytearray(batch)))
    topic = TopicProduceData(name=TP.topic, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def ask(w: World, broker_id: int, asked: ProduceRequest, version: int = 11) -> Any:
    return produce(w.brokers[broker_id].context(ApiKey.PRODUCE, version), asked)


def only(response: Any) -> PartitionProduceResponse:
    assert isinstance(response, ProduceResponse), response
    return response.responses[0].partition_responses[0]


@in_virtual_time
async def test_who_has_just_stopped_leading_names_its_successor(tmp_path: Path) -> None:
    """The controller tells the replicas before it tells everybody (KIP-951, as Kafka 3.9.1); the newer word counts."""
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1, replicas=(1, 2))
        cache, for_everybody = w.brokers[1].metadata_cache, w.update_metadata()
        await w.lead(2)
        cache.update(for_everybody, 1)
        answers = [ask(w, 1, request(b"a")), stale_fetch(w)]
        w.states[TP] = replace(w.states[TP], leader_epoch=5)
        cache.update(w.update_metadata(), 2)
        answers += [ask(w, 1, request(b"a")), stale_fetch(w)]
        for answer, epoch in zip(answers, (1, 1, 5, 5), strict=True):
            topic = answer.responses[0]
            response = (topic.partition_responses if isinstance(answer, ProduceResponse) else topic.partitions)[0]
            assert response.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
            assert (response.current_leader.leader_id, response.current_leader.leader_epoch) == (2, epoch)
            assert [node.node_id for node in answer.node_endpoints] == [2]


@in_virtual_time
async def test_of_a_partition_without_a_leader_the_epoch_is_told(tmp_path: Path) -> None:
    """As Kafka 3.9.1 answered on three brokers, one of which was dead."""
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1, replicas=(1,))
        w.states[TP] = replace(w.states[TP], leader=NO_LEADER, leader_epoch=3)
        w.brokers[2].metadata_cache.update(w.update_metadata(), 2)
        answer = ask(w, 2, request(b"a"))
        outcome = only(answer)
        assert outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert outcome.current_leader is not None
        assert (outcome.current_leader.leader_id, outcome.current_leader.leader_epoch) == (NO_LEADER, 3)
        assert answer.node_endpoints == []


@pytest.mark.parametrize("acks", [-1, 0, 1, 7])
@in_virtual_time
async def test_a_deleted_topic_takes_no_records_while_its_replica_is_still_here(tmp_path: Path, acks: int) -> None:
    """As Kafka 3.9.1, which looks at the metadata first: all brokers hear of a deletion before the replicas stop."""
    async with world(tmp_path, 1) as w:
        await w.lead(1, replicas=(1,))
        w.states[TP] = replace(w.states[TP], leader=LEADER_DURING_DELETE)
        w.brokers[1].metadata_cache.update(w.update_metadata(), 2)
        answer = ask(w, 1, request(b"a", acks=acks))
        if acks == 0:
            assert answer is CLOSE_CONNECTION
        else:
            assert only(answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert w.log(1).log_end_offset == 0


@pytest.mark.parametrize("fate", ["moved", "moved away", "deleted", "disk"])
@in_virtual_time
async def test_who_waits_is_told_why_nobody_leads_here_any_more(tmp_path: Path, fate: str) -> None:
    """As Kafka 3.9.1 (DelayedProduce, getPartitionOrError): what a new request would be told, with the new leader."""
    async with world(tmp_path, 1, 2, 3) as w:
        await w.lead(1, replicas=(1, 3), isr=(1, 3))
        w.cut |= {frozenset((1, 3))}
        waiting = ask(w, 1, request(b"a", acks=-1, timeout_ms=60_000))
        manager, partition = w.brokers[1].replica_manager, w.partition(1)
        if fate == "moved":
            await w.lead(3)
        elif fate == "disk":
            manager.mark_offline(TP)
        else:
            leader = LEADER_DURING_DELETE if fate == "deleted" else 2
            w.states[TP] = replace(w.states[TP], leader=leader, leader_epoch=1)
            manager.update_metadata(w.update_metadata(), correlation_id=3)
            manager.partitions.pop(TP)
            make_nothing(partition)
        await asyncio.sleep(1)
        answer = only(waiting.response)
        named = None if answer.current_leader is None else answer.current_leader.leader_id
        assert (ErrorCode(answer.error_code).name, named) == {
            "moved": ("NOT_LEADER_OR_FOLLOWER", 3),
            "moved away": ("NOT_LEADER_OR_FOLLOWER", 2),
            "deleted": ("UNKNOWN_TOPIC_OR_PARTITION", None),
            "disk": ("KAFKA_STORAGE_ERROR", None),
        }[fate]
        assert [node.node_id for node in waiting.response.node_endpoints] == ([] if named is None else [named])


def stale_fetch(w: World) -> Any:
    """Ask broker 1 with the leader epoch in which it led."""
    wanted = FetchPartition(partition=TP.partition, current_leader_epoch=0, partition_max_bytes=1000)
    topic = FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])
    asked = FetchRequest(replica_id=-1, max_bytes=1000, session_epoch=-1, topics=[topic])
    return fetch(w.brokers[1].context(ApiKey.FETCH, 17), asked)


@in_virtual_time
async def test_acks_1_is_answered_after_the_local_append(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1, replicas=(1, 2))
        answer = only(ask(w, 1, request(b"a", b"b")))
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 0, 0)
        assert only(ask(w, 1, request(b"c"))).base_offset == 2


@in_virtual_time
async def test_a_log_that_refuses_records_tells_where_it_begins(tmp_path: Path) -> None:
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        assert only(ask(w, 1, request(b"a", b"b"))).error_code == 0
        log = w.partition(1).leader_log
        assert log is not None
        log.update_high_watermark(2)
        log.increment_log_start_offset(1)
        control = bytearray(data_batch(b"c"))
        control[ATTRIBUTES + 1] |= CONTROL_BIT
        stamp_crc(control, 0, len(control))
        refused = only(ask(w, 1, request(records=bytes(control))))
        assert (refused.error_code, refused.log_start_offset) == (ErrorCode.INVALID_RECORD, 1)
        damaged = bytearray(data_batch(b"c"))
        damaged[-1] ^= 1
        refused = only(ask(w, 1, request(records=bytes(damaged))))
        assert (refused.error_code, refused.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


@pytest.mark.parametrize(
    ("magic", "code"), [(0, ErrorCode.INVALID_RECORD), (1, ErrorCode.INVALID_RECORD), (3, ErrorCode.CORRUPT_MESSAGE)]
)
@in_virtual_time
async def test_formats_that_a_version_does_not_carry(tmp_path: Path, magic: int, code: ErrorCode) -> None:
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        batch = bytearray(data_batch(b"a"))
        batch[MAGIC] = magic
        assert only(ask(w, 1, request(records=bytes(batch)))).error_code == code


@in_virtual_time
async def test_acks_all_waits_for_the_isr_and_is_answered_when_it_has_the_batch(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1, replicas=(1, 2))
        answer = ask(w, 1, request(b"a", acks=-1, timeout_ms=30_000))
        assert isinstance(answer, Deferred)
        assert not answer.is_complete
        await w.until(lambda: answer.is_complete, "the follower has the batch")
        assert only(answer.response).error_code == 0


@in_virtual_time
async def test_acks_all_times_out_where_a_member_of_the_isr_does_not_follow(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1, replicas=(1, 2))
        w.cut.add(frozenset((1, 2)))
        answer = ask(w, 1, request(b"a", acks=-1, timeout_ms=500))
        await w.until(lambda: answer.is_complete, "the time is over")
        outcome = only(answer.response)
        assert (outcome.error_code, outcome.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert outcome.log_start_offset == 0


@pytest.mark.parametrize(("acks", "expected"), [(0, CLOSE_CONNECTION), (1, None)])
@in_virtual_time
async def test_a_broker_that_does_not_lead_says_who_does(tmp_path: Path, acks: int, expected: object) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1, replicas=(1, 2))
        answer = ask(w, 2, request(b"a", acks=acks))
        topics = w.brokers[2].replica_manager.environment.topics
        assert topics.produce_errors == {ErrorCode.NOT_LEADER_OR_FOLLOWER: 1}, "also if no answer tells of it"
        if expected is not None:
            assert answer is expected
            return
        outcome = only(answer)
        assert outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert outcome.current_leader is not None
        assert outcome.current_leader.leader_id == 1
        assert [node.node_id for node in answer.node_endpoints] == [1]
        assert only(ask(w, 2, request(b"a"), version=9)).current_leader is None


@in_virtual_time
async def test_acks_0_has_no_answer_and_senseless_acks_are_refused(tmp_path: Path) -> None:
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        assert ask(w, 1, request(b"a", acks=0)) is NO_RESPONSE
        topics = w.partition(1).environment.topics
        assert (topics.produced, topics.of(TP.topic).produces) == (0, 1), "no answer calls it a success"
        assert only(ask(w, 1, request(b"a", acks=2))).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert w.log(1).log_end_offset == 1


ZSTD = encode_batch([Record(value=b"a")], codec=Codec.ZSTD)
OLD = encode_message_set([Record(value=b"a")], 1)
GOOD = data_batch(b"a")


@pytest.mark.parametrize(
    ("version", "records"), [(0, OLD), (2, OLD), (2, GOOD), (2, b""), (3, GOOD), (7, ZSTD), (12, ZSTD)]
)
def test_what_a_version_may_carry(version: int, records: bytes) -> None:
    assert checked_records(memoryview(records), version) == records


@pytest.mark.parametrize(
    ("version", "records", "code"),
    [
        (3, OLD, ErrorCode.INVALID_RECORD),
        (3, b"", ErrorCode.INVALID_RECORD),
        (9, b"short", ErrorCode.INVALID_RECORD),
        (3, ZSTD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (6, ZSTD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_what_a_version_may_not_carry(version: int, records: bytes, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        checked_records(memoryview(records), version)
    assert refused.value.code is code


@in_virtual_time
async def test_what_a_version_may_not_carry_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        old = bytearray(data_batch(b"a"))
        old[16] = 1
        assert only(ask(w, 1, request(records=bytes(old)))).error_code == ErrorCode.INVALID_RECORD
        assert only(ask(w, 1, request(records=b""))).error_code == ErrorCode.INVALID_RECORD
        zstd = bytearray(data_batch(b"a"))
        zstd[22] |= 4
        refused = only(ask(w, 1, request(records=bytes(zstd)), version=6))
        assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert w.log(1).log_end_offset == 0


@in_event_loop
async def test_flush_messages_has_the_records_on_the_disk_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real_fsync = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real_fsync(fd)

    async def check() -> None:
        async with world(tmp_path, 1, log_config=LogConfig(flush_messages=2)) as w:
            w.brokers[1].offloader = Offloader(1)  # type: ignore[attr-defined]
            await w.lead(1)
            assert only(ask(w, 1, request(b"a"))).error_code == 0
            assert w.log(1).recovery_point == 0
            assert not any(path.endswith(".log") for path in synced)
            answer = ask(w, 1, request(b"b"))
            assert asyncio.iscoroutine(answer)
            assert only(await answer).base_offset == 1
            assert any(path.endswith(".log") for path in synced)
            assert w.log(1).recovery_point == 2
            w.brokers[1].offloader.close()  # type: ignore[attr-defined]

    monkeypatch.setattr(os, "fsync", fsync)
    await check()


def mixed(*parts: tuple[str, int, bytes | memoryview], acks: int = 1) -> ProduceRequest:
    """Return a request for topics and partitions in the given order, each under an entry of its own."""
    topics = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=index, records=memoryview(bytearray(records)))]
        )
        for name, index, records in parts
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def told(response: Any) -> list[tuple[str, int, int, int]]:
    """Return topic, partition, error and base offset of every answer."""
    return [
        (topic.name, partition.index, partition.error_code, partition.base_offset)
        for topic in response.responses
        for partition in topic.partition_responses
    ]


OLD = bytearray(data_batch(b"old"))
OLD[MAGIC] = 1


@pytest.mark.parametrize(
    ("first", "second", "answer", "values"),
    [
        (data_batch(b"a"), data_batch(b"b"), (0, 0), 1),
        (data_batch(b"a"), OLD, (ErrorCode.INVALID_RECORD, -1), 1),
        (OLD, data_batch(b"b"), (ErrorCode.INVALID_RECORD, -1), 1),
        (OLD, OLD, (ErrorCode.INVALID_RECORD, -1), 0),
    ],
    ids=["good good", "good bad", "bad good", "bad bad"],
)
@in_virtual_time
async def test_of_records_for_one_partition_the_last_are_taken_and_answered_once(
    tmp_path: Path, first: memoryview, second: memoryview, answer: tuple[int, int], values: int
) -> None:
    """Kafka keeps maps by partition. The map of refused partitions has precedence."""
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        response = ask(w, 1, mixed((TP.topic, 0, first), (TP.topic, 0, second)))
        assert told(response) == [(TP.topic, 0, *answer)]
        assert w.log(1).log_end_offset == values
        assert (b"b" in w.log_bytes(1)) == (values == 1 and bytes(second) != bytes(OLD))


def changed_at(position: int, value: int) -> bytearray:
    records = bytearray(data_batch(b"x"))
    records[position] = value
    return records


@pytest.mark.parametrize(
    ("spoiler", "code"),
    [
        (data_batch(b"x", transactional=True), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (changed_at(MAGIC, 3), ErrorCode.CORRUPT_MESSAGE),
        (changed_at(MAGIC, 255), ErrorCode.CORRUPT_MESSAGE),
        (changed_at(11, 13), ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["transactional", "magic 3", "magic -1", "length 13"],
)
@pytest.mark.parametrize("acks", [0, 1])
@in_virtual_time
async def test_one_senseless_batch_spoils_the_whole_request(
    tmp_path: Path, spoiler: memoryview, code: ErrorCode, acks: int
) -> None:
    """Nothing is written. Even a topic that does not exist gets this error."""
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        named = [("nosuch", 0), (TP.topic, 0), (TP.topic, 1)]
        parts = [(*where, data_batch(b"a") if n < 2 else spoiler) for n, where in enumerate(named)]
        response = ask(w, 1, mixed(*parts, acks=acks))
        if acks:
            assert sorted(told(response)) == [
                ("nosuch", 0, code, -1),
                (TP.topic, 0, code, -1),
                (TP.topic, 1, code, -1),
            ]
        else:
            assert response is CLOSE_CONNECTION
        assert w.log(1).log_end_offset == 0


@in_virtual_time
async def test_senseless_acks_are_told_where_there_is_nothing_else_to_find_fault_with(tmp_path: Path) -> None:
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        parts = ((TP.topic, 0, data_batch(b"a")), ("nosuch", 0, data_batch(b"a")))
        assert [partition[2] for partition in told(ask(w, 1, mixed(*parts, acks=2)))] == [
            ErrorCode.INVALID_REQUIRED_ACKS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert only(ask(w, 1, mixed((TP.topic, 0, OLD), acks=-2))).error_code == ErrorCode.INVALID_RECORD


GOOD = data_batch(b"a")
REQUESTS = {
    "good and unknown": [(TP.topic, 0, GOOD), ("nosuch", 0, GOOD), (TP.topic, 1, GOOD), (TP.topic, 2, GOOD)],
    "twice": [(TP.topic, 0, GOOD), (TP.topic, 1, OLD), (TP.topic, 0, OLD), (TP.topic, 1, GOOD), (TP.topic, 2, OLD)],
    "spoiled": [(TP.topic, 0, GOOD), (TP.topic, 1, GOOD), (TP.topic, 2, data_batch(b"x", transactional=True))],
    "damaged": [(TP.topic, 0, changed_at(-1, 0)), (TP.topic, 1, GOOD)],
}


@pytest.mark.parametrize("acks", [0, 1, -1, 2])
@pytest.mark.parametrize("asked", list(REQUESTS))
@in_virtual_time
async def test_what_is_taken_in_turns_is_stored_and_answered_as_what_is_taken_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, acks: int
) -> None:
    """Above some thousand partitions a request is handled in turns with other work. Here each partition is a turn."""
    monkeypatch.setattr("engine.broker.handlers.in_turns.AT_ONCE_MAX", 1)
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)

    async def outcome_of(handler: Any, folder: Path) -> tuple[object, list[int]]:
        folder.mkdir()
        async with world(folder, 1, 2) as w:
            partitions = [TopicPartition(TP.topic, index) for index in range(3)]
            for partition in partitions:
                await w.lead(1, replicas=(1, 2), topic_partition=partition)
            answer = handler(w.brokers[1].context(ApiKey.PRODUCE, 11), mixed(*REQUESTS[asked], acks=acks))
            if asyncio.iscoroutine(answer):
                answer = await answer
            if isinstance(answer, Deferred):
                await w.until(lambda: answer.is_complete, "the followers have the batches")
                answer = answer.response
            ends = [w.log(1, partition).log_end_offset for partition in partitions]
            return (sorted(told(answer)) if isinstance(answer, ProduceResponse) else answer), ends

    at_once = await outcome_of(produce, tmp_path / "at once")
    assert await outcome_of(all_handlers()[ApiKey.PRODUCE].large_handler, tmp_path / "in turns") == at_once


@in_virtual_time
async def test_very_many_refusals_are_completed_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting errors and naming leaders held the loop for 200 ms with 200,000 refused partitions."""
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    taken, wait = [], Turns.wait

    async def counted(turns: Turns) -> None:
        taken.append(turns)
        await wait(turns)

    monkeypatch.setattr(Turns, "wait", counted)
    async with world(tmp_path, 1) as w:
        parts = [PartitionProduceData(index=index, records=memoryview(GOOD)) for index in range(50)]
        asked = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="nosuch", partition_data=parts)])
        context = w.brokers[1].context(ApiKey.PRODUCE, 11)
        answer = await all_handlers()[ApiKey.PRODUCE].large_handler(context, asked)
        assert {partition[2] for partition in told(answer)} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert len(taken) >= 2 * len(parts), "one to refuse each, and one to complete it"


@in_virtual_time
async def test_an_answer_names_a_limited_number_of_refused_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.broker.handlers.produce.RECORD_ERRORS_MAX", 5)
    batch = data_batch(b"a", b"b", key=None)
    async with world(tmp_path, 1, log_config=LogConfig(cleanup_policy=("compact",))) as w:
        for index in range(4):
            await w.lead(1, topic_partition=TopicPartition(TP.topic, index))
        response = ask(w, 1, mixed(*((TP.topic, index, batch) for index in range(4))))
        if asyncio.iscoroutine(response):
            response = await response
        answers = [answer for topic in response.responses for answer in topic.partition_responses]
        assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_RECORD] * 4
        assert [len(answer.record_errors) for answer in answers] == [2, 2, 0, 0]
