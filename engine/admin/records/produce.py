"""Sends records to a topic: batches per partition, one in flight each, retried until they are stored.

Idempotent by default: the cluster assigns an id, each batch has a sequence number, and a batch that is sent twice is
stored once (KIP-98). Retries keep the order within a partition. Not a library for applications: it lives as long as one
command.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from engine.admin.cluster.asking import answer_limit
from engine.admin.cluster.errors import LoginRefused, NotFound, OutcomeUnknown, Refused, Unreachable
from engine.admin.cluster.remedies import GIVE_TIME, Operation, Parameter, Phrase
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster
from engine.admin.cluster.wire_failures import refuse
from engine.admin.records.leaders import partition_not_found, topic_leaders
from engine.admin.records.partitioner import StickyPartition, partition_for_key
from engine.admin.transactions.own import OwnTransaction
from engine.common.errors import ErrorCode, error_code
from engine.common.model import ACKS_ALL, NO_LEADER, TopicPartition
from engine.kafka.client.errors import RequestTimedOut
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import RecordSection, encode_batch
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import NO_OFFSET, Record

RECORD_OVERHEAD_BYTES = 32
_SEQUENCE_MODULUS = 2**31
_ATTEMPTS = 3
"""A request with a producer id has this part of the delivery time-out for its answer."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How records are sent. ``delivery_timeout_s`` bounds how long nothing gets through."""

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    is_idempotent: bool = True
    batch_bytes: int = 256 * 1024
    request_timeout_ms: int = 30_000
    delivery_timeout_s: float = 30.0


@dataclass(slots=True)
class PartitionResult:
    """What went to one partition; offsets are None if the cluster did not return them (acks=0)."""

    topic: str
    partition: int
    record_count: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(slots=True)
class _Batch:
    """Records that are sent together; some arrive encoded."""

    records: list[Record] | RecordSection
    base_sequence: int = -1

    @property
    def record_count(self) -> int:
        return self.records.record_count if isinstance(self.records, RecordSection) else len(self.records)

    def listed(self) -> list[Record]:
        if not isinstance(self.records, RecordSection):
            return self.records
        records = list(iter_records(encode_batch(self.records)))
        for record in records:
            record.offset = NO_OFFSET
        return records


class _Lane:
    """One partition on its way: records being gathered, and full batches in order. Owned by the producer."""

    __slots__ = ("gathered", "gathered_bytes", "leader_id", "next_sequence", "ready", "result")

    def __init__(self, topic: str, partition: int) -> None:
        self.gathered: list[Record] = []
        self.gathered_bytes = 0
        self.ready: deque[_Batch] = deque()
        self.next_sequence = 0
        self.leader_id = NO_LEADER
        self.result = PartitionResult(topic, partition)

    def seal(self, *, is_idempotent: bool) -> None:
        """Make a batch of what was gathered."""
        gathered, self.gathered, self.gathered_bytes = self.gathered, [], 0
        self.append(gathered, is_idempotent=is_idempotent)

    def append(self, records: list[Record] | RecordSection, *, is_idempotent: bool) -> None:
        """Take a batch."""
        batch = _Batch(records, self.next_sequence if is_idempotent else -1)
        self.next_sequence = (self.next_sequence + batch.record_count) % _SEQUENCE_MODULUS
        self.ready.append(batch)

    def split(self) -> None:
        """Halve the first batch, which was too large."""
        batch = self.ready.popleft()
        records = batch.listed()
        middle = len(records) // 2
        second_sequence = -1 if batch.base_sequence < 0 else (batch.base_sequence + middle) % _SEQUENCE_MODULUS
        self.ready.appendleft(_Batch(records[middle:], second_sequence))
        self.ready.appendleft(_Batch(records[:middle], batch.base_sequence))


