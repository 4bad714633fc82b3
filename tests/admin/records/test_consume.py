"""The consumer when leaders move and offsets vanish."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

import pytest
from event_loop import staged
from scripted_brokers import HANG_UP, SILENCE, ScriptedCluster, scripted_cluster
from scripted_logs import Log, lead

from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.errors import NotFound, Refused, Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.admin.records import consume
from engine.admin.records.consume import Consumer
from engine.admin.records.fetching import ConsumedRecord, ConsumedRecords, visible_batches
from engine.admin.records.positions import ConsumeOptions
from engine.common.errors import ErrorCode
from engine.common.model import EARLIEST_TIMESTAMP, TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

Scene = Callable[[ScriptedCluster, WireCluster], Awaitable[None]]


def play(scene: Scene) -> None:
    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(2) as cluster:
            cluster.leaders = {"t": [0, 1]}
            wire = WireCluster(cluster.bootstrap, properties=ClientProperties(request_timeout_ms=30_000))
            try:
                await scene(cluster, wire)
            finally:
                await wire.close()

    asyncio.run(playing())


async def read(wire: WireCluster, **options: Any) -> list[ConsumedRecord]:
    consumer = Consumer(
        wire, "t", ConsumeOptions(**{"offset": EARLIEST_TIMESTAMP, "until_end": True, "give_up_s": 5.0, **options})
    )
    await consumer.open()
    async with aclosing(consumer.batches()) as batches:
        return [record async for some in batches for record in some.records]


def offsets(records: list[ConsumedRecord], partition: int) -> list[int]:
    return [record.record.offset for record in records if record.partition == partition]


@pytest.mark.parametrize(
    ("start", "stop", "expected"), [(0, None, range(20)), (3, None, range(3, 20)), (0, 15, range(15)), (12, 13, [12])]
)
def test_values_alone_are_those_of_the_records_that_count(
    start: int, stop: int | None, expected: Iterable[int]
) -> None:
    data = b"".join(
        encode_batch([Record(offset, 5, b"k", b"%d" % offset) for offset in range(first, first + 10)])
        for first in (0, 10)
    )
    some = ConsumedRecords(TopicPartition("t", 0), data, list(iter_batches(data)), start, stop)
    assert [record.record.offset for record in some.records] == [*expected]
    assert some.values() == [record.record.value for record in some.records] == [b"%d" % offset for offset in expected]
    assert some.next_offset == (20 if stop is None else stop)


@staged(play)
async def test_every_record_comes_once_and_in_order(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    lead(cluster, 0, {0: Log(50)})
    lead(cluster, 1, {1: Log(20, start=7)})
    records = await read(wire)
    assert offsets(records, 0) == list(range(50))
    assert offsets(records, 1) == list(range(7, 27))
    assert all(record.record.value == b"%d" % record.record.offset for record in records)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"offset": 4}, range(4, 10)),
        ({"tail": 3}, range(7, 10)),
        ({"tail": 99}, range(10)),
        ({"start_time_ms": 1005}, range(5, 10)),
        ({"start_time_ms": 9999}, range(0)),
        ({"stop_offset": 4}, range(4)),
        ({"offset": 3, "stop_offset": 99}, range(3, 10)),
        ({"offset": 8, "stop_offset": 2}, range(0)),
        ({"stop_tail": 3}, range(7)),
        ({"stop_tail": 99}, range(0)),
        ({"start_time_ms": 1002, "stop_time_ms": 1005}, range(2, 5)),
        ({"stop_time_ms": 9999}, range(10)),
    ],
)
@staged(play)
async def test_where_to_start_and_to_stop(
    cluster: ScriptedCluster, wire: WireCluster, /, options: dict[str, int], expected: range
) -> None:
    lead(cluster, 0, {0: Log(10)})
    records = await read(wire, partitions=(0,), **options)
    assert offsets(records, 0) == list(expected)


@staged(play)
async def test_an_empty_topic_ends_at_once(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    lead(cluster, 0, {0: Log(0)})
    lead(cluster, 1, {1: Log(0, start=5)})
    assert await read(wire) == []


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
@staged(play)
async def test_a_leader_that_moves_is_followed(cluster: ScriptedCluster, wire: WireCluster, /, code: ErrorCode) -> None:
    logs = {0: Log(30), 1: Log(30)}
    old, new = lead(cluster, 0, logs), lead(cluster, 1, logs)

    def moves(request: FetchRequest) -> Awaitable[FetchResponse]:
        if request.topics[0].partitions[0].fetch_offset >= 12:
            old.codes[0] = code
            cluster.leaders = {"t": [1, 1]}
        return old.fetch(request)

    cluster.brokers[0].answers[ApiKey.FETCH] = moves
    records = await read(wire)
    assert offsets(records, 0) == offsets(records, 1) == list(range(30))
    assert new.logs is logs


@staged(play)
async def test_a_leader_that_dies_is_followed(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    logs = {0: Log(30), 1: Log(30)}
    script = lead(cluster, 0, logs)
    lead(cluster, 1, logs)

    def dies(request: FetchRequest) -> object:
        if request.topics[0].partitions[0].fetch_offset >= 12:
            cluster.leaders = {"t": [1, 1]}
            return HANG_UP
        return script.fetch(request)

    cluster.brokers[0].answers[ApiKey.FETCH] = dies
    records = await read(wire)
    assert offsets(records, 0) == list(range(30))


@staged(play)
async def test_a_new_leader_is_followed_however_long_the_old_one_was_silent(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    logs = {0: Log(30), 1: Log(30)}
    lead(cluster, 0, logs)
    lead(cluster, 1, logs)
    asked = 0

    def silent(request: FetchRequest) -> object:
        nonlocal asked
        asked += 1
        cluster.leaders = {"t": [1, 1]}
        return SILENCE

    cluster.brokers[0].answers[ApiKey.FETCH] = silent
    # The request is given up after the partition has been without records for longer than that.
    records = await read(wire, give_up_s=0.3)
    assert asked == 1
    assert offsets(records, 0) == list(range(30))


@staged(play)
async def test_a_leader_that_stays_silent_ends_it_with_a_reason(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    lead(cluster, 0, {0: Log(30)})
    lead(cluster, 1, {1: Log(30)})
    cluster.brokers[0].answers[ApiKey.FETCH] = lambda _: SILENCE
    with pytest.raises(Unreachable, match=r"the leader, broker 0, has not answered for 0\.3 s"):
        await read(wire, give_up_s=0.3)


@pytest.mark.parametrize("until_end", [True, False])
@staged(play)
async def test_a_silent_leader_holds_up_only_what_it_leads(
    cluster: ScriptedCluster, wire: WireCluster, /, monkeypatch: pytest.MonkeyPatch, until_end: bool
) -> None:
    """Others' records arrive during the wait for it, and its own come as soon as it answers."""
    monkeypatch.setattr(consume, "ANSWER_LIMIT_S", 0.2)
    lead(cluster, 0, {0: Log(30)})
    lead(cluster, 1, {1: Log(30)})
    answers = cluster.brokers[0].answers
    tell, answers[ApiKey.LIST_OFFSETS] = answers[ApiKey.LIST_OFFSETS], lambda _: SILENCE
    complaints: list[str] = []
    options = ConsumeOptions(offset=EARLIEST_TIMESTAMP, until_end=until_end)
    consumer = Consumer(wire, ["t"], options, complain=complaints.append)
    await consumer.open()
    assert complaints == ["1 partition must wait for broker 0, which does not answer: topic t partition 0"]
    records: list[ConsumedRecord] = []
    async with aclosing(consumer.batches()) as batches:
        async for some in batches:
            records += some.records
            if len(offsets(records, 1)) == 30:
                answers[ApiKey.LIST_OFFSETS] = tell
            if len(records) == 60 and not until_end:
                break
    assert offsets(records, 0) == offsets(records, 1) == list(range(30))
    assert {record.partition for record in records[:30]} == {1}


