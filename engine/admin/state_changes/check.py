"""Reads merged state-change logs and names what happened.

    check = StateChangeCheck()
    for batch in plan.merge(row_tag):
        check.feed(batch, clock)
    check.end_logs()
    await compare_with_cluster(check.states, reader, check.book, find_hidden)
    result = check.result()

It finds only what the logs show: since Kafka 2.6 they have, by default, no line for an ISR that a leader changed by
itself. The change shows in the controller's next line about the partition.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from engine.admin.state_changes.findings import Check, Finding, FindingBook, Severity, time_text
from engine.admin.state_changes.merge import Batch
from engine.admin.state_changes.merged_rows import Origin
from engine.admin.state_changes.partition_history import PartitionHistories
from engine.admin.state_changes.zones import UtcClock, moment_of, shifted
from engine.common.listing import first_few
from engine.common.model import TopicPartition
from engine.common.quantities import counted
from engine.kafka.formats.state_change_events import (
    Event,
    LeaderElected,
    MoveFailed,
    OldController,
    PartitionDeleted,
    PartitionHandled,
    PartitionMoved,
    PartitionSent,
    PartitionsForgotten,
    PrintedState,
    Reassigned,
    Refusal,
    Refused,
    ReplicasOffline,
    RequestHandled,
    RequestKind,
    RequestSent,
    RoleStarted,
    StateSeen,
    UncleanlyElected,
)
from engine.kafka.formats.state_change_lines import StateChangeLine, parse_entry
from engine.kafka.formats.state_change_sentences import events_of

DEFAULT_WINDOW = timedelta(minutes=10)
_ERROR_LEVELS = frozenset({"ERROR", "FATAL"})
_MESSAGE_MAX = 160
_CACHED = b"Cached leader info "
_IN_RESPONSE = b" in response to "
_CACHED_MAX = 50_000
_REFUSALS = {
    Refusal.OFFLINE_LOG_DIR: (Check.OFFLINE_LOG_DIR, "has it in a log dir that failed"),
    Refusal.NOT_A_REPLICA: (Check.FAILED_CHANGES, "is not in the assignment that it was sent"),
    Refusal.LEADER_UNAVAILABLE: (Check.LEADER_UNAVAILABLE, "could not follow"),
    Refusal.OLD_LEADER_EPOCH: (Check.LATE_REQUESTS, "knew a newer leader epoch"),
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What the logs say as a whole. Times are starts of lines in UTC, None if there was no line."""

    findings: tuple[Finding, ...]
    first_start: bytes | None
    last_start: bytes | None
    line_count: int
    broker_ids: tuple[int, ...]
    partition_count: int

    @property
    def severity(self) -> Severity:
        """The most severe of all findings; INFO if there is none."""
        order = list(Severity)
        return min((finding.check.severity for finding in self.findings), key=order.index, default=Severity.INFO)


