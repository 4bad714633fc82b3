"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeLogDirs and DescribeProducers on real logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from event_loop import in_event_loop, staged
from log_folders import data_batch, marker_batch
from replicated_brokers import TP, StandInBroker, World, world
from virtual_time import in_virtual_time, run_virtual

from engine.broker.handlers.alter_replica_log_dirs import alter_replica_log_dirs
from engine.broker.handlers.delete_records import delete_records
from engine.broker.handlers.describe_log_dirs import describe_log_dirs
from engine.broker.handlers.describe_producers import describe_producers
from engine.broker.handlers.fetch import fetch
from engine.broker.handlers.leader_and_isr import leader_and_isr
from engine.broker.handlers.list_offsets import list_offsets
from engine.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from engine.broker.handlers.stop_replica import stop_replica
from engine.broker.handlers.update_metadata import update_metadata
from engine.broker.log.append_origin import AppendOrigin
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.common.model import LEADER_DURING_DELETE
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from engine.kafka.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from engine.kafka.protocol.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from engine.kafka.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from engine.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from engine.kafka.protocol.apis.stop_replica import StopReplicaRequest
from engine.kafka.protocol.apis.update_metadata import UpdateMetadataRequest

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def alone(test: Callable[[World, StandInBroker], Any], *, tmp_path: Path, **options: Any) -> None:
    """Run a test on a broker that is the only replica of the partition, in leader epoch 0."""

    async def run() -> None:
        async with world(tmp_path, 1, **options) as w:
            await w.lead(1)
            await test(w, w.brokers[1])

    run_virtual(run)


async def by_time(broker: StandInBroker, timestamp: int) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TP.topic, partitions=[wanted])])
    response: ListOffsetsResponse = await list_offsets(broker.context(ApiKey.LIST_OFFSETS, 9), request)
    return response.topics[0].partitions[0]


def at_once(answer: Coroutine[Any, Any, ListOffsetsResponse]) -> ListOffsetsResponse:
    """Return the answer of a handler that need not wait: these tests do not cover threads."""
    try:
        answer.send(None)
    except StopIteration as finished:
        response: ListOffsetsResponse = finished.value
        return response
    raise AssertionError("it waits")


def offset(
    broker: StandInBroker,
    timestamp: int,
    *,
    version: int = 9,
    replica_id: int = -1,
    isolation: int = 0,
    leader_epoch: int = -1,
    topic: str = TP.topic,
    max_num_offsets: int = 10,
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=leader_epoch, max_num_offsets=max_num_offsets
    )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
    )
    response = at_once(list_offsets(broker.context(ApiKey.LIST_OFFSETS, version), request))
    partition: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return partition