@pytest.mark.parametrize(("leader", "whom"), [(0, "broker 0, which does not answer"), (-1, "a leader")])
@staged(play)
async def test_who_has_time_without_end_waits_for_a_leader_with_a_word(
    cluster: ScriptedCluster, wire: WireCluster, /, monkeypatch: pytest.MonkeyPatch, leader: int, whom: str
) -> None:
    monkeypatch.setattr(consume, "ANSWER_LIMIT_S", 0.2)
    monkeypatch.setattr(consume, "_FETCH_LIMIT_S", 0.1)
    lead(cluster, 0, {0: Log(30)})
    lead(cluster, 1, {1: Log(30)})
    answers = cluster.brokers[0].answers
    tell = answers[ApiKey.FETCH]
    complaints: list[str] = []

    def lose() -> None:
        answers[ApiKey.FETCH] = lambda _: HANG_UP if leader < 0 else SILENCE
        cluster.leaders = {"t": [leader, 1]}

    def complain(told: str) -> None:
        complaints.append(told)
        cluster.leaders = {"t": [0, 1]}
        answers[ApiKey.FETCH] = tell

    options = ConsumeOptions(offset=EARLIEST_TIMESTAMP, give_up_s=math.inf)
    consumer = Consumer(wire, ["t"], options, complain=complain)
    await consumer.open()
    lose()
    count = 0
    async with aclosing(consumer.batches()) as batches:
        while count < 60:
            count += len((await anext(batches)).records)
    assert complaints == [f"1 partition must wait for {whom}: topic t partition 0"]


