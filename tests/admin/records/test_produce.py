"""The producer against brokers that move, refuse, and lose answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from event_loop import staged
from klamm_program import klamm
from scripted_brokers import HANG_UP, SILENCE, ScriptedBroker, ScriptedCluster, scripted_cluster

from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.errors import NotFound, Refused, Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.admin.records.produce import Producer, ProducerOptions
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from engine.kafka.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_records
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

Scene = Callable[[ScriptedCluster, WireCluster], Awaitable[None]]


class PartitionLog:
    """What a scripted broker has received for one partition, as a log that knows sequences."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.sequences: list[int] = []
        self.sizes: list[int] = []

    def append(self, data: Any) -> int:
        offset = len(self.values)
        records = bytes(data)
        self.sizes.append(len(records))
        self.sequences += [header.base_sequence for _, header in iter_batches(records)]
        self.values += [record.value for record in iter_records(records)]
        return offset


class Logs:
    """The logs of all partitions, and answers to Produce that append to them."""

    def __init__(self) -> None:
        self.by_partition: dict[int, PartitionLog] = {}

    def __call__(self, request: ProduceRequest) -> ProduceResponse:
        return self.answer(request, lambda index, data: (0, self.append(index, data)))

    def append(self, index: int, data: Any) -> int:
        return self.by_partition.setdefault(index, PartitionLog()).append(data)

    def answer(self, request: ProduceRequest, settle: Callable[[int, Any], tuple[int, int]]) -> ProduceResponse:
        (topic,) = request.topic_data
        answers = []
        for data in topic.partition_data:
            code, offset = settle(data.index, data.records)
            answers.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
        return ProduceResponse(responses=[TopicProduceResponse(name=topic.name, partition_responses=answers)])


def refuse(logs: Logs, code: ErrorCode) -> Callable[[ProduceRequest], ProduceResponse]:
    return lambda request: logs.answer(request, lambda index, data: (int(code), -1))


