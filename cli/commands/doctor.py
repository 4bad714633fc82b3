"""``klamm doctor``: what is missing on this machine and how to get it."""

from __future__ import annotations

from pathlib import Path

from cli.exit_codes import ExitCode
from cli.framework.command import single_command
from cli.framework.invocation import Invocation
from cli.output.report import Column, Report, Table, Tone


@single_command("doctor", examples=("klamm doctor", "klamm doctor -o json | jq '.[] | select(.status != \"ok\")'"))
def command(invocation: Invocation) -> Report:
    """Say what is missing on this machine and how to get it.

    Exits with 1 when something is missing that klamm's main uses need; what is optional does not count.
    """
    from engine.admin.doctor import CheckStatus, Probes, examine
    from engine.local.java import find_java, zookeeper_classpath

    def java() -> str:
        found = find_java()
        return f"{found.major} ({found.program}, from {found.found_in})"

    def jars() -> str:
        return next(Path(part).name for part in zookeeper_classpath().split(":") if "zookeeper-" in part)

    checks = examine(Probes(java, jars), Path.cwd() / ".klamm")
    tones = {CheckStatus.OK: Tone.GOOD, CheckStatus.OPTIONAL: Tone.WARNING, CheckStatus.MISSING: Tone.BAD}
    columns = (
        Column("name", title="Check"),
        Column("status", tone=lambda status: tones[CheckStatus(str(status))]),
        Column("found"),
        Column("needed_for"),
        Column("how_to_get"),
    )
    rows = [(check.name, check.status, check.found, check.needed_for, check.how_to_get) for check in checks]
    is_missing = any(check.status is CheckStatus.MISSING for check in checks)
    return Report(checks, Table(columns, rows), exit_code=ExitCode.BAD_ANSWER if is_missing else ExitCode.DONE)
