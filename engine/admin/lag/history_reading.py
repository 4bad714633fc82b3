"""Reads a lag history: which readers were behind, when, and how long they missed an objective. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Final

from engine.admin.groups.scope import is_pattern
from engine.admin.lag.history_folder import Lake, SampleFile, day_of
from engine.admin.lag.verdicts import LagStatus

_COLUMNS: Final = (
    "sample", "time", "cluster", "kind", "group", "source", "path", "topic", "partition", "status", "group_status",
    "lag", "time_lag_ms",
)  # fmt: skip
_KEY: Final = ("cluster", "kind", "group", "source", "path")
_GAP_FACTOR: Final = 2
"""A sample stands for the time until the next one, but for at most this many intervals."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The limits for a reader: ``lag`` and ``time_lag_ms`` are the most that is allowed.

    Without either a reader is outside while its status is bad: STALL or worse.
    """

    lag: int | None = None
    time_lag_ms: int | None = None

    def is_met(self, moment: Moment) -> bool | None:
        if self.lag is None and self.time_lag_ms is None:
            return None if moment.status is LagStatus.UNKNOWN else not moment.status.is_bad
        known = [
            value <= most
            for value, most in ((moment.lag, self.lag), (moment.time_lag_ms, self.time_lag_ms))
            if most is not None and value is not None
        ]
        if not all(known):
            return False
        wanted = (self.lag is not None) + (self.time_lag_ms is not None)
        return True if len(known) == wanted else None


@dataclass(frozen=True, slots=True)
class Moment:
    """One reader in one sample: its lag over all partitions, None if no partition's is known."""

    time_ms: int
    status: LagStatus
    lag: int | None
    time_lag_ms: int | None


@dataclass(frozen=True, slots=True)
class ReaderHistory:
    """One group, or one source of a query, or what either reads of one partition.

    Minutes are those that samples stand for. 95 % of the samples with a known lag have ``p95_lag`` or less.
    """

    cluster: str
    kind: str
    group: str
    source: str | None
    path: str | None
    topic: str | None
    partition: int | None
    """Both None if it is about all partitions."""
    sample_count: int
    first: datetime
    last: datetime
    last_status: LagStatus
    last_lag: int | None
    max_lag: int | None
    mean_lag: float | None
    p95_lag: int | None
    max_time_lag_ms: int | None
    minutes: float
    outside_minutes: float
    unknown_minutes: float
    moments: tuple[Moment, ...]


@dataclass(frozen=True, slots=True)
class LagHistory:
    """All readers, the worst first, and the usual time between samples."""

    readers: tuple[ReaderHistory, ...]
    sample_count: int
    interval_ms: int | None


def read_lake(
    lake: Lake,
    since_ms: int,
    until_ms: int,
    objective: Objective,
    groups: Sequence[str] = (),
    *,
    by_partition: bool = False,
) -> LagHistory:
    """Return the history of a span of time; of all readers if no group is named, and of each partition if asked to.

    ``groups`` are ids or patterns of whole ids.

    Raises:
        NotFound: there is no history.
    """
    lake.check()
    files = lake.files(since_ms, until_ms)
    only = _of_groups(groups) if groups else None
    moments = _moments(lake.read(files, _COLUMNS, only), by_partition=by_partition)
    times = sorted({file.time_ms for file in files})
    interval_ms = round(median(after - before for before, after in pairwise(times))) if len(times) > 1 else None
    readers = [_reader(key, series, interval_ms, objective) for key, series in moments.items()]
    readers.sort(
        key=lambda reader: (
            -reader.outside_minutes,
            -(reader.max_lag or 0),
            reader.cluster,
            reader.group,
            reader.source or "",
            reader.topic or "",
            reader.partition or 0,
        )
    )
    return LagHistory(tuple(readers), len(times), interval_ms)


def _of_groups(groups: Sequence[str]) -> object:
    """Return the condition of rows."""
    from pyarrow import compute

    name = compute.field("group")
    only = name.isin(list(groups))
    for text in filter(is_pattern, groups):
        only = only | compute.match_substring_regex(name, f"^(?:{text})$")
    return only


_Key = tuple[str, str, str, str | None, str | None, str | None, int | None]


