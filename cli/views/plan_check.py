"""Findings of ``plan check``: as a table, and in the formats of code hosts. And two plans side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table
from cli.views.plan import UNITS, markdown_cell, partitions_markdown
from engine.common.quantities import counted, size_text
from plans.comparing import PlanDifference
from plans.findings import OF_CLUSTER, Check, Finding, Lack
from plans.plan_file import PlanFile
from plans.policy import Policy
from plans.summary import Figure, card_rows, summary

_COLUMNS = (
    Column("file"),
    Column("line", Kind.NUMBER),
    Column("check"),
    Column("severity"),
    Column("partition"),
    Column("rule"),
    Column("message", falls_below=True),
)
_PLAN_AGAIN = "plan again from the cluster as it is; if this plan has begun: klamm plan resume {path}"
_NEXT = {
    Check.CLUSTER: "name the cluster that the plan was made for, or plan again for this one",
    Check.DRIFT: _PLAN_AGAIN,
    Check.TARGETS: _PLAN_AGAIN,
    Check.DIGEST: _PLAN_AGAIN,
    Check.FIGURES: "plan again with other options instead of editing the file, so that its figures are true",
}
_LACKING = {
    Lack.SIZES: "check a snapshot with sizes, or the live cluster",
    Lack.THROTTLE: "plan again with --throttle, or take the limit on time out of the policy",
    Lack.LOG_DIR: "name the log dir in the policy as the broker does",
}
_WITHIN_POLICY = "plan again within the policy, with a cap, --exclude-broker or --exclude-topic, or change the policy"
_MARKDOWN_MAX = 50
"""A comment lists this many findings, because code hosts limit its length."""

_DIFF_COLUMNS = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("change"),
    Column("before", Kind.LIST),
    Column("after", Kind.LIST),
)
_FIGURES = (Column("figure"), Column("before"), Column("after"))


def check_report(path: str, findings: Sequence[Finding], policy: Policy | None, policy_path: str | None) -> Report:
    """One row per finding; code 1 if one is an error. What to do about them is below the table on a terminal."""
    rows = [
        (
            path,
            finding.line,
            finding.check,
            _severity(finding),
            _name(finding),
            _rule(finding, policy, policy_path),
            finding.message,
        )
        for finding in findings
    ]
    hints = [_hint(finding, path) for finding in findings]
    with_hints = Table(
        (*_COLUMNS[:-1], Column("hint"), _COLUMNS[-1]),
        [(*row[:-1], hint, row[-1]) for row, hint in zip(rows, hints, strict=True)],
    )
    count = len(errors_of(findings))
    against = "the cluster" if policy is None else "the cluster and the policy"
    notes = [counted(count, "finding") if count else f"the plan fits {against}"]
    sections = [Section(body=Table(_COLUMNS, rows))]
    if count:
        sections.append(Section("What to do", text=_distinct(hints)))
    code = ExitCode.BAD_ANSWER if count else ExitCode.DONE
    return Report(with_hints.records(), with_hints, sections, notes, exit_code=code)


def _hint(finding: Finding, path: str) -> str | None:
    """Return what to do about a finding; nothing has to be done about a note."""
    if not finding.is_error:
        return None
    text = _NEXT.get(finding.check, _WITHIN_POLICY) if finding.lacks is None else _LACKING[finding.lacks]
    return text.format(path=path)


def _distinct(hints: Iterable[str | None]) -> list[str]:
    return [hint for hint in dict.fromkeys(hints) if hint is not None]


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are errors, not mere notes."""
    return [finding for finding in findings if finding.is_error]


def formatted(
    form: str, path: str, plan: PlanFile, findings: Sequence[Finding], policy: Policy | None, policy_path: str | None
) -> str:
    """Return the findings as a code host reads them."""
    messages = [(finding, f"{finding.message}{_behind(finding, policy, policy_path)}") for finding in findings]
    match form:
        case "github":
            return "".join(_github(path, finding, text) for finding, text in messages)
        case "gitlab":
            return (
                json.dumps([_gitlab(path, finding, text) for finding, text in messages], indent=2, ensure_ascii=False)
                + "\n"
            )
        case "junit":
            return _junit(path, messages, policy)
        case _:
            return _markdown(path, plan, messages)


def _github(path: str, finding: Finding, text: str) -> str:
    """A workflow command, with its special characters escaped."""
    title = f"klamm plan check: {finding.check.value}"
    place = f"file={_property(path)},line={finding.line},title={_property(title)}"
    return f"::{'error' if finding.is_error else 'notice'} {place}::{_message(text)}\n"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def _gitlab(path: str, finding: Finding, text: str) -> dict[str, object]:
    """An entry of a Code Quality report; its fingerprint stays the same for the same finding."""
    key = "\0".join((path, finding.check.value, str(finding.partition), finding.rule or "", finding.message))
    return {
        "description": text,
        "check_name": f"klamm-plan-{finding.check.value}",
        "fingerprint": hashlib.sha256(key.encode()).hexdigest(),
        "severity": "info" if not finding.is_error else "critical" if finding.check in OF_CLUSTER else "major",
        "location": {"path": path, "lines": {"begin": finding.line}},
    }


