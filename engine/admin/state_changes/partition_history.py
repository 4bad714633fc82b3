"""The history of each partition according to the logs: leaders, ISRs, times without a leader.

Many lines repeat a state, and brokers log it later than the controller. So a state counts only if its leader epoch and
partition epoch (the znode's version) are newer. Old formats lack the partition epoch; in these, only what the
controller itself logs counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from engine.admin.state_changes.findings import Check, FindingBook
from engine.admin.state_changes.zones import moment_of
from engine.common.model import NO_LEADER, TopicPartition
from engine.kafka.formats.state_change_events import (
    LeaderElected,
    MoveFailed,
    PartitionDeleted,
    PartitionMoved,
    PartitionsForgotten,
    PrintedState,
    Reassigned,
    RoleStarted,
    StateSeen,
    UncleanlyElected,
)

_NEW, _ONLINE, _OFFLINE, _GONE = "New", "Online", "Offline", "NonExistent"
_MOMENT = timedelta(seconds=1)
"""When a leader dies the controller takes its partitions offline and online again, within this time."""
_DELETION = timedelta(seconds=5)
"""A deleted partition loses its leader, and brokers forget it, within this time, in either order."""
_CLOCKS_APART_MAX = timedelta(days=1)
"""By the clocks of two brokers, nothing that lies further apart than this and the window is compared."""


class Written(NamedTuple):
    """When a line was written, and by whose clock."""

    start: bytes
    broker_id: int | None


class _Across(NamedTuple):
    """Something that happened again, by the clocks of two brokers."""

    check: Check
    first_id: int | None
    last_id: int | None
    took_s: int


@dataclass(slots=True)
class _AcrossLines:
    """Lines that are judged together, counted."""

    first_start: bytes
    last_start: bytes
    example: Callable[[timedelta], str]
    count: int = 0


@dataclass(slots=True)
class PartitionHistory:
    """What is known about one partition. ``state`` is the newest; None from its creation until it has one."""

    state: PrintedState | None = None
    is_deleted: bool = False
    last_leader: int | None = None
    leaderless_since: bytes | None = None
    offline_since: bytes | None = None
    """The state machine took it offline, which usually lasts only a moment."""
    has_failed_election: bool = False
    """The controller said that it found no leader; for a deleted partition it does not."""
    may_be_deleted: bool = False
    """It lost its leader at about the time when brokers forgot partitions they did not name."""
    unclean_epoch: int | None = None
    changes: deque[tuple[Written, int, int]] = field(default_factory=lambda: deque(maxlen=3))
    left_isr: dict[int, Written] = field(default_factory=dict)
    targets: frozenset[int] | None = None
    """The replicas that the last reassignment leads to, if the controller's log names them."""
    removing: set[int] = field(default_factory=set)
    """Replicas that a reassignment is to remove, and that have not left yet."""
    handed_over: tuple[bytes, int | None] | None = None
    """When the controller last took the lead from a leader that was in sync, and who that was, if known."""

    def has_moved(self, start: bytes, broker_id: int) -> bool:
        """Whether a broker that leaves the ISR now is no longer a replica, rather than out of sync.

        No line names the assignment where a leader is removed and all others are in sync already: it hands over, and
        is removed at once.
        """
        if broker_id in self.removing or (self.targets is not None and broker_id not in self.targets):
            return True
        if self.handed_over is None or self.handed_over[1] not in (None, broker_id):
            return False
        return _between(self.handed_over[0], start) < _MOMENT


