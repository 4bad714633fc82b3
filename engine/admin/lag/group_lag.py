"""The answer: how far behind groups are, partition by partition. Pure. Unknown values are None, never a number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from engine.admin.cluster.errors import AdminError, Unknown
from engine.admin.groups.values import GroupState, GroupType
from engine.admin.lag.pace import UNKNOWN_TREND, Owned, Trend, between_commits, sum_of_trends, trend_of, turns_of
from engine.admin.lag.sampling import GroupSample, PartitionSample
from engine.admin.lag.spark_positions import ReaderKind
from engine.admin.lag.unread import Behind, Place, Times, UnreadRecord, record_before
from engine.admin.lag.verdicts import (
    LagStatus,
    Point,
    Reason,
    Rhythm,
    Verdict,
    group_verdict,
    is_doubtful,
    judge,
    known_points,
    with_aborted,
    without_records,
)
from engine.common.model import TopicPartition
from engine.common.moments import calendar_time

CLOCK_AHEAD_MS = 2_000
"""Clocks that are set by NTP are less apart."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of one group. ``lag`` counts offsets: markers and holes of compaction are among them.

    ``time_lag_ms`` is how long the first unread record has been waiting; ``span_ms`` is the time between that record
    and the newest one. Both go by the timestamps of records; one ahead of this machine's clock says nothing.
    """

    topic: str
    partition: int
    status: LagStatus
    reason: Reason
    committed_offset: int | None
    log_end_offset: int | None
    lag: int | None
    lost_records: int | None
    """How many offsets lie between the committed one and the first that still exists; None if none were lost."""
    time_lag_ms: int | None
    span_ms: int | None
    unread_since: datetime | None
    in_per_sec: float | None
    out_per_sec: float | None
    clear_in_ms: int | None
    consumer_id: str | None
    error: str | None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def has_lag(self) -> bool:
        """Whether there is a lag, known or not: none before the first commit, none in a partition that is gone."""
        return self.reason not in (Reason.NOTHING_COMMITTED, Reason.NO_SUCH_PARTITION)

    @property
    def is_behind(self) -> bool:
        """Whether records are unread, as far as is known. Markers, gaps and aborted records do not count."""
        return bool(self.lag) and self.reason not in (Reason.NO_RECORDS, Reason.ONLY_ABORTED)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One group. Sums and maxima cover the partitions with known values; the count says how many are unknown.

    ``lag`` and ``time_lag_ms`` are never 0 because of what is not known: then they are None, or a lower bound. A query
    of Spark is a group of no type; see ``QueryLag``.
    """

    group: str
    type: GroupType | None
    state: GroupState | None
    status: LagStatus
    reason: Reason | None
    where: str | None
    """The partition that the status is about."""
    lag: int | None
    time_lag_ms: int | None
    in_per_sec: float | None
    out_per_sec: float | None
    clear_in_ms: int | None
    partition_count: int
    unknown_partition_count: int
    sample_count: int
    window_ms: int
    error: str | None
    partitions: tuple[PartitionLag, ...]
    kind: ReaderKind = ReaderKind.GROUP

    @property
    def is_rebalancing(self) -> bool:
        """Whether nobody owns a partition now: one member that does not join again keeps all others waiting."""
        return self.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)

    @property
    def has_unknown_lag(self) -> bool:
        """Whether a partition's lag is not known, because it has no leader for example: ``lag`` is a lower bound."""
        return self.unknown_partition_count > 0 and any(
            partition.lag is None and partition.has_lag for partition in self.partitions
        )

    @property
    def has_unknown_time_lag(self) -> bool:
        """Whether it is not known how long a partition's records have waited: ``time_lag_ms`` is a lower bound."""
        return any(partition.time_lag_ms is None and partition.has_lag for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class QueryPartitionLag(PartitionLag):
    """One partition of a query of Spark. ``lag`` counts from ``committed``: what a restart would read again."""

    planned: int | None = None
    committed: int | None = None
    end: int | None = None
    start: int | None = None
    planned_lag: int | None = None


@dataclass(frozen=True, slots=True)
class QueryLag(GroupLag):
    """One source of a query of Spark.

    ``in_flight`` is how many offsets are planned and not finished, ``in_flight_since`` when their batch was planned.
    """

    partitions: tuple[QueryPartitionLag, ...]
    query_id: str = ""
    run_id: str | None = None
    batch_id: int | None = None
    source: str = ""
    path: str = ""
    in_flight: int | None = None
    in_flight_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class LagAnswer:
    """All groups, the worst first, and what could not be read."""

    time: datetime
    groups: tuple[GroupLag, ...]
    failures: tuple[AdminError, ...] = ()


_AT_A_STANDSTILL = (LagStatus.STOP, LagStatus.STALL, LagStatus.STUCK)
"""A reader that stands still will never catch up, however fast it was before."""

Series = Mapping[TopicPartition, Sequence[Point]]
"""The samples of a group's partitions; the last point of each is now."""

Followed = tuple[GroupSample, Series, Collection[TopicPartition]]
"""A group, its samples, and the partitions whose reader commits rarely, and is not late."""

_NOT_LOOKED: Final = Behind()
_NOT_READ: Final = Unknown("not read")


def group_lag(
    sample: GroupSample,
    series: Series,
    times: Times,
    now_ms: int,
    within_pace: Collection[TopicPartition] = (),
    rhythms: Mapping[TopicPartition, Rhythm] | None = None,
    behind: Behind = _NOT_LOOKED,
) -> GroupLag:
    """Return how far behind a group is.

    Args:
        times: the records at committed offsets, and at the ends, as far as they were read.
        within_pace: partitions whose reader commits rarely, and is not late.
        rhythms: of a query of Spark, by partition.
        behind: the answers about the places of ``doubtful_places``.
    """
    known_rhythms = rhythms or {}
    partitions = tuple(
        _partition_lag(
            name,
            partition,
            series[name],
            times,
            now_ms,
            is_within_pace=name in within_pace,
            rhythm=known_rhythms.get(name),
            behind=behind,
        )
        for name, partition in sorted(sample.partitions.items())
    )
    partitions = _judged_with_members(partitions, series)
    verdict, where = group_verdict(
        [(partition.name, Verdict(partition.status, partition.reason)) for partition in partitions]
    )
    if verdict is None and sample.error is None:
        verdict = Verdict(LagStatus.UNKNOWN, Reason.NO_OFFSETS_SHOWN)
    lags = [partition.lag for partition in partitions if partition.has_lag or partition.lag is not None]
    waits = [
        partition.time_lag_ms for partition in partitions if partition.has_lag or partition.time_lag_ms is not None
    ]
    trend = sum_of_trends(Trend(partition.in_per_sec, partition.out_per_sec) for partition in partitions)
    spans = [(points[0].time_ms, points[-1].time_ms) for points in series.values()]
    return GroupLag(
        sample.group,
        sample.type,
        sample.state,
        LagStatus.UNKNOWN if verdict is None else verdict.status,
        None if verdict is None else verdict.reason,
        where,
        _at_least(lags, sum),
        _at_least(waits, max),
        trend.in_per_sec,
        trend.out_per_sec,
        _clear_in(partitions),
        len(partitions),
        sum(partition.lag is None for partition in partitions),
        max((len(points) for points in series.values()), default=0),
        max((last - first for first, last in spans), default=0),
        sample.error,
        partitions,
    )


def place_of_unread(name: TopicPartition, sample: PartitionSample) -> Place | None:
    """Return where the first unread record is, or None if there is none or that is unknown."""
    if sample.committed is None or sample.end is None or sample.committed >= sample.end:
        return None
    return Place(name, max(sample.committed, sample.start or 0))


def place_of_newest(name: TopicPartition, sample: PartitionSample) -> Place | None:
    """Return where the newest record is, for a partition with unread ones."""
    return None if place_of_unread(name, sample) is None or sample.end is None else Place(name, sample.end - 1)


def doubtful_places(followed: Iterable[Followed], times: Times) -> dict[Place, int]:
    """Return where readers seem to be left behind that may have nothing to read, and where what counts ends.

    A record outside of transactions, which may be aborted, is one for every reader.
    """
    ends: dict[Place, int] = {}
    for sample, series, within_pace in followed:
        for name, partition in sample.partitions.items():
            place = place_of_unread(name, partition)
            if place is None or partition.end is None or name in within_pace:
                continue
            record = times.get(place)
            may_be_none = place not in times or (isinstance(record, UnreadRecord) and record.is_transactional)
            verdict = judge(series[name], is_owned=partition.is_owned, start=partition.start)
            if may_be_none and is_doubtful(verdict):
                ends[place] = max(partition.end, ends.get(place, 0))
    return ends


def _partition_lag(
    name: TopicPartition,
    sample: PartitionSample,
    points: Sequence[Point],
    times: Times,
    now_ms: int,
    *,
    is_within_pace: bool,
    rhythm: Rhythm | None,
    behind: Behind,
) -> PartitionLag:
    verdict = judge(points, is_owned=sample.is_owned, start=sample.start, why_unknown=sample.why_unknown, rhythm=rhythm)
    first = _first_unread(name, sample, times, behind)
    if first is None:
        verdict = without_records(verdict)
    elif place_of_unread(name, sample) in behind.aborted:
        verdict, first = with_aborted(verdict), _NOT_READ
    if is_within_pace:
        verdict = between_commits(verdict)
    is_known = sample.committed is not None and sample.end is not None
    trend = trend_of(known_points(points)) if is_known else UNKNOWN_TREND
    lag = _lag(sample)
    unread, time_lag_ms = _waiting(first, lag, now_ms)
    since = None if unread is None else calendar_time(unread)
    newest = times.get(place) if (place := place_of_newest(name, sample)) is not None else None
    return PartitionLag(
        *name,
        *verdict,
        sample.committed,
        sample.end,
        lag,
        _lost(sample),
        time_lag_ms,
        _span(unread, newest),
        since if isinstance(since, datetime) else None,
        trend.in_per_sec,
        trend.out_per_sec,
        _clear(verdict, trend, lag, has_ended=rhythm is not None and rhythm.has_ended),
        sample.owner,
        sample.error,
    )


def _clear(verdict: Verdict, trend: Trend, lag: int | None, *, has_ended: bool) -> int | None:
    if verdict.reason is Reason.NO_RECORDS:
        return 0
    return None if verdict.status in _AT_A_STANDSTILL or has_ended else trend.clear_in_ms(lag)


def _judged_with_members(partitions: tuple[PartitionLag, ...], series: Series) -> tuple[PartitionLag, ...]:
    """Return the partitions, those that wait for their turn with what their member does."""
    owned = {}
    for partition in partitions:
        name = TopicPartition(partition.topic, partition.partition)
        points = known_points(series[name]) if partition.lag is not None else []
        if partition.consumer_id is not None and points:
            verdict = Verdict(partition.status, partition.reason)
            owned[name] = Owned(partition.consumer_id, verdict, points, is_lost=partition.lost_records is not None)
    turns = turns_of(owned)
    if not turns:
        return partitions
    judged = []
    for partition in partitions:
        turn = turns.get(TopicPartition(partition.topic, partition.partition))
        if turn is not None:
            status, reason = turn.verdict
            partition = replace(partition, status=status, reason=reason, clear_in_ms=turn.clear_in_ms)
        judged.append(partition)
    return tuple(judged)


def _at_least(figures: Sequence[int | None], of_all: Callable[[list[int]], int]) -> int | None:
    """Return the sum or the maximum of what is known; None if that would be 0 and something is unknown."""
    known = [figure for figure in figures if figure is not None]
    return None if not known or (len(known) < len(figures) and not any(known)) else of_all(known)


def _lag(sample: PartitionSample) -> int | None:
    """Beyond the end there is no lag: it is unknown where the reader will continue."""
    if sample.committed is None or sample.end is None or sample.committed > sample.end:
        return None
    return sample.end - sample.committed


def _lost(sample: PartitionSample) -> int | None:
    if sample.committed is None or sample.start is None or sample.committed >= sample.start:
        return None
    return sample.start - sample.committed


def _first_unread(
    name: TopicPartition, sample: PartitionSample, times: Times, behind: Behind
) -> UnreadRecord | Unknown | None:
    place = place_of_unread(name, sample)
    if place is None or sample.end is None:
        return _NOT_READ
    return None if place in behind.nothing else record_before(sample.end, times.get(place, _NOT_READ))


def _waiting(first: UnreadRecord | Unknown | None, lag: int | None, now_ms: int) -> tuple[int | None, int | None]:
    """Return the first unread record's time and how long it has waited; 0 if nothing is unread.

    Times are those of producers' or brokers' clocks. If one is ahead of ours, it is not known for how long.
    """
    if lag == 0 or first is None:
        return None, 0
    if isinstance(first, Unknown) or first.timestamp_ms is None:
        return None, None
    waited_ms = now_ms - first.timestamp_ms
    return first.timestamp_ms, max(0, waited_ms) if waited_ms >= -CLOCK_AHEAD_MS else None


def _span(unread_ms: int | None, newest: UnreadRecord | Unknown | None) -> int | None:
    if unread_ms is None or not isinstance(newest, UnreadRecord) or newest.timestamp_ms is None:
        return None
    return max(0, newest.timestamp_ms - unread_ms)


def _clear_in(partitions: Sequence[PartitionLag]) -> int | None:
    """Return when the last partition will be done; None if that is unknown for one of them."""
    lagging = [
        partition.clear_in_ms
        for partition in partitions
        if partition.lag != 0 and partition.reason is not Reason.NOTHING_COMMITTED
    ]
    if any(time is None for time in lagging):
        return None
    known = [time for time in lagging if time is not None]
    if known:
        return max(known)
    return 0 if any(partition.lag == 0 for partition in partitions) else None
