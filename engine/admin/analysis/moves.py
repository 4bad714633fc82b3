"""Reassignments under way: bytes, rate, time left with a range, and copies that stand still. Pure.

A copy is one new replica of one partition on one broker. It is done when it is in the ISR; until then it has the size
that its broker reported last. New records have to be copied too, so the time left is computed from the rate above that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile

from engine.admin.analysis.history import SAMPLES_MAX, SAMPLES_MIN, History, Sample, Slope, slope_of
from engine.admin.reassignment.throttle_settings import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    read_list,
)
from engine.admin.watch.events import EventKind
from engine.admin.watch.frame import Frame
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.quantities import span_text
from engine.common.snapshot import PartitionSnapshot

RATE_MS = 10_000
"""Rates are over the last ten seconds, or over the last three readings if these take longer."""
STEADY_MS = 30_000
STEADY_MIN_MS = 20_000
"""Under a throttle brokers copy in bursts with pauses between them: this is longer than both."""
STALLED_MS = 30_000
"""A copy that has not grown for this long stands still."""
WAITING_LONG_S = 300
"""A copy that has waited this long is pointed out: from outside, one that is stuck looks the same."""


class CopyState(StrEnum):
    DONE = "done"
    """It is in the ISR; other copies of the partition may not be."""
    MEASURING = "measuring"
    """The samples are too few, or the pause is too short, to say more."""
    COPYING = "copying"
    CATCHING_UP = "catching up"
    """It has nearly all records, and is not in the ISR yet."""
    WAITING = "waiting"
    """It gets no byte, and others are copied between the same two brokers, or from the same throttled leader."""
    FALLING_BEHIND = "falling behind"
    """More is produced than copied, now and over the last minute: at this rate it never ends."""
    STALLED = "stands still"
    UNKNOWN = "not known"
    """The sizes are not known."""


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """One copy. Bytes, rates a second and seconds; what is not known is None.

    Attributes:
        inflow: bytes a second that are produced to the partition.
        steady_rate: the rate of the last half minute; None if a throttle or what is copied has changed lately.
        left_s: the time left; ``left_low_s`` and ``left_high_s`` are the range that the samples leave.
        stalled_s: for how long no growth was read; ``is_at_least``: or longer, for the readings go no further back.
        reason: why it stands still, where that is known.
        is_blocked: it cannot continue until the reason is fixed, however fast it may be copied.
    """

    name: TopicPartition
    broker: int
    source: int
    state: CopyState
    copied_bytes: int | None
    total_bytes: int | None
    rate: float | None = None
    inflow: float | None = None
    left_s: float | None = None
    left_low_s: float | None = None
    left_high_s: float | None = None
    stalled_s: float | None = None
    reason: str = ""
    is_at_least: bool = False
    steady_rate: float | None = None
    is_blocked: bool = False

    @property
    def waits_long(self) -> bool:
        """Whether it has waited so long that it may be stuck."""
        return self.state is CopyState.WAITING and (self.stalled_s or 0) >= WAITING_LONG_S


@dataclass(frozen=True, slots=True)
class MovesBoard:
    """All copies of all partitions that move, those that stand still first, and their sums.

    Attributes:
        partitions: how many partitions move; some have nothing to copy.
        left_s: the time until the slowest copy is done; None if that of any copy is unknown, or never ends.
        unknown_count: copies of unknown size; the sums leave them out.
    """

    copies: tuple[CopyProgress, ...]
    partitions: int
    copied_bytes: int
    total_bytes: int
    rate: float | None
    left_s: float | None
    left_low_s: float | None
    left_high_s: float | None
    stalled_count: int
    unknown_count: int


def moves_board(frame: Frame, history: History) -> MovesBoard:
    """Return the state of all reassignments under way."""
    moving = history.moving(frame)
    throttled_ms = _last_ms(frame, history, _THROTTLES)
    changed_ms = max(throttled_ms, _last_ms(frame, history, _COPIES))
    names = [(name, broker) for name, move in moving.items() for broker in move.assignment.adding_replicas]
    growing = frozenset((name, broker) for name, broker in names if _grows(history, name, broker))
    busy = Counter(place for name, broker in growing for place in _queues(moving[name].leader, broker))
    copies = []
    for name, broker in names:
        queues = _queues(moving[name].leader, broker)
        if throttle_of(frame, name, moving[name].leader, is_leader=True) is None:
            queues = queues[:1]
        is_busy = any(busy[queue] > ((name, broker) in growing) for queue in queues)
        copy = _copy(frame, history, name, moving[name], broker, is_busy=is_busy, throttled_ms=throttled_ms)
        steady_rate = _steady_rate(history.copied_bytes.of((name, broker)), changed_ms)
        copies.append(replace(copy, steady_rate=steady_rate))
    copies = _with_waiting_time(copies)
    copies.sort(key=lambda copy: (_ORDER[copy.state], -(copy.stalled_s or 0), copy.name, copy.broker))
    known = [copied for copied in copies if copied.total_bytes is not None and copied.copied_bytes is not None]
    left = [copied for copied in copies if copied.state is not CopyState.DONE]
    rates = [copied.rate for copied in left if copied.rate is not None]
    return MovesBoard(
        tuple(copies),
        len(moving),
        sum(copied.copied_bytes or 0 for copied in known),
        sum(copied.total_bytes or 0 for copied in known),
        sum(rates) if rates else None,
        _longest([copied.left_s for copied in left]),
        _longest([copied.left_low_s for copied in left]),
        _longest([copied.left_high_s for copied in left]),
        sum(copied.state is CopyState.STALLED for copied in copies),
        len(copies) - len(known),
    )


def _queues(source: int, broker: int) -> tuple[tuple[int, int | None], ...]:
    """Return what a copy may wait in: for the copies between the same brokers, and for all of a throttled leader."""
    return (source, broker), (source, None)


def _with_waiting_time(copies: list[CopyProgress]) -> list[CopyProgress]:
    """Give copies that wait the time that all copies between the same two brokers, or else of the leader, need."""
    beside: dict[tuple[int, int | None], list[CopyProgress]] = {}
    for copy in copies:
        for queue in _queues(copy.source, copy.broker):
            beside.setdefault(queue, []).append(copy)
    together = {queue: _together(group) for queue, group in beside.items()}
    reasons = []
    for copy in copies:
        if copy.state is CopyState.WAITING:
            between, of_leader = (together[queue] for queue in _queues(copy.source, copy.broker))
            left, low, high = of_leader if between[0] is None else between
            copy = replace(copy, left_s=left, left_low_s=low, left_high_s=high)
        reasons.append(copy)
    return reasons


def _together(copies: list[CopyProgress]) -> tuple[float | None, float | None, float | None]:
    """Return the time left of copies that take turns, with its range, by the rate of those that have begun."""
    begun = [copy for copy in copies if copy.state in (CopyState.COPYING, CopyState.FALLING_BEHIND)]
    if (bytes_begun := _remaining(begun)) <= 0:
        return None, None, None
    share = 1 + _remaining([copy for copy in copies if copy.state is CopyState.WAITING]) / bytes_begun
    left = _longest([copy.left_s for copy in begun])
    low = _longest([copy.left_low_s for copy in begun])
    high = _longest([copy.left_high_s for copy in begun])
    return left and left * share, low and low * share, high and high * share


def _remaining(copies: list[CopyProgress]) -> int:
    return sum((copy.total_bytes or 0) - (copy.copied_bytes or 0) for copy in copies)


def _grows(history: History, name: TopicPartition, broker: int) -> bool:
    """Whether a copy has grown lately."""
    stalled_s = _stalled_s(history, name, broker)
    samples = history.copied_bytes.of((name, broker))
    return stalled_s is not None and stalled_s * 1000 < STALLED_MS and samples[0].value < samples[-1].value


def _last_ms(frame: Frame, history: History, kinds: frozenset[EventKind]) -> int:
    """Return when one of these last happened; 0: not in the last minute."""
    late = takewhile(lambda event: event.at_ms >= frame.at_ms - 60_000, reversed(history.events))
    return next((event.at_ms for event in late if event.kind in kinds), 0)


def _window_ms(samples: Sequence[Sample], since_ms: int) -> int:
    """Return how far back the rate goes: never beyond ``since_ms``, the last change of a throttle."""
    if not samples:
        return 0
    latest_ms = samples[-1].at_ms
    return min(max(RATE_MS, latest_ms - samples[-SAMPLES_MIN:][0].at_ms), latest_ms - since_ms)


def _steady_rate(samples: Sequence[Sample], since_ms: int) -> float | None:
    """Return the mean rate of the last half minute; None: the readings since then take too short a time."""
    late = [sample for sample in samples if sample.at_ms >= max(since_ms, samples[-1].at_ms - STEADY_MS)]
    if not late or (taken_ms := late[-1].at_ms - late[0].at_ms) < STEADY_MIN_MS:
        return None
    return (late[-1].value - late[0].value) * 1000 / taken_ms


def _since_begun(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Leave out the time before the first byte: it says nothing of the rate."""
    first = next((at for at, sample in enumerate(samples) if sample.value > 0), len(samples))
    return samples[max(0, first - 1) :]


