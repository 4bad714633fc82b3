"""What became of offsets that were reset or deleted, and of groups that were deleted: a row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cli.exit_codes import ExitCode
from cli.output.report import Column, KafkaText, Kind, Report, Section, Table, Tone
from cli.views.kafka import groups as kafka
from engine.admin.groups.deleting import DeletedGroup, DeletionResult
from engine.admin.groups.deleting_offsets import DeletedOffset
from engine.admin.groups.reset_plan import PartitionReset, ResetResult
from engine.common.model import TopicPartition

_TONES = {
    ResetResult.RESET: Tone.GOOD,
    ResetResult.FAILED: Tone.BAD,
    DeletionResult.DELETED: Tone.GOOD,
    DeletionResult.FAILED: Tone.BAD,
    DeletionResult.NOTHING_COMMITTED: Tone.QUIET,
}


_PARTITION = (Column("group"), Column("topic"), Column("partition", Kind.NUMBER))
_OUTCOME = (Column("result", tone=_TONES), Column("error", falls_below=True))


def reset_report(
    rows: Sequence[PartitionReset], *, exit_code: ExitCode, is_implicit: bool = False, exported: str | None = None
) -> Report:
    """One row per partition: the offset as it was, and the new one.

    ``is_implicit``: the dry run was not asked for, which Kafka's tool warns of. ``exported`` is what it prints instead.
    """
    columns = (
        *_PARTITION,
        Column("current_offset", Kind.NUMBER, title="Current"),
        Column("new_offset", Kind.NUMBER, title="New"),
        *_OUTCOME,
    )
    is_dry = any(row.result is ResetResult.WOULD_BE_RESET for row in rows)
    hint = ("nothing was changed: add --execute to do it",) if is_dry else ()
    notes = hint if rows else _nothing("no offsets to reset", exit_code)
    as_kafka = partial(kafka.reset_text, rows, exported, is_implicit=is_implicit)
    return _report(rows, columns, notes, exit_code, as_kafka)


def planned_lines(rows: Sequence[PartitionReset]) -> list[str]:
    """Return what would be set, a line per partition."""
    return [
        f"{row.group}: {row.name}: {'-' if row.current_offset is None else row.current_offset} → {row.new_offset}"
        for row in rows
    ]


def deleted_groups_report(rows: Sequence[DeletedGroup], *, exit_code: ExitCode) -> Report:
    """One row per group."""
    columns = (Column("group"), Column("type"), *_OUTCOME)
    notes = () if rows else _nothing("no groups", exit_code)
    return _report(rows, columns, notes, exit_code, lambda: kafka.deleted_text(rows))


def deleted_offsets_report(
    rows: Sequence[DeletedOffset],
    *,
    exit_code: ExitCode,
    groups: Sequence[str],
    topics: Sequence[str],
    absent: Sequence[TopicPartition] = (),
) -> Report:
    """One row per partition, with what was committed.

    ``topics`` are as the user named them. Kafka's text has a row for each partition that is ``absent``, too.
    """
    columns = (*_PARTITION, Column("offset", Kind.NUMBER), *_OUTCOME)
    return _report(rows, columns, (), exit_code, lambda: kafka.deleted_offsets_text(groups, topics, rows, absent))


def _nothing(text: str, exit_code: ExitCode) -> tuple[str, ...]:
    """Say that there was nothing to do, unless it was said why."""
    return (text,) if exit_code is ExitCode.DONE else ()


def _report(
    rows: Sequence[object],
    columns: tuple[Column, ...],
    notes: tuple[str, ...],
    exit_code: ExitCode,
    as_kafka: Callable[[], KafkaText | None],
) -> Report:
    """The column of errors is shown to a person only if there is one."""
    table = Table.of(columns, rows)
    return Report(rows, table, (Section(body=table.unless_empty("error")),), notes, exit_code, as_kafka=as_kafka)
