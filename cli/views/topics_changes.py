"""What became of topics that were created, altered or deleted."""

from __future__ import annotations

from collections.abc import Sequence

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table, Tone
from cli.views.kafka.topics import changes_text
from engine.admin.topics.changes import TopicChange, TopicOutcome


def _tone(value: object) -> Tone | None:
    return Tone.WARNING if value is TopicOutcome.MARKED_FOR_DELETION else Tone.GOOD


_COLUMNS = (
    Column("topic"),
    Column("result", tone=_tone),
    Column("topic_id", title="Id"),
    Column("partition_count", Kind.NUMBER, title="Partitions"),
    Column("replication_factor", Kind.NUMBER, title="Factor"),
)


def topic_changes_report(changes: Sequence[TopicChange], *, exit_code: ExitCode = ExitCode.DONE) -> Report:
    """One row per topic."""
    rows = [(c.topic, c.result, c.topic_id, c.partition_count, c.replication_factor) for c in changes]
    kept = [i for i, column in enumerate(_COLUMNS) if i < 2 or any(row[i] is not None for row in rows)]
    table = Table(_COLUMNS, rows)
    shown = Table(tuple(_COLUMNS[i] for i in kept), [tuple(row[i] for i in kept) for row in rows])
    return Report(changes, table, (Section(body=shown),), exit_code=exit_code, as_kafka=lambda: changes_text(changes))