class StateChangeCheck:
    """Takes entries in time order."""

    def __init__(self, *, window: timedelta = DEFAULT_WINDOW, examples_max: int = 3) -> None:
        self.book = FindingBook(examples_max)
        self._offline_replicas: set[tuple[int | None, TopicPartition]] = set()
        self._histories = PartitionHistories(self.book, window)
        self._requests = RequestTracking(self.book)
        self._controllers = ControllerTracking(self.book)
        self._clocks = ClockTracking(self.book)
        self._first_start: bytes | None = None
        self._last_start: bytes | None = None
        self._line_count = 0
        self._broker_ids: set[int] = set()
        self._cached: set[bytes] = set()

    def feed(self, batch: Batch[Origin], clock: UtcClock | None) -> None:
        """Take a batch of the merge; ``clock`` is the plan's."""
        starts: Sequence[bytes] = batch.starts if clock is None else clock.starts(batch.starts)
        for start, origin, entry in zip(starts, batch.tags, batch.entries, strict=True):
            line = parse_entry(entry)
            if line is not None:
                self._take(start, origin.broker_id, line)
        if starts:
            self._first_start = self._first_start or starts[0]
            self._last_start = starts[-1]
            self._line_count += len(starts)

    def end_logs(self) -> None:
        """Report what is still open where the logs end. Call it once, after the last batch."""
        if self._last_start is not None:
            ahead_s = partial(_ahead_s, self._clocks.finish())
            self._histories.finish(self._last_start, ahead_s)
            self._requests.finish(self._last_start)
            self._controllers.finish(ahead_s)

    @property
    def states(self) -> dict[TopicPartition, PrintedState]:
        """The last state of every partition that was not deleted."""
        return {
            partition: history.state
            for partition, history in self._histories.by_partition.items()
            if history.state is not None and not history.is_deleted
        }

    def result(self) -> CheckResult:
        """Return the findings so far."""
        return CheckResult(
            tuple(self.book.findings),
            self._first_start,
            self._last_start,
            self._line_count,
            tuple(sorted(self._broker_ids)),
            len(self._histories.by_partition),
        )

    def _take(self, start: bytes, broker_id: int | None, line: StateChangeLine) -> None:
        if broker_id is not None:
            self._broker_ids.add(broker_id)
            self._requests.line_of(broker_id, start)
            if line.is_controller and line.controller_epoch is not None:
                self._controllers.controller_line(start, broker_id, line.controller_epoch)
        if self._is_repeated(line.message):
            return
        is_told = False
        for event in events_of(line):
            is_told = True
            self._event(start, broker_id, line, event)
        if line.level in _ERROR_LEVELS and not is_told:
            message = line.message.partition(b"\n")[0][:_MESSAGE_MAX].decode("utf-8", "replace")
            self.book.note(Check.ERRORS, start, f"broker {broker_id}: {message}")

    def _is_repeated(self, message: bytes) -> bool:
        """Whether another broker has cached the same state: with TRACE most lines repeat this, once per broker."""
        if not message.startswith(_CACHED):
            return False
        state = message[len(_CACHED) : message.find(_IN_RESPONSE)]
        if state in self._cached:
            return True
        if len(self._cached) >= _CACHED_MAX:
            self._cached.clear()
        self._cached.add(state)
        return False

    def _event(self, start: bytes, broker_id: int | None, line: StateChangeLine, event: Event) -> None:
        match event:
            case StateSeen():
                self._histories.state_seen(start, event, broker_id, by_controller=line.is_controller)
            case RoleStarted():
                self._histories.role_started(start, event, broker_id)
            case Reassigned():
                self._histories.reassigned(event)
            case LeaderElected():
                self._histories.leader_elected(start, event)
            case PartitionMoved():
                self._histories.moved(start, event)
            case MoveFailed():
                self._histories.move_failed(start, event)
            case PartitionDeleted():
                self._histories.deleted(event)
            case PartitionsForgotten():
                self._histories.forgotten(start, event)
            case UncleanlyElected():
                self._histories.uncleanly_elected(start, event)
            case RequestSent():
                self._requests.request_sent(start, event, broker_id)
                self._clocks.request_sent(start, event, broker_id)
            case PartitionSent():
                self._requests.partition_sent(start, event)
            case OldController():
                self._controllers.request_refused(start, event, broker_id)
            case ReplicasOffline():
                names = ", ".join(map(str, event.partitions))
                count = self._count_offline(event.broker_id, event.partitions)
                self.book.note(Check.OFFLINE_LOG_DIR, start, f"broker {event.broker_id}: {names}", count=count)
            case Refused():
                self._refused(start, broker_id, event)
            case PartitionHandled() if broker_id is not None:
                self._requests.partition_handled(start, event, broker_id)
            case RequestHandled() if broker_id is not None:
                self._requests.request_handled(start, event, broker_id)
                self._clocks.request_handled(start, event, broker_id)
            case _:
                return

    def _refused(self, start: bytes, broker_id: int | None, event: Refused) -> None:
        check, reason = _REFUSALS[event.reason]
        # A broker says it again with every request about the partition.
        count = self._count_offline(broker_id, (event.partition,)) if check is Check.OFFLINE_LOG_DIR else 1
        self.book.note(check, start, f"{event.partition}: broker {broker_id} {reason}", count=count)

    def _count_offline(self, broker_id: int | None, partitions: Iterable[TopicPartition]) -> int:
        """Return how many of these replicas were not known to be in a failed log dir."""
        before = len(self._offline_replicas)
        self._offline_replicas.update((broker_id, partition) for partition in partitions)
        return len(self._offline_replicas) - before


_HANDOVER = timedelta(seconds=1)
"""How long lines of the old controller may follow those of the new one: threads end, and clocks differ a little."""


class _Overlap(NamedTuple):
    """A controller wrote after another one had begun, by the times in their logs."""

    old_id: int
    new_id: int
    since: bytes
    late_s: float
    """By how many seconds, rounded up, the handover had taken too long by then."""


@dataclass(slots=True)
class _LateLines:
    """Lines that are judged together, counted: there may be millions."""

    first_start: bytes
    last_start: bytes
    example: str
    count: int = 0


