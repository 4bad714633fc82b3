"""The consumer performance test when leaders move and offsets vanish: every record is counted once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from event_loop import staged
from scripted_brokers import HANG_UP, ScriptedCluster, scripted_cluster
from scripted_logs import Log, lead

from engine.admin.cluster.errors import NotFound, Refused
from engine.admin.cluster.wire import WireCluster
from engine.admin.perf import consumer
from engine.admin.perf.consumer import PerfConsumer, ReadLoad
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchRequest, FetchResponse
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.layout import Buffer

Scene = Callable[[ScriptedCluster, WireCluster], Awaitable[None]]


def play(scene: Scene) -> None:
    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(2) as cluster:
            cluster.leaders = {"t": [0, 1]}
            wire = WireCluster(cluster.bootstrap)
            try:
                await scene(cluster, wire)
            finally:
                await wire.close()

    asyncio.run(playing())


async def count(wire: WireCluster, wanted: int, **options: Any) -> int:
    """Return how many records were read; fewer than wanted if none came for a while."""
    test = PerfConsumer(wire, ReadLoad(**{"topic": "t", "record_count": wanted, "idle_s": 2.0, **options}))
    await test.run(lambda _: None, lambda _: None)
    return test.totals.consumed_records


@pytest.mark.parametrize("is_decoding", [False, True])
@staged(play)
async def test_every_record_is_counted_once(cluster: ScriptedCluster, wire: WireCluster, /, is_decoding: bool) -> None:
    lead(cluster, 0, {0: Log(50)})
    lead(cluster, 1, {1: Log(20, start=7)})
    assert await count(wire, 10**6, is_decoding=is_decoding) == 70


def test_the_next_request_leaves_before_records_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    real_count = consumer.count_data

    def counting(buffer: Buffer, position: int, header: BatchHeader) -> tuple[int, int]:
        seen.append(("counted", header.base_offset))
        return real_count(buffer, position, header)

    async def scene(cluster: ScriptedCluster, wire: WireCluster) -> None:
        lead(cluster, 0, {0: Log(12)})
        real_call = wire.call_broker

        async def asking(broker_id: int, request: Any, **limits: Any) -> Any:
            if isinstance(request, FetchRequest):
                seen.append(("asked", request.topics[0].partitions[0].fetch_offset))
            return await real_call(broker_id, request, **limits)

        monkeypatch.setattr(wire, "call_broker", asking)
        assert await count(wire, 12, partitions=(0,), is_decoding=True) == 12

    monkeypatch.setattr(consumer, "count_data", counting)
    play(scene)
    assert seen[:4] == [("asked", 0), ("asked", 6), ("counted", 0), ("counted", 3)]


@pytest.mark.parametrize("is_decoding", [False, True])
@pytest.mark.parametrize("ending", [ErrorCode.NOT_LEADER_OR_FOLLOWER, HANG_UP])
@staged(play)
async def test_a_leader_that_moves_or_dies_is_followed(
    cluster: ScriptedCluster, wire: WireCluster, /, ending: object, is_decoding: bool
) -> None:
    logs = {0: Log(30), 1: Log(30)}
    old = lead(cluster, 0, logs)
    lead(cluster, 1, logs)

    def moves(request: FetchRequest) -> object:
        if request.topics[0].partitions[0].fetch_offset < 12:
            return old.fetch(request)
        cluster.leaders = {"t": [1, 1]}
        if ending is HANG_UP:
            return HANG_UP
        old.codes[0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return old.fetch(request)

    cluster.brokers[0].answers[ApiKey.FETCH] = moves
    assert await count(wire, 10**6, is_decoding=is_decoding) == 60


@staged(play)
async def test_where_the_offset_has_gone_it_goes_on_at_the_start(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    logs = {0: Log(30)}
    script = lead(cluster, 0, logs)

    def goes(request: FetchRequest) -> Awaitable[FetchResponse]:
        if request.topics[0].partitions[0].fetch_offset == 6:
            logs[0] = Log(10, start=20)
        return script.fetch(request)

    cluster.brokers[0].answers[ApiKey.FETCH] = goes
    assert await count(wire, 10**6, partitions=(0,)) == 6 + 10


@staged(play)
async def test_what_will_not_pass_ends_it(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    lead(cluster, 0, {0: Log(3)}).codes[0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED") as refused:
        await count(wire, 1, partitions=(0,))
    assert refused.value.where == "topic t partition 0"
    cluster.brokers[0].answers[ApiKey.FETCH] = lambda _: FetchResponse(responses=[])
    with pytest.raises(Refused, match="left it out of its answer"):
        await count(wire, 1, partitions=(0,))
    with pytest.raises(NotFound, match="has no partition 9"):
        await count(wire, 1, partitions=(9,))