def _junit(path: str, messages: Sequence[tuple[Finding, str]], policy: Policy | None) -> str:
    """A test case per check: one that finds nothing has passed."""
    checks = [kind for kind in Check if kind in OF_CLUSTER or policy is not None]
    failed = {
        check: [(finding, text) for finding, text in messages if finding.check is check and finding.is_error]
        for check in checks
    }
    noted = {finding.check: text for finding, text in messages if not finding.is_error}
    count = sum(bool(findings) for findings in failed.values())
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(f'<testsuites><testsuite name="klamm plan check" tests="{len(checks)}" failures="{count}" errors="0">')
    for check, findings in failed.items():
        case = f"<testcase classname={quoteattr(path)} name={quoteattr(check.value)}"
        if not findings:
            note = noted.get(check)
            lines.append(f"{case}/>" if note is None else f"{case}><system-out>{escape(note)}</system-out></testcase>")
            continue
        message = quoteattr(counted(len(findings), "finding"))
        body = escape("\n".join(f"{path}:{finding.line}: {text}" for finding, text in findings))
        lines.append(f"{case}><failure message={message}>{body}</failure></testcase>")
    lines.append("</testsuite></testsuites>")
    return "\n".join(lines) + "\n"


def plan_markdown(path: str, plan: PlanFile) -> str:
    """The document of a pull request without findings: what the plan costs, before and after, its partitions."""
    return _markdown(path, plan, None)


def _markdown(path: str, plan: PlanFile, messages: Sequence[tuple[Finding, str]] | None) -> str:
    """A report for a pull request: the verdict, what it costs, before and after, the findings, the partitions."""
    errors = len(errors_of(finding for finding, _ in messages or ()))
    verdict = "" if messages is None else f": {counted(errors, 'finding') if errors else 'fits'}"
    messages = messages or ()
    count = len(messages)
    score, options = plan.klamm.score, plan.klamm.options
    lines = [
        f"### Plan `{markdown_cell(path)}`{verdict}",
        "",
        f"`{plan.klamm.strategy.value}` of {counted(len(plan.partitions), 'partition')}: "
        + summary(score, options.minimise, len(plan.partitions), UNITS),
        "",
        "| measure | before | after |",
        "|---|---:|---:|",
    ]
    for name, before, after in card_rows(score):
        lines.append(f"| {name} | {_figure(before)} | {_figure(after)} |")
    if score.brokers:
        lines += [
            "",
            "| broker | rack | replicas | leaders | bytes | in | out |",
            "|---:|---|---:|---:|---:|---:|---:|",
        ]
        for each in score.brokers:
            sizes = f"{_bytes(each.bytes_before)} → {_bytes(each.bytes_after)}"
            lines.append(
                f"| {each.broker} | {markdown_cell(each.rack or '')} | {each.replicas_before} → {each.replicas_after} "
                f"| {each.leaders_before} → {each.leaders_after} | {sizes} | {each.replicas_in} | {each.replicas_out} |"
            )
    if messages:
        lines += ["", "| line | check | severity | finding |", "|---:|---|---|---|"]
        lines += [
            f"| {finding.line} | {finding.check.value} | {_severity(finding)} | {markdown_cell(text)} |"
            for finding, text in messages[:_MARKDOWN_MAX]
        ]
        if count > _MARKDOWN_MAX:
            lines.append(f"| | | | … and {count - _MARKDOWN_MAX} more |")
    hints = _distinct(_hint(finding, path) for finding, _ in messages)
    if hints:
        lines += ["", "What to do:", "", *(f"* {hint}" for hint in hints)]
    lines += partitions_markdown(plan)
    return "\n".join(lines) + "\n"


def _severity(finding: Finding) -> str:
    return "error" if finding.is_error else "note"


def _name(finding: Finding) -> str | None:
    return None if finding.partition is None else str(finding.partition)


def _rule(finding: Finding, policy: Policy | None, path: str | None) -> str | None:
    """Return the place of the broken rule, such as ``policy.toml:3``."""
    if finding.rule is None or policy is None or path is None:
        return None
    return f"{path}:{policy.line_of(finding.rule)}"


def _behind(finding: Finding, policy: Policy | None, path: str | None) -> str:
    rule = _rule(finding, policy, path)
    return "" if rule is None else f" ({finding.rule}, {rule})"


def _figure(value: Figure) -> str:
    return "unknown" if value is None else str(value)


def _bytes(value: int | None) -> str:
    return "?" if value is None else size_text(value)


def diff_report(difference: PlanDifference) -> Report:
    """The partitions and the figures that differ; code 1 if any does."""
    table = Table.of(_DIFF_COLUMNS, difference.partitions)
    figures = Table(
        _FIGURES,
        [
            (figure.name, _text(figure.name, figure.before), _text(figure.name, figure.after))
            for figure in difference.figures
        ],
    )
    sections = [Section("Partitions", table)] if table.rows else []
    sections += [Section("Figures", figures)] if difference.figures else []
    if difference.is_empty:
        return Report(difference, table, (Section(text=("the plans are the same",)),))
    partition_count, figure_count = len(difference.partitions), len(difference.figures)
    verb = "differs" if partition_count + figure_count == 1 else "differ"
    parts = [counted(n, noun) for n, noun in ((partition_count, "partition"), (figure_count, "figure")) if n]
    notes = [f"{' and '.join(parts)} {verb}"]
    return Report(difference, table, sections, notes, exit_code=ExitCode.BAD_ANSWER)


def _text(name: str, value: object) -> str:
    """Return a figure for a person; what counts bytes has them in its name."""
    if isinstance(value, int) and "bytes" in name:
        return size_text(value)
    return "none" if value is None else str(value)
