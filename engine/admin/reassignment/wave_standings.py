"""Where the partitions of a plan are. Only the cluster knows, so this asks it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.hung import hung_after_s, hung_brokers
from engine.admin.cluster.members import read_members
from engine.admin.reassignment.access import read_partitions, reassignment_reader
from engine.admin.reassignment.journal import JournalRecord
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.moves import PartitionStatus, ReassignmentState
from engine.admin.reassignment.verify import read_statuses
from engine.admin.reassignment.waves import Standing, Wave, WaveMove, standing_of
from engine.admin.topics.access import topic_reader
from engine.common.listing import first_few
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.quantities import plural

DRIFT_LOOKS = 5
"""How many times to look again at a partition that is neither at its old place nor at its new one."""

PAUSE_S = 0.2

AS_BEFORE = "where it was before the plan"
ELSEWHERE = "neither where it was before the plan nor where the plan wants it"
NOT_REACHED = f"{AS_BEFORE}: the last run ended before its wave"


async def read_standings(cluster: Cluster, moves: Sequence[WaveMove]) -> dict[TopicPartition, Standing]:
    """Return where each partition of a plan is.

    It reads the running moves and the assignments one after the other, and brokers learn of an end at different times,
    so a move that ends in between looks like another client's. So drift counts only when it lasts.
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

    ``record`` is the plan's journal, ``holder`` who has the lock. While the plan is carried out, what is at its old
    place waits. Otherwise a partition there has not failed if no run is known, the last run ended before its wave, or a
    rollback has led it there.
    """
    failed = {status.name for status in statuses if status.state is ReassignmentState.FAILED}
    back = {move.name for status, move in zip(statuses, moves, strict=True) if status.replicas == move.before} & failed
    is_ours = holder is not None and _is_for(holder, moves)
    if back and holder is not None and is_ours and holder.what.startswith(("apply ", "resume ")):
        state, reason = ReassignmentState.WAITING, f"{holder.who} has not come to it yet"
        return [replace(status, state=state, reason=reason) if status.name in back else status for status in statuses]
    if record is not None and record.is_unfinished and not is_ours:
        return [_after_an_early_end(status, record, back) if status.name in failed else status for status in statuses]
    state = ReassignmentState.FAILED
    if record is None:
        state = ReassignmentState.NOT_BEGUN
    elif len(back) == len(moves) and record.is_rolled_back:
        state = ReassignmentState.ROLLED_BACK
    seen = {name: (state, AS_BEFORE) if name in back else (ReassignmentState.FAILED, ELSEWHERE) for name in failed}
    return [
        replace(status, state=seen[status.name][0], reason=seen[status.name][1]) if status.name in failed else status
        for status in statuses
    ]


def _after_an_early_end(
    status: PartitionStatus, record: JournalRecord, back: Collection[TopicPartition]
) -> PartitionStatus:
    """Return the status of a partition that is not at its new place after a run that did not end well."""
    if status.name not in back:
        return replace(status, reason=ELSEWHERE)
    if record.is_of_rollback:
        return replace(status, state=ReassignmentState.ROLLED_BACK, reason=AS_BEFORE)
    if str(status.name) not in record.reached:
        return replace(status, state=ReassignmentState.NOT_BEGUN, reason=NOT_REACHED)
    return replace(status, reason=AS_BEFORE)


def _is_for(holder: Holder, moves: Sequence[WaveMove]) -> bool:
    """Whether the lock is held for a plan of these topics."""
    return holder.topics == Holder.myself("", {move.name.topic for move in moves}).topics


async def _look(cluster: Cluster, moves: Sequence[WaveMove]) -> dict[TopicPartition, Standing]:
    listed = (await (await reassignment_reader(cluster)).running()).listed
    partitions = await read_partitions(cluster, {move.name.topic for move in moves})
    standings = {move.name: standing_of(move, partitions.get(move.name), listed.get(move.name)) for move in moves}
    with_dirs = [move.move for move in moves if move.move.wanted_dirs and standings[move.name] is Standing.DONE]
    for status in await read_statuses(cluster, with_dirs) if with_dirs else ():
        if status.state is ReassignmentState.IN_PROGRESS:
            standings[status.name] = Standing.MOVING
        elif status.state is not ReassignmentState.COMPLETE:
            standings[status.name] = Standing.WAITING
    return standings


# The gate before each wave: whether the cluster is as healthy as when the plan began.
#
# What was wrong at the start does not close the gate: the plan may be meant to fix it.

_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """Which brokers are alive, which replicas are out of sync (not counting those being added), what has no leader.

    ``hung`` of the live brokers take connections and answer nothing: their sessions have not ended yet.
    """

    live: frozenset[int]
    out_of_sync: Mapping[TopicPartition, frozenset[int]]
    leaderless: frozenset[TopicPartition]
    hung: frozenset[int] = frozenset()


async def read_health(cluster: Cluster, wave: Wave = ()) -> ClusterHealth:
    """Look at all partitions, and whether the brokers answer that must copy, or keep, replicas of the wave.

    Raises:
        Unreachable: no broker answers.
    """
    reader = await topic_reader(cluster, on_unreadable=cluster.observe, on_unknown_settings=cluster.observe)
    topics = await reader.topics([entry.topic for entry in await reader.names()])
    out_of_sync: dict[TopicPartition, frozenset[int]] = {}
    leaderless = set()
    for topic in topics:
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition)
            missing = frozenset(partition.osr) - set(partition.assignment.adding_replicas)
            if missing:
                out_of_sync[name] = missing
            if partition.leader == NO_LEADER:
                leaderless.add(name)
    targets = frozenset(broker for move in wave if _changes_set(move) for broker in move.target)
    return ClusterHealth(
        await reader.live_brokers(), out_of_sync, frozenset(leaderless), await _hung_of(cluster, targets)
    )


async def _hung_of(cluster: Cluster, brokers: Collection[int]) -> frozenset[int]:
    if not brokers or not cluster.target.may_ask_brokers:
        return frozenset()
    asked = [broker for broker in (await read_members(cluster)).brokers if broker.id in brokers]
    return await hung_brokers(asked, cluster.target.client_properties, hung_after_s(cluster.timeout_s))


def obstacles(start: ClusterHealth, now: ClusterHealth, wave: Wave) -> list[str]:
    """Return why a wave must not begin, one sentence for each reason."""
    targets = {broker for move in wave for broker in move.target}
    texts = [
        *_absent(targets - now.live, "dead", "cannot be reached", wave),
        *_absent(now.hung & now.live, "hung", "cannot answer: is the process frozen?", wave),
    ]
    leaderless = sorted(now.leaderless & {move.name for move in wave})
    if leaderless:
        texts.append(f"no leader to copy from: {first_few(leaderless, _NAMED_MAX)}")
    shrunk = shrunk_since(start, now)
    if shrunk:
        texts.append(f"the ISR has shrunk for {first_few(shrunk, _NAMED_MAX)}")
    return texts


def _absent(absent: Set[int], kind: str, lack: str, wave: Wave) -> Iterator[str]:
    """Say which replicas these brokers should copy, and which moves wait because they keep theirs."""
    added = sorted({broker for move in wave for broker in move.adding} & absent)
    if added:
        targets = f"{plural('broker', len(added))} {_listed(added)}"
        yield f"{kind} target: {targets} should receive replicas and {lack}"
    held_up = {
        move.name: kept
        for move in wave
        if (kept := absent & set(move.target) & set(move.before)) and _changes_set(move)
    }
    if held_up:
        # Kafka ends no move before all its targets are in the ISR.
        kept_by = sorted(set[int]().union(*held_up.values()))
        keeps = "keeps its replica" if len(kept_by) == 1 else "keep their replicas"
        brokers = f"{kind} {plural('broker', len(kept_by))} {_listed(kept_by)}"
        yield f"{first_few(sorted(held_up), _NAMED_MAX)} would wait for {brokers}, which {keeps}"


def _changes_set(move: WaveMove) -> bool:
    return set(move.target) != set(move.before)


def shrunk_since(start: ClusterHealth, now: ClusterHealth) -> list[TopicPartition]:
    """Return the partitions that have lost an in-sync replica since the start."""
    return sorted(name for name, out in now.out_of_sync.items() if out - start.out_of_sync.get(name, frozenset()))


def behind_since(start: ClusterHealth, now: ClusterHealth) -> list[TopicPartition]:
    """Return the partitions with a live replica that has left the ISR since the start: a slower copy may help it."""
    fallen = {name: out - start.out_of_sync.get(name, frozenset()) for name, out in now.out_of_sync.items()}
    return sorted(name for name, out in fallen.items() if out & now.live)


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values))
