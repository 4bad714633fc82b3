"""What a Fetch answer leaves out for lack of room (KIP-74)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from log_folders import data_batch, marker_batch
from replicated_brokers import TOPIC_ID, TP, World, world
from virtual_time import in_virtual_time

from engine.broker.handlers.fetch import fetch
from engine.broker.log.append_origin import AppendOrigin
from engine.broker.replication.throttle import ALL_REPLICAS
from engine.common.errors import ErrorCode
from engine.common.model import LEADER_DURING_DELETE, TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic

SECOND = TopicPartition(TP.topic, 1)
BATCH_BYTES = len(data_batch(b"0123456789"))


def asked(partition_max_bytes: int, max_bytes: int, *, min_bytes: int) -> FetchRequest:
    """Fetch two partitions; what the first one got limits the second."""
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=partition_max_bytes) for index in (0, 1)
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=60_000,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=TP.topic, topic_id=TOPIC_ID, partitions=wanted)],
    )


def sizes(w: World, version: int, request: FetchRequest) -> list[int]:
    """Return how many bytes each partition got at once."""
    answer: Any = fetch(w.brokers[1].context(ApiKey.FETCH, version), request)
    partitions = answer.responses[0].partitions
    return [getattr(p.records, "size_bytes", 0) for p in partitions]


async def fill_two(w: World) -> None:
    """Become leader of two partitions, with three batches each."""
    for topic_partition in (TP, SECOND):
        await w.lead(1, topic_partition=topic_partition)
        for _ in range(3):
            w.partition(1, topic_partition).append_records_to_leader(data_batch(b"0123456789"), 1)


@pytest.mark.parametrize("version", [4, 12, 17])
@in_virtual_time
async def test_only_the_first_batch_of_an_answer_may_exceed_the_limits(tmp_path: Path, version: int) -> None:
    async with world(tmp_path, 1) as w:
        await fill_two(w)
        # A partition's own limit, then the whole answer's: no partial batch.
        assert sizes(w, version, asked(10, 1_000_000, min_bytes=1)) == [BATCH_BYTES, 0]
        whole = 3 * BATCH_BYTES
        assert sizes(w, version, asked(1_000_000, whole + 20, min_bytes=1)) == [whole, 0]
        # Where a whole batch fits, part of the next one may follow, as the bytes lie on the disk.
        assert sizes(w, version, asked(BATCH_BYTES + 5, 1_000_000, min_bytes=1)) == [BATCH_BYTES + 5] * 2


@pytest.mark.parametrize("replica_id", [-1, 2])
@in_virtual_time
async def test_the_brokers_own_limit_holds_for_consumers_and_followers(tmp_path: Path, replica_id: int) -> None:
    """As Kafka 3.9.1 (KafkaApis.handleFetchRequest) does with ``fetch.max.bytes``."""
    async with world(tmp_path, 1, 2) as w:
        await fill_two(w)
        for topic_partition in (TP, SECOND):
            w.partition(1, topic_partition).leader_log.update_high_watermark(3)
        w.brokers[1].config.fetch_max_bytes = 3 * BATCH_BYTES + 20
        request = asked(1_000_000, 1_000_000, min_bytes=1)
        request.replica_id = replica_id
        assert sizes(w, 12, request) == [3 * BATCH_BYTES, 0]


@pytest.mark.parametrize("version", [4, 12, 17])
@in_virtual_time
async def test_whoever_wants_more_than_its_limits_allow_waits(tmp_path: Path, version: int) -> None:
    """As Kafka 3.9.1 (DelayedFetch, cases F and G): of a batch that does not fit, the partition's limit counts."""
    async with world(tmp_path, 1, log_config=LogConfig(segment_bytes=4 * BATCH_BYTES)) as w:
        await fill_two(w)
        context = w.brokers[1].context(ApiKey.FETCH, version)
        assert sizes(w, version, asked(10, 1_000_000, min_bytes=BATCH_BYTES + 10)) == [BATCH_BYTES, 0]
        waiting: Any = fetch(context, asked(10, 1_000_000, min_bytes=BATCH_BYTES + 11))
        await asyncio.sleep(59)
        assert waiting.response is None
        await asyncio.sleep(2)
        assert [p.records for p in waiting.response.responses[0].partitions][1] == b""
        # The whole answer's limit is no reason to wait.
        assert sizes(w, version, asked(1_000_000, 4 * BATCH_BYTES - 1, min_bytes=100_000)) == [3 * BATCH_BYTES, 0]
        waiting = fetch(context, asked(10, 1_000_000, min_bytes=100_000))
        for _ in range(2):
            assert waiting.response is None
            w.partition(1, SECOND).append_records_to_leader(data_batch(b"0123456789"), 1)
            await asyncio.sleep(1)
        assert [p.partition_index for p in waiting.response.responses[0].partitions if p.records] == [0]


