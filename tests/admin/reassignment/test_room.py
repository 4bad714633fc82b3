"""When a reassignment has too little disk space: which figures count, and which are unknown."""

from __future__ import annotations

import asyncio

import pytest
from event_loop import in_event_loop
from scripted_brokers import scripted_cluster
from scripted_moves import DIR, OTHER_DIR, SIZE, ScriptedMoves

from engine.admin.brokers.reading_load import read_sizes, read_volumes
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.reassignment.prepare import (
    PlannedDir,
    PlannedMove,
    RoomShortage,
    of_wave,
    prepare_reassignment,
    room_shortages,
)
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.throttle_settings import Throttle
from engine.admin.reassignment.waves import WaveMove
from engine.common.model import TopicPartition
from engine.common.snapshot import LogDirSnapshot

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TO_1 = PlannedMove("t", 0, (0,), (1,), (1,), (0,))
ALSO_TO_1 = PlannedMove("t", 1, (0,), (0, 1), (1,), ())
INTO_B = PlannedMove("t", 0, (0,), (1,), (1,), (0,), (PlannedDir(1, None, "/b"),))
BETWEEN_DIRS = PlannedMove("t", 0, (1,), (1,), (), (), (PlannedDir(1, "/a", "/b"),))
ORDER = PlannedMove("t", 0, (0, 1), (1, 0), (), ())
SIZES = {T0: 60, T1: 50}


def volumes(a: int | None, b: int | None, total_b: int = 1001) -> list[LogDirSnapshot]:
    return [LogDirSnapshot(0, "/a", 1000, 0), LogDirSnapshot(1, "/a", 1000, a), LogDirSnapshot(1, "/b", total_b, b)]


@pytest.mark.parametrize(
    ("moves", "dirs", "expected"),
    [
        ([TO_1], volumes(30, 30), []),
        ([TO_1], volumes(30, 29), [RoomShortage(1, None, 60, 59)]),
        ([TO_1, ALSO_TO_1], volumes(60, 40), [RoomShortage(1, None, 110, 100)]),
        ([TO_1], volumes(30, 30, total_b=1000), [RoomShortage(1, None, 60, 30)]),
        ([INTO_B], volumes(900, 59), [RoomShortage(1, "/b", 60, 59)]),
        ([BETWEEN_DIRS], volumes(900, 59), [RoomShortage(1, "/b", 60, 59)]),
        ([INTO_B], volumes(0, 59), [RoomShortage(1, None, 60, 59), RoomShortage(1, "/b", 60, 59)]),
        ([INTO_B], volumes(59, 900), []),
        ([ORDER], volumes(0, 0), []),
        ([TO_1], volumes(0, None), []),
        ([TO_1], volumes(None, None), []),
        ([TO_1], [], []),
    ],
)
def test_shortages(moves: list[PlannedMove], dirs: list[LogDirSnapshot], expected: list[RoomShortage]) -> None:
    assert room_shortages(moves, SIZES, dirs) == expected


def test_what_has_no_known_size_needs_no_room() -> None:
    assert room_shortages([TO_1], {}, volumes(0, 0)) == []


@pytest.mark.parametrize(
    ("usable_bytes", "expected"), [(-1, []), (SIZE, []), (SIZE - 1, [RoomShortage(2, None, SIZE, SIZE - 1)])]
)
@in_event_loop
async def test_brokers_are_asked(usable_bytes: int, expected: list[RoomShortage]) -> None:
    async with asyncio.timeout(60), scripted_cluster(3) as brokers:
        moves = ScriptedMoves(brokers, {T0: (0, 1)})
        moves.usable_bytes = usable_bytes
        target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        async with Cluster(target, timeout_s=20) as cluster:
            prepared = await prepare_reassignment(cluster, [PartitionMove(T0, (1, 2))], Throttle(None))
            volumes = await read_volumes(cluster)
            assert [(room.broker, room.log_dir) for room in volumes] == [
                (broker, path) for broker in (0, 1, 2) for path in (DIR, OTHER_DIR)
            ]
            sizes = await read_sizes(cluster, [T0])
            assert room_shortages(prepared.planned, sizes, volumes) == expected


def test_of_a_plan_counts_what_its_waves_copy() -> None:
    move = WaveMove(PartitionMove(T0, (1, 2, 3), ("/b", "any", "/x")), (1, 0, 3), dirs_before=("/a", "any", "/x"))
    assert of_wave(move) == PlannedMove("t", 0, (1, 0, 3), (1, 2, 3), (2,), (0,), (PlannedDir(1, None, "/b"),))