class TestListOffsets:
    @staged(alone, log_config=LogConfig(retention_ms=-1))
    async def test_by_reserved_timestamp_and_by_time(self, w: World, broker: StandInBroker, /) -> None:
        log = w.log(1)
        for timestamp_ms in (1000, 3000, 2000):
            partition = w.partition(1)
            partition.append_records_to_leader(data_batch(b"x", b"y", timestamp_ms=timestamp_ms), 1)
        assert (offset(broker, LATEST).offset, offset(broker, LATEST).leader_epoch) == (6, 0)
        assert offset(broker, EARLIEST).offset == 0
        offset_found = offset(broker, MAX_TIMESTAMP)
        assert (offset_found.offset, offset_found.timestamp) == (3, 3001)
        offset_found = offset(broker, 1500)
        assert (offset_found.offset, offset_found.timestamp, offset_found.leader_epoch) == (2, 3000, 0)
        assert (offset(broker, 9999).error_code, offset(broker, 9999).offset) == (0, -1)
        log.increment_log_start_offset(2)
        assert offset(broker, EARLIEST).offset == offset(broker, EARLIEST_LOCAL).offset == 2
        assert (offset(broker, LATEST_TIERED).offset, offset(broker, LATEST_TIERED).leader_epoch) == (-1, -1)

    @staged(alone, log_config=LogConfig(message_format_version="0.9.0"))
    async def test_records_without_times_are_not_searched_by_time(self, w: World, broker: StandInBroker, /) -> None:
        """Message format 0 has no times. Kafka 3.9.1 was asked: it refuses."""
        refused = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        for timestamp, error in ((LATEST, 0), (EARLIEST, 0), (MAX_TIMESTAMP, refused), (1500, refused)):
            assert offset(broker, timestamp).error_code == error

    @pytest.mark.parametrize(
        ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (-6, 99)]
    )
    @staged(alone)
    async def test_reserved_timestamps_of_later_versions_are_refused(
        self, w: World, broker: StandInBroker, /, timestamp: int, since: int
    ) -> None:
        w.produce(1, b"x")
        for version in range(10):
            is_refused = offset(broker, timestamp, version=version).error_code == ErrorCode.UNSUPPORTED_VERSION
            assert is_refused == (version < since)

    @staged(alone, log_config=LogConfig(segment_bytes=1000))
    async def test_version_0_lists_segments_newest_first(self, w: World, broker: StandInBroker, /) -> None:
        for _ in range(5):
            w.produce(1, b"x" * 700)
        assert offset(broker, LATEST, version=0).old_style_offsets == [5, 4, 3, 2, 1, 0]
        assert offset(broker, LATEST, version=0, max_num_offsets=1).old_style_offsets == [5]
        assert offset(broker, EARLIEST, version=0).old_style_offsets == [0]
        assert offset(broker, MAX_TIMESTAMP, version=0).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert offset(broker, LATEST, version=0, topic="nobody").error_code == 3

    @in_virtual_time
    async def test_version_0_is_cut_at_the_high_watermark_for_consumers(self, tmp_path: Path) -> None:
        async with world(tmp_path, 1, 2, log_config=LogConfig(segment_bytes=1000)) as w:
            await w.lead(1)
            w.cut.add(frozenset((1, 2)))
            for _ in range(3):
                w.produce(1, b"x" * 700)
            assert offset(w.brokers[1], LATEST, version=0).old_style_offsets == [0, 0]
            assert offset(w.brokers[1], LATEST, version=0, replica_id=2).old_style_offsets == [3, 2, 1, 0]

    @in_virtual_time
    async def test_who_may_see_how_far(self, tmp_path: Path) -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"x")
            await w.until_equal(2)
            batch = data_batch(b"open", producer=(5, 0, 0), transactional=True)
            w.partition(1).append_records_to_leader(batch, 1, origin=AppendOrigin.CLIENT)
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            w.produce(1, b"not replicated")
            leader, follower = w.brokers[1], w.brokers[2]
            assert offset(leader, LATEST).offset == 2
            assert offset(leader, LATEST, isolation=1).offset == 1
            assert offset(leader, LATEST, replica_id=2).offset == 3
            assert offset(follower, LATEST).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert offset(follower, LATEST, replica_id=-2).offset == 2
            assert offset(leader, LATEST, leader_epoch=0).offset == 2
            assert offset(leader, LATEST, leader_epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    @in_virtual_time
    async def test_after_an_election_nothing_is_taken_back(self, tmp_path: Path) -> None:
        async with world(tmp_path, 1, 2, 3) as w:
            await w.lead(1)
            w.produce(1, b"x")
            await w.until_equal(2, 3)
            w.cut.add(frozenset((1, 3)))
            w.partition(1).append_records_to_leader(data_batch(b"y", timestamp_ms=9000), 1)
            await w.until(lambda: w.log(2).log_end_offset == 2, "2 has it")
            w.cut |= {frozenset((1, 2)), frozenset((2, 3))}
            await w.lead(2)
            leader = w.brokers[2]
            assert w.log(2).high_watermark == 1
            assert offset(leader, LATEST).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            assert offset(leader, LATEST, version=4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
            assert offset(leader, 8000).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            assert offset(leader, EARLIEST).offset == 0
            assert offset(leader, LATEST, replica_id=3).offset == 2
            assert offset(leader, LATEST, leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
            w.cut.clear()
            await w.until_equal(1, 3)
            assert offset(leader, LATEST).offset == 2

    @staged(alone)
    async def test_records_are_searched_beside_the_loop_one_batch_at_a_time(
        self, w: World, broker: StandInBroker, /
    ) -> None:
        w.partition(1).append_records_to_leader(data_batch(b"x", b"y", timestamp_ms=1000), 1)
        searches: list[tuple[asyncio.Future[None], Callable[[], Any]]] = []

        async def hold(work: Callable[[], Any]) -> Any:
            may_go_on = asyncio.get_running_loop().create_future()
            searches.append((may_go_on, work))
            await may_go_on
            return work()

        broker.offloader.run = hold
        asked = [asyncio.create_task(by_time(broker, timestamp)) for timestamp in (1001, 1000, MAX_TIMESTAMP)]
        for count in (1, 2, 3):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert offset(broker, LATEST).offset == 2
            assert len(searches) == count
            searches[-1][0].set_result(None)
            await asyncio.sleep(1)
        assert [(await answer).offset for answer in asked] == [1, 0, 1]

    @staged(alone)
    async def test_what_was_found_counts_only_where_the_broker_still_leads(
        self, w: World, broker: StandInBroker, /
    ) -> None:
        partition = w.partition(1)
        partition.append_records_to_leader(data_batch(b"x", timestamp_ms=1000), 1)

        async def lose(work: Callable[[], Any]) -> Any:
            partition.leader_log = None
            return work()

        broker.offloader.run = lose
        assert (await by_time(broker, 1000)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    @staged(alone)
    async def test_a_partition_named_twice_is_refused(self, w: World, broker: StandInBroker, /) -> None:
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=LATEST) for _ in range(2)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TP.topic, partitions=partitions)])
        response = at_once(list_offsets(broker.context(ApiKey.LIST_OFFSETS, 9), request))
        assert [p.error_code for p in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


def end(broker: StandInBroker, epoch: int, *, current: int = -1, topic: str = TP.topic) -> tuple[int, int, int]:
    """Return (error, leader epoch, end offset)."""
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
    response = offset_for_leader_epoch(broker.context(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4), request)
    partition = response.topics[0].partitions[0]
    return partition.error_code, partition.leader_epoch, partition.end_offset


@in_virtual_time
async def test_only_leaders_say_where_epochs_end(tmp_path: Path) -> None:
    """Who cuts its log by a follower's answer may cut what is committed."""
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"a")
        await w.until_equal(2)
        assert end(w.brokers[1], 0) == (0, 0, 1)
        assert end(w.brokers[2], 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)


