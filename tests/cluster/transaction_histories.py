"""Producers and workers that write transactions, and what a reader finds afterwards.

Every value is unique: ``writer/transaction/record``. The clients are librdkafka's.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from heard_by_clients import Heard
from klamm_program import klamm
from transaction_promises import History, Outcome, Written
from transaction_walker import Walker
from wire_client import ConnectionClosed, WireClient

from engine.common.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from engine.kafka.formats.consumer_offsets import partition_for
from engine.kafka.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from engine.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from engine.kafka.protocol.apis.end_txn import EndTxnRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

PARTITIONS = 3
GROUP = "workers"
TRANSACTION_TIMEOUT_MS = 6_000
_STEP_S = 25.0
_BATCH = 20
_STILL_S = 10.0
_POLLED_MS_MAX = 15_000
"""After so long in one step a worker is out of its group: one that hangs must not keep the other from being served."""


class Clients:
    """Two writers, one that others replace, a walker, two workers and a watcher, in threads, until ``finish``."""

    def __init__(self, bootstrap: str, source: str, target: str, seed: int) -> None:
        self.history = History(stable={partition: [] for partition in range(PARTITIONS)})
        self.told: list[str] = []
        self.still: list[str] = []
        """What everybody knew when no worker had committed anything for ten seconds, though there were records."""
        self._heard: list[Heard] = []
        self._bootstrap = bootstrap
        self._source, self._target = source, target
        self._seed = seed
        self._stopping = threading.Event()
        self._drained = threading.Event()
        self._lock = threading.Lock()
        writers = [self._thread(self._write, f"{source}-w{number}") for number in range(2)]
        replaced, walking = self._thread(self._replace, f"{source}-z"), self._thread(self._walk, f"{source}-q")
        self._writers = [*writers, replaced, walking]
        self.walked: Counter[str] = Counter()
        """How often the broker answered each random step with each error."""
        self._workers = [self._thread(self._work, f"{source}-r{number}") for number in range(2)]
        self._watcher = self._thread(self._watch, "watcher")

    def start(self) -> None:
        """Begin."""
        for thread in (*self._writers, *self._workers, self._watcher):
            thread.start()

    @property
    def committed(self) -> int:
        """How many transactions were committed so far."""
        with self._lock:
            return sum(transaction.outcome is Outcome.COMMITTED for transaction in self.history.written)

    def finish(self, timeout_s: float = 60.0, *, open_s: float = 2 * TRANSACTION_TIMEOUT_MS / 1000) -> History:
        """Stop the writers, wait until workers have read all, and read what is there.

        Transactions may stay open for ``open_s``.
        """
        self._stopping.set()
        for thread in self._writers:
            thread.join(timeout_s)
            assert not thread.is_alive(), f"{thread.name} hangs; {self.told[-5:]}"
        _wait(self._is_closed, open_s)
        self.history.read, self.history.last = self._read(self._source)
        if self._is_closed():
            self._wait_until_drained(2 * timeout_s)
        self._drained.set()
        for thread in (*self._workers, self._watcher):
            # A worker may be in a transaction whose steps it tries again and again.
            thread.join(4 * timeout_s)
            assert not thread.is_alive(), f"{thread.name} hangs"
        self.history.output, _ = self._read(self._target)
        return self.history

    def _is_closed(self) -> bool:
        self.history.ends = self._ends()
        return all(stable == end for stable, end in self.history.ends.values())

    def _is_drained(self) -> bool:
        self.history.positions = self._positions()
        return all(self.history.positions.get(partition, -1) >= last for partition, last in self.history.last.items())

    def _wait_until_drained(self, timeout_s: float) -> None:
        """Wait, and note once what everybody knows if the group stands still meanwhile."""
        before: dict[int, int] = {}
        since = time.monotonic()
        until = since + timeout_s
        while not self._is_drained() and time.monotonic() < until:
            if self.history.positions != before:
                before, since = self.history.positions, time.monotonic()
            elif not self.still and time.monotonic() - since > _STILL_S:
                begun = time.monotonic()
                self.still = [*self._seen_by_cluster(), *self._heard_by_workers()]
                until += time.monotonic() - begun
            time.sleep(0.1)

    def slow_steps(self) -> list[str]:
        """Return what took the workers longer than a failover does."""
        return [step for heard in self._heard for step in heard.steps_longer_than(_STILL_S)]

    def _heard_by_workers(self) -> list[str]:
        latest = {heard.name: heard for heard in self._heard}
        return [line for name in sorted(latest) for line in latest[name].report()]

    def _seen_by_cluster(self) -> list[str]:
        """Return what an operator would look at, and what a client of the group would be told."""
        group, workers = f"{GROUP}-{self._source}", [thread.name for thread in self._workers]
        offsets = self._partition_of(GROUP_METADATA_TOPIC, group)
        asked = [
            ["groups", "describe", group],
            ["groups", "describe", group, "--members", "--verbose"],
            ["topics", "describe", self._source, GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC],
            ["transactions", "list"],
            ["transactions", "describe", *workers],
            *(["transactions", "producers", "--topic", self._source, "--partition", str(p)] for p in range(PARTITIONS)),
            ["transactions", "producers", "--topic", GROUP_METADATA_TOPIC, "--partition", str(offsets)],
            ["transactions", "find-hanging", "--max-transaction-timeout", "1s"],
        ]
        with TemporaryDirectory() as folder:
            shown = []
            for arguments in asked:
                ran = klamm(*arguments, "-b", self._bootstrap, "-o", "table", "--timeout", "5", folder=Path(folder))
                shown.append(f"== klamm {' '.join(arguments)}\n{ran.out}{ran.err}")
        for is_stable in (False, True):
            shown.append(f"== OffsetFetch, require_stable {is_stable}: {self._committed_as_told(group, is_stable)}")
        return shown

    def _committed_as_told(self, group: str, is_stable: bool) -> object:
        """Return the coordinator's answer to who asks for the group's offsets, without librdkafka."""
        coordinator = self._coordinator_of(GROUP_METADATA_TOPIC, group)
        if coordinator is None:
            return "no coordinator"
        topics = [OffsetFetchRequestTopic(name=self._source, partition_indexes=[*range(PARTITIONS)])]
        try:
            with WireClient(coordinator, timeout_s=4) as client:
                return client.ask(OffsetFetchRequest(group_id=group, topics=topics, require_stable=is_stable), 7)
        except (ConnectionClosed, OSError) as error:
            return error

    def _thread(self, run: Callable[[str], None], name: str) -> threading.Thread:
        def guarded() -> None:
            try:
                run(name)
            except Exception as error:
                self.told.append(f"{name}: {type(error).__name__}: {error}")
                raise

        return threading.Thread(target=guarded, name=name, daemon=True)

    def _settings(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap, "log_level": 0, "socket.timeout.ms": 4_000, **more}

    # -- writers

    def _producer(self, name: str, heard: Heard | None = None) -> Producer:
        producer = Producer(
            self._settings(
                **{"transactional.id": name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "linger.ms": 0,
                   "delivery.timeout.ms": 5_000, "retry.backoff.ms": 50, **(heard.settings if heard else {})}
            )
        )  # fmt: skip
        if heard:
            heard.hand_over = lambda: producer.poll(0)
        _retried(lambda: producer.init_transactions(_STEP_S))
        return producer

    def _begin(self, producer: Producer, name: str, rng: random.Random, *, count: int | None = None) -> Written:
        written = Written(name)
        with self._lock:
            self.history.written.append(written)
        producer.begin_transaction()
        for number in range(count or rng.randint(1, 6)):
            partition = rng.randrange(PARTITIONS)
            value = f"{name}/{number}"
            written.values.setdefault(partition, []).append(value)
            producer.produce(self._source, value, partition=partition)
        return written

    def _end(self, producer: Producer, written: Written, *, is_commit: bool) -> None:
        try:
            _retried(lambda: producer.commit_transaction(_STEP_S) if is_commit else producer.abort_transaction(_STEP_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _retried(lambda: producer.abort_transaction(_STEP_S))
            written.outcome = Outcome.ABORTED
        else:
            written.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED

    def _write(self, name: str) -> None:
        rng = random.Random(f"{self._seed} {name}")
        number, producer = 0, None
        while not self._stopping.is_set():
            try:
                producer = producer or self._producer(name)
                written = self._begin(producer, f"{name}/{number}", rng)
                number += 1
                is_commit = rng.random() > 0.3
                # A tenth of a load that would keep every core busy.
                time.sleep(rng.uniform(0.0, 0.05))
                if rng.random() < 0.3 or not is_commit:
                    # Readers see what is flushed, if nothing keeps them from it.
                    producer.flush(_STEP_S)
                    time.sleep(rng.uniform(0.0, 0.06))
                self._end(producer, written, is_commit=is_commit)
            except KafkaException as error:
                self.told.append(f"{name}: {error}")
                producer = None

    def _walk(self, name: str) -> None:
        def note(written: Written) -> None:
            with self._lock:
                self.history.written.append(written)

        walker = Walker(self._bootstrap, self._source, PARTITIONS, name, seed=f"{self._seed} {name}", note=note)
        walker.walk(self._stopping.is_set)
        self.walked = walker.answers

    def _replace(self, name: str) -> None:
        """A zombie that goes on after another producer has taken its transactional id, and a batch that comes late."""
        rng = random.Random(f"{self._seed} {name}")
        number = 0
        while not self._stopping.is_set():
            number += 1
            try:
                zombie = self._producer(name)
                old = self._begin(zombie, f"{name}/old-{number}", rng, count=2)
                zombie.flush(_STEP_S)
                successor = self._producer(name)
                new = self._begin(successor, f"{name}/new-{number}", rng, count=2)
                successor.flush(_STEP_S)
                try:
                    self._end(zombie, old, is_commit=True)
                except KafkaException as error:
                    self.told.append(f"{name}: the zombie: {error}")
                self._end(successor, new, is_commit=rng.random() > 0.3)
            except KafkaException as error:
                self.told.append(f"{name}: {error}")
            try:
                self._send_late(f"{name}-late", number)
            except (ConnectionClosed, OSError) as error:
                self.told.append(f"{name}: late: {error}")

    def _send_late(self, name: str, number: int) -> None:
        """Commit a transaction, then send one more batch of it, as a connection that was slow does."""
        leader, coordinator = self._leader_of(self._source, 0), self._coordinator_of(TRANSACTION_STATE_TOPIC, name)
        if leader is None or coordinator is None:
            return
        written = Written(f"{name}/{number}", {0: [f"{name}/{number}/0"]})
        with self._lock:
            self.history.written.append(written)
        with WireClient(coordinator, timeout_s=4) as client, WireClient(leader, timeout_s=4) as writer:
            init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
            answer = client.ask(init, 4)
            if answer.error_code:
                return
            who = (answer.producer_id, answer.producer_epoch)
            add = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=who[0],
                v3_and_below_producer_epoch=who[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._source, partitions=[0])],
            )
            added = client.ask(add, 3).results_by_topic_v3_and_below[0].results_by_partition[0]
            if added.partition_error_code or self._send(writer, name, who, 0, written.values[0][0]):
                return
            end = EndTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=True)
            if client.ask(end, 3).error_code:
                return
            written.outcome = Outcome.COMMITTED
            until = time.monotonic() + 4
            while time.monotonic() < until:
                asked = DescribeTransactionsRequest(transactional_ids=[name])
                if client.ask(asked, 0).transaction_states[0].transaction_state == "CompleteCommit":
                    break
            late = Written(f"{name}/{number}-late", {0: [f"{name}/{number}/late"]}, Outcome.ABORTED)
            with self._lock:
                self.history.written.append(late)
            self._send(writer, name, who, 1, late.values[0][0])

    def _send(self, writer: WireClient, name: str, who: tuple[int, int], sequence: int, value: str) -> int:
        batch = encode_batch(
            [Record(timestamp_ms=time.time_ns() // 1_000_000, value=value.encode())],
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=sequence,
            transactional=True,
        )
        data = [TopicProduceData(name=self._source, partition_data=[PartitionProduceData(index=0, records=batch)])]
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=3_000, topic_data=data)
        answer = writer.ask(request, 9).responses[0].partition_responses[0]
        return int(answer.error_code)

    def _leader_of(self, topic: str, partition: int) -> str | None:
        try:
            metadata = AdminClient(self._settings()).list_topics(topic, timeout=3)
        except KafkaException:
            return None
        # A partition without a leader may be left out.
        known = metadata.topics[topic].partitions.get(partition)
        leader = metadata.brokers.get(known.leader) if known else None
        return f"{leader.host}:{leader.port}" if leader else None

    def _coordinator_of(self, topic: str, key: str) -> str | None:
        partition = self._partition_of(topic, key)
        return None if partition is None else self._leader_of(topic, partition)

    def _partition_of(self, topic: str, key: str) -> int | None:
        """Return the partition that keeps a group or a transactional id; None if nobody tells the topic now."""
        try:
            metadata = AdminClient(self._settings()).list_topics(topic, timeout=3)
        except KafkaException:
            return None
        count = len(metadata.topics[topic].partitions)
        return partition_for(key, count) if count else None

    # -- workers

    def _listen(self, name: str, debug: str) -> Heard:
        heard = Heard(name, debug)
        self._heard.append(heard)
        return heard

    def _work(self, name: str) -> None:
        """Read, write what was read, and commit both at once; begin anew after each error."""
        while not self._drained.is_set():
            reading = self._listen(f"{name} reads", "cgrp,fetch,broker,topic,metadata")
            writing = self._listen(f"{name} writes", "eos,broker,metadata")
            consumer = Consumer(
                self._settings(
                    **{"group.id": f"{GROUP}-{self._source}", "isolation.level": "read_committed",
                       "enable.auto.commit": False, "auto.offset.reset": "earliest", "session.timeout.ms": 3_000,
                       "heartbeat.interval.ms": 300, "max.poll.interval.ms": _POLLED_MS_MAX, **reading.settings}
                )
            )  # fmt: skip
            try:
                with writing.during("init_transactions"):
                    producer = self._producer(name, writing)
                consumer.subscribe([self._source])
                while not self._drained.is_set():
                    with reading.during("consume"):
                        messages = [message for message in consumer.consume(_BATCH, 0.1) if message.error() is None]
                    producer.poll(0)
                    if messages:
                        with writing.during("a transaction"):
                            self._pass_on(consumer, producer, messages, writing)
            except (KafkaException, TimeoutError) as error:
                self.told.append(f"{name}: {type(error).__name__}: {error}")
            finally:
                # A producer ends with its last reference.
                writing.hand_over = producer = None
                with reading.during("close"):
                    consumer.close()

    def _pass_on(self, consumer: Consumer, producer: Producer, messages: Sequence[Any], writing: Heard) -> None:
        producer.begin_transaction()
        for message in messages:
            producer.produce(self._target, message.value(), partition=message.partition())
        try:
            offsets = consumer.position(consumer.assignment())
            metadata = consumer.consumer_group_metadata()
            with writing.during("send_offsets_to_transaction"):
                _retried(lambda: _bounded(lambda: producer.send_offsets_to_transaction(offsets, metadata, _STEP_S)))
            with writing.during("commit_transaction"):
                _retried(lambda: producer.commit_transaction(_STEP_S))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                with writing.during("abort_transaction"):
                    _retried(lambda: producer.abort_transaction(_STEP_S))
            # What was read has to be read again: by whoever has the partitions then.
            raise

    # -- readers

    def _watch(self, _: str) -> None:
        admin = AdminClient(self._settings())
        while not self._drained.is_set():
            for partition, offset in _offsets(admin, self._source, IsolationLevel.READ_COMMITTED, 1.0).items():
                self.history.stable[partition].append(offset)
            time.sleep(0.03)

    def _ends(self) -> dict[int, tuple[int, int]]:
        """Ask until the leaders of all partitions have answered: one that has just changed may refuse."""
        admin, until = AdminClient(self._settings()), time.monotonic() + 30
        while True:
            ends = _offsets(admin, self._source, IsolationLevel.READ_UNCOMMITTED, 5.0)
            stable = _offsets(admin, self._source, IsolationLevel.READ_COMMITTED, 5.0)
            if len(ends) == len(stable) == PARTITIONS:
                return {partition: (stable[partition], end) for partition, end in ends.items()}
            assert time.monotonic() < until, f"the ends of {self._source} are not told"

    def _positions(self) -> dict[int, int]:
        consumer = Consumer(
            self._settings(**{"group.id": f"{GROUP}-{self._source}", "isolation.level": "read_committed"})
        )
        try:
            wanted = [TopicPartition(self._source, partition) for partition in range(PARTITIONS)]
            # Nothing was ever read of an empty partition.
            return {position.partition: max(position.offset, 0) for position in consumer.committed(wanted, 10)}
        except KafkaException:
            return {}
        finally:
            consumer.close()

    def _read(self, topic: str) -> tuple[dict[int, list[str]], dict[int, int]]:
        """Return committed values by partition, and the offsets after the last of them."""
        consumer = Consumer(
            self._settings(
                **{"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True,
                   "auto.offset.reset": "earliest", "enable.auto.commit": False}
            )
        )  # fmt: skip
        values: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        left, last = set(values), dict.fromkeys(values, 0)
        until = time.monotonic() + 30
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in values])
            while left:
                assert time.monotonic() < until, f"{topic} has no end"
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if message.error() is None:
                    values[message.partition()].append(message.value().decode())
                    last[message.partition()] = message.offset() + 1
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
        finally:
            consumer.close()
        return values, last


def _wait(is_so: Callable[[], bool], timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while not is_so() and time.monotonic() < until:
        time.sleep(0.1)


def _retried(step: Callable[[], object]) -> None:
    """Do a step of a transaction again as long as librdkafka says that this is safe."""
    until = time.monotonic() + 2 * _STEP_S
    while True:
        try:
            step()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise


def _bounded(step: Callable[[], object]) -> None:
    """Do a step in a thread of its own, and leave it there if it does not end.

    librdkafka 2.16 waits forever in ``send_offsets_to_transaction`` when the broker that coordinates the group leaves
    the metadata (its issues 5456 and 5511). An application that hangs is killed and started anew. The
    round's line names the step, and the group's other worker must be served meanwhile.

    Raises:
        TimeoutError: the step is longer under way than librdkafka was told to take.
    """
    result: Future[object] = Future()

    def run() -> None:
        try:
            result.set_result(step())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="step", daemon=True).start()
    result.result(_STEP_S + 5)


def _offsets(admin: AdminClient, topic: str, isolation: IsolationLevel, timeout_s: float) -> Mapping[int, int]:
    wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
    offsets = {}
    futures = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=timeout_s)
    for position, future in futures.items():
        try:
            offset = int(future.result(timeout_s + 1).offset)
        except (KafkaException, TimeoutError):
            continue
        # librdkafka has negative numbers for what no leader has told.
        if offset >= 0:
            offsets[position.partition] = offset
    return offsets
