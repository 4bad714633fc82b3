"""How far behind groups are: a row per group or partition, the worst first; for people, with the reason in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Nothing, Report, Section, Table, Tone, cells_of
from cli.output.values import human_duration
from engine.admin.lag.group_lag import GroupLag, LagAnswer, PartitionLag, QueryLag, QueryPartitionLag
from engine.admin.lag.metrics import lag_metrics
from engine.admin.lag.spark_positions import ReaderKind
from engine.admin.lag.verdicts import LagStatus, Reason
from engine.common.quantities import counted

_UNKNOWN = "unknown"
_WORDS = {
    Reason.CAUGHT_UP: "",
    Reason.NO_RECORDS: "no record is unread, only markers or gaps",
    Reason.ONLY_ABORTED: "all unread records are of aborted transactions",
    Reason.KEEPS_UP: "",
    Reason.LAG_FELL: "the lag falls",
    Reason.LAG_NEVER_FELL: "the lag never falls",
    Reason.STANDS_STILL: "does not move, though somebody reads it",
    Reason.NOBODY_READS: "nobody reads it",
    Reason.WENT_BACK: "went back",
    Reason.AHEAD_OF_LOG: "committed beyond the end of the log",
    Reason.RECORDS_LOST: "records were deleted before they were read",
    Reason.TOO_FEW_SAMPLES: "too few samples to tell",
    Reason.BETWEEN_COMMITS: "commits rarely, and is not late",
    Reason.MEMBER_DRAINS: "waits while its consumer drains other partitions",
    Reason.NOTHING_COMMITTED: "nothing committed",
    Reason.NO_OFFSETS_SHOWN: "no offset that you may see is committed",
    Reason.COMMITTED_UNKNOWN: "committed offset not readable",
    Reason.NO_LEADER: "no leader",
    Reason.NO_SUCH_PARTITION: "the topic or partition does not exist",
    Reason.END_UNKNOWN: "end offset not readable",
    Reason.BATCH_RUNS: "",
    Reason.ENDED_IN_BATCH: "its run has ended in the middle of a batch",
    Reason.BATCH_TOO_LONG: "its batch runs for far longer than others did",
    Reason.BATCH_IS_LATE: "no batch runs, and the next one is late",
    Reason.STARTS: "it has just started, and no batch is planned yet",
    Reason.NO_BATCH_YET: "it has never planned a batch",
    Reason.NO_POSITION: "its last batch names no offset of Kafka's",
}
_TONES = {
    LagStatus.OK: Tone.GOOD,
    LagStatus.UNKNOWN: Tone.QUIET,
    LagStatus.RUNNING: Tone.GOOD,
    LagStatus.WARN: Tone.WARNING,
    LagStatus.BEHIND: Tone.WARNING,
}


_LONG_MS = 5 * 60_000
"""A reader that has not moved for this long stands still."""


def status_tone(value: object) -> Tone | None:
    """Return what a status means to the user."""
    return _TONES.get(value, Tone.BAD) if isinstance(value, LagStatus) else None


_RATES = (
    Column("in_per_sec", Kind.NUMBER, title="In/s"),
    Column("out_per_sec", Kind.NUMBER, title="Out/s"),
    Column("clear_in_ms", Kind.DURATION_MS, title="Clear in"),
)
_LAGS = (Column("lag", Kind.NUMBER), Column("time_lag_ms", Kind.DURATION_MS, title="Time lag"))
_STATUS = Column("status", tone=status_tone)
_OF_GROUP = (
    Column("group"),
    Column("type"),
    Column("state"),
    _STATUS,
    Column("reason"),
    Column("where"),
    *_LAGS,
    *_RATES,
    Column("partition_count", Kind.NUMBER),
    Column("unknown_partition_count", Kind.NUMBER),
    Column("error"),
    Column("kind"),
)
_OF_QUERY = (Column("source"), Column("batch_id", Kind.NUMBER), Column("in_flight", Kind.NUMBER), Column("path"))
_GROUP_COLUMNS = (*_OF_GROUP, *_OF_QUERY)
_GROUP_SHOWN = (Column("group"), _STATUS, *_LAGS, *_RATES, Column("why", falls_below=True))
_OF_PARTITION = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    _STATUS,
    Column("reason"),
    Column("committed_offset", Kind.NUMBER),
    Column("log_end_offset", Kind.NUMBER),
    *_LAGS,
    *_RATES,
    Column("consumer_id"),
    Column("error"),
)
_OF_QUERYS_PARTITION = (Column("planned", Kind.NUMBER), Column("planned_lag", Kind.NUMBER))
_PARTITION_COLUMNS = (
    Column("group"), *_OF_PARTITION, Column("kind"), Column("source"), *_OF_QUERYS_PARTITION, Column("path"),
)  # fmt: skip
_PARTITION_SHOWN = (
    Column("partition"),
    _STATUS,
    Column("committed_offset", Kind.NUMBER, title="Committed"),
    Column("log_end_offset", Kind.NUMBER, title="End"),
    *_LAGS,
    *_RATES,
    Column("why", falls_below=True),
)


def lag_report(answer: LagAnswer, *, fails_on: LagStatus, has_partitions: bool, is_not_ok: bool) -> Report:
    """The groups, or all their partitions; the exit code is 1 if a status is as bad as ``fails_on`` or worse."""
    groups = [group for group in answer.groups if not is_not_ok or not group.status.is_fine]
    is_bad = any(group.status.rank >= fails_on.rank for group in answer.groups)
    if has_partitions:
        rows = [_partition_row(group, partition) for group in groups for partition in _chosen(group, is_not_ok)]
        table = Table(_PARTITION_COLUMNS, rows)
        sections = [_group_section(group, is_not_ok) for group in groups]
    else:
        table = Table(_GROUP_COLUMNS, [_group_row(group) for group in groups])
        sections = [Section(body=Table(_GROUP_SHOWN, [_shown_group(group) for group in groups]))] if groups else []
    return Report(
        [_document(group, answer.time, has_partitions, is_not_ok) for group in groups],
        table,
        sections or [Section()],
        _notes(answer),
        exit_code=ExitCode.BAD_ANSWER if is_bad else ExitCode.DONE,
        metrics=lag_metrics(answer.groups),
    )


def _notes(answer: LagAnswer) -> tuple[str, ...]:
    if answer.failures and not answer.groups:
        return ()
    notes = (_summary(answer.groups), *_ahead(answer))
    watched_ms = min((group.window_ms for group in answer.groups if group.status is LagStatus.STALL), default=_LONG_MS)
    if watched_ms >= _LONG_MS:
        return notes
    doubt = f"watched for {_duration(watched_ms)}: a reader that commits less often looks like STALL too (--interval)"
    return (*notes, doubt)


def _ahead(answer: LagAnswer) -> Iterator[str]:
    """Yield that times are not known because records are dated ahead of this machine's clock."""
    ahead = [
        (partition.unread_since - answer.time, partition.name)
        for group in answer.groups
        for partition in group.partitions
        if partition.time_lag_ms is None and partition.unread_since is not None
    ]
    if ahead:
        by, name = max(ahead)
        yield (
            f"the time lag of {counted(len(ahead), 'partition')} is not known: the first unread record of {name} is "
            f"dated {_duration(round(by.total_seconds() * 1000))} ahead of this machine's clock"
        )