def _copy(
    frame: Frame, history: History, name: TopicPartition, partition: PartitionSnapshot, broker: int, *,
    is_busy: bool, throttled_ms: int,
) -> CopyProgress:  # fmt: skip
    sizes = {log.broker: log.size_bytes for log in frame.logs.get(name, ()) if not log.is_future}
    total = sizes.get(partition.leader)
    source = partition.leader
    if broker in partition.isr:
        return CopyProgress(name, broker, source, CopyState.DONE, total, total)
    reason = _what_is_wrong(frame, partition, broker, has_begun=broker in sizes)
    is_blocked = bool(reason)
    copied = sizes.get(broker)
    samples = history.copied_bytes.of((name, broker))
    stalled_s = read_s = _stalled_s(history, name, broker)
    if stalled_s:
        stalled_s += (frame.at_ms - samples[-1].at_ms) / 1000
    if total is None or copied is None:
        is_soon_read = total is not None and any(log_dir.broker == broker for log_dir in frame.log_dirs)
        state = CopyState.STALLED if reason else CopyState.MEASURING if is_soon_read else CopyState.UNKNOWN
        return CopyProgress(
            name, broker, source, state, copied, total, stalled_s=stalled_s, reason=reason, is_blocked=is_blocked
        )
    copied = min(copied, total)
    window_ms = _window_ms(samples, throttled_ms)
    slope = slope_of(_since_begun(samples), window_ms)
    sizes_read = history.sizes.of(name)
    inflow = slope_of(sizes_read, _window_ms(sizes_read, 0))
    produced = None if inflow is None else max(0.0, inflow.per_s)
    rate = None if slope is None else max(0.0, slope.per_s)
    if is_busy and (not copied or rate == 0) and not reason and copied < total:
        is_at_least = len(samples) >= SAMPLES_MAX
        reason = f"others are copied from broker {source} first"
        return CopyProgress(
            name, broker, source, CopyState.WAITING, copied, total, None, produced, stalled_s=stalled_s, reason=reason,
            is_at_least=is_at_least,
        )  # fmt: skip
    if reason or (read_s is not None and read_s * 1000 >= STALLED_MS and copied < total):
        reason = reason or f"no byte seen for {span_text(int(stalled_s or 0))}"
        return CopyProgress(
            name, broker, source, CopyState.STALLED, copied, total, rate, produced, stalled_s=stalled_s, reason=reason,
            is_blocked=is_blocked,
        )  # fmt: skip
    if copied >= total:
        return CopyProgress(name, broker, source, CopyState.CATCHING_UP, copied, total, rate, produced, 0.0, 0.0, 0.0)
    if slope is None:
        return CopyProgress(name, broker, source, CopyState.MEASURING, copied, total, rate, produced)
    left, low, high = _left_s(total - copied, slope, produced or 0.0)
    minute = slope_of(_since_begun(samples), min(60_000, samples[-1].at_ms - throttled_ms)) or slope
    state = CopyState.COPYING if rate else CopyState.MEASURING
    if left is None and produced and minute.per_s <= produced:
        state = CopyState.FALLING_BEHIND
    return CopyProgress(name, broker, source, state, copied, total, rate, produced, left, low, high, stalled_s)


