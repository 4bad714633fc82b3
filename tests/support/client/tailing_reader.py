"""A consumer that keeps reading during faults: what it once got must be what the log has in the end.

Consumers see only committed records. So neither a change of leader nor a truncation may take back what was read, and
the consumer may never lose its place in the log.
"""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

_TOLERATED = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)


class TailingReader:
    """librdkafka's consumer on all partitions of a topic, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **settings: str) -> None:
        self.seen: dict[int, dict[int, bytes]] = {partition: {} for partition in range(partitions)}
        self.errors: list[str] = []
        self._topic = topic
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                "socket.timeout.ms": 3000,
                "reconnect.backoff.max.ms": 500,
                # See LibrdkafkaSender.
                "metadata.recovery.rebootstrap.trigger.ms": 3_000,
                "log_level": 0,
            }
            | settings
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._thread = threading.Thread(target=self._run, name=f"reader-{topic}")
        self._thread.start()

    def close(self) -> None:
        """End reading."""
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def check(self, partition: int, records: list[tuple[int, bytes]]) -> int:
        """Compare what was read from a partition with what is there now; return how many records were compared."""
        assert not self.errors, f"{self._topic}: {self.errors[:3]}"
        seen, now = dict(self.seen[partition]), dict(records)
        changed = [offset for offset, value in seen.items() if now.get(offset) != value]
        assert not changed, f"{self._topic}-{partition}: {len(changed)} records were read and changed: {changed[:3]}"
        return len(seen)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    self._take(message)
                elif message.error().code() not in _TOLERATED:
                    self.errors.append(str(message.error()))

    def _take(self, message: Any) -> None:
        seen = self.seen[message.partition()]
        if message.offset() in seen:
            self.errors.append(f"{self._topic}-{message.partition()} was read twice at {message.offset()}")
        seen[message.offset()] = message.value()
