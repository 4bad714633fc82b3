"""Where the partitions of a plan are, according to the cluster: only it knows how far a plan is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from engine.admin.cluster.connection import Cluster
from engine.admin.reassignment.access import reassignment_reader
from engine.admin.reassignment.moves import PartitionStatus, ReassignmentState
from engine.admin.reassignment.running import read_partitions
from engine.admin.reassignment.verify import read_statuses
from engine.admin.reassignment.waves import Standing, WaveMove, standing_of
from engine.common.model import TopicPartition

DRIFT_LOOKS = 5
"""How many times to look again at a partition that is neither at its old place nor at its new one."""

PAUSE_S = 0.2


async def read_standings(cluster: Cluster, moves: Sequence[WaveMove]) -> dict[TopicPartition, Standing]:
    """Return where each partition of a plan is.

    It reads the running moves and the assignments one after the other, and brokers learn of an end at different times,
    so a move that ends meanwhile looks like somebody else's. So drift counts only when it lasts.
    """
    standings = await _look(cluster, moves)
    for _ in range(DRIFT_LOOKS):
        drifted = [move for move in moves if standings[move.name] is Standing.DRIFTED]
        if not drifted:
            break
        await asyncio.sleep(PAUSE_S)
        standings |= await _look(cluster, drifted)
    return standings


def seen_as_not_begun(statuses: Sequence[PartitionStatus], moves: Sequence[WaveMove]) -> list[PartitionStatus]:
    """Return the statuses of a plan without a journal: with every partition at its old place, none has failed."""
    is_begun = any(
        status.state is not ReassignmentState.FAILED or status.replicas != move.before
        for status, move in zip(statuses, moves, strict=True)
    )
    if is_begun:
        return list(statuses)
    reason = "where it was before the plan"
    return [replace(status, state=ReassignmentState.NOT_BEGUN, reason=reason) for status in statuses]


async def _look(cluster: Cluster, moves: Sequence[WaveMove]) -> dict[TopicPartition, Standing]:
    listed = (await (await reassignment_reader(cluster)).running()).listed
    found = await read_partitions(cluster, {move.name.topic for move in moves})
    standings = {move.name: standing_of(move, found.get(move.name), listed.get(move.name)) for move in moves}
    with_dirs = [one.move for one in moves if one.move.wanted_dirs and standings[one.name] is Standing.DONE]
    for status in await read_statuses(cluster, with_dirs) if with_dirs else ():
        if status.state is ReassignmentState.IN_PROGRESS:
            standings[status.name] = Standing.MOVING
        elif status.state is not ReassignmentState.COMPLETE:
            standings[status.name] = Standing.WAITING
    return standings
