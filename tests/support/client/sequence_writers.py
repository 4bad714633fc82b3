"""Producers of real client libraries that write numbered records, and a check that every acknowledged record is there.

A record's value is ``<writer>:<number>:<filler>``; each writer counts by itself in each partition. Afterwards, read by
librdkafka's consumer: an acknowledged record is at its acknowledged offset, no number occurs twice, and a writer's
numbers rise.
"""

from __future__ import annotations

import gc
import itertools
import logging
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from soak import SOAK
from tailing_reader import TailingReader

DELIVERY_MS = 180_000
"""Longer than any fault lasts: what is not delivered by then is a failure of the cluster."""

UNKNOWN = -1
"""The offset of a record that was acknowledged without its offset."""

_UNANSWERED_MAX = 2_000

FAST = 1000 if SOAK > 1 else 400
SLOW = FAST * 3 // 10
"""Records a second. Each takes CPU in the client and in three brokers, so ``make test`` sends fewer than a long run."""

_LAST_LINES = 50_000
"""How many of librdkafka's log lines are kept, in case it gets stuck."""

Acknowledged = dict[tuple[str, int], dict[int, int]]
"""(topic, partition) -> number -> offset, or ``UNKNOWN``."""


class Sender(Protocol):
    """One client library. ``on_done`` gets the offset, ``UNKNOWN`` if the library was not told, or an error's text."""

    def send(self, topic: str, partition: int, value: bytes, on_done: Any) -> None: ...
    def poll(self) -> None: ...
    def flush(self, timeout_s: float) -> None: ...
    def close(self) -> None: ...


class LibrdkafkaSender:
    """librdkafka's producer, idempotent unless the settings say otherwise."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self.fatal: list[str] = []
        defaults = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "delivery.timeout.ms": DELIVERY_MS,
            "request.timeout.ms": 3000,
            "socket.timeout.ms": 6000,
            "socket.connection.setup.timeout.ms": 2000,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 300,
            "topic.metadata.refresh.fast.interval.ms": 50,
            # After a restart of the whole cluster, brokers know each other a moment before they know the topics, in
            # Kafka too. librdkafka gives up a topic, with its waiting records, that it first heard of longer ago than
            # this: see ``_ask_again``. It counts microseconds in 32 bits: with 2,147,484 ms or more it gives up every
            # new topic at once.
            "topic.metadata.propagation.max.ms": 2_000_000,
            # A broker that has just started may know no broker yet, and librdkafka then forgets all of them. It asks
            # the first addresses again after this time; its own default is five minutes.
            "metadata.recovery.rebootstrap.trigger.ms": 3_000,
            "debug": "broker,topic,metadata",
            "error_cb": self._on_error,
        }
        self._said = _LastLines()
        logger = logging.Logger("librdkafka", logging.DEBUG)
        logger.addHandler(self._said)
        self._producer = Producer(defaults | settings, logger=logger)

    def send(self, topic: str, partition: int, value: bytes, on_done: Any) -> None:
        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                on_done(None, str(error))
                return
            # No offset: the producer still waited for the old leader's answer when the new leader, which had replicated
            # the record, acknowledged a later one. librdkafka calls that an implicit acknowledgement.
            offset = message.offset()
            on_done(UNKNOWN if offset is None else offset, "")

        deadline = time.monotonic() + DELIVERY_MS / 1000
        while True:
            try:
                self._producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_TOPIC or time.monotonic() > deadline:
                    raise
                self._ask_again(topic)
            else:
                return

    def _ask_again(self, topic: str) -> None:
        """Make librdkafka look for a topic that it gave up, as every program must.

        A broker that has just started answers UNKNOWN_TOPIC_OR_PARTITION until the controller has told it about the
        topics, and so does Kafka's. librdkafka believes this answer for a topic that it has known for long.
        """
        try:
            self._producer.list_topics(topic, timeout=1.0)
        except KafkaException as error:
            # Nobody answers, which may be part of the fault.
            logging.getLogger(__name__).debug("%s was asked for in vain: %s", topic, error)
        time.sleep(0.05)

    def poll(self) -> None:
        self._producer.poll(0)

    def flush(self, timeout_s: float) -> None:
        left = self._producer.flush(timeout_s)
        if left:
            saved = self._said.save()
            raise AssertionError(
                f"librdkafka still holds {left} records after {timeout_s:.0f} s; what it said: {saved}"
            )

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1.0)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal.append(str(error))


class _LastLines(logging.Handler):
    """Keeps the last lines in memory, since most runs need none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self._last: deque[logging.LogRecord] = deque(maxlen=_LAST_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self._last.append(record)

    def save(self) -> Path:
        """Write them to a file that remains, and return it."""
        with tempfile.NamedTemporaryFile("w", prefix="librdkafka-", suffix=".log", delete=False) as file:
            file.write("\n".join(map(self.format, self._last)))
        return Path(file.name)


class KafkaPythonSender:
    """kafka-python's idempotent producer.

    It leaves the sockets of dead brokers to the garbage collector. Tests with faults ignore that warning, and ``close``
    runs the collector before the next test.
    """

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self.fatal: list[str] = []
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            enable_idempotence=True,
            acks="all",
            linger_ms=5,
            request_timeout_ms=3000,
            delivery_timeout_ms=DELIVERY_MS,
            retry_backoff_ms=50,
            reconnect_backoff_max_ms=500,
            max_block_ms=DELIVERY_MS,
            **settings,
        )

    def send(self, topic: str, partition: int, value: bytes, on_done: Any) -> None:
        future = self._producer.send(topic, value, partition=partition)
        future.add_callback(lambda metadata: on_done(metadata.offset, ""))
        future.add_errback(lambda error: on_done(None, repr(error)))

    def poll(self) -> None:
        """Nothing to do: its own thread calls back."""

    def flush(self, timeout_s: float) -> None:
        try:
            self._producer.flush(timeout_s)
        except PythonKafkaError as error:
            raise AssertionError(f"kafka-python still holds records after {timeout_s:.0f} s") from error

    def close(self) -> None:
        self._producer.close(timeout=1.0)
        del self._producer
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