@staged(alone)
async def test_epochs_end_where_the_next_one_begins(w: World, broker: StandInBroker, /) -> None:
    w.produce(1, b"a", b"b")
    await w.lead(1)
    w.produce(1, b"c")
    assert end(broker, 0) == (0, 0, 2)
    assert end(broker, 1) == (0, 1, 3)
    assert end(broker, 2) == (0, -1, -1)
    assert end(broker, 1, current=1) == (0, 1, 3)
    assert end(broker, 1, current=0)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert end(broker, 1, current=2)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert end(broker, 1, topic="nobody")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def deleted(
    broker: StandInBroker, before: int, *, timeout_ms: int = 5000, topic: str = TP.topic
) -> tuple[int, int]:
    """Delete records; return (error, low watermark)."""
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(
        timeout_ms=timeout_ms, topics=[DeleteRecordsTopic(name=topic, partitions=[partition])]
    )
    answer = delete_records(broker.context(ApiKey.DELETE_RECORDS, 2), request)
    if isinstance(answer, Deferred):
        done = asyncio.get_running_loop().create_future()
        answer.on_complete(lambda: done.set_result(None))
        await done
        answer = answer.response
    assert isinstance(answer, DeleteRecordsResponse)
    result = answer.topics[0].partitions[0]
    return result.error_code, result.low_watermark


