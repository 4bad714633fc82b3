"""Where the partitions of a plan are, according to the cluster: only it knows how far a plan is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from engine.admin.cluster.connection import Cluster
from engine.admin.reassignment.access import reassignment_reader
from engine.admin.reassignment.journal import JournalRecord
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.moves import PartitionStatus, ReassignmentState
from engine.admin.reassignment.running import read_partitions
from engine.admin.reassignment.verify import read_statuses
from engine.admin.reassignment.waves import Standing, WaveMove, standing_of
from engine.common.model import TopicPartition

DRIFT_LOOKS = 5
"""How many times to look again at a partition that is neither at its old place nor at its new one."""

PAUSE_S = 0.2

AS_BEFORE = "where it was before the plan"
ELSEWHERE = "neither where it was before the plan nor where the plan wants it"


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


def seen_from_before(
    statuses: Sequence[PartitionStatus],
    moves: Sequence[WaveMove],
    record: JournalRecord | None,
    holder: Holder | None = None,
) -> list[PartitionStatus]:
    """Return the statuses of a plan; what is not at its new place, and does not move, is seen from its old one.

    ``record`` is the plan's journal, ``holder`` who has the lock. While somebody carries the plan out, what is at its
    old place waits. Otherwise, with every partition there and no journal, or one of a whole rollback, none has failed.
    """
    failed = {status.name for status in statuses if status.state is ReassignmentState.FAILED}
    back = {move.name for status, move in zip(statuses, moves, strict=True) if status.replicas == move.before} & failed
    if back and holder is not None and _carries_out(holder, moves):
        state, reason = ReassignmentState.WAITING, f"{holder.who} has not come to it yet"
        return [replace(one, state=state, reason=reason) if one.name in back else one for one in statuses]
    if len(back) < len(moves) or (record is not None and not record.is_rolled_back):
        reasons = {name: AS_BEFORE if name in back else ELSEWHERE for name in failed}
        return [replace(status, reason=reasons.get(status.name, status.reason)) for status in statuses]
    state = ReassignmentState.NOT_BEGUN if record is None else ReassignmentState.ROLLED_BACK
    return [replace(status, state=state, reason=AS_BEFORE) for status in statuses]


def _carries_out(holder: Holder, moves: Sequence[WaveMove]) -> bool:
    """Whether who holds the lock leads these partitions to their new places."""
    named = Holder.myself("", {move.name.topic for move in moves}).topics
    return holder.topics == named and holder.what.startswith(("apply ", "resume "))


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