@pytest.mark.parametrize("version", [4, 12, 17])
@in_virtual_time
async def test_whoever_reads_an_older_segment_does_not_wait_for_more(tmp_path: Path, version: int) -> None:
    """As Kafka 3.9.1 (DelayedFetch, case F): a consumer with ``fetch.min.bytes`` catches up without waits."""
    async with world(tmp_path, 1, log_config=LogConfig(segment_bytes=2 * BATCH_BYTES)) as w:
        await fill_two(w)
        request = asked(1_000_000, 1_000_000, min_bytes=100_000)
        assert sizes(w, version, request) == [2 * BATCH_BYTES] * 2
        (first, second), context = request.topics[0].partitions, w.brokers[1].context(ApiKey.FETCH, version)
        first.fetch_offset = second.fetch_offset = 2
        waiting: Any = fetch(context, request)
        assert waiting.response is None, "no later segment has more"
        w.partition(1).append_records_to_leader(data_batch(b"0123456789"), 1)
        await asyncio.sleep(1)
        assert waiting.response is None, "the record came into the same segment"
        w.partition(1).append_records_to_leader(data_batch(b"0123456789"), 1)
        await asyncio.sleep(1)
        answer = waiting.response
        assert [p.records.size_bytes for p in answer.responses[0].partitions] == [2 * BATCH_BYTES, BATCH_BYTES]


@pytest.mark.parametrize("version", [4, 12, 17])
@pytest.mark.parametrize("session_epoch", [-1, 0])
@in_virtual_time
async def test_what_is_not_there_hastens_no_answer(tmp_path: Path, version: int, session_epoch: int) -> None:
    """As Kafka 3.9.1: a reader that goes on naming a deleted topic would ask again and again."""
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        request = asked(1_000_000, 1_000_000, min_bytes=1)
        request.session_epoch = session_epoch
        began_s = asyncio.get_running_loop().time()
        waiting: Any = fetch(w.brokers[1].context(ApiKey.FETCH, version), request)
        while waiting.response is None:
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() - began_s >= 60
        errors = [(p.partition_index, p.error_code) for p in waiting.response.responses[0].partitions]
        assert errors == [(0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        request.topics[0].partitions = request.topics[0].partitions[1:]
        nothing: Any = fetch(w.brokers[1].context(ApiKey.FETCH, version), request)
        assert nothing.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_virtual_time
async def test_a_deleted_topic_gives_no_records_to_a_fetch_that_has_waited(tmp_path: Path) -> None:
    """Its replica is still here when news of another partition ends the wait."""
    async with world(tmp_path, 1) as w:
        for topic_partition in (TP, SECOND):
            await w.lead(1, topic_partition=topic_partition)
        w.partition(1).append_records_to_leader(data_batch(b"0123456789"), 1)
        w.states[TP] = replace(w.states[TP], leader=LEADER_DURING_DELETE)
        w.brokers[1].metadata_cache.update(w.update_metadata(), 2)
        request = asked(1_000_000, 1_000_000, min_bytes=1)
        waiting: Any = fetch(w.brokers[1].context(ApiKey.FETCH, 12), request)
        await asyncio.sleep(1)
        assert waiting.response is None
        w.partition(1, SECOND).append_records_to_leader(data_batch(b"0123456789"), 1)
        await asyncio.sleep(1)
        read = [(p.error_code, getattr(p.records, "size_bytes", 0)) for p in waiting.response.responses[0].partitions]
        assert read == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0), (ErrorCode.NONE, BATCH_BYTES)]


@in_virtual_time
async def test_who_reads_beyond_the_last_stable_offset_waits_for_the_end_of_the_transaction(tmp_path: Path) -> None:
    """Apache Kafka 3.9.1 answers at once, with nothing, and the consumer asks again without pause."""
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        w.partition(1).append_records_to_leader(data_batch(b"a", b"b", producer=(5, 0, 0), transactional=True), 1)
        request = asked(1_000_000, 1_000_000, min_bytes=1)
        request.isolation_level = 1
        request.topics[0].partitions = [FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1_000_000)]
        waiting: Any = fetch(w.brokers[1].context(ApiKey.FETCH, 12), request)
        await asyncio.sleep(1)
        assert waiting.response is None
        w.partition(1).append_records_to_leader(marker_batch(5, 0, commit=True), 1, origin=AppendOrigin.COORDINATOR)
        await asyncio.sleep(1)
        assert waiting.response.responses[0].partitions[0].last_stable_offset == 3