class Writer:
    """Writes to all partitions of a topic in turn, in a thread of its own, until it is stopped."""

    def __init__(self, name: str, sender: LibrdkafkaSender | KafkaPythonSender, *, records_per_s: int = FAST) -> None:
        self.name = name
        self.acknowledged: Acknowledged = {}
        self.failures: list[str] = []
        self._sender = sender
        self._pause_s = 10 / records_per_s
        self._next: dict[tuple[str, int], int] = {}
        self._sent_total = 0
        self._answered_total = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def acknowledged_total(self) -> int:
        return sum(map(len, list(self.acknowledged.values())))

    def start(self, topic: str, partitions: int) -> None:
        """Start writing, or continue after ``stop``."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, args=(topic, partitions), name=f"writer-{self.name}")
        self._thread.start()

    def stop(self, timeout_s: float = 60.0) -> None:
        """Stop writing and wait until every record has been acknowledged or has failed."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._sender.flush(timeout_s)

    def close(self) -> None:
        """Stop writing, even if records are still unanswered."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._sender.close()

    def check(self) -> None:
        """Raise AssertionError if any record failed: no fault outlasts the client's patience."""
        assert not self._sender.fatal, f"{self.name}: {self._sender.fatal}"
        assert not self.failures, f"{self.name}: {len(self.failures)} records failed: {self.failures[:3]}"

    def _run(self, topic: str, partitions: int) -> None:
        for partition in itertools.cycle(range(partitions)):
            if self._stopping.is_set():
                return
            if self._sent_total - self._answered_total < _UNANSWERED_MAX:
                for _ in range(10):
                    self._send(topic, partition)
            self._sender.poll()
            time.sleep(self._pause_s)

    def _send(self, topic: str, partition: int) -> None:
        key = (topic, partition)
        number = self._next.get(key, 0)
        self._next[key] = number + 1
        self._sent_total += 1
        acknowledged = self.acknowledged.setdefault(key, {})

        def on_done(offset: int | None, error: str) -> None:
            self._answered_total += 1
            if offset is None:
                self.failures.append(f"{topic}-{partition} {number}: {error}")
            else:
                acknowledged[number] = offset

        filler = b"." * (number % 97)
        self._sender.send(topic, partition, b"%s:%d:%s" % (self.name.encode(), number, filler), on_done)


