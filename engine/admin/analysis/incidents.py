"""Which events belong together: a broker or a disk fails, and leaders, ISRs and the controller follow. Pure.

An incident begins with what failed. It ends when that is back and every replica that left an ISR has returned. Each
event updates the incidents. Changes that came and went between two frames are not in them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from engine.admin.analysis.timeline import ISR_KINDS, brokers_in
from engine.admin.watch.events import Event, EventKind
from engine.common.model import TopicPartition

_FAILS = frozenset({EventKind.BROKER_DOWN, EventKind.BROKER_SILENT, EventKind.LOG_DIR_FAILED})
_RETURNS = frozenset({EventKind.BROKER_UP, EventKind.BROKER_ANSWERS, EventKind.LOG_DIR_BACK})
_LED = frozenset({EventKind.LEADER_CHANGED, EventKind.PARTITION_OFFLINE, EventKind.CONTROLLER_MOVED})
_OF_CLIENTS = frozenset({EventKind.PARTITION_OFFLINE, EventKind.LEADER_CHANGED})
"""What clients notice: graver than a replica that leaves an ISR."""
RUNS_MAX = 200
_NAMED_MAX = 5
_MOMENT_MS = 2_000
_MINUTE_MS = 60_000
_SETTINGS = frozenset({EventKind.TOPIC_CONFIG_CHANGED, EventKind.BROKER_CONFIG_CHANGED})
_TOLD_MAX = 3
INCIDENTS_MAX = 50
"""The oldest are forgotten first; their events are rows of their own then."""


@dataclass(slots=True)
class Effect:
    """Events of one kind in an incident."""

    count: int
    first_ms: int


@dataclass(slots=True)
class Incident:
    """What followed from one failure.

    Attributes:
        number: counts from 1.
        cause: what failed.
        effects: by kind, in the order in which each came first.
        new_leaders: how many partitions each broker took over.
        ended_ms: None: it goes on.
        out: replicas of the broker that left an ISR and have not returned.
    """

    number: int
    cause: Event
    broker: int
    effects: dict[EventKind, Effect] = field(default_factory=dict)
    new_leaders: Counter[int] = field(default_factory=Counter)
    ended_ms: int | None = None
    out: set[TopicPartition] = field(default_factory=set)
    fold_of_effects: int = field(init=False)
    """One object for all of its events: 20,000 numbers of their own would be as many blocks of memory."""
    _is_back: bool = False
    _leaderless: set[TopicPartition] = field(default_factory=set)
    """Partitions that it left without a leader: who leads them next follows from it."""

    def __post_init__(self) -> None:
        self.fold_of_effects = -self.number

    def lasted_s(self, now_ms: int) -> float:
        """Return how long it took, or how long it has gone on."""
        return max(0, (now_ms if self.ended_ms is None else self.ended_ms) - self.cause.at_ms) / 1000

    def takes(self, event: Event) -> bool:
        """Take an event if it follows from the failure; return whether it does."""
        broker, name = self.broker, event.topic_partition
        if event.kind in ISR_KINDS and name is not None:
            before, after = brokers_in(event.before), brokers_in(event.after)
            if broker in before - after:
                self.out.add(name)
            elif broker in after - before:
                self.out.discard(name)
            else:
                return False
        elif event.kind in _LED:
            if event.before != str(broker) and name not in self._leaderless:
                return False
            if name is not None:
                (self._leaderless.add if event.kind is EventKind.PARTITION_OFFLINE else self._leaderless.discard)(name)
            if event.kind is EventKind.LEADER_CHANGED and event.after.isdecimal():
                self.new_leaders[int(event.after)] += 1
        elif event.broker == broker and event.kind in _FAILS | _RETURNS:
            self._is_back = event.kind in _RETURNS
        elif self._frees(event):
            self._end_if_over(event.at_ms)
            return False
        else:
            return False
        effect = self.effects.setdefault(event.kind, Effect(0, event.at_ms))
        effect.count += 1
        self._end_if_over(event.at_ms)
        return True

    def _frees(self, event: Event) -> bool:
        """Forget replicas that never return because they were deleted or moved away; return whether there were any."""
        if event.kind is EventKind.TOPIC_DELETED:
            gone = {name for name in self.out if name.topic == event.topic}
        elif event.kind is EventKind.REASSIGNMENT_FINISHED and self.broker not in brokers_in(event.after):
            gone = {name for name in self.out if name == event.topic_partition}
        else:
            return False
        self.out -= gone
        return bool(gone)

    def _end_if_over(self, at_ms: int) -> None:
        if self._is_back and not self.out:
            self.ended_ms = at_ms


@dataclass(slots=True)
class Run:
    """Events of one kind that came at the same moment: one lost broker causes hundreds.

    Attributes:
        event: the first of them.
        count: how many there are.
        subjects: of the first few.
        reason: the one that they share; empty if they do not.
        is_alike: all changed from and to the same.
        fold: of all of them, as in ``Incidents.folds``.
        number: of the first, where they are counted.
    """

    event: Event
    count: int
    subjects: list[str]
    reason: str
    is_alike: bool = True
    fold: int = 0
    number: int = 0

    def take(self, event: Event) -> None:
        self.count += 1
        self.is_alike &= (event.before, event.after) == (self.event.before, self.event.after)
        if len(self.subjects) < _NAMED_MAX:
            self.subjects.append(event.subject)
        if event.reason != self.reason:
            self.reason = ""


class Runs:
    """The newest runs, the oldest first. Kept up with each event, so that a picture costs no more after an hour."""

    def __init__(self) -> None:
        self._by_moment: dict[tuple[int, EventKind, int], Run] = {}

    def __iter__(self) -> Iterator[Run]:
        return iter(self._by_moment.values())

    def take(self, event: Event, fold: int = 0, number: int = 0) -> Run:
        """Take what happened; return the run that it belongs to: of this fold, which ``Incidents`` explains."""
        key = event.at_ms, event.kind, fold
        if (run := self._by_moment.get(key)) is not None:
            run.take(event)
            return run
        run = self._by_moment[key] = Run(event, 1, [event.subject], event.reason, fold=fold, number=number)
        if len(self._by_moment) > RUNS_MAX:
            # What comes again and again must not push out that a broker failed.
            (often, _), *_ = Counter(kind for _, kind, _ in self._by_moment).most_common(1)
            del self._by_moment[next(moment for moment in self._by_moment if moment[1] is often)]
        return run


def runs_around(
    runs: Iterable[Run], events: Sequence[Event], since_ms: int, severity: Callable[[Event], int], setting: str = ""
) -> list[Run]:
    """Return the gravest of what happened in the moment in which something began, and how what failed came back.

    They are in the order of time.

    Args:
        events: everything that happened, oldest first.
        severity: 0 for the gravest. What fails is graver than all else, and after it what clients notice.
        setting: what began may be that settings were changed: return all changes of the minute before whose names hold
            this, those of a kind together, if there are any.
    """
    if setting:
        last = takewhile(lambda event: event.at_ms >= since_ms - _MINUTE_MS, reversed(events))
        changes: dict[EventKind, Run] = {}
        for event in reversed(
            [earlier for earlier in last if earlier.kind in _SETTINGS and setting in earlier.before + earlier.after]
        ):
            changes.setdefault(event.kind, Run(event, 0, [], event.reason)).take(event)
        if changes:
            return list(changes.values())
    every = list(runs)
    moments = [since_ms, *_goes_down(every, since_ms)]
    near = [run for run in every if any(abs(run.event.at_ms - at_ms) <= _MOMENT_MS for at_ms in moments)]
    near.sort(
        key=lambda run: (
            run.event.kind not in _FAILS, run.event.kind not in _OF_CLIENTS, severity(run.event), run.event.at_ms,
        )
    )  # fmt: skip
    failed = {run.event.broker: run.event.at_ms for run in near if run.event.kind in _FAILS}
    back = [
        run for run in every
        if run.event.kind in _RETURNS and run not in near
        and run.event.at_ms > failed.get(run.event.broker, run.event.at_ms)
    ]  # fmt: skip
    return sorted([*near[: _TOLD_MAX + len(moments) - 1], *back[-1:]], key=lambda run: run.event.at_ms)


def _goes_down(runs: Sequence[Run], since_ms: int) -> list[int]:
    """Return when a broker that did not answer from then on lost its session: what follows from that comes later."""
    silent: set[int | None] = set()
    for run in sorted(runs, key=lambda run: run.event.at_ms):
        event = run.event
        if event.kind is EventKind.BROKER_SILENT and abs(event.at_ms - since_ms) <= _MOMENT_MS:
            silent.add(event.broker)
        elif event.kind in _RETURNS:
            silent.discard(event.broker)
        elif event.kind is EventKind.BROKER_DOWN and event.broker in silent:
            return [event.at_ms]
    return []


class Incidents:
    """The incidents that follow from the events, the oldest first. Owned by the history.

    Attributes:
        folds: for each event that the history keeps, the number of the incident that it causes, minus the number of the
            incident that it follows from, or 0. Where several of one kind came at the same moment, the run of them.
        runs: the newest events, those of one kind, moment and fold together.
    """

    def __init__(self, events: Iterable[Event], events_max: int) -> None:
        self.folds: deque[int | Run] = deque(maxlen=events_max)
        self._all: dict[int, Incident] = {}
        self._open: dict[int, Incident] = {}
        """By broker."""
        self._count = 0
        self._taken = 0
        self.runs = Runs()
        self.take(events)

    def __getitem__(self, number: int) -> Incident:
        return self._all[number]

    def __contains__(self, number: int) -> bool:
        return number in self._all

    def take(self, events: Iterable[Event]) -> None:
        """Take what happened, oldest first."""
        for event in events:
            fold = self._fold(event)
            run = self.runs.take(event, fold, self._taken)
            if run.count == 2 and (back := self._taken - run.number) <= len(self.folds):
                self.folds[-back] = run
            self.folds.append(fold if run.count == 1 else run)
            self._taken += 1

    def _fold(self, event: Event) -> int:
        for incident in list(self._open.values()):
            is_taken = incident.takes(event)
            if incident.ended_ms is not None:
                del self._open[incident.broker]
            if is_taken:
                return incident.fold_of_effects
        if event.kind not in _FAILS or event.broker is None:
            return 0
        self._count += 1
        begun = Incident(self._count, event, event.broker)
        self._open[event.broker] = self._all[self._count] = begun
        if len(self._all) > INCIDENTS_MAX:
            del self._all[next(iter(self._all))]
        return self._count

    def around(self, broker: int) -> Incident | None:
        """Return a broker's incident that has not ended."""
        return self._open.get(broker)

    def behind(self, kind: EventKind, since_ms: int) -> Incident | None:
        """Return the newest incident with such an effect, or cause, during which something began."""
        for incident in reversed(self._all.values()):
            is_then = incident.cause.at_ms <= since_ms <= (incident.ended_ms or since_ms)
            if is_then and (kind in incident.effects or incident.cause.kind is kind):
                return incident
        return None
