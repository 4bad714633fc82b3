"""Access rules as tables, and the outcome of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cli.exit_codes import ExitCode
from cli.output.report import Column, Fields, Report, Section, Table, Tone, cells_of
from cli.views.kafka import acls as kafka
from engine.admin.acls.values import AclRow
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.acls.checks import Explanation, Finding
    from engine.kafka.acls import AclBinding


_NEAR_MAX = 10
"""How many rules a note lists."""


_COLUMNS = (
    Column("resource_type", title="Resource"),
    Column("name"),
    Column("pattern_type", title="Pattern"),
    Column("principal"),
    Column("host"),
    Column("operation"),
    Column("permission", tone={"deny": Tone.BAD}),
)


def rules_report(rules: Sequence[AclBinding], principals: Sequence[str] = ()) -> Report:
    """A rule per row; ``principals`` are those that were asked for."""
    rows = [AclRow.of(rule) for rule in rules]
    return Report(
        rows,
        Table.of(_COLUMNS, rows),
        notes=(counted(len(rows), "rule"),),
        as_kafka=lambda: kafka.listed_text(rules, principals),
    )


def changes_report(
    changes: Mapping[str, Sequence[AclBinding]], code: ExitCode = ExitCode.DONE, *, nothing: str = "no rules"
) -> Report:
    """Rules with the outcome of a change: ``added``, ``removed``, ``missing``, …, in this order.

    ``nothing`` is what to say if there are none.
    """
    rows = [(word, AclRow.of(rule)) for word, rules in changes.items() for rule in rules]
    data = [{"change": word, **{name: getattr(row, name) for name in AclRow.__slots__}} for word, row in rows]
    table = Table((Column("change"), *_COLUMNS), [(word, *cells_of(_COLUMNS, row)) for word, row in rows])
    parts = [f"{len(rules)} {word.replace('_', ' ')}" for word, rules in changes.items() if rules]
    return Report(
        data, table, notes=(", ".join(parts) or nothing,), exit_code=code, as_kafka=lambda: kafka.changed_text(changes)
    )


def nothing_removed_report(near: Sequence[AclBinding], *, names_operations: bool) -> Report:
    """Say that no rule matched, and which the user may have meant: those ``near`` by."""
    notes = ["no rule matches: nothing was removed"]
    if not names_operations:
        notes.append("without --operation, only rules for the operation all match")
    if near:
        held = counted(len(near), "rule") + (" covers" if len(near) == 1 else " cover")
        notes.append(f"{held} the resource, and nothing was changed there:")
        notes += [f"  {AclRow.of(rule)}" for rule in near[:_NEAR_MAX]]
    if len(near) > _NEAR_MAX:
        notes.append(f"  and {len(near) - _NEAR_MAX} more")
    return replace(changes_report({}), notes=notes)


def explanation_report(explanation: Explanation) -> Report:
    """The answer, its reason and the rules that match; code 1 if it is no."""
    answer = Fields((("allowed", explanation.allowed), ("because", explanation.because)))
    rules = Table.of(_COLUMNS, explanation.rules)
    sections = [Section(body=answer)]
    if explanation.rules:
        sections.append(Section("Rules that match, the deciding one first", rules))
    table = Table((Column("allowed"), Column("because")), [(explanation.allowed, explanation.because)])
    return Report(explanation, table, sections, exit_code=ExitCode.DONE if explanation.allowed else ExitCode.BAD_ANSWER)


def lint_report(findings: Sequence[Finding]) -> Report:
    """An odd rule per row; code 1 if there is one."""
    table = Table(
        (Column("problem"), Column("rule"), Column("because", falls_below=True)),
        [(finding.problem, str(finding.rule), finding.because) for finding in findings],
    )
    notes = (counted(len(findings), "finding"),)
    return Report(findings, table, notes=notes, exit_code=ExitCode.BAD_ANSWER if findings else ExitCode.DONE)
