"""Queries of Spark, the offsets committed for them, and the history of their lag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table
from cli.output.values import human_duration
from cli.views.groups import reset_report
from cli.views.lag import status_tone
from engine.admin.groups.reset_plan import PartitionReset
from engine.admin.lag.history_reading import CompactedDay, LagHistory, Moment, ReaderHistory
from engine.admin.lag.spark_queries import Job
from engine.common.quantities import counted

_COLUMNS = (
    Column("path"),
    Column("query_id"),
    Column("name"),
    Column("sources", Kind.LIST),
    Column("last_batch", Kind.NUMBER),
    Column("last_commit", Kind.TIME),
    Column("status", tone=status_tone),
    Column("kind"),
    Column("lag", Kind.NUMBER),
)
_SHOWN = (
    Column("name"),
    Column("status", tone=status_tone),
    Column("lag", Kind.NUMBER),
    Column("reads", Kind.LIST),
    Column("last_batch", Kind.NUMBER),
    Column("last_commit", Kind.TIME),
    Column("path", falls_below=True),
)


def jobs_report(jobs: Sequence[Job], *, exit_code: ExitCode) -> Report:
    """A row per query, in order of their places. If reading failed, the report does not claim that there are none."""
    ordered = sorted(jobs, key=lambda job: (job.path, job.name or "", job.query_id))
    rows = [
        (
            row.path,
            row.query_id,
            row.name,
            [f"{source.source}:{'+'.join(source.topics)}" for source in row.sources],
            row.last_batch,
            row.last_commit,
            row.status,
            row.kind,
            row.lag,
        )
        for row in ordered
    ]
    shown = [
        (
            row.name or row.path.rstrip("/").rpartition("/")[2],
            row.status,
            "unknown" if row.lag is None else row.lag,
            sorted({topic for source in row.sources for topic in source.topics}),
            row.last_batch,
            row.last_commit,
            row.path,
        )
        for row in ordered
    ]
    note = "no Spark queries" if not jobs else "1 Spark query" if len(jobs) == 1 else f"{len(jobs)} Spark queries"
    sections = [Section(body=Table(_SHOWN, shown))] if jobs else [Section()]
    notes = (note,) if jobs or exit_code is ExitCode.DONE else ()
    return Report(ordered, Table(_COLUMNS, rows), sections, notes, exit_code=exit_code)


def commit_report(rows: Sequence[PartitionReset], *, exit_code: ExitCode) -> Report:
    """A row per partition, as of a reset."""
    return replace(reset_report(rows, exit_code=exit_code), notes=())


_WIDTH = 60
_HEIGHT = 8
_BLOCKS = " ▁▂▃▄▅▆▇█"

_HISTORY_COLUMNS = (
    Column("cluster"),
    Column("kind"),
    Column("group"),
    Column("source"),
    Column("path"),
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("sample_count", Kind.NUMBER),
    Column("first", Kind.TIME),
    Column("last", Kind.TIME),
    Column("last_status", tone=status_tone),
    Column("last_lag", Kind.NUMBER),
    Column("max_lag", Kind.NUMBER),
    Column("mean_lag", Kind.NUMBER),
    Column("p95_lag", Kind.NUMBER),
    Column("max_time_lag_ms", Kind.DURATION_MS),
    Column("minutes", Kind.NUMBER),
    Column("outside_minutes", Kind.NUMBER),
    Column("unknown_minutes", Kind.NUMBER),
)
_SHOWN_HISTORY = (
    Column("group"),
    Column("cluster", is_dispensable=True),
    Column("outside", title="Outside SLO"),
    Column("unknown", title="Unknown", is_dispensable=True),
    Column("max_lag", Kind.NUMBER, title="Max lag"),
    Column("mean_lag", Kind.NUMBER, title="Mean lag", is_dispensable=True),
    Column("p95_lag", Kind.NUMBER, title="p95 lag"),
    Column("max_time_lag_ms", Kind.DURATION_MS, title="Max time lag"),
    Column("last_lag", Kind.NUMBER, title="Last lag"),
    Column("last_status", title="Status", tone=status_tone),
)


def history_report(history: LagHistory, *, top: int, has_plot: bool) -> Report:
    """A row per reader; with ``has_plot`` a person sees each one's lag over time as well."""
    readers = history.readers[:top]
    shown = Table(_SHOWN_HISTORY, [_shown(reader) for reader in readers])
    sections = [Section(body=shown)] if readers else [Section()]
    if has_plot:
        sections += [Section(f"{_name(reader)}: lag over time", text=plot_lines(reader.moments)) for reader in readers]
    left_out = len(history.readers) - len(readers)
    more = f", {left_out} more with --top" if left_out else ""
    every = "" if history.interval_ms is None else f" {human_duration(history.interval_ms)} apart"
    note = f"{counted(history.sample_count, 'sample')}{every}, {counted(len(history.readers), 'reader')}{more}"
    return Report(
        [_document(reader) for reader in readers],
        Table(
            _HISTORY_COLUMNS,
            [tuple(_document(reader)[column.name] for column in _HISTORY_COLUMNS) for reader in readers],
        ),
        sections,
        (note,),
    )