@in_virtual_time
async def test_a_fetch_that_waits_counts_once(tmp_path: Path) -> None:
    """It reads again when there is news, and again for its answer; Kafka 3.9.1 counts the request and what it sends."""
    async with world(tmp_path, 1) as w:
        await w.lead(1, replicas=(1, 3), isr=(1,))
        quota, counts = w.brokers[1].replica_manager.leader_quota, w.partition(1).counts
        quota.throttle(TP.topic, ALL_REPLICAS)
        quota.rate_bytes_max = 10**9
        wanted = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=0, partition_max_bytes=1_000_000)
        request = asked(1_000_000, 1_000_000, min_bytes=1)
        request.replica_id, request.topics[0].partitions = 3, [wanted]
        waiting: Any = fetch(w.brokers[1].context(ApiKey.FETCH, 12), request)
        w.partition(1).append_records_to_leader(data_batch(b"0123456789"), 1)
        await asyncio.sleep(0.1)
        assert waiting.response.responses[0].partitions[0].records.size_bytes == BATCH_BYTES
        assert quota.rate_bytes() == BATCH_BYTES
        counts.fold()
        assert counts.fetches == 1


@pytest.mark.parametrize("version", [4, 12, 17])
@pytest.mark.parametrize("session_epoch", [-1, 0])
@in_virtual_time
async def test_of_a_partition_that_is_named_twice_the_last_mention_counts(
    tmp_path: Path, version: int, session_epoch: int
) -> None:
    async with world(tmp_path, 1) as w:
        await fill_two(w)
        request = asked(1_000_000, 1_000_000, min_bytes=1)
        request.session_epoch = session_epoch
        first, second = request.topics[0].partitions
        again = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1_000_000)
        request.topics[0].partitions = [first, second, again]
        context = w.brokers[1].context(ApiKey.FETCH, version)
        answer: Any = fetch(context, request)
        partitions = answer.responses[0].partitions
        assert [partition.partition_index for partition in partitions] == [0, 1]
        assert [partition.records.size_bytes for partition in partitions] == [BATCH_BYTES, 3 * BATCH_BYTES]


@pytest.mark.parametrize("version", [4, 12, 17])
@in_virtual_time
async def test_a_limit_below_zero_is_an_error_where_there_is_something_to_read(tmp_path: Path, version: int) -> None:
    """As in Kafka: it ignores the limit where there is nothing to read.

    Behind an error the whole answer's limit is 0.
    """

    def codes(w: World, request: FetchRequest) -> list[tuple[int, int, int]]:
        answer: Any = fetch(w.brokers[1].context(ApiKey.FETCH, version), request)
        return [
            (partition.error_code, partition.high_watermark, getattr(partition.records, "size_bytes", 0))
            for partition in answer.responses[0].partitions
        ]

    async with world(tmp_path, 1) as w:
        await fill_two(w)
        refused = (ErrorCode.UNKNOWN_SERVER_ERROR, -1, 0)
        assert codes(w, asked(-1, 1_000_000, min_bytes=1)) == [refused, refused]
        assert codes(w, asked(1_000_000, -1, min_bytes=1)) == [refused, (0, 3, BATCH_BYTES)]
        at_the_end = asked(-1, 1_000_000, min_bytes=-1)
        for partition in at_the_end.topics[0].partitions:
            partition.fetch_offset = 3
        assert codes(w, at_the_end) == [(0, 3, 0), (0, 3, 0)]


@pytest.mark.parametrize("version", [0, 12, 13])
@in_virtual_time
async def test_a_topic_without_a_name_is_unknown(tmp_path: Path, version: int) -> None:
    async with world(tmp_path, 1) as w:
        topics = [FetchTopic(topic="", topic_id=b"?" * 16, partitions=[FetchPartition(partition=0)])]
        answer: Any = fetch(w.brokers[1].context(ApiKey.FETCH, version), FetchRequest(replica_id=-1, topics=topics))
        error = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [p.error_code for t in answer.responses for p in t.partitions] == [error]


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-2, ErrorCode.NONE), (-1, ErrorCode.NONE), (0, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.NONE)],
)
@in_virtual_time
async def test_a_negative_leader_epoch_is_none(tmp_path: Path, epoch: int, error: ErrorCode) -> None:
    async with world(tmp_path, 1) as w:
        await w.lead(1)
        await w.lead(1)
        assert w.partition(1).leader_epoch == 1
        w.produce(1, b"v")
        wanted = FetchPartition(
            partition=0, current_leader_epoch=epoch, last_fetched_epoch=min(epoch, -1), partition_max_bytes=1000
        )
        request = FetchRequest(
            replica_id=-1, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic=TP.topic, partitions=[wanted])]
        )
        answer: Any = fetch(w.brokers[1].context(ApiKey.FETCH, 12), request)
        (partition,) = answer.responses[0].partitions
        assert (partition.error_code, partition.diverging_epoch) == (error, None)
