"""A plan for a person: a sentence, the score card, the brokers as heat before and after, the largest moves.

Then findings of ``plan check``, as a table and in the forms that code hosts read; and two plans side by side.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table, Tone
from cli.output.values import human_duration
from cli.views.brokers_load import BEFORE_AND_AFTER
from engine.admin.reassignment.plan_runs import moves_between
from engine.admin.reassignment.waves import WaveCaps, waves_of
from engine.common.quantities import counted, size_text
from plans.comparing import PlanDifference
from plans.findings import OF_CLUSTER, Check, Finding, Lack
from plans.options import Strategy
from plans.plan_file import MadePlan, PlanFile, plan_document, sizes_of
from plans.policy import Policy
from plans.score import Score
from plans.summary import Figure, PlannedMove, Units, card_rows, largest, moves_of, summary

LARGEST_MAX = 10
UNITS = Units(size_text, lambda seconds: human_duration(round(seconds * 1000)))

_ENTRIES = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("replicas", Kind.LIST),
    Column("target", Kind.LIST),
    Column("moves", Kind.NUMBER),
    Column("bytes", Kind.BYTES),
)
_DISKS = Column("log_dirs", Kind.LIST, title="Log dirs")
_UNCOPIED = _ENTRIES[:4]
_NAME = ("topic", "partition")


def _violation_tone(row: Sequence[object]) -> Tone | None:
    return Tone.BAD if row[0] == "rack violations" and row[2] else None


_CARD = (
    Column("measure", title=""),
    Column("before", Kind.NUMBER),
    Column("after", Kind.NUMBER, row_tone=_violation_tone),
)
_BROKERS = (
    Column("broker", Kind.NUMBER),
    Column("rack", is_dispensable=True),
    *BEFORE_AND_AFTER,
    Column("bytes_in", Kind.BYTES, title="In", is_dispensable=True),
    Column("bytes_sent", Kind.BYTES, title="Sends", is_dispensable=True),
)
_LOG_DIRS = (
    Column("broker", Kind.NUMBER),
    Column("log_dir"),
    Column("replicas_before", Kind.NUMBER, title="Replicas"),
    Column("replicas_after", Kind.NUMBER, title="after"),
    Column("bytes_before", Kind.BYTES, title="Size"),
    Column("bytes_after", Kind.BYTES, title="after"),
    Column("bytes_in", Kind.BYTES, title="In", is_dispensable=True),
)


def plan_report(made: MadePlan, explained: Sequence[str]) -> Report:
    """The plan file's document for machines, a row per partition in plain, all of it for a person."""
    plan, score = made.plan, made.plan.klamm.score
    moves = moves_of(plan, {partition.name: partition.size for partition in made.problem.partitions})
    entries = (*_ENTRIES, _DISKS) if plan.klamm.strategy is Strategy.LOG_DIRS else _ENTRIES
    rows = [_row(move, entries) for move in moves]
    shown = largest(moves, LARGEST_MAX)
    sections = [Section(text=sentences(made, explained))]
    if rows:
        sections += [_card(score), _heat(score), *_dirs(score)]
    if shown:
        title = "The largest moves" if len(shown) < sum(move.copies > 0 for move in moves) else "The moves"
        sections.append(
            Section(title, Table(entries, [_row(move, entries) for move in shown]).without_empty(keeps=_NAME))
        )
    rest = [_row(move, _UNCOPIED) for move in moves if not move.copies]
    if rest:
        shown_of = f"{LARGEST_MAX} of " if len(rest) > LARGEST_MAX else ""
        title = f"Changed without a copy: {shown_of}{counted(len(rest), 'partition')}"
        sections.append(Section(title, Table(_UNCOPIED, rest[:LARGEST_MAX])))
    return Report(plan_document(plan), Table(entries, rows), sections, is_file=True)


def sentences(made: MadePlan, explained: Sequence[str]) -> list[str]:
    """Return the plan in a sentence, and the explanations that were asked for."""
    score, plan = made.plan.klamm.score, made.plan
    return [summary(score, plan.klamm.options.minimise, len(plan.partitions), UNITS), *explained]


