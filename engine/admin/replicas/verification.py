"""Compares the replicas of live partitions: reads every replica as a debugging consumer, up to the high watermark.

The range is fixed at the beginning: from the largest log start of all replicas to the leader's high watermark. It
reads the replicas in step, one chunk of each at a time, so that memory is bounded whatever the partitions' sizes. Equal
bytes are the usual case and cost one comparison; it compares batches one by one only if bytes differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from engine.admin.cluster.asking import answer_limit
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Refused, Unknown, Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.admin.configs.by_wire import read_effective
from engine.admin.log_dirs.describing import note_topics_left_out
from engine.admin.offsets.listing import ask_offsets, end_offsets, start_offsets
from engine.admin.records.fetching import FetchFrom, fetch
from engine.admin.replicas.comparison import Difference, DifferenceKind, Unit, compare, difference, units
from engine.admin.topics.access import topic_reader
from engine.admin.topics.describing import read_selected
from engine.admin.topics.selection import TopicSelection
from engine.admin.topics.values import partitions_of
from engine.common.acl import AclOperation
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_LEADER,
    TopicPartition,
)
from engine.common.quantities import counted
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.header import iter_batches

CHUNK_BYTES = 1024 * 1024
PARTITIONS_AT_ONCE = 4
_MAX_WAIT_MS = 500
_EMPTY_ANSWERS_MAX = 5

OnOffsets = Callable[[int], None]
"""Called with how many offsets were compared since the last call."""


@dataclass(frozen=True, slots=True)
class ReplicaVerdict:
    """One replica. ``agrees`` None: it could not be read, ``error`` says why; ``lag`` is the most that was seen."""

    broker: int
    log_end_offset: int | None
    lag: int | None
    agrees: bool | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionVerification:
    """One partition. Offsets ``from_offset`` to ``to_offset`` - 1 were compared; None if there is no leader."""

    topic: str
    partition: int
    from_offset: int | None
    to_offset: int | None
    replicas: tuple[ReplicaVerdict, ...]
    first_difference: Difference | None = None

    @property
    def is_good(self) -> bool:
        return all(replica.agrees for replica in self.replicas)


@dataclass(slots=True)
class _Replica:
    """One replica while it is being read. Owned by the verification of its partition."""

    broker: int
    end: int = 0
    log_end_offset: int | None = None
    lag: int | None = None
    agrees: bool = True
    error: str | None = None
    chunk: bytes = field(default=b"", repr=False)

    @property
    def is_readable(self) -> bool:
        return self.agrees and self.error is None

    def verdict(self) -> ReplicaVerdict:
        agrees = None if self.error is not None else self.agrees
        return ReplicaVerdict(self.broker, self.log_end_offset, self.lag, agrees, self.error)


async def verify_topics(
    cluster: Cluster,
    selection: TopicSelection,
    on_offsets: OnOffsets,
    on_total: OnOffsets = lambda total: None,
    only: TopicPartition | None = None,
) -> list[PartitionVerification]:
    """Compare the replicas of the chosen topics' partitions, or of ``only`` one; return the verdicts by name.

    Before that, ``on_total`` gets the approximate number of offsets to compare, if the leaders report it.

    Raises:
        NotFound: a named topic does not exist.
    """
    reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
    topics = await read_selected(reader, selection, if_exists=False)
    if selection.wants_list:
        listed = [topic.name for topic in topics]
        await note_topics_left_out(cluster, listed, selection.choose, operation=AclOperation.READ)
    partitions = {name: partition for name, partition in partitions_of(topics).items() if only in (None, name)}
    on_total(await _offsets_in(cluster, partitions))
    return await verify_replicas(cluster, partitions, await compacted_topics(cluster, topics), on_offsets)


async def _offsets_in(cluster: Cluster, partitions: Iterable[TopicPartition]) -> int:
    """Return how many offsets there are between the starts and ends of these partitions, as far as known."""
    names = list(partitions)
    try:
        wire = await cluster.wire()
        starts, ends = await start_offsets(wire, names), await end_offsets(wire, names)
    except AdminError:
        return 0
    known = ((starts.get(name), ends.get(name)) for name in names)
    return sum(end - start for start, end in known if isinstance(start, int) and isinstance(end, int))


async def compacted_topics(cluster: Cluster, topics: Sequence[TopicSnapshot]) -> frozenset[str]:
    """Return the names of the topics that are compacted, or may be; complain if no broker answers soon."""
    asked = [topic.name for topic in topics if topic.configs is not None]
    policies = await read_effective(await cluster.wire(), asked, "cleanup.policy", cluster.observe)
    untold = {topic.name for topic in topics} - policies.keys()
    if untold:
        topics_text = counted(len(untold), "topic")
        cluster.complain(f"cleanup.policy of {topics_text} is not known: compared as if compacted, by records only")
    return frozenset(untold | {name for name, policy in policies.items() if "compact" in (policy or "")})


async def verify_replicas(
    cluster: Cluster,
    partitions: Mapping[TopicPartition, PartitionSnapshot],
    compacted_topics: frozenset[str],
    on_offsets: OnOffsets,
) -> list[PartitionVerification]:
    """Compare the replicas of each partition; return the verdicts by name."""
    wire = await cluster.wire()
    live = await wire.live_brokers()
    gate = asyncio.Semaphore(PARTITIONS_AT_ONCE)

    async def one(name: TopicPartition, partition: PartitionSnapshot) -> PartitionVerification:
        async with gate:
            is_compacted = name.topic in compacted_topics
            return await PartitionVerifier(wire, name, partition, live, is_compacted, on_offsets).run()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(n, p), name=f"verify-{n}") for n, p in sorted(partitions.items())]
    return [task.result() for task in tasks]


class PartitionVerifier:
    """Compares the replicas of one partition, once. It does not wait a second time for a broker that gave no answer."""

    def __init__(
        self,
        wire: WireCluster,
        name: TopicPartition,
        partition: PartitionSnapshot,
        live: frozenset[int],
        is_compacted: bool,
        on_offsets: OnOffsets,
        *,
        within: range | None = None,
    ) -> None:
        """Compare only the offsets of ``within``, if given."""
        self._wire = wire
        self._name = name
        self._is_compacted = is_compacted
        self._on_offsets = on_offsets
        self._replicas = {
            broker: _Replica(broker, error=None if broker in live else "its broker is dead")
            for broker in partition.replicas
        }
        self._leader_id = partition.leader if partition.leader in live else NO_LEADER
        self._within = within
        self._high_watermark = 0
        self._from = self._to = 0
        self._next = 0
        self._first: Difference | None = None

    async def run(self) -> PartitionVerification:
        """Compare, and return the verdict."""
        leader = self._replicas.get(self._leader_id)
        if leader is None:
            for replica in self._replicas.values():
                replica.error = replica.error or "the partition has no leader"
            return self._verification(None, None)
        try:
            await self._find_range(leader)
            while self._next < self._to and leader.is_readable and len(self._readable()) > 1:
                await self._step(leader)
            if not leader.agrees:
                self._give_up_comparing(leader)
            self._on_offsets(max(0, self._to - self._next))
            await self._look_at_ends()
        except AdminError as error:
            leader.error = str(error.message)
        if leader.error is not None:
            for replica in self._replicas.values():
                replica.error = replica.error or f"the leader could not be read: {leader.error}"
        return self._verification(self._from, self._to)

    def _give_up_comparing(self, leader: _Replica) -> None:
        """Note for the replicas that agreed so far that no sound replica is left to compare with."""
        for replica in self._replicas.values():
            if replica is not leader and replica.is_readable:
                replica.error = "the leader's own batch is corrupt, the rest was not compared"

    def _verification(self, start: int | None, stop: int | None) -> PartitionVerification:
        verdicts = tuple(replica.verdict() for replica in self._replicas.values())
        return PartitionVerification(*self._name, start, stop, verdicts, self._first)

    def _readable(self) -> list[_Replica]:
        return [r for r in self._replicas.values() if r.is_readable and self._next < r.end]

    async def _find_range(self, leader: _Replica) -> None:
        self._high_watermark = self._to = await self._offset(leader.broker, LATEST_TIMESTAMP, CONSUMER_REPLICA_ID)
        if self._within is not None:
            self._next, self._to = self._within.start, min(self._within.stop, self._to)
        await self._look_at_ends()
        for replica in self._replicas.values():
            replica.end = min(self._to, replica.log_end_offset or 0)
        await self._move_to_log_start()
        self._from = self._next

    async def _look_at_ends(self) -> None:
        """Read the replicas' log ends, and how far they are behind the initial high watermark."""
        for replica in self._replicas.values():
            if replica.error is not None:
                continue
            try:
                end = await self._offset(replica.broker, LATEST_TIMESTAMP, DEBUGGING_REPLICA_ID)
            except AdminError as error:
                replica.error = str(error.message)
                continue
            replica.log_end_offset = end
            replica.lag = max(replica.lag or 0, self._high_watermark - end, 0)

    async def _move_to_log_start(self) -> None:
        """Continue where all replicas still have records: retention is not a difference."""
        starts = []
        for replica in self._replicas.values():
            if replica.is_readable:
                try:
                    starts.append(await self._offset(replica.broker, EARLIEST_TIMESTAMP, DEBUGGING_REPLICA_ID))
                except AdminError as error:
                    replica.error = str(error.message)
        before, self._next = self._next, min(max([self._next, *starts]), self._to)
        if before:
            self._on_offsets(self._next - before)

    async def _step(self, leader: _Replica) -> None:
        """Read a chunk of each replica and compare as far as all of them reach."""
        active = self._readable()
        async with asyncio.TaskGroup() as group:
            for replica in active:
                group.create_task(self._fetch(replica), name=f"fetch-{self._name}-{replica.broker}")
        if any(replica.error == ErrorCode.OFFSET_OUT_OF_RANGE.name for replica in active):
            for replica in active:
                replica.error = None if replica.error == ErrorCode.OFFSET_OUT_OF_RANGE.name else replica.error
            before = self._next
            await self._move_to_log_start()
            if self._next == before:
                raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {before} cannot be read")
            return
        active = [replica for replica in active if replica.error is None]
        if leader.error is not None or len(active) < 2:
            return
        reached = self._equal_until(active)
        if reached is None:
            reached = self._compare(leader, active)
        self._on_offsets(min(reached, self._to) - self._next)
        self._next = reached

    def _equal_until(self, active: Sequence[_Replica]) -> int | None:
        """Return the offset after the batches that are the same sound bytes everywhere; None if there are none."""
        shortest = min(active, key=lambda replica: len(replica.chunk))
        if not shortest.chunk or not all(replica.chunk.startswith(shortest.chunk) for replica in active):
            return None
        reached = None
        try:
            for position, header in iter_batches(shortest.chunk):
                if not verify_crc(shortest.chunk, position, header.size_bytes):
                    return None
                reached = header.next_offset
        except KafkaError:
            return None
        return reached

    def _compare(self, leader: _Replica, active: Sequence[_Replica]) -> int:
        """Compare unit by unit up to where the shortest chunk ends; return that offset."""
        units_of: dict[int, dict[int, Unit]] = {}
        reached = self._to
        for replica in active:
            try:
                read = list(units(replica.chunk, self._next, self._to, is_compacted=self._is_compacted))
            except KafkaError as error:
                replica.error = f"its bytes cannot be read: {error}"
                continue
            units_of[replica.broker] = {unit.first_offset: unit for unit in read}
            reached = min(reached, max(self._end_of(replica), self._next + 1))
        ours = units_of.get(leader.broker, {})
        for replica in active:
            if replica is not leader and replica.broker in units_of:
                self._compare_with(leader, replica, ours, units_of[replica.broker], min(reached, replica.end))
        return reached

    def _compare_with(
        self, leader: _Replica, replica: _Replica, ours: Mapping[int, Unit], theirs: Mapping[int, Unit], stop: int
    ) -> None:
        for offset in sorted(offset for offset in {*ours, *theirs} if offset < stop):
            pair = ours.get(offset), theirs.get(offset)
            kind = compare(*pair, is_compacted=self._is_compacted)
            if kind is None:
                continue
            replica.agrees = kind is DifferenceKind.CORRUPT and not (pair[1] is None or pair[1].is_corrupt)
            leader.agrees = leader.agrees and not (
                kind is DifferenceKind.CORRUPT and bool(pair[0] and pair[0].is_corrupt)
            )
            if self._first is None or offset < self._first.offset:
                self._first = difference(kind, (leader.broker, pair[0]), (replica.broker, pair[1]))
            return

    def _end_of(self, replica: _Replica) -> int:
        """Return the offset after a replica's chunk; a chunk without batches reaches to the replica's end."""
        reached = replica.end
        for _, header in iter_batches(replica.chunk):
            reached = header.next_offset
        return reached

    async def _fetch(self, replica: _Replica) -> None:
        """Read a chunk at the current offset; set the replica's error if that is not possible."""
        wanted = {self._name: FetchFrom(self._next, CHUNK_BYTES)}
        replica.chunk = b""
        try:
            for _ in range(_EMPTY_ANSWERS_MAX):
                async with self._answer_limit(replica.broker):
                    answers = await fetch(
                        self._wire,
                        replica.broker,
                        wanted,
                        max_bytes=CHUNK_BYTES,
                        max_wait_ms=_MAX_WAIT_MS,
                        replica_id=DEBUGGING_REPLICA_ID,
                    )
                answer = answers[self._name]
                if isinstance(answer, Unknown):
                    replica.error = answer.message
                    return
                replica.chunk = bytes(answer.records or b"")
                if replica.chunk:
                    return
        except AdminError as error:
            replica.error = str(error.message)

    async def _offset(self, broker: int, timestamp: int, replica_id: int) -> int:
        """Ask one broker for an offset of its own replica; to a consumer the leader returns its high watermark."""
        async with self._answer_limit(broker):
            answers = await ask_offsets(self._wire, broker, {self._name: timestamp}, replica_id=replica_id)
        answer = answers.get(self._name, ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(answer, ErrorCode):
            raise Refused(answer, where=f"{self._name} on broker {broker}")
        return answer.offset

    @asynccontextmanager
    async def _answer_limit(self, broker: int) -> AsyncIterator[None]:
        """Limit the time of a broker's answer; raises Unreachable at once if it has not answered before."""
        if broker in self._wire.silent:
            raise Unreachable(self._wire.silent[broker], where=f"broker {broker}")
        async with answer_limit(self._wire, broker):
            yield
