"""The outcome of elections: one row per partition, failures in red."""

from __future__ import annotations

from collections.abc import Sequence

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Nothing, Report, Section, Table, Tone
from cli.views.kafka.reassignment import elected_text
from engine.admin.elections.scope_and_result import ElectionPreview, ElectionResult, ElectionType, PartitionElection
from engine.common.model import NO_LEADER
from engine.common.quantities import counted

_TONES = {
    ElectionResult.ELECTED: Tone.GOOD,
    ElectionResult.NOT_NEEDED: Tone.QUIET,
    ElectionResult.FAILED: Tone.BAD,
    ElectionResult.WOULD_FAIL: Tone.BAD,
    ElectionResult.UNDER_WAY: Tone.WARNING,
}
_BAD = (ElectionResult.FAILED, ElectionResult.WOULD_FAIL)


_COLUMNS = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("before", Kind.NUMBER, tone={NO_LEADER: Tone.BAD}),
    Column("after", Kind.NUMBER, tone={NO_LEADER: Tone.BAD}),
    Column("preferred", Kind.NUMBER),
    Column("result", tone=_TONES),
    Column("error", falls_below=True),
)


def elections_report(
    results: Sequence[PartitionElection], election: ElectionType = ElectionType.PREFERRED, *, is_of_all: bool = False
) -> Report:
    """All partitions for machines; for a person those that something happened to, and the number of others.

    Rows of an election of all partitions are those alone, too: most partitions of a cluster need none.
    """
    shown = [result for result in results if result.result is not ElectionResult.NOT_NEEDED]
    return Report(
        results,
        Table.of(_COLUMNS, shown if is_of_all else results),
        (Section(body=Table.of(_COLUMNS, shown).unless_empty("error")),),
        _notes(results),
        _exit_code(results),
        as_kafka=lambda: elected_text(results, election.value, is_of_all=is_of_all),
    )


def preview_lines(previews: Sequence[ElectionPreview]) -> list[str]:
    """Return who would lead what, a line per partition that changes; what cannot be elected comes first."""
    changing = sorted(
        (preview for preview in previews if preview.is_needed), key=lambda preview: preview.obstacle is None
    )
    return [str(preview) for preview in changing]


def _notes(results: Sequence[PartitionElection]) -> tuple[str, ...]:
    if not results:
        return (Nothing("no partitions"),)
    counts = {kind: sum(result.result is kind for result in results) for kind in ElectionResult}
    parts = [f"{count} {kind.value.replace('_', ' ')}" for kind, count in counts.items() if count]
    return (f"{counted(len(results), 'partition')}: {', '.join(parts)}",)


def _exit_code(results: Sequence[PartitionElection]) -> ExitCode:
    outcomes = {result.result for result in results}
    if outcomes & set(_BAD):
        return ExitCode.BAD_ANSWER
    return ExitCode.UNDER_WAY if ElectionResult.UNDER_WAY in outcomes else ExitCode.DONE
