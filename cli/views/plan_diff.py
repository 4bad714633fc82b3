"""Two plans side by side."""

from __future__ import annotations

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table
from engine.common.quantities import counted, size_text
from plans.comparing import PlanDifference

_COLUMNS = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("change"),
    Column("before", Kind.LIST),
    Column("after", Kind.LIST),
)
_FIGURES = (Column("figure"), Column("before"), Column("after"))


def diff_report(difference: PlanDifference) -> Report:
    """The partitions and the figures that differ; code 1 if any does."""
    rows = [
        (partition.topic, partition.partition, partition.change, partition.before, partition.after)
        for partition in difference.partitions
    ]
    table = Table(_COLUMNS, rows)
    figures = Table(
        _FIGURES,
        [
            (figure.name, _text(figure.name, figure.before), _text(figure.name, figure.after))
            for figure in difference.figures
        ],
    )
    sections = [Section("Partitions", table)] if rows else []
    sections += [Section("Figures", figures)] if difference.figures else []
    if difference.is_empty:
        return Report(difference, table, (Section(text=("the plans are the same",)),))
    figure_count = len(difference.figures)
    verb = "differs" if len(rows) + figure_count == 1 else "differ"
    parts = [counted(n, what) for n, what in ((len(rows), "partition"), (figure_count, "figure")) if n]
    notes = [f"{' and '.join(parts)} {verb}"]
    return Report(difference, table, sections, notes, exit_code=ExitCode.BAD_ANSWER)


def _text(name: str, value: object) -> str:
    """Return a figure for a person; what counts bytes has them in its name."""
    if isinstance(value, int) and "bytes" in name:
        return size_text(value)
    return "none" if value is None else str(value)
