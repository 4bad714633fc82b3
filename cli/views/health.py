"""A cluster's health: one row per reason, and, for people, what to do about each."""

from __future__ import annotations

from collections.abc import Callable

from cli.exit_codes import ExitCode
from cli.framework.remedies import spelled
from cli.framework.talk import Talk
from cli.output.report import Column, Kind, Report, Section, Table, Tone
from engine.admin.health.report import HealthReason, HealthReport, HealthStatus, Severity, health_metrics

_STATUS_WORDS = {
    HealthStatus.OK: "healthy",
    HealthStatus.WARNING: "healthy, with warnings",
    HealthStatus.CRITICAL: "unhealthy",
}


_COLUMNS = (
    Column("check"),
    Column("severity", tone={Severity.CRITICAL: Tone.BAD, Severity.WARNING: Tone.WARNING}),
    Column("count", Kind.NUMBER),
    Column("examples", Kind.LIST),
)
_SHOWN = (*_COLUMNS[:3], Column("example", falls_below=True))


_TELL_EVERY_S = 10.0


class WaitingLine:
    """Says what it waits for: at once, whenever that changes, and every ten seconds."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._said = ""
        self._said_at_s = 0.0

    def __call__(self, health: HealthReport, waited_s: float) -> None:
        reasons = ", ".join(f"{reason.check.value} ({reason.count})" for reason in health.reasons)
        if reasons == self._said and waited_s < self._said_at_s + _TELL_EVERY_S:
            return
        self._said, self._said_at_s = reasons, waited_s
        self._talk.say(f"waited {waited_s:.0f} s so far: {reasons}")


def health_report(
    health: HealthReport,
    *,
    fails_on: HealthStatus,
    pasteable: Callable[[str], str] = lambda text: text,
    seen_by: str | None = None,
) -> Report:
    """The reasons, the worst first; the exit code is 1 if the status is as bad as ``fails_on`` or worse.

    Args:
        pasteable: completes a command that the advice names.
        seen_by: from whom a part of the cluster is hidden.
    """
    table = Table.of(_COLUMNS, health.reasons)
    shown = [(*row[:3], reason.examples[0]) for row, reason in zip(table.rows, health.reasons, strict=True)]
    advice = [spelled(reason.advice, pasteable) for reason in health.reasons]
    advice_lines = [line for reason, text in zip(health.reasons, advice, strict=True) for line in _told(reason, text)]
    reasons = [record | {"advice": text} for record, text in zip(table.records(), advice, strict=True)]
    return Report(
        {"status": health.status, "reasons": reasons},
        table,
        (Section(_STATUS_WORDS[health.status], Table(_SHOWN, shown)), Section(text=advice_lines)) if shown else (),
        () if health.reasons else ("healthy" if seen_by is None else f"healthy, as far as {seen_by} may see",),
        exit_code=ExitCode.BAD_ANSWER if health.is_as_bad_as(fails_on) else ExitCode.DONE,
        metrics=health_metrics(health),
    )


def _told(reason: HealthReason, advice: str) -> list[str]:
    """What to do about a reason, with its cases below if the table does not show all of them."""
    lines = [f"{reason.check.value}: {advice}"]
    if reason.count == 1:
        return lines
    more = reason.count - len(reason.examples)
    return [
        *lines,
        *(f"  {case}" for case in reason.examples),
        *([f"  and {more} more: -v lists all"] if more > 0 else []),
    ]