def compacted_report(days: Sequence[CompactedDay]) -> Report:
    """A row for each day whose files became fewer."""
    columns = (Column("day"), Column("files_before", Kind.NUMBER), Column("files_after", Kind.NUMBER))
    table = Table.of(columns, days)
    fewer = sum(day.files_before - day.files_after for day in days)
    return Report(table.records(), table, notes=(f"{counted(fewer, 'file')} fewer" if days else "nothing to compact",))


def plot_lines(moments: Sequence[Moment], width: int = _WIDTH, height: int = _HEIGHT) -> list[str]:
    """Draw lag over time in blocks; each column is the largest lag of its time, and empty if none is known."""
    known = [moment for moment in moments if moment.lag is not None]
    if not known:
        return ["nothing known"]
    first, last = moments[0].time_ms, moments[-1].time_ms
    span = max(1, last - first)
    columns: list[int | None] = [None] * width
    for point in known:
        index = min(width - 1, (point.time_ms - first) * width // span)
        columns[index] = max(columns[index] or 0, point.lag or 0)
    top = max(1, *(point.lag or 0 for point in known))
    scale = max(len(str(top)), 1)
    lines = []
    for row in range(height, 0, -1):
        label = str(top) if row == height else "0" if row == 1 else ""
        cells = "".join(" " if value is None else _cell(value, top, row, height) for value in columns)
        lines.append(f"{label:>{scale}} │{cells}".rstrip())
    lines.append(f"{'':>{scale}} └{'─' * width}")
    return [*lines, f"{'':>{scale}}  {human_duration(last - first)} from left to right"]


def _cell(value: int, top: int, row: int, height: int) -> str:
    """Return how much of a row a value fills; a lag that is not zero is always visible."""
    eighths = max(1 if value else 0, round(value * height * 8 / top)) - (row - 1) * 8
    if row == 1 and not value:
        return "▁"
    return _BLOCKS[max(0, min(8, eighths))]


def _document(reader: ReaderHistory) -> dict[str, object]:
    document = {field.name: getattr(reader, field.name) for field in fields(reader) if field.name != "moments"}
    return {name: round(value, 1) if isinstance(value, float) else value for name, value in document.items()}


def _shown(reader: ReaderHistory) -> tuple[object, ...]:
    return (
        _name(reader),
        reader.cluster,
        _minutes(reader.outside_minutes),
        _minutes(reader.unknown_minutes),
        reader.max_lag,
        None if reader.mean_lag is None else round(reader.mean_lag, 1),
        reader.p95_lag,
        reader.max_time_lag_ms,
        reader.last_lag,
        reader.last_status,
    )


def _minutes(minutes: float) -> str:
    return human_duration(round(minutes * 60_000)) if minutes else "0"


def _name(reader: ReaderHistory) -> str:
    name = reader.group if reader.source in (None, "0") else f"{reader.group}, source {reader.source}"
    return name if reader.topic is None else f"{name}, {reader.topic}-{reader.partition}"