class PartitionHistories:
    """Follows all partitions, and notes what happens to them."""

    def __init__(self, book: FindingBook, window: timedelta) -> None:
        self._book = book
        self._window = window
        self._last_forgotten: bytes | None = None
        self._leaderless: set[TopicPartition] = set()
        self._across: dict[_Across, _AcrossLines] = {}
        self.by_partition: dict[TopicPartition, PartitionHistory] = {}

    def state_seen(self, start: bytes, event: StateSeen, broker_id: int | None, *, by_controller: bool) -> None:
        """A line of a broker prints a state."""
        history = self._of(event.partition)
        if _is_newer(history, event.state, by_controller=by_controller):
            written = Written(start, broker_id)
            self._advance(written, event.partition, history, event.state, event.moved_from or "")
            if event.state.leader == NO_LEADER:
                self._lost_leader(start, event.partition, history)

    def role_started(self, start: bytes, event: RoleStarted, broker_id: int | None) -> None:
        """A replica began to lead or follow; a leader reports its ISR."""
        if event.is_under_min_isr:
            isr = _ids(event.isr or ())
            self._book.note(Check.UNDER_MIN_ISR, start, f"{event.partition}: leader {broker_id} began with ISR {isr}")
        if event.is_leader and broker_id is not None and event.isr is not None:
            state = PrintedState(broker_id, event.leader_epoch, event.isr, event.partition_epoch)
            history = self._of(event.partition)
            if _is_newer(history, state, by_controller=False):
                self._advance(Written(start, broker_id), event.partition, history, state)

    def reassigned(self, event: Reassigned) -> None:
        """A reassignment continues. A replica that it adds counts as new, even if an earlier one removed it."""
        history = self._of(event.partition)
        if event.targets is not None:
            history.targets, history.removing = frozenset(event.targets), set()
        elif history.targets is not None:
            history.targets = history.targets.union(event.adding).difference(event.removing)
        history.removing = history.removing.union(event.removing).difference(event.adding)
        for broker_id in event.adding:
            history.left_isr.pop(broker_id, None)

    def leader_elected(self, start: bytes, event: LeaderElected) -> None:
        """The controller names only a leader."""
        if event.leader != NO_LEADER:
            self._online(start, event.partition, self._of(event.partition))

    def moved(self, start: bytes, event: PartitionMoved) -> None:
        """The controller's state machine made a transition."""
        history = self._of(event.partition)
        if event.after.startswith(_NEW):
            self.by_partition[event.partition] = PartitionHistory()
        elif event.after.startswith(_OFFLINE):
            history.offline_since = history.offline_since or start
        elif event.after.startswith(_ONLINE):
            self._online(start, event.partition, history)
        elif event.after.startswith(_GONE):
            self._delete(history)

    def move_failed(self, start: bytes, event: MoveFailed) -> None:
        """No leader was found, or the present one had to stay."""
        history = self._of(event.partition)
        example = f"{event.partition}: the controller could not take it from {event.before} to {event.after}"
        self._book.note(Check.FAILED_CHANGES, start, example)
        if event.after.startswith(_ONLINE) and not event.before.startswith(_ONLINE):
            history.has_failed_election = True
            self._lost_leader(start, event.partition, history)

    def deleted(self, event: PartitionDeleted) -> None:
        """A broker forgets the partition."""
        self._delete(self._of(event.partition))

    def forgotten(self, start: bytes, event: PartitionsForgotten) -> None:
        """A broker forgets partitions: those that have just lost their leader, or are about to."""
        self._last_forgotten = start
        for partition in self._leaderless:
            since = self.by_partition[partition].leaderless_since
            if since is not None and _between(since, start) <= _DELETION:
                self.by_partition[partition].may_be_deleted = True

    def uncleanly_elected(self, start: bytes, event: UncleanlyElected) -> None:
        """A leader says so itself."""
        history = self._of(event.partition)
        epoch = None if history.state is None else history.state.leader_epoch
        if history.unclean_epoch is None or history.unclean_epoch != epoch:
            self._book.note(Check.UNCLEAN_ELECTION, start, f"{event.partition}: its leader says so")
            history.unclean_epoch = epoch

    def finish(self, last_start: bytes, ahead_s: Callable[[int | None, int | None], int]) -> None:
        """The logs end: what has no leader now stays without one.

        ``ahead_s`` tells how far the clock of one broker is behind that of another.
        """
        for key, lines in self._across.items():
            took = timedelta(seconds=key.took_s - ahead_s(key.first_id, key.last_id))
            if took <= self._window:
                example = lines.example(max(took, timedelta(0)))
                self._book.note(key.check, lines.first_start, example, count=lines.count)
                self._book.note(key.check, lines.last_start, example, count=0)
        for partition, history in sorted(self.by_partition.items()):
            if history.may_be_deleted and not history.has_failed_election and history.offline_since is None:
                history.is_deleted = True
            since = history.leaderless_since
            if since is None and history.offline_since is not None:
                since = history.offline_since if _between(history.offline_since, last_start) >= _MOMENT else None
            if since is not None and not history.is_deleted:
                isr = "" if history.state is None else f", ISR {_ids(history.state.isr)}"
                self._book.note(Check.LEFT_OFFLINE, since, f"{partition}: without a leader since then{isr}")

    def _of(self, partition: TopicPartition) -> PartitionHistory:
        history = self.by_partition.get(partition)
        if history is None:
            history = self.by_partition[partition] = PartitionHistory()
        return history

    def _advance(
        self,
        written: Written,
        partition: TopicPartition,
        history: PartitionHistory,
        state: PrintedState,
        moved_from: str = "",
    ) -> None:
        before, start = history.state, written.start
        if state.partition_epoch is None and before is not None and before.leader_epoch == state.leader_epoch:
            state = state._replace(partition_epoch=before.partition_epoch)
        if before is not None:
            self._note_gap(start, partition, before, state)
            self._note_isr(written, partition, history, before, state)
        # Only a partition without a leader can get one that is not in sync.
        if not moved_from.startswith(_ONLINE) and history.unclean_epoch != state.leader_epoch:
            self._note_unclean(start, partition, history, before, state)
        if state.leader != NO_LEADER:
            self._online(start, partition, history)
            if history.last_leader is not None and history.last_leader != state.leader:
                self._note_leader(written, partition, history, history.last_leader, state)
            elif history.last_leader is None and moved_from.startswith((_ONLINE, _OFFLINE)):
                example = f"{partition}: ? → {state.leader} (leader epoch {state.leader_epoch})"
                self._book.note(Check.LEADER_CHANGES, start, example)
            history.last_leader = state.leader
        if moved_from.startswith(_ONLINE):
            former = None if before is None else before.leader
            kept = former != state.leader and (former is None or former in state.isr)
            history.handed_over = (start, former) if kept else None
        history.state = state

    def _note_unclean(
        self,
        start: bytes,
        partition: TopicPartition,
        history: PartitionHistory,
        before: PrintedState | None,
        state: PrintedState,
    ) -> None:
        """Note a leader that was not in sync when it was elected: its ISR is only itself, and it was in no other."""
        elected = f"{partition}: broker {state.leader} was elected (leader epoch {state.leader_epoch})"
        if before is None or before.leader_epoch == state.leader_epoch:
            if state.is_recovering:
                example = f"{elected}; the logs do not show the state before"
                self._note_election(Check.UNCLEAN_ELECTION, start, example, history, state)
            return
        was_in_sync = state.leader in before.isr or not before.isr
        example = f"{elected}; ISR was {_ids(before.isr)}"
        if state.is_recovering or (not was_in_sync and state.isr == (state.leader,) and _follows(before, state)):
            self._note_election(Check.UNCLEAN_ELECTION, start, example, history, state)
        elif not was_in_sync and state.isr == (state.leader,) and state.is_recovering is None:
            self._note_election(Check.POSSIBLY_UNCLEAN_ELECTION, start, example, history, state)

    def _note_election(
        self, check: Check, start: bytes, example: str, history: PartitionHistory, state: PrintedState
    ) -> None:
        self._book.note(check, start, example)
        history.unclean_epoch = state.leader_epoch

    def _note_leader(
        self, written: Written, partition: TopicPartition, history: PartitionHistory, before: int, state: PrintedState
    ) -> None:
        example = f"{partition}: {before} → {state.leader} (leader epoch {state.leader_epoch})"
        self._book.note(Check.LEADER_CHANGES, written.start, example)
        history.changes.append((written, before, state.leader))
        if len(history.changes) < 3:
            return
        (first, a, b), (_, c, d), (_, e, f) = history.changes
        if (a, b) == (d, c) == (e, f):
            way = f"{partition}: {a} → {b} → {d} → {f} in"
            self._note_again(Check.LEADER_PING_PONG, first, written, lambda took: f"{way} {_seconds(took)}")

    def _note_isr(
        self,
        written: Written,
        partition: TopicPartition,
        history: PartitionHistory,
        before: PrintedState,
        state: PrintedState,
    ) -> None:
        start = written.start
        left, joined = set(before.isr) - set(state.isr), set(state.isr) - set(before.isr)
        change = f"{partition}: ISR {_ids(before.isr)} → {_ids(state.isr)}"
        moved = {broker_id for broker_id in left if history.has_moved(start, broker_id)}
        history.removing -= moved
        for broker_id in sorted(moved):
            self._book.note(Check.REPLICAS_MOVED, start, f"{change}: broker {broker_id} is no longer a replica")
            history.left_isr.pop(broker_id, None)
        left -= moved
        if left:
            self._book.note(Check.ISR_SHRINKS, start, change)
        if joined:
            self._book.note(Check.ISR_EXPANDS, start, change)
        for broker_id in sorted(left):
            last = history.left_isr.get(broker_id)
            if last is not None:
                again = f"{partition}: broker {broker_id} left the ISR again,"
                self._note_again(Check.ISR_FLAPPING, last, written, _after_the_last_time(again))
            history.left_isr[broker_id] = written

    def _note_again(self, check: Check, first: Written, last: Written, example: Callable[[timedelta], str]) -> None:
        """Note what happens again within the window; by the clocks of two brokers that is known at the end."""
        took = _between(first.start, last.start)
        if first.broker_id == last.broker_id:
            if took <= self._window:
                self._book.note(check, last.start, example(took))
            return
        if took > self._window + _CLOCKS_APART_MAX:
            return
        key = _Across(check, first.broker_id, last.broker_id, round(took.total_seconds()))
        lines = self._across.setdefault(key, _AcrossLines(last.start, last.start, example))
        lines.last_start = last.start
        lines.count += 1

    def _note_gap(self, start: bytes, partition: TopicPartition, before: PrintedState, state: PrintedState) -> None:
        """Note how often the state was written in between without a line."""
        if before.partition_epoch is None or state.partition_epoch is None:
            return
        unlogged = state.partition_epoch - before.partition_epoch - 1
        if unlogged > 0:
            example = f"{partition}: {unlogged} between ISR {_ids(before.isr)} and {_ids(state.isr)}"
            self._book.note(Check.UNLOGGED_CHANGES, start, example, count=unlogged)

    def _online(self, start: bytes, partition: TopicPartition, history: PartitionHistory) -> None:
        since = history.leaderless_since or history.offline_since
        if since is not None and _between(since, start) >= _MOMENT:
            took = _between(since, start)
            example = f"{partition}: without a leader for {_seconds(took)}"
            self._book.note(Check.OFFLINE_PARTITIONS, since, example, gravity=took.total_seconds())
        history.leaderless_since = history.offline_since = None
        history.has_failed_election = history.may_be_deleted = False
        self._leaderless.discard(partition)

    def _lost_leader(self, start: bytes, partition: TopicPartition, history: PartitionHistory) -> None:
        history.leaderless_since = history.leaderless_since or history.offline_since or start
        self._leaderless.add(partition)
        if self._last_forgotten is not None and _between(self._last_forgotten, start) <= _DELETION:
            history.may_be_deleted = True

    def _delete(self, history: PartitionHistory) -> None:
        history.is_deleted = True
        history.leaderless_since = history.offline_since = None


def _is_newer(history: PartitionHistory, state: PrintedState, *, by_controller: bool) -> bool:
    known = history.state
    if history.is_deleted:
        return False
    if known is None or state.leader_epoch != known.leader_epoch:
        return known is None or state.leader_epoch > known.leader_epoch
    if state.partition_epoch is None or known.partition_epoch is None:
        return by_controller and (state.leader, state.isr) != (known.leader, known.isr)
    return state.partition_epoch > known.partition_epoch


def _follows(before: PrintedState, state: PrintedState) -> bool:
    """Whether nothing was written between the two."""
    if before.partition_epoch is None or state.partition_epoch is None:
        return False
    return state.partition_epoch == before.partition_epoch + 1


def _after_the_last_time(again: str) -> Callable[[timedelta], str]:
    return lambda took: f"{again} {_seconds(took)} after the last time"


def _between(first: bytes, second: bytes) -> timedelta:
    low, high = moment_of(first), moment_of(second)
    return timedelta(0) if low is None or high is None else high - low


def _seconds(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    return f"{seconds:.3g} s" if seconds < 100 else f"{round(seconds / 60)} min"


def _ids(ids: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, ids)) + "]"
