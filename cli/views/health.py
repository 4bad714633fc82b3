"""A cluster's health: one row per reason, and for a person what to do about each."""

from __future__ import annotations

from cli.exit_codes import ExitCode
from cli.framework.remedies import spelled
from cli.output.report import Column, Kind, Report, Section, Table, Tone
from engine.admin.health.report import HealthReport, HealthStatus, Severity

_STATUS_WORDS = {
    HealthStatus.OK: "healthy",
    HealthStatus.WARNING: "healthy, with warnings",
    HealthStatus.CRITICAL: "unhealthy",
}


def _severity_tone(value: object) -> Tone | None:
    return Tone.BAD if value is Severity.CRITICAL else Tone.WARNING


_COLUMNS = (
    Column("check"),
    Column("severity", tone=_severity_tone),
    Column("count", Kind.NUMBER),
    Column("examples", Kind.LIST),
)
_SHOWN = (*_COLUMNS[:3], Column("example", falls_below=True))


def health_report(health: HealthReport, *, fails_on: HealthStatus) -> Report:
    """The reasons, the worst first; the exit code is 1 where the status is as bad as ``fails_on`` or worse."""
    rows = [(r.check, r.severity, r.count, r.examples) for r in health.reasons]
    shown = [(r.check, r.severity, r.count, r.examples[0]) for r in health.reasons]
    advice = [f"{reason.check.value}: {spelled(reason.check.advice)}" for reason in health.reasons]
    return Report(
        health,
        Table(_COLUMNS, rows),
        (Section(_STATUS_WORDS[health.status], Table(_SHOWN, shown)), Section(text=advice)) if shown else (),
        () if health.reasons else ("healthy",),
        exit_code=ExitCode.BAD_ANSWER if health.is_as_bad_as(fails_on) else ExitCode.DONE,
    )
