"""Reads the records of topics: one reader per leader, following leaders as they move. Joins no group, commits nothing.

Records come in order within a partition. With READ_COMMITTED, it skips records of aborted transactions, and reads
nothing beyond the last stable offset. If a topic is deleted meanwhile, it waits as for an absent leader; if the topic
is created again, it reads the new one from its beginning. The topic id tells the two apart. Before Kafka 2.8 topics
have no ids: there, a topic that was absent for some time counts as new when it returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from enum import Enum

from engine.admin.cluster.asking import ANSWER_LIMIT_S
from engine.admin.cluster.errors import LoginRefused, Refused, Unknown, Unreachable
from engine.admin.cluster.remedies import Do, Operation, Phrase
from engine.admin.cluster.waits import Observer, ignore_line
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster
from engine.admin.records.fetching import ConsumedRecord, ConsumedRecords, FetchFrom, fetch, visible_batches
from engine.admin.records.leaders import LeaderReaders, LedTopic, check_partitions, led_topics, refuse_lasting
from engine.admin.records.positions import ConsumeOptions, Placer, Position
from engine.admin.topics.selection import topic_not_found
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import NO_LEADER, IsolationLevel, TopicPartition
from engine.common.quantities import counted
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.apis.fetch import PartitionData
from engine.kafka.protocol.records.record import Record

_PARTITION_BYTES_MAX = 1024 * 1024
_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_MAX_WAIT_MS = 500
_QUEUE_MAX = 16
"""As many partitions as one answer may have whole: so long as there are no more, a leader is always asked ahead."""
_ABSENT_S = 2.0
"""A broker that has just started may not know a topic yet. One that is absent for so long was deleted."""
_MAY_BE_ANOTHER = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE)
"""What a Fetch gets when its topic was deleted, or is another one of the same name by now."""
_SLOW_PAUSE_S = 1.0
"""Between two looks for leaders that have been absent for long."""
_FETCH_LIMIT_S = 30.0
"""If a leader has not answered by then, look for the leader again, over a new connection."""


class _Event(Enum):
    """What a reader reports apart from records."""

    PARTITION_DONE = 1
    TOPIC_IS_NEW = 2


_Item = ConsumedRecords | Exception | _Event


class Consumer:
    """Reads some topics: ``open``, then iterate ``batches`` until it ends or enough has been read."""

    def __init__(
        self,
        wire: WireCluster,
        topics: Sequence[str],
        options: ConsumeOptions,
        *,
        observe: Observer = ignore_line,
        complain: Observer = ignore_line,
    ) -> None:
        self._wire = wire
        self._topics = topics
        self._options = options
        self._observe = observe
        self._complain = complain
        self._positions: list[Position] = []
        self._ids: dict[str, bytes] = {}
        """Those of the topics that are read; empty for one that is not there, or had no id when it was deleted."""
        self._absent: dict[str, float] = {}
        """Since when no broker that was asked has known a topic."""
        self._deleted: set[str] = set()
        """Those that have been absent for long; each was complained about once."""
        self._renewed: set[str] = set()
        self._doubtful: set[TopicPartition] = set()
        """Those whose topic may be another one by now, until they are read again."""
        self.starts: dict[TopicPartition, int] = {}
        """Where reading began in each partition, as far as known by now."""
        self._late: dict[asyncio.Task[None], list[Position]] = {}
        self._leader_is_missing = asyncio.Event()
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(_QUEUE_MAX)
        self._placer = Placer(wire, options, leaders=self._leaders, given_up=self._given_up, observe=observe)
        self._readers = LeaderReaders(
            "consume", read=self._read, lose=self._lose, fail=self._queue.put, observe=observe
        )

    async def open(self) -> None:
        """Find the partitions, their leaders, and where to start.

        A leader that does not answer in time delays only what it leads: ``batches`` keeps asking.

        Raises:
            NotFound: there is no such topic or partition.
            Refused, Unreachable: the cluster rejects a request, or does not answer.
        """
        topics = await led_topics(self._wire, self._topics)
        leaders = _by_partition(topics)
        for topic in self._topics:
            has_partitions = topic in topics and topics[topic].leaders
            self._ids[topic] = topics[topic].id if has_partitions else b""
            if topic not in topics:
                # Its group has read it before.
                if self._options.only is not None:
                    continue
                raise topic_not_found([topic])
            known = topics[topic].leaders
            wanted = sorted(set(self._options.partitions)) or sorted(known)
            check_partitions(topic, wanted, known)
            self._positions += [Position(TopicPartition(topic, partition)) for partition in wanted]
        if self._options.only is not None:
            self._positions = [position for position in self._positions if position.name in self._options.only]
        by_leader: dict[int, list[Position]] = {}
        for position in self._positions:
            by_leader.setdefault(leaders.get(position.name, NO_LEADER), []).append(position)
        if by_leader:
            await self._place_in_time(by_leader)

    async def _place_in_time(self, by_leader: Mapping[int, list[Position]]) -> None:
        """Find the starts of all partitions, or only of some if other leaders take too long."""
        places = {
            asyncio.create_task(self._place(positions), name=f"consume: start on {leader_id}"): leader_id
            for leader_id, positions in by_leader.items()
        }
        try:
            done, late = await asyncio.wait(places, timeout=ANSWER_LIMIT_S, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            self._tell_waiting({places[task]: by_leader[places[task]] for task in late})
            if not done:
                done, late = await asyncio.wait(places, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except BaseException:
            await _end_all(places)
            raise
        self._late = {task: by_leader[places[task]] for task in late}

    async def _place(self, positions: Sequence[Position]) -> None:
        await self._placer.place(positions)
        for position in positions:
            position.is_placed = True
            self.starts[position.name] = position.next_offset

    @property
    def has_begun(self) -> bool:
        """Whether it knows where it reads, so that no new record is missed."""
        return bool(self.starts)

    def is_gone(self, topic: str) -> bool:
        """Whether a topic was deleted since, or may have been: positions in it may mean nothing any more."""
        return topic in self._absent or topic in self._renewed or any(name.topic == topic for name in self._doubtful)

    async def batches(self) -> AsyncGenerator[ConsumedRecords, None]:
        """Yield records as they come, some at a time; ends only with ``until_end``, or if partitions of a group are
        those of a new topic.

        Raises:
            Refused: a partition cannot be read.
            Unreachable: a leader is missing or silent for too long.
        """
        late = {position.name for positions in self._late.values() for position in positions}
        waiting_for = sum(position.name in late or not position.is_done for position in self._positions)
        self._leader_is_missing.set()
        keeper = asyncio.create_task(self._keep_reading(), name="consume: readers")
        joining = [
            asyncio.create_task(self._join(task, positions), name="consume: late start")
            for task, positions in self._late.items()
        ]
        try:
            while waiting_for or not self._options.until_end:
                item = await self._queue.get()
                if isinstance(item, ConsumedRecords):
                    yield item
                elif item is _Event.TOPIC_IS_NEW:
                    return
                elif item is _Event.PARTITION_DONE:
                    waiting_for -= 1
                else:
                    raise item
        finally:
            await _end_all([keeper, *joining, *self._late])

    async def _join(self, placing: asyncio.Task[None], positions: Sequence[Position]) -> None:
        """Read these partitions as well, once their starts are known."""
        try:
            await placing
        except Exception as error:
            # The outermost frame of the task: the iterator of the batches raises it.
            await self._queue.put(error)
            return
        for position in positions:
            if position.is_done:
                await self._queue.put(_Event.PARTITION_DONE)
        self._leader_is_missing.set()

    async def _keep_reading(self) -> None:
        """Keep a reader for every leader; when a partition loses its leader, look for the new one."""
        try:
            while True:
                await self._leader_is_missing.wait()
                self._leader_is_missing.clear()
                await self._locate()
                leader_ids = {position.leader_id for position in self._unfinished()}
                self._readers.start(leader_ids - {NO_LEADER})
                lost = [position for position in self._unfinished() if position.leader_id == NO_LEADER]
                if lost or self._absent:
                    self._leader_is_missing.set()
                # A broker may still name a leader that has just refused to be one.
                is_for_long = all(position.is_told_lost for position in lost)
                await asyncio.sleep(_SLOW_PAUSE_S if (lost or self._absent) and is_for_long else RETRY_PAUSE_S)
        except Exception as error:
            # The outermost frame of the task: the iterator of the batches raises it.
            await self._queue.put(error)
        finally:
            await self._readers.stop()

    async def _read(self, leader_id: int) -> None:
        """Read what a broker leads, until it no longer leads any of it."""
        limit_ms = int(min(self._options.give_up_s, _FETCH_LIMIT_S) * 1000) + _MAX_WAIT_MS
        while mine := self._led_by(leader_id):
            wanted = {position.name: FetchFrom(position.next_offset, _PARTITION_BYTES_MAX) for position in mine}
            answers = await fetch(
                self._wire,
                leader_id,
                wanted,
                max_bytes=_ANSWER_BYTES_MAX,
                max_wait_ms=_MAX_WAIT_MS,
                isolation=self._options.isolation,
                timeout_ms=limit_ms,
            )
            # Only headers are read here, so that the leader soon has the next Fetch while the caller decodes the
            # records.
            for position in mine:
                # It begins somewhere else if its topic is a new one since.
                if position.next_offset == wanted[position.name].offset:
                    await self._take(position, answers[position.name])

    def _lose(self, leader_id: int) -> None:
        for position in self._led_by(leader_id):
            position.leader_id = NO_LEADER
        self._leader_is_missing.set()

    async def _take(self, position: Position, answer: PartitionData | Unknown) -> None:
        if isinstance(answer, Unknown):
            if answer.code in _MAY_BE_ANOTHER:
                self._doubtful.add(position.name)
            if answer.code is ErrorCode.OFFSET_OUT_OF_RANGE and await self._is_same(position.name.topic):
                message = f"offset {position.next_offset} does not exist (any more)"
                raise Refused(answer.code, message, where=f"{position}")
            if answer.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                refuse_lasting(answer, f"{position}")
            self._observe(f"{position}: {answer}, looking for the leader")
            position.leader_id = NO_LEADER
            self._leader_is_missing.set()
            return
        self._doubtful.discard(position.name)
        position.lost_since, position.is_told_lost = None, False
        records = self._new_records(position, answer)
        if records is not None:
            await self._queue.put(records)
        if position.is_done:
            await self._queue.put(_Event.PARTITION_DONE)

    def _new_records(self, position: Position, data: PartitionData) -> ConsumedRecords | None:
        """Return what is new for the reader, if anything is, and move the position past everything that came."""
        if data.records is None:
            return None
        is_committed = self._options.isolation is IsolationLevel.READ_COMMITTED
        aborted = (data.aborted_transactions or []) if is_committed else None
        start, visible = position.next_offset, []
        try:
            for place, header, is_visible in visible_batches(data.records, aborted):
                if is_visible:
                    visible.append((place, header))
                # A wrapper of an old format has its last offset in the header, every other batch its whole range.
                position.next_offset = max(position.next_offset, header.next_offset)
        except KafkaError as error:
            # What comes before it is good, and the next answer begins with it.
            if position.next_offset == start:
                compare = Phrase("see which replicas are good: ", Do(Operation.VERIFY_REPLICAS, position.name.topic))
                where = f"{position} on broker {position.leader_id}"
                raise Refused(error.code, error.message, where=where, hint=compare) from None
        if not visible:
            return None
        return ConsumedRecords(position.name, data.records, visible, start, position.stop_offset)

    def _unfinished(self) -> list[Position]:
        return [position for position in self._positions if position.is_placed and not position.is_done]

    def _led_by(self, leader_id: int) -> list[Position]:
        return [position for position in self._unfinished() if position.leader_id == leader_id]

    async def _leaders(self) -> dict[TopicPartition, int]:
        return _by_partition(await led_topics(self._wire, self._topics))

    async def _is_same(self, topic: str) -> bool:
        """Whether a topic is, as far as is known, still the one that is read."""
        before = self._ids[topic]
        led = (await led_topics(self._wire, [topic])).get(topic)
        return led is not None and self._ids[topic] == before and not self._is_new(topic, led.id)

    def _is_new(self, topic: str, topic_id: bytes) -> bool:
        before = self._ids[topic]
        return before != topic_id and (not before or ZERO_TOPIC_ID not in (before, topic_id))

    async def _begin_anew(self, topic: str, known: LedTopic) -> None:
        """Read a topic that was created again from its beginning: nothing of it has been read.

        Raises:
            Refused: the caller wants what the topic had before.
        """
        self._ids[topic] = known.id
        self._renewed.add(topic)
        if self._options.until_end:
            if any(position.name.topic == topic for position in self._unfinished()):
                message = "it was deleted and created again while it was read"
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, where=f"topic {topic}")
            return
        if self._options.only is not None:
            # Whose partitions these are, and where to begin, its group knows.
            await self._queue.put(_Event.TOPIC_IS_NEW)
            return
        self._complain(f"topic {topic} was deleted and created again: reading it from its beginning")
        for position in self._positions:
            if position.name.topic == topic:
                # What is on its way for it is not taken.
                position.next_offset = -1
        self._positions = [position for position in self._positions if position.name.topic != topic]
        for partition in sorted(set(self._options.partitions)) or sorted(known.leaders):
            position = Position(TopicPartition(topic, partition))
            position.next_offset, position.is_placed = 0, True
            self._positions.append(position)

    async def _locate(self) -> None:
        """Look once for the leaders of partitions that have none.

        Raises:
            Refused: a topic has been gone for too long.
            Unreachable: one has had no leader for too long, or only a silent one.
        """
        leaders: dict[TopicPartition, int] = {}
        try:
            topics = await led_topics(self._wire, self._topics)
        except LoginRefused:
            raise
        except Unreachable:
            pass
        else:
            # One that is being created may have no partitions yet.
            led = {topic: known for topic, known in topics.items() if known.leaders}
            for topic, known in led.items():
                if self._is_new(topic, known.id):
                    await self._begin_anew(topic, known)
            leaders = _by_partition(led)
            self._note_absent(led)
        now = time.monotonic()
        for position in self._unfinished():
            if position.leader_id != NO_LEADER:
                continue
            position.leader_id = leaders.get(position.name, NO_LEADER)
            if position.lost_since is None or position.leader_id not in (NO_LEADER, position.last_leader_id):
                # A new leader has as long as the one before.
                position.lost_since, position.last_leader_id = now, position.leader_id
            if now - position.lost_since > self._options.give_up_s:
                raise self._given_up(position, position.leader_id)
        self._tell_lost(now)

    def _note_absent(self, present: Collection[str]) -> None:
        """Keep since when each topic has been absent; report those once that have been for some time."""
        now = time.monotonic()
        self._absent = {topic: self._absent.get(topic, now) for topic in self._topics if topic not in present}
        self._deleted &= self._absent.keys()
        for topic, since in self._absent.items():
            if now - since < _ABSENT_S or topic in self._deleted:
                continue
            self._deleted.add(topic)
            if self._ids[topic] == ZERO_TOPIC_ID:
                # Nothing else will tell the next one from it.
                self._ids[topic] = b""
            self._complain(f"topic {topic} does not exist any more: waiting for it to be created again")

    def _tell_lost(self, now: float) -> None:
        """Report each partition once that has had no answering leader for some time."""
        lost: dict[int, list[Position]] = {}
        for position in self._unfinished():
            is_lost = position.lost_since is not None and now - position.lost_since >= ANSWER_LIMIT_S
            if position.name.topic in self._deleted:
                position.is_told_lost = True
            elif is_lost and not position.is_told_lost and position.name.topic not in self._absent:
                position.is_told_lost = True
                lost.setdefault(position.leader_id, []).append(position)
        self._tell_waiting(lost)

    def _tell_waiting(self, by_leader: Mapping[int, Sequence[Position]]) -> None:
        for leader_id, some in sorted(by_leader.items()):
            whom = "a leader" if leader_id == NO_LEADER else f"broker {leader_id}, which does not answer"
            among = f": {some[0]}{' among them' if len(some) > 1 else ''}"
            self._complain(f"{counted(len(some), 'partition')} must wait for {whom}{among}")

    def _given_up(self, position: Position, leader_id: int) -> Refused | Unreachable:
        limit = f"for {self._options.give_up_s:g} s"
        if position.name.topic in self._absent:
            message = f"it was deleted while it was read, and was not created again {limit}"
            return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, where=f"topic {position.name.topic}")
        if leader_id == NO_LEADER:
            return Unreachable(f"no leader {limit}", where=f"{position}")
        return Unreachable(f"the leader, broker {leader_id}, has not answered {limit}", where=f"{position}")


async def next_record(wire: WireCluster, name: TopicPartition, offset: int, *, give_up_s: float) -> Record | None:
    """Return the first record of a partition at or after an offset; None: there is none up to its end.

    Raises:
        NotFound, Refused, Unreachable: as ``Consumer`` says.
    """
    options = ConsumeOptions((name.partition,), offset=offset, until_end=True, give_up_s=give_up_s)
    consumer = Consumer(wire, (name.topic,), options)
    await consumer.open()
    async with aclosing(consumer.batches()) as batches:
        async for batch in batches:
            # A batch may unpack to many times its size.
            records: list[ConsumedRecord] = await asyncio.to_thread(getattr, batch, "records")
            if records:
                return records[0].record
    return None


def _by_partition(topics: Mapping[str, LedTopic]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, index): leader for topic, some in topics.items() for index, leader in some.leaders.items()
    }


async def _end_all(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