def _left_s(remaining: float, slope: Slope, inflow: float) -> tuple[float | None, float | None, float | None]:
    """Return the time left, with the shortest and the longest that the samples allow; None: forever."""
    seconds = [remaining / (rate - inflow) if rate > inflow else None for rate in (slope.per_s, slope.high, slope.low)]
    return seconds[0], seconds[1], seconds[2]


def _stalled_s(history: History, name: TopicPartition, broker: int) -> float | None:
    """Return for how long a copy has had the same size, as far as the samples go; None: there are too few."""
    samples = history.copied_bytes.of((name, broker))
    if len(samples) < 2:
        return None
    since_ms = samples[-1].at_ms
    for sample in reversed(samples):
        if sample.value != samples[-1].value:
            break
        since_ms = sample.at_ms
    return (samples[-1].at_ms - since_ms) / 1000


def _what_is_wrong(frame: Frame, partition: PartitionSnapshot, broker: int, *, has_begun: bool) -> str:
    """Say why a copy cannot continue; ``has_begun``: its log is in a dir that works, whatever other dirs do."""
    live = frozenset() if frame.cluster is None else frame.cluster.live_broker_ids
    if broker not in live:
        return f"broker {broker}, which gets it, is down"
    if partition.leader == NO_LEADER or partition.leader not in live:
        return "the partition has no leader to copy from"
    if has_begun:
        return ""
    failed = frame.failed_log_dirs(broker)
    return f"a log dir of broker {broker} has failed: {failed[0]}" if failed else ""


