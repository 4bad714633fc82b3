"""What earlier frames said: sizes, lags and ends as series, how fast they change, and all events. Pure.

Older data never replaces newer data: a frame that is not newer than the last one is left out, and a sample counts only
if its stage was read since. A frame from an earlier time (a jump back in a recording) removes everything after it. All
series are bounded.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import nan
from typing import Generic, NamedTuple, TypeVar

from engine.admin.analysis.incidents import Incidents
from engine.admin.analysis.timeline import Absences
from engine.admin.lag.group_lag import GroupLag
from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.packed_logs import WIDTH, ReplicaLogs
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.common.turns import SLICE

SAMPLES_MAX = 600
"""The samples kept of each thing: ten minutes at one a second, 100 minutes of sizes read every ten seconds."""

GROWTH_MS = 20_000
"""How fast each topic grows on each disk is measured over this time, or a little more."""

EVENTS_MAX = 20_000
"""As many as a cluster of 50,000 partitions makes when it loses one broker of twelve. They take 2.3 MB."""

ALTERED_MAX = 1_000
"""Each frame looks back over those of the last minutes, which events of a failed broker would make dear."""

K = TypeVar("K", bound=Hashable)

Moving = Mapping[TopicPartition, PartitionSnapshot]
"""Partitions that are being reassigned."""


class Sample(NamedTuple):
    """A number at a time."""

    at_ms: int
    value: float


class Series(Generic[K]):
    """Samples by key, in the order of time. A key without new samples is forgotten.

    So the values of each key belong to the latest times, and all keys share these: a sample takes eight bytes.
    """

    def __init__(self, samples_max: int = SAMPLES_MAX) -> None:
        self._samples_max = samples_max
        self._times: deque[int] = deque(maxlen=samples_max)
        self._by_key: dict[K, array[float]] = {}

    def take(self, at_ms: int | None, values_read: Callable[[], Iterable[tuple[K, float]]]) -> None:
        """Take what was read at ``at_ms`` (None: nothing was), unless it is no newer than the last."""
        if at_ms is None or (self._times and at_ms <= self._times[-1]):
            return
        self._times.append(at_ms)
        fresh: dict[K, array[float]] = {}
        for key, value in values_read():
            values = self._by_key.get(key)
            if values is None:
                values = array("d")
            values.append(value)
            del values[: -self._samples_max]
            fresh[key] = values
        self._by_key = fresh

    def of(self, key: K) -> tuple[Sample, ...]:
        """Return the samples of one thing, oldest first."""
        values = self._by_key.get(key)
        if values is None:
            return ()
        first = len(self._times) - len(values)
        return tuple(map(Sample, islice(self._times, first, None), values))

    def keys(self) -> Iterable[K]:
        return self._by_key.keys()

    def take_back(self, at_ms: int) -> None:
        """Forget what came after a time."""
        count = 0
        while self._times and self._times[-1] > at_ms:
            self._times.pop()
            count += 1
        if count:
            for values in self._by_key.values():
                del values[-count:]
            self._by_key = {key: values for key, values in self._by_key.items() if values}


DirKey = tuple[int, str]
"""A broker and one of its log dirs."""

CopyKey = tuple[TopicPartition, int]
"""A partition that moves, and a broker that gets it."""


class History:
    """The past of one cluster, from one feed. Owned by the dashboard.

    Attributes:
        latest: the newest frame taken.
        used_bytes: what is used of each log dir's volume; if no broker reports that, what the logs in it take.
        log_bytes: what the logs in each log dir take, without those that are deleted but whose files are still there.
        readings: all replicas' logs at a few earlier moments, oldest first, each with its time.
        copied_bytes: how much each new replica of a moving partition has.
        sizes: bytes of the leader's replica of each moving partition; they grow by what is produced.
        lag: records that each group has not read, by name; NaN while that is not known.
        events: what happened, oldest first.
        altered: those of them that say that settings of a topic have changed.
        absences: since when replicas have been out of the ISR.
        incidents: which events follow from which failure.
    """

    def __init__(self) -> None:
        self.latest: Frame | None = None
        self._moving: tuple[tuple[TopicSnapshot, ...], Moving] = (), {}
        self.used_bytes: Series[DirKey] = Series()
        self.log_bytes: Series[DirKey] = Series()
        self.readings: list[tuple[int, ReplicaLogs]] = []
        self._grown: tuple[object, object, Mapping[DirKey, tuple[float, str]]] = None, None, {}
        """The topics that grow most, after the two readings that say so."""
        self._wants_growers = False
        self.copied_bytes: Series[CopyKey] = Series()
        self.sizes: Series[TopicPartition] = Series()
        self.lag: Series[str] = Series()
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.altered: deque[Event] = deque(maxlen=ALTERED_MAX)
        self.absences = Absences()
        self.incidents = Incidents((), EVENTS_MAX)

    def take(self, frame: Frame) -> bool:
        """Take a frame; return whether it was newer than the last one."""
        last = self.latest
        if last is not None and frame.sequence <= last.sequence:
            return False
        if last is not None and frame.at_ms < last.at_ms:
            self._take_back(frame.at_ms)
        self.latest = frame
        self.events.extend(frame.events)
        self.altered.extend(_altered(frame.events))
        self.absences.take(frame.events)
        self.incidents.take(frame.events)
        dirs_ms = frame.stage(Stage.LOG_DIRS).read_at_ms
        self.used_bytes.take(dirs_ms, lambda: _used(frame))
        self.log_bytes.take(dirs_ms, lambda: _in_logs(frame))
        self.readings = self._kept(frame)
        self.copied_bytes.take(dirs_ms, lambda: _copied(frame, self.moving(frame)))
        self.sizes.take(dirs_ms, lambda: _leader_sizes(frame, self.moving(frame)))
        self.lag.take(
            frame.stage(Stage.GROUPS).read_at_ms,
            lambda: ((group.name, _lag(group.lag)) for group in frame.groups if group.has_lag),
        )
        return True

    def moving(self, frame: Frame) -> Moving:
        """Return the partitions that are being reassigned; found once for frames that share their topics."""
        topics = () if frame.cluster is None else frame.cluster.topics
        if self._moving[0] is not topics:
            self._moving = topics, moving_partitions(topics)
        return self._moving[1]

    def turns(self, frame: Frame) -> Iterator[None]:
        """Find in turns of an event loop what ``growers`` returns, if somebody wants it: ``take`` comes after that."""
        readings = self._kept(frame)
        if not self._wants_growers or not readings:
            return
        (then_ms, then), read_ms = readings[0], frame.stage(Stage.LOG_DIRS).read_at_ms or 0
        if self._grown[0] is frame.logs and self._grown[1] is then:
            return
        self._wants_growers = False
        now, growers = ReplicaLogs.of(frame.logs), dict[DirKey, tuple[float, str]]()
        if read_ms > then_ms:
            yield from _find_growers(growers, then, now, (read_ms - then_ms) / 1000)
        self._grown = frame.logs, then, growers

    def growers(self, frame: Frame) -> Mapping[DirKey, tuple[float, str]]:
        """Return the topic that grows most in each log dir, after its bytes a second.

        To count hundreds of thousands of replicas takes ``turns``, which begin with the frame after the first call:
        until then it is empty.
        """
        self._wants_growers = True
        return self._grown[2] if self._grown[0] is frame.logs else {}

    def _kept(self, frame: Frame) -> list[tuple[int, ReplicaLogs]]:
        """Return the readings to keep once a frame is taken: each may take megabytes, so there are at most three."""
        kept, read_ms = self.readings, frame.stage(Stage.LOG_DIRS).read_at_ms
        if read_ms is None or (kept and read_ms - kept[-1][0] < GROWTH_MS / 2):
            return kept
        kept = [*kept, (read_ms, ReplicaLogs.of(frame.logs))]
        while len(kept) > 2 and read_ms - kept[1][0] >= GROWTH_MS:
            del kept[0]
        return kept

    def _take_back(self, at_ms: int) -> None:
        while self.readings and self.readings[-1][0] > at_ms:
            self.readings.pop()
        for series in (self.used_bytes, self.log_bytes, self.copied_bytes, self.sizes, self.lag):
            series.take_back(at_ms)
        while self.events and self.events[-1].at_ms > at_ms:
            self.events.pop()
        self.altered = deque(_altered(self.events), ALTERED_MAX)
        self.absences = Absences(self.events)
        self.incidents = Incidents(self.events, EVENTS_MAX)


def moving_partitions(topics: Iterable[TopicSnapshot]) -> Moving:
    """Return the partitions that are being reassigned, by name."""
    return {
        TopicPartition(topic.name, partition.partition): partition
        for topic in topics
        for partition in topic.partitions
        if partition.assignment.adding_replicas or partition.assignment.removing_replicas
    }


def _altered(events: Iterable[Event]) -> Iterable[Event]:
    return (event for event in events if event.kind is EventKind.TOPIC_CONFIG_CHANGED)


def _used(frame: Frame) -> Iterable[tuple[DirKey, float]]:
    for log_dir in frame.log_dirs:
        if log_dir.log_dir is not None and not log_dir.error:
            has_volume = log_dir.total_bytes is not None and log_dir.usable_bytes is not None
            used = (log_dir.total_bytes or 0) - (log_dir.usable_bytes or 0) if has_volume else log_dir.size_bytes
            yield (log_dir.broker, log_dir.log_dir), used


def _find_growers(
    growers: dict[DirKey, tuple[float, str]], then: ReplicaLogs, now: ReplicaLogs, seconds: float
) -> Iterator[None]:
    """Find the topic that grows most in each log dir, in turns."""
    count = 0
    for topic, rows in now.by_topic.items():
        before = then.by_topic.get(topic)
        if before is rows:
            continue
        grown: dict[DirKey, int] = {}
        for places, numbers, sign in ((now.places, rows, 1), (then.places, before or (), -1)):
            # By number: a large cluster has hundreds of thousands of replicas, and a topic few places.
            in_place: dict[int, int] = {}
            for place, size_bytes in zip(numbers[1::WIDTH], numbers[2::WIDTH], strict=True):
                in_place[place] = in_place.get(place, 0) + size_bytes
            for place, in_all in in_place.items():
                broker, _, log_dir = places[place]
                grown[broker, log_dir] = grown.get((broker, log_dir), 0) + sign * in_all
        for key, grown_bytes in grown.items():
            if grown_bytes > 0:
                growers[key] = max(growers.get(key, (0.0, "")), (grown_bytes / seconds, topic))
        count += len(rows) // WIDTH
        if count >= SLICE:
            yield
            count = 0


def _in_logs(frame: Frame) -> Iterable[tuple[DirKey, float]]:
    for log_dir in frame.log_dirs:
        if log_dir.log_dir is not None and not log_dir.error:
            yield (log_dir.broker, log_dir.log_dir), log_dir.size_bytes


def _lag(group: GroupLag) -> float:
    return nan if group.lag is None or group.has_unknown_lag else group.lag


def _copied(frame: Frame, moving: Moving) -> Iterable[tuple[CopyKey, float]]:
    for name, partition in moving.items():
        for log in frame.logs.get(name, ()):
            if log.broker in partition.assignment.adding_replicas and not log.is_future:
                yield (name, log.broker), log.size_bytes


def _leader_sizes(frame: Frame, moving: Moving) -> Iterable[tuple[TopicPartition, float]]:
    for name, partition in moving.items():
        for log in frame.logs.get(name, ()):
            if log.broker == partition.leader and not log.is_future:
                yield name, log.size_bytes


SAMPLES_MIN = 3
"""With fewer samples there is no result."""


class Slope(NamedTuple):
    """A line through samples (least squares): the change per second. The true one is between ``low`` and ``high``
    (two sigma).
    """

    per_s: float
    low: float
    high: float

    @property
    def is_rising(self) -> bool:
        return self.low > 0


def slope_of(samples: Sequence[Sample], window_ms: int) -> Slope | None:
    """Return the slope over the last ``window_ms`` before the newest sample; None: too few samples."""
    if not samples:
        return None
    since_ms = samples[-1].at_ms - window_ms
    points = [(sample.at_ms / 1000, sample.value) for sample in samples if sample.at_ms >= since_ms]
    count = len(points)
    if count < SAMPLES_MIN:
        return None
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread_x = sum((x - mean_x) ** 2 for x, _ in points)
    if spread_x <= 0:
        return None
    per_s = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread_x
    residue = sum((y - mean_y - per_s * (x - mean_x)) ** 2 for x, y in points)
    error = (residue / (count - 2) / spread_x) ** 0.5 if count > 2 else 0.0
    return Slope(per_s, per_s - 2 * error, per_s + 2 * error)