def first_then(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Answer once with ``first``, and then with ``then``."""
    calls: list[Any] = []

    def answer(request: Any) -> Any:
        calls.append(request)
        return (first if len(calls) == 1 else then)(request)

    return answer


def give_ids(broker: ScriptedBroker) -> None:
    broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda request: InitProducerIdResponse(producer_id=7, producer_epoch=0)


def play(scene: Scene, **options: Any) -> None:
    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(2, **options) as cluster:
            cluster.leaders = {"t": [0, 1]}
            for broker in cluster.brokers:
                give_ids(broker)
            wire = WireCluster(cluster.bootstrap, properties=ClientProperties(request_timeout_ms=30_000))
            try:
                await scene(cluster, wire)
            finally:
                await wire.close()

    asyncio.run(playing())


def records(count: int, *, key: bytes | None = None, size: int = 1) -> list[Record]:
    return [Record(timestamp_ms=1, key=key, value=b"%d" % index + b"." * size) for index in range(count)]


async def send(
    wire: WireCluster, wanted: list[Record], partition: int | None = 0, *, encoded: bool = False, **options: Any
) -> Producer:
    producer = Producer(wire, "t", ProducerOptions(**{"delivery_timeout_s": 30.0, **options}))
    await producer.open()
    if encoded and partition is not None:
        producer.add_encoded(partition, encode_records(wanted, 0))
    else:
        for record in wanted:
            producer.add(record, partition)
    await producer.flush()
    return producer


@staged(play)
async def test_records_arrive_in_order_with_sequences_that_follow(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    logs = Logs()
    cluster.brokers[0].answers[ApiKey.PRODUCE] = logs
    wanted = records(100, size=50)
    producer = await send(wire, wanted, batch_bytes=1000)
    log = logs.by_partition[0]
    assert log.values == [record.value for record in wanted]
    assert len(log.sequences) > 5
    assert log.sequences == sorted(set(log.sequences))
    (result,) = producer.results
    assert (result.partition, result.record_count, result.first_offset, result.last_offset) == (0, 100, 0, 99)


@staged(play)
async def test_a_leader_that_froze_is_not_waited_for_once_another_leads(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    """Its connection stays open, and it would tell nobody who leads now."""
    logs, frozen = Logs(), cluster.brokers[0]

    def freeze(request: Any) -> Any:
        for key in (ApiKey.METADATA, ApiKey.API_VERSIONS):
            frozen.answers[key] = lambda request: SILENCE
        cluster.leaders["t"] = [1, 1]
        return SILENCE

    frozen.answers[ApiKey.PRODUCE] = first_then(logs, freeze)
    cluster.brokers[1].answers[ApiKey.PRODUCE] = logs
    wanted = records(3, size=50)
    await send(wire, wanted, batch_bytes=100, delivery_timeout_s=6.0)
    log = logs.by_partition[0]
    assert log.values == [record.value for record in wanted]
    assert log.sequences == [0, 1, 2], "each batch once, in order"


@staged(play)
async def test_encoded_batches_keep_their_place_among_others(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    logs = Logs()
    cluster.brokers[0].answers[ApiKey.PRODUCE] = logs
    producer, (first, second, third, fourth) = Producer(wire, "t", ProducerOptions()), records(4)
    await producer.open()
    producer.add(first, 0)
    producer.add_encoded(0, encode_records([second, third], 0))
    producer.add(fourth, 0)
    await producer.flush()
    log = logs.by_partition[0]
    assert log.values == [record.value for record in (first, second, third, fourth)]
    assert log.sequences == [0, 1, 3]
    assert (producer.results[0].record_count, producer.partition_count) == (4, 2)


@staged(play)
async def test_batches_without_key_go_from_one_partition_to_another(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    producer = Producer(wire, "t", ProducerOptions())
    await producer.open()
    first, second, third = producer.sticky_partitions(3)
    assert {first, second} == {0, 1}
    assert third == first
    assert producer.sticky_partitions(1) == [third], "its batch may not be full"


@staged(play)
async def test_each_partition_goes_to_its_leader(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    logs = [Logs(), Logs()]
    for broker, log in zip(cluster.brokers, logs, strict=True):
        broker.answers[ApiKey.PRODUCE] = log
    producer = Producer(wire, "t", ProducerOptions())
    await producer.open()
    for record in records(10):
        producer.add(record, 0)
        producer.add(record, 1)
    await producer.flush()
    assert list(logs[0].by_partition) == [0]
    assert list(logs[1].by_partition) == [1]


@staged(play)
async def test_a_leader_that_has_moved_is_followed_and_nothing_is_stored_twice(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    logs = Logs()

    def moved(request: ProduceRequest) -> ProduceResponse:
        cluster.leaders = {"t": [1, 1]}
        return refuse(logs, ErrorCode.NOT_LEADER_OR_FOLLOWER)(request)

    cluster.brokers[0].answers[ApiKey.PRODUCE] = moved
    cluster.brokers[1].answers[ApiKey.PRODUCE] = logs
    await send(wire, records(3))
    assert logs.by_partition[0].values == [b"0.", b"1.", b"2."]


@staged(play)
async def test_a_lost_answer_is_asked_for_again_with_the_same_sequence(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    """The broker has stored the batch. The second time it says so, and the tool takes that for success."""
    logs = Logs()

    def store_and_hang_up(request: ProduceRequest) -> object:
        logs(request)
        return HANG_UP

    def known(request: ProduceRequest) -> ProduceResponse:
        return logs.answer(request, lambda index, data: (int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER), -1))

    cluster.brokers[0].answers[ApiKey.PRODUCE] = first_then(store_and_hang_up, known)
    producer = await send(wire, records(3))
    first, second = cluster.brokers[0].requests(ProduceRequest)
    assert bytes(first.topic_data[0].partition_data[0].records) == bytes(second.topic_data[0].partition_data[0].records)
    assert producer.results[0].record_count == 3


@pytest.mark.parametrize("encoded", [False, True])
@staged(play)
async def test_a_batch_that_is_too_large_is_halved_until_it_fits(
    cluster: ScriptedCluster, wire: WireCluster, /, encoded: bool
) -> None:
    logs = Logs()

    def bounded(request: ProduceRequest) -> ProduceResponse:
        def settle(index: int, data: Any) -> tuple[int, int]:
            if len(data) > 300:
                return int(ErrorCode.MESSAGE_TOO_LARGE), -1
            return 0, logs.append(index, data)

        return logs.answer(request, settle)

    cluster.brokers[0].answers[ApiKey.PRODUCE] = bounded
    wanted = records(40, size=20)
    await send(wire, wanted, encoded=encoded)
    log = logs.by_partition[0]
    assert log.values == [record.value for record in wanted]
    assert log.sequences == sorted(set(log.sequences))
    with pytest.raises(Refused) as refused:
        await send(wire, records(1, size=1000), encoded=encoded)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
@staged(play)
async def test_what_will_not_pass_is_refused_at_once(
    cluster: ScriptedCluster, wire: WireCluster, /, code: ErrorCode
) -> None:
    cluster.brokers[0].answers[ApiKey.PRODUCE] = refuse(Logs(), code)
    with pytest.raises(Refused) as refused:
        await send(wire, records(1))
    assert (refused.value.code, refused.value.where) == (code, "topic t partition 0")
    assert len(cluster.brokers[0].requests(ProduceRequest)) == 1


@staged(play)
async def test_the_last_reason_is_told_when_time_runs_out(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    cluster.brokers[0].answers[ApiKey.PRODUCE] = refuse(Logs(), ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(Refused) as refused:
        await send(wire, records(1), delivery_timeout_s=0.5)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.leaders = {"t": [-1, 1]}
    with pytest.raises(Refused) as refused:
        await send(wire, records(1), delivery_timeout_s=0.5)
    assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    cluster.leaders = {"t": [0, 1]}
    cluster.brokers[0].answers[ApiKey.PRODUCE] = lambda request: HANG_UP
    with pytest.raises(Unreachable) as silent:
        await send(wire, records(1), delivery_timeout_s=0.5)
    assert silent.value.where == "topic t, led by broker 0"


@staged(play)
async def test_brokers_that_give_no_producer_id_are_no_slow_brokers(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    for code, reason in (
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "COORDINATOR_LOAD_IN_PROGRESS"),
        (None, "no answer"),
    ):
        for broker in cluster.brokers:
            broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda request, code=code: (
                SILENCE if code is None else InitProducerIdResponse(error_code=code)
            )
        with pytest.raises(Unreachable, match=f"no broker gave a producer id within 0.5 s \\({reason}\\)") as silent:
            await send(wire, records(1), delivery_timeout_s=0.5)
        assert "is it up?" in str(silent.value.hint)


@staged(play)
async def test_without_acks_nothing_is_told_but_everything_arrives(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    logs = Logs()

    def silent(request: ProduceRequest) -> None:
        logs(request)

    cluster.brokers[0].answers[ApiKey.PRODUCE] = silent
    producer = await send(wire, records(5), acks=0)
    assert len(logs.by_partition[0].values) == 5
    assert producer.results[0].first_offset is None
    assert not cluster.brokers[0].requests(InitProducerIdRequest), "idempotence wants all acks"


@staged(play)
async def test_who_gets_no_producer_id_sends_without_and_is_told_so(
    cluster: ScriptedCluster, wire: WireCluster, /, tmp_path: Path
) -> None:
    """Brokers before Kafka 2.8 give none without IdempotentWrite, and take the records."""
    logs = Logs()
    warning = "the cluster gave no producer id: what had to be sent again may be stored twice"
    words = (
        "produce",
        "t",
        "--partition",
        "0",
        "-b",
        ",".join(f"{host}:{port}" for host, port in cluster.bootstrap),
    )
    cluster.brokers[0].answers[ApiKey.PRODUCE] = logs
    ran = await asyncio.to_thread(klamm, *words, folder=tmp_path, stdin="a\n")
    assert ran.code == 0 and warning not in ran.err, ran.err
    for broker in cluster.brokers:
        refused = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda request, answer=refused: answer
    ran = await asyncio.to_thread(klamm, *words, folder=tmp_path, stdin="b\n")
    assert ran.code == 0 and warning in ran.err, ran.err
    assert (logs.by_partition[0].values, logs.by_partition[0].sequences) == ([b"a", b"b"], [0, -1])


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_old_brokers_get_what_they_understand(version: int, encoded: bool) -> None:
    async def scene(cluster: ScriptedCluster, wire: WireCluster) -> None:
        logs = Logs()
        cluster.brokers[0].answers[ApiKey.PRODUCE] = logs
        if version < 3:
            for broker in cluster.brokers:
                del broker.answers[ApiKey.INIT_PRODUCER_ID]
        await send(wire, records(5), encoded=encoded)
        assert logs.by_partition[0].values == [record.value for record in records(5)]

    play(scene, version_max={ApiKey.PRODUCE: version})


@staged(play)
async def test_topics_and_partitions_that_are_not_there(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    with pytest.raises(NotFound, match="'absent' does not exist"):
        await Producer(wire, "absent", ProducerOptions()).open()
    with pytest.raises(NotFound, match="has no partition 5"):
        await send(wire, records(1), partition=5)
    with pytest.raises(NotFound, match="has no partition 5"):
        await send(wire, records(1), partition=5, encoded=True)
