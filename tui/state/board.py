"""What the screens count: figures of a frame by topic and by broker, and what changes from frame to frame. Pure.

Topics that did not change are the same objects from frame to frame, so their figures are kept. The cost of a frame of
50,000 partitions depends only on what has changed in it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, overload

from engine.admin.analysis.clocks_and_epochs import Finding, SanityCheck
from engine.admin.analysis.disks import DirTrend, dir_trends, note_filling
from engine.admin.analysis.history import History
from engine.admin.analysis.incidents import Incident, Run
from engine.admin.analysis.moves import MovesBoard, moves_board
from engine.admin.analysis.rates import Rates
from engine.admin.analysis.standstills import Standstills
from engine.admin.analysis.tallies import Tallies, Tally
from engine.admin.analysis.throttles import ThrottleAdvice, throttle_advice
from engine.admin.cluster.rights import Right
from engine.admin.health.report import Check, used_percent
from engine.admin.lag.verdicts import LagStatus
from engine.admin.log_dirs.describing import LogDir
from engine.admin.reassignment.journal import UnfinishedPlan
from engine.admin.watch.events import Event
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.packed_logs import ReplicaLogs
from engine.common.acl import AclOperation, ResourceType
from engine.common.model import BrokerInfo, TopicPartition, address_text
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from tui.state.table_model import Picked

T = TypeVar("T")

HISTORY_MAX = 600
_NO_ANSWER = "no answer"
_GAP_MS = 60_000
"""Frames come at least every ten seconds: a longer gap is a jump in a recording, or a machine that slept."""
AWAITS_LEADERS = "leaders awaited"
NO_FRAME = Frame(0, 0)
"""What is known before the first frame: nothing."""


class PartitionItem(NamedTuple):
    """One partition with the topic it belongs to."""

    topic: TopicSnapshot
    partition: PartitionSnapshot

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.partition.partition)


class NumberedEvents(Sequence[tuple[int, Event]]):
    """The events of a board, the newest first, each with a number of its own.

    A list of them would be 4 MB of small values with each frame, between which lasting ones would find a place. This
    looks into the board: what comes later is not in it, and what the board forgets meanwhile keeps only its number.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._end = board.event_count
        self._first = self._end - len(board.events)
        self._newest = board.events[-1] if board.events else None

    def __len__(self) -> int:
        return self._end - self._first

    @overload
    def __getitem__(self, index: int) -> tuple[int, Event]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[int, Event]]: ...

    def __getitem__(self, index: int | slice) -> tuple[int, Event] | list[tuple[int, Event]]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        number = self._end - 1 - index % len(self)
        events = self._board.events
        place = number - self._board.event_count + len(events)
        event = events[place] if 0 <= place < len(events) else self._newest
        assert event is not None
        return number, event

    def __iter__(self) -> Iterator[tuple[int, Event]]:
        if self._board.event_count != self._end or len(self._board.events) != len(self):
            return (self[index] for index in range(len(self)))
        return zip(range(self._end - 1, self._first - 1, -1), reversed(self._board.events), strict=True)


