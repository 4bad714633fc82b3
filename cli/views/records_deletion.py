"""Deletions of records: a line per partition before, a row per partition after."""

from __future__ import annotations

from collections.abc import Sequence

from cli.exit_codes import ExitCode
from cli.output.report import Advice, Column, Kind, Report, Section, Table, Tone
from cli.views.kafka import brokers as kafka
from engine.admin.records.deletion import DeletionResult, RecordsDeletion
from engine.common.quantities import size_text

_COLUMNS = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("result", tone={DeletionResult.FAILED: Tone.BAD, DeletionResult.UNDER_WAY: Tone.WARNING}),
    Column("start_offset", Kind.NUMBER, title="Start"),
    Column("before_offset", Kind.NUMBER, title="Before"),
    Column("end_offset", Kind.NUMBER, title="End"),
    Column("records", Kind.NUMBER),
    Column("estimated_bytes", Kind.BYTES, title="About"),
    Column("low_watermark", Kind.NUMBER, title="Low watermark"),
    Column("error", falls_below=True),
)


def deletion_lines(deletions: Sequence[RecordsDeletion]) -> list[str]:
    """Say for each partition what would be deleted."""
    return [_line(deletion) for deletion in deletions]


def _line(deletion: RecordsDeletion) -> str:
    size = "" if deletion.estimated_bytes is None else f", about {size_text(deletion.estimated_bytes)} of each replica"
    left = deletion.end_offset - deletion.before_offset
    offsets = f"offsets {deletion.start_offset} to {deletion.before_offset - 1}"
    return f"  {deletion.name}: {offsets}: {deletion.records}{size}; {left} stay"


def deletions_report(deletions: Sequence[RecordsDeletion]) -> Report:
    """A row per partition; code 4 if a broker refused, 5 if a replica has not followed yet."""
    table = Table.of(_COLUMNS, deletions)
    results = {d.result for d in deletions}
    code = ExitCode.DONE
    notes: tuple[str, ...] = ()
    if DeletionResult.UNDER_WAY in results:
        code = ExitCode.UNDER_WAY
        notes = (Advice("some replicas have not followed yet; see who is out of sync: klamm topics describe"),)
    if DeletionResult.FAILED in results:
        code = ExitCode.REFUSED
    shown = table.with_only({column.name for column in _COLUMNS} - {"start_offset", "low_watermark"})
    return Report(
        deletions,
        table,
        (Section(body=shown.unless_empty("error", "estimated_bytes")),),
        notes,
        code,
        as_kafka=lambda: kafka.deletions_text(deletions),
    )
