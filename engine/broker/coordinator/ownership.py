"""What this broker coordinates: the groups, or transactional ids, of the partitions of an internal topic that it leads.

When this broker becomes a partition's leader, it reads their states from the log, in slices between which the event
loop does other work. Meanwhile it answers requests with COORDINATOR_LOAD_IN_PROGRESS. It drops the states when it is
no longer the leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from engine.broker.replication.metadata_cache import MetadataCache
from engine.broker.replication.partition import Partition
from engine.common.clock import Clock
from engine.common.errors import NO_ERROR, CoordinationError, ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.formats.consumer_offsets import partition_for
from engine.runtime.offload import Offloader
from engine.runtime.supervisor import Supervisor
from engine.runtime.turns import Breather

_LOADS_TOLD: Final = 100
"""The time of this many of the latest loads is kept."""
_REPORTED_AT_ONCE: Final = 100
"""How many loaded states are reported at once."""
_READ_AGAIN_S: Final = 1
"""The wait before ZooKeeper is asked again."""

logger = logging.getLogger(__name__)

S = TypeVar("S")
"""The state of one key: a group, or a transactional id."""


class Loader(Protocol[S]):
    """Reads a partition's states from its records. It is pure; the caller paces it."""

    loaded: dict[str, S]
    """What ``finish`` has created, by key."""

    skipped: int

    @property
    def record_count(self) -> int:
        """How many records were read."""

    @property
    def next_offset(self) -> int:
        """Where to read on after a buffer is used up."""

    def read(self, buffer: bytes) -> Iterator[None]:
        """Apply the batches of a buffer; yields now and then, so that the caller may do something else."""

    def finish(self, now_ms: int) -> Iterator[None]:
        """Create the states. Yields now and then, as ``read``."""


@dataclass(frozen=True, slots=True)
class Content(Generic[S]):
    """What an internal topic holds: how to read it, and its words in the log."""

    new_loader: Callable[[TopicPartition], Loader[S]]
    name: str
    """``offsets and group metadata``, for example."""

    name_of_states: str
    """``groups``, for example."""

    logger: logging.Logger


class TopicSize:
    """How many partitions an internal topic has: it decides which of them a key belongs to.

    The metadata may tell of fewer, for it leaves out partitions that never had a leader. So, as in Kafka, the number is
    that in ZooKeeper, and without a topic that of the settings. Each change of the metadata lets it be read again.
    """

    def __init__(
        self, topic: str, num_partitions: int, metadata_cache: MetadataCache, read: Callable[[str], Awaitable[int]]
    ) -> None:
        """``read`` returns the topic's partitions in ZooKeeper, 0 without such a topic, or raises CoordinationError."""
        self._topic = topic
        self._num_partitions = num_partitions
        self._metadata_cache = metadata_cache
        self._read = read
        self._stored = 0
        self._told = 0
        self._changed = asyncio.Event()
        self._supervisor = Supervisor(f"size of {topic}")

    def __call__(self) -> int:
        """Return the number of partitions that the topic has, or will have."""
        return max(self._stored, len(self._metadata_cache.partitions(self._topic))) or self._num_partitions

    def follow(self) -> None:
        """Read it now, and after each change."""
        self._metadata_cache.update_listeners.append(self._look)
        self._look()
        self._changed.set()
        self._supervisor.start(self._follow(), "follow")

    async def stop(self) -> None:
        """Follow no more changes."""
        if self._look in self._metadata_cache.update_listeners:
            self._metadata_cache.update_listeners.remove(self._look)
        await self._supervisor.stop()

    async def once_read(self) -> None:
        """Return when it is known of a topic that is there, or cannot be read."""
        if self._stored == 0:
            await self._read_again()

    def _look(self) -> None:
        count = len(self._metadata_cache.partitions(self._topic))
        if count != self._told:
            self._told = count
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not await self._read_again():
                asyncio.get_running_loop().call_later(_READ_AGAIN_S, self._changed.set)

    async def _read_again(self) -> bool:
        try:
            self._stored = await self._read(self._topic)
        except CoordinationError as error:
            logger.warning("The partitions of %s cannot be counted in ZooKeeper yet: %s", self._topic, error)
            return False
        return True


