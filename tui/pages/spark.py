"""Spark's streaming queries with their lag; and one source of a query, partition by partition.

A cluster does not know them: they are in checkpoints and event logs, which the user has to name. Rows and verdicts are
those of ``klamm lag`` and ``klamm spark jobs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.admin.lag.group_lag import QueryLag, QueryPartitionLag
from engine.admin.lag.spark_positions import ReaderKind
from engine.admin.lag.spark_queries import Job, JobSource
from engine.admin.lag.verdicts import LagStatus
from engine.admin.watch.frame import Stage
from tui.drawing.cells import NO_DATA, Cell, Column, Tone, attribute, column, figure
from tui.drawing.lines import Line, folded, line
from tui.drawing.units import NOTHING, count, counted, plain, short_count, span
from tui.operations.operation import repeated
from tui.pages.groups import WHICH_PARTITION, lag_cell, pace_columns, status_cell, why_of
from tui.pages.page import Page, View
from tui.state.location import Location, QueryKey
from tui.state.table_model import Rows

_HOW = (
    "Spark keeps its offsets in checkpoints and event logs, not in the cluster. Name them:",
    "  klamm top --checkpoint PLACE --event-log PLACE",
    "  or checkpoints = [PLACE] and event_logs = [PLACE] in the cluster's profile",
)
KINDS = {ReaderKind.CHECKPOINT: "checkpoint", ReaderKind.EVENT_LOG: "event log", ReaderKind.LISTENER: "listener"}


class QueryRow(NamedTuple):
    """One source of a query; ``lag`` is None while no broker says where its topics end."""

    job: Job
    source: JobSource | None
    lag: QueryLag | None
    now_ms: int

    @property
    def key(self) -> QueryKey:
        source = "" if self.source is None else self.source.source
        return QueryKey(self.name, self.job.kind.value, self.job.path, self.job.query_id, source)

    @property
    def name(self) -> str:
        return self.job.name or self.job.path.rstrip("/").rpartition("/")[2]

    @property
    def status(self) -> LagStatus:
        return self.job.status if self.lag is None else self.lag.status

    @property
    def since_commit_ms(self) -> float | None:
        """How long ago a batch was finished last."""
        return None if self.job.last_commit is None else max(0.0, self.now_ms - self.job.last_commit.timestamp() * 1000)

    @property
    def topics(self) -> str:
        return "" if self.source is None else ", ".join(self.source.topics)


def why_of_row(row: QueryRow) -> str:
    if row.lag is not None and row.lag.error:
        return row.lag.error.partition("\n")[0]
    return "" if row.lag is None else why_of(row.lag)


COLUMNS = (
    column("query", "QUERY", "name", tone=Tone.STRONG, is_wide=True, width=16),
    Column("status", "STATUS", lambda r: status_cell(r.status), lambda r: r.status.rank, width=9),
    figure("batch_id", "BATCH", "job.last_batch", rank=2, width=6),
    column("topics", "TOPICS", "topics", rank=3, width=8),
    Column("lag", "LAG", lambda r: NO_DATA if r.lag is None else lag_cell(r.lag), attribute("lag.lag"), is_figure=True,
           width=9),
    *pace_columns("lag", 1, 1, 4),
    figure("last_commit_ms", "LAST COMMIT", "since_commit_ms", lambda ms: f"{span(ms / 1000)} ago", rank=2, width=9,
           is_age=True),
    figure("in_flight", "IN FLIGHT", "lag.in_flight", count, rank=5, width=7),
    figure("in_per_sec", "IN/S", "lag.in_per_sec", short_count, rank=6, width=6),
    figure("out_per_sec", "OUT/S", "lag.out_per_sec", short_count, rank=5, width=6),
    column("reason", "WHY", why_of_row, plain, tone=Tone.QUIET, rank=1, width=12),
    Column("kind", "TOLD BY", lambda r: Cell(KINDS.get(r.job.kind, r.job.kind.value), Tone.QUIET),
           lambda r: r.job.kind.value, rank=7),
    column("path", "PATH", "job.path", plain, tone=Tone.QUIET, rank=8),
)  # fmt: skip


def _rows_of(view: View) -> list[QueryRow]:
    frame, rows = view.board.frame, []
    for query in frame.queries:
        lags = {lag.source: lag for lag in query.lags}
        for source in query.job.sources or (None,):
            lag = None if source is None else lags.get(source.source)
            rows.append(QueryRow(query.job, source, lag, frame.at_ms))
    return rows


def _rows(view: View) -> Rows:
    return Rows(
        COLUMNS,
        _rows_of(view),
        lambda row: row.key,
        lambda row: f"{row.name} {row.topics} {row.status} {row.job.path}",
        _why_empty(view),
    )


def _why_empty(view: View) -> str:
    status = view.board.frame.stage(Stage.SPARK)
    if status.source is None and not status.error:
        return "checkpoints and event logs have not been read yet"
    if status.source is None:
        return status.error
    if status.error:
        return f"the queries could not be read: {plain(status.error)}"
    return "there is no query in the checkpoints and event logs that were named"


def _summary(view: View, width: int) -> list[Line]:
    status = view.board.frame.stage(Stage.SPARK)
    if not view.board.frame.stages or (status.read_at_ms is None and status.source is not None):
        return []
    if status.source is None:
        return [part for text in _HOW for part in folded(line((text, Tone.QUIET)), width)]
    rows = _rows_of(view)
    bad = sum(row.status.is_trouble for row in rows)
    lags = [row.lag.lag for row in rows if row.lag is not None and row.lag.lag is not None]
    unknown = len(rows) - len(lags)
    frame = view.board.frame
    jobs = len(frame.queries)
    is_least = any(row.lag is not None and row.lag.has_unknown_lag for row in rows)
    behind = f"{'at least ' * is_least}{count(sum(lags))} records behind" if lags or not rows else "lag not known"
    lines = [
        line(
            f"{counted(jobs, 'query')}, {behind}   ",
            (f"{count(bad)} unhealthy", Tone.BAD if bad else Tone.QUIET),
            (f"   {count(unknown)} with unknown lag" if lags and unknown else "", Tone.WARN),
            (f"   read {span((frame.age_ms(Stage.SPARK) or 0) / 1000)} ago", Tone.QUIET),
        )
    ]
    troubles = [status.error] * bool(status.error) + list(status.missing)
    if troubles:
        more = f"   and {len(troubles) - 1} more: i" if len(troubles) > 1 else ""
        lines.append(line((f"{plain(troubles[0])}{more}", Tone.WARN)))
    return lines


def _command(view: View, items: Sequence[Any]) -> list[str]:
    """The command that shows the same: for the rows' own places, else for all that were named."""
    words = ["lag"]
    if items:
        for kind, path in dict.fromkeys((row.job.kind, row.job.path) for row in items):
            words += ["--checkpoint" if kind is ReaderKind.CHECKPOINT else "--event-log", path]
        return words
    target = view.target
    if target is None or not (target.checkpoints or target.event_logs):
        return []
    return [*words, *repeated("--checkpoint", target.checkpoints), *repeated("--event-log", target.event_logs)]


