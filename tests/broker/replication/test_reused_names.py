"""A topic is deleted and recreated within a moment: nothing late from the first one reaches the second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_folders import values_of, write_checkpoints
from replicated_brokers import NO_TOPIC_ID, TOPIC_ID, TP, World, world
from virtual_time import in_virtual_time

from engine.broker.replication.stop_replica_change import stop_replicas
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.formats.checkpoints import decode_offset_checkpoint
from engine.kafka.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState

OTHER_ID = bytes(reversed(TOPIC_ID))


async def deleted(w: World, broker_id: int) -> list[int]:
    """Delete the partition on a broker; return the errors it answers."""
    state = StopReplicaPartitionState(partition_index=TP.partition, leader_epoch=-2, delete_partition=True)
    topic = StopReplicaTopicState(topic_name=TP.topic, partition_states=[state])
    request = StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=[topic])
    answer = await stop_replicas(w.brokers[broker_id].replica_manager, request, correlation_id=3)
    return [error.error_code for error in answer.partition_errors]


async def make_anew(w: World, leader: int, topic_id: bytes = OTHER_ID) -> None:
    """Delete the topic everywhere and create another one with its name."""
    for broker_id in w.brokers:
        assert await deleted(w, broker_id) == [ErrorCode.NONE]
    del w.states[TP]
    w.topic_ids[TP.topic] = topic_id
    await w.lead(leader)


async def delete_records(w: World, *broker_ids: int) -> None:
    """Fill the partition, move its start to its end everywhere, and checkpoint that."""
    w.produce(1, *(b"old %d" % n for n in range(50)))
    await w.until_equal(*broker_ids)
    w.log(1).increment_log_start_offset(50)
    await w.until(lambda: all(w.log(b).log_start_offset == 50 for b in broker_ids), "all replicas have the new start")
    for broker_id in broker_ids:
        write_checkpoints(w.brokers[broker_id].log_manager)


def log_starts(w: World, broker_id: int) -> dict[Any, int]:
    path = w.brokers[broker_id].log_manager.live_dirs[0] / "log-start-offset-checkpoint"
    return decode_offset_checkpoint(path.read_text(), str(path))


@in_virtual_time
async def test_a_deletion_is_answered_when_the_checkpoints_are_on_the_disk(tmp_path: Path) -> None:
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        await delete_records(w, 1)
        assert log_starts(w, 1) == {TP: 50}
        may_write = asyncio.Event()

        async def slowly(work: Callable[[], Any]) -> Any:
            await may_write.wait()
            return work()

        w.brokers[1].replica_manager._run_slow = slowly
        answer = asyncio.ensure_future(deleted(w, 1))
        await w.let_pass(10_000)
        assert not answer.done()
        may_write.set()
        assert await answer == [ErrorCode.NONE]
        assert log_starts(w, 1) == {}


@in_virtual_time
async def test_a_deletion_that_cannot_be_noted_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path, 1, dirs_per_broker=2) as w:
        await w.lead(1)
        await delete_records(w, 1)
        log_dir = w.log(1).log_dir
        (log_dir / "log-start-offset-checkpoint").unlink()
        (log_dir / "log-start-offset-checkpoint" / "in the way").mkdir(parents=True)
        assert await deleted(w, 1) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert w.brokers[1].failed_dirs == [log_dir]


@in_virtual_time
async def test_both_brokers_are_killed_right_after_the_topic_was_made_anew(tmp_path: Path) -> None:
    """What both have acknowledged is on both."""
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        await delete_records(w, 1, 2)
        await make_anew(w, 1)
        w.produce(1, *(b"new %d" % n for n in range(20)), acks=-1)
        await w.until_equal(1, 2)
        for broker_id in (1, 2):
            await w.stop_broker(broker_id, cleanly=False)
        for broker_id in (1, 2):
            w.start_broker(broker_id)
        await w.lead(1)
        await w.until_equal(1, 2)
        for broker_id in (1, 2):
            assert values_of(w.log(broker_id)) == [(n, b"new %d" % n) for n in range(20)]


@pytest.mark.parametrize("topic_id", [OTHER_ID, NO_TOPIC_ID], ids=["topic ids", "no topic ids"])
@in_virtual_time
async def test_what_was_fetched_of_the_deleted_topic_is_thrown_away(tmp_path: Path, topic_id: bytes) -> None:
    """The answer comes when the new topic has the leader epoch and end that the old one had."""
    kept = TopicPartition("kept", 0)
    first_id = NO_TOPIC_ID if topic_id == NO_TOPIC_ID else TOPIC_ID
    async with world(tmp_path, 1, 2, topic_id=first_id) as w:
        w.topic_ids[kept.topic] = NO_TOPIC_ID if first_id == NO_TOPIC_ID else b"k" * 16
        await w.lead(1, topic_partition=kept)
        await w.lead(1)
        await w.lead(1)
        w.produce(1, b"old")
        await w.until_equal(1, 2)
        is_over = asyncio.Event()

        async def make_another() -> None:
            await make_anew(w, 2, topic_id)
            w.produce(2, b"new")
            await w.until_equal(1, 2)
            await w.lead(1)
            w.produce(1, b"newer")
            is_over.set()

        again: list[asyncio.Task[None]] = []

        async def hold(response: Any) -> None:
            has_records = any(p.records for topic in response.responses for p in topic.partitions)
            if has_records and not again:
                again.append(asyncio.ensure_future(make_another()))
                await is_over.wait()

        w.hold_answer = hold
        w.produce(1, b"old and late")
        await w.until(is_over.is_set, "the topic is created again under a fetch")
        await w.until_equal(1, 2)
        assert w.partition(2).leader_epoch == 1
        assert values_of(w.log(2)) == [(0, b"new"), (1, b"newer")]
