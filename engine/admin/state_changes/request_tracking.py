"""Follows the controller's requests from its own log into the brokers' logs, and notes those that never arrived.

If the controller logs each partition (TRACE, the default until 2.5) each is looked for. Since 2.6 the default is a
summary per request: those are matched in order, by controller and number of partitions, because they carry no number of
their own. A broker handles its requests in order, so a handled request replaces all before it: the controller sends the
whole state to a broker that registers again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import timedelta

from engine.admin.state_changes.findings import Check, FindingBook, time_text
from engine.admin.state_changes.zones import shifted
from engine.common.model import TopicPartition
from engine.common.quantities import counted
from engine.kafka.formats.state_change_events import (
    PartitionHandled,
    PartitionSent,
    RequestHandled,
    RequestKind,
    RequestSent,
)

_GRACE = timedelta(seconds=5)
"""A request sent this shortly before all logs end may still have been in flight; clocks may differ by as much."""
_UNMATCHED_MAX = 1000
_NAMED_MAX = 5

_Way = tuple[RequestKind, int]
"""A kind of request and the broker it goes to."""


@dataclass(frozen=True, slots=True)
class _Request:
    start: bytes
    controller_id: int | None
    partition_count: int


class RequestTracking:
    """Follows all requests."""

    def __init__(self, book: FindingBook) -> None:
        self._book = book
        self._waiting: dict[_Way, deque[_Request]] = {}
        self._early: dict[_Way, deque[_Request]] = {}
        self._partitions: dict[tuple[RequestKind, int, TopicPartition], tuple[bytes, int | None]] = {}
        self._handled: dict[tuple[RequestKind, int, TopicPartition], tuple[bytes, int | None]] = {}
        self._ways_with_partitions: set[_Way] = set()
        self._last_by_broker: dict[int, bytes] = {}
        self._last_handled_by_broker: dict[int, bytes] = {}

    def line_of(self, broker_id: int, start: bytes) -> None:
        """A broker's log has a line."""
        self._last_by_broker[broker_id] = start

    def request_sent(self, start: bytes, event: RequestSent, controller_id: int | None) -> None:
        """The controller's summary of a request."""
        way = (event.request, event.broker_id)
        early = self._early.get(way, deque())
        for request in early:
            if (request.controller_id, request.partition_count) == (controller_id, event.partition_count):
                early.remove(request)
                return
        waiting = self._waiting.setdefault(way, deque(maxlen=_UNMATCHED_MAX))
        waiting.append(_Request(start, controller_id, event.partition_count))

    def request_handled(self, start: bytes, event: RequestHandled, broker_id: int) -> None:
        """A broker's summary of a request; by its clock it may have come before it was sent."""
        way = (event.request, broker_id)
        self._last_handled_by_broker[broker_id] = start
        waiting = self._waiting.get(way, deque())
        wanted = (event.controller_id, event.partition_count)
        if wanted not in [(request.controller_id, request.partition_count) for request in waiting]:
            early = self._early.setdefault(way, deque(maxlen=_UNMATCHED_MAX))
            early.append(_Request(start, event.controller_id, event.partition_count))
            return
        while waiting:
            request = waiting.popleft()
            if (request.controller_id, request.partition_count) == wanted:
                break
            if way not in self._ways_with_partitions:
                self._book.note(Check.OVERTAKEN_REQUESTS, request.start, _request_text(way, request))

    def partition_sent(self, start: bytes, event: PartitionSent) -> None:
        """The controller puts a partition into a request."""
        self._ways_with_partitions.add((event.request, event.broker_id))
        key = (event.request, event.broker_id, event.partition)
        handled = self._handled.pop(key, None)
        if handled is not None and handled[0] >= shifted(start, -_GRACE) and handled[1] == event.leader_epoch:
            return
        self._partitions[key] = (start, event.leader_epoch)

    def partition_handled(self, start: bytes, event: PartitionHandled, broker_id: int) -> None:
        """A broker names a partition of a request."""
        key = (event.request, broker_id, event.partition)
        if event.request is RequestKind.LEADER_AND_ISR:
            # A broker that hosts the partition again was stopped correctly.
            self._partitions.pop((RequestKind.STOP_REPLICA, broker_id, event.partition), None)
        sent = self._partitions.get(key)
        if sent is None:
            self._handled[key] = (start, event.leader_epoch)
        elif sent[1] is None or event.leader_epoch is None or event.leader_epoch >= sent[1]:
            del self._partitions[key]

    def finish(self, last_start: bytes) -> None:
        """The logs end: a request that was not handled was missed, if the broker's log is available."""
        horizon = shifted(last_start, -_GRACE)
        missing: dict[_Way, list[tuple[bytes, TopicPartition]]] = {}
        for (kind, broker_id, partition), (start, _) in self._partitions.items():
            if start < horizon:
                missing.setdefault((kind, broker_id), []).append((start, partition))
        for way, found in sorted(missing.items()):
            found.sort()
            names = ", ".join(str(partition) for _, partition in found[:_NAMED_MAX])
            more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
            self._note_missed(
                way, found[0][0], found[-1][0], f"{way[0]} to broker {way[1]} of {names}{more}", len(found)
            )
        for way, waiting in sorted(self._waiting.items()):
            for request in waiting if way not in self._ways_with_partitions else ():
                if request.start < self._last_handled_by_broker.get(way[1], b""):
                    self._book.note(Check.OVERTAKEN_REQUESTS, request.start, _request_text(way, request))
                elif request.start < horizon:
                    self._note_missed(way, request.start, request.start, _request_text(way, request), 1)

    def _note_missed(self, way: _Way, first: bytes, last: bytes, what: str, count: int) -> None:
        broker_id = way[1]
        ends = self._last_by_broker.get(broker_id)
        if ends is None:
            self._book.note(Check.LOGS_NOT_GIVEN, first, what, count=count)
            return
        why = "its log goes on without it" if ends > last else f"its log ends at {time_text(ends)}"
        self._book.note(Check.MISSED_CHANGES, first, f"{what}; {why}", count=count)


def _request_text(way: _Way, request: _Request) -> str:
    return f"{way[0]} to broker {way[1]} for {counted(request.partition_count, 'partition')}"