PAGE = Page(
    "spark",
    _rows,
    _summary,
    lambda view, row: Location("query", query=row.key),
    lambda view, row: row.status.is_trouble,
    _command,
)


# One source of a query


PARTITION_COLUMNS = (
    *WHICH_PARTITION,
    figure("committed", "COMMITTED", "committed", count, rank=1, width=9),
    figure("planned", "PLANNED", "planned", count, rank=3, width=9),
    figure("end", "END", "end", count, rank=2, width=9),
    figure("lag", "LAG", "lag", count, width=7),
    *pace_columns("", 1, 2, 3),
    figure("planned_lag", "BEYOND PLAN", "planned_lag", count, rank=5),
    Column("lost_records", "LOST", lambda p: Cell(count(p.lost_records), Tone.BAD) if p.lost_records else NO_DATA,
           lambda p: p.lost_records, rank=5, is_figure=True),
    Column("reason", "WHY", lambda p: Cell(plain(p.error or p.reason.replace("_", " ")), Tone.QUIET),
           lambda p: p.reason, rank=3, width=12),
)  # fmt: skip


def _query_of(view: View) -> QueryRow | None:
    return next((row for row in _rows_of(view) if row.key == view.location.query), None)


def _query_rows(view: View) -> Rows:
    row = _query_of(view)
    partitions: Sequence[QueryPartitionLag] = () if row is None or row.lag is None else row.lag.partitions
    empty = "it has planned nothing yet"
    if row is None:
        empty = "this query is gone" if view.board.frame.stages else "queries have not been read yet"
    elif row.lag is None:
        empty = "its partitions are not known while no broker says where they end"

    def searched(partition: QueryPartitionLag) -> str:
        return f"{partition.name} {partition.status}"

    return Rows(PARTITION_COLUMNS, partitions, lambda partition: partition.name, searched, empty)


def _query_summary(view: View, width: int) -> list[Line]:
    row = _query_of(view)
    if row is None:
        return []
    text, tone = status_cell(row.status)
    since_ms = row.since_commit_ms
    commit = "none finished yet" if since_ms is None else f"last finished {span(since_ms / 1000)} ago"
    batch = NOTHING if row.job.last_batch is None else str(row.job.last_batch)
    reason = "" if row.lag is None else why_of(row.lag)
    lines = [line((text, tone), f" {reason}   batch {batch}, {commit}   source {row.key.source or NOTHING}")]
    where = f"{KINDS.get(row.job.kind, row.job.kind.value)} {plain(row.job.path)}   query {plain(row.job.query_id)}"
    lines.append(line((where, Tone.QUIET)))
    if row.lag is not None and row.lag.error:
        lines.append(line((f"its last run failed: {plain(row.lag.error.partition(chr(10))[0])}", Tone.BAD)))
    return lines


QUERY_PAGE = Page(
    "query",
    _query_rows,
    _query_summary,
    lambda view, partition: Location("partitions", topic=partition.topic, row=partition.name),
    lambda view, partition: partition.status.is_trouble,
    lambda view, items: [*_command(view, [row] if (row := _query_of(view)) else []), "--partitions"],
)
