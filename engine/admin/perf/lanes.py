"""Where a performance test's batches go: a lane per partition, a link per broker that leads some of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from engine.admin.perf.templates import BatchTemplate
from engine.common.model import NO_LEADER
from engine.kafka.client.broker_client import BrokerClient

_SEQUENCE_MODULUS = 2**31


@dataclass(slots=True)
class Flight:
    """A batch in flight. Times are the event loop's, in seconds: when its first and last record were made."""

    lane: Lane
    template: BatchTemplate
    record_count: int
    base_sequence: int
    first_s: float
    last_s: float


class Lane:
    """One partition. Failed batches are sent again in order, once nothing of the lane is in flight."""

    __slots__ = ("_next_sequence", "_not_before_s", "again", "failed", "in_flight", "leader_id", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.leader_id = NO_LEADER
        self.in_flight = 0
        self.failed: list[Flight] = []
        self.again: deque[Flight] = deque()
        self._next_sequence = 0
        self._not_before_s = 0.0

    def take_sequence(self, count: int) -> int:
        """Return the sequence number of a new batch's first record."""
        first = self._next_sequence
        self._next_sequence = (first + count) % _SEQUENCE_MODULUS
        return first

    def fail(self, flight: Flight, not_before_s: float) -> None:
        """Take a batch back."""
        self.failed.append(flight)
        self._not_before_s = not_before_s

    def is_held(self, now_s: float) -> bool:
        """Whether nothing may be sent now."""
        if not self.failed:
            return False
        if self.in_flight or now_s < self._not_before_s:
            return True
        # Sort by the time they were made, because sequence numbers wrap; older ones still wait in ``again``.
        self.again = deque(sorted([*self.failed, *self.again], key=lambda flight: flight.first_s))
        self.failed = []
        return False


class Link:
    """One broker, and the lanes it leads. ``waits_since``: when the oldest unanswered request was sent."""

    __slots__ = ("_cursor", "client", "in_flight", "lanes", "produce_version", "waits_since")

    def __init__(self, client: BrokerClient) -> None:
        self.client = client
        self.produce_version = -1
        self.lanes: list[Lane] = []
        self.in_flight = 0
        self.waits_since: float | None = None
        self._cursor = 0

    def lanes_in_turn(self) -> Iterator[Lane]:
        """Yield each lane once, beginning after the one that was used last."""
        lanes = self.lanes
        start = self._cursor
        for index in range(len(lanes)):
            place = (start + index) % len(lanes)
            self._cursor = (place + 1) % len(lanes)
            yield lanes[place]

    def started(self, now_s: float) -> None:
        """Note a request that was sent."""
        self.in_flight += 1
        self.waits_since = now_s if self.waits_since is None else self.waits_since

    def ended(self, now_s: float) -> None:
        """Note a request that was answered or lost."""
        self.in_flight -= 1
        self.waits_since = now_s if self.in_flight else None
