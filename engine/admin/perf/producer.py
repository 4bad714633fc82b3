"""Loads a cluster with records: as many as wanted, at a rate or as fast as it accepts them; measures the cost.

A record's latency runs to the acknowledgement of its batch. With a throughput it begins when the record was due, so
that a broker that stalls is charged for every record that had to wait; without one it begins when its batch was made,
because nothing waits then. With acks=0 there is no answer, so the latency runs to the answer of the next request.

One event loop, no task per request: answers and the clock wake ``run``, which sends whatever may go.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from engine.admin.cluster.errors import LoginRefused, NotFound, OutcomeUnknown, Refused, Unreachable
from engine.admin.cluster.remedies import GIVE_TIME, Operation, Phrase
from engine.admin.cluster.rights import Right
from engine.admin.cluster.waits import Observer, ignore_line
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster
from engine.admin.cluster.wire_failures import refuse
from engine.admin.perf.lanes import Flight, Lane, Link
from engine.admin.perf.producer_settings import ProducerSettings
from engine.admin.perf.results import SendFigures, SendMeter, SendMetrics, Span, wall_time
from engine.admin.perf.templates import Templates
from engine.admin.records.leaders import check_partitions, topic_leaders
from engine.admin.transactions.own import OwnTransaction
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode, error_code
from engine.common.model import NO_LEADER, TopicPartition
from engine.kafka.client.errors import NetworkError
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from engine.kafka.protocol.declaration import Response

_FORMAT_2_VERSION = 3
_LOOK_EVERY_S = 0.1
_PACE_S = 0.001
_WINDOW_S = 5.0
_MS = 1000.0

OnWindow = Callable[[SendFigures], None]
OnProgress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Load:
    """What to send: to these topics, or only these of their partitions; at most this many records a second."""

    topics: tuple[str, ...]
    record_count: int
    partitions: tuple[int, ...] = ()
    throughput: float | None = None
    give_up_s: float = 30.0
    window_s: float = _WINDOW_S
    transaction_s: float = 0.0
    """A transaction is committed after this long, and the next one begins; nothing is sent while one ends."""
    duration_s: float | None = None
    """After this long it sends nothing more, and the test ends with the last acknowledgement."""


class PerfProducer:
    """One test: ``open``, ``run``, then ``totals`` and ``metrics``, also after a run that failed or was cancelled."""

    def __init__(
        self,
        wire: WireCluster,
        load: Load,
        settings: ProducerSettings,
        templates: Templates,
        *,
        observe: Observer = ignore_line,
    ) -> None:
        self._wire = wire
        self._load = load
        self._record_count = load.record_count
        self._settings = settings
        self._templates = templates
        self._observe = observe
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._links: dict[int, Link] = {}
        self._turn = 0
        self._producer = (-1, -1)
        self._transaction: OwnTransaction | None = None
        if settings.transactional_id is not None:
            timeout_ms = settings.transaction_timeout_ms
            self._transaction = OwnTransaction(
                wire, settings.transactional_id, timeout_ms=timeout_ms, patience_s=load.give_up_s
            )
        self._to_add: set[TopicPartition] = set()
        self._transaction_ends_s = math.inf
        self._made = 0
        self._acked = 0
        self._requests = 0
        self._batches = 0
        self._retried = 0
        self._to_repeat = 0
        self._wire_bytes = 0
        self._wake = asyncio.Event()
        self._failure: Exception | None = None
        self._locate_at: float | None = None
        self._last_error = ErrorCode.NONE
        self._moved_s = 0.0
        self._start(0.0)

    def _start(self, now_s: float) -> None:
        self._moved_s = now_s
        self._end_s: float | None = None
        self._total = SendMeter(now_s, wall_time())
        self._window = self._total if not now_s else SendMeter(now_s, wall_time())

    async def open(self) -> None:
        """Find partitions and leaders, and get a producer id.

        Raises:
            NotFound: there is no such topic or partition.
            Refused, Unreachable: the cluster rejects a request, or does not answer.
        """
        await self._locate()
        if self._transaction is not None:
            await self._transaction.open()
            self._producer = self._transaction.producer_id, self._transaction.producer_epoch
        elif self._settings.is_idempotent:
            self._producer = await self._producer_id()

    async def run(self, on_window: OnWindow, on_progress: OnProgress) -> None:
        """Send everything and wait for the acknowledgements.

        Raises:
            Refused: the cluster rejects a batch.
            Unreachable: nothing gets through for too long.
        """
        loop = asyncio.get_running_loop()
        self._start(loop.time())
        try:
            while self._acked < self._record_count:
                if self._locate_at is not None and loop.time() >= self._locate_at:
                    await self._find_again()
                now = loop.time()
                if self._load.duration_s is not None and now - self._total.start_s >= self._load.duration_s:
                    self._record_count = self._made
                self._dispatch(now)
                if self._transaction is not None and await self._step(self._transaction, now):
                    continue
                self._report(now, on_window, on_progress)
                self._look_after(now)
                timer = loop.call_later(self._pause_s(now), self._wake.set)
                await self._wake.wait()
                self._wake.clear()
                timer.cancel()
                if self._failure is not None:
                    raise self._failure
            if self._transaction is not None:
                await self._transaction.end(commit=True)
        except BaseException:
            if self._transaction is not None:
                await self._transaction.try_to_abort()
            raise
        finally:
            self._end_s = loop.time()

    @property
    def totals(self) -> SendFigures:
        return self._total.figures(Span.TOTAL, self._end_s or self._total.start_s)

    @property
    def metrics(self) -> SendMetrics:
        return SendMetrics(
            self._requests,
            self._batches,
            self._wire_bytes,
            self._retried,
            self._wire_bytes / self._batches if self._batches else None,
            self._made / self._requests if self._requests else None,
            self._wire_bytes / self._total.sent_bytes if self._total.sent_bytes else None,
        )

    async def _step(self, transaction: OwnTransaction, now: float) -> bool:
        """Add the partitions that have records waiting, or end a transaction that is old enough; whether it did."""
        if self._to_add:
            await transaction.add(self._to_add)
            self._to_add.clear()
            if self._transaction_ends_s == math.inf:
                self._transaction_ends_s = now + self._load.transaction_s
        elif now >= self._transaction_ends_s and self._made == self._acked:
            await transaction.end(commit=True)
            self._transaction_ends_s = math.inf
        else:
            return False
        self._moved_s = asyncio.get_running_loop().time()
        return True

    def _is_open_to(self, lane: Lane, now: float) -> bool:
        """Whether a lane may send. One outside of the transaction has to wait until it is added, if it has its turn."""
        if self._transaction is None:
            return True
        name = TopicPartition(lane.topic, lane.partition)
        if self._transaction.has(name):
            return True
        if len(self._to_add) * self._templates.typical_record_count < self._left(now):
            self._to_add.add(name)
        return False

    def _dispatch(self, now: float) -> None:
        """Send what is due to every broker that accepts more, in turns."""
        links = list(self._links.values())
        idle = 0
        while links and idle < len(links):
            self._turn = (self._turn + 1) % len(links)
            idle = 0 if self._send_one(links[self._turn], now) else idle + 1

    def _send_one(self, link: Link, now: float) -> bool:
        if link.in_flight >= self._settings.in_flight_max or not link.client.is_connected:
            return False
        parts: dict[str, list[PartitionProduceData]] = {}
        flights: list[Flight] = []
        size = 0
        for lane in link.lanes_in_turn():
            if not self._to_repeat and not self._left(now):
                break
            if not self._is_open_to(lane, now):
                continue
            flight = self._next_flight(lane, now)
            if flight is None:
                continue
            batch = flight.template.stamped(
                flight.record_count,
                time.time_ns() // 1_000_000,
                *self._producer,
                flight.base_sequence,
                transactional=self._transaction is not None,
            )
            parts.setdefault(lane.topic, []).append(PartitionProduceData(index=lane.partition, records=batch))
            flights.append(flight)
            size += len(batch)
            if size + self._settings.batch_bytes > self._settings.request_bytes_max:
                break
        if not flights:
            return False
        self._wire_bytes += size
        self._post(link, parts, flights, now)
        return True

    def _next_flight(self, lane: Lane, now: float) -> Flight | None:
        """Return the batch that comes next for a partition: one to be sent again, or a new one if records are due."""
        if lane.is_held(now):
            return None
        if lane.again:
            self._to_repeat -= 1
            self._retried += 1
            return lane.again.popleft()
        left = self._left(now)
        if not left:
            return None
        template = self._templates.next_template(left)
        count = min(left, template.record_count)
        sequence = lane.take_sequence(count) if self._settings.is_idempotent else -1
        first_s, last_s = self._due_s(self._made, now), self._due_s(self._made + count - 1, now)
        self._made += count
        self._batches += 1
        return Flight(lane, template, count, sequence, first_s, last_s)

    def _left(self, now: float) -> int:
        """Return how many records may go into batches now; none while they wait for others to share a batch."""
        if now >= self._transaction_ends_s:
            return 0
        due = self._due(now)
        left = due - self._made
        waits_for_more = left < self._templates.typical_record_count and due < self._record_count
        return 0 if waits_for_more and now < self._lingered_s(now) else left

    def _due(self, now: float) -> int:
        """Return how many records may have been made by now."""
        rate = self._load.throughput
        if rate is None:
            return self._record_count
        return min(self._record_count, int((now - self._total.start_s) * rate) + 1)

    def _due_s(self, index: int, now: float) -> float:
        rate = self._load.throughput
        return now if rate is None else min(now, self._total.start_s + index / rate)

    def _lingered_s(self, now: float) -> float:
        """Return until when the next record waits for others to share its batch."""
        return self._due_s(self._made, now) + self._settings.linger_ms / _MS

    def _post(
        self, link: Link, parts: dict[str, list[PartitionProduceData]], flights: Sequence[Flight], now: float
    ) -> None:
        topics = [TopicProduceData(name=name, partition_data=data) for name, data in parts.items()]
        request = ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=topics,
        )
        self._requests += 1
        for flight in flights:
            flight.lane.in_flight += 1
        link.started(now)
        try:
            if self._settings.acks == 0:
                link.client.tell(request, link.produce_version)
                future = link.client.post(ApiVersionsRequest(), 0)
            else:
                future = link.client.post(request, link.produce_version)
        except NetworkError as error:
            self._lost(link, flights, error)
            return
        future.add_done_callback(lambda done: self._answered(link, flights, done))

    def _answered(self, link: Link, flights: Sequence[Flight], future: asyncio.Future[Response]) -> None:
        self._wake.set()
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, NetworkError):
            self._lost(link, flights, error)
            return
        if error is not None:
            self._failure = error if isinstance(error, Exception) else Unreachable(str(error))
            return
        link.ended(asyncio.get_running_loop().time())
        for flight in flights:
            flight.lane.in_flight -= 1
        response = future.result()
        if not isinstance(response, ProduceResponse):
            self._delivered(flights)
            return
        by_name = {(flight.lane.topic, flight.lane.partition): flight for flight in flights}
        for topic in response.responses:
            for answer in topic.partition_responses:
                self._settle(by_name[topic.name, answer.index], answer)

    def _settle(self, flight: Flight, answer: PartitionProduceResponse) -> None:
        code, lane = error_code(answer.error_code), flight.lane
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._delivered((flight,))
            return
        follows_failed = bool(lane.failed) and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if follows_failed or (code.is_retriable and code is not ErrorCode.CORRUPT_MESSAGE):
            self._last_error = code
            self._try_again((flight,))
            return
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._wire.denied[Right(AclOperation.WRITE, ResourceType.TOPIC, lane.topic)] = None
        where = f"topic {lane.topic} partition {lane.partition}"
        self._failure = Refused(code, answer.error_message, where=where)

    def _delivered(self, flights: Iterable[Flight]) -> None:
        now = asyncio.get_running_loop().time()
        self._moved_s = now
        for flight in flights:
            count = flight.record_count
            self._acked += count
            least_ms, most_ms = (now - flight.last_s) * _MS, (now - flight.first_s) * _MS
            size = flight.template.payload_bytes(count)
            self._total.add(least_ms, most_ms, count, size)
            self._window.add(least_ms, most_ms, count, size)

    def _lost(self, link: Link, flights: Sequence[Flight], error: NetworkError) -> None:
        link.ended(asyncio.get_running_loop().time())
        for flight in flights:
            flight.lane.in_flight -= 1
        self._last_error = ErrorCode.NETWORK_EXCEPTION
        self._observe(f"{error}, looking for the leaders")
        self._try_again(flights)

    def _try_again(self, flights: Iterable[Flight]) -> None:
        """Keep batches in order for another try after a pause; look for the leaders again."""
        now = asyncio.get_running_loop().time()
        for flight in flights:
            self._to_repeat += 1
            flight.lane.fail(flight, now + RETRY_PAUSE_S)
        self._locate_at = now + RETRY_PAUSE_S

    def _look_after(self, now: float) -> None:
        """Give up on a broker that does not answer, and finally on the whole test."""
        for link in self._links.values():
            if link.waits_since is not None and (now - link.waits_since) * _MS > self._settings.request_timeout_ms:
                link.client.broken(f"no answer within {self._settings.request_timeout_ms} ms")
            if link.lanes and not link.client.is_connected and self._locate_at is None:
                # It ended while it owed no answer: nothing else tells.
                self._locate_at = now
        limit_ms = self._settings.delivery_timeout_ms or self._load.give_up_s * _MS
        if (now - self._moved_s) * _MS > limit_ms:
            raise self._gave_up(limit_ms / _MS)
        if self._made > self._acked or self._due(now) > self._made:
            return
        self._moved_s = now

    def _gave_up(self, limit_s: float) -> Refused | Unreachable:
        where = f"topic {', '.join(self._load.topics)}"
        if self._last_error in (ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION):
            is_said = self._settings.delivery_timeout_ms is not None
            hint = "give it more time with delivery.timeout.ms" if is_said else GIVE_TIME
            if self._made > 0:
                message = f"no broker has confirmed records within {limit_s:g} s; those that were sent may be stored"
                return OutcomeUnknown(
                    message, where=where, hint=Phrase("check: ", Operation.LIST_OFFSETS, "; or ", hint)
                )
            return Unreachable(f"no broker accepted records within {limit_s:g} s", where=where, hint=hint)
        return Refused(self._last_error, f"not accepted within {limit_s:g} s", where=where)

    def _report(self, now: float, on_window: OnWindow, on_progress: OnProgress) -> None:
        on_progress(self._acked)
        if now - self._window.start_s >= self._load.window_s:
            on_window(self._window.figures(Span.WINDOW, now))
            self._window = SendMeter(now, wall_time())

    def _pause_s(self, now: float) -> float:
        """Return when to look again although no answer has come."""
        rate, due = self._load.throughput, self._due(now)
        if rate is None or due >= self._record_count:
            return _LOOK_EVERY_S
        # Records that are due but unsent wait for an answer, or for other records.
        wanted = self._lingered_s(now) if due > self._made else self._total.start_s + self._made / rate
        return min(max(wanted - now, _PACE_S), _LOOK_EVERY_S) if wanted > now else _LOOK_EVERY_S

    async def _find_again(self) -> None:
        """Look for the leaders; retry failures until it is time to give up."""
        self._locate_at = None
        try:
            await self._locate()
        except LoginRefused:
            raise
        except NotFound as error:
            # Deleted since: it may be created again.
            self._look_later(error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except Unreachable as error:
            self._look_later(error)

    def _look_later(self, error: Exception | None, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> None:
        self._last_error = ErrorCode.LEADER_NOT_AVAILABLE if error is None else code
        self._locate_at = asyncio.get_running_loop().time() + RETRY_PAUSE_S

    async def _locate(self) -> None:
        for name, leaders in (await topic_leaders(self._wire, self._load.topics)).items():
            check_partitions(name, self._load.partitions, leaders)
            for partition in self._load.partitions or sorted(leaders):
                lane = self._lanes.setdefault((name, partition), Lane(name, partition))
                lane.leader_id = leaders.get(partition, NO_LEADER)
        await self._link()

    async def _link(self) -> None:
        """Connect to every leader, and tell each link its partitions; look again for missing leaders."""
        leader_ids = {lane.leader_id for lane in self._lanes.values()}
        for leader_id in leader_ids - {NO_LEADER}:
            try:
                client = await self._wire.client_of(leader_id)
                version = await self._wire.version(client, ApiKey.PRODUCE)
            except LoginRefused:
                raise
            except (Unreachable, NotFound) as error:
                self._look_later(error)
                continue
            if version < _FORMAT_2_VERSION:
                hint = "run the performance test of that version of Kafka"
                raise Refused(ErrorCode.UNSUPPORTED_VERSION, "brokers before Kafka 0.11 are not supported", hint=hint)
            link = self._links.setdefault(leader_id, Link(client))
            link.client, link.produce_version = client, version
        for leader_id, link in self._links.items():
            link.lanes = [lane for lane in self._lanes.values() if lane.leader_id == leader_id]
        if NO_LEADER in leader_ids:
            self._look_later(None)

    async def _producer_id(self) -> tuple[int, int]:
        async with asyncio.timeout(self._load.give_up_s):
            while True:
                response = await self._wire.call_any(InitProducerIdRequest(transaction_timeout_ms=0))
                if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    # As in ``klamm produce``: what refuses the records says which right is missing.
                    self._settings = replace(self._settings, is_idempotent=False)
                    return self._producer
                if not error_code(response.error_code).is_retriable:
                    refuse(response.error_code, None, "producer id")
                    return response.producer_id, response.producer_epoch
                await asyncio.sleep(RETRY_PAUSE_S)
