"""Real clients that keep sending and reading, and remember exactly what they were promised: witnesses of crashes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from patience import within
from wire_client import WireClient, read_all

FLUSH_S = 60.0


@dataclass
class Acknowledged:
    """What one partition's producer was promised."""

    numbers: list[int] = field(default_factory=list)
    """Numbers in the order of their acknowledgements."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Their offsets, except where a later acknowledgement implied them, as librdkafka does after a new leader."""
    failed: int = 0


class Witness:
    """Sends numbers 0, 1, 2 … to each partition, round robin, from a thread, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, Any]) -> None:
        self.topic = topic
        self.acknowledged = [Acknowledged() for _ in range(partitions)]
        self._per_second = 4000
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, "log_level": 0, **settings})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"witness-{topic}", daemon=True)

    @property
    def count(self) -> int:
        """How many records were acknowledged up to now."""
        return sum(len(partition.numbers) for partition in self.acknowledged)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def wait_for_more(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until ``count`` more records are acknowledged: the broker accepts records again."""
        wanted = self.count + count
        is_in_time = within(timeout_s)
        while self.count < wanted:
            assert is_in_time(), f"{self.topic}: {self.count} acknowledged, {wanted} wanted"
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop sending, and wait until every record has been acknowledged or has failed."""
        self._stopping.set()
        self._thread.join(FLUSH_S)
        assert not self._thread.is_alive()
        assert self._producer.flush(FLUSH_S) == 0

    def check(self, address: str, *, exactly_once: bool) -> int:
        """Assert that all acknowledged records are there, once, in order, at their acknowledged offsets.

        Args:
            exactly_once: nothing else may be there, except the last records, whose answers may have been lost.

        Returns:
            How many records were acknowledged.
        """
        with WireClient(address) as client:
            for partition, sent in enumerate(self.acknowledged):
                records = read_all(client, self.topic, partition=partition)
                assert [record.offset for record in records] == list(range(len(records)))
                stored = [int(record.value or b"") for record in records]
                assert stored == sorted(set(stored)), f"{self.topic}-{partition}: not in order, or twice"
                for number, offset in sent.offsets.items():
                    assert stored[offset] == number, f"{self.topic}-{partition}: {number} is not at {offset}"
                assert sent.numbers == sorted(set(sent.numbers))
                if exactly_once:
                    assert sent.failed == 0
                    assert stored == sent.numbers == list(range(len(stored)))
        return self.count

    def _run(self) -> None:
        number, begin = 0, time.monotonic()
        while not self._stopping.is_set():
            for partition in range(len(self.acknowledged)):
                self._send(partition, number)
            number += 1
            self._producer.poll(0)
            ahead_s = number * len(self.acknowledged) / self._per_second - (time.monotonic() - begin)
            if ahead_s > 0:
                self._producer.poll(ahead_s)

    def _send(self, partition: int, number: int) -> None:
        offsets = self.acknowledged[partition]

        def delivered(error: object, message: Any) -> None:
            if error is None:
                offsets.numbers.append(number)
                if message.offset() is not None:
                    offsets.offsets[number] = message.offset()
            else:
                offsets.failed += 1

        while True:
            try:
                self._producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.1)


class Follower:
    """Reads a topic's partitions from the beginning, in a thread, and keeps the records in their order of arrival."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.found: list[list[int]] = [[] for _ in range(partitions)]
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer({**settings, "fetch.wait.max.ms": 100, "reconnect.backoff.max.ms": 500})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follower-{topic}", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop_at(self, counts: list[int], timeout_s: float = 60.0) -> None:
        """Wait until this many records of each partition have come, then stop reading."""
        is_in_time = within(timeout_s)
        while any(len(missing) < count for missing, count in zip(self.found, counts, strict=True)):
            assert is_in_time(), f"{[len(missing) for missing in self.found]} read of {counts}"
            time.sleep(0.02)
        self._stopping.set()
        self._thread.join(timeout_s)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(1000, 0.05):
                # An error about a lost connection is no record, and librdkafka recovers by itself.
                if message.error() is None:
                    self.found[message.partition() or 0].append(int(message.value() or b""))
