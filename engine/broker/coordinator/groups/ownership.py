"""Which groups this broker coordinates: those of the partitions of ``__consumer_offsets`` that it leads.

When this broker becomes a partition's leader, it reads the groups from the log, in slices between which the event loop
does other work. Meanwhile it answers requests with COORDINATOR_LOAD_IN_PROGRESS. It drops the groups when it is no
longer the leader.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from engine.broker.coordinator.groups.group import Group
from engine.broker.coordinator.groups.loading import GroupLoader, logger
from engine.broker.coordinator.groups.writer import OffsetsTopicWriter
from engine.broker.replication.partition import Partition
from engine.common.clock import Clock
from engine.common.collection import leave_uncollected
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.kafka.formats.consumer_offsets import partition_for
from engine.runtime.offload import Offloader
from engine.runtime.supervisor import Supervisor

SLICE_MS: Final = 5
"""The longest time for which loading holds the event loop at once."""

_GROUPS_AT_ONCE: Final = 100
"""How many loaded groups are reported at once."""


class OwnedPartition:
    """One partition's groups."""

    __slots__ = ("groups", "index", "is_loading", "leader_epoch")

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.groups: dict[str, Group] = {}


class OwnedGroups:
    """All groups of this broker. ``on_loaded`` and ``on_unloaded`` receive each group that comes and goes."""

    def __init__(
        self,
        writer: OffsetsTopicWriter,
        offloader: Offloader,
        clock: Clock,
        *,
        partition_count: Callable[[], int],
        load_buffer_bytes: int,
        on_loaded: Callable[[list[Group]], None],
        on_unloaded: Callable[[list[Group]], None],
    ) -> None:
        self._writer = writer
        self._offloader = offloader
        self._clock = clock
        self._partition_count = partition_count
        self._load_buffer_bytes = load_buffer_bytes
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded
        self._owned: dict[int, OwnedPartition] = {}
        self._is_stopped = False
        self._to_load: deque[tuple[OwnedPartition, Partition]] = deque()
        self._supervisor = Supervisor("group-coordinator")

    # -- queries

    def index_of(self, group_id: str) -> int:
        """Return the partition that the group belongs to."""
        return partition_for(group_id, self._partition_count())

    def status(self, group_id: str) -> ErrorCode:
        """Return NONE if this broker coordinates the group."""
        return self.locate(group_id)[0]

    def locate(self, group_id: str) -> tuple[ErrorCode, OwnedPartition | None]:
        """Return NONE and the group's partition if this broker coordinates the group, else why it does not."""
        index = self.index_of(group_id)
        owned = self._owned.get(index)
        if owned is None or self._writer.partition(index) is None:
            return ErrorCode.NOT_COORDINATOR, None
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if owned.is_loading else ErrorCode.NONE, owned

    def find(self, group_id: str) -> Group | None:
        """Return the group if it exists. The caller has checked the status."""
        owned = self._owned.get(self.index_of(group_id))
        return None if owned is None else owned.groups.get(group_id)

    def find_or_add(self, group_id: str) -> Group:
        """Return the group, created if there is none."""
        groups = self._owned[self.index_of(group_id)].groups
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = Group(group_id, self._clock.now_ms())
        return group

    def forget(self, group: Group) -> None:
        """Drop a group that is deleted, or was only asked about."""
        owned = self._owned.get(self.index_of(group.group_id))
        if owned is not None and owned.groups.get(group.group_id) is group:
            del owned.groups[group.group_id]

    def __iter__(self) -> Iterator[Group]:
        return (group for owned in list(self._owned.values()) for group in list(owned.groups.values()))

    @property
    def is_loading(self) -> bool:
        """Whether any partition is being loaded."""
        return any(owned.is_loading for owned in self._owned.values())

    # -- requests of the controller

    def leadership_changed(self, leaders: list[Partition], followers: list[Partition]) -> None:
        """Listener of the replica manager."""
        for partition in followers:
            if partition.topic_partition.topic == GROUP_METADATA_TOPIC:
                self._unload(partition.topic_partition.partition)
        for partition in () if self._is_stopped else leaders:
            if partition.topic_partition.topic == GROUP_METADATA_TOPIC:
                self._begin_load(partition)

    def replicas_stopped(self, stopped: Iterable[TopicPartition]) -> None:
        """Listener of the replica manager."""
        for topic, index in stopped:
            if topic == GROUP_METADATA_TOPIC:
                self._unload(index)

    async def stop(self) -> None:
        """Stop loading, and drop every group: waiting requests learn to find another coordinator."""
        self._is_stopped = True
        await self._supervisor.stop()
        for index in list(self._owned):
            self._unload(index)

    def _unload(self, index: int) -> None:
        owned = self._owned.pop(index, None)
        if owned is None:
            return
        logger.info("Unloading %d groups of %s-%d", len(owned.groups), GROUP_METADATA_TOPIC, index)
        self._on_unloaded(list(owned.groups.values()))

    def _begin_load(self, partition: Partition) -> None:
        """Read the groups of a newly led partition; anything remembered about it is from an earlier term."""
        index = partition.topic_partition.partition
        self._unload(index)
        owned = self._owned[index] = OwnedPartition(index, partition.leader_epoch)
        self._to_load.append((owned, partition))
        if len(self._to_load) == 1:
            self._supervisor.start(self._load_all(), "load groups")

    async def _load_all(self) -> None:
        """Load waiting partitions one after the other: many at once would hold the event loop for a slice of each."""
        while self._to_load:
            owned, partition = self._to_load[0]
            try:
                await self._load(owned, partition)
            except Exception:
                # As below: a partition that is unusable until the next election helps nobody.
                logger.exception("Loading failed and is given up partition=%s", partition.topic_partition)
                owned.is_loading = False
            self._to_load.popleft()

    async def _load(self, owned: OwnedPartition, partition: Partition) -> None:
        if not self._is_wanted(owned):
            return
        started_ms = self._clock.monotonic_ms()
        loader = GroupLoader(partition.topic_partition)
        try:
            await self._read(owned, partition, loader)
        except Exception:
            # As in Kafka: serve what could be read; a group without a coordinator would help nobody.
            logger.exception("Error loading offsets from %s", partition.topic_partition)
        await self._in_slices(owned, loader.finish(self._clock.now_ms()))
        if not self._is_wanted(owned):
            return
        owned.groups = loader.groups
        await self._in_slices(owned, self._announce(loader.groups))
        if not self._is_wanted(owned):
            return
        owned.is_loading = False
        logger.info(
            "Finished loading offsets and group metadata from %s in %d milliseconds for epoch %d: %d groups, "
            "%d records, %d skipped",
            partition.topic_partition,
            self._clock.monotonic_ms() - started_ms,
            owned.leader_epoch,
            len(loader.groups),
            loader.record_count,
            loader.skipped,
        )

    def _announce(self, groups: dict[str, Group]) -> Iterator[None]:
        found = list(groups.values())
        for start in range(0, len(found), _GROUPS_AT_ONCE):
            self._on_loaded(found[start : start + _GROUPS_AT_ONCE])
            yield

    async def _read(self, owned: OwnedPartition, partition: Partition, loader: GroupLoader) -> None:
        log = partition.led_log()
        position = log.log_start_offset
        while self._is_wanted(owned) and position < log.log_end_offset:
            found = log.read(position, self._load_buffer_bytes, limit_offset=log.log_end_offset, min_one_batch=True)
            if found.records is None or found.records.size_bytes == 0:
                return
            buffer = await self._offloader.run(found.records.read)
            await self._in_slices(owned, loader.read(buffer))
            if loader.next_offset <= position:
                return
            position = loader.next_offset

    def _is_wanted(self, owned: OwnedPartition) -> bool:
        """Whether this broker still leads the partition that it is loading."""
        return self._owned.get(owned.index) is owned

    async def _in_slices(self, owned: OwnedPartition, work: Iterator[None]) -> None:
        """Do the work while it is wanted, without holding the event loop."""
        until = time.monotonic() + SLICE_MS / 1000
        for _ in work:
            if time.monotonic() > until:
                leave_uncollected()
                await asyncio.sleep(0)
                if not self._is_wanted(owned):
                    return
                until = time.monotonic() + SLICE_MS / 1000