def throttle_of(frame: Frame, name: TopicPartition, broker: int, *, is_leader: bool) -> int | None:
    """Return the bytes a second that a broker may send (or take) of a partition; None: it is not throttled."""
    topic = None if frame.cluster is None else frame.cluster.topic(name.topic)
    if frame.cluster is None or topic is None or not topic.configs:
        return None
    listed = _listed(topic.configs.get(LEADER_REPLICAS if is_leader else FOLLOWER_REPLICAS))
    if listed.isdisjoint(("*", f"{name.partition}:{broker}")):
        return None
    key = LEADER_RATE if is_leader else FOLLOWER_RATE
    configs = frame.cluster.broker_configs
    text = configs.get(broker, {}).get(key) or configs.get(None, {}).get(key) or ""
    return int(text) if text.isdecimal() else None


@lru_cache(256)
def _listed(text: str | None) -> frozenset[str]:
    """Return the entries of a topic's list of throttled replicas: read once for all of its copies."""
    throttled = read_list(text)
    return frozenset((*throttled.others, *throttled.ours))


def _longest(times: list[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


_THROTTLES = frozenset((EventKind.BROKER_CONFIG_CHANGED, EventKind.TOPIC_CONFIG_CHANGED))
_COPIES = frozenset((
    EventKind.REASSIGNMENT_STARTED, EventKind.REASSIGNMENT_CHANGED, EventKind.REASSIGNMENT_FINISHED,
    EventKind.REASSIGNMENT_CANCELLED, EventKind.ISR_GREW, EventKind.ISR_CHANGED, EventKind.LEADER_CHANGED,
))  # fmt: skip
"""What changes how many copies share a throttle."""
_ORDER = {state: order for order, state in enumerate((
    CopyState.STALLED, CopyState.FALLING_BEHIND, CopyState.UNKNOWN, CopyState.MEASURING, CopyState.WAITING,
    CopyState.COPYING, CopyState.CATCHING_UP, CopyState.DONE,
))}  # fmt: skip
