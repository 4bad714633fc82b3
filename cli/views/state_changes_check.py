"""What a check of state-change logs found: a line about the logs, a row per finding, examples below."""

from __future__ import annotations

from collections.abc import Mapping

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table, Tone
from engine.admin.state_changes.check import CheckResult
from engine.admin.state_changes.findings import Finding, Severity
from engine.admin.state_changes.merged_rows import iso_time
from engine.common.quantities import counted

_STATUS = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: "ok"}
_TONES = {Severity.CRITICAL: Tone.BAD, Severity.WARNING: Tone.WARNING, Severity.INFO: Tone.QUIET}


_SEVERITY = Column("severity", tone=_TONES)
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
