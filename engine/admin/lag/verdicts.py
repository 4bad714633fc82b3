"""Is a partition's reader doing well? Judged from a few samples, by rules instead of thresholds. Pure.

The rules are Burrow's (2025), carried over from commits, which it watches, to samples of what is committed. In order:

1.  What is unknown stays unknown: nothing committed, no leader, no such partition.
2.  Committed beyond the end: REWIND. The log was cut or recreated, and the reader will begin somewhere else.
3.  Nothing to read: OK, whatever was before.
4.  An offset lower than the one before it, and not reached again since: REWIND.
5.  With too few samples (see ``is_telling``) nothing more can be said: unknown. Where no member owns the partition,
    only the samples since the last jump count: since the only move, or a move after the offset had stood still for
    longer than between any two moves before, over samples that are enough. A move of a reader that kept up (rule 6) is
    none.
6.  Everything that was there two samples ago has been read: OK.
7.  The offset has stood still for all of the time, or more than twice as long as it moved before: STALL where somebody
    owns the partition, STOP if nobody does. It is STOP already if it has stood still as long as a move would now be a
    jump by rule 5. It is WARN if it has stood still for more than twice as long as between any two moves before.
8.  The lag fell at least once: OK. Else WARN.

Burrow does not know who owns a partition, and these additions to rules 5 and 7 are not Burrow's. Where no member owns
it, a jump is most likely a reset, which is no reading, and moves before may be those of consumers that are gone. But
moves that go on may be those of a consumer that chose its partitions itself: it commits, and is no member.

A reader that seems to stand still by rule 7 may just commit rarely: ``pace`` looks that up, and then it is unknown.
Or its member works off a backlog in other partitions first: see ``members``.
Queries of Spark keep their own history of batches, which has their rhythm (``Rhythm``). For them

2.  is AHEAD, and records that were deleted before they were read are DATA_LOSS;
5.  wants three batches; before it comes: a batch that runs for more than a minute, and more than five times as long as
    batches take (their median), is STUCK;
    before its first batch is planned, a query is RUNNING for a minute, then unknown;
7.  no batch runs, and the next one is late: STOP. An offset that has stood still over three batches that were finished,
    with records before it all the time: STALL;
8.  is BEHIND where a group would be WARN. A batch that runs, and nothing worse: RUNNING.

Records that were deleted before they were read make a group WARN at least. If it turns out that what is unread has no
records in it, only markers of transactions or holes, everything has been read (``without_records``). If it has records
of aborted transactions only, it cannot be known: a reader of committed records has read everything, another has not,
and a group does not say which it is (``with_aborted``). Burrow cannot distinguish these, and lets its user allow a lag
(pull request 591).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

TELLING_COUNT = 3
TELLING_SPAN_MS = 10_000
"""Twice the default commit interval of consumers."""
STUCK_FACTOR = 5
STUCK_MS = 60_000
"""A program's first batch takes longer than others, and so do some in between."""


class LagStatus(StrEnum):
    """How a reader is doing; the later, the worse."""

    OK = "OK"
    RUNNING = "RUNNING"
    UNKNOWN = "UNKNOWN"
    WARN = "WARN"
    BEHIND = "BEHIND"
    STALL = "STALL"
    STUCK = "STUCK"
    STOP = "STOP"
    DATA_LOSS = "DATA_LOSS"
    AHEAD = "AHEAD"
    REWIND = "REWIND"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    @property
    def is_fine(self) -> bool:
        return self in (LagStatus.OK, LagStatus.RUNNING)

    @property
    def is_trouble(self) -> bool:
        """Whether something is wrong or may become so; not where too little is known."""
        return not self.is_fine and self is not LagStatus.UNKNOWN

    @property
    def is_bad(self) -> bool:
        """Whether an operator has to act."""
        return self.rank >= LagStatus.STALL.rank


_RANKS = {status: rank for rank, status in enumerate(LagStatus)}