def _summary(groups: Sequence[GroupLag]) -> str:
    if not groups:
        return Nothing("no consumer groups")
    counts = Counter(group.status for group in groups)
    tally = ", ".join(f"{counts[status]} {status}" for status in reversed(LagStatus) if counts[status])
    group_count = sum(group.kind is ReaderKind.GROUP for group in groups)
    sources = [(group.kind, group.path) for group in groups if isinstance(group, QueryLag)]
    queries = set(sources)
    readers = [
        f"{count} {noun if count == 1 else plural}"
        for count, noun, plural in ((group_count, "group", "groups"), (len(queries), "Spark query", "Spark queries"))
        if count
    ]
    if len(sources) > len(queries):
        readers[-1] += f" ({len(sources)} sources)"
    return f"{', '.join(readers)}: {tally}"


def _chosen(group: GroupLag, is_not_ok: bool) -> list[PartitionLag]:
    return [partition for partition in group.partitions if not is_not_ok or not partition.status.is_fine]


def _document(group: GroupLag, time: datetime, has_partitions: bool, is_not_ok: bool) -> dict[str, object]:
    """Return a group as JSON has it; rates with a tenth of a record."""
    document: dict[str, object] = {"time": time}
    document |= {
        field.name: _rounded(getattr(group, field.name)) for field in fields(group) if field.name != "partitions"
    }
    if has_partitions:
        document["partitions"] = [
            {field.name: _rounded(getattr(partition, field.name)) for field in fields(partition)}
            for partition in _chosen(group, is_not_ok)
        ]
    return document


