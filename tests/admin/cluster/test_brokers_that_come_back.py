"""A broker that comes back while a command runs is asked like the others, although its list of brokers is older."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from event_loop import in_event_loop
from scripted_brokers import scripted_cluster
from scripted_moves import OTHER_DIR, SIZE, ScriptedMoves

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.log_dirs.describing import read_log_dirs
from engine.admin.reassignment.log_dirs import stop_log_dir_moves
from engine.admin.reassignment.plan_runs import with_sizes
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.waves import WaveMove
from engine.admin.topics.access import topic_reader
from engine.common.model import TopicPartition

T0 = TopicPartition("t", 0)
BACK = 1
PLAN = [PartitionMove(T0, (BACK, 0), (OTHER_DIR, "any"))]

Scene = Callable[[Cluster, ScriptedMoves], Awaitable[None]]


async def stopping_log_dir_moves(cluster: Cluster, moves: ScriptedMoves) -> None:
    moves.futures[T0, BACK] = OTHER_DIR
    assert await stop_log_dir_moves(cluster, PLAN) == [(T0, BACK)]


async def sizes_of_waves(cluster: Cluster, moves: ScriptedMoves) -> None:
    (move,) = await with_sizes(cluster, [WaveMove(PartitionMove(T0, (0,)), before=(BACK,))])
    assert move.size_bytes == SIZE


async def log_dirs(cluster: Cluster, moves: ScriptedMoves) -> None:
    assert {log_dir.broker for log_dir in await read_log_dirs(cluster)} == {0, BACK}


async def log_dirs_of_a_named_broker(cluster: Cluster, moves: ScriptedMoves) -> None:
    assert {log_dir.broker for log_dir in await read_log_dirs(cluster, [BACK])} == {BACK}


async def who_is_alive(cluster: Cluster, moves: ScriptedMoves) -> None:
    assert await (await topic_reader(cluster)).live_brokers() == {0, BACK}


@pytest.mark.parametrize(
    "scene",
    [
        stopping_log_dir_moves,
        sizes_of_waves,
        log_dirs,
        log_dirs_of_a_named_broker,
        who_is_alive,
    ],
)
@in_event_loop
async def test_a_broker_that_came_back_is_asked(scene: Scene) -> None:
    async with asyncio.timeout(60), scripted_cluster(2) as brokers:
        moves = ScriptedMoves(brokers, {T0: (0, BACK)})
        target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=(brokers.bootstrap[0],))
        async with Cluster(target, complain=pytest.fail, timeout_s=20) as cluster:
            everybody, brokers.brokers = brokers.brokers, brokers.brokers[:1]
            assert set(await (await cluster.wire()).nodes()) == {0}
            brokers.brokers = everybody
            await scene(cluster, moves)


def test_moves_between_log_dirs_that_could_not_be_stopped_are_told() -> None:
    warnings: list[str] = []

    async def playing(*, is_silent: bool) -> None:
        async with asyncio.timeout(60), scripted_cluster(2) as brokers:
            moves = ScriptedMoves(brokers, {T0: (0, BACK)})
            moves.futures[T0, BACK] = OTHER_DIR
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=(brokers.bootstrap[0],))
            if is_silent:
                moves.without_dirs = {BACK}
            else:
                brokers.brokers = brokers.brokers[:1]
            async with Cluster(target, complain=warnings.append, timeout_s=20) as cluster:
                assert await stop_log_dir_moves(cluster, PLAN) == []

    asyncio.run(playing(is_silent=False))
    asyncio.run(playing(is_silent=True))
    assert warnings == [f"broker {BACK} does not answer: its moves to other log dirs go on once it does"] * 2
