"""What this machine has and lacks: one row per check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.exit_codes import ExitCode
from cli.framework.failure import EXIT_CODES
from cli.framework.remedies import spelled
from cli.output.report import Column, Report, Section, Table, Tone
from engine.local.doctor import Check, CheckStatus

if TYPE_CHECKING:
    # It imports the clients, which a look at this machine does not need.
    from engine.admin.brokers.doctor import Step

_TONES = {
    CheckStatus.OK: Tone.GOOD,
    CheckStatus.OPTIONAL: Tone.WARNING,
    CheckStatus.MISSING: Tone.BAD,
    CheckStatus.FAILED: Tone.BAD,
}


_COLUMNS = (
    Column("name", title="Check"),
    Column("status", tone=_TONES),
    Column("found"),
    Column("needed_for", is_dispensable=True),
    Column("how_to_get"),
)


def doctor_report(checks: Sequence[Check]) -> Report:
    """All checks; at a terminal, how to get what is missing stands below the table."""
    is_missing = any(check.status is CheckStatus.MISSING for check in checks)
    shown = Table.of(_COLUMNS[:-1], checks)
    advice = [
        f"{check.name}: {check.how_to_get} (for {check.needed_for})"
        for check in checks
        if check.status is not CheckStatus.OK and check.how_to_get
    ]
    sections = (Section(body=shown), Section(text=advice)) if advice else (Section(body=shown),)
    code = ExitCode.BAD_ANSWER if is_missing else ExitCode.DONE
    return Report(checks, Table.of(_COLUMNS, checks), sections, exit_code=code)


def walk_report(steps: Sequence[Step]) -> Report:
    """Each step on the way to a cluster, and what to do about the one that failed."""
    checks = [_check(step) for step in steps]
    advice = [check.how_to_get for check in checks if check.how_to_get]
    shown = Table.of((*_COLUMNS[:1], Column("needed_for", title="Where"), *_COLUMNS[1:3]), checks)
    sections = (Section(body=shown), Section(text=advice)) if advice else (Section(body=shown),)
    failed = next((step.failure for step in steps if step.failure is not None), None)
    code = ExitCode.DONE if failed is None else EXIT_CODES[failed]
    return Report(checks, Table.of(_COLUMNS, checks), sections, exit_code=code)


def _check(step: Step) -> Check:
    status = CheckStatus.OK if step.failure is None else CheckStatus.FAILED
    return Check(step.name, status, step.found, step.where, None if step.hint is None else spelled(step.hint))
