"""How long records wait until a reader commits them, and which partition's turn it is meanwhile. Pure.

A reader that commits once a minute does not move most of the time, and is fine. So klamm compares a reader that seems
to stand still with its own last commits: the longest time that records waited for one of them. Only after twice that
time does klamm say that the reader stands still.

A consumer reads its partitions one after the other while there is a backlog: a broker fills an answer from the first
partition that has enough. So klamm judges a partition that does not move by its member: while other partitions of the
member advance through a backlog, this one waits for its turn. This does not apply to a member that keeps up elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from engine.admin.lag.verdicts import (
    TELLING_SPAN_MS,
    KnownPoint,
    LagStatus,
    Reason,
    Verdict,
    is_draining,
    is_working_off,
    went_back,
)
from engine.common.model import TopicPartition

_WAITING: Final = (Reason.STANDS_STILL, Reason.TOO_FEW_SAMPLES, Reason.BETWEEN_COMMITS)


class Owned(NamedTuple):
    """A partition that a member owns, with both offsets known now. ``points`` end now."""

    owner: str
    verdict: Verdict
    points: Sequence[KnownPoint]
    is_lost: bool


class Turn(NamedTuple):
    """The facts about a partition that waits for its turn."""

    verdict: Verdict
    clear_in_ms: int | None


def turns_of(owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, Turn]:
    """Return the partitions that wait while their member works off a backlog in others."""
    members: defaultdict[str, dict[TopicPartition, Owned]] = defaultdict(dict)
    for name, partition in owned.items():
        members[partition.owner][name] = partition
    turns: dict[TopicPartition, Turn] = {}
    for of_member in members.values():
        busy = [
            owned_partition.points for owned_partition in of_member.values() if is_working_off(owned_partition.points)
        ]
        if not busy:
            continue
        does_drain = any(is_draining(points) for points in busy)
        clear_in_ms = _member_clear_in(of_member.values())
        for name, partition in of_member.items():
            if partition.verdict.reason in _WAITING:
                turns[name] = Turn(_verdict(partition, does_drain=does_drain), clear_in_ms)
    return turns


def _verdict(owned: Owned, *, does_drain: bool) -> Verdict:
    if owned.is_lost:
        return Verdict(LagStatus.WARN, Reason.RECORDS_LOST)
    if does_drain:
        return Verdict(LagStatus.OK, Reason.MEMBER_DRAINS)
    return Verdict(LagStatus.WARN, Reason.LAG_NEVER_FELL)


def _member_clear_in(of_member: Collection[Owned]) -> int | None:
    trend = sum_of_trends(trend_of(owned_partition.points) for owned_partition in of_member)
    return trend.clear_in_ms(sum(max(0, owned_partition.points[-1].lag) for owned_partition in of_member))


COMMITS_MAX: Final = 10
"""How many of the latest steps forward are judged: what happened an hour ago says little."""

_STEPS_MIN: Final = 2
"""One step forward does not make a pace."""

_STILL = (Reason.STANDS_STILL, Reason.NOBODY_READS)


class Commit(NamedTuple):
    """An offset that was committed, and when."""

    time_ms: int
    offset: int


class Step(NamedTuple):
    """Two consecutive commits, the second one further on."""

    before: Commit
    after: Commit


def seems_still(verdict: Verdict) -> bool:
    """Whether a reader that just commits rarely could get this verdict."""
    return verdict.reason in _STILL


def between_commits(verdict: Verdict) -> Verdict:
    """Return the verdict once it is known that the reader's next commit is not late."""
    return Verdict(LagStatus.UNKNOWN, Reason.BETWEEN_COMMITS) if seems_still(verdict) else verdict


def steps_of(commits: Sequence[Commit], committed: int) -> list[Step]:
    """Return the latest steps forward of a reader that has ``committed`` now; none if they say nothing about its pace.

    They say nothing if the log's offset differs from the coordinator's, if the reader has gone back since, or if it
    commits the same offset again and again: then it is not between two commits.
    """
    steps: list[Step] = []
    for before, after in pairwise(commits):
        if after.offset > before.offset:
            steps.append(Step(before, after))
        elif after.offset < before.offset:
            steps.clear()
    if len(steps) < _STEPS_MIN or steps[-1].after is not commits[-1] or commits[-1].offset != committed:
        return []
    return steps[-COMMITS_MAX:]