class Reason(StrEnum):
    """Why a status was given."""

    CAUGHT_UP = "caught_up"
    NO_RECORDS = "no_records"
    ONLY_ABORTED = "only_aborted"
    KEEPS_UP = "keeps_up"
    LAG_FELL = "lag_fell"
    LAG_NEVER_FELL = "lag_never_fell"
    STANDS_STILL = "stands_still"
    NOBODY_READS = "nobody_reads"
    WENT_BACK = "went_back"
    AHEAD_OF_LOG = "ahead_of_log"
    RECORDS_LOST = "records_lost"
    TOO_FEW_SAMPLES = "too_few_samples"
    BETWEEN_COMMITS = "between_commits"
    MEMBER_DRAINS = "member_drains"
    NOTHING_COMMITTED = "nothing_committed"
    NO_OFFSETS_SHOWN = "no_offsets_shown"
    """Of a whole group: it has none, or Kafka leaves them out because the principal may not describe their topics."""
    COMMITTED_UNKNOWN = "committed_unknown"
    NO_LEADER = "no_leader"
    NO_SUCH_PARTITION = "no_such_partition"
    END_UNKNOWN = "end_unknown"
    BATCH_RUNS = "batch_runs"
    BATCH_TOO_LONG = "batch_too_long"
    ENDED_IN_BATCH = "ended_in_batch"
    BATCH_IS_LATE = "batch_is_late"
    STARTS = "starts"
    NO_BATCH_YET = "no_batch_yet"
    NO_POSITION = "no_position"


_OF_UNREAD = frozenset(
    {
        Reason.KEEPS_UP,
        Reason.LAG_FELL,
        Reason.LAG_NEVER_FELL,
        Reason.STANDS_STILL,
        Reason.NOBODY_READS,
        Reason.WENT_BACK,
        Reason.TOO_FEW_SAMPLES,
        Reason.MEMBER_DRAINS,
        Reason.BATCH_RUNS,
        Reason.ENDED_IN_BATCH,
        Reason.BATCH_IS_LATE,
    }
)
"""Reasons that rest on there being something to read."""


_BEHIND = frozenset({Reason.STANDS_STILL, Reason.NOBODY_READS, Reason.LAG_NEVER_FELL})
"""Those of readers that seem to be left behind."""


class Point(NamedTuple):
    """One partition of one group at a moment; None is unknown."""

    time_ms: int
    committed: int | None
    end: int | None


class KnownPoint(NamedTuple):
    """A point with both offsets known."""

    time_ms: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return self.end - self.committed


class Rhythm(NamedTuple):
    """How a Spark query runs its batches.

    ``in_flight_ms`` is how long a batch has been running, None if none is; ``batch_ms`` is how long batches take, None
    if none has finished yet; ``is_late`` is whether the next one should have started, None if unknown. ``has_ended``:
    the query's run is over.
    """

    in_flight_ms: int | None = None
    batch_ms: int | None = None
    is_late: bool | None = None
    has_ended: bool = False

    @property
    def is_stuck(self) -> bool:
        if self.in_flight_ms is None or self.batch_ms is None:
            return False
        return self.in_flight_ms > max(STUCK_FACTOR * self.batch_ms, STUCK_MS)


class Verdict(NamedTuple):
    """A status and why."""

    status: LagStatus
    reason: Reason


def judge(
    points: Sequence[Point],
    *,
    is_owned: bool | None,
    start: int | None = None,
    why_unknown: Reason | None = None,
    rhythm: Rhythm | None = None,
) -> Verdict:
    """Return how one partition's reader is doing.

    Args:
        points: samples in the order of time; the last one is now.
        is_owned: whether a member owns the partition now; None if unknown.
        start: the first offset that is still in the log.
        why_unknown: why the last point has something unknown.
        rhythm: that of a query of Spark, whose points before the last one are of its batches; None for a group.
    """
    last = points[-1]
    if last.committed is None:
        return Verdict(LagStatus.UNKNOWN, why_unknown or Reason.NOTHING_COMMITTED)
    if last.end is None:
        return Verdict(LagStatus.UNKNOWN, why_unknown or Reason.END_UNKNOWN)
    is_lost = start is not None and last.committed < start
    if rhythm is not None:
        return _judge_query(known_points(points), rhythm, is_lost=is_lost)
    verdict = _judge_known(known_points(points), is_owned)
    if is_lost and verdict.status.rank < LagStatus.WARN.rank:
        return Verdict(LagStatus.WARN, Reason.RECORDS_LOST)
    return verdict