class Producer:
    """Sends to one topic. ``open``, then ``add`` and ``flush``, then ``results``."""

    def __init__(
        self, wire: WireCluster, topic: str, options: ProducerOptions, transaction: OwnTransaction | None = None
    ) -> None:
        """In a ``transaction``, records count only when its owner has ended it; it is opened by ``open``."""
        self._wire = wire
        self._transaction = transaction
        self._topic = topic
        self._options = options
        self._is_idempotent = transaction is not None or (options.is_idempotent and options.acks == ACKS_ALL)
        self._producer_id = -1
        self._producer_epoch = -1
        self._lanes: dict[int, _Lane] = {}
        self._sticky = StickyPartition()
        self._last_error = ErrorCode.NONE
        self._why_leaderless = ErrorCode.LEADER_NOT_AVAILABLE
        self._has_sent = False

    async def open(self) -> None:
        """Find the partitions, and get a producer id.

        Raises:
            NotFound: there is no such topic.
            Refused, Unreachable: the cluster rejects a request, or does not answer.
        """
        await self._refresh()
        if self._transaction is not None:
            await self._transaction.open()
            self._producer_id, self._producer_epoch = self._transaction.producer_id, self._transaction.producer_epoch
        elif self._is_idempotent:
            await self._get_producer_id()

    def add(self, record: Record, partition: int | None = None) -> None:
        """Take a record; it is sent with the next flush.

        Raises:
            NotFound: the topic has no such partition.
        """
        lane = self._lane_for(record, partition)
        size_bytes = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        size_bytes += sum(len(key) + len(value or b"") for key, value in record.headers)
        if lane.gathered and lane.gathered_bytes + size_bytes > self._options.batch_bytes:
            lane.seal(is_idempotent=self._is_idempotent)
            if record.key is None and partition is None:
                self._sticky.next_batch(self._available())
                lane = self._lane_for(record, partition)
        lane.gathered.append(record)
        lane.gathered_bytes += size_bytes

    def add_encoded(self, partition: int, records: RecordSection) -> None:
        """Take a batch whose records are encoded, with offsets from 0 on; it is sent with the next flush.

        Raises:
            NotFound: the topic has no such partition.
        """
        lane = self._lane_of(partition)
        if lane.gathered:
            lane.seal(is_idempotent=self._is_idempotent)
        lane.append(records, is_idempotent=self._is_idempotent)

    def sticky_partitions(self, batch_count: int) -> list[int]:
        """Return where this many batches of records without a key go, one after the other."""
        partitions: list[int] = []
        for _ in range(batch_count):
            if partitions:
                self._sticky.next_batch(self._available())
            partitions.append(self._sticky.current(self._available()))
        return partitions

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has."""
        return len(self._lanes)

    async def flush(self) -> None:
        """Send everything that was added and wait until it is stored.

        Raises:
            Refused: the cluster rejects a batch; what was sent before it is stored.
            Unreachable: nothing got through for the delivery time-out.
        """
        for lane in self._lanes.values():
            if lane.gathered:
                lane.seal(is_idempotent=self._is_idempotent)
        if self._transaction is not None:
            names = [TopicPartition(self._topic, index) for index, lane in self._lanes.items() if lane.ready]
            await self._transaction.add(names)
        while waiting := [lane for lane in self._lanes.values() if lane.ready]:
            before = sum(len(lane.ready) for lane in waiting)
            try:
                async with asyncio.timeout(self._options.delivery_timeout_s):
                    while before == sum(len(lane.ready) for lane in waiting):
                        await self._send_round(waiting)
            except TimeoutError as error:
                raise self._gave_up() from error
        self._sticky.next_batch(self._available())

    @property
    def results(self) -> list[PartitionResult]:
        """What went where, by partition."""
        return [lane.result for _, lane in sorted(self._lanes.items()) if lane.result.record_count]

    @property
    def is_idempotent(self) -> bool:
        """Whether a batch that is sent twice is stored once. Not so without a producer id, which brokers may refuse."""
        return self._is_idempotent

    @property
    def is_acknowledged(self) -> bool:
        """Whether brokers say that they have stored its records."""
        return self._options.acks != 0

    @property
    def is_transactional(self) -> bool:
        """Whether its records count only once its transaction is committed."""
        return self._transaction is not None

    async def _get_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        limit_s, reason = self._options.delivery_timeout_s, "no answer"
        try:
            async with asyncio.timeout(limit_s):
                while error_code((response := await self._wire.call_any(request)).error_code).is_retriable:
                    reason = error_code(response.error_code).name
                    await asyncio.sleep(RETRY_PAUSE_S)
        except Refused as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            self._is_idempotent = False
            return
        except TimeoutError as error:
            hint = Phrase("brokers get new ids from ZooKeeper: is it up? or send without: ", Parameter.NO_IDEMPOTENCE)
            raise Unreachable(f"no broker gave a producer id within {limit_s:g} s ({reason})", hint=hint) from error
        if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # Who may write to no topic gets no id (KIP-679); what refuses the records says which right is missing.
            # Brokers before Kafka 2.8 give none for want of IdempotentWrite either, and take records without.
            self._is_idempotent = False
            return
        refuse(response.error_code, None, "producer id")
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch

    @property
    def _attempt_ms(self) -> int:
        """How long one request may take. With a producer id, it is safe to send it again: another broker may lead."""
        limit_ms, delivery_ms = self._options.request_timeout_ms, self._options.delivery_timeout_s * 1000
        return min(limit_ms, int(delivery_ms / _ATTEMPTS)) if self._is_idempotent else limit_ms

    async def _refresh(self) -> None:
        leaders = (await topic_leaders(self._wire, [self._topic]))[self._topic]
        self._why_leaderless = ErrorCode.LEADER_NOT_AVAILABLE
        for partition, leader_id in leaders.items():
            lane = self._lanes.setdefault(partition, _Lane(self._topic, partition))
            lane.leader_id = leader_id

    def _available(self) -> list[int]:
        led = sorted(partition for partition, lane in self._lanes.items() if lane.leader_id != NO_LEADER)
        return led or sorted(self._lanes)

    def _lane_for(self, record: Record, partition: int | None) -> _Lane:
        if partition is None:
            if record.key is None:
                partition = self._sticky.current(self._available())
            else:
                partition = partition_for_key(record.key, len(self._lanes))
        return self._lane_of(partition)

    def _lane_of(self, partition: int) -> _Lane:
        if partition not in self._lanes:
            raise partition_not_found(self._topic, partition, len(self._lanes))
        return self._lanes[partition]

    async def _send_round(self, waiting: Iterable[_Lane]) -> None:
        """Send the first batch of each lane to its leader; leave batches that may be retried where they are."""
        by_leader: dict[int, list[_Lane]] = {}
        for lane in waiting:
            if lane.ready:
                by_leader.setdefault(lane.leader_id, []).append(lane)
        leaderless = by_leader.pop(NO_LEADER, [])
        sends = (self._send(leader, lanes) for leader, lanes in by_leader.items())
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if leaderless:
            self._last_error = self._why_leaderless
        if leaderless or not all(outcomes):
            await asyncio.sleep(RETRY_PAUSE_S)
            await self._try_refresh()

    async def _try_refresh(self) -> None:
        try:
            await self._refresh()
        except LoginRefused:
            raise
        except NotFound:
            # Deleted since: it may be created again.
            self._why_leaderless = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for lane in self._lanes.values():
                lane.leader_id = NO_LEADER
        except Unreachable:
            self._last_error = ErrorCode.NETWORK_EXCEPTION

    async def _send(self, leader_id: int, lanes: list[_Lane]) -> bool:
        """Send one request; return False if something must be retried."""
        try:
            async with answer_limit(self._wire, leader_id, self._attempt_ms / 1000):
                client = await self._wire.client_of(leader_id)
                version = await self._wire.version(client, ApiKey.PRODUCE)
            request = self._request(lanes, version)
            if self._options.acks == 0:
                self._has_sent = True
                client.tell(request, version)
                # A request with acks=0 has no answer: the answer to the next one shows that it was read.
                await self._wire.call_broker(leader_id, MetadataRequest(topics=[]))
                for lane in lanes:
                    _delivered(lane, None)
                return True
            self._has_sent = True
            response = await self._wire.call_broker(leader_id, request, timeout_ms=self._attempt_ms)
        except LoginRefused:
            raise
        except (Unreachable, NotFound) as error:
            self._last_error = ErrorCode.NETWORK_EXCEPTION
            if isinstance(error.__cause__, RequestTimedOut):
                # It may be frozen, and would not answer who leads now either.
                await self._wire.fell_silent(leader_id, "no answer in time")
            return False
        self._wire.silent.pop(leader_id, None)
        by_partition = {lane.result.partition: lane for lane in lanes}
        settled = [self._settle(by_partition[p.index], p) for t in response.responses for p in t.partition_responses]
        return all(settled)

    def _request(self, lanes: Iterable[_Lane], version: int) -> ProduceRequest:
        data = [
            PartitionProduceData(index=lane.result.partition, records=self._encoded(lane.ready[0], version))
            for lane in lanes
        ]
        return ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            acks=self._options.acks,
            timeout_ms=self._options.request_timeout_ms,
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )

    def _encoded(self, batch: _Batch, version: int) -> bytes:
        codec = self._options.codec
        if version < 3:
            records = batch.listed()
            for index, record in enumerate(records):
                record.offset = index
            return encode_message_set(records, 1 if version == 2 else 0, codec=codec)
        return encode_batch(
            batch.records,
            codec=codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=self._transaction is not None,
        )

    def _settle(self, lane: _Lane, answer: PartitionProduceResponse) -> bool:
        code = error_code(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            _delivered(lane, answer.base_offset if answer.base_offset >= 0 else None)
            return True
        if code is ErrorCode.MESSAGE_TOO_LARGE and lane.ready[0].record_count > 1:
            lane.split()
            return True
        if code.is_retriable and code is not ErrorCode.CORRUPT_MESSAGE:
            self._last_error = code
            return False
        where = f"topic {self._topic} partition {lane.result.partition}"
        message = answer.error_message or next((e.batch_index_error_message for e in answer.record_errors), None)
        raise Refused(code, message, where=where)

    def _gave_up(self) -> Refused | Unreachable:
        limit = f"within {self._options.delivery_timeout_s:g} s"
        where = f"topic {self._topic}"
        is_silent = self._last_error in (ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION)
        if is_silent and (
            leaders := sorted({lane.leader_id for lane in self._lanes.values() if lane.ready} - {NO_LEADER})
        ):
            where += f", led by broker{'s' if len(leaders) > 1 else ''} {', '.join(map(str, leaders))}"
        if is_silent and self._has_sent:
            hint = Phrase("look before you send them again: ", Operation.LIST_OFFSETS)
            message = f"no broker has confirmed the records {limit}; those that were sent may or may not be stored"
            return OutcomeUnknown(message, where=where, hint=hint)
        if is_silent:
            return Unreachable(f"no broker accepted the records {limit}", where=where, hint=GIVE_TIME)
        return Refused(self._last_error, f"not accepted {limit}", where=where)


def _delivered(lane: _Lane, base_offset: int | None) -> None:
    batch, result = lane.ready.popleft(), lane.result
    result.record_count += batch.record_count
    if base_offset is not None:
        if result.first_offset is None:
            result.first_offset = base_offset
        result.last_offset = base_offset + batch.record_count - 1