@staged(play)
async def test_a_partition_that_stays_leaderless_ends_it_with_a_reason(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    lead(cluster, 0, {0: Log(3)})
    cluster.leaders = {"t": [0, -1]}
    with pytest.raises(Unreachable, match="no leader") as lost:
        await read(wire, give_up_s=0.4)
    assert lost.value.where == "topic t partition 1"


@staged(play)
async def test_an_offset_that_is_gone_is_refused(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    lead(cluster, 0, {0: Log(10, start=5)})
    with pytest.raises(Refused, match="offset 2 does not exist") as gone:
        await read(wire, partitions=(0,), offset=2)
    assert gone.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


OLD, NEW = b"o" * 16, b"n" * 16


@pytest.mark.parametrize(
    ("is_seen_absent", "ids", "count"),
    [
        (True, (OLD, NEW), 4),
        (False, (OLD, NEW), 4),
        # Kafka before 2.8 has no ids. The offset that was reached exists in a longer log.
        (True, (ZERO_TOPIC_ID, ZERO_TOPIC_ID), 4),
        (True, (ZERO_TOPIC_ID, ZERO_TOPIC_ID), 12),
    ],
)
@staged(play)
async def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    cluster: ScriptedCluster,
    wire: WireCluster,
    /,
    monkeypatch: pytest.MonkeyPatch,
    is_seen_absent: bool,
    ids: tuple[bytes, bytes],
    count: int,
) -> None:
    """Or it is created again before anybody looks, and the reader's offset does not exist in the new topic."""
    monkeypatch.setattr(consume, "_ABSENT_S", 0.2)
    monkeypatch.setattr(consume, "_SLOW_PAUSE_S", 0.2)
    script = lead(cluster, 0, {0: Log(9)})
    cluster.leaders, cluster.topic_ids = {"t": [0]}, {"t": ids[0]}
    complaints: list[str] = []

    def complain(told: str) -> None:
        complaints.append(told)
        if "any more" in told:
            create()

    def create() -> None:
        script.logs, script.codes = {0: Log(count)}, {}
        cluster.leaders, cluster.topic_ids = {"t": [0]}, {"t": ids[1]}

    consumer = Consumer(wire, ["t"], ConsumeOptions(offset=EARLIEST_TIMESTAMP, give_up_s=9), complain=complain)
    await consumer.open()
    records: list[ConsumedRecord] = []
    async with aclosing(consumer.batches()) as batches:
        while len(records) < 9 + count:
            records += (await anext(batches)).records
            if len(records) == 9 and is_seen_absent:
                cluster.leaders, script.codes = {}, {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            elif len(records) == 9:
                create()
    assert offsets(records, 0) == [*range(9), *range(count)]
    gone = ["topic t does not exist any more: waiting for it to be created again"] if is_seen_absent else []
    assert complaints == [*gone, "topic t was deleted and created again: reading it from its beginning"]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
@staged(play)
async def test_all_partitions_are_read_that_a_topic_has_when_it_is_created_again(
    cluster: ScriptedCluster, wire: WireCluster, /, before: int, after: int
) -> None:
    """No other is waited for."""
    script = lead(cluster, 0, {0: Log(9), 1: Log(9)})
    cluster.leaders, cluster.topic_ids = {"t": [0] * before}, {"t": OLD}
    consumer = Consumer(wire, ["t"], ConsumeOptions(offset=EARLIEST_TIMESTAMP))
    await consumer.open()
    records: list[ConsumedRecord] = []
    async with aclosing(consumer.batches()) as batches:
        while len(records) < 9 * before + 4 * after:
            records += (await anext(batches)).records
            if len(records) == 9 * before:
                script.logs = {0: Log(4), 1: Log(4)}
                cluster.leaders, cluster.topic_ids = {"t": [0] * after}, {"t": NEW}
    for partition in range(2):
        old, new = (9 if partition < before else 0), (4 if partition < after else 0)
        assert offsets(records, partition) == [*range(old), *range(new)]
    assert [position.name.partition for position in consumer._positions] == [*range(after)]


@staged(play)
async def test_what_a_leader_says_late_about_the_topic_before_counts_no_more(
    cluster: ScriptedCluster, _: WireCluster, /
) -> None:
    scripts = [lead(cluster, index, {index: Log(9)}) for index in range(2)]
    cluster.leaders, cluster.topic_ids = {"t": [0, 1]}, {"t": OLD}
    has_begun_anew = asyncio.Event()

    async def late(request: FetchRequest) -> FetchResponse:
        if request.topics[0].partitions[0].fetch_offset < 9:
            return await scripts[0].fetch(request)
        await has_begun_anew.wait()
        refused = PartitionData(partition_index=0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), records=b"")
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[refused])])

    cluster.brokers[0].answers[ApiKey.FETCH] = late
    # The other broker tells of the topic, so that nothing waits behind the late answer.
    wire = WireCluster(cluster.bootstrap[1:], properties=ClientProperties())
    try:
        options = ConsumeOptions(offset=EARLIEST_TIMESTAMP)
        consumer = Consumer(wire, ["t"], options, complain=lambda _: has_begun_anew.set())
        await consumer.open()
        records: list[ConsumedRecord] = []
        async with aclosing(consumer.batches()) as batches:
            while len(records) < 26:
                records += (await anext(batches)).records
                if len(records) == 18:
                    cluster.topic_ids = {"t": NEW}
                    for index, script in enumerate(scripts):
                        script.logs = {index: Log(4)}
    finally:
        await wire.close()
    assert offsets(records, 0) == offsets(records, 1) == [*range(9), *range(4)]


