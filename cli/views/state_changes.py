"""Merged state-change logs on stdout, entry by entry, because there may be millions; and the check's findings."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from json.encoder import encode_basestring

from cli.exit_codes import ExitCode
from cli.framework.failure import Failure
from cli.framework.invocation import Invocation
from cli.framework.progress import Progress
from cli.framework.stdout import drawing_stream, write_bytes
from cli.output.format import OutputFormat, TerminalView, is_terminal
from cli.output.printer import csv_line
from cli.output.report import Column, Kind, Report, Section, Table, Tone
from cli.output.values import escape_controls
from engine.admin.state_changes.check import CheckResult
from engine.admin.state_changes.entry_reader import Tag
from engine.admin.state_changes.findings import Finding, Severity
from engine.admin.state_changes.log_input import LogProblem, ProblemKind
from engine.admin.state_changes.merge import Batch, Merge, MergePlan
from engine.admin.state_changes.merged_rows import MergedRow, iso_time, row_tag, rows_of, text_chunks, text_tags
from engine.common.quantities import counted

COLUMNS = ("time", "level", "broker", "role", "controller_epoch", "topic", "partition", "message", "source")
_TONES = {"FATAL": "1;31", "ERROR": "1;31", "WARN": "33", "DEBUG": "2", "TRACE": "2"}
_MESSAGE_WIDTH_MIN = 50
_INDENT_WHEN_NARROW = 4
_TIME_WIDTH = 24
_WRITER_WIDTH = 13
_LEVEL_WIDTH = 5
_RULE_WIDTH_MAX = 80
_BYTES_PER_MB = 1_000_000


def print_merge(invocation: Invocation, plan: MergePlan) -> None:
    """Write the merge to stdout."""
    if invocation.output is OutputFormat.PLAIN:
        write_bytes(text_chunks(with_progress(invocation, plan, plan.merge(text_tags(plan), in_bursts=True))))
        return
    chunks = (text.encode("utf-8", "replace") for text in _texts(invocation.output, merged_rows(invocation, plan)))
    if invocation.output is OutputFormat.TABLE:
        with drawing_stream() as stream:
            stream.buffer.writelines(chunks)
    else:
        write_bytes(chunks)


def merged_rows(invocation: Invocation, plan: MergePlan) -> Iterator[MergedRow]:
    """Yield the merge's rows, and show the progress."""
    clock = plan.utc_clock()
    for batch in with_progress(invocation, plan, plan.merge(row_tag)):
        yield from rows_of(batch, clock)