def _rounded(value: object) -> object:
    return round(value, 1) if isinstance(value, float) else value


def _group_row(group: GroupLag) -> tuple[object, ...]:
    return (
        *map(_rounded, cells_of(_OF_GROUP, group)),
        *(cells_of(_OF_QUERY, group) if isinstance(group, QueryLag) else (None,) * len(_OF_QUERY)),
    )


def _partition_row(group: GroupLag, partition: PartitionLag) -> tuple[object, ...]:
    return (
        group.group,
        *map(_rounded, cells_of(_OF_PARTITION, partition)),
        group.kind,
        group.source if isinstance(group, QueryLag) else None,
        *(cells_of(_OF_QUERYS_PARTITION, partition) if isinstance(partition, QueryPartitionLag) else (None, None)),
        group.path if isinstance(group, QueryLag) else None,
    )


def _shown_group(group: GroupLag) -> tuple[object, ...]:
    return (
        _shown_name(group),
        group.status,
        *_shown_figures(group, is_least_lag=group.has_unknown_lag, is_least_time=group.has_unknown_time_lag),
        _why_group(group),
    )


def _shown_name(group: GroupLag) -> str:
    return (
        group.group
        if not isinstance(group, QueryLag) or group.source in ("", "0")
        else f"{group.group}, source {group.source}"
    )


def _shown_figures(
    lag: GroupLag | PartitionLag, *, is_least_lag: bool = False, is_least_time: bool = False
) -> tuple[object, ...]:
    """Return lag, time lag and rates; a lower bound says that it is one."""
    return (
        _UNKNOWN if lag.lag is None else f"≥ {lag.lag}" if is_least_lag else lag.lag,
        _UNKNOWN if lag.time_lag_ms is None else f"{'≥ ' * is_least_time}{_duration(lag.time_lag_ms)}",
        _rounded(lag.in_per_sec),
        _rounded(lag.out_per_sec),
        None if lag.clear_in_ms is None else _duration(lag.clear_in_ms),
    )


def _duration(duration_ms: int) -> str:
    return human_duration(duration_ms) if duration_ms else "0"


def _why_group(group: GroupLag) -> str:
    if group.error is not None:
        return group.error
    if group.reason is None:
        return "nothing committed"
    words = _words(group.reason, group)
    if group.reason is Reason.BATCH_RUNS and isinstance(group, QueryLag) and group.in_flight_since is not None:
        # Files show that it was planned. Only an event log says that it has ended.
        words = f"its batch is not finished since {group.in_flight_since:%H:%M:%S} UTC"
    if group.where is None:
        return words
    more = group.unknown_partition_count
    is_told = more and (group.status is not LagStatus.UNKNOWN or group.has_unknown_lag)
    unknown = f"{more} of {group.partition_count} partitions unknown" if is_told else ""
    return "; ".join(part for part in (f"{group.where}: {words}" if words else "", unknown) if part)


def _group_section(group: GroupLag, is_not_ok: bool) -> Section:
    kind = group.type if not isinstance(group, QueryLag) else f"{group.kind.replace('_', ' ')} {group.path}"
    state = "" if group.state is None else f", {group.state}"
    rows = [
        (
            partition.name,
            partition.status,
            _or_unknown(partition.committed_offset),
            _or_unknown(partition.log_end_offset),
            *_shown_figures(partition),
            _why(partition, group),
        )
        for partition in _chosen(group, is_not_ok)
    ]
    return Section(
        f"{_shown_name(group)} ({kind}{state}): {group.status}",
        Table(_PARTITION_SHOWN, rows),
        () if group.error is None else (group.error,),
    )


def _or_unknown(offset: int | None) -> object:
    return _UNKNOWN if offset is None else offset


def _words(reason: Reason, group: GroupLag) -> str:
    if reason is Reason.STANDS_STILL and group.is_rebalancing:
        return "does not move, because the group rebalances"
    return _WORDS[reason]


def _why(partition: PartitionLag, group: GroupLag) -> str:
    words = partition.error or _words(partition.reason, group)
    if partition.lost_records is not None:
        words = f"{words}; {partition.lost_records} lost" if words else f"{partition.lost_records} lost"
    return words