def _moments(table: object, *, by_partition: bool) -> dict[_Key, list[Moment]]:
    """Add up partitions, or keep them apart, column by column: there may be very many rows."""
    status_of = "status" if by_partition else "group_status"
    keys = [*_KEY, "topic", "partition"] if by_partition else list(_KEY)
    grouped = table.group_by([*keys, "time", status_of]).aggregate(  # type: ignore[attr-defined]
        [("lag", "sum"), ("lag", "count"), ("time_lag_ms", "max")]
    )
    ordered = grouped.sort_by("time")
    times = ordered["time"].cast("int64").to_pylist()
    values = [ordered[name].to_pylist() for name in (status_of, "lag_sum", "lag_count", "time_lag_ms_max")]
    whose = zip(*(ordered[name].to_pylist() for name in keys), strict=True)
    moments: dict[_Key, list[Moment]] = {}
    for key, time_ms, status, lag, known, wait in zip(whose, times, *values, strict=True):
        cluster, kind, group, source, path, topic, partition = (*key, None, None)[: len(_KEY) + 2]
        moment = Moment(time_ms, LagStatus(status or LagStatus.UNKNOWN), lag if known else None, wait)
        moments.setdefault((cluster, kind, group, source, path, topic, partition), []).append(moment)
    return moments


def _reader(key: _Key, series: list[Moment], interval_ms: int | None, objective: Objective) -> ReaderHistory:
    lags = [sample.lag for sample in series if sample.lag is not None]
    waits = [sample.time_lag_ms for sample in series if sample.time_lag_ms is not None]
    spans = _spans_ms(series, interval_ms)
    met = [objective.is_met(sample) for sample in series]
    return ReaderHistory(
        *key,
        len(series),
        _time(series[0].time_ms),
        _time(series[-1].time_ms),
        series[-1].status,
        series[-1].lag,
        max(lags, default=None),
        sum(lags) / len(lags) if lags else None,
        sorted(lags)[ceil(0.95 * len(lags)) - 1] if lags else None,
        max(waits, default=None),
        sum(spans) / 60_000,
        sum(span for span, is_met in zip(spans, met, strict=True) if is_met is False) / 60_000,
        sum(span for span, is_met in zip(spans, met, strict=True) if is_met is None) / 60_000,
        tuple(series),
    )


def _spans_ms(series: Sequence[Moment], interval_ms: int | None) -> list[int]:
    """Return how long each sample stands for."""
    if interval_ms is None:
        return [0] * len(series)
    spans = [min(after.time_ms - before.time_ms, _GAP_FACTOR * interval_ms) for before, after in pairwise(series)]
    return [*spans, interval_ms]


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


# Merges many files of a lag history into few, while samples are added and others read it.
#
# It touches only days that are over. It first writes a chunk's samples as one new file, which counts once it is whole,
# then deletes the files that this replaces. Whatever a killed run leaves, readers see each sample once, and the next
# run removes the rest.


@dataclass(frozen=True, slots=True)
class CompactedDay:
    """A day whose files became fewer."""

    day: str
    files_before: int
    files_after: int


def compact(lake: Lake, now_ms: int) -> list[CompactedDay]:
    """Compact all days before today; return those with something to do.

    Raises:
        NotFound, BadRequest, Unreachable: there is no history, or it cannot be written.
    """
    lake.check()
    today = f"day={day_of(now_ms)}"
    days = [_compact_day(lake, name) for name in lake.days() if name < today]
    return [day for day in days if day is not None]


def _compact_day(lake: Lake, name: str) -> CompactedDay | None:
    day = lake.day(name)
    files_before = len({sample.path for sample in day.samples} | set(day.useless))
    for chunk in sorted({piece.chunk for piece in day.fresh}):
        files = sorted((sample for sample in day.samples if sample.chunk == chunk), key=_by_time)
        if len(files) > 1:
            lake.write_many(day, chunk, files)
    after = lake.day(name)
    if not after.useless:
        return None
    lake.delete(after.useless)
    return CompactedDay(name.removeprefix("day="), files_before, len({sample.path for sample in after.samples}))


def _by_time(file: SampleFile) -> tuple[int, int]:
    return file.time_ms, file.sample