def with_progress(
    invocation: Invocation, plan: MergePlan, merge: Merge[Tag], verb: str = "merged"
) -> Iterator[Batch[Tag]]:
    """Yield the batches of a merge, with the progress on stderr unless the data goes to the same terminal."""
    progress = None
    if not is_terminal(sys.stdout):
        total = plan.size_bytes // _BYTES_PER_MB
        progress = Progress(invocation.talk, verb, "MB", total)
    try:
        for batch in merge:
            if progress is not None:
                progress.update(merge.consumed_bytes // _BYTES_PER_MB)
            yield batch
    finally:
        if progress is not None:
            progress.end()


def tell_problems(invocation: Invocation, problems: Iterable[LogProblem]) -> ExitCode:
    """Report what was wrong with the logs; return the exit code that follows from it."""
    code = ExitCode.DONE
    for problem in problems:
        if problem.kind is ProblemKind.UNREADABLE:
            code = ExitCode.USAGE
        elif problem.kind.loses_lines and code is ExitCode.DONE:
            code = ExitCode.BAD_ANSWER
        if problem.kind.loses_lines:
            own = ExitCode.USAGE if problem.kind is ProblemKind.UNREADABLE else ExitCode.BAD_ANSWER
            invocation.talk.fail(Failure(own, problem.kind.value, problem.message, problem.source))
        elif problem.kind is ProblemKind.REORDERED:
            invocation.talk.detail(f"{problem.source}: {problem.message}")
        else:
            invocation.talk.warn(f"{problem.source}: {problem.message}")
    return code


def row_object(row: MergedRow) -> dict[str, object]:
    return {
        "time": iso_time(row.utc_start),
        "level": row.level,
        "broker": row.broker,
        "role": None if row.role is None else row.role.value,
        "controller_epoch": row.controller_epoch,
        "topic": row.topic,
        "partition": row.partition,
        "partitions": list(row.partitions),
        "message": row.message,
        "source": row.source,
    }


def row_json(row: MergedRow) -> str:
    """Return a row as JSON on one line. Built by hand: that takes a third of the time, and there are many."""
    names = ", ".join(map(_quoted, row.partitions))
    return (
        f'{{"time": {_quoted(iso_time(row.utc_start))}, "level": {_quoted(row.level)}, "broker": {_plain(row.broker)}, '
        f'"role": {_quoted(row.role)}, "controller_epoch": {_plain(row.controller_epoch)}, '
        f'"topic": {_quoted(row.topic)}, "partition": {_plain(row.partition)}, "partitions": [{names}], '
        f'"message": {_quoted(row.message)}, "source": {_quoted(row.source)}}}'
    )


def _quoted(text: str | None) -> str:
    return "null" if text is None else encode_basestring(text)


def _plain(number: int | None) -> str:
    return "null" if number is None else str(number)


def _texts(output: OutputFormat, rows: Iterable[MergedRow]) -> Iterator[str]:
    match output:
        case OutputFormat.JSONL:
            return (row_json(row) + "\n" for row in rows)
        case OutputFormat.JSON:
            return _json(rows)
        case OutputFormat.CSV:
            return _csv(rows)
        case OutputFormat.YAML:
            return _yaml(rows)
        case _:
            return _table(rows, TerminalView.of(sys.stdout))


def _json(rows: Iterable[MergedRow]) -> Iterator[str]:
    before = "["
    for row in rows:
        yield f"{before}\n  {row_json(row)}"
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"


def _csv(rows: Iterable[MergedRow]) -> Iterator[str]:
    yield csv_line(COLUMNS)
    for row in rows:
        fields = row_object(row)
        yield csv_line("" if fields[name] is None else str(fields[name]) for name in COLUMNS)


def _yaml(rows: Iterable[MergedRow]) -> Iterator[str]:
    import yaml

    is_empty = True
    for row in rows:
        is_empty = False
        yield yaml.safe_dump([row_object(row)], sort_keys=False, allow_unicode=True, width=4096)
    if is_empty:
        yield "[]\n"


def _table(rows: Iterable[MergedRow], view: TerminalView) -> Iterator[str]:
    """One line per entry. The message is folded in its column, or below the rest on a narrow terminal."""
    indent = _TIME_WIDTH + _WRITER_WIDTH + _LEVEL_WIDTH + 6
    is_narrow = view.width - indent < _MESSAGE_WIDTH_MIN
    indent = _INDENT_WHEN_NARROW if is_narrow else indent
    width = max(view.width - indent, _INDENT_WHEN_NARROW)
    heading = f"{'Time':<{_TIME_WIDTH}}  {'Writer':<{_WRITER_WIDTH}}  {'Level':<{_LEVEL_WIDTH}}  Message"
    yield _styled(heading, "1", view) + "\n"
    yield "─" * min(view.width, indent + _RULE_WIDTH_MAX) + "\n"
    for row in rows:
        writer = f"{row.role or 'broker'} {'?' if row.broker is None else row.broker}"
        level = _styled(f"{row.level or '-':<{_LEVEL_WIDTH}}", _TONES.get(row.level or "", ""), view)
        before = f"{iso_time(row.utc_start) or '-':<{_TIME_WIDTH}}  {writer:<{_WRITER_WIDTH}}  {level}"
        if is_narrow:
            yield f"{before.rstrip()}\n"
        before = " " * indent if is_narrow else f"{before}  "
        for line in _folded(row.message, width):
            yield f"{before}{line}\n"
            before = " " * indent


def _folded(message: str, width: int) -> Iterator[str]:
    """Yield a message in pieces no wider than ``width``, broken at spaces if possible."""
    for line in message.split("\n"):
        rest = escape_controls(line.replace("\t", "    "))
        while len(rest) > width:
            at = rest.rfind(" ", width // 2, width + 1)
            at = width if at < 0 else at
            yield rest[:at]
            rest = rest[at:].lstrip(" ")
        yield rest


def _styled(text: str, codes: str, view: TerminalView) -> str:
    return f"\x1b[{codes}m{text}\x1b[0m" if view.has_colour and codes else text


_STATUS = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: "ok"}
_SEVERITY_TONES = {Severity.CRITICAL: Tone.BAD, Severity.WARNING: Tone.WARNING, Severity.INFO: Tone.QUIET}


_SEVERITY = Column("severity", tone=_SEVERITY_TONES)
_COLUMNS = (
    _SEVERITY,
    Column("check"),
    Column("count", Kind.NUMBER),
    Column("from", Kind.TIME),
    Column("to", Kind.TIME),
    Column("meaning", in_plain=False),
    Column("examples"),
)
_SHOWN = (_SEVERITY, Column("check"), Column("count", Kind.NUMBER), Column("from"), Column("to"), Column("what"))


def check_report(result: CheckResult, fails_on: Severity, *, log_count: int, has_logs: bool) -> Report:
    """All findings, the gravest first.

    The exit code is 1 if one is as bad as ``fails_on`` or worse, and if nothing is known.

    Args:
        log_count: how many logs may have lines that were asked for. ``has_logs``: whether others could be read, too.
    """
    order = list(Severity)
    is_bad = order.index(result.severity) <= order.index(fails_on)
    rows = [_row(finding) for finding in result.findings]
    is_one_day = _day(iso_time(result.first_start)) == _day(iso_time(result.last_start))
    shown = [(*row[:3], _clock(row[3], is_one_day), _clock(row[4], is_one_day), row[5]) for row in rows]
    sections = [Section(_headline(result, log_count), Table(_SHOWN, shown))]
    sections += [_examples(finding) for finding in result.findings if finding.check.severity is not Severity.INFO]
    return Report(
        _data(result, log_count),
        Table(_COLUMNS, rows),
        sections if rows else (),
        () if rows else (_headline(result, log_count), _nothing(log_count, has_logs=has_logs)),
        ExitCode.BAD_ANSWER if (is_bad and result.findings) or not log_count else ExitCode.DONE,
    )


def _nothing(log_count: int, *, has_logs: bool) -> str:
    """Say what it means that there is no finding."""
    if log_count:
        return "no change of a leader, an ISR or a controller, and no error"
    return f"no log {'has a line of that time' if has_logs else 'was read'}: nothing is known"


def _data(result: CheckResult, log_count: int) -> Mapping[str, object]:
    return {
        "status": _STATUS[result.severity],
        "from": iso_time(result.first_start),
        "to": iso_time(result.last_start),
        "logs": log_count,
        "lines": result.line_count,
        "brokers": result.broker_ids,
        "partitions": result.partition_count,
        "findings": [
            {
                "check": finding.check.label,
                "severity": finding.check.severity,
                "count": finding.count,
                "from": iso_time(finding.first_start),
                "to": iso_time(finding.last_start),
                "meaning": finding.check.meaning,
                "examples": finding.examples,
            }
            for finding in result.findings
        ],
    }


def _row(finding: Finding) -> tuple[object, ...]:
    return (
        finding.check.severity,
        finding.check.label,
        finding.count,
        iso_time(finding.first_start),
        iso_time(finding.last_start),
        finding.check.meaning,
        "; ".join(finding.examples),
    )


def _headline(result: CheckResult, log_count: int) -> str:
    first, last = iso_time(result.first_start), iso_time(result.last_start)
    span = (
        "no lines"
        if first is None
        else f"{_day(first)} {_clock(first)} – {_clock(last, _day(first) == _day(last))} UTC"
    )
    brokers = ", ".join(map(str, result.broker_ids)) or "none"
    numbers = ((log_count, "log"), (result.line_count, "line"), (result.partition_count, "partition"))
    counts = ", ".join(counted(*number) for number in numbers)
    return f"{span} · brokers {brokers} · {counts}"


def _examples(finding: Finding) -> Section:
    more = finding.count - len(finding.examples)
    lines = [f"  {example}" for example in finding.examples]
    return Section(finding.check.label, text=[*lines, f"  and {more} more"] if more > 0 else lines)


def _day(time: object) -> str:
    return time[:10] if isinstance(time, str) else "-"


def _clock(time: object, is_one_day: bool = True) -> str:
    """Return a time for people, to the second, with the day if the findings are of several days."""
    if not isinstance(time, str):
        return "-"
    return time[11:19] if is_one_day else time[:19].replace("T", " ")
