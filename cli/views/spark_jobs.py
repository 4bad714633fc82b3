"""Queries of Spark, a row each; and offsets that were committed for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table
from cli.views.groups import reset_report
from cli.views.lag import status_tone
from engine.admin.groups.reset_plan import PartitionReset
from engine.admin.lag.spark_queries import Job

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