def without_position(started_ms: int | None, now_ms: int, *, has_batches: bool) -> Verdict:
    """Return the verdict on a query of Spark whose files name no offset, or not yet."""
    if has_batches:
        return Verdict(LagStatus.UNKNOWN, Reason.NO_POSITION)
    if started_ms is not None and now_ms - started_ms < STUCK_MS:
        return Verdict(LagStatus.RUNNING, Reason.STARTS)
    return Verdict(LagStatus.UNKNOWN, Reason.NO_BATCH_YET)


def without_records(verdict: Verdict) -> Verdict:
    """Return the verdict once it is known that no record is unread."""
    if verdict.reason in _OF_UNREAD:
        return Verdict(LagStatus.OK, Reason.NO_RECORDS)
    return verdict


def is_doubtful(verdict: Verdict) -> bool:
    """Whether a reader gets this verdict even if all that is unread are markers, holes or aborted records."""
    return verdict.reason in _BEHIND and verdict.status.is_trouble


def with_aborted(verdict: Verdict) -> Verdict:
    """Return the verdict once it is known that all unread records are of aborted transactions."""
    return Verdict(LagStatus.UNKNOWN, Reason.ONLY_ABORTED) if is_doubtful(verdict) else verdict


def known_points(points: Sequence[Point]) -> list[KnownPoint]:
    """Return the points whose offsets are both known, since the log was last cut or recreated."""
    known = [KnownPoint(p.time_ms, p.committed, p.end) for p in points if p.committed is not None and p.end is not None]
    for index in range(len(known) - 1, 0, -1):
        if known[index].end < known[index - 1].end:
            return known[index:]
    return known


def is_telling(points: Sequence[KnownPoint]) -> bool:
    """Whether movement can be seen: three samples, or two that are ten seconds apart."""
    if len(points) < TELLING_COUNT:
        return len(points) > 1 and points[-1].time_ms - points[0].time_ms >= TELLING_SPAN_MS
    return True


def went_back(points: Sequence[KnownPoint]) -> bool:
    """Whether an offset is lower than the one before it, and none since has reached that again."""
    highest_before, is_back = -1, False
    for before, after in pairwise(points):
        if after.committed < before.committed:
            highest_before, is_back = max(highest_before, before.committed), True
        elif is_back and after.committed >= highest_before:
            is_back = False
    return is_back


def is_working_off(points: Sequence[KnownPoint]) -> bool:
    """Whether the offset moves through a backlog: after a move, what was there two samples before was still unread."""
    if not is_telling(points) or _stands_still(points):
        return False
    return any(not _keeps_up(points[: index + 1]) for index in _moves(points))


def is_draining(points: Sequence[KnownPoint]) -> bool:
    """Whether less is unread than at first."""
    return points[-1].lag < points[0].lag


def group_verdict(verdicts: Sequence[tuple[str, Verdict]]) -> tuple[Verdict | None, str | None]:
    """Return the worst verdict of a group and where it was given; None for a group without partitions.

    A partition without a commit says nothing about the group, unless no partition has one. Among partitions with the
    same status, one with unread records says more than one without.
    """
    telling = [verdict for verdict in verdicts if verdict[1].reason is not Reason.NOTHING_COMMITTED] or list(verdicts)
    if not telling:
        return None, None
    where, worst = max(telling, key=lambda pair: (pair[1].status.rank, pair[1].reason in _OF_UNREAD))
    return worst, where


def _judge_known(points: Sequence[KnownPoint], is_owned: bool | None) -> Verdict:
    last = points[-1]
    if last.lag < 0:
        return Verdict(LagStatus.REWIND, Reason.AHEAD_OF_LOG)
    if last.lag == 0:
        return Verdict(LagStatus.OK, Reason.CAUGHT_UP)
    if went_back(points):
        return Verdict(LagStatus.REWIND, Reason.WENT_BACK)
    if is_owned is False:
        points = _since_a_jump(points)
    if not is_telling(points):
        return Verdict(LagStatus.UNKNOWN, Reason.TOO_FEW_SAMPLES)
    if not _keeps_up(points) and (_stands_still(points) or (is_owned is False and _has_stopped(points))):
        if is_owned is False:
            return Verdict(LagStatus.STOP, Reason.NOBODY_READS)
        return Verdict(LagStatus.STALL, Reason.STANDS_STILL)
    if not _keeps_up(points) and len(_moves(points)) > 1 and _has_stopped(points, factor=2):
        return Verdict(LagStatus.WARN, Reason.STANDS_STILL)
    return _trend(points, LagStatus.WARN)