class TestDeleteRecords:
    @in_virtual_time
    async def test_the_start_moves_on_all_replicas(self, tmp_path: Path) -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"a", b"b", b"c")
            await w.until_equal(2)
            assert await deleted(w.brokers[1], 0) == (0, 0), "nothing"
            assert await deleted(w.brokers[1], 2) == (0, 2)
            assert w.log(1).log_start_offset == w.log(2).log_start_offset == 2
            assert await deleted(w.brokers[1], 1) == (0, 2), "never back"
            assert await deleted(w.brokers[1], -1) == (0, 3)

    @in_virtual_time
    async def test_a_follower_that_does_not_come_along_makes_it_time_out(self, tmp_path: Path) -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"a", b"b")
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            assert await deleted(w.brokers[1], 1, timeout_ms=300) == (ErrorCode.REQUEST_TIMED_OUT, 0)
            assert w.log(1).log_start_offset == 1
            w.alive.discard(2)
            w.brokers[1].replica_manager.update_metadata(w.update_metadata(), correlation_id=1)
            assert await deleted(w.brokers[1], 1) == (0, 1), "a dead broker is not waited for"

    @in_virtual_time
    async def test_leadership_lost_while_waiting(self, tmp_path: Path) -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"a", b"b")
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            waiting = asyncio.create_task(deleted(w.brokers[1], 1))
            await w.let_pass(10)
            await w.lead(2)
            assert await waiting == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    @pytest.mark.parametrize(
        ("before", "topic", "error"),
        [
            (3, TP.topic, ErrorCode.OFFSET_OUT_OF_RANGE),
            (-2, TP.topic, ErrorCode.OFFSET_OUT_OF_RANGE),
            (1, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (1, "__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    @staged(alone)
    async def test_what_is_refused(
        self, w: World, broker: StandInBroker, /, before: int, topic: str, error: ErrorCode
    ) -> None:
        w.produce(1, b"a", b"b")
        assert await deleted(broker, before, topic=topic) == (error, -1)

    @staged(alone)
    async def test_a_deleted_topic_is_unknown_while_its_replica_is_still_here(
        self, w: World, broker: StandInBroker, /
    ) -> None:
        """As Kafka 3.9.1, which looks at the metadata first."""
        w.produce(1, b"a", b"b")
        w.states[TP] = replace(w.states[TP], leader=LEADER_DURING_DELETE)
        broker.metadata_cache.update(w.update_metadata(), 2)
        assert await deleted(broker, 1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert w.log(1).log_start_offset == 0

    @staged(alone)
    async def test_an_internal_topic_that_exists_keeps_its_records(
        self, w: World, broker: StandInBroker, /, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(broker.metadata_cache), "check_has", lambda *_: None)
        assert await deleted(broker, 1, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)

    @staged(alone, log_config=LogConfig(cleanup_policy=("compact",)))
    async def test_a_compacted_topic_refuses_by_policy(self, w: World, broker: StandInBroker, /) -> None:
        w.produce(1, b"a")
        assert await deleted(broker, 1) == (ErrorCode.POLICY_VIOLATION, -1)


@in_event_loop
async def test_log_dirs_are_described_with_sizes_and_offline_ones_with_an_error(tmp_path: Path) -> None:
    async with world(tmp_path, 1, dirs_per_broker=2) as w:
        broker = w.brokers[1]
        await w.lead(1)
        w.produce(1, b"x" * 100)
        context = broker.context(ApiKey.DESCRIBE_LOG_DIRS, 4)
        response = await describe_log_dirs(context, DescribeLogDirsRequest(topics=None))
        first, second = response.results
        (topic,) = first.topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index, partition.offset_lag) == (TP.topic, 0, 0)
        assert partition.partition_size == len(w.log_bytes(1)) > 100
        assert not partition.is_future_key
        assert first.total_bytes >= first.usable_bytes > 0
        assert second.topics == []
        nothing = await describe_log_dirs(
            context, DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="other", partitions=[0])])
        )
        assert [result.topics for result in nothing.results] == [[], []]
        failing = broker.log_manager.live_dirs[1]
        broker.log_manager.fail_dir(failing, "the test pulled the disk", OSError(5, "I/O error"))
        response = await describe_log_dirs(context, DescribeLogDirsRequest(topics=None))
        assert {(r.log_dir, r.error_code) for r in response.results} == {
            (first.log_dir, 0),
            (str(failing), ErrorCode.KAFKA_STORAGE_ERROR),
        }


@in_event_loop
async def test_a_replica_moves_to_a_log_dir_that_is_named_as_it_is_described(tmp_path: Path) -> None:
    """As in Kafka, which compares the texts: a slash at the end is another dir."""
    async with world(tmp_path, 1, dirs_per_broker=2) as w:
        broker = w.brokers[1]
        await w.lead(1)
        w.produce(1, b"x")
        there = broker.log_manager.live_dirs[1]
        context = broker.context(ApiKey.ALTER_REPLICA_LOG_DIRS, 2)
        codes = []
        for path in (f"{there}/", f"{there.parent}//{there.name}", f"{there.parent}/./{there.name}", str(there)):
            topics = [AlterReplicaLogDirTopic(name=TP.topic, partitions=[0])]
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
            answer = await alter_replica_log_dirs(context, request)
            codes.append(answer.results[0].partitions[0].error_code)
        assert codes == [ErrorCode.LOG_DIR_NOT_FOUND] * 3 + [ErrorCode.NONE]


@staged(alone)
async def test_producers_are_described_with_their_open_transactions(w: World, broker: StandInBroker, /) -> None:
    partition = w.partition(1)
    partition.append_records_to_leader(data_batch(b"a", b"b", producer=(5, 1, 0)), 1)
    partition.append_records_to_leader(data_batch(b"c", producer=(6, 0, 0), transactional=True), 1)
    partition.append_records_to_leader(data_batch(b"d", producer=(7, 0, 0), transactional=True), 1)
    partition.append_records_to_leader(
        marker_batch(7, 0, commit=True, coordinator_epoch=3), 1, origin=AppendOrigin.COORDINATOR
    )
    topics = [TopicRequest(name=name, partition_indexes=[0]) for name in (TP.topic, "nobody", "bad name")]
    response = describe_producers(broker.context(ApiKey.DESCRIBE_PRODUCERS, 0), DescribeProducersRequest(topics=topics))
    described, unknown, invalid = (topic.partitions[0] for topic in response.topics)
    states = {p.producer_id: p for p in described.active_producers}
    assert (states[5].producer_epoch, states[5].last_sequence, states[5].current_txn_start_offset) == (1, 1, -1)
    assert states[6].current_txn_start_offset == 2
    assert (states[7].current_txn_start_offset, states[7].coordinator_epoch) == (-1, 3)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert invalid.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@staged(alone)
async def test_who_still_hears_of_a_deleted_topic_from_its_replica(w: World, broker: StandInBroker, /) -> None:
    """As Kafka 3.9.1: ListOffsets and OffsetForLeaderEpoch look for the replica, the others ask the metadata first."""
    w.produce(1, b"a", b"b")
    w.states[TP] = replace(w.states[TP], leader=LEADER_DURING_DELETE)
    broker.metadata_cache.update(w.update_metadata(), 2)
    asked = DescribeProducersRequest(topics=[TopicRequest(name=TP.topic, partition_indexes=[0])])
    described = describe_producers(broker.context(ApiKey.DESCRIBE_PRODUCERS, 0), asked)
    assert described.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wanted = FetchRequest(topics=[FetchTopic(topic=TP.topic, partitions=[FetchPartition(partition_max_bytes=1000)])])
    fetched: Any = fetch(broker.context(ApiKey.FETCH, 12), wanted)
    read = fetched.responses[0].partitions[0]
    assert (read.error_code, read.records) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")
    assert (offset(broker, LATEST).error_code, offset(broker, LATEST).offset) == (0, 2)
    assert end(broker, 0) == (0, 0, 2)


class TestBrokerEpochs:
    """A request for an earlier registration is not carried out; one for a later registration is accepted."""

    @pytest.mark.parametrize(
        ("broker_epoch", "error"), [(100, ErrorCode.STALE_BROKER_EPOCH), (101, 0), (102, 0), (-1, 0)]
    )
    @staged(alone)
    async def test_of_the_controllers_requests(
        self, w: World, broker: StandInBroker, /, broker_epoch: int, error: int
    ) -> None:
        epochs = {"controller_epoch": 1, "broker_epoch": broker_epoch}
        lisr = await leader_and_isr(broker.context(ApiKey.LEADER_AND_ISR, 7), LeaderAndIsrRequest(**epochs))
        stop = await stop_replica(broker.context(ApiKey.STOP_REPLICA, 4), StopReplicaRequest(**epochs))
        metadata = update_metadata(
            broker.context(ApiKey.UPDATE_METADATA, 8), UpdateMetadataRequest(controller_id=5, **epochs)
        )
        assert [lisr.error_code, stop.error_code, metadata.error_code] == [error] * 3
        assert (broker.metadata_cache.controller_id == 5) == (error == 0)

    @staged(alone)
    async def test_a_stale_controller_updates_no_metadata(self, w: World, broker: StandInBroker, /) -> None:
        stale = UpdateMetadataRequest(controller_id=5, controller_epoch=0)
        response = update_metadata(broker.context(ApiKey.UPDATE_METADATA, 8), stale)
        assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert broker.metadata_cache.controller_id == 1