Records = list[tuple[int, bytes]]
"""Offset and value of each."""


def read_topic(
    bootstrap: str, topic: str, partitions: int, *, timeout_s: float = 60.0
) -> list[list[tuple[int, bytes]]]:
    """Return (offset, value) of all records of each partition, as librdkafka's consumer reads them."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "check.crcs": True,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    records: list[Records] = [[] for _ in range(partitions)]
    try:
        deadline = time.monotonic() + timeout_s
        bounds = [_watermarks(consumer, TopicPartition(topic, p), deadline) for p in range(partitions)]
        left = {p for p, (start, end) in enumerate(bounds) if start < end}
        consumer.assign([TopicPartition(topic, p, bounds[p][0]) for p in left])
        while left:
            assert time.monotonic() < deadline, (
                f"{topic}: partitions {sorted(left)} were not read to their ends {bounds}"
            )
            for message in consumer.consume(1_000, timeout=0.05):
                if message.error() is None:
                    records[message.partition()].append((message.offset(), message.value()))
            left = {p for p in left if not records[p] or records[p][-1][0] < bounds[p][1] - 1}
        return records
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, partition: TopicPartition, deadline: float) -> tuple[int, int]:
    """Return start and end. librdkafka gives up when the leader changes meanwhile, as it may in any slow minute.

    What it has heard of a partition without a leader it believes until it is made to ask again.
    """
    while True:
        try:
            start, end = consumer.get_watermark_offsets(partition, timeout=5.0)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"{partition}: {error}") from error
            time.sleep(0.1)
            with suppress(KafkaException):
                consumer.list_topics(partition.topic, timeout=5.0)
        else:
            return start, end


def assert_nothing_lost(
    bootstrap: str,
    topic: str,
    partitions: int,
    writers: Iterable[Writer],
    reader: TailingReader | None = None,
    *,
    sent_again: Sequence[Collection[int]] | None = None,
) -> int:
    """Compare what can be read with what was acknowledged, and with what was read before.

    Return how many acknowledged records were checked. ``sent_again`` has, per partition, the offsets at which a record
    may occur a second time.
    """
    checked = 0
    for partition, records in enumerate(read_topic(bootstrap, topic, partitions)):
        if reader is not None:
            reader.check(partition, records)
        offsets = [offset for offset, _ in records]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
        again = sent_again[partition] if sent_again is not None else ()
        for writer in writers:
            checked += _check(f"{topic}-{partition}", writer, records, again)
    return checked


def _check(name: str, writer: Writer, records: Records, sent_again: Collection[int]) -> int:
    topic, _, partition = name.rpartition("-")
    acknowledged = writer.acknowledged.get((topic, int(partition)), {})
    prefix = writer.name.encode() + b":"
    places: dict[int, list[int]] = {}
    for offset, value in records:
        if value.startswith(prefix):
            places.setdefault(int(value.split(b":")[1]), []).append(offset)
    twice = [number for number, offsets in places.items() if any(offset not in sent_again for offset in offsets[1:])]
    assert not twice, f"{name}: {len(twice)} records of {writer.name} stand there twice, the first is {min(twice)}"
    lost = [number for number in acknowledged if number not in places]
    assert not lost, f"{name}: {len(lost)} acknowledged records of {writer.name} are lost, the first is {min(lost)}"
    # In the order of their first offsets.
    falls = [(a, b) for a, b in itertools.pairwise(places) if b < a]
    assert not falls, f"{name}: records of {writer.name} out of order: {falls[:3]}"
    moved = [(n, at, places[n]) for n, at in acknowledged.items() if at not in places[n] and at != UNKNOWN]
    assert not moved, f"{name}: (number, acknowledged at, found at) of {writer.name}: {moved[:3]}"
    return len(acknowledged)