class OwnedPartition(Generic[S]):
    """One partition's states, by key."""

    __slots__ = ("index", "is_loading", "is_owned", "leader_epoch", "partition", "states")

    def __init__(self, index: int, partition: Partition) -> None:
        self.index = index
        self.partition = partition
        """What the states are written to."""
        self.leader_epoch = partition.leader_epoch
        self.is_owned = True
        """Whether this broker still coordinates the partition, in the same term."""
        self.is_loading = True
        self.states: dict[str, S] = {}


class OwnedPartitions(Generic[S]):
    """All states of this broker. ``on_loaded`` and ``on_unloaded`` receive each that comes and goes."""

    def __init__(
        self,
        topic: str,
        content: Content[S],
        offloader: Offloader,
        clock: Clock,
        *,
        size: TopicSize,
        load_buffer_bytes: int,
        on_loaded: Callable[[OwnedPartition[S], list[S]], None],
        on_unloaded: Callable[[OwnedPartition[S]], None],
    ) -> None:
        self._content = content
        self._topic = topic
        self._offloader = offloader
        self.load_times_ms: deque[int] = deque(maxlen=_LOADS_TOLD)
        self._clock = clock
        self._size = size
        self._load_buffer_bytes = load_buffer_bytes
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded
        self._owned: dict[int, OwnedPartition[S]] = {}
        self._is_stopped = False
        self._to_load: deque[OwnedPartition[S]] = deque()
        self._supervisor = Supervisor(f"load {self._topic}")

    # -- queries

    def index_of(self, key: str) -> int:
        """Return the partition that the key belongs to."""
        return partition_for(key, self._size())

    def status(self, key: str) -> ErrorCode:
        """Return NONE if this broker coordinates the key."""
        return self.locate(key)[0]

    def locate(self, key: str) -> tuple[ErrorCode, OwnedPartition[S] | None]:
        """Return NONE and the key's partition if this broker coordinates the key, else why it does not."""
        owned = self._owned.get(partition_for(key, self._size()))
        if owned is None or owned.partition.leader_log is None:
            return ErrorCode.NOT_COORDINATOR, None
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if owned.is_loading else NO_ERROR, owned

    def partition(self, index: int) -> OwnedPartition[S] | None:
        """Return a partition that is owned, loaded or not."""
        return self._owned.get(index)

    def partitions(self) -> list[OwnedPartition[S]]:
        """Return all partitions that are owned now, loaded or not."""
        return list(self._owned.values())

    def partition_of(self, key: str) -> Partition | None:
        """Return what the key's state is written to; None if this broker does not coordinate the key."""
        owned = self._owned.get(self.index_of(key))
        return None if owned is None else owned.partition

    def find(self, key: str) -> S | None:
        """Return the key's state if there is one. The caller has checked the status."""
        owned = self._owned.get(self.index_of(key))
        return None if owned is None else owned.states.get(key)

    def find_or_add(self, key: str, make: Callable[[], S]) -> S:
        """Return the key's state, made if there is none. The caller has checked the status."""
        states = self._owned[self.index_of(key)].states
        state = states.get(key)
        if state is None:
            state = states[key] = make()
        return state

    def forget(self, key: str, state: S) -> None:
        """Drop a state that is deleted, or was only asked about."""
        owned = self._owned.get(self.index_of(key))
        if owned is not None and owned.states.get(key) is state:
            del owned.states[key]

    def __iter__(self) -> Iterator[S]:
        return (state for owned in list(self._owned.values()) for state in list(owned.states.values()))

    @property
    def is_loading(self) -> bool:
        """Whether any partition is being loaded."""
        return any(owned.is_loading for owned in self._owned.values())

    # -- requests of the controller

    def leadership_changed(self, leaders: list[Partition], followers: list[Partition]) -> None:
        """Listener of the replica manager."""
        for partition in followers:
            if partition.topic_partition.topic == self._topic:
                self._unload(partition.topic_partition.partition)
        for partition in () if self._is_stopped else leaders:
            if partition.topic_partition.topic == self._topic:
                self._begin_load(partition)

    def replicas_stopped(self, stopped: Iterable[TopicPartition]) -> None:
        """Listener of the replica manager."""
        for topic, index in stopped:
            if topic == self._topic:
                self._unload(index)

    async def stop(self) -> None:
        """Stop loading, and drop every state: waiting requests learn to find another coordinator."""
        self._is_stopped = True
        await self._supervisor.stop()
        for index in list(self._owned):
            self._unload(index)

    def _unload(self, index: int) -> None:
        owned = self._owned.pop(index, None)
        if owned is None:
            return
        owned.is_owned = False
        name = self._content.name_of_states
        self._content.logger.info("Unloading %d %s of %s-%d", len(owned.states), name, self._topic, index)
        self._on_unloaded(owned)

    def _begin_load(self, partition: Partition) -> None:
        """Read the states of a newly led partition; anything remembered about it is from an earlier term."""
        index = partition.topic_partition.partition
        self._unload(index)
        owned = self._owned[index] = OwnedPartition[S](index, partition)
        self._to_load.append(owned)
        if len(self._to_load) == 1:
            self._supervisor.start(self._load_all(), "load")

    async def _load_all(self) -> None:
        """Load waiting partitions one after the other: many at once would hold the event loop for a slice of each."""
        while self._to_load:
            owned = self._to_load[0]
            try:
                await self._load(owned)
            except Exception:
                # As below: a partition that is unusable until the next election is of no use.
                where = owned.partition.topic_partition
                self._content.logger.exception("Loading failed and is given up partition=%s", where)
                owned.is_loading = False
            self._to_load.popleft()

    async def _load(self, owned: OwnedPartition[S]) -> None:
        if not owned.is_owned:
            return
        await self._size.once_read()
        started_ms = self._clock.monotonic_ms()
        content, topic_partition = self._content, owned.partition.topic_partition
        loader = content.new_loader(topic_partition)
        try:
            await self._read(owned, loader)
        except Exception:
            # As in Kafka: serve what could be read; a state without a coordinator would be of no use.
            content.logger.exception("Error loading %s from %s", content.name, topic_partition)
        await self._in_slices(owned, loader.finish(self._clock.now_ms()))
        if not owned.is_owned:
            return
        owned.states = loader.loaded
        await self._in_slices(owned, self._announce(owned))
        if not owned.is_owned:
            return
        owned.is_loading = False
        self.load_times_ms.append(self._clock.monotonic_ms() - started_ms)
        content.logger.info(
            "Finished loading %s from %s in %d milliseconds for epoch %d: %d %s, %d records, %d skipped",
            content.name,
            topic_partition,
            self._clock.monotonic_ms() - started_ms,
            owned.leader_epoch,
            len(loader.loaded),
            content.name_of_states,
            loader.record_count,
            loader.skipped,
        )

    def _announce(self, owned: OwnedPartition[S]) -> Iterator[None]:
        states = list(owned.states.values())
        for start in range(0, len(states), _REPORTED_AT_ONCE):
            self._on_loaded(owned, states[start : start + _REPORTED_AT_ONCE])
            yield

    async def _read(self, owned: OwnedPartition[S], loader: Loader[S]) -> None:
        log = owned.partition.led_log()
        position = log.log_start_offset
        while owned.is_owned and position < log.log_end_offset:
            read = log.read(position, self._load_buffer_bytes, limit_offset=log.log_end_offset, min_one_batch=True)
            if read.records is None or read.records.size_bytes == 0:
                return
            buffer = await self._offloader.run(read.records.read)
            await self._in_slices(owned, loader.read(buffer))
            if loader.next_offset <= position and owned.is_owned:
                where = f"partition={owned.partition.topic_partition} offset={position}"
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"What follows cannot be read {where}")
            position = loader.next_offset

    async def _in_slices(self, owned: OwnedPartition[S], work: Iterator[None]) -> None:
        """Do the work while it is wanted, without holding the event loop."""
        breather = Breather(makes_what_lasts=True)
        for _ in work:
            await breather.give_way()
            if not owned.is_owned:
                return