class ControllerTracking:
    """Follows the controllers.

    Whether one that was replaced went on is judged at the end: its clock may only have been ahead of the next one's.
    """

    def __init__(self, book: FindingBook) -> None:
        self._book = book
        self._late: dict[_Overlap | str, _LateLines] = {}
        """By overlap; the refusals of brokers, which are certain, by their text."""
        self._ids: dict[int, int] = {}
        self._latest_epoch = -1
        self._latest_since = b""

    def controller_line(self, start: bytes, broker_id: int, controller_epoch: int) -> None:
        known = self._ids.setdefault(controller_epoch, broker_id)
        if known != broker_id:
            example = f"brokers {known} and {broker_id} both with controller epoch {controller_epoch}"
            self._book.note(Check.TWO_CONTROLLERS, start, example)
        if controller_epoch > self._latest_epoch:
            if self._latest_epoch >= 0:
                before = self._ids[self._latest_epoch]
                example = f"broker {broker_id} with controller epoch {controller_epoch}, after broker {before}"
                self._book.note(Check.CONTROLLER_CHANGES, start, example)
            self._latest_epoch, self._latest_since = controller_epoch, start
        elif controller_epoch < self._latest_epoch and start > shifted(self._latest_since, _HANDOVER):
            example = (
                f"broker {broker_id} wrote as controller with epoch {controller_epoch}, "
                f"while broker {self._ids[self._latest_epoch]} had {self._latest_epoch}"
            )
            now, since = moment_of(start), moment_of(self._latest_since)
            late_s = math.inf if now is None or since is None else math.ceil((now - since - _HANDOVER).total_seconds())
            overlap = _Overlap(broker_id, self._ids[self._latest_epoch], self._latest_since, late_s)
            self._count(overlap, start, example)

    def request_refused(self, start: bytes, event: OldController, broker_id: int | None) -> None:
        """A broker turned a controller's request away."""
        controller = "a controller" if event.controller_id is None else f"controller {event.controller_id}"
        example = (
            f"broker {broker_id} turned {controller} away: its epoch {event.controller_epoch} is older than "
            f"{event.latest_epoch}"
        )
        self._count(example, start, example)

    def _count(self, key: _Overlap | str, start: bytes, example: str) -> None:
        lines = self._late.setdefault(key, _LateLines(start, start, example))
        lines.last_start = start
        lines.count += 1

    def finish(self, ahead_s: Callable[[int | None, int | None], int]) -> None:
        """The logs end: note who went on as controller after another one had begun.

        ``ahead_s`` tells how far the clock of one broker is behind that of another.
        """
        for late, lines in self._late.items():
            if isinstance(late, _Overlap):
                ahead = ahead_s(late.new_id, late.old_id)
                if late.late_s <= (ahead + 1 if ahead else 0):
                    continue
            self._book.note(Check.STALE_CONTROLLER, lines.first_start, lines.example, count=lines.count)
            self._book.note(Check.STALE_CONTROLLER, lines.last_start, lines.example, count=0)


# Follows the controller's requests from its own log into the brokers' logs, and notes those that never arrived.
#
# If the controller logs each partition (TRACE, the default until 2.5) each is looked for. Since 2.6 the default is a
# summary per request: those are matched in order, by controller and number of partitions, because they carry no
# number of their own. A broker handles its requests in order, so a handled request replaces all before it: the
# controller sends the whole state to a broker that registers again.

_GRACE = timedelta(seconds=5)
"""A request sent this shortly before all logs end may still have been in flight; clocks may differ by as much."""
_UNMATCHED_MAX = 1000

_Way = tuple[RequestKind, int]
"""A kind of request and the broker it goes to."""


@dataclass(frozen=True, slots=True)
class _Request:
    start: bytes
    controller_id: int | None
    partition_count: int


class RequestTracking:
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
        for way, misses in sorted(missing.items()):
            misses.sort()
            names = first_few((partition for _, partition in misses))
            self._note_missed(way, misses[0][0], misses[-1][0], f"{way[0]} to broker {way[1]} of {names}", len(misses))
        for way, waiting in sorted(self._waiting.items()):
            for request in waiting if way not in self._ways_with_partitions else ():
                if request.start < self._last_handled_by_broker.get(way[1], b""):
                    self._book.note(Check.OVERTAKEN_REQUESTS, request.start, _request_text(way, request))
                elif request.start < horizon:
                    self._note_missed(way, request.start, request.start, _request_text(way, request), 1)

    def _note_missed(self, way: _Way, first: bytes, last: bytes, change: str, count: int) -> None:
        broker_id = way[1]
        ends = self._last_by_broker.get(broker_id)
        if ends is None:
            self._book.note(Check.LOGS_NOT_GIVEN, first, change, count=count)
            return
        why = "its log goes on without it" if ends > last else f"its log ends at {time_text(ends)}"
        self._book.note(Check.MISSED_CHANGES, first, f"{change}; {why}", count=count)


def _request_text(way: _Way, request: _Request) -> str:
    return f"{way[0]} to broker {way[1]} for {counted(request.partition_count, 'partition')}"


_COMPARED_MAX = 200
_EVIDENCE_MIN = 3