def is_within_pace(
    steps: Sequence[Step], came_ms: Mapping[int, int], now_ms: int, *, is_owned: bool | None = None
) -> bool:
    """Whether the next commit is not late yet.

    Args:
        steps: what ``steps_of`` has found.
        came_ms: when the records at offsets arrived; a step from a record that is gone from the log says nothing.
        is_owned: whether a member owns the partition now. If none does, and the last step came late by the pace of
            those before, it was most likely a reset: then no commit follows.
    """
    timed = [step for step in steps if step.before.offset in came_ms]
    waits_ms = [step.after.time_ms - max(step.before.time_ms, came_ms[step.before.offset]) for step in timed]
    last = steps[-1].after if steps else None
    if last is None or len(waits_ms) < _STEPS_MIN or last.offset not in came_ms:
        return False
    if is_owned is False:
        gaps_ms = [step.after.time_ms - step.before.time_ms for step in timed]
        if all(spans[-1] > 2 * max(spans[:-1]) for spans in (waits_ms, gaps_ms)):
            return False
    return now_ms - max(last.time_ms, came_ms[last.offset]) <= 2 * max(waits_ms)


def is_batch_late(commits: Sequence[Commit], committed: int, came_ms: Mapping[int, int], now_ms: int) -> bool | None:
    """Whether the next batch of an idle query should have started; None if that cannot be said.

    It judges by how long records waited for the last commits. If too few are known it does as Burrow does: the query
    has committed nothing for longer than its known commits span.
    """
    if not commits or now_ms - commits[-1].time_ms <= TELLING_SPAN_MS:
        return False if commits else None
    steps = steps_of(commits, committed)
    timed = [step for step in steps if step.before.offset in came_ms]
    if len(timed) >= _STEPS_MIN and committed in came_ms:
        waits_for_long = now_ms - came_ms[committed] > TELLING_SPAN_MS
        return waits_for_long and not is_within_pace(steps, came_ms, now_ms)
    if len(commits) < _STEPS_MIN:
        return None
    return now_ms - commits[-1].time_ms > max(commits[-1].time_ms - commits[0].time_ms, TELLING_SPAN_MS)


# How fast records arrive and are read, and when a reader will have caught up.


class Trend(NamedTuple):
    """Records a second that arrive and are read, over the samples; None if unknown."""

    in_per_sec: float | None
    out_per_sec: float | None

    def clear_in_ms(self, lag: int | None) -> int | None:
        """Return in how many milliseconds the lag will be gone at this rate; None: unknown, or never."""
        if lag is None or lag < 0:
            return None
        if lag == 0:
            return 0
        if self.in_per_sec is None or self.out_per_sec is None or self.out_per_sec <= self.in_per_sec:
            return None
        return round(lag / (self.out_per_sec - self.in_per_sec) * 1000)


UNKNOWN_TREND = Trend(None, None)


def trend_of(points: Sequence[KnownPoint]) -> Trend:
    """Return the trend over the points; a reader that went back has no rate of reading."""
    if len(points) < 2 or points[-1].time_ms <= points[0].time_ms:
        return UNKNOWN_TREND
    first, last = points[0], points[-1]
    seconds = (last.time_ms - first.time_ms) / 1000
    has_gone_back = went_back(points) or last.committed < first.committed
    reading = None if has_gone_back else (last.committed - first.committed) / seconds
    return Trend((last.end - first.end) / seconds, reading)


def sum_of_trends(trends: Iterable[Trend]) -> Trend:
    """Return the sums of the rates that are known; None if none is."""
    known = list(trends)
    return Trend(_sum(trend.in_per_sec for trend in known), _sum(trend.out_per_sec for trend in known))


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
