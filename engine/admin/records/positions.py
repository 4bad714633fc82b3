"""What to read of topics, and where to start and stop in each partition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.admin.cluster.asking import ANSWER_LIMIT_S
from engine.admin.cluster.errors import AdminError, LoginRefused, NotFound, Unknown, Unreachable
from engine.admin.cluster.waits import Observer
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster
from engine.admin.offsets.listing import FoundOffset, ask_offsets
from engine.admin.records.leaders import refuse_lasting
from engine.common.errors import ErrorCode
from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_LEADER, IsolationLevel, TopicPartition


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """What to read; no partitions means all. One of ``offset``, ``tail`` and ``start_time_ms`` says where to start."""

    partitions: tuple[int, ...] = ()
    offset: int = LATEST_TIMESTAMP
    """An offset, EARLIEST_TIMESTAMP or LATEST_TIMESTAMP."""
    tail: int | None = None
    """This many offsets before each partition's end."""
    start_time_ms: int | None = None
    """The first record of this time or later."""
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    until_end: bool = False
    """Stop at the end of the log as it was when reading began, or before it where one of the following says so."""
    stop_offset: int | None = None
    """The first offset that is not read."""
    stop_tail: int | None = None
    """Leave out this many offsets before each partition's end."""
    stop_time_ms: int | None = None
    """Stop before the first record of this time or later."""
    give_up_s: float = 30.0
    """How long a leader may be missing or silent; inf: forever."""
    only: frozenset[TopicPartition] | None = None
    """Only these of the topics' partitions."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where to start in these partitions, whatever the other options say."""


class Position:
    """How far one partition has been read. Its leader's reader changes it, or without a leader the keeper."""

    __slots__ = (
        *("is_placed", "is_told_lost", "last_leader_id", "leader_id", "lost_since", "name", "next_offset"),
        "stop_offset",
    )

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.leader_id = self.last_leader_id = NO_LEADER
        self.lost_since: float | None = None
        self.is_told_lost = False
        self.is_placed = False
        """Its start is known, and its end if that is wanted."""
        self.next_offset = -1
        self.stop_offset: int | None = None

    @property
    def is_done(self) -> bool:
        return self.stop_offset is not None and self.next_offset >= self.stop_offset

    def __str__(self) -> str:
        return f"topic {self.name.topic} partition {self.name.partition}"


_TakeOffset = Callable[[Position, int], None]


class Placer:
    """Finds where to start and stop in partitions, by asking their leaders.

    Args:
        leaders: returns the partitions' leaders as they are now.
        given_up: makes the error about a partition whose leader (its id; NO_LEADER: none) has been silent for too long.
    """

    def __init__(
        self,
        wire: WireCluster,
        options: ConsumeOptions,
        *,
        leaders: Callable[[], Awaitable[Mapping[TopicPartition, int]]],
        given_up: Callable[[Position, int], AdminError],
        observe: Observer,
    ) -> None:
        self._wire = wire
        self._options = options
        self._leaders = leaders
        self._given_up = given_up
        self._observe = observe

    async def place(self, positions: Sequence[Position]) -> None:
        """Ask the leaders where to start and, with ``until_end``, where to stop.

        Raises:
            Refused: a partition cannot be read.
            Unreachable: one had no answering leader for too long.
        """
        options = self._options
        unplaced = [position for position in positions if position.name not in options.starts]
        for position in positions:
            position.next_offset = options.starts.get(position.name, -1)
        if not unplaced:
            pass
        elif options.start_time_ms is not None:
            await self._ask_offsets(unplaced, options.start_time_ms, _start_at_time)
            await self._ask_offsets(unplaced, LATEST_TIMESTAMP, _start_if_unknown)
        elif options.tail is not None:
            tail = options.tail
            await self._ask_offsets(unplaced, LATEST_TIMESTAMP, lambda position, end: _start_at(position, end - tail))
            await self._ask_offsets(unplaced, EARLIEST_TIMESTAMP, _start_not_before)
        elif options.offset < 0:
            await self._ask_offsets(unplaced, options.offset, _start_at)
        else:
            for position in unplaced:
                position.next_offset = options.offset
        if options.until_end:
            short = options.stop_tail or 0
            await self._ask_offsets(positions, LATEST_TIMESTAMP, lambda position, end: _stop_at(position, end - short))
            if options.stop_time_ms is not None:
                await self._ask_offsets(positions, options.stop_time_ms, _stop_before)
            if options.stop_offset is not None:
                for position in positions:
                    _stop_before(position, options.stop_offset)

    async def _ask_offsets(self, positions: Sequence[Position], timestamp: int, take: _TakeOffset) -> None:
        waiting = list(positions)
        deadline = time.monotonic() + self._options.give_up_s
        while waiting:
            leaders = await self._leaders()
            by_leader: dict[int, list[Position]] = {}
            for position in waiting:
                by_leader.setdefault(leaders.get(position.name, NO_LEADER), []).append(position)
            waiting = by_leader.pop(NO_LEADER, [])
            for leader_id, some in by_leader.items():
                waiting += await self._ask_leader(leader_id, some, timestamp, take)
            if waiting and time.monotonic() > deadline:
                raise self._given_up(waiting[0], leaders.get(waiting[0].name, NO_LEADER))
            if waiting:
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _ask_leader(
        self, leader_id: int, positions: Sequence[Position], timestamp: int, take: _TakeOffset
    ) -> list[Position]:
        """Ask one leader; return the partitions that it did not answer for and another may."""
        wanted = {position.name: timestamp for position in positions}
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                offsets = await ask_offsets(self._wire, leader_id, wanted, self._options.isolation)
        except LoginRefused:
            raise
        except (Unreachable, NotFound, TimeoutError) as error:
            self._observe(f"broker {leader_id} returns no offsets ({error or 'no answer'}), looking for the leaders")
            return list(positions)
        left = []
        for position in positions:
            answer = offsets.get(position.name, ErrorCode.UNKNOWN_SERVER_ERROR)
            if isinstance(answer, FoundOffset):
                take(position, answer.offset)
            else:
                refuse_lasting(Unknown.of_code(answer), f"{position}")
                left.append(position)
        return left


def _start_at(position: Position, offset: int) -> None:
    position.next_offset = max(offset, 0)


def _start_at_time(position: Position, offset: int) -> None:
    position.next_offset = offset


def _start_if_unknown(position: Position, offset: int) -> None:
    """No record is that late: start at the end."""
    if position.next_offset < 0:
        position.next_offset = offset


def _start_not_before(position: Position, offset: int) -> None:
    position.next_offset = max(position.next_offset, offset)


def _stop_at(position: Position, offset: int) -> None:
    position.stop_offset = offset


def _stop_before(position: Position, offset: int) -> None:
    """Stop there, unless the end comes first; -1: no record is that late."""
    if position.stop_offset is not None and offset >= 0:
        position.stop_offset = min(position.stop_offset, offset)
