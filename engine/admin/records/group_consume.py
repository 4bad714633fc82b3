"""Reads topics as a member of a consumer group: shares their partitions, continues at the committed offsets, commits.

It commits what its caller has processed every few seconds and at the end, so that after a crash only the last seconds
are read twice. For a partition of which it has read nothing yet, it commits where it began, as Kafka's consumer does,
so that the next member misses no records that arrived in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from engine.admin.cluster.errors import AdminError, Unknown, Unreachable
from engine.admin.cluster.waits import Observer, ignore_line
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster
from engine.admin.groups.group_reading import committed_offsets
from engine.admin.groups.membership import Membership
from engine.admin.groups.values import CommittedOffset, GroupOffsets
from engine.admin.records.consume import Consumer
from engine.admin.records.fetching import ConsumedRecords
from engine.admin.records.leaders import topic_leaders
from engine.admin.records.positions import ConsumeOptions
from engine.common.model import TopicPartition

_BEAT_S = 3.0
_LEAVE_S = 5.0

_Batches = AsyncGenerator[ConsumedRecords, None]


class GroupConsumer:
    """Reads some topics for a group: ``open``, then iterate ``batches``, and close the iterator."""

    def __init__(
        self,
        wire: WireCluster,
        group: str,
        topics: Sequence[str],
        options: ConsumeOptions,
        *,
        commits: bool = True,
        observe: Observer = ignore_line,
        complain: Observer = ignore_line,
    ) -> None:
        """Without ``commits``, the group's offsets stay as they are."""
        self._wire = wire
        self._commits = commits
        self._topics = topics
        self._options = options
        self._observe = observe
        self._complain = complain
        self._membership = Membership(
            wire, group, topics, give_up_s=options.give_up_s, observe=observe, complain=complain
        )
        self._offsets: dict[TopicPartition, int] = {}
        self._starts: Mapping[TopicPartition, int] = {}
        self._is_gone: Callable[[str], bool] = lambda topic: False

    async def open(self) -> None:
        """Check that the topics exist.

        Raises:
            NotFound, Refused, Unreachable: the cluster rejects a request, or does not answer.
        """
        await topic_leaders(self._wire, self._topics)

    async def batches(self) -> _Batches:
        """Yield records as they come; the caller passes processed ones to ``took``.

        With ``until_end`` it ends at the end of its own share of the partitions.

        Raises:
            Refused, Unreachable: the cluster rejects a request, or does not answer.
        """
        is_done = False
        try:
            while not is_done:
                consumer = await self._joined()
                async with aclosing(consumer.batches()) as batches:
                    async with aclosing(self._until_moved(batches)) as records:
                        async for fetched in records:
                            yield fetched
                    is_done = self._is_at_end
        finally:
            await self._leave()

    async def _joined(self) -> Consumer:
        mine, committed = await self._share()
        starts = {
            n: answer.offset for n, answer in committed.items() if n in mine and isinstance(answer, CommittedOffset)
        }
        self._offsets, self._starts, self._is_at_end = {}, {}, False
        consumer = Consumer(
            self._wire,
            self._topics,
            replace(self._options, only=mine, starts=starts),
            observe=self._observe,
            complain=self._complain,
        )
        await consumer.open()
        self._starts, self._is_gone = consumer.starts, consumer.is_gone
        return consumer

    async def _share(self) -> tuple[frozenset[TopicPartition], GroupOffsets]:
        """Join, and return this member's partitions and the group's offsets; wait while the coordinator moves."""
        group, loop = self._membership.group, asyncio.get_running_loop()
        mine, deadline = frozenset(await self._membership.join()), loop.time() + self._options.give_up_s
        is_told = False
        while isinstance(committed := (await committed_offsets(self._wire, [group]))[group], Unknown):
            if not committed.is_passing or loop.time() >= deadline:
                raise Unreachable(f"the committed offsets are not known: {committed}", where=f"group {group}")
            if not is_told:
                self._complain(f"waiting for the committed offsets of group {group}: {committed}")
                is_told = True
            await asyncio.sleep(RETRY_PAUSE_S)
            if not await self._membership.heartbeat():
                mine = frozenset(await self._membership.join())
        return mine, committed

    async def _until_moved(self, batches: _Batches) -> _Batches:
        """Yield what is read, with heartbeats in between, until the partitions move to another member or end."""

        async def following() -> ConsumedRecords:
            return await anext(batches)

        beat_at = asyncio.get_running_loop().time() + _BEAT_S
        reading: asyncio.Task[ConsumedRecords] | None = None
        try:
            while True:
                reading = reading or asyncio.create_task(following(), name="consume: next records")
                await asyncio.wait({reading}, timeout=max(0.0, beat_at - asyncio.get_running_loop().time()))
                if reading.done():
                    try:
                        records = reading.result()
                    except StopAsyncIteration:
                        self._is_at_end = bool(self._options.until_end)
                        return
                    reading = None
                    yield records
                if asyncio.get_running_loop().time() >= beat_at:
                    # Commit what was processed before another member may get it.
                    if not (await self._commit() and await self._membership.heartbeat()):
                        return
                    beat_at = asyncio.get_running_loop().time() + _BEAT_S
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    @property
    def has_begun(self) -> bool:
        """Whether it knows where it reads, so that no new record is missed."""
        return bool(self._starts)

    def took(self, name: TopicPartition, next_offset: int) -> None:
        """Note that a partition's records before this offset are processed, and may be committed."""
        self._offsets[name] = next_offset

    async def _commit(self) -> bool:
        if not self._commits:
            return True
        gone = set(filter(self._is_gone, self._topics))
        offsets = {n: offset for n, offset in {**self._starts, **self._offsets}.items() if n.topic not in gone}
        return not offsets or await self._membership.commit(offsets)

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._commit()
                await self._membership.leave()
        except (TimeoutError, AdminError) as error:
            self._observe(f"could not leave the group properly: {error}")