class Since(NamedTuple):
    """When something began; ``is_least``: it was so at the first look, so it began before."""

    at_ms: int
    is_least: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment, as charts show it; None is a gap."""

    at_ms: int
    in_per_s: float | None
    under_replicated: int | None
    lag: int | None
    in_by_broker: dict[int, float] = field(default_factory=dict)


class Board:
    """The newest frame with its figures, its past, and all that has happened. Owned by the dashboard."""

    def __init__(self) -> None:
        self.frame = NO_FRAME
        self.history = History()
        self.rates = Rates()
        self.standstills = Standstills()
        self.findings: list[Finding] = []
        self.stopped_plan: UnfinishedPlan | None = None
        """The newest plan of this cluster, in the working folder, that was begun and is not being carried out now."""
        self.producer_quota: float | None = None
        """How many bytes a second each client id may send to a broker, as last read while a disk was filling up."""
        self._has_read_quota = False
        self._quota_changed_ms: int | None = None
        self._tallies = Tallies()
        self._sanity = SanityCheck()
        self._replicas: Counter[int] | None = None
        self.samples: deque[Sample] = deque(maxlen=HISTORY_MAX)
        self.since: dict[Hashable, Since] = {}
        """When each trouble began: checks of health by themselves, ("broker", id) and ("group", name)."""
        self.hung: frozenset[int] = frozenset()
        """Brokers that are down, and gave no answer while they were registered: their processes may still be there."""
        self.filled: dict[int, DirTrend] = {}
        """By broker, the most urgent log dir that was about to be full when its disks were last read."""
        self.seen_at: dict[int, str] = {}
        """By broker, the address at which it was registered last."""
        self._unanswering: frozenset[int] = frozenset()
        self._has_judged: set[Hashable] = set()
        """Whether cluster and groups were judged before: what is wrong at the first look began before it."""
        self.event_count = 0
        """How many events there were, with those that were forgotten."""
        self._replicas_of: dict[str, tuple[TopicSnapshot, Counter[int]]] = {}
        self._items: dict[str, tuple[TopicSnapshot, list[PartitionItem]]] = {}
        self._topic_bytes: dict[str, int | None] = {}
        self._dir_trends: list[DirTrend] | None = None
        self._moves: MovesBoard | None = None
        self._throttles: list[ThrottleAdvice] | None = None
        self._all_items: list[PartitionItem] | None = None
        self._made: dict[Callable[[Board], Any], Any] = {}

    def turns(self, frame: Frame) -> Iterator[None]:
        """Count a frame in turns of an event loop; after the last one ``take`` has little to do."""
        yield from self._tallies.turns(frame)
        yield from self._sanity.turns(frame)
        yield from self.history.turns(frame)

    def take(self, frame: Frame) -> None:
        """Take a newer frame; a frame from another time (a seek in a recording) starts the past afresh."""
        if frame.at_ms < self.frame.at_ms:
            self.samples.clear()
            self.since.clear()
            self.hung = self._unanswering = frozenset()
            self.filled.clear()
            self._quota_changed_ms = None
            self._has_judged.clear()
        elif frame.at_ms - self.frame.at_ms > _GAP_MS:
            # What is wrong now began in between, nobody saw when.
            self._has_judged.clear()
        is_same_cluster = frame.cluster is self.frame.cluster
        before = self.topics
        self._made.clear()
        self.frame = frame = self.standstills.take(frame)
        if not is_same_cluster:
            self._replicas = None
            seen = ((broker.id, broker.endpoints[0]) for broker in self.brokers if broker.endpoints)
            self.seen_at |= {id_: address_text(endpoint.host, endpoint.port) for id_, endpoint in seen}
        if self.topics is not before:
            self._all_items = None
        if self.history.take(frame):
            self.event_count += len(frame.events)
        self._dir_trends = self._moves = self._throttles = None
        self.findings = self._sanity.check(frame)
        self._note_troubles(frame)
        self._topic_bytes = {}
        self.rates.take(frame)
        under_replicated = self.total.under_replicated if self.has_metadata else None
        lag = None if self.has_unknown_lag else self.lag
        rates = self.rates
        self.samples.append(Sample(frame.at_ms, rates.in_per_s, under_replicated, lag, rates.in_by_broker))

    def _note_troubles(self, frame: Frame) -> None:
        """Note what is wrong for the first time, and forget what is not wrong any more."""
        self._note_hung(frame)
        note_filling(self.filled, self.dir_trends, self.live)
        wrong: dict[Hashable, Hashable] = {}
        if frame.health is not None:
            wrong |= {reason.check: "cluster" for reason in frame.health.reasons}
            wrong |= {("broker", id_): "cluster" for id_ in (*self.silent, *(set(self.broker_ids) - self.live))}
        if self.awaits_leaders:
            wrong[AWAITS_LEADERS] = "cluster"
        wrong |= {("log dir", trend.broker, trend.log_dir): "cluster" for trend in self.filling}
        readers: dict[Hashable, LagStatus] = {("group", group.name): group.lag.status for group in frame.groups}
        readers |= {("query", query.job.path): query.job.status for query in frame.queries}
        wrong |= {key: key for key, status in readers.items() if status.is_trouble}
        self.since = {
            key: self.since.get(key) or Since(frame.at_ms, what not in self._has_judged) for key, what in wrong.items()
        }
        if frame.health is not None:
            self._has_judged.add("cluster")
        # The first verdict on a reader takes several looks, and says nothing of when it began.
        self._has_judged &= {"cluster", *readers}
        self._has_judged |= {key for key, status in readers.items() if status is not LagStatus.UNKNOWN}

    def _note_hung(self, frame: Frame) -> None:
        """Note how brokers failed to answer, for when their sessions end: a refused connection is no silence."""
        self.hung = (self.hung | self._unanswering) - self.live
        self._unanswering = frozenset(id_ for id_ in self.silent if _NO_ANSWER in frame.words[id_].trouble)

    def note_quota(self, quota: float | None) -> None:
        """Take the producers' quota as it was just read; what was foretold before it changed counts no more.

        The first one read may have been in force for long: nobody saw it change.
        """
        if quota != self.producer_quota and self._has_read_quota:
            self._quota_changed_ms, self._dir_trends = self.frame.at_ms, None
        self.producer_quota, self._has_read_quota = quota, True
        self._made.clear()

    def note_plan(self, plan: UnfinishedPlan | None) -> None:
        """Take the newest plan that was begun and is not being carried out now."""
        self.stopped_plan = plan
        self._made.clear()

    def once(self, make: Callable[[Board], T]) -> T:
        """Return what ``make`` makes of the board; it is made anew once something else is known."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    # What is known

    @property
    def has_metadata(self) -> bool:
        """Whether topics and partitions were ever read."""
        return self.frame.cluster is not None and self.frame.stage(Stage.METADATA).read_at_ms is not None

    @property
    def was_read_whole(self) -> bool:
        """Whether every stage was read once, or says why it was not."""
        stages = self.frame.stages.values()
        return self.has_metadata and all(status.read_at_ms is not None or status.error for status in stages)

    def lacks(self, operation: AclOperation, kind: ResourceType, name: str = "") -> bool:
        """Whether a right is missing, so that what it is needed for is hidden."""
        return Right(operation, kind, name) in self.frame.denied

    @property
    def hides_log_dirs(self) -> bool:
        """Whether sizes are hidden."""
        return self.lacks(AclOperation.DESCRIBE, ResourceType.CLUSTER)

    @property
    def reads_metrics(self) -> bool:
        """Whether anybody reads what brokers themselves measure."""
        return self.frame.stage(Stage.METRICS).source is not None

    @property
    def reports_figures(self) -> bool:
        """Whether a broker reports its own figures, or may once it is asked."""
        figures = self.frame.figures.values()
        return self.reads_metrics and (not figures or any(measured.told_by is not None for measured in figures))

    def untold(self, topic: TopicSnapshot) -> list[int]:
        """Return the leaders of a topic that do not report its traffic."""
        figures = self.frame.figures
        if all(figure.told_by is not None for figure in figures.values()):
            return []
        silent = {broker for broker, measured in figures.items() if measured.told_by is None}
        return sorted(silent & {partition.leader for partition in topic.partitions})

    @property
    def dir_trends(self) -> list[DirTrend]:
        """All log dirs, the most urgent first."""
        if self._dir_trends is None:
            self._dir_trends = dir_trends(self.frame, self.history, self._quota_changed_ms)
        return self._dir_trends

    @property
    def moves(self) -> MovesBoard:
        if self._moves is None:
            self._moves = moves_board(self.frame, self.history)
        return self._moves

    @property
    def throttles(self) -> list[ThrottleAdvice]:
        """The throttles that copies go through, those that never let them end first."""
        if self._throttles is None:
            self._throttles = throttle_advice(self.frame, self.moves)
        return self._throttles

    @property
    def filling(self) -> list[DirTrend]:
        """The log dirs in which an operator has to make room."""
        return [trend for trend in self.dir_trends if trend.is_filling]

    @property
    def topics(self) -> tuple[TopicSnapshot, ...]:
        return () if self.frame.cluster is None else self.frame.cluster.topics

    @property
    def brokers(self) -> tuple[BrokerInfo, ...]:
        return () if self.frame.cluster is None else self.frame.cluster.brokers

    @property
    def live(self) -> frozenset[int]:
        return frozenset(broker.id for broker in self.brokers)

    @property
    def silent(self) -> frozenset[int]:
        """Brokers that are registered and do not answer."""
        words = self.frame.words
        return frozenset(broker for broker in self.live if broker in words and words[broker].trouble)

    @property
    def broker_ids(self) -> list[int]:
        """All brokers, including those that are down and hold replicas."""
        return sorted(self.live | set(self.replicas))

    def topic_figures(self, topic: TopicSnapshot) -> Tally:
        return self._tallies.of_topic(topic, self.frame.min_isr.get(topic.name))

    @property
    def total(self) -> Tally:
        return self._tallies.of_frame(self.frame)

    @property
    def awaits_leaders(self) -> int:
        """How many partitions have no leader for a moment: a controller is about to elect one of those in sync."""
        health = self.frame.health
        reasons = () if health is None else health.reasons
        offline = sum(reason.count for reason in reasons if reason.check is Check.OFFLINE_PARTITIONS)
        return 0 if health is None else max(0, self.total.leaderless - offline)

    @property
    def replicas(self) -> Counter[int]:
        """How many replicas each broker holds, or should."""
        if self._replicas is None:
            names = {topic.name for topic in self.topics}
            self._replicas_of = {name: kept for name, kept in self._replicas_of.items() if name in names}
            self._replicas = Counter()
            for topic in self.topics:
                for broker, count in self._topic_replicas(topic).items():
                    self._replicas[broker] += count
        return self._replicas

    def _topic_replicas(self, topic: TopicSnapshot) -> Counter[int]:
        kept = self._replicas_of.get(topic.name)
        if kept is not None and kept[0] is topic:
            return kept[1]
        replicas = Counter(broker for partition in topic.partitions for broker in partition.replicas)
        self._replicas_of[topic.name] = topic, replicas
        return replicas

    @property
    def events(self) -> deque[Event]:
        """What happened, the oldest first."""
        return self.history.events

    @property
    def items(self) -> Sequence[PartitionItem]:
        """All partitions, by name."""
        if self._all_items is None:
            names = {topic.name for topic in self.topics}
            self._items = {name: kept for name, kept in self._items.items() if name in names}
            self._all_items = [item for topic in self.topics for item in self.items_of(topic)]
        return self._all_items

    def items_of(self, topic: TopicSnapshot) -> list[PartitionItem]:
        kept = self._items.get(topic.name)
        if kept is not None and kept[0] is topic:
            return kept[1]
        items = [PartitionItem(topic, partition) for partition in topic.partitions]
        self._items[topic.name] = topic, items
        return items

    def folded_events(self, incident: int | None = None) -> Sequence[tuple[int, Event]]:
        """Return all events, where an incident is its cause alone; or the events of one, from its cause on.

        Several of one kind and moment are the newest of them alone.
        """
        kept, runs = self.history.incidents, set[int]()

        def is_row(fold: int | Run) -> bool:
            if isinstance(fold, Run):
                if id(fold) in runs:
                    return False
                runs.add(id(fold))
                fold = fold.fold
            return abs(fold) == incident if incident is not None else fold >= 0 or -fold not in kept

        places = (place for place, fold in enumerate(reversed(kept.folds)) if is_row(fold))
        return Picked(NumberedEvents(self), places if incident is None else reversed([*places]))

    def events_of_run(self, number: int) -> Sequence[tuple[int, Event]]:
        """Return the events that came together with one; none if that is forgotten."""
        run = self.run_of(number)
        newest_first = enumerate(reversed(self.history.incidents.folds))
        places = (place for place, fold in newest_first if fold is run)
        return Picked(NumberedEvents(self), () if run is None else places)

    def incident_of(self, numbered: tuple[int, Event]) -> Incident | None:
        incidents, fold = self.history.incidents, self._fold_of(numbered[0])
        return incidents[fold] if isinstance(fold, int) and fold > 0 and fold in incidents else None

    def run_of(self, number: int) -> Run | None:
        """Return the events of its kind that came together with an event, if there are any."""
        fold = self._fold_of(number)
        return fold if isinstance(fold, Run) else None

    def _fold_of(self, number: int) -> int | Run:
        folds = self.history.incidents.folds
        place = number - self.event_count + len(self.events)
        return folds[place] if 0 <= place < len(folds) else 0

    def topic_bytes(self, topic: TopicSnapshot) -> int | None:
        """Return the bytes of all replicas of a topic that brokers reported."""
        if topic.name not in self._topic_bytes:
            self._topic_bytes[topic.name] = ReplicaLogs.of(self.frame.logs).topic_bytes(topic.name)
        return self._topic_bytes[topic.name]

    @property
    def lag(self) -> int | None:
        """How many records all groups together have not read, as far as that is known; see ``has_unknown_lag``."""
        known = [group.lag.lag for group in self.frame.groups if group.lag.lag is not None]
        return sum(known) if known and not (self.has_unknown_lag and not any(known)) else None

    @property
    def has_unknown_lag(self) -> bool:
        """Whether the lag of a group is not known, or not whole: ``lag`` is a lower bound then."""
        return any(not group.has_lag or group.lag.has_unknown_lag for group in self.frame.groups)

    def broker_bytes(self, broker: int) -> int | None:
        dirs = [log_dir for log_dir in self._dirs(broker) if log_dir.log_dir is not None]
        return sum(log_dir.size_bytes for log_dir in dirs) if dirs else None

    def broker_disk_share(self, broker: int) -> float | None:
        """Return how full the fullest volume of a broker is."""
        used = (used_percent(log_dir.total_bytes, log_dir.usable_bytes) for log_dir in self._dirs(broker))
        return max((percent / 100 for percent in used if percent is not None), default=None)

    def _dirs(self, broker: int) -> Iterator[LogDir]:
        return (log_dir for log_dir in self.frame.log_dirs if log_dir.broker == broker)