@pytest.mark.parametrize("topic_id", [NEW, ZERO_TOPIC_ID])
@staged(play)
async def test_a_group_joins_anew_for_a_topic_that_was_created_again_and_its_old_offsets_count_no_more(
    cluster: ScriptedCluster, wire: WireCluster, /, monkeypatch: pytest.MonkeyPatch, topic_id: bytes
) -> None:
    monkeypatch.setattr(consume, "_ABSENT_S", 0.2)
    monkeypatch.setattr(consume, "_SLOW_PAUSE_S", 0.2)
    script = lead(cluster, 0, {0: Log(9)})
    cluster.leaders = {"t": [0]}
    cluster.topic_ids = {"t": OLD if topic_id == NEW else ZERO_TOPIC_ID}

    def create(_: str = "") -> None:
        script.logs, script.codes = {0: Log(4)}, {}
        cluster.leaders, cluster.topic_ids = {"t": [0]}, {"t": topic_id}

    own = frozenset({TopicPartition("t", 0)})
    options = ConsumeOptions(offset=EARLIEST_TIMESTAMP, only=own)
    consumer = Consumer(wire, ["t"], options, complain=create)
    await consumer.open()
    count = 0
    async with aclosing(consumer.batches()) as batches:
        async for some in batches:
            count += len(some.records)
            assert not consumer.is_gone("t")
            if count == 9 and topic_id == NEW:
                create()
                # It is led from elsewhere, and no offset is refused.
                script.codes = {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
            elif count == 9:
                cluster.leaders, script.codes = {}, {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (count, consumer.is_gone("t")) == (9, True)


@pytest.mark.parametrize("until_end", [False, True])
@pytest.mark.parametrize("topic_id", [NEW, ZERO_TOPIC_ID])
@pytest.mark.parametrize("is_half_made", [False, True])
@staged(play)
async def test_a_group_joins_anew_for_a_topic_that_was_not_there_when_it_joined(
    cluster: ScriptedCluster,
    wire: WireCluster,
    /,
    monkeypatch: pytest.MonkeyPatch,
    topic_id: bytes,
    is_half_made: bool,
    until_end: bool,
) -> None:
    """Its partitions are nobody's till then. A reader up to the end has nothing to read in it."""
    monkeypatch.setattr(consume, "_ABSENT_S", 0.2)
    monkeypatch.setattr(consume, "_SLOW_PAUSE_S", 0.2)
    lead(cluster, 0, {0: Log(30)})
    cluster.leaders = {"t": [0]} | ({"b": []} if is_half_made else {})
    cluster.topic_ids = {"t": OLD, "b": topic_id}
    complaints: list[str] = []

    def create(notice: str) -> None:
        complaints.append(notice)
        cluster.leaders["b"] = [0]

    own = frozenset({TopicPartition("t", 0)})
    options = ConsumeOptions(offset=EARLIEST_TIMESTAMP, only=own, until_end=until_end)
    consumer = Consumer(wire, ["t", "b"], options, complain=create)
    await consumer.open()
    if until_end:
        cluster.leaders["b"] = [0]
    async with aclosing(consumer.batches()) as batches:
        count = sum([len(some.records) async for some in batches])
    notices = [] if until_end else ["topic b does not exist any more: waiting for it to be created again"]
    assert (count, complaints, consumer.is_gone("t")) == (30, notices, False)


@staged(play)
async def test_offsets_are_not_committed_while_a_broker_does_not_know_the_topic(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    """It may be another one already, though other brokers still tell the old id."""
    script = lead(cluster, 0, {0: Log(9)})
    cluster.leaders, cluster.topic_ids = {"t": [0]}, {"t": OLD}
    own = frozenset({TopicPartition("t", 0)})
    consumer = Consumer(wire, ["t"], ConsumeOptions(offset=EARLIEST_TIMESTAMP, only=own))
    await consumer.open()
    count = 0
    async with aclosing(consumer.batches()) as batches:
        while count < 9:
            count += len((await anext(batches)).records)
        reading = asyncio.ensure_future(anext(batches))
        script.codes = {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        while not consumer.is_gone("t"):
            await asyncio.sleep(0.01)
        script.codes = {}
        while consumer.is_gone("t"):
            await asyncio.sleep(0.01)
        script.logs = {0: Log(4)}
        with pytest.raises(Refused, match="offset 9 does not exist"):
            await reading
        assert consumer.is_gone("t")


@staged(play)
async def test_a_topic_that_begins_anew_while_its_id_is_asked_for_is_not_the_same(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    """Its leaders refuse the offsets at different times. The answer to the first leads to the new topic."""
    lead(cluster, 0, {0: Log(9)})
    cluster.leaders, cluster.topic_ids = {"t": [0]}, {"t": OLD}
    consumer = Consumer(wire, ["t"], ConsumeOptions(offset=EARLIEST_TIMESTAMP))
    await consumer.open()
    assert await consumer._is_same("t")
    cluster.topic_ids = {"t": NEW}
    asking = asyncio.create_task(consumer._is_same("t"))
    await asyncio.sleep(0)
    consumer._ids["t"] = NEW
    assert not await asking


@pytest.mark.parametrize("topic_id", [OLD, ZERO_TOPIC_ID])
@staged(play)
async def test_a_broker_that_does_not_know_the_topic_for_a_moment_deletes_nothing(
    cluster: ScriptedCluster, wire: WireCluster, /, topic_id: bytes
) -> None:
    """Nor does one that is too old to tell its id."""
    script = lead(cluster, 0, {0: Log(9)})
    cluster.leaders, cluster.topic_ids = {"t": [0]}, {"t": OLD}
    complaints: list[str] = []
    answer, metadata = cluster.brokers[0].answers, cluster.brokers[0].answers[ApiKey.METADATA]

    def knows_again(request: Any) -> object:
        cluster.leaders = {}
        unknown = metadata(request)
        cluster.leaders, script.codes, answer[ApiKey.METADATA] = {"t": [0]}, {}, metadata
        cluster.topic_ids = {"t": topic_id}
        return unknown

    options = ConsumeOptions(offset=EARLIEST_TIMESTAMP, until_end=True)
    consumer = Consumer(wire, ["t"], options, complain=complaints.append)
    await consumer.open()
    records: list[ConsumedRecord] = []
    async with aclosing(consumer.batches()) as batches:
        async for some in batches:
            if not records:
                script.codes = {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
                answer[ApiKey.METADATA] = knows_again
            records += some.records
    assert (offsets(records, 0), complaints) == ([*range(9)], [])


@pytest.mark.parametrize(
    ("again", "message"),
    [(None, r"deleted while it was read, and was not created again for 0\.4 s"), (NEW, "deleted and created again")],
)
@staged(play)
async def test_the_end_of_a_topic_that_was_deleted_is_never_reached(
    cluster: ScriptedCluster, wire: WireCluster, /, again: bytes | None, message: str
) -> None:
    script = lead(cluster, 0, {0: Log(30)})
    cluster.leaders, cluster.topic_ids = {"t": [0]}, {"t": OLD}
    consumer = Consumer(wire, ["t"], ConsumeOptions(offset=EARLIEST_TIMESTAMP, until_end=True, give_up_s=0.4))
    await consumer.open()
    with pytest.raises(Refused, match=message) as refused:
        async with aclosing(consumer.batches()) as batches:
            async for _ in batches:
                script.codes = {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
                cluster.leaders = {} if again is None else cluster.leaders
                cluster.topic_ids = {"t": again or OLD}
    assert (refused.value.code, refused.value.where) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t")


@staged(play)
async def test_bytes_that_are_no_records_end_it(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    """A broken answer must not leave the caller waiting forever."""
    log = Log(3)
    log.batches = [(0, bytes(90))]
    lead(cluster, 0, {0: log})
    with pytest.raises(Refused):
        await read(wire, partitions=(0,))


@pytest.mark.parametrize("damaged", [0, 1, 2])
@staged(play)
async def test_a_damaged_batch_is_not_read_and_what_comes_before_it_is(
    cluster: ScriptedCluster, wire: WireCluster, /, damaged: int
) -> None:
    """One bit of a value has changed on the leader's disk: what is there is a record, and not the one that was sent."""
    log = Log(9)
    base, data = log.batches[damaged]
    assert data[-2:-1] == b"%d" % (base + 2)
    log.batches[damaged] = base, data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
    lead(cluster, 0, {0: log})
    consumer = Consumer(wire, "t", ConsumeOptions((0,), EARLIEST_TIMESTAMP, until_end=True, give_up_s=5.0))
    await consumer.open()
    offsets: list[int] = []
    with pytest.raises(Refused) as caught:
        async with aclosing(consumer.batches()) as batches:
            async for some in batches:
                offsets += [record.record.offset for record in some.records]
    assert offsets == [*range(base)]
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert str(caught.value) == f"the checksum of the batch at offset {base} is wrong"
    assert str(caught.value.where) == "topic t partition 0 on broker 0"


@staged(play)
async def test_a_partition_left_out_of_the_answer_ends_it(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    lead(cluster, 0, {0: Log(3)})
    cluster.brokers[0].answers[ApiKey.FETCH] = lambda request: FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=99, records=b"")])]
    )
    with pytest.raises(Refused, match="left it out of its answer") as refused:
        await read(wire, partitions=(0,))
    assert refused.value.where == "topic t partition 0"


@staged(play)
async def test_what_is_not_there(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    with pytest.raises(NotFound, match="has no partition 9"):
        await read(wire, partitions=(9,))
    cluster.leaders = {}
    with pytest.raises(NotFound, match="'t' does not exist"):
        await read(wire)


def transactional(base: int, producer_id: int, *, control: bytes | None = None) -> bytes:
    record = Record(base, 1, control, b"x") if control is not None else Record(base, 1, None, b"%d" % base)
    return encode_batch(
        [record],
        base_offset=base,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
        control=control is not None,
    )


COMMIT, ABORT = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00"


def test_aborted_records_and_markers_are_not_for_committed_readers() -> None:
    buffer = b"".join(
        [
            transactional(0, 1),
            transactional(1, 2),
            transactional(2, 1, control=ABORT),
            transactional(3, 1),
            transactional(4, 2, control=COMMIT),
            transactional(5, 1, control=COMMIT),
            encode_batch([Record(6, 1, None, b"plain")], base_offset=6),
        ]
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]

    def seen(transactions: list[AbortedTransaction] | None) -> list[int]:
        return [header.base_offset for _, header, is_visible in visible_batches(buffer, transactions) if is_visible]

    assert seen(aborted) == [1, 3, 6]
    assert seen([]) == [0, 1, 3, 6]
    assert seen(None) == [0, 1, 3, 6]
