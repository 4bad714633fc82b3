"""Log dirs: how full they are, how fast they fill and with what, and when there is no room left. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import NamedTuple

from engine.admin.analysis.history import SAMPLES_MIN, History, Sample, slope_of
from engine.admin.cluster.remedies import Do, Operation, Phrase, Words
from engine.admin.health.checks import ALMOST_FULL_PERCENT
from engine.admin.health.report import used_percent
from engine.admin.watch.frame import Frame
from engine.common.quantities import size_text, span_text
from engine.common.topic_names import INTERNAL_TOPICS

WINDOW_MS = 30 * 60 * 1000
RECENT_MS = 5 * 60 * 1000
"""A log dir that no longer fills in this time has no date at which it is full."""
REST_MS = 30 * 1000
"""A burst is over once the volume has not grown for this long, and for as long as it grew within ``RECENT_MS``."""
_FORESIGHT = 12
"""A trend that was seen for less than ``RECENT_MS`` predicts this many times its own length: a burst of seconds is no
trend."""
_OTHERS = 0.1
FILLS_SOON_S = 86_400
"""A log dir that has room for less than this is a problem, and for less than ``NO_ROOM_SOON_S`` a grave one."""
NO_ROOM_SOON_S = 3_600
DELETE_DELAY_MS = 60_000
"""``file.delete.delay.ms`` unless it is set: a deleted segment or replica keeps its file for this long (Kafka 3.9)."""
_CHECK_MS = 300_000
"""``log.retention.check.interval.ms`` unless it is set."""
_TO_TYPE_MS = 60_000
_LATE_MS = 15_000
"""Log dirs are read every ten seconds, and a broker may be late."""
_END_IS_NEAR_S = 300
"""A broker that goes so shortly before its log dir should be full may have gone because it is: rates vary."""
_NOTICED = 0.01
"""Less than this part of a volume is no relief."""
_ROOMIER_PERCENT = 10
_SHARE = 0.2
"""What makes up less than this part of what a volume takes does not fill it."""


class TopicGrowth(NamedTuple):
    """How fast one topic grows in one log dir.

    Attributes:
        is_copied: a reassignment copies replicas of it there.
        is_deleted: its retention deletes records; it is not compacted only, and not one of Kafka's own.
        delay_ms: its ``file.delete.delay.ms``: a deleted segment keeps its file for so long.
    """

    topic: str
    bytes_per_s: float
    is_copied: bool = False
    is_deleted: bool = True
    delay_ms: int = DELETE_DELAY_MS


@dataclass(frozen=True, slots=True)
class DirTrend:
    """One log dir. What is not known is None.

    Attributes:
        used_percent: of its volume, other data included; ``total_bytes`` is the size of the volume.
        bytes_per_s: how fast it fills over the last half hour; None: fewer than three readings.
        full_in_s: in how many seconds there is no room left at this rate, or at that of the last minutes if it is
            lower; None: it does not fill, or is not known.
        error: why nothing is known of it, for example after a disk failure.
        grower: the topic that grows most in it, if it fills and that is a good part of what fills it.
        recent_per_s: how fast it filled while that was measured, other data included.
        is_overtaken: producers have been held back or let go since most of the readings behind ``full_in_s``.
    """

    broker: int
    log_dir: str | None
    size_bytes: int
    used_percent: float | None
    bytes_per_s: float | None
    full_in_s: float | None
    error: str = ""
    grower: TopicGrowth | None = None
    recent_per_s: float | None = None
    total_bytes: int | None = None
    is_overtaken: bool = False

    @property
    def is_urgent(self) -> bool:
        """Whether there may be no room left before a lower retention makes some, with a minute to type it."""
        delay_ms = DELETE_DELAY_MS if self.grower is None else self.grower.delay_ms
        return self.full_in_s is not None and self.full_in_s * 1000 < _CHECK_MS + delay_ms + _TO_TYPE_MS

    @property
    def is_produced(self) -> bool:
        """Whether what fills it comes from producers, not from moves or from other programs."""
        return self.grower is not None and not self.grower.is_copied

    @property
    def free_bytes(self) -> int | None:
        if self.total_bytes is None or self.used_percent is None:
            return None
        return round(self.total_bytes * (1 - self.used_percent / 100))

    @property
    def is_filling(self) -> bool:
        """Whether somebody has to make room: it is almost full, or will be soon."""
        is_soon = self.full_in_s is not None and self.full_in_s < FILLS_SOON_S
        return is_soon or self._is_almost_full

    @property
    def may_be_full_since(self) -> bool:
        """Whether there may be no room left since it was read: its end was near, or producers were a little faster."""
        return self._is_almost_full or (self.full_in_s is not None and self.full_in_s <= _END_IS_NEAR_S)

    @property
    def _is_almost_full(self) -> bool:
        return self.used_percent is not None and self.used_percent >= ALMOST_FULL_PERCENT


def dir_trends(frame: Frame, history: History, held_ms: int | None = None) -> list[DirTrend]:
    """Return all log dirs: those with errors first, then those that will be full soonest, then the fullest.

    Where producers were held back or let go at ``held_ms``, only what was read since then tells when a disk is full.
    """
    trends = []
    for log_dir in frame.log_dirs:
        samples = () if log_dir.log_dir is None else history.used_bytes.of((log_dir.broker, log_dir.log_dir))
        fresh = samples if held_ms is None else tuple(sample for sample in samples if sample.at_ms >= held_ms)
        is_cut, is_overtaken = len(fresh) < len(samples), len(fresh) < min(SAMPLES_MIN, len(samples))
        slope = slope_of(samples, WINDOW_MS)
        trends.append(
            DirTrend(
                log_dir.broker,
                log_dir.log_dir,
                log_dir.size_bytes,
                used_percent(log_dir.total_bytes, log_dir.usable_bytes),
                None if slope is None else slope.per_s,
                _full_in_s(log_dir.usable_bytes, samples if is_overtaken else fresh, is_steady=is_cut),
                log_dir.error or "",
                total_bytes=log_dir.total_bytes,
                is_overtaken=is_overtaken,
            )
        )
    if any(trend.is_filling for trend in trends):
        trends = [_with_grower(trend, frame, history) if trend.is_filling else trend for trend in trends]
    return sorted(trends, key=_urgency)


def note_filling(noted: dict[int, DirTrend], trends: Sequence[DirTrend], live: Set[int]) -> None:
    """Note by broker its most urgent log dir if that is about to be full; what was read before a failure stays."""
    live_trends = [trend for trend in trends if trend.used_percent is not None and trend.broker in live]
    for broker in {trend.broker for trend in live_trends}:
        noted.pop(broker, None)
    noted |= {trend.broker: trend for trend in reversed(live_trends) if trend.may_be_full_since}


def room_advice(
    trend: DirTrend, trends: Sequence[DirTrend], frame: Frame, history: History, *, is_held: bool = False
) -> Phrase:
    """Say which space of a full log dir comes back by itself, and then what makes room, the fastest first.

    What was just done is not advised again; ``is_held``: a quota holds the producers back already.
    """
    grower, ways = trend.grower, list[Words]()
    frees = what_frees(trend, frame, history)
    if not frees and trend.recent_per_s is not None and trend.recent_per_s < 0:
        return Phrase("it has stopped filling: see whether that lasts")
    if grower is not None and grower.is_copied:
        ways.append(Phrase(f"cancel the moves of {grower.topic} to it: ", Operation.LIST_REASSIGNMENTS))
    if grower is not None and grower.is_deleted and _retention_changed_ms(trend, frame, history) is None:
        settings = (
            "file.delete.delay.ms (else files stay for a minute) and the retention"
            if trend.is_urgent
            else "the retention"
        )
        where = Do(Operation.ALTER_TOPIC_CONFIGS, grower.topic)
        ways.append(Phrase(f"lower {settings} of {grower.topic}: ", where, " (its oldest records go within minutes)"))
    elif grower is None and not frees:
        ways.append(Phrase("shorten the retention of large topics: ", Operation.ALTER_CONFIGS))
    if (roomier := _roomier_broker(trend, trends)) is not None:
        ways.append(Phrase("move replicas away: ", Operation.PLAN_REBALANCE, f" (broker {roomier} has most room)"))
    made = Phrase(*[part for way in ways or ["add a disk or a broker"] for part in ("; or ", way)][1:])
    held: tuple[str | Operation, ...] = ()
    if trend.is_urgent and trend.is_produced and not is_held:
        # Brokers obey a quota at once. Everything else takes minutes.
        held = "hold the producers back, which works at once: ", Operation.LIMIT_PRODUCERS
    if not frees:
        return Phrase(*held, "; then " if held else "", made)
    return Phrase(frees, *((", too late at this rate: ", *held) if held else ()), "; if it fills on after that: ", made)


def _roomier_broker(trend: DirTrend, trends: Sequence[DirTrend]) -> int | None:
    """Return the broker with the emptiest log dir, if that is clearly emptier than this one and does not fill."""
    others = [
        (other.used_percent, other.broker)
        for other in trends
        if other.broker != trend.broker and other.used_percent is not None and not other.is_filling and not other.error
    ]
    emptiest = min(others, default=None)
    is_roomier = emptiest is not None and emptiest[0] + _ROOMIER_PERCENT <= (trend.used_percent or 0)
    return emptiest[1] if emptiest is not None and is_roomier else None


def what_frees(trend: DirTrend, frame: Frame, history: History) -> str:
    """Return which space of a log dir comes back by itself, and when, in a sentence; empty if none is known to.

    What was deleted keeps its files for ``file.delete.delay.ms``; what exceeds a new retention waits for
    ``log.retention.check.interval.ms`` before.
    """
    if deleted := _deleted_bytes(trend, history):
        return f"{size_text(deleted)} are deleted; the space comes back within a minute (file.delete.delay.ms)"
    leaving = sum(trend.broker in moving.assignment.removing_replicas for moving in history.moving(frame).values())
    if leaving:
        move = "replica moves away" if leaving == 1 else "replicas move away"
        return f"{leaving} {move}; the space comes back a minute after each move (file.delete.delay.ms)"
    changed_ms = _retention_changed_ms(trend, frame, history)
    if changed_ms is None or trend.grower is None:
        return ""
    delay_ms = trend.grower.delay_ms
    ago = span_text((frame.at_ms - changed_ms) // 1000) or "0s"
    return (
        f"the retention of {trend.grower.topic} changed {ago} ago: brokers look every 5 minutes unless"
        f" log.retention.check.interval.ms is set; the space comes back {span_text(delay_ms // 1000) or '0s'} later"
    )


def _retention_changed_ms(trend: DirTrend, frame: Frame, history: History) -> int | None:
    """Return when the retention of what grows most was changed, if brokers may not have finished what follows."""
    limit_ms = frame.at_ms - _CHECK_MS - DELETE_DELAY_MS
    for event in takewhile(lambda event: event.at_ms >= limit_ms, reversed(history.altered)):
        is_of_topic = trend.grower is not None and event.topic == trend.grower.topic
        if is_of_topic and "retention" in event.before + event.after:
            return event.at_ms
    return None


def _with_grower(trend: DirTrend, frame: Frame, history: History) -> DirTrend:
    """Add which topic grows most in a log dir, and how fast its volume filled in the same time."""
    key = trend.broker, trend.log_dir or ""
    since_ms = history.readings[0][0] if history.readings else 0
    used = [sample for sample in history.used_bytes.of(key) if sample.at_ms >= since_ms]
    elapsed_s = (used[-1].at_ms - used[0].at_ms) / 1000 if used else 0
    recent_per_s = (used[-1].value - used[0].value) / elapsed_s if elapsed_s else None
    per_s, topic = history.growers(frame).get(key, (0.0, ""))
    if per_s <= _SHARE * abs(recent_per_s or 0) or not topic:
        # Others fill the volume, or records of the one that does were just deleted.
        return replace(trend, recent_per_s=recent_per_s)
    moving = history.moving(frame).items()
    copied = {name.topic for name, move in moving if trend.broker in move.assignment.adding_replicas}
    described = None if frame.cluster is None else frame.cluster.topic(topic)
    configs = {} if described is None else described.configs or {}
    is_deleted = "delete" in configs.get("cleanup.policy", "delete") and topic not in INTERNAL_TOPICS
    delay = configs.get("file.delete.delay.ms", "")
    delay_ms = int(delay) if delay.isdecimal() else DELETE_DELAY_MS
    grower = TopicGrowth(topic, per_s, is_copied=topic in copied, is_deleted=is_deleted, delay_ms=delay_ms)
    return replace(trend, grower=grower, recent_per_s=recent_per_s)


def _deleted_bytes(trend: DirTrend, history: History) -> int:
    """Return how much was deleted whose files still take room; 0 if that is little, or not known.

    The logs have shrunk, and other files on the volume have grown by as much.
    """
    key = trend.broker, trend.log_dir or ""
    pairs = list(zip(reversed(history.used_bytes.of(key)), reversed(history.log_bytes.of(key)), strict=False))[::-1]
    if not pairs or trend.total_bytes is None:
        return 0
    since_ms = pairs[-1][0].at_ms - DELETE_DELAY_MS - _LATE_MS
    recent = [(used.value - logs.value, logs.value) for used, logs in pairs if used.at_ms >= since_ms]
    dropped = sum(max(0.0, before - after) for (_, before), (_, after) in pairwise(recent))
    deleted = min(dropped, recent[-1][0] - min(besides for besides, _ in recent))
    return round(deleted) if deleted >= _NOTICED * trend.total_bytes else 0


def _full_in_s(usable_bytes: int | None, samples: Sequence[Sample], *, is_steady: bool) -> float | None:
    """Return None unless the samples show that it is filling up; ``is_steady``: they are no burst, however few."""
    slopes = [slope_of(samples, window_ms) for window_ms in (WINDOW_MS, RECENT_MS)]
    rates = [slope.per_s for slope in slopes if slope is not None and slope.is_rising]
    if usable_bytes is None or len(rates) < len(slopes) or _rests(samples):
        return None
    full_in_s = usable_bytes / min(rates)
    seen_ms = samples[-1].at_ms - samples[0].at_ms
    return full_in_s if is_steady or seen_ms >= RECENT_MS or full_in_s * 1000 <= _FORESIGHT * seen_ms else None


def _rests(samples: Sequence[Sample]) -> bool:
    """Whether the last growth is over. A tenth of the pace is none: others write to the volume, too."""
    recent = [sample for sample in samples if sample.at_ms >= samples[-1].at_ms - RECENT_MS]
    first, last = recent[0], recent[-1]
    pace = (last.value - first.value) / (last.at_ms - first.at_ms)
    grown = [
        (before.at_ms, after.at_ms)
        for before, after in pairwise(recent)
        if after.value - before.value > _OTHERS * pace * (after.at_ms - before.at_ms)
    ]
    began_ms, ended_ms = grown[0][0], grown[-1][1]
    return last.at_ms - ended_ms >= max(REST_MS, ended_ms - began_ms)


def _urgency(trend: DirTrend) -> tuple[bool, float, float, int, str]:
    full_in_s = float("inf") if trend.full_in_s is None else trend.full_in_s
    return not trend.error, full_in_s, -(trend.used_percent or 0.0), trend.broker, trend.log_dir or ""
