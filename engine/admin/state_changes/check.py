"""Reads merged state-change logs and names what happened.

    check = StateChangeCheck()
    for batch in plan.merge(row_tag):
        check.feed(batch, clock)
    check.end_logs()
    await compare_with_cluster(check.states, reader, check.book)
    result = check.result()

It finds only what the logs show: since Kafka 2.6 they have, by default, no line for an ISR that a leader changed by
itself; that shows in the controller's next line about the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from engine.admin.state_changes.controller_tracking import ControllerTracking
from engine.admin.state_changes.findings import Check, Finding, FindingBook, Severity
from engine.admin.state_changes.merged_rows import Origin
from engine.admin.state_changes.merging import Batch
from engine.admin.state_changes.partition_history import PartitionHistories
from engine.admin.state_changes.request_tracking import RequestTracking
from engine.admin.state_changes.zones import UtcClock
from engine.common.model import TopicPartition
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
    Refusal,
    Refused,
    ReplicasOffline,
    RequestHandled,
    RequestSent,
    RoleStarted,
    StateSeen,
    UncleanlyElected,
)
from engine.kafka.formats.state_change_lines import StateChangeLine, parse_entry
from engine.kafka.formats.state_change_sentences import events_of
from engine.kafka.formats.state_change_states import PrintedState

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
        self._histories = PartitionHistories(self.book, window)
        self._requests = RequestTracking(self.book)
        self._controllers = ControllerTracking(self.book)
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
        """The logs end, and what is still open stays so. Call it once, after the last batch."""
        if self._last_start is not None:
            self._histories.finish(self._last_start)
            self._requests.finish(self._last_start)

    @property
    def states(self) -> dict[TopicPartition, PrintedState]:
        """The last state of every partition that was not deleted."""
        return {
            partition: history.state
            for partition, history in self._histories.by_partition.items()
            if history.state is not None and not history.is_deleted
        }

    def result(self) -> CheckResult:
        """Return what was found so far."""
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
                self._histories.state_seen(start, event, by_controller=line.is_controller)
            case RoleStarted():
                self._histories.role_started(start, event, broker_id)
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
            case PartitionSent():
                self._requests.partition_sent(start, event)
            case OldController():
                self._controllers.request_refused(start, event, broker_id)
            case ReplicasOffline():
                names = ", ".join(map(str, event.partitions))
                self.book.note(Check.OFFLINE_LOG_DIR, start, f"broker {event.broker_id}: {names}")
            case Refused():
                self._refused(start, broker_id, event)
            case PartitionHandled() if broker_id is not None:
                self._requests.partition_handled(start, event, broker_id)
            case RequestHandled() if broker_id is not None:
                self._requests.request_handled(start, event, broker_id)
            case _:
                return

    def _refused(self, start: bytes, broker_id: int | None, event: Refused) -> None:
        check, what = _REFUSALS[event.reason]
        self.book.note(check, start, f"{event.partition}: broker {broker_id} {what}")
