"""Offsets of many partitions at one point of their logs, asked of all leaders at the same time.

A partition that cannot be looked up is an answer with an error; the others are not held up by it. Leadership that has
just moved is looked up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.admin.connection import Cluster
from engine.admin.errors import AdminError, NotFound, Refused
from engine.admin.offset_selection import PartitionSelection
from engine.admin.offset_times import OffsetTime
from engine.admin.offsets import FoundOffset, ask_offsets
from engine.admin.wire import RETRY_PAUSE_S, WireCluster
from engine.common.errors import ErrorCode, RemoteProtocolError
from engine.common.model import NO_LEADER, IsolationLevel, TopicPartition
from engine.protocol.api_keys import ApiKey

_TRIES = 3
_SHARE_OF_TIME = 0.6
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
)


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """What was found in one partition. ``leader`` -1 is none.

    ``offset`` is None where there is no record at or after the time, and with an ``error``. ``timestamp`` is that of
    the record, None where the offset was not found by time.
    """

    topic: str
    partition: int
    leader: int
    offset: int | None = None
    timestamp: int | None = None
    leader_epoch: int | None = None
    error: str | None = None

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


Leaders = Mapping[TopicPartition, int]


async def choose_partitions(wire: WireCluster, selection: PartitionSelection) -> dict[TopicPartition, int]:
    """Return the chosen partitions with their leaders (-1: none).

    Raises:
        NotFound: a rule matches nothing, or there is nothing to match.
    """
    response = await wire.metadata(selection.topics)
    leaders = {
        TopicPartition(topic.name or "", p.partition_index): p.leader_id
        for topic in response.topics
        for p in topic.partitions
    }
    known: dict[str, list[int]] = {}
    for name in leaders:
        known.setdefault(name.topic, []).append(name.partition)
    chosen = selection.choose(known)
    unmatched = selection.unmatched(chosen)
    if unmatched:
        message = f"no partition matches {', '.join(dict.fromkeys(unmatched))}"
        raise NotFound(message, hint="see topics and partitions with: klamm topics describe")
    return {name: leaders[name] for name in chosen}


async def look_up(
    cluster: Cluster,
    leaders: Leaders,
    time: OffsetTime,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> list[PartitionOffset]:
    """Return the offset of each partition at ``time``, in the order given.

    Raises:
        Refused: a broker is too old to know such a time.
    """
    wire = await cluster.wire()
    found: dict[TopicPartition, PartitionOffset] = {}
    wanted = dict(leaders)
    for attempt in range(_TRIES):
        for answer in await _ask_all(cluster, wire, wanted, time, isolation):
            found[answer.name] = answer
        moved = {name for name in wanted if found[name].error in {code.name for code in _MOVED}}
        if not moved or attempt == _TRIES - 1:
            break
        await asyncio.sleep(RETRY_PAUSE_S)
        wanted = await _leaders_of(wire, moved)
    return [found[name] for name in leaders]


async def _leaders_of(wire: WireCluster, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    wanted = set(names)
    response = await wire.metadata(sorted({name.topic for name in wanted}))
    leaders = dict.fromkeys(wanted, NO_LEADER)
    for topic in response.topics:
        for p in topic.partitions:
            name = TopicPartition(topic.name or "", p.partition_index)
            if name in wanted:
                leaders[name] = p.leader_id
    return leaders


async def _ask_all(
    cluster: Cluster, wire: WireCluster, leaders: Leaders, time: OffsetTime, isolation: IsolationLevel
) -> list[PartitionOffset]:
    by_leader: dict[int, list[TopicPartition]] = {}
    for name, leader in leaders.items():
        by_leader.setdefault(leader, []).append(name)
    leaderless = by_leader.pop(NO_LEADER, [])
    no_leader = ErrorCode.LEADER_NOT_AVAILABLE.name
    answers = [PartitionOffset(*name, NO_LEADER, error=no_leader) for name in leaderless]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_ask(cluster, wire, leader, names, time, isolation), name=f"offsets-of-{leader}")
            for leader, names in by_leader.items()
        ]
    for task in tasks:
        outcome = task.result()
        if isinstance(outcome, Refused):
            raise outcome
        answers += outcome
    return answers


async def _ask(
    cluster: Cluster,
    wire: WireCluster,
    leader: int,
    names: Sequence[TopicPartition],
    time: OffsetTime,
    isolation: IsolationLevel,
) -> list[PartitionOffset] | Refused:
    """Ask one leader; what it cannot answer is an error of each partition, a broker too old ends it all."""
    limit_s = cluster.timeout_s * _SHARE_OF_TIME
    try:
        async with asyncio.timeout(limit_s):
            client = await wire.client_of(leader)
            version = await wire.version(client, ApiKey.LIST_OFFSETS)
            if version < time.version_min:
                message = f"broker {leader} does not know the time {time.name!r}"
                return Refused(ErrorCode.UNSUPPORTED_VERSION, message, hint="ask for earliest, latest or milliseconds")
            answers = await ask_offsets(wire, leader, dict.fromkeys(names, time.timestamp), isolation)
    except TimeoutError:
        return [PartitionOffset(*name, leader, error=f"no answer within {limit_s:g} s") for name in names]
    except Refused as error:
        return error
    except (AdminError, RemoteProtocolError) as error:
        return [PartitionOffset(*name, leader, error=str(error)) for name in names]
    return [_told(name, leader, answers.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)) for name in names]


def _told(name: TopicPartition, leader: int, answer: FoundOffset | ErrorCode) -> PartitionOffset:
    if isinstance(answer, ErrorCode):
        return PartitionOffset(*name, leader, error=answer.name)
    return PartitionOffset(
        *name,
        leader,
        None if answer.offset < 0 else answer.offset,
        None if answer.timestamp < 0 else answer.timestamp,
        None if answer.leader_epoch < 0 else answer.leader_epoch,
    )