def _row(move: PlannedMove, columns: Sequence[Column]) -> tuple[object, ...]:
    return (*move.name, move.before, move.after, move.copies, move.bytes, move.disks)[: len(columns)]


def _card(score: Score) -> Section:
    return Section("Brokers that remain, before and after", Table(_CARD, card_rows(score)))


def _heat(score: Score) -> Section:
    return Section("What each broker carries", Table.of(_BROKERS, score.brokers).without_empty(keeps=("broker",)))


def _dirs(score: Score) -> list[Section]:
    if not score.log_dirs:
        return []
    table = Table.of(_LOG_DIRS, score.log_dirs)
    return [Section("What each log dir carries", table.without_empty(keeps=("broker", "log_dir")))]


@dataclass(frozen=True, slots=True)
class ShownMove:
    """One partition of a plan. ``bytes`` is what it copies, ``wave`` the one in which ``plan apply`` moves it."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes: int | None
    leader_before: int
    leader_after: int
    wave: int
    log_dirs: tuple[str, ...]


_SHOWN = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("from", Kind.LIST),
    Column("to", Kind.LIST),
    Column("bytes", Kind.BYTES, title="Copies"),
    Column("leader_from", Kind.NUMBER),
    Column("leader_to", Kind.NUMBER),
    Column("wave", Kind.NUMBER),
    Column("log_dirs", Kind.LIST),
)


def shown_moves(plan: PlanFile) -> list[ShownMove]:
    """Return the partitions of a plan as its file has them, with the waves of ``plan apply`` without options."""
    moves = moves_between(plan.klamm.rollback, plan.partitions)
    waves = {move.name: number for number, wave in enumerate(waves_of(moves, WaveCaps()), 1) for move in wave}
    return [
        ShownMove(
            *move.name, move.before, move.after, move.bytes, move.before[0], move.after[0], waves[move.name], move.disks
        )
        for move in moves_of(plan, sizes_of(plan))
    ]


def show_report(plan: PlanFile) -> Report:
    """What the file says, without a cluster: a sentence, the score card, and a row per partition."""
    moves, score = shown_moves(plan), plan.klamm.score
    rows = [
        (m.topic, m.partition, m.before, m.after, m.bytes, m.leader_before, m.leader_after, m.wave, m.log_dirs)
        for m in moves
    ]
    sentence = summary(score, plan.klamm.options.minimise, len(rows), UNITS)
    table = Table(_SHOWN, rows)
    sections = [Section(text=(f"{plan.klamm.strategy.value} of {counted(len(rows), 'partition')}: {sentence}",))]
    if rows:
        sections += [
            _card(score),
            _heat(score),
            *_dirs(score),
            Section("Partitions", table.without_empty(keeps=_NAME)),
        ]
    return Report(table.records(), table, sections)


PARTITIONS_MAX = 500
"""A comment lists this many partitions, because code hosts limit its length."""


def partitions_markdown(plan: PlanFile) -> list[str]:
    """Return a folded table of all partitions for a code host; nothing for an empty plan."""
    moves = shown_moves(plan)
    if not moves:
        return []
    lines = ["", f"<details><summary>{counted(len(moves), 'partition')}</summary>", ""]
    lines += ["| partition | from | to | copies | leader | wave |", "|---|---|---|---:|---|---:|"]
    for move in moves[:PARTITIONS_MAX]:
        copies = "?" if move.bytes is None else size_text(move.bytes)
        is_led_on = move.leader_before == move.leader_after
        leader = str(move.leader_before) if is_led_on else f"{move.leader_before} → {move.leader_after}"
        places = "".join(f"<br>{path}" for path in move.log_dirs)
        cells = (
            f"{move.topic}-{move.partition}",
            _ids(move.before),
            f"{_ids(move.after)}{places}",
            copies,
            leader,
            move.wave,
        )
        lines.append("".join(f"| {markdown_cell(str(cell))} " for cell in cells) + "|")
    more = len(moves) - PARTITIONS_MAX
    return [*lines, *([f"| … and {more} more | | | | | |"] if more > 0 else []), "", "</details>"]


def markdown_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


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