def _judge_query(points: Sequence[KnownPoint], rhythm: Rhythm, *, is_lost: bool) -> Verdict:
    last = points[-1]
    if last.lag < 0:
        return Verdict(LagStatus.AHEAD, Reason.AHEAD_OF_LOG)
    if last.lag == 0:
        return Verdict(LagStatus.OK, Reason.CAUGHT_UP)
    if is_lost:
        return Verdict(LagStatus.DATA_LOSS, Reason.RECORDS_LOST)
    if went_back(points):
        return Verdict(LagStatus.REWIND, Reason.WENT_BACK)
    if rhythm.has_ended and rhythm.in_flight_ms is not None:
        return Verdict(LagStatus.STOP, Reason.ENDED_IN_BATCH)
    if rhythm.is_stuck:
        return Verdict(LagStatus.STUCK, Reason.BATCH_TOO_LONG)
    if rhythm.in_flight_ms is None and rhythm.is_late:
        return Verdict(LagStatus.STOP, Reason.BATCH_IS_LATE)
    is_running = rhythm.in_flight_ms is not None
    # The last point is the present, not made by a batch.
    if len(points) <= TELLING_COUNT:
        if is_running:
            return Verdict(LagStatus.RUNNING, Reason.BATCH_RUNS)
        return Verdict(LagStatus.UNKNOWN, Reason.TOO_FEW_SAMPLES)
    if not _keeps_up(points) and all(point.committed == last.committed for point in points[-TELLING_COUNT - 1 :]):
        return Verdict(LagStatus.STALL, Reason.STANDS_STILL)
    trend = _trend(points, LagStatus.BEHIND)
    if is_running and trend.status is LagStatus.OK:
        return Verdict(LagStatus.RUNNING, Reason.BATCH_RUNS)
    return trend


def _keeps_up(points: Sequence[KnownPoint]) -> bool:
    """Whether everything that existed two samples ago has been read."""
    return points[-1].committed >= points[-min(3, len(points))].end


def _trend(points: Sequence[KnownPoint], otherwise: LagStatus) -> Verdict:
    if _keeps_up(points):
        return Verdict(LagStatus.OK, Reason.KEEPS_UP)
    if any(after.lag < before.lag for before, after in pairwise(points)):
        return Verdict(LagStatus.OK, Reason.LAG_FELL)
    return Verdict(otherwise, Reason.LAG_NEVER_FELL)


def _stands_still(points: Sequence[KnownPoint]) -> bool:
    last = points[-1]
    since = last
    for point in reversed(points):
        if point.committed != last.committed:
            break
        since = point
    still_ms, moving_ms = last.time_ms - since.time_ms, since.time_ms - points[0].time_ms
    return still_ms > 2 * moving_ms


def _moves(points: Sequence[KnownPoint]) -> list[int]:
    """Return where the offset differs from the one before."""
    return [index for index in range(1, len(points)) if points[index].committed != points[index - 1].committed]


def _since_a_jump(points: Sequence[KnownPoint]) -> Sequence[KnownPoint]:
    """Return the points since the last jump; all if there was none."""
    moves = _moves(points)
    begin, longest_ms = 0, 0
    if len(moves) == 1 and not _keeps_up(points[: moves[0]]):
        begin = moves[0]
    for before, after in pairwise(moves):
        still_ms = points[after].time_ms - points[before].time_ms
        if still_ms > longest_ms and is_telling(points[before:after]) and not _keeps_up(points[:after]):
            begin = after
        longest_ms = max(longest_ms, still_ms)
    return points[begin:]


def _has_stopped(points: Sequence[KnownPoint], factor: int = 1) -> bool:
    """Whether the offset moved, and has stood still since for more than ``factor`` times as long as before."""
    times_ms = [points[0].time_ms, *(points[index].time_ms for index in _moves(points))]
    if len(times_ms) == 1:
        return False
    longest_ms = max(after - before for before, after in pairwise(times_ms))
    return is_telling(points[_moves(points)[-1] :]) and points[-1].time_ms - times_ms[-1] > factor * longest_ms