class ClockTracking:
    """Compares the clocks of brokers with their controller's, by when requests were sent and handled.

    Requests have no number that both logs show, so each is compared with all of its kind and size: if a broker's log
    fits the controller's only when moved by a fixed time, this is how far the clocks are apart. Logs have these lines
    since 2.6.
    """

    def __init__(self, book: FindingBook) -> None:
        self._book = book
        self._sent: dict[tuple[int, int], deque[_Compared]] = {}
        self._handled: dict[tuple[int, int], deque[_Compared]] = {}

    def request_sent(self, start: bytes, event: RequestSent, controller_id: int | None) -> None:
        """A controller's summary of a request."""
        if controller_id is not None and controller_id != event.broker_id:
            sent = self._sent.setdefault((controller_id, event.broker_id), deque(maxlen=_COMPARED_MAX))
            sent.append((start, (event.request, event.partition_count)))

    def request_handled(self, start: bytes, event: RequestHandled, broker_id: int) -> None:
        """A broker's summary of a request."""
        if event.controller_id != broker_id:
            handled = self._handled.setdefault((event.controller_id, broker_id), deque(maxlen=_COMPARED_MAX))
            handled.append((start, (event.request, event.partition_count)))

    def finish(self) -> dict[tuple[int, int], int]:
        """The logs end: note whose clocks are apart; return how far, by controller and broker."""
        apart_s: dict[tuple[int, int], int] = {}
        for (controller_id, broker_id), handled in sorted(self._handled.items()):
            steady = _steady_delay_s(self._sent.get((controller_id, broker_id), ()), handled)
            if steady is not None:
                delay_s, count = steady
                apart_s[controller_id, broker_id] = delay_s
                example = (
                    f"broker {broker_id}'s log is {abs(delay_s)} s {'ahead of' if delay_s > 0 else 'behind'} that of "
                    f"broker {controller_id}, the controller, by requests on {count} occasions"
                )
                self._book.note(Check.CLOCKS_APART, handled[0][0], example, gravity=abs(delay_s))
        return apart_s


def _ahead_s(apart_s: Mapping[tuple[int, int], int], first: int | None, last: int | None) -> int:
    """Return by how many seconds the clock of ``last`` is ahead of that of ``first``, as far as is known.

    ``apart_s`` is by how much a broker's log is ahead of that of a controller, by controller and broker.
    """
    for controller in sorted({controller for controller, _ in apart_s}):
        if (controller, first) in apart_s or (controller, last) in apart_s:
            return _ahead_of(apart_s, controller, last) - _ahead_of(apart_s, controller, first)
    return 0


def _ahead_of(apart_s: Mapping[tuple[int, int], int], controller: int, broker_id: int | None) -> int:
    return 0 if broker_id is None else apart_s.get((controller, broker_id), 0)


_Sort = tuple[RequestKind, int]
"""What identifies a request: its kind and how many partitions it has."""
_Compared = tuple[bytes, _Sort]
"""When a request was sent or handled, and its sort."""


def _steady_delay_s(sent: Iterable[_Compared], handled: Iterable[_Compared]) -> tuple[int, int] | None:
    """Return after how many seconds requests were handled, and how often; None if clocks may well agree.

    A restart brings several requests at once: what comes together counts once.
    """
    sent_at: dict[_Sort, list[float]] = {}
    for start, sort in sent:
        if (at := _seconds_of(start)) is not None:
            sent_at.setdefault(sort, []).append(at)
    near: list[float] = []
    handled_at: list[float] = []
    by_delay: dict[int, list[float]] = {}
    for start, sort in handled:
        at = _seconds_of(start)
        if at is None or sort not in sent_at:
            continue
        handled_at.append(at)
        delays_s = {round(at - sent) for sent in sent_at[sort]}
        if any(abs(delay_s) <= _GRACE.total_seconds() for delay_s in delays_s):
            near.append(at)
        for delay_s in delays_s:
            by_delay.setdefault(delay_s, []).append(at)
    # Half of a delay's requests may be rounded to the next second.
    counts = {delay_s: _occasions([*times, *by_delay.get(delay_s + 1, ())]) for delay_s, times in by_delay.items()}
    delay_s, count = max(counts.items(), key=lambda item: (item[1], len(by_delay[item[0]])), default=(0, 0))
    return (delay_s, count) if count >= max(_EVIDENCE_MIN, _occasions(handled_at) / 2, _occasions(near) * 2) else None


def _occasions(times_s: Iterable[float]) -> int:
    ordered = sorted(times_s)
    return sum(1 for before, at in pairwise([-math.inf, *ordered]) if at - before > _GRACE.total_seconds())


def _seconds_of(start: bytes) -> float | None:
    moment = moment_of(start)
    return None if moment is None else moment.replace(tzinfo=UTC).timestamp()
